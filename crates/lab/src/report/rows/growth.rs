//! What a file costs as there are more of them; and what grows with sessions and with the names of a directory.

use crate::error::{Error, Result};
use crate::experiments::{self, Check, Choices, Report, exponent};
use crate::report::content::{Axis, Chart, Found, Picture, Series, Table, Unit, Whose};
use crate::report::plan::Plan;
use crate::report::stand::{Archive, Put, Setup, Stand, here, link, ms};
use crate::rig::Latency;

const DATA_FLUSH_MS: f64 = 1.0;
const LOG_FLUSH_MS: f64 = 0.05;
const RTT_MS: f64 = 0.2;

const FILES: [u64; 5] = [100, 1_000, 10_000, 30_000, 100_000];
const FILES_QUICK: [u64; 3] = [128, 512, 2048];
/// Where flushes are waited for one after another, fewer are measured.
const FILES_PEER_MAX: u64 = 1_000;
const FILES_PEER_MAX_QUICK: u64 = 128;

/// Sizes of the series of [`crate::experiments`].
const CLIENTS: u64 = 1_000;
const NAMES: u64 = 100_000;

/// The claim: exponents of growth of what one file costs, from a thousand files on.
const FLAT_MAX: f64 = 0.15;

struct Point {
    put: Put,
    cpu_us: Option<f64>,
    peak_mib: Option<f64>,
}

pub fn run(plan: &mut Plan<'_>) -> Result<Found> {
    let mut absent = Vec::new();
    let setups = here(&[Setup::GANESHA, Setup::LOG], &mut absent);
    let latency = Latency { data_flush: ms(DATA_FLUSH_MS), log_flush: ms(LOG_FLUSH_MS) };
    let link = link(RTT_MS)?;
    let columns = [
        ("a file takes", Unit::Microseconds),
        ("server's processor time a file", Unit::Microseconds),
        ("RPCs a file", Unit::Each),
        ("flushes a file", Unit::Each),
        ("server's largest memory", Unit::MiB),
    ];
    let mut table = Table::new("files and server", columns);
    let (mut time, mut flushes, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    let mut checks = Vec::new();
    for (n, setup) in setups.iter().enumerate() {
        let is_ours = setup.whose == Whose::Ours;
        let most = if is_ours { u64::MAX } else { plan.pick(FILES_PEER_MAX_QUICK, FILES_PEER_MAX) };
        let sizes = plan.pick(&FILES_QUICK[..], &FILES[..]).iter().filter(|files| **files <= most);
        let mut points: Vec<(f64, Point)> = Vec::new();
        for &files in sizes {
            plan.step(&format!("{}: {files} files", setup.name))?;
            let archive = Archive::random(files)?;
            let mut stand = Stand::start(*setup, latency, archive.disk_bytes())?;
            link.retarget(stand.addr());
            let before = stand.cpu();
            let put = stand.untar(&link, &archive)?;
            let cpu = stand.cpu().zip(before).map(|(after, before)| after.saturating_sub(before));
            let cpu_us = cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / files as f64);
            let peak_mib = stand.peak_rss_bytes().map(|bytes| bytes as f64 / f64::from(1 << 20));
            stand.stop()?;
            points.push((files as f64, Point { put, cpu_us, peak_mib }));
        }
        for (files, p) in &points {
            let us = p.put.ms_per_file() * 1e3;
            let name = format!("untar of {files} files, {}", setup.name);
            let values =
                [Some(us), p.cpu_us, Some(p.put.each(p.put.rpcs)), Some(p.put.flushes_each()), p.peak_mib];
            table.add(&name, setup.whose, values);
        }
        let tone = if is_ours { 0 } else { n as u8 + 1 };
        let series = |of: &dyn Fn(&Point) -> Option<f64>| Series {
            name: format!("untar on {}", setup.name),
            whose: setup.whose,
            points: points.iter().filter_map(|(x, p)| Some((*x, of(p)?))).collect(),
            tone,
            is_limit: false,
        };
        time.push(series(&|p| Some(p.put.ms_per_file() * 1e3)));
        flushes.push(series(&|p| Some(p.put.flushes_each())));
        memory.push(series(&|p| p.peak_mib));
        if is_ours {
            let many: Vec<_> = points.iter().filter(|(x, _)| *x >= 500.0).collect();
            let growth = |of: &dyn Fn(&Point) -> f64| {
                exponent(&many.iter().map(|(x, p)| (*x, of(p))).collect::<Vec<_>>())
            };
            let what = "exponent of growth of a file's time on Landfast, over files";
            if plan.judges_times() {
                checks.push(Check::at_most(what, growth(&|p| p.put.ms_per_file()), FLAT_MAX));
            }
            let what = "exponent of growth of a file's flushes on Landfast, over files";
            checks.push(Check::at_most(what, growth(&|p| p.put.flushes_each()), FLAT_MAX));
        }
    }
    let over = |name: &str, x: &str, y: &str, series| Chart {
        name: name.to_owned(),
        x: Axis::log(x),
        y: Axis::log(y),
        series,
    };
    let mut charts = vec![
        over("Time for each file", "files of the archive", "µs", time),
        over("Flushes for each file", "files of the archive", "flushes of both disks", flushes),
        over("Largest memory of the server", "files of the archive", "MiB", memory),
    ];
    let mut notes = vec![
        "a slope of 0 is a cost that does not grow; a file costs less where the session's start is shared by more of them".to_owned(),
        format!(
            "one file of 4 KiB each; the data disk's flush takes {DATA_FLUSH_MS} ms, the log's {LOG_FLUSH_MS} ms, a round trip {RTT_MS} ms"
        ),
    ];
    if plan.quick {
        notes.push("a quick run leaves out sessions and directories".to_owned());
    } else {
        let series = [
            ("scale-clients", CLIENTS, "clients' sessions"),
            ("scale-directories", NAMES, "names of a directory"),
        ];
        for (name, most, x) in series {
            plan.step(name)?;
            let choices = Choices { files: Some(most), ..Choices::default() };
            let report = experiments::run(name, &choices, &mut |_| {})?;
            charts.push(of_report(&report, x)?);
            add_report(&mut table, &report, x);
            checks.extend(report.checks);
        }
        notes.push("`landfast lab run scale` has more figures, and sizes up to a million".to_owned());
    }
    let mut found = Found::new(Picture::Lines(charts), table);
    (found.checks, found.absent, found.notes) = (checks, absent, notes);
    Ok(found)
}

/// The number with which a row's name begins.
fn size(name: &str) -> Result<f64> {
    let word = name.split(' ').next().and_then(|word| word.parse().ok());
    word.ok_or_else(|| Error::Protocol(format!("`{name}` begins with no size")))
}

const LATENCIES: [(&str, &str); 5] = [
    ("getattr_p50_us", "GETATTR"),
    ("write_p50_us", "WRITE FILE_SYNC"),
    ("lookup_p50_us", "LOOKUP"),
    ("create_p50_us", "CREATE"),
    ("remove_p50_us", "REMOVE"),
];

/// The median latencies of an experiment's rows.
fn of_report(report: &Report, x: &str) -> Result<Chart> {
    let mut series = Vec::new();
    for (key, name) in LATENCIES {
        let mut points = Vec::new();
        for row in &report.lines {
            if let Some(v) = row.values.get(key) {
                points.push((size(&row.name)?, *v));
            }
        }
        if !points.is_empty() {
            let tone = series.len() as u8;
            series.push(Series { name: name.to_owned(), whose: Whose::Ours, points, tone, is_limit: false });
        }
    }
    Ok(Chart {
        name: format!("Median latency on Landfast, by {x}"),
        x: Axis::log(x),
        y: Axis::log("µs"),
        series,
    })
}

/// The experiment's rows: the slowest of the medians, processor time, and memory.
fn add_report(table: &mut Table, report: &Report, x: &str) {
    for row in &report.lines {
        let of = |key: &str| row.values.get(key).copied();
        let most = LATENCIES.iter().filter_map(|(key, _)| of(key)).fold(0.0, f64::max);
        let name = format!("{} ({x}): one operation, the slowest median", row.name);
        let values = [Some(most), of("at_once_cpu_us_per_write"), None, None, of("peak_rss_mib")];
        table.add(&name, Whose::Ours, values);
    }
}
