//! How a figure grows with what it depends on (pure).

/// The exponent of growth of figures over sizes: the slope of the line that fits them best in a log-log chart. 0 is flat, 1 linear, 2
/// quadratic. 0 for fewer than two points; points that are not positive are left out.
pub(crate) fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<_> =
        points.iter().filter(|(x, y)| *x > 0.0 && *y > 0.0).map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let (mean_x, mean_y) =
        (logs.iter().map(|p| p.0).sum::<f64>() / count, logs.iter().map(|p| p.1).sum::<f64>() / count);
    let over: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let under: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    if under > 0.0 { over / under } else { 0.0 }
}

/// What the figure grows by for each unit of size, between the first point and the last.
pub(super) fn per_unit(points: &[(f64, f64)]) -> f64 {
    match (points.first(), points.last()) {
        (Some((x0, y0)), Some((x1, y1))) if x1 > x0 => (y1 - y0) / (x1 - x0),
        _ => 0.0,
    }
}

/// 1, 10, 100 ... times `first`, up to `last`.
pub(super) fn tenfold(first: u64, last: u64) -> Vec<u64> {
    std::iter::successors(Some(first), |n| n.checked_mul(10)).take_while(|n| *n <= last.max(first)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponent_is_that_of_the_power() {
        let of = |power: f64| -> Vec<_> {
            (0..4).map(|n| 10_f64.powi(n)).map(|x| (x, 3.0 * x.powf(power))).collect()
        };
        for power in [0.0, 0.5, 1.0, 2.0, -1.0] {
            assert!((exponent(&of(power)) - power).abs() < 1e-9, "{power}");
        }
        assert_eq!(exponent(&[]), 0.0);
        assert_eq!(exponent(&[(1.0, 5.0)]), 0.0);
        assert_eq!(exponent(&[(1.0, 5.0), (10.0, 0.0)]), 0.0, "a figure of zero has no logarithm");
    }

    #[test]
    fn growth_for_each_unit_is_between_the_ends() {
        assert_eq!(per_unit(&[(1.0, 10.0), (5.0, 0.0), (11.0, 30.0)]), 2.0);
        assert_eq!(per_unit(&[(1.0, 10.0)]), 0.0);
    }

    #[test]
    fn sizes_are_powers_of_ten() {
        assert_eq!(tenfold(1, 1000), [1, 10, 100, 1000]);
        assert_eq!(tenfold(1000, 999_999), [1000, 10_000, 100_000]);
        assert_eq!(tenfold(10, 1), [10]);
    }
}
