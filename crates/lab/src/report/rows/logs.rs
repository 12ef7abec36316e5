//! The same files with a log and without one, on disks of three kinds.

use crate::error::Result;
use crate::experiments::Check;
use crate::report::claims::FEWER_FILES;
use crate::report::content::{Axis, Chart, Found, Picture, Series, Table, Unit};
use crate::report::plan::Plan;
use crate::report::stand::{Archive, Put, Setup, Stand, here, link, local, ms, tone_of};
use crate::rig::Latency;
use std::time::Duration;

/// Flushes of a device with capacitors, of a usual solid state disk, and of a hard disk.
const FLUSHES_MS: [f64; 3] = [0.05, 1.0, 10.0];
const LOG_FLUSH_MS: f64 = 0.05;
const RTT_MS: f64 = 0.2;

/// The claim: with a log, the time on a hard disk in times of that on the quickest device.
const SLOWER_MAX: f64 = 2.5;

struct Side {
    name: String,
    setup: Setup,
    is_serial: bool,
    puts: Vec<Put>,
}

pub fn run(plan: &mut Plan<'_>) -> Result<Found> {
    let mut absent = Vec::new();
    let all =
        [Setup::GANESHA, Setup::GANESHA_JOURNAL, Setup::GANESHA_JOURNAL_OUTSIDE, Setup::SYNC, Setup::LOG];
    let all: &[Setup] =
        if plan.quick { &[Setup::GANESHA, Setup::GANESHA_JOURNAL_OUTSIDE, Setup::LOG] } else { &all };
    let setups = here(all, &mut absent);
    let flushes: &[f64] = plan.pick(&[0.05, 10.0][..], &FLUSHES_MS[..]);
    let archive = Archive::random(plan.pick(512, 4096))?;
    let link = link(RTT_MS)?;
    let mut sides: Vec<Side> = Vec::new();
    let mut on_disk =
        Side { name: "local tar and sync".into(), setup: Setup::LOG, is_serial: false, puts: Vec::new() };
    for flush_ms in flushes {
        plan.step(&format!("local, flush {flush_ms} ms"))?;
        let latency = Latency { data_flush: ms(*flush_ms), log_flush: ms(LOG_FLUSH_MS) };
        on_disk.puts.push(local(&Setup::LOG, latency, "", &archive)?);
    }
    for &setup in &setups {
        let name = format!("one file at a time, {}", setup.name);
        let mut serial = Side { name, setup, is_serial: true, puts: Vec::new() };
        let name = format!("landfast untar, {}", setup.name);
        let mut untar = Side { name, setup, is_serial: false, puts: Vec::new() };
        for flush_ms in flushes {
            plan.step(&format!("{}, flush {flush_ms} ms", setup.name))?;
            let latency = Latency { data_flush: ms(*flush_ms), log_flush: ms(LOG_FLUSH_MS) };
            let mut stand = Stand::start(setup, latency, archive.disk_bytes())?;
            link.retarget(stand.addr());
            let time = Duration::from_millis(plan.pick(500, 4000));
            let put = stand.serial(&link, &archive, 1, time)?;
            serial.puts.push(put);
            if setup.takes_untar() {
                untar.puts.push(stand.untar_in_time(&link, &archive, &put)?);
            }
            stand.stop()?;
        }
        sides.push(serial);
        if !untar.puts.is_empty() {
            sides.push(untar);
        }
    }

    let mut table = Table::new(
        "client, server, flush of the data disk",
        [
            ("files/s", Unit::PerSecond),
            ("a file takes", Unit::Milliseconds),
            ("RPCs a file", Unit::Each),
            ("flushes of the data disk a file", Unit::Each),
            ("flushes of the log disk a file", Unit::Each),
        ],
    );
    let mut series = Vec::new();
    let local_whose = crate::report::content::Whose::Local;
    for (n, side) in std::iter::once(&on_disk).chain(&sides).enumerate() {
        let is_local = n == 0;
        let whose = if is_local { local_whose } else { side.setup.whose };
        for (flush_ms, put) in flushes.iter().zip(&side.puts) {
            table.add(
                &format!("{}, {flush_ms} ms", side.name),
                whose,
                [
                    Some(put.files_per_s()),
                    Some(put.ms_per_file()),
                    (put.rpcs > 0).then(|| put.each(put.rpcs)),
                    Some(put.each(put.data_flushes)),
                    Some(put.each(put.log_flushes)),
                ],
            );
        }
        let points = flushes.iter().zip(&side.puts).map(|(f, put)| (*f, put.files_per_s())).collect();
        let tone = match (is_local, side.is_serial) {
            (true, _) => 7,
            (false, false) if side.setup.name == Setup::LOG.name => 0,
            (false, true) if side.setup.name == Setup::LOG.name => 6,
            // Both clients on one server have one tone.
            (false, _) => {
                tone_of(&side.setup, setups.iter().position(|s| s.name == side.setup.name).unwrap_or(0))
            }
        };
        let is_limit = !is_local && !side.is_serial && tone != 0;
        series.push(Series { name: side.name.clone(), whose, points, tone, is_limit });
    }
    let chart = Chart {
        name: "Files a second, by the data disk's flush".to_owned(),
        x: Axis::log("flush of the data disk in ms"),
        y: Axis::log("files a second"),
        series,
    };
    let mut found = Found::new(Picture::Lines(vec![chart]), table);
    for side in sides.iter().filter(|side| side.setup.name == Setup::LOG.name) {
        if plan.judges_times()
            && let [first, .., last] = side.puts.as_slice()
        {
            let what = format!("{}: times as long on a hard disk as on a device with capacitors", side.name);
            found.checks.push(Check::at_most(&what, last.ms_per_file() / first.ms_per_file(), SLOWER_MAX));
        }
        if !side.is_serial {
            found.checks.extend(crate::report::claims::untar_counts(&side.puts));
        }
    }
    found.absent = absent;
    found.notes = vec![
        format!(
            "{} files of 4 KiB, a round trip of {RTT_MS} ms; the log's device always flushes in {LOG_FLUSH_MS} ms, and the external journal \
         lies on such a device; flushes of the data disk under a log are those of its checkpoints, for which nobody waits",
            archive.files
        ),
        format!("{FEWER_FILES}. Dashed: `untar` on another server"),
    ];
    Ok(found)
}
