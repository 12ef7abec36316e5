//! Maps: a figure for each pair of two others, with lines where another thing bounds it; and requests as boxes.

use super::lines::BOLD;
use crate::page::svg::{chart, fitted, n, short, wide};
use landfast_lab::report::content::{Axis, Bound, Cell, Lane, Packet, Panel, Whose};
use maud::{Markup, html};

/// Steps of colour.
const STEPS: f64 = 7.0;
const CELL: f64 = 38.0;
const LEFT: f64 = 44.0;
const HEAD: f64 = 38.0;

fn word(bound: Bound, narrow: bool) -> &'static str {
    match (bound, narrow) {
        (Bound::Network, false) => "network",
        (Bound::Network, true) => "net",
        (Bound::Disk, _) => "disk",
        (Bound::Processor, _) => "cpu",
    }
}

/// All panels, two beside each other if there is room. They share their colours.
pub fn map(x: &Axis, y: &Axis, value: &str, panels: &[Panel], width: f64) -> Markup {
    let values = || panels.iter().flat_map(|p| &p.cells).map(|c| c.value).filter(|v| *v > 0.0);
    let ends = (values().fold(f64::INFINITY, f64::min).ln(), values().fold(f64::MIN_POSITIVE, f64::max).ln());
    let beside = if width < 500.0 { 1 } else { 2 };
    let panel_width = (width - 20.0 * (beside - 1) as f64) / beside as f64;
    let rows = panels.iter().map(|p| sorted(&p.cells, |c| c.y).len()).max().unwrap_or(0);
    let high = HEAD + CELL * rows as f64 + 48.0;
    let lines = panels.len().div_ceil(beside);
    let step =
        move |v: f64| ((v.ln() - ends.0) / (ends.1 - ends.0).max(1e-9) * STEPS).clamp(0.0, STEPS - 1.0) as u8;
    let inside = html! {
        @for (i, panel) in panels.iter().enumerate() {
            @let at = ((i % beside) as f64 * (panel_width + 20.0), (i / beside) as f64 * high);
            g transform={ "translate(" (n(at.0)) " " (n(at.1)) ")" } { (one_panel(panel, x, y, panel_width, &step)) }
        }
    };
    let label = format!("{value}, by {} and {}", x.name, y.name);
    chart((width, lines as f64 * high), &label, &inside)
}

fn sorted(cells: &[Cell], of: impl Fn(&Cell) -> f64) -> Vec<f64> {
    let mut all: Vec<f64> = cells.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

fn one_panel(panel: &Panel, x: &Axis, y: &Axis, width: f64, step: &dyn Fn(f64) -> u8) -> Markup {
    let (xs, ys) = (sorted(&panel.cells, |c| c.x), sorted(&panel.cells, |c| c.y));
    let cell_width = (width - LEFT) / xs.len().max(1) as f64;
    let narrow = cell_width < 56.0;
    // The quickest corner is below to the left, as on an axis.
    let place = |i: usize, j: usize| (LEFT + i as f64 * cell_width, HEAD + (ys.len() - 1 - j) as f64 * CELL);
    let find = |i: usize, j: usize| panel.cells.iter().find(|c| c.x == xs[i] && c.y == ys[j]);
    let bottom = HEAD + ys.len() as f64 * CELL;
    let name = match panel.whose {
        Whose::NotDurable => format!("{} (NOT DURABLE)", panel.name),
        _ => panel.name.clone(),
    };
    html! {
        @if let Some(name) = fitted(&name, width / BOLD) { text.heading x="0" y="14" { (name) } }
        @for i in 0..xs.len() { @for j in 0..ys.len() { @if let Some(cell) = find(i, j) {
            @let (px, py) = place(i, j);
            @let colour = step(cell.value);
            @let tone = if colour >= 4 { "high" } else { "low" };
            g {
                title { (panel.name) ", " (x.name) " " (short(cell.x)) ", " (y.name) " " (short(cell.y)) ": " (short(cell.value)) ", bounded by the " (word(cell.bound, false)) }
                rect.(format!("m{colour}")) x=(n(px)) y=(n(py)) width=(n(cell_width + 0.5)) height=(n(CELL + 0.5)) {}
                text.(tone) x=(n(px + cell_width / 2.0)) y=(n(py + 17.0)) text-anchor="middle" { (short(cell.value)) }
                text.small.(tone) x=(n(px + cell_width / 2.0)) y=(n(py + 30.0)) text-anchor="middle" { (word(cell.bound, narrow)) }
            }
        } } }
        @for i in 0..xs.len() { @for j in 0..ys.len() { @if let Some(cell) = find(i, j) {
            @let (px, py) = place(i, j);
            @if i + 1 < xs.len() && find(i + 1, j).is_some_and(|c| c.bound != cell.bound) {
                line.border x1=(n(px + cell_width)) x2=(n(px + cell_width)) y1=(n(py)) y2=(n(py + CELL)) {}
            }
            @if j + 1 < ys.len() && find(i, j + 1).is_some_and(|c| c.bound != cell.bound) {
                line.border x1=(n(px)) x2=(n(px + cell_width)) y1=(n(py)) y2=(n(py)) {}
            }
        } } }
        @for (i, v) in xs.iter().enumerate() {
            text.tick x=(n(place(i, 0).0 + cell_width / 2.0)) y=(n(bottom + 14.0)) text-anchor="middle" { (short(*v)) }
        }
        @for (j, v) in ys.iter().enumerate() {
            text.tick x=(n(LEFT - 6.0)) y=(n(place(0, j).1 + CELL / 2.0 + 4.0)) text-anchor="end" { (short(*v)) }
        }
        text.tick x=(n((LEFT + width) / 2.0)) y=(n(bottom + 30.0)) text-anchor="middle" { (x.name) }
        text.tick x="0" y=(n(HEAD - 6.0)) { (y.name) }
    }
}

/// Requests that are the same and follow each other.
struct Run<'a> {
    packet: &'a Packet,
    times: usize,
}

fn runs(packets: &[Packet]) -> Vec<Run<'_>> {
    let mut all: Vec<Run<'_>> = Vec::new();
    for packet in packets {
        match all.last_mut() {
            Some(last) if last.packet == packet => last.times += 1,
            _ => all.push(Run { packet, times: 1 }),
        }
    }
    all
}

const BOX: f64 = 24.0;

/// One line of boxes for each lane: a box is a request, from left to right as they were sent.
pub fn packets(lanes: &[Lane], width: f64) -> Markup {
    let mut y = 0.0;
    let mut drawn = Vec::new();
    for lane in lanes {
        drawn.push(html! { text.heading x="0" y=(n(y + 14.0)) { (fitted(&lane.name, width / BOLD).unwrap_or_default()) } });
        y += 20.0;
        let mut x = 0.0;
        for run in runs(&lane.packets) {
            let times = if run.times > 1 { format!(" ×{}", run.times) } else { String::new() };
            let text = format!("{}{times}", run.packet.what);
            let text = fitted(&text, width - 12.0).unwrap_or_default();
            let long = wide(&text) + 10.0;
            if x > 0.0 && x + long > width {
                (x, y) = (0.0, y + BOX + 4.0);
            }
            let kind = match run.packet.stable.as_str() {
                "FILE_SYNC" => "file_sync",
                "UNSTABLE" => "unstable",
                "COMMIT" => "commit",
                _ => "other",
            };
            drawn.push(html! {
                g {
                    title { (run.packet.what) @if run.packet.bytes > 0 { ", " (run.packet.bytes) " bytes" } (times) }
                    rect.packet.(kind) x=(n(x)) y=(n(y)) width=(n(long)) height=(n(BOX)) rx="3" {}
                    text.inside.(kind) x=(n(x + long / 2.0)) y=(n(y + 16.0)) text-anchor="middle" { (text) }
                }
            });
            x += long + 4.0;
        }
        y += BOX + 12.0;
    }
    let keys = [
        ("file_sync", "stable before the reply"),
        ("unstable", "not yet stable"),
        ("commit", "COMMIT"),
        ("other", "other requests"),
    ];
    let mut x = 0.0;
    for (kind, name) in keys {
        let long = wide(name) + 26.0;
        if x > 0.0 && x + long > width {
            (x, y) = (0.0, y + 18.0);
        }
        drawn.push(html! {
            rect.packet.(kind) x=(n(x)) y=(n(y)) width="11" height="11" rx="2" {}
            text.tick x=(n(x + 16.0)) y=(n(y + 10.0)) { (name) }
        });
        x += long;
    }
    chart(
        (width, y + 18.0),
        "Requests in the order in which they were sent",
        &html! { @for part in drawn { (part) } },
    )
}
