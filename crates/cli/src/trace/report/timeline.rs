//! What happened when: calls a second, calls in flight, waits, and idle times.

use crate::page::svg::{
    Scale, both, chart, decades, level, n, percent, round_up, short, ticks, time, time_label, time_ticks,
    wide,
};
use landfast_trace::analysis::series::{Series, Step};
use maud::{Markup, html};
use std::fmt::Write;

const LEFT: f64 = 58.0;
const RIGHT: f64 = 8.0;
const HEIGHT: f64 = 84.0;
const BETWEEN: f64 = 46.0;
/// Calls that a step should have at least, to mean something.
const CALLS_EACH: u64 = 5;

/// The steps of the chart: several steps of the series are merged.
struct Steps {
    width_s: f64,
    steps: Vec<Step>,
}

impl Steps {
    fn of(series: &Series, most: usize) -> Self {
        let all = series.steps();
        let calls: u64 = all.iter().map(|s| s.calls).sum();
        let wanted = usize::try_from(calls / CALLS_EACH).unwrap_or(usize::MAX).clamp(12, most);
        let each = all.len().div_ceil(wanted).max(1);
        let sum = |steps: &[Step]| {
            steps.iter().fold(Step::default(), |mut sum, s| {
                sum.add(s);
                sum
            })
        };
        Steps {
            width_s: series.width_ns() as f64 * each as f64 / 1e9,
            steps: all.chunks(each).map(sum).collect(),
        }
    }

    fn span_s(&self) -> f64 {
        self.width_s * self.steps.len() as f64
    }
}

/// The mean waits of a step in seconds: of synchronous calls, and of others.
fn waits(step: &Step) -> [Option<f64>; 2] {
    let mean = |ns: f64, n: u64| (n > 0).then(|| (ns / n as f64 / 1e9).max(0.0));
    let others = step.calls - step.synchronous.min(step.calls);
    [mean(step.synchronous_wait_ns, step.synchronous), mean(step.wait_ns - step.synchronous_wait_ns, others)]
}

/// The timeline of all clients; `ways`: the number of pairs of a client and a server.
pub fn timeline(series: &Series, ways: usize) -> Markup {
    if series.steps().is_empty() {
        return html! { p.none { "No call was answered." } };
    }
    html! {
        (both(|width| draw(series, ways.max(1) as f64, width)))
    }
}

fn draw(series: &Series, ways: f64, width: f64) -> Markup {
    let steps = Steps::of(series, if width < 500.0 { 70 } else { 200 });
    let x = Scale::linear((0.0, steps.span_s()), (LEFT, width - LEFT - RIGHT));
    let frame = (LEFT, width - RIGHT);
    let top = |i: usize| 28.0 + i as f64 * (HEIGHT + BETWEEN);
    let bottom = top(3) + HEIGHT;
    let inside = html! {
        (rates(&steps, &x, frame, top(0)))
        (under_way(&steps, &x, frame, top(1)))
        (waited(&steps, &x, frame, top(2)))
        (nothing(&steps, &x, frame, top(3), ways))
        @for s in time_ticks(steps.span_s(), if width < 500.0 { 4 } else { 8 }) {
            line.axis x1=(n(x.at(s))) x2=(n(x.at(s))) y1=(n(bottom)) y2=(n(bottom + 5.0)) {}
            (time_label(s, &x, bottom + 18.0, width))
        }
        @for (i, step) in steps.steps.iter().enumerate() {
            @let (from, to) = (i as f64 * steps.width_s, (i + 1) as f64 * steps.width_s);
            rect.hover x=(n(x.at(from))) y=(n(top(0))) width=(n(x.at(to) - x.at(from))) height=(n(bottom - top(0))) {
                title { (told(step, from, to, &steps, ways)) }
            }
        }
    };
    chart((width, bottom + 24.0), "What happened when", &inside)
}

fn told(step: &Step, from: f64, to: f64, steps: &Steps, ways: f64) -> String {
    let mut text = format!(
        "{} to {}: {} calls, {} of them synchronous",
        time(from),
        time(to),
        step.calls,
        step.synchronous
    );
    let _ = write!(text, "; {:.2} under way", step.under_way_ns / 1e9 / steps.width_s);
    for (wait, what) in waits(step).into_iter().zip(["synchronous", "others"]) {
        if let Some(s) = wait {
            let _ = write!(text, "; {what} waited {}", time(s));
        }
    }
    if step.calls > 0 {
        let _ = write!(text, "; longest {}", time(step.longest_ns as f64 / 1e9));
    }
    let _ = write!(text, "; nothing under way {}", percent(part(step.idle_ns, steps, ways)));
    if step.stalled_ns > 0.0 {
        let _ = write!(text, "; stood still after losses {}", time(step.stalled_ns / 1e9));
    }
    text
}

fn part(ns: f64, steps: &Steps, ways: f64) -> f64 {
    (ns / 1e9 / (steps.width_s * ways)).clamp(0.0, 1.0)
}

fn heading(text: &str, keys: &[(&str, &str)], (from, to): (f64, f64), top: f64) -> Markup {
    // Keys are at the right end of the line, if there is enough room.
    let mut at = to;
    let mut places = Vec::new();
    for (class, key) in keys.iter().rev() {
        at -= wide(key) + 26.0;
        places.push((at, *class, *key));
    }
    let room = at > wide(text) * 1.1 + from - LEFT;
    html! {
        text.heading x=(n(from - LEFT)) y=(n(top - 14.0)) { (text) }
        @if room { @for (at, class, key) in &places {
            rect.(class) x=(n(*at)) y=(n(top - 23.0)) width="10" height="10" {}
            text.tick x=(n(at + 14.0)) y=(n(top - 14.0)) { (key) }
        } }
    }
}

/// An SVG path of an area with a step for each height.
fn area(heights: &[(f64, f64, f64)], base: f64) -> String {
    let mut d = String::new();
    let mut open = false;
    for (from, to, y) in heights {
        if *y >= base {
            if open {
                let _ = write!(d, "V{}Z", n(base));
            }
            open = false;
            continue;
        }
        if !open {
            let _ = write!(d, "M{} {}", n(*from), n(base));
        }
        let _ = write!(d, "V{}H{}", n(*y), n(*to));
        open = true;
    }
    if open {
        let _ = write!(d, "V{}Z", n(base));
    }
    d
}

/// The steps' places with the heights of a value.
fn heights(steps: &Steps, x: &Scale, y: &Scale, value: impl Fn(&Step) -> f64) -> Vec<(f64, f64, f64)> {
    let at = |i: usize| x.at(i as f64 * steps.width_s);
    steps.steps.iter().enumerate().map(|(i, s)| (at(i), at(i + 1), y.at(value(s)))).collect()
}

fn levels(y: &Scale, frame: (f64, f64), values: &[f64], show: impl Fn(f64) -> String) -> Markup {
    html! { @for v in values { (level(y.at(*v), frame, &show(*v))) } }
}

/// The period for rates, in seconds, and its title: longer if calls are rare.
fn unit(most_per_s: f64) -> (f64, &'static str) {
    let units = [(1.0, "Calls a second"), (60.0, "Calls a minute"), (3600.0, "Calls an hour")];
    units.into_iter().find(|(s, _)| most_per_s * s >= 1.0).unwrap_or((86_400.0, "Calls a day"))
}

fn rates(steps: &Steps, x: &Scale, frame: (f64, f64), top: f64) -> Markup {
    let per_s = |calls: u64| calls as f64 / steps.width_s;
    let (times, name) = unit(steps.steps.iter().map(|s| per_s(s.calls)).fold(0.0, f64::max));
    let rate = |calls: u64| per_s(calls) * times;
    let most = round_up(steps.steps.iter().map(|s| rate(s.calls)).fold(0.0, f64::max));
    let y = Scale::linear((0.0, most), (top + HEIGHT, -HEIGHT));
    let all = area(&heights(steps, x, &y, |s| rate(s.calls)), top + HEIGHT);
    let synchronous = area(&heights(steps, x, &y, |s| rate(s.synchronous)), top + HEIGHT);
    html! {
        (heading(name, &[("sync", "synchronous"), ("other", "others")], frame, top))
        (levels(&y, frame, &ticks(most, 3), short))
        path.mark.other d=(all) {}
        path.mark.sync d=(synchronous) {}
    }
}

fn under_way(steps: &Steps, x: &Scale, frame: (f64, f64), top: f64) -> Markup {
    let at_once = |s: &Step| s.under_way_ns / 1e9 / steps.width_s;
    let most = round_up(steps.steps.iter().map(at_once).fold(1.0, f64::max));
    let y = Scale::linear((0.0, most), (top + HEIGHT, -HEIGHT));
    html! {
        (heading("Calls under way at a time", &[], frame, top))
        (levels(&y, frame, &ticks(most, 3), short))
        path.mark.flight d=(area(&heights(steps, x, &y, at_once), top + HEIGHT)) {}
    }
}

/// An SVG path through the middles of the steps; a step without a value interrupts it.
fn line(points: &[Option<(f64, f64)>]) -> String {
    let mut d = String::new();
    for (i, point) in points.iter().enumerate() {
        let Some((x, y)) = point else { continue };
        let goes_on = i > 0 && points[i - 1].is_some();
        let _ = write!(d, "{}{} {}", if goes_on { "L" } else { "M" }, n(*x), n(*y));
        // A single point is drawn as a dot: a line of no length with round ends.
        if !goes_on && points.get(i + 1).copied().flatten().is_none() {
            d.push_str("h0");
        }
    }
    d
}

fn waited(steps: &Steps, x: &Scale, frame: (f64, f64), top: f64) -> Markup {
    let seen = || {
        steps.steps.iter().flat_map(|s| waits(s).into_iter().flatten().chain(longest(s))).filter(|s| *s > 0.0)
    };
    let least = seen().fold(f64::INFINITY, f64::min);
    let most = seen().fold(0.0, f64::max);
    let (least, most) =
        if least < most { (least, most) } else { (most.max(1e-6) / 3.0, most.max(1e-6) * 3.0) };
    // At least one power of ten, so that there is a tick.
    let (least, most) = (10f64.powf((least * 0.8).log10().floor()), 10f64.powf((most * 1.2).log10().ceil()));
    let y = Scale::log((least, most), (top + HEIGHT, -HEIGHT));
    let points = |which: usize| -> Vec<Option<(f64, f64)>> {
        let middle = |i: usize| x.at((i as f64 + 0.5) * steps.width_s);
        steps.steps.iter().enumerate().map(|(i, s)| waits(s)[which].map(|w| (middle(i), y.at(w)))).collect()
    };
    html! {
        (heading("Waits for answers (mean; dots: the longest)", &[("sync", "synchronous"), ("other", "others")], frame, top))
        (levels(&y, frame, &decades(least, most, 4), time))
        @for (i, s) in steps.steps.iter().enumerate() {
            @if let Some(longest) = longest(s) {
                circle.mark.dot cx=(n(x.at((i as f64 + 0.5) * steps.width_s))) cy=(n(y.at(longest))) r="1.5" {}
            }
        }
        path.mark.line.other d=(line(&points(1))) {}
        path.mark.line.sync d=(line(&points(0))) {}
    }
}

fn longest(step: &Step) -> Option<f64> {
    (step.calls > 0).then_some(step.longest_ns as f64 / 1e9)
}

fn nothing(steps: &Steps, x: &Scale, frame: (f64, f64), top: f64, ways: f64) -> Markup {
    let y = Scale::linear((0.0, 1.0), (top + HEIGHT, -HEIGHT));
    let idle = heights(steps, x, &y, |s| part(s.idle_ns + s.stalled_ns, steps, ways));
    let stalled = heights(steps, x, &y, |s| part(s.stalled_ns, steps, ways));
    html! {
        (heading("Share of the time with nothing going on", &[("loss", "stood still after losses"), ("client", "no call under way")], frame, top))
        (levels(&y, frame, &[0.0, 0.5, 1.0], percent))
        path.mark.client d=(area(&idle, top + HEIGHT)) {}
        path.mark.loss d=(area(&stalled, top + HEIGHT)) {}
    }
}
