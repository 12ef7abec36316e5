//! One archive onto a filesystem in memory, a local disk, NFS that breaks its promise, and NFS that keeps it.

use crate::error::Result;
use crate::experiments::Check;
use crate::report::claims::{FEWER_FILES, beside_peers};
use crate::report::content::{Axis, Bar, Found, Picture, Table, Unit, Whose};
use crate::report::plan::Plan;
use crate::report::stand::{Archive, Put, Setup, Stand, here, link, local, local_memory, ms, terms};
use crate::rig::Latency;
use std::time::Duration;

const DATA_FLUSH_MS: f64 = 10.0;
const LOG_FLUSH_MS: f64 = 0.05;
const RTT_MS: f64 = 0.2;

/// The claims: `untar` beside the quickest honest server of others, with `untar` there and with one file at a time, and beside a
/// local disk.
const PEER_UNTAR_MIN: f64 = 20.0;
const PEER_MIN: f64 = 20.0;
const LOCAL_MIN: f64 = 0.3;

struct Line {
    name: String,
    whose: Whose,
    is_untar: bool,
    put: Put,
    limit: Option<f64>,
}

pub fn run(plan: &mut Plan<'_>) -> Result<Found> {
    let mut absent = Vec::new();
    let all = [Setup::GANESHA_EXT4, Setup::UNSAFE, Setup::GANESHA, Setup::SYNC, Setup::LOG];
    let setups = here(&all, &mut absent);
    let latency = Latency { data_flush: ms(DATA_FLUSH_MS), log_flush: ms(LOG_FLUSH_MS) };
    let link = link(RTT_MS)?;
    plan.step("the disks and the network by themselves")?;
    let terms = terms(latency, &link)?;
    let archive = Archive::random(plan.pick(1024, 4096))?;
    let line =
        |name: &str, whose, put, limit| Line { name: name.to_owned(), whose, is_untar: false, put, limit };
    plan.step("a filesystem in memory")?;
    let memory = local_memory(&archive)?;
    let mut lines = vec![line("tar and sync, in memory (tmpfs)", Whose::Local, memory, None)];
    plan.step("the local disk")?;
    let disk = local(&Setup::LOG, latency, "", &archive)?;
    let limit = 1000.0 / (terms.syscalls_ms + disk.waited_each() * terms.data_write_ms);
    lines.push(line("tar and sync, local disk (ext4)", Whose::Local, disk, Some(limit)));
    for setup in setups {
        plan.step(&format!("{}: one file at a time", setup.name))?;
        let mut stand = Stand::start(setup, latency, archive.disk_bytes())?;
        link.retarget(stand.addr());
        let put = stand.serial(&link, &archive, 1, Duration::from_millis(plan.pick(800, 6000)))?;
        let name = format!("one file at a time, {}", setup.name);
        lines.push(line(&name, setup.whose, put, Some(put.serial_limit(&terms))));
        if setup.takes_untar() {
            plan.step(&format!("{}: landfast untar", setup.name))?;
            let put = stand.untar_in_time(&link, &archive, &put)?;
            let name = format!("landfast untar, {}", setup.name);
            let limit = Some(put.batched_limit(&terms));
            lines.push(Line { is_untar: true, ..line(&name, setup.whose, put, limit) });
        }
        stand.stop()?;
    }

    let ours = lines.last().map_or(f64::NAN, |l| l.put.files_per_s());
    let columns = [
        ("files/s", Unit::PerSecond),
        ("files measured", Unit::Count),
        ("a file takes", Unit::Milliseconds),
        ("RPCs a file", Unit::Each),
        ("flushes a file", Unit::Each),
        ("limit by the equation, files/s", Unit::PerSecond),
        ("of the limit", Unit::Share),
        ("untar is so many times as fast", Unit::Times),
    ];
    let mut table = Table::new("onto what", columns);
    let mut bars = Vec::new();
    for l in &lines {
        let pace = l.put.files_per_s();
        let share = l.limit.map(|limit| pace / limit);
        let rpcs = (l.put.rpcs > 0).then(|| l.put.each(l.put.rpcs));
        let flushes = Some(l.put.flushes_each());
        let files = Some(l.put.files as f64);
        let values =
            [Some(pace), files, Some(l.put.ms_per_file()), rpcs, flushes, l.limit, share, Some(ours / pace)];
        table.add(&l.name, l.whose, values);
        bars.push(Bar { name: l.name.clone(), whose: l.whose, value: pace, limit: l.limit });
    }
    let mut found = Found::new(Picture::Bars { axis: Axis::log("files a second"), bars }, table);
    if plan.judges_times() {
        let puts = lines.iter().filter(|l| l.whose == Whose::Peer).map(|l| (l.is_untar, &l.put));
        found.checks.extend(beside_peers(ours, puts, [PEER_UNTAR_MIN, PEER_MIN]));
    }
    if plan.judges_times() {
        let what = "untar on Landfast: part of the speed of tar and sync on the same kind of disk";
        found.checks.push(Check::at_least(what, ours / disk.files_per_s(), LOCAL_MIN));
    }
    found.checks.extend(crate::report::claims::untar_counts(lines.last().map(|l| &l.put)));
    found.terms = Some(terms);
    found.absent = absent;
    found.absent.push(crate::report::guests::knfsd_absent(plan.guests, "--server kernel"));
    found.notes = vec![
        format!(
            "{} files of 4 KiB; the disk's flush takes {DATA_FLUSH_MS} ms, the log's {LOG_FLUSH_MS} ms, a round trip {RTT_MS} ms",
            archive.files
        ),
        FEWER_FILES.to_owned(),
    ];
    found.notes.extend(crate::report::guests::guests_files(plan.guests));
    Ok(found)
}
