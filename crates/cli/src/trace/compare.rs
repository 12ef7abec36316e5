//! `landfast trace --compare BEFORE AFTER`: what a change did, and what the equation predicts for it.

use super::args::TraceArgs;
use super::look::look_at;
use super::report::part_of;
use super::results::Results;
use crate::exit::{Exit, failed, print_json};
use crate::units::show_count;
use landfast_model::predict::Outlook;
use landfast_model::{Bound, Change, Job, predict};
use landfast_trace::analysis::Analysis;
use landfast_trace::analysis::findings::Findings;
use landfast_trace::analysis::words::{part, time};
use serde_json::{Value, json};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// A term counts as changed if the ratio of its values is above this, or below its reciprocal.
const CHANGED: f64 = 1.2;
/// The number of calls counts as equal within this part.
const AS_MANY: f64 = 0.1;

pub(super) fn run(args: &TraceArgs, before: &Path, name: &str) -> Exit {
    let both = [before, args.file.as_path()].map(|file| {
        look_at(args, file, Analysis::new()).map_err(|e| format!("{}: {e}", file.display())).and_then(
            |found| match found.findings.verdict {
                Some(_) => Ok(found),
                None => Err(format!("{}: {}", file.display(), found.nothing())),
            },
        )
    });
    let (before_found, after) = match both {
        [Ok(before), Ok(after)] => (before, after),
        [Err(e), _] | [_, Err(e)] => return failed(e),
    };
    for (name, found) in [(before.display().to_string(), &before_found), (name.to_owned(), &after)] {
        found.notes().iter().for_each(|note| eprintln!("landfast: {name}: {note}"));
    }
    let compared = Compared::of(&before_found, &after);
    if args.json {
        return print_json(&compared.json());
    }
    match compared.print(&mut BufWriter::new(crate::say::stdout())) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => failed(format!("standard output: {e}")),
        _ => Exit::Done,
    }
}

struct Compared<'a> {
    before: &'a Results,
    after: &'a Results,
    /// The changes that the equation knows, and their predicted effect on the work before; or why there is no prediction.
    expected: Result<(Vec<Change>, Outlook), &'static str>,
}

fn changes(before: &Findings, after: &Findings) -> Vec<Change> {
    let (b, a) = (&before.terms, &after.terms);
    let changed =
        |from: f64, to: f64| from > 0.0 && to > 0.0 && !(1.0 / CHANGED..=CHANGED).contains(&(to / from));
    let mut all = Vec::new();
    if changed(b.round_trip_s, a.round_trip_s) {
        all.push(Change::RoundTrip { round_trip_s: a.round_trip_s });
    }
    if a.persistence_s < b.persistence_s / CHANGED {
        all.push(Change::LogDevice { persistence_s: a.persistence_s });
    }
    if changed(b.server_s, a.server_s) {
        all.push(Change::Server { times: b.server_s / a.server_s });
    }
    if a.in_flight.round() > b.in_flight.round() {
        all.push(Change::Streams { streams: a.in_flight.round() as u64 });
    }
    let ways =
        [(b.upload_bytes_per_s, a.upload_bytes_per_s), (b.download_bytes_per_s, a.download_bytes_per_s)];
    for (from, to) in ways {
        if let (Some(from), Some(to)) = (from, to)
            && changed(from, to)
        {
            all.push(Change::Link { bytes_per_s: to });
        }
    }
    all
}

impl<'a> Compared<'a> {
    fn of(before: &'a Results, after: &'a Results) -> Self {
        let expected = Compared::expected(&before.findings, &after.findings);
        Compared { before, after, expected }
    }

    fn expected(before: &Findings, after: &Findings) -> Result<(Vec<Change>, Outlook), &'static str> {
        let (was, is) = (before.work.calls as f64, after.work.calls as f64);
        if (is / was - 1.0).abs() > AS_MANY {
            return Err(
                "the number of calls has changed, so the work was done in another way, or it is other work",
            );
        }
        if after.terms.persistence_s > before.terms.persistence_s * CHANGED {
            return Err("stable storage takes longer than before, and the equation cannot predict that");
        }
        let job = Job::repeat(&before.work, before.terms.in_flight, None)
            .map_err(|_| "too little is known about the work before")?;
        let changes = changes(before, after);
        if changes.is_empty() {
            return Err("no term of the equation has changed by a fifth");
        }
        let p = predict(&before.terms, &job, &changes)
            .map_err(|_| "its terms are out of the range of the equation")?;
        let outlook = p.together.or_else(|| p.each.first().and_then(|outcome| outcome.outlook));
        outlook.map(|outlook| (changes, outlook)).ok_or("the equation cannot predict these changes")
    }

    fn spans(&self) -> [f64; 2] {
        [self.before, self.after].map(|found| found.findings.work.span_s.unwrap_or(0.0))
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let [was, is] = self.spans();
        let faster = match was / is.max(f64::MIN_POSITIVE) {
            n if n >= 1.0 => format!("{n:.1} times as fast"),
            n => format!("{:.1} times as slow", 1.0 / n.max(f64::MIN_POSITIVE)),
        };
        writeln!(out, "{} before, {} after: {faster}\n", time(was), time(is))?;
        for (when, found) in [("Before", self.before), ("After", self.after)] {
            if let Some(words) = found.findings.words(&found.totals) {
                writeln!(out, "{when}: {} (confidence: {})", words.verdict, words.confidence.name())?;
            }
        }
        writeln!(out, "\n  {:<28} {:>9} {:>9}", "", "before", "after")?;
        let [b, a] = [self.before, self.after].map(|found| &found.findings);
        let mut row = |name: &str, values: [String; 2]| {
            let [before, after] = values;
            writeln!(out, "  {name:<28} {before:>9} {after:>9}")
        };
        for bound in
            [Bound::Rtt, Bound::Persistence, Bound::Server, Bound::Bandwidth, Bound::Client, Bound::Loss]
        {
            let of = |f: &Findings| part_of(&f.shares, bound);
            if of(b) + of(a) > 0.0 {
                row(part(bound), [time(of(b)), time(of(a))])?;
            }
        }
        for (name, values) in [
            ("stalls", [b, a].map(|f| f.stalls.time_s)),
            ("irregular pauses", [b, a].map(|f| f.irregular_s)),
            ("a round trip", [b, a].map(|f| f.terms.round_trip_s)),
            ("stable, a call", [b, a].map(|f| f.terms.persistence_s)),
            ("the server, a call", [b, a].map(|f| f.terms.server_s)),
            ("the client, a call", [b, a].map(|f| f.terms.think_s)),
        ] {
            if values.iter().any(|s| *s > 0.0) {
                row(name, values.map(time))?;
            }
        }
        row("calls", [b, a].map(|f| show_count(f.work.calls)))?;
        row("calls under way at a time", [b, a].map(|f| format!("{:.1}", f.terms.in_flight)))?;
        match &self.expected {
            Ok((changes, outlook)) => {
                let names: Vec<String> =
                    changes.iter().map(|change| change.to_string().replace(" us", " µs")).collect();
                let within = outlook
                    .within_s
                    .map_or_else(String::new, |(low, high)| format!(" ({} to {})", time(low), time(high)));
                writeln!(
                    out,
                    "\nPredicted from the capture before, with {}: {}{within}; it took {}",
                    names.join(", "),
                    time(outlook.seconds),
                    time(is)
                )?;
            }
            Err(why) => writeln!(out, "\nNothing was predicted: {why}")?,
        }
        out.flush()
    }

    fn json(&self) -> Value {
        let side = |found: &Results| {
            json!({
                "verdict": found.verdict_json(),
                "terms": found.findings.terms,
                "work": found.findings.work,
            })
        };
        let [was, is] = self.spans();
        let expected = self.expected.as_ref().ok();
        json!({
            "before": side(self.before),
            "after": side(self.after),
            "times_as_fast": was / is.max(f64::MIN_POSITIVE),
            "predicted": expected.map(|(changes, outlook)| json!({ "changes": changes, "outlook": outlook })),
            "not_predicted": self.expected.as_ref().err(),
        })
    }
}
