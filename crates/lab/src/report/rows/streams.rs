//! 1 to 64 clients that each do one thing at a time, beside one `untar`.

use crate::error::Result;
use crate::experiments::Check;
use crate::report::content::{Axis, Chart, Found, Picture, Series, Table, Unit, Whose};
use crate::report::plan::Plan;
use crate::report::stand::{Archive, Put, Setup, Stand, here, link, ms, terms, tone_of};
use crate::rig::Latency;
use std::time::Duration;

const CLIENTS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
const CLIENTS_QUICK: [u64; 2] = [1, 8];

/// A hard disk, and a log on a device with capacitors, over a network in one room.
const DATA_FLUSH_MS: f64 = 10.0;
const LOG_FLUSH_MS: f64 = 0.05;
const RTT_MS: f64 = 0.2;

const DATA_BYTES: u64 = 2 << 30;

/// Files of each client, and of `untar` on each server. Where flushes are waited for one after another, these take `untar` most of a
/// minute.
const FILES: u64 = 1024;
const FILES_QUICK: u64 = 64;

/// The claims: one `untar`, in times of the quickest number of clients without a log; and one client with the log, in times of
/// one without.
const UNTAR_MIN: f64 = 3.0;
const ONE_MIN: f64 = 3.0;

struct Side {
    setup: Setup,
    streams: Vec<(u64, Put)>,
    untar: Put,
}

impl Side {
    fn one(&self) -> f64 {
        self.streams.first().map_or(f64::NAN, |(_, put)| put.files_per_s())
    }

    fn most(&self) -> f64 {
        self.streams.iter().map(|(_, put)| put.files_per_s()).fold(0.0, f64::max)
    }
}

pub fn run(plan: &mut Plan<'_>) -> Result<Found> {
    let mut absent = Vec::new();
    let setups = here(&[Setup::GANESHA, Setup::SYNC, Setup::LOG], &mut absent);
    absent.push(crate::report::guests::knfsd_absent(plan.guests, "--server kernel"));
    let latency = Latency { data_flush: ms(DATA_FLUSH_MS), log_flush: ms(LOG_FLUSH_MS) };
    let link = link(RTT_MS)?;
    plan.step("the disks and the network by themselves")?;
    let terms = terms(latency, &link)?;
    let archive = Archive::random(plan.pick(FILES_QUICK, FILES))?;
    let clients: &[u64] = plan.pick(&CLIENTS_QUICK[..], &CLIENTS[..]);
    let mut sides = Vec::new();
    for setup in setups {
        let mut stand = Stand::start(setup, latency, DATA_BYTES)?;
        link.retarget(stand.addr());
        let mut streams = Vec::new();
        for &count in clients {
            plan.step(&format!("{}: {count} clients", setup.name))?;
            let time = Duration::from_millis(plan.pick(400, 2000));
            streams.push((count, stand.serial(&link, &archive, count, time)?));
        }
        plan.step(&format!("{}: landfast untar", setup.name))?;
        let untar = stand.untar(&link, &archive)?;
        stand.stop()?;
        sides.push(Side { setup, streams, untar });
    }

    let mut table = Table::new(
        "clients and server",
        [
            ("files/s", Unit::PerSecond),
            ("limit by the equation", Unit::PerSecond),
            ("of the limit", Unit::Share),
            ("RPCs a file", Unit::Each),
            ("flushes waited for, a file", Unit::Each),
        ],
    );
    let mut series = Vec::new();
    for (tone, side) in sides.iter().enumerate() {
        for (count, put) in &side.streams {
            // Alone each waits for what the equation says; together they share flushes.
            let limit = *count as f64 * put.serial_limit(&terms);
            let limit = (*count == 1).then_some(limit);
            let name = format!("{count} at once, {}", side.setup.name);
            table.add(&name, side.setup.whose, line(put, limit));
        }
        let name = format!("one landfast untar, {}", side.setup.name);
        table.add(&name, side.setup.whose, line(&side.untar, Some(side.untar.batched_limit(&terms))));
        let points = side.streams.iter().map(|(count, put)| (*count as f64, put.files_per_s())).collect();
        let tone = tone_of(&side.setup, tone);
        let new = |name, points, is_limit| Series { name, whose: side.setup.whose, points, tone, is_limit };
        series.push(new(format!("one at a time each, {}", side.setup.name), points, false));
        let untar = clients.iter().map(|n| (*n as f64, side.untar.files_per_s())).collect();
        series.push(new(format!("one untar, {}", side.setup.name), untar, true));
    }
    let chart = Chart {
        name: "Files a second".to_owned(),
        x: Axis::log("clients at once"),
        y: Axis::log("files a second"),
        series,
    };
    let mut found = Found::new(Picture::Lines(vec![chart]), table);
    found.terms = Some(terms);
    found.checks = checks(&sides, plan.judges_times());
    found.absent = absent;
    found.notes = vec![
        format!(
            "the data disk's flush takes {DATA_FLUSH_MS} ms, the log's {LOG_FLUSH_MS} ms, a round trip {RTT_MS} ms; each client \
             makes files of 4 KiB in a directory of its own"
        ),
        format!("dashed: one `landfast untar` of {} files, beside any number of the others", archive.files),
    ];
    Ok(found)
}

fn line(put: &Put, limit: Option<f64>) -> [Option<f64>; 5] {
    [
        Some(put.files_per_s()),
        limit,
        limit.map(|limit| put.files_per_s() / limit),
        Some(put.each(put.rpcs)),
        Some(put.waited_each()),
    ]
}

fn checks(sides: &[Side], times: bool) -> Vec<Check> {
    let Some(log) = sides.iter().find(|s| s.setup.name == Setup::LOG.name) else { return Vec::new() };
    let mut checks = crate::report::claims::untar_counts([&log.untar]);
    if !times {
        return checks;
    }
    let others =
        || sides.iter().filter(|s| s.setup.name != log.setup.name && s.setup.whose != Whose::NotDurable);
    let most = others().map(Side::most).fold(f64::MIN_POSITIVE, f64::max);
    let one = others().map(Side::one).fold(f64::MIN_POSITIVE, f64::max);
    checks.extend([
        Check::at_least(
            "one untar on Landfast: times the files a second of the quickest crowd of up to 64 clients without a log",
            log.untar.files_per_s() / most,
            UNTAR_MIN,
        ),
        Check::at_least(
            "one client at a time on Landfast's log: times the files a second of one without a log",
            log.one() / one,
            ONE_MIN,
        ),
    ]);
    checks
}
