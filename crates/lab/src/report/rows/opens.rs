//! Files opened below many directories, a web page's files, and COMPOUNDs of many operations.

use crate::error::{Error, Result};
use crate::experiments::{self, Check, Choices, Report};
use crate::report::content::{Axis, Chart, Found, Picture, Series, Table, Unit, Whose};
use crate::report::plan::Plan;
use crate::report::stand::{Setup, Stand, here, link};
use crate::rig::Latency;
use crate::serial::{Connect, Session};
use landfast_nfs::v4::ArgOp;
use std::net::SocketAddr;
use std::time::Instant;

/// Operations of a COMPOUND besides SEQUENCE and PUTROOTFH.
const OPERATIONS: [u64; 6] = [1, 4, 16, 64, 256, 1_022];
/// COMPOUNDs of each size; the median counts.
const ROUNDS: usize = 15;
const RTT_MS: f64 = 1.0;
const DATA_BYTES: u64 = 512 << 20;

/// The claim: a GETATTR in the largest COMPOUND costs at most this part of one that is alone.
const PART_MAX: f64 = 0.1;

/// Round trips of the experiments.
const ROUND_TRIPS_MS: [f64; 3] = [0.1, 1.0, 10.0];

pub fn run(plan: &mut Plan<'_>) -> Result<Found> {
    let mut absent = Vec::new();
    let setups = here(&[Setup::GANESHA, Setup::LOG], &mut absent);
    let mut compounds: Vec<(Setup, Vec<(f64, f64)>)> = Vec::new();
    for setup in setups {
        plan.step(&format!("COMPOUNDs on {}", setup.name))?;
        let stand = Stand::start(setup, Latency::default(), DATA_BYTES)?;
        let link = link(RTT_MS)?;
        link.retarget(stand.addr());
        let points = compounds_on(link.addr())?;
        stand.stop()?;
        compounds.push((setup, points));
    }
    let round_trips_ms = plan.pick(vec![RTT_MS], ROUND_TRIPS_MS.to_vec());
    let choices = Choices { round_trips_ms, ..Choices::default() };
    plan.step("opens below 1 to 32 directories")?;
    let nested = experiments::run("nested-open", &choices, &mut |_| {})?;
    plan.step("a web page's hundred files")?;
    let page = experiments::run("web-page", &choices, &mut |_| {})?;

    let columns =
        [("takes", Unit::Milliseconds), ("RPCs", Unit::Count), ("times Landfast's time", Unit::Times)];
    let mut table = Table::new("what, client, server", columns);
    for (setup, points) in &compounds {
        for (operations, us) in points {
            let name = format!("COMPOUND of {} operations, {}", operations + 2.0, setup.name);
            table.add(&name, setup.whose, [Some(us * operations / 1e3), Some(1.0), None]);
        }
    }
    for (what, report, theirs) in [("open", &nested, "name_by_name"), ("web page", &page, "one_by_one")] {
        for row in &report.lines {
            let of = |key: String| row.values.get(&key).copied();
            let (ours, other) = (of("landfast_ms".into()), of(format!("{theirs}_ms")));
            let name = |client: &str| format!("{what}, {}, {client}", row.name);
            table.add(
                &name("Landfast's library"),
                Whose::Ours,
                [ours, of("landfast_rpcs".into()), Some(1.0)],
            );
            let times = ours.zip(other).map(|(ours, other)| other / ours);
            let values = [other, of(format!("{theirs}_rpcs")), times];
            table.add(&name("one operation at a time"), Whose::Peer, values);
        }
    }
    let mut charts = vec![
        opens_chart(&nested)?,
        Chart {
            name: format!("Time for each GETATTR in a COMPOUND, round trip {RTT_MS} ms"),
            x: Axis::log("GETATTRs in the COMPOUND"),
            y: Axis::log("µs for each"),
            series: compounds
                .iter()
                .enumerate()
                .map(|(n, (setup, points))| Series {
                    name: setup.name.to_owned(),
                    whose: setup.whose,
                    points: points.clone(),
                    tone: if setup.whose == Whose::Ours { 0 } else { n as u8 + 1 },
                    is_limit: false,
                })
                .collect(),
        },
    ];
    charts.retain(|chart| !chart.series.is_empty());
    let mut found = Found::new(Picture::Lines(charts), table);
    if plan.judges_times()
        && let Some((_, points)) = compounds.iter().find(|(setup, _)| setup.whose == Whose::Ours)
        && let [first, .., last] = points.as_slice()
    {
        let what = format!("a GETATTR in a COMPOUND of {}: part of the time of one alone", last.0 + 2.0);
        found.checks.push(Check::at_most(&what, last.1 / first.1, PART_MAX));
    }
    let counts = |check: &Check| check.what.starts_with("RPCs ");
    let checks = nested.checks.into_iter().chain(page.checks);
    found.checks.extend(checks.filter(|check| plan.judges_times() || counts(check)));
    absent.push(
        "the crates nfs-rs and vnfs put files, and do not open them by paths: `landfast lab run client-round-trips --peer PROGRAM` has them"
            .to_owned(),
    );
    let speed: Vec<String> = crate::report::guests::guests_small(plan.guests);
    if speed.is_empty() {
        absent.push(
            "Linux's client: put what `cargo xtask guest speed --only nested-open,web-page --json` prints into DIR as a file *.json"
                .to_owned(),
        );
    }
    found.absent = absent;
    found.notes = nested.notes.into_iter().chain(page.notes).chain(speed).collect();
    Ok(found)
}

/// Microseconds for each GETATTR, by how many are in a COMPOUND, as far as the server takes them.
fn compounds_on(addr: SocketAddr) -> Result<Vec<(f64, f64)>> {
    let most = OPERATIONS[OPERATIONS.len() - 1] as u32 + 2;
    let mut session = Session::connect(&Connect { operations: most, ..Connect::new(addr, "compounds") })?;
    let mut points = Vec::new();
    for count in OPERATIONS {
        let ops = || {
            let getattr = std::iter::repeat_n(ArgOp::Getattr(crate::load::ATTRS), count as usize);
            std::iter::once(ArgOp::Putrootfh).chain(getattr).collect::<Vec<_>>()
        };
        let mut took = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            match session.compound(ops()) {
                Ok(_) => took.push(start.elapsed().as_secs_f64() * 1e6),
                // It takes no more in one.
                Err(Error::Nfs { .. }) if count > 1 => break,
                Err(why) => return Err(why),
            }
        }
        if took.len() < ROUNDS {
            break;
        }
        points.push((count as f64, experiments::middle(took) / count as f64));
    }
    session.close()?;
    Ok(points)
}

/// Milliseconds over depths, for each round trip.
fn opens_chart(report: &Report) -> Result<Chart> {
    let mut series: Vec<Series> = Vec::new();
    for row in &report.lines {
        let parts = row.name.split_once(" ms, depth ");
        let parsed = parts.and_then(|(rtt, depth)| Some((rtt, depth.parse::<f64>().ok()?)));
        let Some((rtt, depth)) = parsed else {
            return Err(Error::Protocol(format!("`{}` has no depth", row.name)));
        };
        for (key, client, whose) in [
            ("landfast_ms", "Landfast's library", Whose::Ours),
            ("name_by_name_ms", "one name at a time", Whose::Peer),
        ] {
            let Some(ms) = row.values.get(key) else { continue };
            let name = format!("{client}, {rtt} ms");
            match series.iter_mut().find(|s| s.name == name) {
                Some(s) => s.points.push((depth, *ms)),
                None => {
                    let tone = if whose == Whose::Ours { [0, 6, 4] } else { [2, 3, 1] };
                    let tone = tone[series.len() / 2 % 3];
                    series.push(Series { name, whose, points: vec![(depth, *ms)], tone, is_limit: false });
                }
            }
        }
    }
    Ok(Chart {
        name: "First open and read of a file, by its depth".to_owned(),
        x: Axis::log("directories above the file"),
        y: Axis::log("ms"),
        series,
    })
}
