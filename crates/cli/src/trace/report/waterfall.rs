//! A typical file, call by call: each call is a bar on the axis of time.

use super::super::results::Results;
use super::tables::status;
use crate::page::svg::{Scale, both, chart, fitted, n, time, time_label, time_ticks, wide};
use crate::units::show_count;
use landfast_model::Bound;
use landfast_trace::analysis::files::Shape;
use landfast_trace::analysis::findings::{Findings, Side};
use landfast_trace::analysis::name;
use landfast_trace::analysis::typical::{Steps, Timed};
use maud::{Markup, html};

const DRAWN: usize = 24;
/// A pause that is this many times as long as everything else is not drawn, and neither are the calls on its smaller side.
const APART: f64 = 3.0;

/// A chart for each of the most frequent sequences of calls.
pub fn waterfalls(found: &Results) -> Option<Markup> {
    let f = &found.findings;
    let all: u64 = f.shapes.iter().map(|(_, shape)| shape.files).sum::<u64>() + f.other_files.files;
    let drawn: Vec<_> =
        f.shapes.iter().zip(&f.typical).filter_map(|((_, s), t)| Some((s, t.as_ref()?))).collect();
    let server = f.side == Side::Server && f.both.is_none();
    (!drawn.is_empty()).then(|| {
        html! {
            p {
                "Of the commonest sequences of calls a typical file, with the times that it had. A bar is a call, from its first byte to the last byte of the \
                 answer; between bars the client works, or calls for something else. "
                @if server { "As this was captured at the server, the network is between the bars and not in them. " }
                "Names in this colour: " span.op.sync { "had to be stable" } " before the answer."
            }
            p.keys { @for (bound, what) in KEYS { span.entry { span.key.(bound.name()) {} (what) } " " } }
            @for (shape, steps) in drawn { (file(f, shape, steps, all)) }
        }
    })
}

const KEYS: [(Bound, &str); 4] = [
    (Bound::Bandwidth, "bytes of a large call or answer"),
    (Bound::Rtt, "network, there and back"),
    (Bound::Server, "server"),
    (Bound::Persistence, "server, until it is stable"),
];

fn file(f: &Findings, shape: &Shape, steps: &Steps, all: u64) -> Markup {
    let mut calls = steps.calls.clone();
    calls.sort_by_key(|call| call.begun_ns);
    let burst = burst(&calls);
    let shown = &calls[burst.start..burst.end.min(burst.start + DRAWN)];
    let pair = f.pairs.iter().find(|pair| pair.ends == Some(steps.ends));
    let trip = pair.map_or(f.terms.round_trip_s * 1e9, |pair| pair.round_trip_ns);
    let side = pair.map_or(f.side, |pair| pair.side);
    let split = WaitSplit {
        trip_ns: if matches!(side, Side::Server | Side::Loopback) { 0.0 } else { trip },
        floor_ns: f.floor_ns,
    };
    let each = shape.calls / shape.files.max(1);
    let hidden = each.saturating_sub(shown.len() as u64);
    html! {
        h3 {
            (show_count(shape.files)) " of " (show_count(all)) @if all == 1 { " file" } @else { " files" } ": "
            (show_count(each)) @if each == 1 { " call" } @else { " calls" } ", "
            (show_count(shape.synchronous / shape.files.max(1))) " synchronous"
        }
        (both(|width| draw(shown, &split, width)))
        @if hidden > 0 { p.none { "And " (show_count(hidden)) @if hidden == 1 { " more call." } @else { " more calls." } } }
    }
}

/// The calls that belong together: a pause that is far longer than the rest splits them, and the side with more calls is kept.
fn burst(calls: &[Timed]) -> std::ops::Range<usize> {
    let mut range = 0..calls.len();
    loop {
        let within = &calls[range.clone()];
        let Some(first) = within.first() else { return range };
        let (mut ended, mut widest) = (first.ended_ns(), (0i64, 0usize));
        for (i, call) in within.iter().enumerate().skip(1) {
            let pause = call.begun_ns.saturating_sub(ended);
            widest = if pause > widest.0 { (pause, i) } else { widest };
            ended = ended.max(call.ended_ns());
        }
        let (pause, at) = (widest.0 as f64, widest.1);
        let rest = ended.saturating_sub(first.begun_ns) as f64 - pause;
        if at == 0 || pause < APART * rest.max(1.0) {
            return range;
        }
        let middle = range.start + at;
        range = if at >= within.len() - at { range.start..middle } else { middle..range.end };
    }
}

struct WaitSplit {
    trip_ns: f64,
    floor_ns: f64,
}

impl WaitSplit {
    /// The pieces of a call's bar in the order of time, in nanoseconds.
    fn pieces(&self, call: &Timed) -> [(Bound, f64); 6] {
        let wait = f64::from(call.wait_ns).max(0.0);
        let network = call.network_ns.map_or(self.trip_ns, f64::from).clamp(0.0, wait);
        let server = wait - network;
        let stable = if call.synchronous { (server - self.floor_ns).max(0.0) } else { 0.0 };
        [
            (Bound::Bandwidth, f64::from(call.upload_ns)),
            (Bound::Rtt, network / 2.0),
            (Bound::Server, server - stable),
            (Bound::Persistence, stable),
            (Bound::Rtt, network / 2.0),
            (Bound::Bandwidth, f64::from(call.reply_ns)),
        ]
    }
}

fn label(call: &Timed) -> String {
    match call.error {
        0 => name(call.label),
        error => format!("{} {}", name(call.label), status(call.label, error)),
    }
}

const ROW: f64 = 20.0;
const BAR: f64 = 12.0;
const TOP: f64 = 6.0;

fn draw(calls: &[Timed], split: &WaitSplit, width: f64) -> Markup {
    let narrow = width < 500.0;
    let names = calls.iter().map(|call| wide(&label(call))).fold(0.0, f64::max);
    let left = (names + 16.0).clamp(60.0, if narrow { 124.0 } else { 210.0 });
    let first = calls.iter().map(|call| call.begun_ns).min().unwrap_or(0);
    let since = |ns: i64| ns.saturating_sub(first) as f64 / 1e9;
    let span = calls.iter().map(|call| since(call.ended_ns())).fold(1e-9, f64::max);
    let x = Scale::linear((0.0, span), (left, width - left - 12.0));
    let bottom = TOP + ROW * calls.len() as f64;
    let inside = html! {
        @for s in time_ticks(span, if narrow { 3 } else { 8 }) {
            line.grid x1=(n(x.at(s))) x2=(n(x.at(s))) y1=(n(TOP)) y2=(n(bottom)) {}
            (time_label(s, &x, bottom + 14.0, width))
        }
        @for (i, call) in calls.iter().enumerate() {
            (bar(call, split, TOP + i as f64 * ROW, since(call.begun_ns), (left, width), &x))
        }
    };
    chart((width, bottom + 20.0), "A typical file, call by call", &inside)
}

fn bar(call: &Timed, split: &WaitSplit, top: f64, from: f64, (left, width): (f64, f64), x: &Scale) -> Markup {
    let mut at = from;
    let pieces = split.pieces(call).map(|(bound, ns)| {
        let begun = at;
        at += ns / 1e9;
        (bound, begun, at)
    });
    let took = time(at - from);
    let (y, base) = (top + (ROW - BAR) / 2.0, top + ROW / 2.0 + 4.0);
    // To the right of the bar, or to its left.
    let behind = x.at(at) + 6.0;
    let text = if behind + wide(&took) <= width {
        Some((behind, "start"))
    } else {
        Some((x.at(from) - 6.0, "end")).filter(|(at, _)| at - wide(&took) >= left)
    };
    html! {
        g.call data-s=(at - from) {
            title {
                (label(call)) ", " (took) ", begun at " (time(from))
                @for (bound, what) in KEYS {
                    @let s = pieces.iter().filter(|(b, ..)| *b == bound).fold(0.0, |sum, (_, from, to)| sum + to - from);
                    @if s > 0.0 { "\n" (what) " " (time(s)) }
                }
            }
            rect.hover x="0" y=(n(top)) width=(n(width)) height=(n(ROW)) {}
            @if let Some(text) = fitted(&label(call), left - 10.0) {
                text.name.sync[call.synchronous] x=(n(left - 8.0)) y=(n(base)) text-anchor="end" { (text) }
            }
            // Even a bar without visible length shows its time.
            rect.mark.rtt x=(n(x.at(from))) y=(n(y)) width="1" height=(n(BAR)) {}
            @for (bound, begun, ended) in pieces.iter().filter(|(_, begun, ended)| ended > begun) {
                rect.mark.piece.(bound.name()) x=(n(x.at(*begun))) y=(n(y)) width=(n(x.at(*ended) - x.at(*begun))) height=(n(BAR)) {}
            }
            @if let Some((at, anchor)) = text { text.value x=(n(at)) y=(n(base)) text-anchor=(anchor) { (took) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(begun_ns: i64, wait_ns: f32) -> Timed {
        let (label, synchronous, error, network_ns) = (2, true, 0, None);
        Timed { label, synchronous, error, begun_ns, upload_ns: 0.0, wait_ns, reply_ns: 0.0, network_ns }
    }

    proptest! {
        #[test]
        fn the_pieces_of_a_bar_are_all_of_it(
            wait in 0f32..1e10, trip in -1f64..1e10, floor in -1f64..1e10, network in proptest::option::of(-1f32..1e10)
        ) {
            let call = Timed { upload_ns: 1000.0, reply_ns: 500.0, network_ns: network, ..call(0, wait) };
            let pieces = WaitSplit { trip_ns: trip, floor_ns: floor.max(0.0) }.pieces(&call);
            prop_assert!(pieces.iter().all(|(_, ns)| *ns >= 0.0), "{pieces:?}");
            let sum: f64 = pieces.iter().map(|(_, ns)| ns).sum();
            prop_assert!((sum - f64::from(wait) - 1500.0).abs() <= 1e-6 * sum, "{sum}");
        }
    }

    #[test]
    fn what_is_far_apart_is_not_drawn_together() {
        let at = |begun: &[i64]| burst(&begun.iter().map(|ms| call(ms * 1_000_000, 1e6)).collect::<Vec<_>>());
        assert_eq!(at(&[]), 0..0);
        assert_eq!(at(&[7]), 0..1);
        assert_eq!(at(&[0, 2, 4, 6]), 0..4);
        assert_eq!(at(&[0, 2, 4, 60_000]), 0..3);
        assert_eq!(at(&[0, 60_000, 60_002, 60_004, 500_000, 500_001]), 1..4);
        assert_eq!(at(&[0, 0, 0, 3]), 0..4);
        assert_eq!(at(&[-2_000_000_000_000, 2_000_000_000_000]), 0..1);
    }
}
