//! Owners, times and sizes as GNU prints them.

use crate::say;
use crate::sys::{self, Local};
use landfast_client::fs::Owner;
use landfast_nfs::v4::NfsTime;
use std::collections::HashMap;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Half a year of the Gregorian calendar, in seconds.
const HALF_YEAR: i64 = 31_556_952 / 2;

/// Names of users and groups, looked up once each.
#[derive(Default)]
pub struct Names {
    numeric: bool,
    users: HashMap<u32, Vec<u8>>,
    groups: HashMap<u32, Vec<u8>>,
}

impl Names {
    /// `numeric`: print numbers only.
    pub fn new(numeric: bool) -> Names {
        Names { numeric, ..Names::default() }
    }

    /// The name of an owner, if this machine or the server knows one.
    pub fn owner(&mut self, owner: &Owner) -> Vec<u8> {
        Names::name(self.numeric, &mut self.users, owner, sys::user)
    }

    pub fn group(&mut self, group: &Owner) -> Vec<u8> {
        Names::name(self.numeric, &mut self.groups, group, sys::group)
    }

    fn name(
        numeric: bool,
        known: &mut HashMap<u32, Vec<u8>>,
        owner: &Owner,
        ask: impl Fn(u32) -> Option<Vec<u8>>,
    ) -> Vec<u8> {
        match owner {
            // The server's own name may have control characters.
            Owner::Name(name) => say::marked(name).into_owned(),
            Owner::Id(id) if numeric => id.to_string().into_bytes(),
            Owner::Id(id) => known
                .entry(*id)
                .or_insert_with(|| ask(*id).unwrap_or_else(|| id.to_string().into_bytes()))
                .clone(),
        }
    }
}

/// As `ls -l`: with the time of day if it is less than half a year ago, otherwise with the year.
pub fn short_time(time: NfsTime, now: NfsTime) -> String {
    let Some(l) = sys::local(time.seconds) else { return time.seconds.to_string() };
    let month = month(l);
    match is_recent(time, now) {
        true => format!("{month} {:>2} {:02}:{:02}", l.day, l.hour, l.minute),
        false => format!("{month} {:>2}  {:04}", l.day, l.year),
    }
}

fn month(l: Local) -> &'static str {
    MONTHS.get(l.month as usize - 1).copied().unwrap_or("???")
}

pub fn iso_time(time: NfsTime) -> String {
    let Some(l) = sys::local(time.seconds) else { return time.seconds.to_string() };
    format!("{:04}-{:02}-{:02} {:02}:{:02}", l.year, l.month, l.day, l.hour, l.minute)
}

/// As `ls -l --time-style=iso`: without the year if it is less than half a year ago, otherwise without the time of day.
pub fn short_iso_time(time: NfsTime, now: NfsTime) -> String {
    let Some(l) = sys::local(time.seconds) else { return time.seconds.to_string() };
    match is_recent(time, now) {
        true => format!("{:02}-{:02} {:02}:{:02}", l.month, l.day, l.hour, l.minute),
        false => format!("{:04}-{:02}-{:02} ", l.year, l.month, l.day),
    }
}

/// Whether a time is less than half a year ago.
fn is_recent(time: NfsTime, now: NfsTime) -> bool {
    let old = NfsTime { seconds: now.seconds - HALF_YEAR, ..now };
    old < time && time < now
}

/// As `stat`: date, time with nanoseconds, time zone.
pub fn long_time(time: NfsTime) -> String {
    let Some(l) = sys::local(time.seconds) else { return format!("{}.{:09}", time.seconds, time.nseconds) };
    let (sign, east) = if l.offset < 0 { ('-', -l.offset) } else { ('+', l.offset) };
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:09} {sign}{:02}{:02}",
        l.year,
        l.month,
        l.day,
        l.hour,
        l.minute,
        l.second,
        time.nseconds,
        east / 3600,
        east / 60 % 60
    )
}

/// A size with a unit, rounded up: `1.5K`, `12M`.
pub fn human(bytes: u64) -> String {
    rounded_up(bytes, 1024, ["K", "M", "G", "T", "P", "E"])
}

/// The same with powers of 1000: `1.5k`, `12M`.
pub fn si(bytes: u64) -> String {
    rounded_up(bytes, 1000, ["k", "M", "G", "T", "P", "E"])
}

fn rounded_up(bytes: u64, base: u32, letters: [&str; 6]) -> String {
    if bytes < u64::from(base) {
        return bytes.to_string();
    }
    let mut unit = 1u128;
    for letter in letters {
        unit *= u128::from(base);
        let tenths = (u128::from(bytes) * 10).div_ceil(unit);
        if tenths < 100 {
            return format!("{}.{}{letter}", tenths / 10, tenths % 10);
        }
        let whole = u128::from(bytes).div_ceil(unit);
        if whole < u128::from(base) {
            return format!("{whole}{letter}");
        }
    }
    format!("{}E", u128::from(bytes).div_ceil(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people_are_rounded_up() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 * 1024 - 1, "10K"),
            (10 * 1024 + 1, "11K"),
            (1024 * 1024 - 1, "1.0M"),
            (1024 * 1023, "1023K"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
        for (bytes, text) in [
            (999, "999"),
            (1000, "1.0k"),
            (4096, "4.1k"),
            (9901, "10k"),
            (999_001, "1.0M"),
            (u64::MAX, "19E"),
        ] {
            assert_eq!(si(bytes), text, "{bytes}");
        }
    }
}
