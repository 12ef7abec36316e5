//! Experiments: each measures one claim with its peers and limits in one run, and says whether the
//! claim holds. `landfast lab run NAME`.
//!
//! One file is one experiment. A new one is a file here and a line in [`ALL`].

mod beside_ganesha;
mod checkpoint_stall;
mod client_bench;
mod client_flushes;
mod client_memory;
mod client_round_trips;
mod client_rpcs;
mod clients_at_once;
mod early_requests;
mod eight_clients;
mod findings;
mod large_directory;
mod log_throughput;
mod lone_client;
pub(crate) mod mount;
mod mount_memory;
mod mount_short_of_memory;
pub(crate) mod nested_open;
mod operation_steps;
mod predicted;
mod recovery_speed;
mod scale;
mod serial_flushes;
mod server_memory;
mod streams;
mod trace_speed;
mod untar_local_limit;
mod untar_vs_serial;
pub(crate) mod web_page;

pub use findings::{Check, Choices, Findings, Progress, Relation, Row};
pub(crate) use findings::{actor, client_failed, connect, mebibytes, middle};
pub(crate) use scale::exponent;

use crate::error::{Error, Result};
use crate::measure::Terms;
use serde::{Deserialize, Serialize};

pub struct Experiment {
    pub name: &'static str,
    /// What it measures, in one line.
    pub about: &'static str,
    run: fn(&Choices, Progress<'_>) -> Result<Findings>,
}

pub const ALL: [Experiment; 34] = [
    Experiment {
        name: "untar-vs-serial",
        about: "untar against local extraction and one file at a time, data disk 10 ms, log 0.05 ms",
        run: untar_vs_serial::run,
    },
    Experiment {
        name: "untar-local-limit",
        about: "untar to a server on this machine beside local tar -x and sync, on the same kind of disk",
        run: untar_local_limit::run,
    },
    Experiment {
        name: "serial-flushes",
        about: "flushes per operation of one client that does one thing at a time",
        run: serial_flushes::run,
    },
    Experiment {
        name: "lone-client",
        about: "one operation at a time on devices of 0.05 to 10 ms: how near a round trip and one flush",
        run: lone_client::run,
    },
    Experiment {
        name: "clients-at-once",
        about: "1 to 64 clients that do one thing at a time, at once (--peer: another build of landfast beside)",
        run: clients_at_once::run,
    },
    Experiment {
        name: "operation-steps",
        about: "the steps of one operation in the server, its system calls and wake-ups, from the kernel's tracepoints",
        run: operation_steps::run,
    },
    Experiment {
        name: "eight-clients",
        about: "flushes per operation of eight such clients at once",
        run: eight_clients::run,
    },
    Experiment {
        name: "server-memory",
        about: "peak memory of the server while a long synthetic archive is extracted (--files 1000000)",
        run: server_memory::run,
    },
    Experiment {
        name: "large-directory",
        about: "time for each entry of a very large directory, and the server's memory (--files 1000000)",
        run: large_directory::run,
    },
    Experiment {
        name: "beside-ganesha",
        about: "processor time for each kind of operation and speed of streams, beside nfs-ganesha",
        run: beside_ganesha::run,
    },
    Experiment {
        name: "streams",
        about: "one large file written and read by 1, 4 and 16 clients, beside nfs-ganesha and local programs (--files 4096: MiB)",
        run: streams::run,
    },
    Experiment {
        name: "scale",
        about: "what grows with clients, directories, trees, exports and logs: latencies, throughput, memory, starts",
        run: scale::run,
    },
    Experiment {
        name: "scale-clients",
        about: "of these only 1 to 10,000 clients, of which one in a hundred works at a time (--files: the most clients)",
        run: scale::run_clients,
    },
    Experiment {
        name: "scale-directories",
        about: "of these only directories of 1,000 to 100,000 names (--files: the most names)",
        run: scale::run_directories,
    },
    Experiment {
        name: "scale-trees",
        about: "of these only trees of 1,000 to 100,000 objects (--files: the most objects)",
        run: scale::run_trees,
    },
    Experiment {
        name: "scale-exports",
        about: "of these only 1 to 100 exports (--files: the most exports)",
        run: scale::run_exports,
    },
    Experiment {
        name: "scale-logs",
        about: "of these only logs of 64 MiB to 1 GiB (--files: the largest in MiB)",
        run: scale::run_logs,
    },
    Experiment {
        name: "scale-neighbours",
        about: "of these only an honest client beside one that reads no reply, and beside one that floods the server",
        run: scale::run_neighbours,
    },
    Experiment {
        name: "early-requests",
        about: "what untar earns by sending requests before it knows the destination (1 to 50 ms, 100 to 32,768 files)",
        run: early_requests::run,
    },
    Experiment {
        name: "client-rpcs",
        about: "RPCs per file of the client's commands, on servers that take many, 200 and 50 operations in a COMPOUND",
        run: client_rpcs::run,
    },
    Experiment {
        name: "client-memory",
        about: "peak memory and processor time of the client's commands on a long tree (--files 1000000)",
        run: client_memory::run,
    },
    Experiment {
        name: "client-flushes",
        about: "many small files put on nfs-ganesha and on Landfast, on disks that take 1 ms to flush, beside other clients (--peer PROGRAM)",
        run: client_flushes::run,
    },
    Experiment {
        name: "client-round-trips",
        about: "many small files put on a server at round trips of 0.1 to 50 ms, beside other clients (--peer PROGRAM)",
        run: client_round_trips::run,
    },
    Experiment {
        name: "mount",
        about: "tar, ls, cp, rsync, rm, git, an install, make and SQLite on `landfast mount`, beside a local disk with sync (--only, --round-trips, --flushes, --mount-options)",
        run: mount::run,
    },
    Experiment {
        name: "mount-memory",
        about: "peak memory of the process that serves a mount, on a long tree (--files 1000000)",
        run: mount_memory::run,
    },
    Experiment {
        name: "mount-short-of-memory",
        about: "programs that write much on a mount whose process shares 96 MiB of memory with them",
        run: mount_short_of_memory::run,
    },
    Experiment {
        name: "nested-open",
        about: "a file below 1 to 32 directories opened for the first time, beside one name after another",
        run: nested_open::run,
    },
    Experiment {
        name: "web-page",
        about: "a web page's hundred files looked at, read and written, beside one thing at a time",
        run: web_page::run,
    },
    Experiment {
        name: "predicted",
        about: "what `landfast predict` says beside what is measured: now, and after each kind of change",
        run: predicted::run,
    },
    Experiment {
        name: "predicted-links",
        about: "what `landfast predict` says, with its range, over links of 20 Mbit/s, 100 Mbit/s and 1 Gbit/s, for one client and four",
        run: predicted::run_links,
    },
    Experiment {
        name: "trace-speed",
        about: "landfast trace beside tshark and nfstrace on one capture (--files 62500: 500,000 calls)",
        run: trace_speed::run,
    },
    Experiment {
        name: "log-throughput",
        about: "the log by itself: one writer against the device's own durable write, and 64 writers against one",
        run: log_throughput::run,
    },
    Experiment {
        name: "recovery-speed",
        about: "operations a second that a start recovers after a power cut that left the data disk nothing of them",
        run: recovery_speed::run,
    },
    Experiment {
        name: "checkpoint-stall",
        about: "latency of operations while a checkpoint is under way, and while none is",
        run: checkpoint_stall::run,
    },
];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub name: String,
    pub about: String,
    /// The measured terms of the equation, where it uses them.
    pub terms: Option<Terms>,
    pub lines: Vec<Row>,
    pub checks: Vec<Check>,
    pub notes: Vec<String>,
    pub holds: bool,
    pub total_s: f64,
}

pub fn run(name: &str, choices: &Choices, progress: Progress<'_>) -> Result<Report> {
    let Some(experiment) = ALL.iter().find(|e| e.name == name) else {
        let names: Vec<_> = ALL.iter().map(|e| e.name).collect();
        return Err(Error::Unable(format!("no experiment `{name}`: there are {}", names.join(", "))));
    };
    progress("waiting until the machine's own disks have what was written before");
    crate::sys::settle();
    let start = std::time::Instant::now();
    let found = (experiment.run)(choices, progress)?;
    Ok(Report {
        name: experiment.name.to_owned(),
        about: experiment.about.to_owned(),
        terms: found.terms,
        lines: found.lines,
        holds: found.checks.iter().all(|c| c.holds),
        checks: found.checks,
        notes: found.notes,
        total_s: start.elapsed().as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_experiment_names_the_known_ones() {
        let e = run("x", &Choices::default(), &mut |_| {}).unwrap_err().to_string();
        assert!(ALL.iter().all(|x| e.contains(x.name)), "{e}");
    }
}
