//! The tables: procedures, the calls for a file, COMPOUNDs, clients and servers.

use super::super::answer::compound_words;
use super::super::results::Results;
use super::parts::name as part_name;
use crate::page::svg::percent;
use crate::units::show_count;
use landfast_nfs::v3::NfsStat3;
use landfast_nfs::v4::NfsStat;
use landfast_trace::analysis::files::{Item, Shape};
use landfast_trace::analysis::findings::{Findings, Pair};
use landfast_trace::analysis::spread::Spread;
use landfast_trace::analysis::words::Unit;
use landfast_trace::analysis::{is_v4, name};
use landfast_trace::skim::Program;
use landfast_trace::table::{self, Place, Row, seconds};
use maud::{Markup, html};

/// Rows that are shown of a list of any length.
const ROWS_MAX: usize = 30;

/// Tables of service times, one for each program and version.
pub fn procedures(found: &Results) -> Markup {
    let mut groups: Vec<Vec<(&Place, &Row)>> = Vec::new();
    for (place, row) in found.table.rows() {
        match groups.last_mut() {
            Some(rows) if (rows[0].0.program, rows[0].0.version) == (place.program, place.version) => {
                rows.push((place, row));
            }
            _ => groups.push(vec![(place, row)]),
        }
    }
    // NFS comes first, then the programs around it.
    groups.sort_by_key(|rows| rows[0].0.program != Program::Nfs);
    html! {
        @if groups.is_empty() { p.none { "No call was answered." } }
        @for rows in &groups {
            @let Place { program, version, .. } = rows[0].0;
            h3 { (program.name()) " version " (version) }
            div.scroll { table.procedures data-program=(program.name()) data-version=(version) {
                thead { tr {
                    th.n { "Index" } th { "Procedure" }
                    @for head in ["Calls", "Min SRT", "Max SRT", "Avg SRT", "Sum SRT", "Median", "99th pct"] { th.n { (head) } }
                } }
                tbody { @for (place, row) in rows { (procedure(place, row)) } }
            } }
        }
    }
}

fn procedure(place: &Place, row: &Row) -> Markup {
    let times = [
        row.min_ns.into(),
        row.max_ns.into(),
        row.avg_ns().into(),
        row.sum_ns,
        row.percentile_ns(50.0).into(),
        row.percentile_ns(99.0).into(),
    ];
    html! {
        tr.operation[matches!(place.item, table::Item::Operation(_))] {
            td.n { (place.index()) } th { (place.name()) }
            td.n { (show_count(row.calls)) }
            @for ns in times { td.n { (seconds(ns)) } }
        }
    }
}

pub fn files(found: &Results) -> Markup {
    let f = &found.findings;
    let more = f.shapes.len().saturating_sub(ROWS_MAX);
    if f.shapes.is_empty() && f.directories.files == 0 {
        return html! { p.none { "No call is about a file that could be told from others." } };
    }
    let shapes = f.shapes.iter().map(|(_, shape)| shape).take(ROWS_MAX);
    let unit = Unit::of(shapes.chain([&f.other_files, &f.directories]).map(each_s));
    html! {
        p {
            "What was called for each file, in the order in which it was; " span.op.sync { "these" }
            " had to be stable before they were answered."
        }
        div.scroll { table #files {
            thead { tr { th.n { "Files" } th.n { "RPCs" } th.n { "Synchronous" } th.n { "First to last" } th { "Each file" } } }
            tbody {
                @for (sequence, shape) in f.shapes.iter().take(ROWS_MAX) {
                    (shape_row(shape, unit, html! { (items(sequence, shape)) }))
                }
                @let rest = f.shapes.iter().skip(ROWS_MAX).map(|(_, shape)| shape).chain([&f.other_files]).fold(Shape::default(), |mut sum, shape| { sum.add(shape); sum });
                @if rest.files > 0 {
                    (shape_row(&rest, unit, html! { "others" @if more > 0 { ", of " (show_count(more as u64)) " more sequences" } }))
                }
                @if f.directories.files > 0 { (shape_row(&f.directories, unit, html! { "directories" })) }
            }
        } }
    }
}

/// The time of one file of a shape, in seconds.
fn each_s(shape: &Shape) -> f64 {
    shape.span_ns / shape.files.max(1) as f64 / 1e9
}

fn shape_row(shape: &Shape, unit: Unit, what: Markup) -> Markup {
    let each = |n: u64| {
        let each = n as f64 / shape.files.max(1) as f64;
        if each.fract() == 0.0 { format!("{each:.0}") } else { format!("{each:.1}") }
    };
    html! {
        tr {
            td.n { (show_count(shape.files)) }
            td.n { (each(shape.calls)) } td.n { (each(shape.synchronous)) }
            td.n { (unit.show(each_s(shape))) }
            td.sequence { (what) }
        }
    }
}

fn items(sequence: &[Item], shape: &Shape) -> Markup {
    html! {
        @for (i, item) in sequence.iter().enumerate() {
            @if i > 0 { ", " }
            span.op.sync[item.synchronous] {
                (name(item.label))
                @match item.times { 0 => " × many", 1 => "", n => { " × " (n) } }
                @if item.error != 0 { " " span.error { (status(item.label, item.error)) } }
            }
        }
        @if shape.files > 0 && sequence.iter().map(|i| u64::from(i.times.max(1))).sum::<u64>() < shape.calls / shape.files { ", …" }
    }
}

/// The name of an error status, without the version: `NOENT`.
pub fn status(label: u8, error: u32) -> String {
    let name = if is_v4(label) { NfsStat(error).to_string() } else { NfsStat3(error).to_string() };
    name.split_once("ERR_").map(|(_, rest)| rest.to_owned()).unwrap_or(name)
}

pub fn compounds(found: &Results) -> Option<Markup> {
    let all = &found.findings.compounds;
    let more = all.len().saturating_sub(ROWS_MAX);
    (!all.is_empty()).then(|| {
        let at = |times: &Spread| [50.0, 99.0].map(|percent| times.percentile_ns(percent).map(|ns| ns / 1e9));
        let shown = || all.iter().take(ROWS_MAX);
        let one = Unit::of(shown().flat_map(|(_, times)| at(times)).flatten());
        let sums = Unit::of(shown().map(|(_, times)| times.sum_ns() / 1e9));
        html! {
            div.scroll { table #compounds {
                thead { tr { th.n { "COMPOUNDs" } th.n { "Median" } th.n { "99th pct" } th.n { "Sum" } th { "Operations" } } }
                tbody { @for (ops, times) in shown() {
                    tr {
                        td.n { (show_count(times.count())) }
                        @for s in at(times) { td.n { (s.map_or_else(String::new, |s| one.show(s))) } }
                        td.n { (sums.show(times.sum_ns() / 1e9)) }
                        td.sequence { (compound_words(ops)) }
                    }
                } }
            } }
            @if more > 0 { p { "And " (show_count(more as u64)) " more shapes." } }
        }
    })
}

pub fn pairs(found: &Results) -> Markup {
    let pairs = &found.findings.pairs;
    let more = pairs.len().saturating_sub(ROWS_MAX);
    let shown = || pairs.iter().take(ROWS_MAX);
    let trips = Unit::of(shown().map(|pair| pair.round_trip_ns / 1e9));
    let times = Unit::of(shown().map(|pair| pair.shares.total()));
    html! {
        div.scroll { table #pairs {
            thead { tr {
                th { "Client" } th { "Server" }
                @for head in ["Calls", "Synchronous", "Round trip", "Under way", "Time"] { th.n { (head) } }
                th { "Largest parts" } th { "Captured at" }
            } }
            tbody { @for pair in shown() { (pair_row(pair, trips, times)) } }
        } }
        @if more > 0 { p { "And " (show_count(more as u64)) " more pairs of a client and a server." } }
    }
}

fn pair_row(pair: &Pair, trips: Unit, times: Unit) -> Markup {
    let total = pair.shares.total();
    html! {
        tr {
            @match pair.ends {
                Some((client, server)) => { td { (client) } td { (server) } }
                None => td colspan="2" { "others, too many to be told apart" },
            }
            td.n { (show_count(pair.calls)) } td.n { (show_count(pair.synchronous)) }
            td.n { (trips.show(pair.round_trip_ns / 1e9)) }
            td.n { (format!("{:.2}", pair.in_flight)) }
            td.n { (times.show(total)) }
            td {
                @for (i, (bound, s)) in pair.shares.parts().iter().filter(|(_, s)| *s > 0.0).take(2).enumerate() {
                    @if i > 0 { ", " }
                    (part_name(*bound)) " " (percent(s / total))
                }
            }
            td { (pair.side.name()) }
        }
    }
}

const PAUSES: usize = 5;

/// The calls between which the client paused, if that matters.
pub fn pauses(findings: &Findings) -> Markup {
    let shares = &findings.shares;
    if shares.client < 0.1 * shares.total() || findings.pauses.is_empty() {
        return html! {};
    }
    let shown = || findings.pauses.iter().take(PAUSES);
    let medians = Unit::of(shown().map(|pause| pause.median_ns / 1e9));
    let sums = Unit::of(shown().map(|pause| pause.sum_ns / 1e9));
    html! {
        h3 { "Between which calls the client paused" }
        div.scroll { table #pauses {
            thead { tr { th { "After" } th { "Before" } @for head in ["Pauses", "Median", "Together"] { th.n { (head) } } } }
            tbody { @for pause in shown() {
                tr {
                    th { (name(pause.before)) } th { (name(pause.after)) }
                    td.n { (show_count(pause.count)) } td.n { (medians.show(pause.median_ns / 1e9)) } td.n { (sums.show(pause.sum_ns / 1e9)) }
                }
            } }
        } }
    }
}
