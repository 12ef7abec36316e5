//! `landfast trace`: what a capture of NFS traffic says of where the time goes.

mod anonymise;
mod answer;
mod compare;
mod fail_if;
mod input;
mod json;
mod live;
mod mountstats;
mod notes;
mod print;
mod report;
#[allow(unsafe_code)]
mod sys;

use crate::args::{OnlyArgs, TraceArgs};
use crate::exit::{Exit, print_json};
use crate::say;
use input::Input;
use landfast_trace::analysis::Analysis;
use landfast_trace::analysis::both::{Both, OtherEnd};
use landfast_trace::analysis::findings::Findings;
use landfast_trace::filter::{self, Filter, Moment, Wanted};
use landfast_trace::listing;
use landfast_trace::source::End;
use landfast_trace::table::Table;
use landfast_trace::trace::{Call, Ends, Observer, Reply, Shortest, Totals, Trace};
use std::error::Error;
use std::io::{self, BufWriter, Write};
use std::path::Path;

pub use fail_if::{FailIf, fail_if};
pub use mountstats::{PLACE as MOUNTSTATS, interval};

/// Runs it.
pub fn run(args: &TraceArgs) -> Exit {
    if args.mountstats {
        return mountstats::run(args);
    }
    let name = match &args.interface {
        Some(interface) => interface.clone(),
        None if args.file == Path::new("-") => "standard input".into(),
        None => args.file.display().to_string(),
    };
    let captures: Vec<&Path> =
        [Some(&args.file), args.merge.as_ref()].into_iter().flatten().map(|p| &**p).collect();
    let place = match args.report.as_deref().map(|path| report::Place::prepare(path, &captures)).transpose() {
        Ok(place) => place,
        Err(e) => {
            eprintln!("landfast: {e}");
            return Exit::Failed;
        }
    };
    if let Some(out) = &args.anonymise {
        return anonymise::run(&args.file, out, &name);
    }
    if let Some(before) = &args.compare {
        return compare::run(args, before, &name);
    }
    match look(args) {
        Ok(found) => {
            if let Some(place) = place
                && let Err(e) = place.write(&found.page(&both(&name, args.merge.as_deref())))
            {
                eprintln!("landfast: {e}");
                return Exit::Failed;
            }
            found.report(&name, args)
        }
        // It was the listing that could not be written: the exit status tells of it.
        Err(_) if say::is_closed() || say::is_full() => Exit::Done,
        Err(e) => {
            eprintln!("landfast: {name}: {e}");
            Exit::Failed
        }
    }
}

/// What a page is about.
fn both(name: &str, other: Option<&Path>) -> String {
    other.map_or_else(|| name.to_owned(), |other| format!("{name} and {}", other.display()))
}

/// What was found.
struct Found {
    /// Of the calls, those that were wanted.
    totals: Totals,
    /// Calls in the capture, when not all were wanted.
    all_calls: Option<u64>,
    table: Table,
    findings: Findings,
    end: End,
    strange: u64,
    /// Frames of an interface that came too quickly.
    dropped: u64,
    /// It came at an interface, and from no file.
    live: bool,
    listed: bool,
    /// Procedures were asked for by their names, perhaps of other programs than NFS.
    named: bool,
}

/// Looks at a capture, or at two of the same traffic.
fn look(args: &TraceArgs) -> Result<Found, Box<dyn Error>> {
    let Some(other) = &args.merge else { return look_at(args, &args.file, Analysis::new()) };
    let found = look_at(args, &args.file, Analysis::with_other_end(other_end(other)?))?;
    let Some((_, sum)) = found.findings.both.as_ref().map(Both::rows) else { return Ok(found) };
    if sum.here_ns >= sum.there_ns {
        return Ok(found);
    }
    // The other one was made nearer to the client.
    if args.file == Path::new("-") {
        return Err(
            "this is the server's capture of the two; give it with --merge, and the client's as FILE".into(),
        );
    }
    look_at(args, other, Analysis::with_other_end(other_end(&args.file)?))
}

fn other_end(file: &Path) -> Result<OtherEnd, Box<dyn Error>> {
    let read = || -> Result<OtherEnd, Box<dyn Error>> {
        let mut trace = Trace::new(OtherEnd::default());
        let end = Input::open(file)?.each(|frame| trace.frame(frame))?;
        if let Some(note) = notes::end(end) {
            eprintln!("landfast: {}: {note}", file.display());
        }
        Ok(trace.finish().1)
    };
    read().map_err(|e| format!("{}: {e}", file.display()).into())
}

fn look_at(args: &TraceArgs, file: &Path, analysis: Analysis) -> Result<Found, Box<dyn Error>> {
    let capture = if args.interface.is_none() { Some(Input::open(file)?) } else { None };
    let lines = args.list.then(|| Lines { out: BufWriter::new(say::stdout()), failed: None, begun: 0 });
    let mut trace =
        Trace::new(Filter::new(wanted(&args.only), Watch { table: Table::default(), analysis, lines }));
    let (end, strange, dropped) = match (capture, &args.interface) {
        (Some(mut capture), _) => (capture.each(|frame| trace.frame(frame))?, capture.strange(), 0),
        (None, interface) => {
            let dropped = live::watch(interface.as_deref().unwrap_or_default(), args, &mut trace)?;
            (End::Whole, 0, dropped)
        }
    };
    let (mut totals, filter) = trace.finish();
    let (counted, watch) = filter.finish();
    let all_calls = counted.map(|counted| {
        (totals.calls_matched, totals.calls_unmeasured) = (counted.calls_matched, counted.calls_unmeasured);
        totals.other_calls = counted.other_calls;
        std::mem::replace(&mut totals.calls_seen, counted.calls_seen)
    });
    if let Some(mut lines) = watch.lines {
        lines.failed.map_or(Ok(()), Err)?;
        lines.out.flush()?;
    }
    let table = watch.table;
    let findings = watch.analysis.finish();
    Ok(Found {
        totals,
        findings,
        all_calls,
        table,
        end,
        strange,
        dropped,
        live: args.interface.is_some(),
        listed: args.list,
        named: !args.only.procedure.is_empty(),
    })
}

fn wanted(only: &OnlyArgs) -> Wanted {
    let OnlyArgs { client, server, about, procedure, from, to } = only.clone();
    Wanted { client, server, file: about, procedures: procedure, from, to }
}

/// A file as it is given on the command line.
///
/// # Errors
/// It is none.
pub fn file(text: &str) -> Result<filter::File, String> {
    if let Some(digest) = text.strip_prefix("0x").filter(|digits| digits.len() == 8)
        && let Ok(digest) = u32::from_str_radix(digest, 16)
    {
        return Ok(filter::File::Digest(digest));
    }
    if text.is_empty() || text.contains('/') {
        return Err("wanted: a name without its directory; * and ? stand for others".into());
    }
    Ok(filter::File::Name { pattern: text.as_bytes().to_vec(), matches: landfast_client::glob::matches })
}

/// A time as it is given on the command line.
///
/// # Errors
/// It is none.
pub fn moment(text: &str) -> Result<Moment, String> {
    if let Ok(s) = text.parse::<f64>() {
        let ns = s * 1e9;
        return if ns.is_finite() {
            Ok(Moment::Since(ns.round() as i64))
        } else {
            Err("too many seconds".into())
        };
    }
    let at = text.parse::<jiff::Timestamp>().map_err(|e| {
        format!(
            "wanted: seconds since the first frame, or a time with its zone, as 2026-11-23T05:13:00Z ({e})"
        )
    })?;
    i64::try_from(at.as_nanosecond()).map(Moment::At).map_err(|_| "too far away".to_owned())
}

/// Counts, and lists if asked to.
struct Watch {
    table: Table,
    analysis: Analysis,
    lines: Option<Lines>,
}

struct Lines {
    out: BufWriter<say::Lines<say::Raw>>,
    failed: Option<io::Error>,
    begun: i64,
}

impl Lines {
    fn put(&mut self, line: impl FnOnce(i64) -> String) {
        if self.failed.is_none()
            && let Err(e) = writeln!(self.out, "{}", line(self.begun))
        {
            self.failed = Some(e);
        }
    }
}

impl Observer for Watch {
    fn wants_detail(&self) -> bool {
        self.lines.is_some()
    }

    fn begun(&mut self, ns: i64) {
        if let Some(lines) = &mut self.lines {
            lines.begun = ns;
        }
    }

    fn call(&mut self, ends: Ends, call: &Call) {
        self.analysis.call(ends, call);
        if let Some(lines) = &mut self.lines {
            lines.put(|from| listing::call(from, ends, call));
        }
    }

    fn reply(&mut self, ends: Ends, call: &Call, reply: &Reply) {
        self.table.add(call, reply);
        self.analysis.reply(ends, call, reply);
        if let Some(lines) = &mut self.lines {
            lines.put(|from| listing::reply(from, ends, call, reply));
        }
    }

    fn stall(&mut self, ends: Ends, from_ns: i64, to_ns: i64) {
        self.analysis.stall(ends, from_ns, to_ns);
    }

    fn moving(&mut self, ends: Ends, from_ns: i64, to_ns: i64) {
        self.analysis.moving(ends, from_ns, to_ns);
    }

    fn path(&mut self, ends: Ends, shortest: [Option<Shortest>; 2]) {
        self.analysis.path(ends, shortest);
    }
}

impl Found {
    fn report(&self, name: &str, args: &TraceArgs) -> Exit {
        let as_json = args.json;
        if as_json && print_json(&self.json()).is_none() {
            return Exit::Failed;
        }
        for note in self.notes() {
            eprintln!("landfast: {name}: {note}");
        }
        let t = &self.totals;
        let seen = t.calls_seen + if self.named { t.other_calls } else { 0 };
        if seen <= t.tls_probes {
            eprintln!("landfast: {name}: {}", self.nothing());
            return Exit::Failed;
        }
        // What did not arrive shows in the exit status.
        let _ = self.print(as_json);
        self.bounds(name, &args.fail_if)
    }

    fn bounds(&self, name: &str, bounds: &[FailIf]) -> Exit {
        let failed: Vec<String> = bounds.iter().filter_map(|bound| bound.failed(self)).collect();
        for line in &failed {
            eprintln!("landfast: {name}: {line}");
        }
        if failed.is_empty() { Exit::Done } else { Exit::Partly }
    }
}
