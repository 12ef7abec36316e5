//! `landfast trace`: what a capture of NFS traffic says of where the time goes.

mod json;
mod notes;
mod print;

use crate::args::TraceArgs;
use crate::exit::{Exit, print_json};
use landfast_client::archive;
use landfast_trace::listing;
use landfast_trace::source::{Capture, End};
use landfast_trace::table::Table;
use landfast_trace::trace::{Call, Ends, Observer, Reply, Totals, Trace};
use std::cell::Cell;
use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, Read, StdoutLock, Write};
use std::path::Path;
use std::rc::Rc;

/// Runs it.
pub fn run(args: &TraceArgs) -> Exit {
    let name =
        if args.file == Path::new("-") { "standard input".into() } else { args.file.display().to_string() };
    match look(args) {
        Ok(found) => found.report(&name, args.json),
        // Whoever read the listing has seen enough.
        Err(e) if is_broken_pipe(&*e) => Exit::Done,
        Err(e) => {
            eprintln!("landfast: {name}: {e}");
            Exit::Failed
        }
    }
}

fn is_broken_pipe(e: &(dyn Error + 'static)) -> bool {
    e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// What was found.
struct Found {
    totals: Totals,
    table: Table,
    end: End,
    strange: u64,
    listed: bool,
}

fn look(args: &TraceArgs) -> Result<Found, Box<dyn Error>> {
    let input: Box<dyn Read + Send> =
        if args.file == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(&args.file)?) };
    let (_, input) = archive::open(input)?;
    let mut capture = Capture::open(input)?;
    let begun = Rc::new(Cell::new(None));
    let lines = args.list.then(|| Lines {
        out: BufWriter::new(io::stdout().lock()),
        failed: None,
        begun: begun.clone(),
    });
    let mut trace = Trace::new(Watch { table: Table::default(), lines });
    let end = capture.each(|frame| {
        if begun.get().is_none() {
            begun.set(Some(frame.ns));
        }
        trace.frame(frame);
    })?;
    let (totals, watch) = trace.finish();
    if let Some(mut lines) = watch.lines {
        lines.failed.map_or(Ok(()), Err)?;
        lines.out.flush()?;
    }
    Ok(Found { totals, table: watch.table, end, strange: capture.strange(), listed: args.list })
}

/// Counts, and lists if asked to.
struct Watch {
    table: Table,
    lines: Option<Lines>,
}

struct Lines {
    out: BufWriter<StdoutLock<'static>>,
    failed: Option<io::Error>,
    begun: Rc<Cell<Option<i64>>>,
}

impl Lines {
    fn put(&mut self, line: impl FnOnce(i64) -> String) {
        if self.failed.is_none()
            && let Err(e) = writeln!(self.out, "{}", line(self.begun.get().unwrap_or(0)))
        {
            self.failed = Some(e);
        }
    }
}

impl Observer for Watch {
    fn wants_detail(&self) -> bool {
        self.lines.is_some()
    }

    fn call(&mut self, ends: Ends, call: &Call) {
        if let Some(lines) = &mut self.lines {
            lines.put(|from| listing::call(from, ends, call));
        }
    }

    fn reply(&mut self, ends: Ends, call: &Call, reply: &Reply) {
        self.table.add(call, reply);
        if let Some(lines) = &mut self.lines {
            lines.put(|from| listing::reply(from, ends, call, reply));
        }
    }
}

impl Found {
    fn report(&self, name: &str, as_json: bool) -> Exit {
        if as_json && print_json(&self.json()).is_none() {
            return Exit::Failed;
        }
        for note in self.notes() {
            eprintln!("landfast: {name}: {note}");
        }
        if self.totals.calls_seen <= self.totals.tls_probes {
            eprintln!("landfast: {name}: {}", self.nothing());
            return Exit::Failed;
        }
        match self.print(as_json) {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                eprintln!("landfast: standard output: {e}");
                Exit::Failed
            }
            _ => Exit::Done,
        }
    }
}
