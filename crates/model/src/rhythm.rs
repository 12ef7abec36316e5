//! Detects periodic events, as a quota or a timer causes them. No I/O.

/// Fewer events mean nothing.
pub const EVENTS_MIN: usize = 8;
/// Smaller differences between distances are ignored, in seconds.
const LEAST_S: f64 = 1e-3;
/// Distances of up to this many periods count, because some events may be invisible.
const MULTIPLE_MAX: f64 = 8.0;
/// How far a distance may be from a multiple of the period, as a part of the period.
const OFF_MAX: f64 = 0.12;
/// The part of the distances that must be multiples.
const ENOUGH: f64 = 0.8;

/// The period of events, in seconds. `None`: not periodic. `times` are in seconds, in any order.
pub fn period_s(times: &[f64]) -> Option<f64> {
    let mut times = times.to_vec();
    times.sort_unstable_by(f64::total_cmp);
    let distances: Vec<f64> =
        times.windows(2).map(|pair| pair[1] - pair[0]).filter(|s| *s >= LEAST_S).collect();
    if distances.len() + 1 < EVENTS_MIN {
        return None;
    }
    let mut sorted = distances.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let base = sorted[sorted.len() / 5];
    let multiple = |s: f64, period: f64| (s / period).round();
    let (mut sum, mut periods) = (0.0, 0.0);
    for s in &distances {
        let n = multiple(*s, base);
        if (1.0..=MULTIPLE_MAX).contains(&n) {
            sum += s;
            periods += n;
        }
    }
    let period = if periods > 0.0 { sum / periods } else { return None };
    let on = |s: &&f64| {
        let n = multiple(**s, period);
        (1.0..=MULTIPLE_MAX).contains(&n) && (*s / period - n).abs() <= OFF_MAX
    };
    let regular = distances.iter().filter(on).count();
    (regular as f64 >= ENOUGH * distances.len() as f64).then_some(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_at_equal_distances_has_a_period() {
        // Every 100 ms, up to 3 ms early or late; some events are missing.
        let times: Vec<f64> = (0..60)
            .filter(|n| n % 7 != 3)
            .map(|n| f64::from(n) * 0.1 + f64::from(n * 37 % 7 - 3) * 1e-3)
            .collect();
        let period = period_s(&times).unwrap();
        assert!((period - 0.1).abs() < 0.002, "{period}");
        assert_eq!(period_s(&times[..5]), None);
    }

    #[test]
    fn what_comes_by_chance_has_none() {
        let mut random = 1u64;
        let mut found = 0;
        for _ in 0..200 {
            let mut at = 0.0;
            let times: Vec<f64> = (0..20)
                .map(|_| {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let part = (random >> 11) as f64 / (1u64 << 53) as f64;
                    at += -0.1 * (1.0 - part).ln();
                    at
                })
                .collect();
            found += usize::from(period_s(&times).is_some());
        }
        assert!(found <= 2, "{found} of 200");
    }

    #[test]
    fn any_times_give_an_answer() {
        assert_eq!(period_s(&[]), None);
        assert_eq!(period_s(&[1.0; 20]), None);
        let _ = period_s(&[f64::NAN, f64::INFINITY, 0.0, 1.0, -1.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    }
}
