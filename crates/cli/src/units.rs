//! Parses and prints sizes and durations.

use landfast_volume::LOG_BYTES_MIN;
use std::time::Duration;

/// Parses a size in bytes: a whole number with an optional `K`, `M`, `G` or `T` (powers of 1024; `KiB`, `kb` and so on mean the same).
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(format!("'{text}' is not a size; write for example 256M or 2G")),
    };
    let n: u64 =
        number.parse().map_err(|_| format!("'{text}' is not a size; write for example 256M or 2G"))?;
    n.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is too large"))
}

pub fn log_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        n if n < LOG_BYTES_MIN => {
            let (n, least) = (show_bytes(n), show_bytes(LOG_BYTES_MIN));
            Err(format!("{n} is too small for a log: the least is {least}; write for example 256M"))
        }
        n => Ok(n),
    }
}

/// Parses a duration: a decimal number with `ns`, `us`, `ms`, `s` or `m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a duration; write for example 10ms, 0.05ms or 2s");
    let number_len = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(number_len);
    let n: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit.trim() {
        "ns" => n / 1e9,
        "us" | "µs" => n / 1e6,
        "ms" => n / 1e3,
        "s" => n,
        "m" => n * 60.0,
        "" if n == 0.0 => 0.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

pub fn patience(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("the timeout must be longer than zero".to_owned()),
        long => Ok(long),
    }
}

/// A number of bytes with three digits and a unit.
pub fn show_bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A number with commas between groups of three digits.
pub fn show_count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A sentence that begins with a count, unless that is zero.
pub fn counted(n: u64, words: &str) -> Option<String> {
    (n > 0).then(|| format!("{} {words}", show_count(n)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("256M"), Ok(256 << 20));
        assert_eq!(size("2GiB"), Ok(2 << 30));
        for bad in ["", "M", "1.5G", "-1", "12Q", "99999999T", "1 000"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(duration("0.05ms"), Ok(Duration::from_micros(50)));
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        for bad in ["", "10", "ms", "-1ms", "1h", "1e9s", "999999999999999999999s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shown() {
        assert_eq!(show_count(1), "1");
        assert_eq!(show_count(290_000), "290,000");
        assert_eq!(show_count(1_234_567), "1,234,567");
        assert_eq!(show_bytes(512), "512 B");
        assert_eq!(show_bytes(1536), "1.5 KiB");
    }
}
