//! `--fail-if`: bounds for scripts. Pure.

use super::results::Results;
use crate::units::duration;
use landfast_model::Bound;
use landfast_trace::filter::Procedure;
use landfast_trace::table::Row;

/// A bound: `rtt>50%`, `WRITE.p99>20ms`, `matched<95%`.
#[derive(Debug, Clone, PartialEq)]
pub struct FailIf {
    text: String,
    what: What,
    above: bool,
    limit: f64,
}

#[derive(Debug, Clone, PartialEq)]
enum What {
    /// A share of the time, 0 to 1.
    Part(Bound),
    /// The share of calls that have their replies, 0 to 1.
    Matched,
    Calls,
    /// TCP segments that were sent again.
    Retransmitted,
    /// Seconds.
    RoundTrip,
    /// Calls for each file that is made.
    CallsPerFile,
    /// A figure of a procedure or main operation.
    Service(String, Value),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    Calls,
    Min,
    Avg,
    Median,
    P99,
    Max,
    Sum,
}

const HELP: &str = "wanted: rtt, persistence, server, bandwidth, client or loss (in %), matched (in %), calls, calls-per-file, \
retransmitted, round-trip, or PROCEDURE.calls, .min, .avg, .median, .p99, .max, .sum; then > or <; then a value: rtt>50%, WRITE.p99>20ms";

pub fn fail_if(text: &str) -> Result<FailIf, String> {
    let at = text.find(['>', '<']).ok_or(HELP)?;
    let (what, value) = (text[..at].trim(), text[at + 1..].trim());
    let part = |bound| Ok::<_, String>((What::Part(bound), percent(value)?));
    let number = || value.parse::<f64>().map_err(|_| format!("'{value}' is not a number"));
    let time = || duration(value).map(|d| d.as_secs_f64());
    let (what, limit) = match what {
        "rtt" => part(Bound::Rtt)?,
        "persistence" => part(Bound::Persistence)?,
        "server" => part(Bound::Server)?,
        "bandwidth" => part(Bound::Bandwidth)?,
        "client" => part(Bound::Client)?,
        "loss" => part(Bound::Loss)?,
        "matched" => (What::Matched, percent(value)?),
        "calls" => (What::Calls, number()?),
        "calls-per-file" => (What::CallsPerFile, number()?),
        "retransmitted" => (What::Retransmitted, number()?),
        "round-trip" => (What::RoundTrip, time()?),
        other => {
            let (name, value) = other.rsplit_once('.').ok_or(HELP)?;
            let value = match value {
                "calls" => Value::Calls,
                "min" => Value::Min,
                "avg" => Value::Avg,
                "median" => Value::Median,
                "p99" => Value::P99,
                "max" => Value::Max,
                "sum" => Value::Sum,
                _ => return Err(HELP.into()),
            };
            let limit = if value == Value::Calls { number()? } else { time()? };
            let name = name.to_ascii_uppercase();
            if name.parse::<Procedure>().is_err() {
                let known = Procedure::names().join(", ");
                return Err(format!("there is no procedure or operation '{name}'; there are: {known}"));
            }
            (What::Service(name, value), limit)
        }
    };
    if !limit.is_finite() {
        return Err(format!("'{value}' is not a value to compare with"));
    }
    Ok(FailIf { text: text.to_owned(), what, above: text.as_bytes()[at] == b'>', limit })
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').map(str::trim).and_then(|n| n.parse::<f64>().ok());
    number.map(|n| n / 100.0).ok_or_else(|| format!("'{text}' is not a part; write for example 50%"))
}

impl FailIf {
    /// The message if the bound is exceeded. What the capture does not have exceeds nothing.
    pub(super) fn failed(&self, found: &Results) -> Option<String> {
        let value = self.value(found)?;
        let beyond = if self.above { value > self.limit } else { value < self.limit };
        beyond.then(|| format!("{}: it is {}", self.text, self.show(value)))
    }

    fn value(&self, found: &Results) -> Option<f64> {
        let (f, t) = (&found.findings, &found.totals);
        Some(match &self.what {
            What::Part(bound) => {
                let total = f.shares.total();
                let part = f.shares.parts().into_iter().find(|(b, _)| b == bound)?.1;
                if total > 0.0 { part / total } else { return None }
            }
            What::Matched if t.calls_seen == 0 => return None,
            What::Matched => t.calls_matched as f64 / t.calls_seen as f64,
            What::Calls => t.calls_seen as f64,
            What::Retransmitted => t.tcp.retransmitted as f64,
            What::RoundTrip => f.terms.round_trip_s,
            What::CallsPerFile if f.work.files == 0 => return None,
            What::CallsPerFile => f.work.calls as f64 / f.work.files as f64,
            What::Service(name, value) => {
                let rows = found.table.rows().filter(|(place, _)| *name == place.name());
                // The worst row counts: several versions can have a procedure of this name.
                let all = rows.map(|(_, row)| value.of(row));
                if self.above { all.reduce(f64::max)? } else { all.reduce(f64::min)? }
            }
        })
    }

    fn show(&self, value: f64) -> String {
        match self.what {
            What::Part(_) | What::Matched => format!("{:.1} %", value * 100.0),
            What::Calls | What::Retransmitted | What::Service(_, Value::Calls) => format!("{value}"),
            What::CallsPerFile => format!("{value:.2}"),
            What::RoundTrip | What::Service(..) => landfast_trace::analysis::words::time(value),
        }
    }
}

impl Value {
    fn of(self, row: &Row) -> f64 {
        let ns = match self {
            Value::Calls => return row.calls as f64,
            Value::Min => row.min_ns as f64,
            Value::Avg => row.sum_ns as f64 / row.calls.max(1) as f64,
            Value::Median => row.percentile_ns(50.0) as f64,
            Value::P99 => row.percentile_ns(99.0) as f64,
            Value::Max => row.max_ns as f64,
            Value::Sum => row.sum_ns as f64,
        };
        ns / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read() {
        let read = |text: &str| fail_if(text).map(|f| (f.what, f.above, f.limit));
        assert_eq!(read("rtt>50%"), Ok((What::Part(Bound::Rtt), true, 0.5)));
        assert_eq!(read(" write.p99 > 20ms"), Ok((What::Service("WRITE".into(), Value::P99), true, 0.02)));
        assert_eq!(read("matched<95%"), Ok((What::Matched, false, 0.95)));
        assert_eq!(read("calls-per-file>0.16"), Ok((What::CallsPerFile, true, 0.16)));
        for wrong in [
            "",
            "rtt",
            "rtt>50",
            "WRITE>1ms",
            "WRITE.p98>1ms",
            "matched<x%",
            "calls>many",
            "WRITE.p99>20",
            "rtt=5%",
        ] {
            assert!(fail_if(wrong).is_err(), "{wrong}");
        }
    }
}
