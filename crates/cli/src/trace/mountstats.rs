//! `landfast trace --mountstats`: finds in a Linux client's counters where the time goes.

use super::args::{MOUNTSTATS_FILE, TraceArgs};
use crate::exit::{Exit, failed, print_json};
use crate::input;
use crate::units::{counted, show_bytes, show_count};
use landfast_model::{Bound, Verdict};
use landfast_trace::analysis::words::part;
use landfast_trace::limits::MOUNTSTATS_BYTES_MAX;
use landfast_trace::mountstats::findings::Findings;
use landfast_trace::mountstats::{Counters, Mount, Mountstats, difference, parse};
use serde_json::{Value, json};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

pub fn run(args: &TraceArgs) -> Exit {
    match look(args) {
        Ok(found) => found.report(args.json),
        Err(e) => failed(e),
    }
}

struct Readings {
    /// The mounts, with their counters between two readings, or since each mount.
    mounts: Vec<(Mount, Findings)>,
    between: bool,
    notes: Vec<String>,
}

fn look(args: &TraceArgs) -> Result<Readings, String> {
    let place = args.file.as_path();
    let (first, at) = (read(place)?, Instant::now());
    let mut notes = Vec::new();
    let mut said = |readings: &[&Mountstats]| {
        let strange: u64 = readings.iter().map(|r| r.strange).max().unwrap_or(0);
        let passed: u64 = readings.iter().map(|r| r.too_many).max().unwrap_or(0);
        notes.extend(counted(strange, "lines were not understood, and count for nothing"));
        notes.extend(counted(passed, "further mounts were passed over"));
    };
    let (after, seconds) = match (&args.after, args.interval) {
        (Some(after), _) => (read(after)?, None),
        (None, Some(interval)) => {
            // The interval is between the beginnings of both readings.
            std::thread::sleep(interval.saturating_sub(at.elapsed()));
            let after = read(place)?;
            (after, Some(at.elapsed().as_secs_f64()))
        }
        (None, None) => {
            said(&[&first]);
            let mounts = first.mounts.into_iter().map(|m| with_findings(m, None)).collect();
            return Readings { mounts, between: false, notes }.some(place);
        }
    };
    said(&[&first, &after]);
    let found = difference(&first, &after);
    for on in &found.new {
        notes.push(format!(
            "{on} is counted from its mount on: it was not there before, or was mounted again"
        ));
    }
    for on in &found.gone {
        notes.push(format!("{on} is not mounted any more"));
    }
    let new = found.new;
    let mounts = found.mounts.into_iter().map(|m| {
        let span = seconds.filter(|_| !new.contains(&m.on));
        with_findings(m, span)
    });
    Readings { mounts: mounts.collect(), between: true, notes }.some(place)
}

fn with_findings(mount: Mount, span_s: Option<f64>) -> (Mount, Findings) {
    let findings = Findings::of(&mount, span_s);
    (mount, findings)
}

fn read(place: &Path) -> Result<Mountstats, String> {
    let too_long = format!("larger than {}", show_bytes(MOUNTSTATS_BYTES_MAX));
    let text = input::read(place, MOUNTSTATS_BYTES_MAX, &too_long)?;
    if !text.split(|b| *b == b'\n').any(|line| line.starts_with(b"device ")) {
        let name = input::name(place);
        return Err(format!(
            "{name}: no counters of mounts, as {MOUNTSTATS_FILE} of a Linux client has them"
        ));
    }
    Ok(parse(&text))
}

impl Readings {
    fn some(self, place: &Path) -> Result<Readings, String> {
        match self.mounts.is_empty() {
            true => Err(format!("{}: no NFS mount in it", place.display())),
            false => Ok(self),
        }
    }

    fn busiest(&self) -> Option<&(Mount, Findings)> {
        self.mounts.iter().max_by_key(|(m, _)| m.ops())
    }

    fn report(&self, as_json: bool) -> Exit {
        for note in &self.notes {
            eprintln!("landfast: {note}");
        }
        if as_json {
            return print_json(&self.json());
        }
        // A failure to write shows in the exit status.
        let _ = self.print(crate::say::stdout());
        Exit::Done
    }

    fn json(&self) -> Value {
        let busiest = self.busiest().map(|(_, f)| f);
        json!({
            "terms": busiest.map(|f| f.terms),
            "verdict": busiest.map(verdict_json),
            "work": busiest.map(|f| f.work),
            "between_readings": self.between,
            "mounts": self.mounts.iter().map(|(m, f)| mount_json(m, f)).collect::<Vec<_>>(),
        })
    }

    fn print(&self, out: impl Write) -> io::Result<()> {
        let mut out = BufWriter::new(out);
        for (n, (mount, found)) in self.mounts.iter().enumerate() {
            if n > 0 {
                writeln!(out)?;
            }
            let (device, on, version) = (printable(&mount.device), printable(&mount.on), mount.version());
            let span = match self.between {
                true => format!("{:.1} s between two readings", found.span_s),
                false => format!("since it was mounted {} s ago", show_count(mount.age_s)),
            };
            writeln!(out, "{device} mounted on {on}: NFS {version}, {span}")?;
            if mount.ops() == 0 {
                writeln!(out, "no calls")?;
                continue;
            }
            table(&mut out, mount, found)?;
            verdict(&mut out, mount, found, self.between)?;
        }
        out.flush()
    }
}

fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn table(out: &mut impl Write, mount: &Mount, found: &Findings) -> io::Result<()> {
    writeln!(
        out,
        "operation                 ops     ops/s  sent/op  recv/op  retrans timeouts   errors avg queue   avg RTT  avg exe (ms)"
    )?;
    for (name, c) in mount.used() {
        let errors = c.errors.map_or_else(|| "-".to_owned(), |n| n.to_string());
        writeln!(
            out,
            "{name:<20} {:>8} {:>9.1} {:>8.0} {:>8.0} {:>8} {:>8} {errors:>8} {:>9.3} {:>9.3} {:>8.3}",
            c.ops,
            c.ops as f64 / found.span_s.max(1e-9),
            c.average(c.bytes_sent),
            c.average(c.bytes_received),
            c.retransmissions(),
            c.timeouts,
            c.average(c.queue_ms),
            c.average(c.rtt_ms),
            c.average(c.execute_ms),
        )?;
    }
    Ok(())
}

fn verdict(out: &mut impl Write, mount: &Mount, found: &Findings, between: bool) -> io::Result<()> {
    let Some(v) = found.verdict else { return Ok(()) };
    let total = found.shares.total().max(f64::MIN_POSITIVE);
    writeln!(out, "\nVERDICT: bound by {}", said(&v))?;
    for (part, s) in found.shares.parts().into_iter().filter(|(_, s)| *s > 0.0) {
        writeln!(out, "    {:>9.2} s  {:>3.0} %  {}", s, 100.0 * s / total, evidence(part, mount, found))?;
    }
    if let Some(u) = found.under_way.filter(|u| u.bound != v.bound) {
        writeln!(out, "While calls were under way: bound by {}.", said(&u))?;
    }
    if !between && found.idle_s(mount) > found.span_s / 2.0 {
        writeln!(
            out,
            "All time since the mount counts. To see the work alone, run this with --interval SECONDS while it goes on."
        )?;
    }
    if found.retransmissions > 0 || found.timeouts > 0 {
        writeln!(
            out,
            "{} requests were sent again, {} major timeouts: a server or a network that did not answer for long.",
            show_count(found.retransmissions),
            show_count(found.timeouts)
        )?;
    }
    writeln!(
        out,
        "Counters have averages only, and RTT is network and server together: what the quickest operation takes ({}) counts as round \
         trips. Lost segments cannot be seen. A capture tells more: landfast trace FILE.",
        found.quickest.as_deref().unwrap_or("none")
    )
}

fn said(v: &Verdict) -> String {
    bound_words(v.bound, [v.first, v.runner_up])
}

/// What bounds the work, with the parts that take most of the time.
pub fn bound_words(bound: Bound, [first, second]: [Bound; 2]) -> String {
    match bound {
        Bound::Mixed => format!("{} and {}, nearly alike", part(first), part(second)),
        bound => format!("{}; next comes {}", part(bound), part(second)),
    }
}

fn evidence(part: Bound, mount: &Mount, found: &Findings) -> String {
    let (t, w) = (&found.terms, &found.work);
    let ms = |s: f64| format!("{:.2} ms", s * 1e3);
    match part {
        Bound::Rtt => format!(
            "{} round trips of {}, {:.1} under way",
            show_count(w.calls),
            ms(t.round_trip_s),
            t.in_flight
        ),
        Bound::Persistence => {
            let writes = if found.writes_stable { "WRITEs taken for stable ones" } else { "WRITEs left out" };
            format!(
                "{} calls that change something wait {} for stable storage ({writes})",
                show_count(w.synchronous_calls),
                ms(t.persistence_s)
            )
        }
        Bound::Server => {
            format!("the server's other work, {} for a call that changes nothing", ms(t.server_s))
        }
        Bound::Bandwidth => "large READs and WRITEs beyond a round trip".to_owned(),
        Bound::Client => format!(
            "the client: {:.2} s without a call under way, the rest behind replies",
            found.idle_s(mount)
        ),
        Bound::Loss | Bound::Mixed => String::new(),
    }
}

fn verdict_json(f: &Findings) -> Value {
    let of = |v: &Verdict| json!({ "bound": v.bound, "first": v.first, "runner_up": v.runner_up });
    let mut verdict = f.verdict.as_ref().map_or_else(|| json!({ "bound": null }), of);
    verdict["shares"] = json!(f.shares);
    verdict["under_way"] = json!(f.under_way.as_ref().map(of));
    verdict["span_s"] = json!(f.span_s);
    verdict
}

fn mount_json(m: &Mount, f: &Findings) -> Value {
    json!({
        "device": m.device,
        "on": m.on,
        "fstype": m.fstype,
        "version": m.version(),
        "statvers": m.statvers,
        "options": m.options,
        "age_s": m.age_s,
        "operations": m.used().map(|(name, c)| operation(name, c)).collect::<Vec<_>>(),
        "transports": m.transports.iter().map(|t| json!({
            "kind": t.kind, "sends": t.sends, "receives": t.receives, "bad_xids": t.bad_xids,
        })).collect::<Vec<_>>(),
        "terms": f.terms,
        "verdict": verdict_json(f),
        "work": f.work,
        "retransmissions": f.retransmissions,
        "timeouts": f.timeouts,
    })
}

fn operation(name: &str, c: &Counters) -> Value {
    json!({
        "name": name,
        "ops": c.ops,
        "transmissions": c.transmissions,
        "retransmissions": c.retransmissions(),
        "timeouts": c.timeouts,
        "errors": c.errors,
        "bytes_sent": c.bytes_sent,
        "bytes_received": c.bytes_received,
        "queue_ms": c.queue_ms,
        "rtt_ms": c.rtt_ms,
        "execute_ms": c.execute_ms,
        "avg_queue_ms": c.average(c.queue_ms),
        "avg_rtt_ms": c.average(c.rtt_ms),
        "avg_execute_ms": c.average(c.execute_ms),
    })
}
