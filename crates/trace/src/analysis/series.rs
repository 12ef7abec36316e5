//! A timeline with a fixed number of steps whose width grows with the capture. No I/O.

use super::limits::STEPS_MAX;

/// Initial width of a step in nanoseconds, as a power of two: about a millisecond.
const FIRST_WIDTH: u32 = 20;

#[derive(Debug, Clone, Copy, Default)]
pub struct Step {
    /// Calls answered in this step.
    pub calls: u64,
    /// Calls among them whose effect had to be durable.
    pub synchronous: u64,
    /// Sum of their waits, in nanoseconds.
    pub wait_ns: f64,
    /// Sum of the waits of the durable ones, in nanoseconds.
    pub synchronous_wait_ns: f64,
    pub longest_ns: u64,
    /// Nanoseconds with calls in flight, counted once per call. Divided by the step's width it is the average number
    /// in flight.
    pub under_way_ns: f64,
    /// Nanoseconds with no call in flight.
    pub idle_ns: f64,
    /// Nanoseconds in which connections made no progress after losses.
    pub stalled_ns: f64,
}

impl Step {
    pub fn add(&mut self, other: &Step) {
        self.calls += other.calls;
        self.synchronous += other.synchronous;
        self.wait_ns += other.wait_ns;
        self.synchronous_wait_ns += other.synchronous_wait_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.under_way_ns += other.under_way_ns;
        self.idle_ns += other.idle_ns;
        self.stalled_ns += other.stalled_ns;
    }
}

#[derive(Debug, Clone)]
pub struct Series {
    from_ns: Option<i64>,
    /// Width of a step in nanoseconds, as a power of two.
    width: u32,
    steps: Vec<Step>,
}

impl Default for Series {
    fn default() -> Self {
        Series { from_ns: None, width: FIRST_WIDTH, steps: Vec::new() }
    }
}

impl Series {
    /// Start of the first step, in nanoseconds since 1970.
    pub fn from_ns(&self) -> i64 {
        self.from_ns.unwrap_or(0)
    }

    /// Width of a step, in nanoseconds.
    pub fn width_ns(&self) -> i64 {
        1 << self.width
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The step of a time. Earlier times count in the first step.
    pub fn at(&mut self, ns: i64) -> &mut Step {
        let from = *self.from_ns.get_or_insert(ns);
        let past = ns.saturating_sub(from).max(0);
        while past >> self.width >= STEPS_MAX as i64 {
            self.widen();
        }
        let at = usize::try_from(past >> self.width).unwrap_or(0);
        if self.steps.len() <= at {
            self.steps.resize(at + 1, Step::default());
        }
        &mut self.steps[at]
    }

    /// Spreads a time span over its steps: calls `put` with each step and the nanoseconds that fall into it.
    pub fn span(&mut self, from_ns: i64, to_ns: i64, put: impl Fn(&mut Step, f64)) {
        self.at(from_ns);
        self.at(to_ns);
        let mut at = from_ns.max(self.from_ns());
        while at < to_ns {
            let next = self.from_ns() + ((((at - self.from_ns()) >> self.width) + 1) << self.width);
            let end = next.min(to_ns);
            put(self.at(at), (end - at) as f64);
            at = end;
        }
    }

    fn widen(&mut self) {
        self.width += 1;
        let half = self.steps.len().div_ceil(2);
        for i in 0..half {
            let mut step = self.steps[2 * i];
            if let Some(next) = self.steps.get(2 * i + 1) {
                step.add(next);
            }
            self.steps[i] = step;
        }
        self.steps.truncate(half);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_is_lost_when_steps_grow(spans in proptest::collection::vec((0i64..1 << 50, 0i64..1 << 44), 1..50)) {
            let mut series = Series::default();
            series.at(0);
            let mut all = 0.0;
            for (from, len) in &spans {
                series.span(*from, from + len, |step, ns| step.idle_ns += ns);
                series.at(*from).calls += 1;
                all += *len as f64;
            }
            prop_assert!(series.steps().len() <= STEPS_MAX);
            let found: f64 = series.steps().iter().map(|s| s.idle_ns).sum();
            prop_assert!((found - all).abs() <= all * 1e-9 + 1.0);
            prop_assert_eq!(series.steps().iter().map(|s| s.calls).sum::<u64>(), spans.len() as u64);
        }

        #[test]
        fn any_time_has_a_step(times in proptest::collection::vec(any::<i64>(), 1..20)) {
            let mut series = Series::default();
            for ns in times {
                series.at(ns).calls += 1;
            }
            prop_assert!(series.steps().len() <= STEPS_MAX);
        }
    }
}
