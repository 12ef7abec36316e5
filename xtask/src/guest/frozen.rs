//! `cargo xtask guest frozen`: a client that holds write delegations stands still (SIGSTOP for its QEMU), and others change its files.
//!
//! What has to come of it (RFC 8881 sections 10.2.1 and 10.5): the others go on when the server has waited for a lease, and no sooner; the
//! delegations are gone for good, also if the server loses its power then; and the client, once it goes on, mixes nothing of its own into
//! what the others have written.
//!
//! | file | the client has | the other | then |
//! |---|---|---|---|
//! | `clean` | the file open | overwrites it | the client sees the other's bytes |
//! | `locked` | a lock and unwritten data | overwrites it | its program hears an error, nothing of its data comes |
//! | `open` | unwritten data, no lock | overwrites it | below |
//! | `removed` | unwritten data | removes it | its program hears an error, the file stays away |
//!
//! `open` is shown, and only looked at for bytes that nobody wrote there. RFC 8881 section 10.5 wants the client to drop what it had not
//! written. Linux (6.12 and 7.2) opens the file anew instead, which nobody may refuse it, and writes its data under the new stateid, whole pages of
//! it, over what the others have written. A program that locks what it changes is safe: of a lock that it has lost, Linux tells it (EIO).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use super::client::{self, Client, Whose};
use super::image;
use super::machine::{Hardware, Machine};
use super::network::Link;
use super::recipe::{Kernel, Vers};
use super::server::{self, Scratch, Server, chosen_binary};
use crate::proc::command;

const HOLD: &str = include_str!("../../guest/frozen/hold.sh");
const HOLDER: &str = include_str!("../../guest/frozen/hold.pl");
const THAWED: &str = include_str!("../../guest/frozen/thawed.sh");
const AFTER: &str = include_str!("../../guest/frozen/after.sh");

/// Bytes of the scratch volume (sparse).
const VOLUME_BYTES: u64 = 1 << 30;

/// The server's lease. Linux renews its own when two thirds are over.
const LEASE: Duration = Duration::from_secs(15);

/// The soonest that anybody may go on: the frozen client may have renewed its lease up to two thirds of it before it was frozen.
const SOONEST: Duration = Duration::from_secs(5);

/// The latest: a lease after the recall, and the longest pause of a client that was told to come again.
const LATEST: Duration = Duration::from_secs(25);

/// Between two looks at the others.
const LOOK: Duration = Duration::from_millis(20);

/// What the others write: shorter than what was there, so that whatever the client writes later shows.
const OTHERS_BYTES: usize = 12_000;

/// What the client's process writes first, as in `hold.pl`; then what it does not have written before it is frozen, and what it writes after.
const CLIENTS_BYTES: usize = 20_000;
const DIRTY: &[u8] = b"dirty";
const DIRTY_TIMES: usize = 3000;
const DIRTY_AT: usize = 1000;
const LATE: &[u8] = b"late";
const LATE_AT: usize = 4096;

/// The files, and what the client's process has of each.
const FILES: [Held; 4] = [Held::Clean, Held::Locked, Held::Open, Held::Removed];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Clean,
    Locked,
    Open,
    Removed,
}

impl Held {
    fn name(self) -> &'static str {
        match self {
            Held::Clean => "clean",
            Held::Locked => "locked",
            Held::Open => "open",
            Held::Removed => "removed",
        }
    }

    fn names() -> String {
        FILES.map(Held::name).join(" ")
    }
}

/// Options of `guest frozen`.
#[derive(Args)]
pub struct Options {
    /// The guest's kernel: 6.1, 6.12 or sid. 6.1 is given no write delegations.
    #[arg(long, default_value_t = Kernel::V6_12)]
    kernel: Kernel,
    /// NFS versions of the others, which are the client's commands.
    #[arg(long, value_delimiter = ',', default_values_t = [Vers::V4_2, Vers::V3])]
    others: Vec<Vers>,
    /// Which delegations the guest is given: write or times.
    #[arg(long, default_value = "write", value_name = "LEVEL")]
    delegations: String,
    /// The binary, instead of building the release one.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// The scratch volume's filesystem: ext4, xfs or btrfs.
    #[arg(long, default_value = "ext4")]
    fs: String,
    /// Seconds that one script may take.
    #[arg(long, default_value_t = 300)]
    limit: u64,
}

impl Options {
    /// What comes from outside, or is built.
    pub fn fetch(&self) -> Result<(), String> {
        image::build(self.kernel)?;
        chosen_binary(self.binary.as_deref()).map(drop)
    }
}

pub fn run(options: &Options) -> Result<ExitCode, String> {
    let binary = chosen_binary(options.binary.as_deref())?;
    let image = image::build(options.kernel)?;
    let dir = image::run_dir("frozen")?;
    let written = dir.path().join("written");
    fs::write(&written, others_bytes()).map_err(|e| format!("{}: {e}", written.display()))?;
    let scratch = Scratch::new(&options.fs, VOLUME_BYTES)?;
    let lines = format!("delegations = {:?}\n", options.delegations);
    let server = Server::start_with(&binary, &scratch, "log", Some(LEASE.as_secs()), Some(&lines))?;
    let hardware = Hardware { link: Some(Link::new()?), ..Hardware::default() };
    let machine = Machine::boot(&image, &hardware)?;
    println!(
        "Linux {}, delegations = {:?}, a lease of {} s",
        machine.release,
        options.delegations,
        LEASE.as_secs()
    );
    let from = client::Server::FromFile(server.address().port());
    let client =
        Client { machine, server: from, whose: Whose::Linux, limit: Duration::from_secs(options.limit) };
    let mut session = Session { binary, written, volume: scratch.volume(), server, client };
    let mut failed = false;
    for vers in &options.others {
        for cut in [false, true] {
            let then = if cut { ", then the server is killed" } else { "" };
            match session.round(*vers, cut) {
                Ok(said) => println!("others by {vers}{then}: passed\n{said}"),
                Err(why) => {
                    failed = true;
                    println!("others by {vers}{then}: FAILED: {why}");
                    eprintln!("The server said last:\n{}", session.server.said());
                    session.server.alive()?;
                    eprintln!("The guest's console:\n{}", session.client.machine.console());
                    // The next round starts afresh, whatever this one left.
                    session.client.machine.end();
                    session.client.machine = Machine::boot(&image, &hardware)?;
                }
            }
        }
    }
    session.server.stop()?;
    drop(scratch);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The client that is frozen, the server, and what the others need.
struct Session {
    binary: PathBuf,
    /// What the others write.
    written: PathBuf,
    volume: PathBuf,
    server: Server,
    client: Client,
}

impl Session {
    /// The client is frozen while it holds everything, others change its files, and it goes on. Returns what was seen. With `cut` the server
    /// is killed as soon as the others are done, before the client goes on.
    fn round(&mut self, others: Vers, cut: bool) -> Result<String, String> {
        let round = format!("frozen-{others}-{cut}");
        let settings = format!("ROUND={round} FILES='{}'\n", Held::names());
        self.client.run_with(Some(Vers::V4_2), &format!("{settings}{HOLD}"), HOLDER.as_bytes())?;
        self.client.machine.freeze()?;
        for held in FILES {
            let found = self.content(&round, held)?;
            if found.as_deref() != Some(&vec![b'A'; CLIENTS_BYTES][..]) {
                let found = found.map_or("no file".to_owned(), |found| sketch(&found));
                return Err(format!(
                    "{}: not what the client has synced, so nothing is tested: {found}",
                    held.name()
                ));
            }
        }
        let waits = self.change(others, &round)?;
        self.only_the_others(&round, &FILES)?;
        if cut {
            self.server.kill()?;
            self.server.start_again()?;
        }
        self.client.machine.thaw()?;
        let said = self.client.run(Some(Vers::V4_2), &format!("{settings}{THAWED}"))?;
        let ends = ends(&said)?;
        let seen = self.client.run(Some(Vers::V4_2), &format!("{settings}{AFTER}"))?;
        for held in [Held::Locked, Held::Removed] {
            if ends.iter().any(|(of, errors)| *of == held && errors.iter().all(|error| *error == 0)) {
                return Err(format!("{}: the client's program heard of no error: {said}", held.name()));
            }
        }
        self.only_the_others(&round, &[Held::Clean, Held::Locked, Held::Removed])?;
        let found = self.content(&round, Held::Open)?.ok_or("open: is gone")?;
        let open = if found == others_bytes() { "the others' data" } else { "the client's data over theirs" };
        if let Some(at) = (0..found.len()).find(|at| !may_be(&found, *at)) {
            return Err(format!("open: nobody wrote what is at {at}: {}", sketch(&found)));
        }
        let times: Vec<String> = waits.iter().map(|wait| format!("{:.1}", wait.as_secs_f64())).collect();
        Ok(format!(
            "  waited for {} s; errors of write, fsync, close: {}; `open` has {open}\n  the client sees {}",
            times.join(", "),
            said.split('\n').filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; "),
            seen.split('\n').filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; "),
        ))
    }

    /// The others change all files at once, each by a command of its own. Returns how long each took; an error if one fails, or was let go on
    /// too soon or too late.
    fn change(&self, vers: Vers, round: &str) -> Result<Vec<Duration>, String> {
        let began = Instant::now();
        let mut running = Vec::new();
        for held in FILES {
            let at = self.server.address();
            let url = format!("nfs://{at}{}/{round}/{}?version={vers}", server::NAME, held.name());
            let written = self.written.display().to_string();
            let words = match held {
                Held::Removed => vec!["rm".to_owned(), url],
                _ => vec!["cp".to_owned(), "-T".to_owned(), written, url],
            };
            let mut started = command(&self.binary.to_string_lossy(), words);
            started.stdout(Stdio::null());
            let child = started.spawn().map_err(|e| format!("{}: {e}", self.binary.display()))?;
            running.push(Other { held, child, took: None });
        }
        while running.iter().any(|other| other.took.is_none()) {
            for other in running.iter_mut().filter(|other| other.took.is_none()) {
                let ended = other.child.try_wait().map_err(|e| format!("{}: {e}", other.held.name()))?;
                let took = began.elapsed();
                match ended {
                    Some(status) if !status.success() => {
                        return Err(format!(
                            "{}: the other's command ended with {status}",
                            other.held.name()
                        ));
                    }
                    Some(_) if took < SOONEST => {
                        return Err(format!(
                            "{}: changed after {took:?}, under the delegation",
                            other.held.name()
                        ));
                    }
                    Some(_) => other.took = Some(took),
                    None if took > LATEST => {
                        return Err(format!("{}: still not changed after {took:?}", other.held.name()));
                    }
                    None => {}
                }
            }
            std::thread::sleep(LOOK);
        }
        Ok(running.iter().filter_map(|other| other.took).collect())
    }

    /// An error if one of these files is other than the others have left it.
    fn only_the_others(&self, round: &str, files: &[Held]) -> Result<(), String> {
        for held in files {
            let wanted = (*held != Held::Removed).then(others_bytes);
            let found = self.content(round, *held)?;
            if found != wanted {
                let bytes = found.map_or("no file".to_owned(), |found| sketch(&found));
                return Err(format!("{}: not what the others have left: {bytes}", held.name()));
            }
        }
        Ok(())
    }

    /// What is in the volume, if the file is there.
    fn content(&self, round: &str, held: Held) -> Result<Option<Vec<u8>>, String> {
        content(&self.volume.join(round).join(held.name()))
    }
}

/// A command of the others.
struct Other {
    held: Held,
    child: Child,
    took: Option<Duration>,
}

impl Drop for Other {
    fn drop(&mut self) {
        // It has ended, or the round has.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn others_bytes() -> Vec<u8> {
    vec![b'B'; OTHERS_BYTES]
}

fn content(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("{}: {e}", path.display())),
    }
}

/// Whether the others, or the client's process, had this byte at this place.
fn may_be(found: &[u8], at: usize) -> bool {
    let mut clients = vec![b'A'; CLIENTS_BYTES];
    clients[DIRTY_AT..][..DIRTY.len() * DIRTY_TIMES].copy_from_slice(&DIRTY.repeat(DIRTY_TIMES));
    clients[LATE_AT..][..LATE.len()].copy_from_slice(LATE);
    found.get(at).is_some_and(|byte| {
        (at < OTHERS_BYTES && *byte == b'B') || clients.get(at).is_some_and(|had| had == byte)
    })
}

/// Runs of equal bytes, with their lengths.
fn sketch(bytes: &[u8]) -> String {
    let runs: Vec<String> = bytes
        .chunk_by(|a, b| a == b)
        .take(20)
        .map(|run| format!("{}*{}", run.len(), run[0].escape_ascii()))
        .collect();
    format!("{} bytes: {}", bytes.len(), runs.join(" "))
}

/// What each process said: the errors of its last calls.
fn ends(said: &str) -> Result<Vec<(Held, Vec<i32>)>, String> {
    let lines = said.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("opens "));
    let ends = lines.map(|line| {
        let mut words = line.split_whitespace();
        let held = words.next().and_then(|name| FILES.into_iter().find(|held| held.name() == name));
        let errors: Result<Vec<i32>, _> = words.map(str::parse).collect();
        match (held, errors) {
            (Some(held), Ok(errors)) if errors.len() == 3 => Ok((held, errors)),
            _ => Err(format!("the client said {line:?}")),
        }
    });
    let ends = ends.collect::<Result<Vec<_>, _>>()?;
    if ends.len() == FILES.len() { Ok(ends) } else { Err(format!("not all have said something: {said}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_processes_say_is_read() {
        let said = "clean 0 0 0\nlocked 5 0 5\n\nopen 0 0 0\nremoved 0 116 0\nopens 3\n";
        let all = ends(said).unwrap();
        assert_eq!(all[1], (Held::Locked, vec![5, 0, 5]));
        assert_eq!(all[3], (Held::Removed, vec![0, 116, 0]));
        for wrong in ["clean 0 0 0\n", "clean 0 0\nlocked 0 0 0\nopen 0 0 0\nremoved 0 0 0\n", "else 0 0 0\n"]
        {
            assert!(ends(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_nobody_wrote_is_found() {
        let all = |found: &[u8]| (0..found.len()).all(|at| may_be(found, at));
        assert!(all(&others_bytes()) && all(&[b'A'; CLIENTS_BYTES][..DIRTY_AT]) && all(b"BABA"));
        assert!(
            !all(b"BB\0B") && !all(b"d") && !all(&[b'B'; OTHERS_BYTES + 1]) && !all(&[b'A'; DIRTY_AT + 1])
        );
    }

    #[test]
    fn a_mixed_file_is_shown_in_short() {
        assert_eq!(sketch(b"BBdB"), "4 bytes: 2*B 1*d 1*B");
    }
}
