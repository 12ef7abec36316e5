//! A source tree onto a hard disk with a small fast device beside it, put to use in several ways.

use crate::error::Result;
use crate::experiments::Check;
use crate::report::claims::{FEWER_FILES, beside_peers};
use crate::report::content::{Axis, Bar, Found, Picture, Table, Unit, Whose};
use crate::report::plan::Plan;
use crate::report::stand::{Archive, Put, Setup, Stand, here, link, local, ms};
use crate::rig::Latency;
use std::time::Duration;

const DATA_FLUSH_MS: f64 = 10.0;
const LOG_FLUSH_MS: f64 = 0.05;
const RTT_MS: f64 = 0.2;

/// Files of the made archive, if none was named.
const FILES: u64 = 20_000;

/// The claims: beside the quickest other server with the fast device, with `untar` there and with one file at a time, and beside a
/// local disk.
const PEER_UNTAR_MIN: f64 = 5.0;
const PEER_MIN: f64 = 5.0;
const LOCAL_MIN: f64 = 0.3;

pub fn run(plan: &mut Plan<'_>) -> Result<Found> {
    let mut absent = Vec::new();
    let archive = match plan.archive {
        Some(path) => Archive::given(path)?,
        None => {
            absent.push(
                "the real Linux tree: name its archive with `--archive`; `cargo xtask guest linux-source` fetches one, Debian's package linux-source"
                    .to_owned(),
            );
            Archive::random(plan.pick(1024, FILES))?
        }
    };
    absent.push(
        "dm-writecache on the same device: this kernel must have it; `cargo xtask guest` boots one that has"
            .to_owned(),
    );
    let setups = here(&[Setup::GANESHA, Setup::GANESHA_JOURNAL_OUTSIDE, Setup::LOG], &mut absent);
    let latency = Latency { data_flush: ms(DATA_FLUSH_MS), log_flush: ms(LOG_FLUSH_MS) };
    let link = link(RTT_MS)?;
    let outside = Setup { mount_options: "", ..Setup::GANESHA_JOURNAL_OUTSIDE };
    // Names, and whether the client is `untar`.
    let mut lines: Vec<(String, Whose, bool, Put)> = Vec::new();
    plan.step("local")?;
    let plain = local(&Setup::LOG, latency, "", &archive)?;
    lines.push(("local tar and sync, disk alone".into(), Whose::Local, false, plain));
    plan.step("local, journal on the log device")?;
    let beside = local(&outside, latency, "", &archive)?;
    lines.push(("local tar and sync, ext4's journal on the fast device".into(), Whose::Local, false, beside));
    for setup in setups {
        plan.step(&format!("{}: one file at a time", setup.name))?;
        let mut stand = Stand::start(setup, latency, archive.disk_bytes())?;
        link.retarget(stand.addr());
        let put = stand.serial(&link, &archive, 1, Duration::from_millis(plan.pick(800, 10_000)))?;
        lines.push((format!("one file at a time, {}", setup.name), setup.whose, false, put));
        if setup.takes_untar() {
            plan.step(&format!("{}: landfast untar", setup.name))?;
            let put = stand.untar_in_time(&link, &archive, &put)?;
            lines.push((format!("landfast untar, {}", setup.name), setup.whose, true, put));
        }
        stand.stop()?;
    }

    let ours = lines.last().map_or(f64::NAN, |(.., put)| put.files_per_s());
    let columns = [
        ("files/s", Unit::PerSecond),
        ("files measured", Unit::Count),
        ("the whole tree at this pace", Unit::Seconds),
        ("flushes of the hard disk a file", Unit::Each),
        ("flushes of the fast device a file", Unit::Each),
        ("untar is so many times as fast", Unit::Times),
    ];
    let mut table = Table::new("way", columns);
    let mut bars = Vec::new();
    for (name, whose, _, put) in &lines {
        let pace = put.files_per_s();
        table.add(
            name,
            *whose,
            [
                Some(pace),
                Some(put.files as f64),
                Some(archive.files as f64 / pace),
                Some(put.each(put.data_flushes)),
                Some(put.each(put.log_flushes)),
                Some(ours / pace),
            ],
        );
        bars.push(Bar { name: name.clone(), whose: *whose, value: pace, limit: None });
    }
    let mut found = Found::new(Picture::Bars { axis: Axis::log("files a second"), bars }, table);
    if plan.judges_times() {
        let puts = lines.iter().filter(|l| l.1 == Whose::Peer).map(|(_, _, is_untar, put)| (*is_untar, put));
        found.checks.extend(beside_peers(ours, puts, [PEER_UNTAR_MIN, PEER_MIN]));
    }
    if plan.judges_times() {
        let what = "untar through Landfast's log: part of the speed of local tar and sync";
        found.checks.push(Check::at_least(what, ours / plain.files_per_s(), LOCAL_MIN));
    }
    found.checks.extend(crate::report::claims::untar_counts(lines.last().map(|(.., put)| put)));
    found.absent = absent;
    found.notes = vec![
        format!(
            "{} files, {} MiB; the hard disk's flush takes {DATA_FLUSH_MS} ms, the fast device's {LOG_FLUSH_MS} ms, a round trip {RTT_MS} ms. What is \
         slow is stopped after a while: its pace is measured, not the whole tree",
            archive.files,
            archive.bytes >> 20
        ),
        FEWER_FILES.to_owned(),
    ];
    Ok(found)
}
