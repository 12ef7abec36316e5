//! Reads one capture, or two of the same traffic.

use super::args::{OnlyArgs, TraceArgs};
use super::input::Input;
use super::results::Results;
use super::{live, notes};
use crate::say;
use landfast_trace::analysis::Analysis;
use landfast_trace::analysis::both::{Both, OtherEnd};
use landfast_trace::filter::{Filter, Wanted};
use landfast_trace::listing;
use landfast_trace::source::End;
use landfast_trace::table::Table;
use landfast_trace::trace::{Call, Ends, Observer, Reply, Shortest, Trace};
use std::error::Error;
use std::io::{self, BufWriter, Write};
use std::path::Path;

pub fn look(args: &TraceArgs) -> Result<Results, Box<dyn Error>> {
    let Some(other) = &args.merge else { return look_at(args, &args.file, Analysis::new()) };
    let found = look_at(args, &args.file, Analysis::with_other_end(other_end(other)?))?;
    let Some((_, sum)) = found.findings.both.as_ref().map(Both::rows) else { return Ok(found) };
    if sum.here_ns >= sum.there_ns {
        return Ok(found);
    }
    // The other capture was made nearer to the client.
    if args.file == Path::new("-") {
        return Err(
            "standard input is the server's capture: give the server's with --merge, and the client's as FILE".into(),
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

pub fn look_at(args: &TraceArgs, file: &Path, analysis: Analysis) -> Result<Results, Box<dyn Error>> {
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
    Ok(Results {
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

/// Counts calls, and lists them if that was asked for.
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

    fn unwanted_call(&mut self, ends: Ends, call: &Call) {
        self.analysis.unwanted_call(ends, call);
    }

    fn unwanted_reply(&mut self, ends: Ends, call: &Call, reply: &Reply) {
        self.analysis.unwanted_reply(ends, call, reply);
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
