//! Estimates the speed of a slow link from acknowledgements. Bytes that are in flight together arrive one after
//! another at the pace of the narrowest part of the path. No I/O.

/// Acknowledgements of fewer bytes may be for a program's short message and do not count.
const BYTES_MIN: u32 = 1000;
/// Fewer acknowledgements mean nothing.
const SEEN_MIN: u8 = 8;

/// Below two to the power of this, nanoseconds per 1024 bytes share one step: 500 Mbit/s.
const LEAST: u32 = 14;
/// From two to the power of this on, they share one step: 0.1 Mbit/s.
const MOST: u32 = 26;
/// Steps per power of two.
const STEPS: u32 = 4;
const STEPS_ALL: usize = ((MOST - LEAST) * STEPS + 2) as usize;

/// Bytes of headers before each segment: Ethernet, IPv4, TCP with timestamps.
const HEADERS: u64 = 66;
/// Bytes of a full segment.
pub(crate) const SEGMENT: u64 = 1448;

/// A link slow enough that transfer time matters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Line {
    ns_of_kib: f32,
}

impl Line {
    /// How long a message takes to cross it.
    pub fn takes_ns(self, bytes: u64) -> i64 {
        let sent = bytes.saturating_add(bytes.div_ceil(SEGMENT).max(1).saturating_mul(HEADERS));
        (sent as f64 * f64::from(self.ns_of_kib) / 1024.0) as i64
    }
}

/// Histogram of the time per byte.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    steps: [u8; STEPS_ALL],
    seen: u8,
    line: Option<Line>,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { steps: [0; STEPS_ALL], seen: 0, line: None }
    }
}

impl Pace {
    /// `bytes` were acknowledged `ns` after the bytes before, which were in flight at the same time.
    pub fn add(&mut self, bytes: u32, ns: i64) {
        if bytes < BYTES_MIN || ns <= 0 {
            return;
        }
        let ns_of_kib = ns.unsigned_abs().saturating_mul(1024) / u64::from(bytes);
        let at = match ns_of_kib.max(1).ilog2() {
            0..LEAST => 0,
            MOST.. => STEPS_ALL - 1,
            power => ((power - LEAST) * STEPS + ((ns_of_kib >> (power - 2)) & 3) as u32 + 1) as usize,
        };
        if self.steps[at] == u8::MAX {
            self.steps.iter_mut().for_each(|count| *count /= 2);
        }
        self.steps[at] += 1;
        self.seen += 1;
        if self.seen == SEEN_MIN {
            self.seen = 0;
            self.line = self.middle();
        }
    }

    /// The median pace. `None`: no slow link, or too few samples.
    pub fn line(&self) -> Option<Line> {
        self.line
    }

    fn middle(&self) -> Option<Line> {
        let all: u32 = self.steps.iter().map(|count| u32::from(*count)).sum();
        let mut seen = 0;
        let at = self.steps.iter().position(|count| {
            seen += u32::from(*count);
            2 * seen >= all
        })?;
        let step = u32::try_from(at).ok()?.checked_sub(1)?;
        let middle = 1.0 + (f64::from(step % STEPS) + 0.5) / f64::from(STEPS);
        let with_headers = SEGMENT as f64 / (SEGMENT + HEADERS) as f64;
        let ns_of_kib = middle * f64::from(1u32 << (step / STEPS + LEAST)) * with_headers;
        Some(Line { ns_of_kib: ns_of_kib as f32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_byte_is_that_of_acknowledgements_one_behind_the_other() {
        for megabits in [1.0, 2.0, 5.0, 20.0, 100.0] {
            let segment_ns = (SEGMENT + HEADERS) as f64 * 8e3 / megabits;
            let mut pace = Pace::default();
            for i in 0..100_i64 {
                // Every second segment is acknowledged; some late, some together.
                pace.add(
                    2 * SEGMENT as u32,
                    (2.0 * segment_ns) as i64 + if i % 4 == 0 { (i - 50) * 20_000 } else { 0 },
                );
            }
            let line = pace.line().expect("a line");
            let found = line.takes_ns(SEGMENT) as f64;
            assert!((found / segment_ns - 1.0).abs() < 0.15, "{megabits}: {found} of {segment_ns}");
        }
    }

    #[test]
    fn a_fast_line_is_none_nor_is_one_of_which_little_was_seen() {
        let mut pace = Pace::default();
        (0..100).for_each(|_| pace.add(2896, 20_000));
        assert_eq!(pace.line(), None);
        let mut pace = Pace::default();
        (0..SEEN_MIN - 1).for_each(|_| pace.add(2896, 20_000_000));
        pace.add(100, 20_000_000);
        pace.add(2896, -1);
        assert_eq!(pace.line(), None);
        (0..200_000).for_each(|_| pace.add(2896, i64::MAX));
        assert!(pace.line().is_some_and(|line| line.takes_ns(u64::MAX) > 0));
    }
}
