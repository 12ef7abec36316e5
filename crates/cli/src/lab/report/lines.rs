//! Bars, and lines over one axis.

use super::figures::plain;
use crate::page::svg::{Scale, chart, decades, fitted, held, level, n, short, wide, wrapped};
use landfast_lab::report::content::{Axis, Bar, Chart, Series, Whose};
use maud::{Markup, html};

/// The class of a mark.
pub fn class(whose: Whose) -> &'static str {
    match whose {
        Whose::Ours => "ours",
        Whose::Peer => "peer",
        Whose::Local => "local",
        Whose::NotDurable => "not_durable",
    }
}

/// How much wider bold text is.
pub const BOLD: f64 = 1.06;

/// The height of a bar with what is around it, and of each line of its name.
const BAR: f64 = 22.0;
const NAME: f64 = 16.0;
const TOP: f64 = 24.0;

/// One bar a line, on a logarithmic scale from a power of ten, with marks for what the equation allows.
pub fn bars(axis: &Axis, bars: &[Bar], width: f64) -> Markup {
    let values = || bars.iter().flat_map(|bar| [Some(bar.value), bar.limit]).flatten().filter(|v| *v > 0.0);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::MIN_POSITIVE, f64::max));
    let (from, to) = if axis.log { around(least, most) } else { (0.0, most * 1.05) };
    let (left, right) = (6.0, width - 16.0);
    let x = match axis.log {
        true => Scale::log((from, to), (left, right - left)),
        false => Scale::linear((from, to), (left, right - left)),
    };
    let mut bottom = TOP;
    let placed: Vec<(f64, Vec<String>, &Bar)> = bars
        .iter()
        .map(|bar| {
            let (top, name) = (bottom, name_lines(bar, width));
            bottom += BAR + NAME * name.len() as f64;
            (top, name, bar)
        })
        .collect();
    let ticks = if axis.log { log_ticks(from, to, 8) } else { crate::page::svg::ticks(to, 6) };
    let has_limits = bars.iter().any(|bar| bar.limit.is_some());
    let scale = if axis.log { ", log scale" } else { "" };
    let limits = if has_limits { ["; line: limit by the equation", "; line: limit"] } else { [""; 2] };
    let [long, short_one] = limits.map(|limits| format!("{}{scale}{limits}", axis.name));
    let heading = if wide(&long) <= width / BOLD { long } else { short_one };
    let inside = html! {
        text.heading x="0" y="14" { (fitted(&heading, width / BOLD).unwrap_or_default()) }
        @for v in ticks {
            line.grid x1=(n(x.at(v))) x2=(n(x.at(v))) y1=(n(TOP)) y2=(n(bottom)) {}
            @let label = short(v);
            text.tick x=(n(held(x.at(v), &label, (0.0, width)))) y=(n(bottom + 14.0)) text-anchor="middle" { (label) }
        }
        @for (top, name, bar) in &placed { (one_bar(bar, name, *top, width, &x, left)) }
    };
    chart((width, bottom + 20.0), &axis.name, &inside)
}

/// What stands above a bar, beside its value.
fn name_lines(bar: &Bar, width: f64) -> Vec<String> {
    let note = if bar.whose == Whose::NotDurable { " (NOT DURABLE)" } else { "" };
    wrapped(&format!("{}{note}", bar.name), (width - 24.0 - wide(&plain(bar.value))) / BOLD)
}

fn one_bar(bar: &Bar, name: &[String], top: f64, width: f64, x: &Scale, left: f64) -> Markup {
    let value = plain(bar.value);
    let below = top + NAME * name.len() as f64;
    html! {
        g {
            title { (name.join(" ")) ": " (value) @if let Some(limit) = bar.limit { "; by the equation " (plain(limit)) } }
            @for (i, line) in name.iter().enumerate() {
                text.name x="6" y=(n(top + 15.0 + NAME * i as f64)) { (line) }
            }
            text.value x=(n(width - 6.0)) y=(n(top + 15.0)) text-anchor="end" { (value) }
            rect.(class(bar.whose)) x=(n(left)) y=(n(below + 4.0)) width=(n((x.at(bar.value) - left).max(1.0))) height="12" rx="2" {}
            @if let Some(limit) = bar.limit {
                line.limit x1=(n(x.at(limit))) x2=(n(x.at(limit))) y1=(n(below + 1.0)) y2=(n(below + 19.0)) {}
            }
        }
    }
}

/// The ends of a logarithmic axis with some room around the values.
fn around(least: f64, most: f64) -> (f64, f64) {
    if !least.is_finite() || least <= 0.0 {
        return (1.0, 10.0);
    }
    let step = |v: f64, up: bool| {
        let power = 10f64.powf(v.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|d| d * power);
        match up {
            true => steps.into_iter().find(|s| *s >= v * 1.02).unwrap_or(power * 20.0),
            false => steps.into_iter().rev().find(|s| *s <= v * 0.9).unwrap_or(power / 2.0),
        }
    };
    (step(least, false), step(most, true))
}

/// Round numbers on a logarithmic axis: powers of ten; where there are few, their double and fivefold as well.
fn log_ticks(from: f64, to: f64, most: usize) -> Vec<f64> {
    let fine: Vec<f64> = (from.log10().floor() as i32..=to.log10().ceil() as i32)
        .flat_map(|power| [1.0, 2.0, 5.0].map(|d| d * 10f64.powi(power)))
        .filter(|v| *v >= from * 0.999 && *v <= to * 1.001)
        .collect();
    if fine.len() <= most { fine } else { decades(from, to, most) }
}

const LEFT: f64 = 58.0;
const HEIGHT: f64 = 300.0;
const KEY: f64 = 20.0;

/// All series of a chart, with their names below it.
pub fn lines(of: &Chart, width: f64) -> Markup {
    let points =
        || of.series.iter().flat_map(|s| s.points.iter().copied()).filter(|(x, y)| *x > 0.0 && *y > 0.0);
    if points().next().is_none() {
        return html! { p.none { (of.name) ": nothing was measured" } };
    }
    let ends = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, 0.0f64), |(least, most), v| (least.min(v), most.max(v)))
    };
    let (x_ends, y_ends) = (ends(&mut points().map(|p| p.0)), ends(&mut points().map(|p| p.1)));
    let frame = (LEFT, width - 14.0);
    let (top, bottom) = (42.0, 42.0 + HEIGHT);
    let y_range =
        if of.y.log { around(y_ends.0, y_ends.1) } else { (0.0, crate::page::svg::round_up(y_ends.1)) };
    let x = scale(&of.x, x_ends, (frame.0 + 8.0, frame.1 - frame.0 - 16.0));
    let y = scale(&of.y, y_range, (bottom, top - bottom));
    let y_ticks =
        if of.y.log { log_ticks(y_range.0, y_range.1, 8) } else { crate::page::svg::ticks(y_range.1, 6) };
    let (keys, keys_high) = keys(&of.series, width);
    let inside = html! {
        text.heading x="0" y="14" { (fitted(&of.name, width / BOLD).unwrap_or_default()) }
        @for v in y_ticks { (level(y.at(v), frame, &short(v))) }
        line.axis x1=(n(frame.0)) x2=(n(frame.1)) y1=(n(bottom)) y2=(n(bottom)) {}
        @for v in x_values(of, &x, width) {
            line.axis x1=(n(x.at(v))) x2=(n(x.at(v))) y1=(n(bottom)) y2=(n(bottom + 5.0)) {}
            text.tick x=(n(x.at(v))) y=(n(bottom + 18.0)) text-anchor="middle" { (short(v)) }
        }
        text.tick x=(n((frame.0 + frame.1) / 2.0)) y=(n(bottom + 36.0)) text-anchor="middle" { (of.x.name) }
        text.tick x=(n(frame.0)) y=(n(top - 6.0)) text-anchor="start" { (of.y.name) }
        @for series in &of.series { (one_line(series, &x, &y)) }
        g transform={ "translate(0 " (n(bottom + 50.0)) ")" } { (keys) }
    };
    chart((width, bottom + 54.0 + keys_high), &of.name, &inside)
}

fn scale(axis: &Axis, ends: (f64, f64), place: (f64, f64)) -> Scale {
    if axis.log { Scale::log(ends, place) } else { Scale::linear(ends, place) }
}

/// The places of the points, as far as their labels have room beside each other.
fn x_values(of: &Chart, x: &Scale, width: f64) -> Vec<f64> {
    let mut all: Vec<f64> = of.series.iter().flat_map(|s| s.points.iter().map(|p| p.0)).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    let mut end = f64::NEG_INFINITY;
    all.retain(|v| {
        let half = wide(&short(*v)) / 2.0;
        let fits = x.at(*v) - half > end + 4.0 && x.at(*v) + half < width;
        if fits {
            end = x.at(*v) + half;
        }
        fits
    });
    all
}

fn one_line(series: &Series, x: &Scale, y: &Scale) -> Markup {
    let points: Vec<(f64, f64, f64, f64)> = series
        .points
        .iter()
        .filter(|(_, v)| *v > 0.0)
        .map(|(at, v)| (x.at(*at), y.at(*v), *at, *v))
        .collect();
    let path: Vec<String> = points.iter().map(|(x, y, ..)| format!("{} {}", n(*x), n(*y))).collect();
    let dashed = if series.is_limit { "dashed" } else { "" };
    let tone = format!("t{}", series.tone);
    html! {
        path.line.(tone).(dashed) d={ "M" (path.join("L")) } {}
        @if !series.is_limit {
            @for (px, py, at, v) in &points {
                circle.point.(tone) cx=(n(*px)) cy=(n(*py)) r="3.5" { title { (series.name) ", " (short(*at)) ": " (plain(*v)) } }
            }
        }
    }
}

/// The names of the series with their lines, as many beside each other as have room, and how high they are.
fn keys(series: &[Series], width: f64) -> (Markup, f64) {
    let (mut x, mut y, mut lines) = (0.0, 0.0, 1);
    let mut places = Vec::new();
    for s in series {
        let name = match s.whose {
            Whose::NotDurable => format!("{} (NOT DURABLE)", s.name),
            _ => s.name.clone(),
        };
        let room = 34.0 + wide(&name) + 14.0;
        if x > 0.0 && x + room > width {
            (x, y, lines) = (0.0, y + KEY + NAME * (lines - 1) as f64, 1);
        }
        let name = wrapped(&name, width - 34.0);
        lines = lines.max(name.len());
        places.push((x, y, s, name));
        x += room;
    }
    let keys = html! {
        @for (x, y, s, name) in places {
            @let tone = format!("t{}", s.tone);
            @let dashed = if s.is_limit { "dashed" } else { "" };
            path.line.(tone).(dashed) d={ "M" (n(x)) " " (n(y + 6.0)) "h26" } {}
            @for (i, line) in name.iter().enumerate() {
                text x=(n(x + 32.0)) y=(n(y + 10.0 + NAME * i as f64)) { (line) }
            }
        }
    };
    (keys, y + KEY + NAME * (lines - 1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_holds_its_values_between_round_numbers() {
        assert_eq!(around(3.0, 700.0), (2.0, 1000.0));
        assert_eq!(around(0.04, 0.04), (0.02, 0.05));
        assert_eq!(around(f64::INFINITY, 0.0), (1.0, 10.0));
        assert_eq!(log_ticks(2.0, 50.0, 8), [2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(log_ticks(1.0, 1e5, 8), [1.0, 10.0, 100.0, 1e3, 1e4, 1e5]);
    }
}
