//! How long calls waited for their replies: synchronous calls beside others.

use crate::page::svg::{
    Scale, chart, decades, level, n, percent, round_up, short, ticks, time, time_label, wide,
};
use crate::units::show_count;
use landfast_trace::analysis::findings::{Findings, Side as Place};
use landfast_trace::analysis::spread::Spread;
use landfast_trace::skim::facts::Class;
use maud::{Markup, html};

const SIZE: (f64, f64) = (490.0, 300.0);
const LEFT: f64 = 52.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 258.0;
/// Bars for each power of ten.
const EACH: f64 = 8.0;

/// The classes of calls on one side, each with its calls for each bar.
struct Side {
    classes: Vec<(Class, Vec<u64>)>,
    all: Spread,
}

/// The range of bars that both sides share.
#[derive(Clone, Copy)]
struct Bars {
    first: i32,
    count: usize,
}

fn bar(ns: f64) -> i32 {
    ((ns.max(1.0) / 1e9).log10() * EACH).floor() as i32
}

impl Bars {
    fn of(waits: &[Spread; 6]) -> Option<Bars> {
        let seen = || waits.iter().flat_map(|spread| spread.steps().map(|(ns, ..)| bar(ns)));
        let (first, last) = (seen().min()?, seen().max()?);
        // At least two powers of ten, so that a single time does not fill the chart.
        let missing = (2 * EACH as i32 - (last - first + 1)).max(0);
        let first = first - 1 - missing / 2;
        Some(Bars { first, count: usize::try_from(last - first + 2 + missing / 2).ok()? })
    }

    /// Where a bar begins, in seconds.
    fn edge(&self, i: usize) -> f64 {
        10f64.powf((f64::from(self.first) + i as f64) / EACH)
    }
}

impl Side {
    fn of(waits: &[Spread; 6], synchronous: bool, bars: Bars) -> Side {
        let mut all = Spread::default();
        let mut classes = Vec::new();
        for (class, spread) in
            Class::ALL.into_iter().zip(waits).filter(|(c, _)| c.is_synchronous() == synchronous)
        {
            all.merge(spread);
            let mut counts = vec![0; bars.count];
            for (ns, count, _) in spread.steps() {
                if let Some(slot) = usize::try_from(bar(ns) - bars.first).ok().and_then(|i| counts.get_mut(i))
                {
                    *slot += count;
                }
            }
            if spread.count() > 0 {
                classes.push((class, counts));
            }
        }
        Side { classes, all }
    }

    fn most(&self) -> u64 {
        let bars = self.classes.first().map_or(0, |(_, counts)| counts.len());
        (0..bars).map(|i| self.classes.iter().map(|(_, counts)| counts[i]).sum()).max().unwrap_or(0)
    }
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Light => "light",
        Class::Fetch => "fetch",
        Class::Unstable => "unstable",
        Class::Metadata => "metadata",
        Class::StableWrite => "stable",
        Class::Commit => "commit",
    }
}

pub fn histograms(findings: &Findings) -> Markup {
    let waits = &findings.raw_waits;
    let Some(bars) = Bars::of(waits) else {
        return html! { p.none { "No call was answered." } };
    };
    let sides = [
        ("Synchronous: stable before the answer", "synchronous", Side::of(waits, true, bars)),
        ("Others", "others", Side::of(waits, false, bars)),
    ];
    // Elsewhere the waits contain only a part of the round trip, or nothing of it.
    let trip = if matches!(findings.side, Place::Client | Place::Loopback) {
        findings.terms.round_trip_s
    } else {
        0.0
    };
    html! {
        div.sides {
            @for (title, what, side) in &sides {
                figure {
                    (draw(title, side, bars, trip))
                    @if side.all.count() > 0 {
                        figcaption {
                            data value=(side.all.count()) data-calls=(what) { (show_count(side.all.count())) } " calls; median "
                            (at(&side.all, 50.0)) ", 99th percentile " (at(&side.all, 99.0)) ", longest "
                            (time(side.all.most_ns() as f64 / 1e9)) ". "
                            @for (class, counts) in &side.classes {
                                span.entry { span.key.(class_name(*class)) {} (class.words()) " " (show_count(counts.iter().sum())) } " "
                            }
                        }
                    }
                }
            }
        }
    }
}

fn at(spread: &Spread, percent: f64) -> String {
    spread.percentile_ns(percent).map_or_else(String::new, |ns| time(ns / 1e9))
}

fn draw(title: &str, side: &Side, bars: Bars, round_trip_s: f64) -> Markup {
    let (width, height) = SIZE;
    let frame = (LEFT, width - 8.0);
    let ends = (bars.edge(0), bars.edge(bars.count));
    let x = Scale::log(ends, (frame.0, frame.1 - frame.0));
    let most = round_up(side.most() as f64).max(1.0);
    let y = Scale::linear((0.0, most), (BOTTOM, TOP - BOTTOM));
    let levels: Vec<f64> = ticks(most, 4).into_iter().filter(|v| v.fract() == 0.0).collect();
    let inside = html! {
        text.heading x="0" y="14" { (title) }
        @if side.all.count() == 0 {
            text.tick x=(n((frame.0 + frame.1) / 2.0)) y=(n((TOP + BOTTOM) / 2.0)) text-anchor="middle" { "no such calls" }
        } @else {
            @for v in levels { (level(y.at(v), frame, &short(v))) }
        }
        line.axis x1=(n(frame.0)) x2=(n(frame.1)) y1=(n(BOTTOM)) y2=(n(BOTTOM)) {}
        @for s in decades(ends.0, ends.1, 6) {
            line.axis x1=(n(x.at(s))) x2=(n(x.at(s))) y1=(n(BOTTOM)) y2=(n(BOTTOM + 5.0)) {}
            (time_label(s, &x, BOTTOM + 18.0, width))
        }
        text.tick x=(n((frame.0 + frame.1) / 2.0)) y=(n(height - 4.0)) text-anchor="middle" { "from the whole call to the first of its answer" }
        @for i in 0..bars.count { (column(side, bars, i, &x, &y)) }
        @if round_trip_s > ends.0 && round_trip_s < ends.1 { (marker(round_trip_s, &x, frame)) }
    };
    chart(SIZE, title, &inside)
}

fn column(side: &Side, bars: Bars, i: usize, x: &Scale, y: &Scale) -> Markup {
    let total: u64 = side.classes.iter().map(|(_, counts)| counts[i]).sum();
    if total == 0 {
        return html! {};
    }
    let (from, to) = (bars.edge(i), bars.edge(i + 1));
    let (left, right) = (x.at(from), x.at(to));
    let part = percent(total as f64 / side.all.count().max(1) as f64);
    let mut below = 0;
    let mut pieces = Vec::new();
    for (class, counts) in &side.classes {
        let (low, high) = (y.at(below as f64), y.at((below + counts[i]) as f64));
        below += counts[i];
        if counts[i] > 0 {
            // Even a single call in a million is visible.
            pieces.push((class_name(*class), high.min(low - 1.5), low));
        }
    }
    html! {
        g {
            title { (time(from)) " to " (time(to)) ": " (show_count(total)) " calls, " (part)
                @for (class, counts) in side.classes.iter().filter(|(_, counts)| counts[i] > 0) {
                    "\n" (class.words()) ": " (show_count(counts[i]))
                }
            }
            @for (class, high, low) in pieces {
                rect.mark.(class) x=(n(left + 0.5)) y=(n(high)) width=(n((right - left - 1.0).max(0.8))) height=(n(low - high)) {}
            }
        }
    }
}

fn marker(s: f64, x: &Scale, (_, end): (f64, f64)) -> Markup {
    let text = format!("round trip {}", time(s));
    let at = x.at(s);
    let (place, anchor) = if at + 6.0 + wide(&text) > end { (at - 6.0, "end") } else { (at + 6.0, "start") };
    html! {
        line.mark.trip x1=(n(at)) x2=(n(at)) y1=(n(TOP - 14.0)) y2=(n(BOTTOM)) {}
        text.note x=(n(place)) y=(n(TOP - 5.0)) text-anchor=(anchor) { (text) }
    }
}
