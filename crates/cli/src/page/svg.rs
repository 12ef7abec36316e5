//! Scales, ticks and the width of text for charts. Pure.

use landfast_model::predict::Time;
use maud::{Markup, html};

/// The size of text in a chart, in pixels.
const TEXT: f64 = 12.0;

/// A number for SVG, to a tenth of a pixel.
pub fn n(v: f64) -> String {
    let v = if v.is_finite() { v } else { 0.0 };
    let text = format!("{v:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// The largest width of a text, in pixels, for any of the reader's fonts.
pub fn wide(text: &str) -> f64 {
    let of = |c: char| match c {
        ' ' | '.' | ',' | ':' | 'i' | 'l' | 'j' | '\'' | '|' => 0.36,
        'f' | 't' | 'r' | '(' | ')' | '-' | '/' => 0.45,
        'm' | 'w' | 'M' | 'W' | '%' => 1.0,
        'A'..='Z' => 0.74,
        c if c.is_ascii() => 0.65,
        _ => 1.0,
    };
    text.chars().map(of).sum::<f64>() * TEXT
}

/// The text, shortened if there is not enough room; `None`: there is none at all.
pub fn fitted(text: &str, room: f64) -> Option<String> {
    if wide(text) <= room {
        return Some(text.to_owned());
    }
    let chars: Vec<char> = text.chars().collect();
    (3..chars.len())
        .rev()
        .map(|k| chars[..k].iter().chain(&['…']).collect::<String>())
        .find(|t| wide(t) <= room)
}

/// The text in lines that each have room, broken between words; a word that is too long for a line is shortened.
pub fn wrapped(text: &str, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if wide(line) + wide(" ") + wide(word) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.extend(fitted(word, room)),
        }
    }
    lines
}

/// Maps values to pixels.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    from: f64,
    to: f64,
    at: f64,
    len: f64,
    log: bool,
}

impl Scale {
    /// Maps `from` to `to` onto `len` pixels from `at` on; upwards if `len` is negative.
    pub fn linear((from, to): (f64, f64), (at, len): (f64, f64)) -> Self {
        Scale { from, to: if to > from { to } else { from + 1.0 }, at, len, log: false }
    }

    /// The same with a logarithmic scale, for values above zero.
    pub fn log((from, to): (f64, f64), (at, len): (f64, f64)) -> Self {
        let from = from.max(f64::MIN_POSITIVE);
        let to = if to > from { to } else { from * 10.0 };
        Scale { from: from.ln(), to: to.ln(), at, len, log: true }
    }

    /// The pixel of a value. A value beyond the ends is put at the end.
    pub fn at(&self, value: f64) -> f64 {
        let value = if self.log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let part = ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        self.at + part * self.len
    }
}

/// Round numbers from 0 to `max`, at most `most` of them besides 0.
pub fn ticks(max: f64, most: usize) -> Vec<f64> {
    let steps = (-12..=18).flat_map(|power| [1.0, 2.0, 5.0].map(|d| d * 10f64.powi(power)));
    upwards(max, most, steps)
}

/// The same for seconds: beyond a minute in the steps of a clock.
pub fn time_ticks(max_s: f64, most: usize) -> Vec<f64> {
    let small = (-9..=0).flat_map(|power| [1.0, 2.0, 5.0].map(|d| d * 10f64.powi(power)));
    let minutes = [10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0];
    let hours = [1.0, 2.0, 3.0, 6.0, 12.0, 24.0].map(|h| h * 3600.0);
    let days = (0..=6).flat_map(|power| [1.0, 2.0, 5.0].map(|d| d * 10f64.powi(power) * 86_400.0));
    upwards(max_s, most, small.chain(minutes).chain(hours).chain(days))
}

fn upwards(max: f64, most: usize, mut steps: impl Iterator<Item = f64>) -> Vec<f64> {
    if !max.is_finite() || max <= 0.0 {
        return vec![0.0];
    }
    let Some(step) = steps.find(|step| max / step <= most as f64 + 1e-9) else { return vec![0.0] };
    (0..=most).map(|i| i as f64 * step).take_while(|v| *v <= max * (1.0 + 1e-9)).collect()
}

/// The smallest round number that is at least `max`.
pub fn round_up(max: f64) -> f64 {
    let power = if max > 0.0 { 10f64.powf(max.log10().floor()) } else { return 1.0 };
    [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
        .iter()
        .map(|d| d * power)
        .find(|v| *v >= max * (1.0 - 1e-9))
        .unwrap_or(max)
}

/// Powers of ten from `from` to `to`, at most `most` of them.
pub fn decades(from: f64, to: f64, most: usize) -> Vec<f64> {
    let (first, last) = (from.log10().ceil() as i32, to.log10().floor() as i32);
    let every = (last - first + 1).max(1).unsigned_abs() as usize;
    let every = every.div_ceil(most.max(1));
    (first..=last).step_by(every.max(1)).map(|power| 10f64.powi(power)).collect()
}

pub fn time(s: f64) -> String {
    let text = if s >= 172_800.0 {
        let days = format!("{:.1}", s / 86_400.0);
        format!("{} d", days.strip_suffix(".0").unwrap_or(&days))
    } else {
        Time(s).to_string()
    };
    match text.strip_suffix(" us") {
        Some("0") => "0".to_owned(),
        Some(us) => format!("{us} µs"),
        None => text,
    }
}

/// As [`time`], with a unit also for zero.
pub fn plain_time(s: f64) -> String {
    if s > 0.0 { time(s) } else { "0 s".to_owned() }
}

/// A number with three digits, and a letter for thousands.
pub fn short(v: f64) -> String {
    let (value, unit) = match v {
        v if v >= 999.5e9 => return format!("{v:.0e}"),
        v if v >= 999.5e6 => (v / 1e9, "G"),
        v if v >= 999_500.0 => (v / 1e6, "M"),
        v if v >= 9_999.5 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let digits = match value {
        v if v >= 99.95 || v == v.round() => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.0995 => 2,
        // At least two significant digits.
        v => (1.0 - v.log10().floor()).clamp(2.0, 12.0) as usize,
    };
    let text = format!("{value:.digits$}");
    // No digit that says nothing: 0.05, not 0.050.
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text.as_str() };
    format!("{text}{unit}")
}

pub fn percent(part: f64) -> String {
    match part * 100.0 {
        p if p <= 0.0 => "0 %".to_owned(),
        p if p < 0.1 => "< 0.1 %".to_owned(),
        p if p < 9.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// Moves the middle of a text so that it stays inside of the box.
pub fn held(x: f64, text: &str, (from, to): (f64, f64)) -> f64 {
    let half = wide(text) / 2.0;
    if 2.0 * half >= to - from { (from + to) / 2.0 } else { x.clamp(from + half, to - half) }
}

/// A chart of this size. `label` describes it to readers who cannot see it.
pub fn chart((width, height): (f64, f64), label: &str, inside: &Markup) -> Markup {
    html! {
        svg viewBox={ "0 0 " (n(width)) " " (n(height)) } width=(n(width)) height=(n(height)) role="img" aria-label=(label) {
            (inside)
        }
    }
}

/// Vertical lines at round times from 0 to `max_s`, from `top` to `bottom`, with the times below them; fewer in a narrow chart.
pub fn time_grid(max_s: f64, x: &Scale, (top, bottom): (f64, f64), width: f64) -> Markup {
    html! {
        @for s in time_ticks(max_s, if width < 500.0 { 4 } else { 8 }) {
            line.grid x1=(n(x.at(s))) x2=(n(x.at(s))) y1=(n(top)) y2=(n(bottom)) {}
            (time_label(s, x, bottom + 14.0, width))
        }
    }
}

pub fn time_label(s: f64, x: &Scale, y: f64, width: f64) -> Markup {
    let text = time(s);
    html! { text.tick x=(n(held(x.at(s), &text, (0.0, width)))) y=(n(y)) text-anchor="middle" { (text) } }
}

/// The chart in two sizes: for a screen and for a telephone.
pub fn both(draw: impl Fn(f64) -> Markup) -> Markup {
    html! {
        div.wide { (draw(WIDE)) }
        div.narrow { (draw(NARROW)) }
    }
}

/// The largest width of a page, in pixels.
pub const WIDE: f64 = 1000.0;
/// The width of the smallest screen, in pixels.
pub const NARROW: f64 = 340.0;

/// A horizontal line with its value to the left.
pub fn level(y: f64, (from, to): (f64, f64), value: &str) -> Markup {
    html! {
        line.grid x1=(n(from)) x2=(n(to)) y1=(n(y)) y2=(n(y)) {}
        text.tick x=(n(from - 6.0)) y=(n(y + 4.0)) text-anchor="end" { (value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ticks_are_few_and_within(max in 1e-9f64..1e15, most in 1usize..12) {
            for found in [ticks(max, most), time_ticks(max.min(1e11), most)] {
                prop_assert!(!found.is_empty() && found.len() <= most + 1, "{:?}", found);
                prop_assert!(found.iter().all(|v| (0.0..=max * 1.000_001).contains(v)));
            }
            prop_assert!(round_up(max) >= max * 0.999_999 && round_up(max) <= max * 1.6);
        }

        #[test]
        fn a_scale_stays_within(from in 1e-6f64..1e3, to in 1e-6f64..1e9, value in -1e12f64..1e12) {
            for scale in [Scale::linear((from, to), (10.0, 90.0)), Scale::log((from, to), (10.0, 90.0))] {
                prop_assert!((10.0..=100.0).contains(&scale.at(value)));
            }
        }

        #[test]
        fn lines_have_room_and_keep_all_words_that_fit(text in "([a-z]{1,12} ){0,12}", room in 100f64..400.0) {
            let lines = wrapped(&text, room);
            prop_assert!(lines.iter().all(|line| wide(line) <= room), "{:?}", lines);
            prop_assert_eq!(lines.join(" ").split(' ').filter(|w| !w.is_empty()).count(), text.split_whitespace().count());
        }

        #[test]
        fn a_text_that_is_held_stays_within(x in -100f64..2000.0, text in "[a-zA-Z0-9 ]{0,20}") {
            let at = held(x, &text, (0.0, 1000.0));
            prop_assert!(at - wide(&text) / 2.0 >= -1e-6 && at + wide(&text) / 2.0 <= 1000.0 + 1e-6);
        }
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(31.9, 5), [0.0, 10.0, 20.0, 30.0]);
        assert_eq!(time_ticks(3.0 * 86_400.0, 4), [0.0, 86_400.0, 172_800.0, 259_200.0]);
        assert_eq!(time_ticks(200.0, 5), [0.0, 60.0, 120.0, 180.0]);
        assert_eq!(decades(2e-5, 3.0, 9), [1e-4, 1e-3, 1e-2, 1e-1, 1.0]);
        assert_eq!((ticks(0.0, 3), ticks(f64::NAN, 3)), (vec![0.0], vec![0.0]));
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(
            [0.0, 0.0025, 0.05, 0.5, 3.0, 4.25, 812.3, 9_000.0, 12_345.0, 2e6].map(short),
            ["0", "0.0025", "0.05", "0.5", "3", "4.25", "812", "9000", "12.3k", "2M"]
        );
        assert_eq!(
            [0.0, 5e-5, 0.0102, 31.94, 259_200.0].map(time),
            ["0", "50 µs", "10.2 ms", "31.9 s", "3 d"]
        );
        assert_eq!([0.0, 1e-5, 0.015, 0.5].map(percent), ["0 %", "< 0.1 %", "1.5 %", "50 %"]);
        assert_eq!([n(f64::NAN), n(1.0), n(2.26)], ["0", "1", "2.3"]);
        assert_eq!(fitted("persistence", 1000.0).as_deref(), Some("persistence"));
        assert_eq!(fitted("persistence", 10.0), None);
    }
}
