//! The same files through NFS, and through a block device over the same network with a local filesystem on it.

use crate::error::Result;
use crate::experiments::Check;
use crate::report::claims::FEWER_FILES;
use crate::report::content::{Found, Picture, Series, Table, Unit, Whose};
use crate::report::plan::Plan;
use crate::report::stand::{Archive, Put, Setup, Stand, here, link, local, ms};
use crate::rig::Latency;
use std::time::Duration;

const ROUND_TRIPS_MS: [f64; 4] = [0.1, 1.0, 10.0, 50.0];
/// Both disks: a usual solid state disk, so that neither side has a better one.
const FLUSH_MS: f64 = 1.0;

/// The claim at 10 ms: `untar` through NFS, in times of tar and sync on the block device.
const TIMES_MIN: f64 = 0.5;
const CLAIMED_MS: f64 = 10.0;

struct Side {
    name: String,
    whose: Whose,
    tone: u8,
    is_dashed: bool,
    /// One for each round trip.
    puts: Vec<Put>,
}

pub fn run(plan: &mut Plan<'_>) -> Result<Found> {
    let mut absent = Vec::new();
    let setups = here(&[Setup::GANESHA, Setup::LOG], &mut absent);
    let round_trips: &[f64] = plan.pick(&[0.1, CLAIMED_MS][..], &ROUND_TRIPS_MS[..]);
    let archive = Archive::random(plan.pick(512, 4096))?;
    let latency = Latency { data_flush: ms(FLUSH_MS), log_flush: ms(FLUSH_MS) };
    let mut sides: Vec<Side> = Vec::new();
    let mut far = Vec::new();
    for rtt_ms in round_trips {
        plan.step(&format!("a block device, round trip {rtt_ms} ms"))?;
        let us = rtt_ms * 1000.0;
        let words = format!("write_us={us} read_us={us} flush_us={}", us + FLUSH_MS * 1000.0);
        far.push(local(&Setup::LOG, latency, &words, &archive)?);
    }
    let name = "tar and sync, ext4 on a block device over the network".to_owned();
    sides.push(Side { name, whose: Whose::Local, tone: 7, is_dashed: false, puts: far });
    for (n, setup) in setups.iter().enumerate() {
        let is_log = setup.name == Setup::LOG.name;
        let (mut serial, mut untar) = (Vec::new(), Vec::new());
        let mut stand = Stand::start(*setup, latency, archive.disk_bytes())?;
        for rtt_ms in round_trips {
            plan.step(&format!("{}, round trip {rtt_ms} ms", setup.name))?;
            let link = link(*rtt_ms)?;
            link.retarget(stand.addr());
            let put = stand.serial(&link, &archive, 1, Duration::from_millis(plan.pick(500, 3000)))?;
            serial.push(put);
            untar.push(stand.untar_in_time(&link, &archive, &put)?);
        }
        stand.stop()?;
        let side = |client: &str, tone, is_dashed, puts| Side {
            name: format!("{client}, {}", setup.name),
            whose: setup.whose,
            tone,
            is_dashed,
            puts,
        };
        let others = n as u8 + 1;
        sides.push(side("one file at a time", if is_log { 6 } else { others }, false, serial));
        sides.push(side("landfast untar", if is_log { 0 } else { others }, !is_log, untar));
    }

    let columns = [
        ("files/s", Unit::PerSecond),
        ("a file takes", Unit::Milliseconds),
        ("times the block device", Unit::Times),
    ];
    let mut table = Table::new("way and round trip", columns);
    let (mut series, mut claimed) = (Vec::new(), None);
    for Side { name, whose, tone, is_dashed, puts } in &sides {
        for (i, (rtt_ms, put)) in round_trips.iter().zip(puts).enumerate() {
            let times = put.files_per_s() / sides[0].puts[i].files_per_s();
            if *tone == 0 && *rtt_ms == CLAIMED_MS {
                claimed = Some(times);
            }
            let values = [Some(put.files_per_s()), Some(put.ms_per_file()), Some(times)];
            table.add(&format!("{name}, {rtt_ms} ms"), *whose, values);
        }
        let points = round_trips.iter().zip(puts).map(|(rtt, put)| (*rtt, put.files_per_s())).collect();
        let (whose, tone, is_limit) = (*whose, *tone, *is_dashed);
        series.push(Series { name: name.clone(), whose, points, tone, is_limit });
    }
    let mut found = Found::new(Picture::by_round_trip(series), table);
    if plan.judges_times()
        && let Some(times) = claimed
    {
        let what = format!(
            "untar through NFS at {CLAIMED_MS} ms: times the files a second of tar and sync on the block device"
        );
        found.checks.push(Check::at_least(&what, times, TIMES_MIN));
    }
    let untar = sides.iter().filter(|side| side.tone == 0).flat_map(|side| &side.puts);
    found.checks.extend(crate::report::claims::untar_counts(untar));
    found.absent = absent;
    found.notes = vec![
        format!(
            "{} files of 4 KiB; a flush takes {FLUSH_MS} ms on every disk. The block device is the emulated disk, each of whose reads, writes \
             and flushes takes one round trip more, up to {} of them at a time; no iSCSI or nbd protocol is spoken",
            archive.files,
            crate::limits::DISK_THREADS
        ),
        format!("{FEWER_FILES}. Dashed: `untar` on another server"),
        "a block device has one user: nobody else sees the files, and nothing is durable before the sync at the end".to_owned(),
    ];
    Ok(found)
}
