//! Files a second over round trips and flushes, a map for each client on each server.

use crate::error::Result;
use crate::experiments::Check;
use crate::report::content::{Axis, Bound, Cell, Found, Panel, Picture, Table, Unit};
use crate::report::plan::Plan;
use crate::report::stand::{Archive, Setup, Stand, here, link, ms};
use crate::rig::Latency;
use std::time::Duration;

const ROUND_TRIPS_MS: [f64; 6] = [0.1, 0.5, 1.0, 5.0, 10.0, 50.0];
const FLUSHES_MS: [f64; 5] = [0.05, 0.2, 1.0, 4.0, 10.0];
/// Their ends, for a quick run.
const QUICK_MS: [&[f64]; 2] = [&[0.1, 10.0], &[0.05, 10.0]];

const DATA_BYTES: u64 = 1 << 30;

/// The claim: `untar` on Landfast, in times of the best of those that do one thing at a time, at each point.
const TIMES_MIN: f64 = 3.0;

/// Files of `untar`, at each point and on each server the same.
const FILES: u64 = 512;
const FILES_QUICK: u64 = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    Serial,
    Untar,
}

/// What was measured at one point.
#[derive(Clone, Copy)]
struct Point {
    rtt_ms: f64,
    flush_ms: f64,
    files_per_s: f64,
    rpcs: f64,
    flushes: f64,
}

pub fn run(plan: &mut Plan<'_>) -> Result<Found> {
    let [round_trips, flushes] = if plan.quick { QUICK_MS } else { [&ROUND_TRIPS_MS[..], &FLUSHES_MS[..]] };
    let mut absent = Vec::new();
    let setups = here(&[Setup::GANESHA, Setup::SYNC, Setup::LOG], &mut absent);
    let archive = Archive::random(plan.pick(FILES_QUICK, FILES))?;
    let mut maps: Vec<(String, Setup, Client, Vec<Point>)> = Vec::new();
    for setup in setups {
        // Without a log each file takes a dozen flushes, also for `untar`: a map of its own would say nothing more.
        let clients: &[Client] =
            if setup.name == Setup::SYNC.name { &[Client::Serial] } else { &[Client::Serial, Client::Untar] };
        let mut found: Vec<Vec<Point>> = vec![Vec::new(); clients.len()];
        let mut stand = Stand::start(setup, Latency::default(), DATA_BYTES)?;
        for flush_ms in flushes {
            stand.set_latency(Latency { data_flush: ms(*flush_ms), log_flush: ms(*flush_ms) })?;
            for rtt_ms in round_trips {
                plan.step(&format!("{}, round trip {rtt_ms} ms, flush {flush_ms} ms", setup.name))?;
                let link = link(*rtt_ms)?;
                link.retarget(stand.addr());
                for (client, found) in clients.iter().zip(&mut found) {
                    let put = match client {
                        Client::Untar => stand.untar(&link, &archive)?,
                        Client::Serial => {
                            let time = Duration::from_millis(plan.pick(250, 800));
                            stand.serial(&link, &archive, 1, time)?
                        }
                    };
                    found.push(Point {
                        rtt_ms: *rtt_ms,
                        flush_ms: *flush_ms,
                        files_per_s: put.files_per_s(),
                        rpcs: put.each(put.rpcs),
                        flushes: put.waited_each(),
                    });
                }
            }
        }
        stand.stop()?;
        for (client, points) in clients.iter().zip(found) {
            let name = match client {
                Client::Serial => format!("one file at a time on {}", setup.name),
                Client::Untar => format!("landfast untar on {}", setup.name),
            };
            maps.push((name, setup, *client, points));
        }
    }
    let mut found = Found::new(picture(&maps), table(&maps));
    found.checks = checks(&maps, plan.judges_times());
    found.absent = absent;
    found.notes = vec![
        format!(
            "`untar` puts {} files of 4 KiB on each server at each point; one file at a time is stopped after some of them",
            archive.files
        ),
        "What bounds a point is measured, not calculated: the network if most of a file's time goes away with the shortest round \
         trip of the map, the disk if it does with the shortest flush, else the processors of client and server"
            .to_owned(),
        "`one file at a time` stands for GNU tar over a kernel's client: the lab's own client of version 4.2, with the RPCs of a \
         kernel's"
            .to_owned(),
    ];
    Ok(found)
}

fn at(points: &[Point], rtt_ms: f64, flush_ms: f64) -> Option<Point> {
    points.iter().copied().find(|p| p.rtt_ms == rtt_ms && p.flush_ms == flush_ms)
}

fn least(points: &[Point], of: impl Fn(&Point) -> f64) -> f64 {
    points.iter().map(of).fold(f64::INFINITY, f64::min)
}

/// What most of a file's time goes to.
fn bound(points: &[Point], point: &Point) -> Bound {
    let (rtt_ms, flush_ms) = (least(points, |p| p.rtt_ms), least(points, |p| p.flush_ms));
    let time = |p: Option<Point>| p.map_or(f64::NAN, |p| 1.0 / p.files_per_s);
    let whole = 1.0 / point.files_per_s;
    let network = whole - time(at(points, rtt_ms, point.flush_ms));
    let disk = whole - time(at(points, point.rtt_ms, flush_ms));
    if network.max(disk) < time(at(points, rtt_ms, flush_ms)) {
        Bound::Processor
    } else if network >= disk {
        Bound::Network
    } else {
        Bound::Disk
    }
}

fn picture(maps: &[(String, Setup, Client, Vec<Point>)]) -> Picture {
    let panels = maps.iter().map(|(name, setup, _, points)| Panel {
        name: name.clone(),
        whose: setup.whose,
        cells: points
            .iter()
            .map(|p| Cell { x: p.rtt_ms, y: p.flush_ms, value: p.files_per_s, bound: bound(points, p) })
            .collect(),
    });
    Picture::Map {
        x: Axis::log("round trip in ms"),
        y: Axis::log("flush in ms"),
        value: "files a second".to_owned(),
        panels: panels.collect(),
    }
}

fn table(maps: &[(String, Setup, Client, Vec<Point>)]) -> Table {
    let columns = [
        ("slowest, files/s", Unit::PerSecond),
        ("quickest, files/s", Unit::PerSecond),
        ("RPCs a file", Unit::Each),
        ("flushes waited for, a file", Unit::Each),
        ("slower by 50 times the round trip", Unit::Times),
        ("slower by 200 times the flush", Unit::Times),
    ];
    let mut table = Table::new("client and server", columns);
    for (name, setup, _, points) in maps {
        let most = |of: fn(&Point) -> f64| points.iter().map(of).fold(0.0, f64::max);
        let (rtts, flushes) = ((least(points, |p| p.rtt_ms), most(|p| p.rtt_ms)), {
            (least(points, |p| p.flush_ms), most(|p| p.flush_ms))
        });
        let pace = |rtt, flush| at(points, rtt, flush).map(|p| p.files_per_s);
        let slower = |far: Option<f64>| Some(pace(rtts.0, flushes.0)? / far?);
        // Per file where all is quick.
        let quick = at(points, rtts.0, flushes.0);
        table.add(
            name,
            setup.whose,
            [
                Some(least(points, |p| p.files_per_s)),
                Some(most(|p| p.files_per_s)),
                quick.map(|p| p.rpcs),
                quick.map(|p| p.flushes),
                slower(pace(rtts.1, flushes.0)),
                slower(pace(rtts.0, flushes.1)),
            ],
        );
    }
    let (rtts, flushes) = (maps.first().map(|m| &m.3), maps.first().map(|m| &m.3));
    if let (Some(rtts), Some(flushes)) = (rtts, flushes) {
        let times =
            |of: fn(&Point) -> f64, all: &[Point]| all.iter().map(of).fold(0.0, f64::max) / least(all, of);
        let name = |what: &str, times: f64| format!("slower by {what} {times:.0} times as long");
        table.columns[4].name = name("round trips", times(|p| p.rtt_ms, rtts));
        table.columns[5].name = name("flushes", times(|p| p.flush_ms, flushes));
    }
    table
}

fn checks(maps: &[(String, Setup, Client, Vec<Point>)], times: bool) -> Vec<Check> {
    let ours = maps.iter().find(|m| m.2 == Client::Untar && m.1.name == Setup::LOG.name);
    let Some((.., ours)) = ours else { return Vec::new() };
    let most = |of: fn(&Point) -> f64| ours.iter().map(of).fold(0.0, f64::max);
    let mut checks = crate::report::claims::untar_checks(most(|p| p.rpcs), most(|p| p.flushes));
    if !times {
        return checks;
    }
    let others = || maps.iter().filter(|m| m.2 == Client::Serial && m.1.name != Setup::LOG.name);
    let times = ours.iter().map(|p| {
        let best = others().filter_map(|m| at(&m.3, p.rtt_ms, p.flush_ms)).map(|p| p.files_per_s);
        p.files_per_s / best.fold(f64::MIN_POSITIVE, f64::max)
    });
    checks.push(Check::at_least(
        "untar on Landfast at each point of the map: times the files a second of one at a time without a log",
        times.fold(f64::INFINITY, f64::min),
        TIMES_MIN,
    ));
    let bounded = ours.iter().filter(|p| bound(ours, p) == Bound::Disk).count();
    checks.push(Check::at_most(
        "untar on Landfast: share of the map that the disk bounds",
        bounded as f64 / ours.len().max(1) as f64,
        0.5,
    ));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bounds_a_point_is_what_makes_it_slow() {
        // Time of a file: 4 round trips, 6 flushes, and 0.2 ms.
        let points: Vec<Point> = [0.1, 10.0]
            .into_iter()
            .flat_map(|rtt_ms| [0.01, 10.0].map(|flush_ms| (rtt_ms, flush_ms)))
            .map(|(rtt_ms, flush_ms)| Point {
                rtt_ms,
                flush_ms,
                files_per_s: 1000.0 / (4.0 * rtt_ms + 6.0 * flush_ms + 0.2),
                rpcs: 4.0,
                flushes: 6.0,
            })
            .collect();
        let of = |rtt, flush| bound(&points, &at(&points, rtt, flush).unwrap());
        assert_eq!(of(0.1, 0.01), Bound::Processor);
        assert_eq!(of(10.0, 0.01), Bound::Network);
        assert_eq!([of(0.1, 10.0), of(10.0, 10.0)], [Bound::Disk; 2]);
    }
}
