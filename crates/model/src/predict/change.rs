//! The changes whose effect can be predicted.

use super::refused::Refused;
use crate::terms::Terms;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most calls that a sequential client sends for an object of an archive, and how many of them must be durable.
/// Beyond that it was other work, which COMPOUNDs of files do not replace.
pub(super) const OBJECT_CALLS_MAX: u64 = 14;
pub(super) const OBJECT_SYNCHRONOUS_MAX: u64 = 7;

/// Operations of a file in a COMPOUND that must be durable: OPEN that creates, WRITE, SETATTR of the times.
pub(super) const COMPOUND_SYNCHRONOUS: u64 = 3;

/// The least processor time for creating a file, in seconds, whatever else is waited for: the server's system calls
/// for name, data and attributes, and the file's share of a COMPOUND.
///
/// Measured by `landfast lab run predicted`: untar of 2,000 files, four COMPOUNDs in flight, round trip 1 ms, log
/// 0.05 ms. Each file takes longer than its waits by 33 us on one day, and by 47 to 54 us on another, on a machine of
/// the same kind. This value is in between.
pub(super) const FILE_WORK_S: f64 = 42e-6;

/// The same for the work that both ends do one after the other while one COMPOUND is in flight at a time, and in
/// parallel otherwise: untar of as many files over a round trip of 0.2 ms.
pub(super) const FILE_IN_TURN_S: f64 = 7e-6;

/// Round trips of Landfast's `untar` besides those for files, TCP's included: on a Landfast server, and on others
/// (checked by `landfast lab run client-round-trips`). Then how many of them make something durable: the session, the
/// first directories, the last attributes of the topmost directory.
pub(super) const SESSION_WAITS: u64 = 3;
pub(super) const SESSION_WAITS_ELSEWHERE: u64 = 5;
pub(super) const SESSION_SYNCHRONOUS: u64 = 3;

/// The flush time of a good log device, in seconds. If one is in use already, none is proposed.
const LOG_S: f64 = 50e-6;

/// A shorter round trip is within a machine or a rack, where nobody can buy a quarter of it. Seconds.
const SHORT_S: f64 = 100e-6;

/// The largest count in a change.
const COUNT_MAX: u64 = 1 << 20;

/// One change. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
pub enum Change {
    /// The server makes changes durable on another device.
    LogDevice {
        /// The time that the device takes.
        persistence_s: f64,
    },
    /// A client that creates many whole files with one COMPOUND.
    Compound {
        files: u64,
        /// The server makes everything in a COMPOUND durable at once, as Landfast does. Others do so for each
        /// operation.
        at_once: bool,
    },
    /// Clients in parallel, each with its share of the files, or COMPOUNDs in flight.
    Streams { streams: u64 },
    /// Delegations instead of opens, with times set by the client (RFC 9754).
    Delegations,
    /// Another network.
    RoundTrip { round_trip_s: f64 },
    /// A link of another bandwidth.
    Link {
        /// Bytes a second, in the direction whose bandwidth was reached.
        bytes_per_s: f64,
    },
    /// A server that is faster by this factor in everything except making changes durable.
    Server { times: f64 },
}

/// The kind of a change, or no change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Now,
    LogDevice,
    Compound,
    Streams,
    Delegations,
    RoundTrip,
    Link,
    Server,
    /// Several changes at once.
    Together,
}

impl Kind {
    pub const ALL: [Kind; 9] = [
        Kind::Now,
        Kind::LogDevice,
        Kind::Compound,
        Kind::Streams,
        Kind::Delegations,
        Kind::RoundTrip,
        Kind::Link,
        Kind::Server,
        Kind::Together,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Now => "now",
            Kind::LogDevice => "log-device",
            Kind::Compound => "compound",
            Kind::Streams => "streams",
            Kind::Delegations => "delegations",
            Kind::RoundTrip => "round-trip",
            Kind::Link => "link",
            Kind::Server => "server",
            Kind::Together => "together",
        }
    }
}

impl Change {
    pub fn kind(&self) -> Kind {
        match self {
            Change::LogDevice { .. } => Kind::LogDevice,
            Change::Compound { .. } => Kind::Compound,
            Change::Streams { .. } => Kind::Streams,
            Change::Delegations => Kind::Delegations,
            Change::RoundTrip { .. } => Kind::RoundTrip,
            Change::Link { .. } => Kind::Link,
            Change::Server { .. } => Kind::Server,
        }
    }

    /// The changes to predict if none are chosen:
    ///
    /// - a log device of 50 µs, if the present one is slower
    /// - COMPOUNDs of 16 files, on this server and on Landfast
    /// - four streams
    /// - delegations
    /// - a quarter of the round trip, if it is worth it
    /// - ten times the bandwidth, if it is known
    pub fn usual(terms: &Terms) -> Vec<Change> {
        let mut all = Vec::new();
        if terms.persistence_s > 2.0 * LOG_S {
            all.push(Change::LogDevice { persistence_s: LOG_S });
        }
        all.extend([
            Change::Compound { files: 16, at_once: false },
            Change::Compound { files: 16, at_once: true },
            Change::Streams { streams: 4 },
            Change::Delegations,
        ]);
        if terms.round_trip_s >= SHORT_S {
            all.push(Change::RoundTrip { round_trip_s: terms.round_trip_s / 4.0 });
        }
        let rate = terms.upload_bytes_per_s.or(terms.download_bytes_per_s);
        all.extend(rate.map(|b| Change::Link { bytes_per_s: 10.0 * b }));
        all
    }

    pub(super) fn check(&self) -> Result<(), Refused> {
        let count =
            |n: u64, what| if (1..=COUNT_MAX).contains(&n) { Ok(()) } else { Err(Refused::Nonsense(what)) };
        match *self {
            Change::LogDevice { persistence_s: s } if !s.is_finite() || s < 0.0 => {
                Err(Refused::Nonsense("a log device whose latency is no time"))
            }
            Change::RoundTrip { round_trip_s: s } if !s.is_finite() || s <= 0.0 => {
                Err(Refused::Nonsense("a round trip that takes no time"))
            }
            Change::Link { bytes_per_s: b } if !b.is_finite() || b <= 0.0 => {
                Err(Refused::Nonsense("a link of no bandwidth"))
            }
            Change::Server { times: n } if !n.is_finite() || n <= 0.0 => {
                Err(Refused::Nonsense("a server that is no times as fast"))
            }
            Change::Compound { files, .. } => count(files, "COMPOUNDs of no file, or of more than a million"),
            Change::Streams { streams } => count(streams, "no stream, or more than a million"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |n: u64| if n == 1 { "" } else { "s" };
        match *self {
            Change::LogDevice { persistence_s } => write!(f, "log device of {}", Time(persistence_s)),
            Change::Compound { files, at_once } => {
                write!(f, "COMPOUNDs of {files} file{}", s(files))?;
                if at_once { f.write_str(", stable at once") } else { Ok(()) }
            }
            Change::Streams { streams } => write!(f, "{streams} stream{}", s(streams)),
            Change::Delegations => f.write_str("delegations"),
            Change::RoundTrip { round_trip_s } => write!(f, "round trip of {}", Time(round_trip_s)),
            Change::Link { bytes_per_s } => write!(f, "link of {} Mbit/s", Digits(bytes_per_s * 8e-6)),
            Change::Server { times } => write!(f, "server {} times as fast", Digits(times)),
        }
    }
}

/// Prints a number with three digits.
struct Digits(f64);

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.0 {
            v if v >= 99.95 => 0,
            v if v >= 9.995 => 1,
            _ => 2,
        };
        let number = format!("{:.digits$}", self.0);
        f.write_str(if digits > 0 { number.trim_end_matches('0').trim_end_matches('.') } else { &number })
    }
}

/// Prints seconds with three digits and a unit.
#[derive(Debug, Clone, Copy)]
pub struct Time(pub f64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.0;
        let (value, unit) = match s {
            s if s >= 7200.0 => (s / 3600.0, "h"),
            s if s >= 120.0 => (s / 60.0, "min"),
            s if s >= 0.9995 => (s, "s"),
            s if s >= 0.000_999_5 => (s * 1e3, "ms"),
            s => (s * 1e6, "us"),
        };
        let digits = match value {
            v if v >= 99.95 => 0,
            v if v >= 9.995 => 1,
            _ => 2,
        };
        let number = format!("{value:.digits$}");
        let number = if digits > 0 { number.trim_end_matches('0').trim_end_matches('.') } else { &number };
        write!(f, "{number} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let shown = [0.0, 50e-6, 0.000_999_9, 0.0102, 0.25, 1.0, 31.94, 119.0, 3660.0, 36_000.0]
            .map(|s| Time(s).to_string());
        assert_eq!(
            shown,
            ["0 us", "50 us", "1 ms", "10.2 ms", "250 ms", "1 s", "31.9 s", "119 s", "61 min", "10 h"]
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            Change::LogDevice { persistence_s: -1.0 },
            Change::LogDevice { persistence_s: f64::NAN },
            Change::RoundTrip { round_trip_s: 0.0 },
            Change::RoundTrip { round_trip_s: f64::INFINITY },
            Change::Compound { files: 0, at_once: true },
            Change::Streams { streams: 0 },
            Change::Streams { streams: u64::MAX },
            Change::Link { bytes_per_s: 0.0 },
            Change::Server { times: f64::NAN },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        assert!(Change::LogDevice { persistence_s: 0.0 }.check().is_ok());
    }

    #[test]
    fn what_is_there_already_is_not_proposed() {
        let terms = |persistence_s, round_trip_s, upload_bytes_per_s| Terms {
            round_trip_s,
            server_s: 0.0,
            persistence_s,
            think_s: 0.0,
            file_think_s: 0.0,
            upload_bytes_per_s,
            download_bytes_per_s: None,
            in_flight: 1.0,
        };
        let kinds = |terms: &Terms| Change::usual(terms).iter().map(Change::kind).collect::<Vec<_>>();
        let all = kinds(&terms(4e-3, 1e-3, Some(1e6)));
        assert!([Kind::LogDevice, Kind::RoundTrip, Kind::Link].iter().all(|kind| all.contains(kind)));
        // A log device is in use, the server is in the same rack, and the link was never saturated.
        let few = kinds(&terms(60e-6, 1e-6, None));
        assert!(
            ![Kind::LogDevice, Kind::RoundTrip, Kind::Link].iter().any(|kind| few.contains(kind)),
            "{few:?}"
        );
    }

    #[test]
    fn names_are_those_of_the_json() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        let change = Change::Streams { streams: 4 };
        assert_eq!(serde_json::to_value(change).unwrap()["change"], change.kind().name());
    }
}
