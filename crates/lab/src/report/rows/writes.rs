//! How clients send what a program writes: which data is stable with its own reply, and which with a COMMIT.

use crate::capture::{self, Tap};
use crate::error::{Context, Error, Result};
use crate::experiments::Check;
use crate::measure::{Budget, serial_untar_with};
use crate::report::content::{Found, Lane, Packet, Picture, Table, Unit, Whose};
use crate::report::plan::Plan;
use crate::report::stand::{Setup, Stand, here};
use crate::rig::Latency;
use crate::serial::{Actor, Connect, Session};
use crate::tarball::{Shape, write_random};
use crate::tools;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Sizes of the files in KiB.
const SIZES_KIB: [usize; 5] = [1, 32, 33, 64, 8192];
const DATA_BYTES: u64 = 512 << 20;

pub fn run(plan: &mut Plan<'_>) -> Result<Found> {
    let mut absent = Vec::new();
    let setups = here(&[Setup::GANESHA, Setup::LOG], &mut absent);
    let columns = [
        ("requests", Unit::Count),
        ("bytes written", Unit::Count),
        ("of them stable with their reply", Unit::Share),
        ("COMMITs", Unit::Count),
    ];
    let mut table = Table::new("size, client, server", columns);
    let (mut lanes, mut unkept, mut committed, mut wrong_bytes) = (Vec::new(), 0u64, 0u64, 0u64);
    let dir = crate::machine::scratch_dir("landfast-writes-")?;
    for setup in setups {
        let mut stand = Stand::start(setup, Latency::default(), DATA_BYTES)?;
        for kib in SIZES_KIB {
            plan.step(&format!("{kib} KiB to {}", setup.name))?;
            let file = dir.path().join(format!("file{kib}"));
            std::fs::write(&file, vec![7; kib << 10]).context(|| format!("write {}", file.display()))?;
            for client in ["landfast cp", "one operation at a time"] {
                let tap = Tap::start(stand.addr())?;
                match client {
                    "landfast cp" => {
                        // The tap follows one connection.
                        let url = format!("nfs://{}/{kib}?version=4.1&nconnect=1", tap.addr());
                        tools::run(&["cp", &file.to_string_lossy(), &url]).map(drop)?;
                    }
                    _ => {
                        let shape = Shape { files: 1, file_bytes: kib << 10, ..Shape::default() };
                        let mut archive = Vec::new();
                        write_random(shape, &mut archive).context(|| "make an archive".to_owned())?;
                        let budget = Budget { files: 1, time: Duration::from_secs(10) };
                        let root = stand.dirs(1)?.remove(0);
                        let mut session = Session::connect(&Connect::new(tap.addr(), root.clone()))?;
                        let root = session.walk(&root)?;
                        let mut actor = Actor::new(session, root);
                        serial_untar_with(&mut actor, &archive[..], budget)?;
                        actor.into_session().close()?;
                    }
                }
                let packets = listed(&tap.finish()?, dir.path())?;
                let written: u64 = packets.iter().map(|p| p.bytes).sum();
                let stable: u64 = packets.iter().filter(|p| p.stable == "FILE_SYNC").map(|p| p.bytes).sum();
                let commits = packets.iter().filter(|p| p.stable == "COMMIT").count();
                // After the last byte something must have made all of it stable.
                let last = |of: &dyn Fn(&Packet) -> bool| packets.iter().rposition(of);
                let unstable = last(&|p| p.bytes > 0 && p.stable != "FILE_SYNC");
                unkept += u64::from(unstable.is_some_and(|n| last(&|p| p.stable == "COMMIT") < Some(n)));
                committed += u64::from(unstable.is_some());
                wrong_bytes += written.abs_diff((kib << 10) as u64);
                let name = format!("{kib} KiB, {client}, {}", setup.name);
                let values = [
                    Some(packets.len() as f64),
                    Some(written as f64),
                    Some(stable as f64 / written.max(1) as f64),
                    Some(commits as f64),
                ];
                let whose = if client == "landfast cp" { Whose::Ours } else { Whose::Peer };
                table.add(&name, whose, values);
                lanes.push(Lane { name, whose, packets });
            }
        }
        stand.stop()?;
    }
    let mut found = Found::new(Picture::Packets(lanes), table);
    found.checks = vec![
        Check::of_data("files whose data nothing made stable before the client's end", unkept as f64, 0.0),
        Check::at_least(
            "files that were sent UNSTABLE and made stable by a COMMIT behind",
            committed as f64,
            1.0,
        ),
        Check::of_data("bytes that were sent too often or not at all", wrong_bytes as f64, 0.0),
    ];
    absent.push(
        "Linux's client, which sends up to 32 KiB as FILE_SYNC and more as UNSTABLE with a COMMIT, as NFS and tar, an analysis, has it: \
         `cargo xtask guest captures` captures it"
            .to_owned(),
    );
    absent.push("libnfs: it uses two connections, of which the lab's tap follows one".to_owned());
    found.absent = absent;
    found.notes = vec![
        "captured between client and server, and read by `landfast trace --list`; requests of the session's start and end are left out".to_owned(),
    ];
    Ok(found)
}

/// The requests of a connection, as `landfast trace --list` shows them.
fn listed(passed: &[capture::Passed], dir: &Path) -> Result<Vec<Packet>> {
    let path = dir.join("capture.pcap");
    let what = || format!("write {}", path.display());
    let mut file = std::fs::File::create(&path).context(what)?;
    capture::write(&capture::frames(passed), 1, &mut file).context(what)?;
    let out = Command::new(crate::machine::exe()?)
        .args(["trace", "--list"])
        .arg(&path)
        .output()
        .context(|| "run `landfast trace`".to_owned())?;
    if !out.status.success() {
        return Err(Error::Tool {
            command: "landfast trace --list".into(),
            status: out.status.to_string(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        });
    }
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    Ok(text.lines().filter_map(packet).collect())
}

/// A call's line; none for replies, and for what only makes or ends a session.
fn packet(line: &str) -> Option<Packet> {
    let (_, call) = line.split_once(" V4 Call ")?;
    let operations: Vec<&str> = call.split([';', '|']).map(str::trim).filter(|op| !op.is_empty()).collect();
    let name = |op: &&str| op.split([' ', ',']).next().unwrap_or_default().to_owned();
    let names: Vec<String> = operations.iter().map(name).collect();
    let session =
        ["EXCHANGE_ID", "CREATE_SESSION", "DESTROY_SESSION", "DESTROY_CLIENTID", "RECLAIM_COMPLETE"];
    if names.iter().any(|n| session.contains(&n.as_str())) {
        return None;
    }
    let mut bytes = 0;
    let mut stable = String::new();
    for (op, name) in operations.iter().zip(&names) {
        match name.as_str() {
            "WRITE" => {
                let len =
                    op.split_once("Len: ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
                bytes += len.unwrap_or(0);
                stable = op.split(' ').next_back().unwrap_or_default().to_owned();
            }
            "COMMIT" if stable.is_empty() => stable = "COMMIT".into(),
            _ => {}
        }
    }
    let shown: Vec<String> = names
        .iter()
        .filter(|n| {
            !matches!(
                n.as_str(),
                "SEQUENCE" | "PUTFH" | "PUTROOTFH" | "SAVEFH" | "RESTOREFH" | "GETFH" | "GETATTR"
            )
        })
        .map(|n| if n == "WRITE" { format!("WRITE {} KiB {stable}", bytes >> 10) } else { n.clone() })
        .collect();
    let what = if shown.is_empty() { names.last().cloned().unwrap_or_default() } else { shown.join(" ") };
    Some(Packet { what, stable, bytes })
}
