//! How figures of a table are shown. Pure.

use crate::page::svg::{percent, time};
use crate::units::show_count;
use landfast_lab::experiments::{Check, Relation};
use landfast_lab::report::content::Unit;

/// A figure with its unit; of what is not there a dash.
pub fn shown(value: Option<f64>, unit: Unit) -> String {
    let Some(v) = value else { return "–".to_owned() };
    match unit {
        Unit::Count => show_count(v.round().max(0.0) as u64),
        Unit::PerSecond | Unit::Each => plain(v),
        Unit::Seconds => time(v),
        Unit::Milliseconds => time(v / 1e3),
        Unit::Microseconds => time(v / 1e6),
        Unit::MiB => format!("{} MiB", plain(v)),
        Unit::Times => format!("{} ×", plain(v)),
        Unit::Share => percent(v),
    }
}

/// Three significant digits, or a whole number with commas.
pub fn plain(v: f64) -> String {
    match v.abs() {
        a if a >= 99.95 => show_count(v.round().max(0.0) as u64),
        a if a >= 9.995 => format!("{v:.1}"),
        _ if v.fract() == 0.0 => format!("{v}"),
        a if a >= 0.9995 => format!("{v:.2}"),
        a if a >= 0.000_95 => format!("{v:.3}"),
        _ => format!("{v:.1e}"),
    }
}

/// A claim with what was measured.
pub fn claim(check: &Check) -> String {
    let relation = match check.relation {
        Relation::AtLeast => "at least",
        Relation::AtMost => "at most",
        Relation::Exactly => "exactly",
    };
    format!("{}: {}, wanted {relation} {}", check.what, plain(check.value), plain(check.bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_their_unit() {
        assert_eq!(
            [0.0, 1.0, 2.345, 12.34, 123.4, 45_678.9, 0.0123].map(plain),
            ["0", "1", "2.35", "12.3", "123", "45,679", "0.012"]
        );
        assert_eq!(plain(0.000_012_3), "1.2e-5");
        let of = |unit| shown(Some(0.25), unit);
        assert_eq!([of(Unit::Share), of(Unit::Times), of(Unit::Milliseconds)], ["25 %", "0.250 ×", "250 µs"]);
        assert_eq!(shown(None, Unit::Count), "–");
    }
}
