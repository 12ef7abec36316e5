//! The demo without emulated disks: the latencies are injected at the sync calls of the volume and
//! of the log, and the server counts its own sync calls.

use super::archive::Archive;
use super::report::{DemoOptions, DemoReport, Emulation, Flushes, Progress, local_row, serial_row, verify};
use crate::error::{Context, Result};
use crate::limits::DEMO_ROW_TIME;
use crate::measure::{self, Budget, Terms};
use crate::net::Link;
use crate::served::{Durability, ServeOptions, Served};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

/// Size of the log file, in bytes.
const LOG_BYTES: u64 = 64 << 20;

const SERVED: [(&str, Durability); 4] = [
    ("sync", Durability::Sync),
    ("log", Durability::Log),
    ("unsafe", Durability::Unsafe),
    ("untar", Durability::Log),
];

/// Measures all rows in a directory of `scratch`.
pub(super) fn run(
    options: &DemoOptions,
    archive: &Archive,
    scratch: &Path,
    why: &str,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<DemoReport> {
    let link = Link::start(SocketAddr::from(([127, 0, 0, 1], 9)), options.rtt)?;
    let fresh = |name: &str| {
        let dir = scratch.join(name);
        std::fs::create_dir(&dir).context(|| format!("create {}", dir.display())).map(|()| dir)
    };
    let probe = fresh("probe")?;
    let terms = Terms {
        rtt_ms: measure::ms(link.measure()?),
        log_write_ms: measure::ms(options.log_flush),
        data_write_ms: measure::ms(options.flush),
        syscalls_ms: measure::ms(measure::syscalls(&probe)?),
    };
    let mut report = DemoReport::new(archive, options, Emulation::Injected, terms);
    report.notes.push(format!(
        "no emulated disk ({why}): latencies are injected at the sync calls of volume and log, on top of \
         those of this machine's disk; flushes are sync calls that the server counted; no power cut, and no other server"
    ));

    progress(Progress::Doing("local: tar -x, then sync".into()));
    let dir = fresh("local")?;
    let took = measure::local_untar(&archive.plain, &dir)? + options.flush;
    report.push(local_row(archive, &terms, took, Flushes::default()), progress);

    for (name, durability) in SERVED {
        progress(Progress::Doing(format!("{name}: over NFS")));
        let dir = fresh(name)?;
        let log = scratch.join(format!("{name}.log"));
        let server = Served::start(&ServeOptions {
            log_bytes: (durability == Durability::Log).then_some(LOG_BYTES),
            inject_volume: options.flush,
            inject_log: options.log_flush,
            stats: Some(scratch.join(format!("{name}.json"))),
            ..ServeOptions::new(&dir, Some(&log), durability)
        })?;
        link.retarget(server.addr());
        let taken = if name == "untar" {
            measure::untar(link.addr(), &archive.plain, Stdio::null())?
        } else {
            let budget = Budget { files: u64::MAX, time: DEMO_ROW_TIME };
            measure::serial_untar(link.addr(), name, archive.open()?, budget)?
        };
        server.stop()?;
        let calls = sync_calls(&scratch.join(format!("{name}.json")))?;
        let persistence_ms = terms.persistence_ms(durability);
        let mut line =
            serial_row(name, durability != Durability::Unsafe, &terms, &taken, calls, persistence_ms);
        if name == "untar" {
            let ms = terms.syscalls_ms + (terms.rtt_ms + terms.log_write_ms) / archive.files as f64;
            line.limit_files_per_s = 1000.0 / ms.max(1e-9);
        }
        report.push(line, progress);
    }

    progress(Progress::Doing("comparing the tree with the archive".into()));
    report.verified = verify(archive, &scratch.join("untar"), false)?;
    Ok(report)
}

/// The sync calls of volume and log that the server counted, its clean stop included.
fn sync_calls(counters: &Path) -> Result<Flushes> {
    let text = std::fs::read_to_string(counters).context(|| format!("read {}", counters.display()))?;
    let all: serde_json::Value = serde_json::from_str(&text)
        .map_err(|e| crate::error::Error::Protocol(format!("the server's counters are not JSON: {e}")))?;
    let get = |name: &str| all[name].as_u64().unwrap_or_default();
    Ok(Flushes {
        data: Some(get("fsyncs") + get("fdatasyncs") + get("syncfs")),
        log: all["log"]["flushes"].as_u64(),
    })
}
