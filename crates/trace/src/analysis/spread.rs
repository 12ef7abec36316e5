//! A histogram of times, each with a weight. No I/O.

/// Steps per power of two.
const STEPS: u32 = 8;
/// Times below two to the power of this, in nanoseconds, share one step.
const LEAST: u32 = 10;
/// Times from two to the power of this on, in nanoseconds, share one step: 73 minutes.
const MOST: u32 = 42;

/// Total number of steps.
pub const STEPS_ALL: usize = ((MOST - LEAST) * STEPS + 2) as usize;

/// Times in steps of about a tenth. Means and sums are exact, percentiles are exact to half a step.
#[derive(Debug, Clone, Default)]
pub struct Spread {
    /// From the shortest possible time up to the longest that was seen.
    steps: Vec<Step>,
    count: u64,
    least_ns: Option<u64>,
    most_ns: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Step {
    count: u64,
    sum_ns: f64,
    weight: f64,
}

impl Step {
    fn mean_ns(&self) -> f64 {
        self.sum_ns / self.count as f64
    }
}

fn step(ns: u64) -> usize {
    let power = ns.max(1).ilog2();
    let at = match power {
        0..LEAST => 0,
        MOST.. => (MOST - LEAST) * STEPS + 1,
        _ => (power - LEAST) * STEPS + u32::try_from((ns >> (power - 3)) & 7).unwrap_or(0) + 1,
    };
    at as usize
}

impl Spread {
    fn at(&mut self, at: usize) -> &mut Step {
        if self.steps.len() <= at {
            // Many of these exist, so they keep no spare capacity.
            self.steps.reserve_exact(at + 1 - self.steps.len());
            self.steps.resize(at + 1, Step::default());
        }
        &mut self.steps[at]
    }

    /// Steps that are not empty.
    fn used(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.count > 0)
    }

    /// Adds a time with a weight.
    pub fn add(&mut self, ns: u64, weight: f64) {
        let step = self.at(step(ns));
        step.count += 1;
        step.sum_ns += ns as f64;
        step.weight += weight;
        self.count += 1;
        self.least_ns = Some(self.least_ns.map_or(ns, |least| least.min(ns)));
        self.most_ns = self.most_ns.max(ns);
    }

    /// Adds a time that was seen `count` times.
    pub fn add_many(&mut self, ns: u64, count: u64) {
        if count > 0 {
            self.add(ns, 0.0);
            let step = self.at(step(ns));
            step.count += count - 1;
            step.sum_ns += ns as f64 * (count - 1) as f64;
            self.count += count - 1;
        }
    }

    pub fn merge(&mut self, other: &Spread) {
        for (at, step) in other.steps.iter().enumerate() {
            let mine = self.at(at);
            mine.count += step.count;
            mine.sum_ns += step.sum_ns;
            mine.weight += step.weight;
        }
        self.count += other.count;
        self.least_ns = [self.least_ns, other.least_ns].into_iter().flatten().min();
        self.most_ns = self.most_ns.max(other.most_ns);
    }

    /// The number of times longer than `over_ns`, and by how much their weight exceeds that of times of `to_ns`.
    pub fn beyond(&self, over_ns: f64, to_ns: f64) -> (u64, f64) {
        let over = self.used().filter(|s| s.mean_ns() > over_ns);
        let of = over.map(|s| (s.count, s.weight * (1.0 - to_ns / s.mean_ns()).max(0.0)));
        of.fold((0, 0.0), |(n, weight), (more, w)| (n + more, weight + w))
    }

    /// Shortens times longer than `over_ns` to `to_ns`, and reduces their weights in proportion.
    pub fn clip(&mut self, over_ns: f64, to_ns: f64) {
        let mut moved = Step::default();
        for s in self.steps.iter_mut().filter(|s| s.count > 0 && s.mean_ns() > over_ns) {
            moved.count += s.count;
            moved.weight += s.weight * (to_ns / s.mean_ns()).clamp(0.0, 1.0);
            *s = Step::default();
        }
        if moved.count == 0 {
            return;
        }
        let to = self.at(step(to_ns.max(0.0) as u64));
        to.count += moved.count;
        to.sum_ns += to_ns * moved.count as f64;
        to.weight += moved.weight;
        self.most_ns = self.most_ns.min(over_ns.max(to_ns) as u64);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn least_ns(&self) -> Option<u64> {
        self.least_ns
    }

    pub fn most_ns(&self) -> u64 {
        self.most_ns
    }

    pub fn sum_ns(&self) -> f64 {
        self.used().map(|s| s.sum_ns).sum()
    }

    pub fn weight(&self) -> f64 {
        self.used().map(|s| s.weight).sum()
    }

    /// The percentile, with `percent` from 0 to 100. `None`: empty.
    pub fn percentile_ns(&self, percent: f64) -> Option<f64> {
        let wanted = (percent / 100.0 * self.count as f64).ceil().max(1.0);
        let mut seen = 0;
        for step in self.used() {
            seen += step.count;
            if seen as f64 >= wanted {
                return Some(step.mean_ns());
            }
        }
        None
    }

    /// The sum of `part(time)` over all times.
    pub fn sum_of(&self, part: impl Fn(f64) -> f64) -> f64 {
        self.used().map(|s| part(s.mean_ns()) * s.count as f64).sum()
    }

    /// The sum of the weights, each scaled by the part of its time that `part` returns.
    pub fn weight_of(&self, part: impl Fn(f64) -> f64) -> f64 {
        let share = |s: &Step| {
            let mean = s.mean_ns();
            if mean > 0.0 { s.weight * (part(mean) / mean).clamp(0.0, 1.0) } else { 0.0 }
        };
        self.used().map(share).sum()
    }

    /// For each step, shortest first: mean in nanoseconds, number of times, weight.
    pub fn steps(&self) -> impl Iterator<Item = (f64, u64, f64)> {
        self.used().map(|s| (s.mean_ns(), s.count, s.weight))
    }

    /// The mean of the times between two quantiles, shortest first. `None`: empty. `from` and `to` are between 0 and
    /// 1, `from` is below `to`.
    pub fn mean_between_ns(&self, from: f64, to: f64) -> Option<f64> {
        let (from, to) = (from * self.count as f64, to * self.count as f64);
        let (mut seen, mut count, mut sum) = (0.0, 0.0, 0.0);
        for step in self.used() {
            let next = seen + step.count as f64;
            let inside = (next.min(to) - f64::max(seen, from)).max(0.0);
            count += inside;
            sum += inside * step.mean_ns();
            seen = next;
        }
        (count > 0.0).then(|| sum / count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_are_exact_and_percentiles_near(mut times in proptest::collection::vec(2048u64..10_000_000_000, 1..200)) {
            let mut spread = Spread::default();
            for ns in &times {
                spread.add(*ns, *ns as f64);
            }
            let sum = times.iter().sum::<u64>() as f64;
            prop_assert!((spread.sum_ns() - sum).abs() <= sum * 1e-9);
            prop_assert!((spread.weight() - sum).abs() <= sum * 1e-9);
            prop_assert!((spread.weight_of(|ns| ns / 2.0) - sum / 2.0).abs() <= sum * 1e-9);
            times.sort_unstable();
            for percent in [1.0f64, 50.0, 75.0, 99.0, 100.0] {
                let at = (percent / 100.0 * times.len() as f64).ceil().max(1.0) as usize - 1;
                let (exact, found) = (times[at] as f64, spread.percentile_ns(percent).unwrap());
                prop_assert!((found - exact).abs() <= exact * 0.13, "{} {} {}", percent, exact, found);
            }
            prop_assert_eq!(spread.least_ns(), times.first().copied());
            // With an odd number, the longer half contains half of the middle one.
            let half = times.len() as f64 / 2.0;
            let parts = times.iter().zip(0..).map(|(ns, i)| ((f64::from(i) + 1.0 - half).clamp(0.0, 1.0), *ns as f64));
            let exact = parts.map(|(part, ns)| part * ns).sum::<f64>() / half;
            let found = spread.mean_between_ns(0.5, 1.0).unwrap();
            prop_assert!((found - exact).abs() <= exact * 0.13, "{} {}", exact, found);
        }

        #[test]
        fn what_is_clipped_is_as_many_as_before_and_weighs_less(times in proptest::collection::vec(2048u64..10_000_000_000, 1..200), over in 1e4f64..1e9) {
            let mut spread = Spread::default();
            times.iter().for_each(|ns| spread.add(*ns, *ns as f64));
            let (before, count) = (spread.weight(), spread.count());
            let to = over / 8.0;
            let (longer, excess) = spread.beyond(over, to);
            spread.clip(over, to);
            prop_assert_eq!(spread.count(), count);
            prop_assert_eq!(spread.steps().map(|(_, n, _)| n).sum::<u64>(), count);
            prop_assert!((spread.weight() + excess - before).abs() <= before * 1e-9);
            prop_assert_eq!(spread.beyond(over, to).0, 0);
            prop_assert!(longer <= count);
        }

        #[test]
        fn every_time_has_a_step(ns: u64) {
            prop_assert!(step(ns) < STEPS_ALL);
            prop_assert!(step(ns) <= step(ns.saturating_add(1)));
        }
    }
}
