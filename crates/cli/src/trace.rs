//! `landfast trace`: what a capture of NFS traffic says of where the time goes.

use crate::args::TraceArgs;
use crate::exit::{Exit, print_json};
use crate::units::{show_bytes, show_count};
use landfast_client::archive;
use landfast_trace::listing;
use landfast_trace::skim::Program;
use landfast_trace::source::{Capture, End};
use landfast_trace::table::{Item, Place, Row, Table, seconds};
use landfast_trace::trace::{Call, Ends, Observer, Reply, Totals, Trace};
use serde_json::{Value, json};
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

const TITLES: &str =
    "Index  Procedure              Calls    Min SRT    Max SRT    Avg SRT    Sum SRT     Median   99th pct";

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

    fn print(&self, as_json: bool) -> io::Result<()> {
        if as_json || self.listed {
            return Ok(());
        }
        let mut out = BufWriter::new(io::stdout().lock());
        let mut last = None;
        for (place, row) in self.table.rows().filter(|(place, _)| place.program == Program::Nfs) {
            if last != Some(place.version) {
                last = Some(place.version);
                let what = if place.version == 4 { ", COMPOUNDs by their main operation" } else { "" };
                writeln!(
                    out,
                    "NFS version {}: service response times in seconds{what}\n{TITLES}",
                    place.version
                )?;
            }
            writeln!(
                out,
                "{:5}  {:<22} {:6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
                place.index(),
                place.name(),
                row.calls,
                seconds(row.min_ns.into()),
                seconds(row.max_ns.into()),
                seconds(row.avg_ns().into()),
                seconds(row.sum_ns),
                seconds(row.percentile_ns(50.0).into()),
                seconds(row.percentile_ns(99.0).into()),
            )?;
        }
        let t = &self.totals;
        writeln!(
            out,
            "\n{} of {} calls matched with their replies; {} sent again; {} TCP segments sent again",
            show_count(t.calls_matched),
            show_count(t.calls_seen),
            show_count(t.repeated_calls),
            show_count(t.tcp.retransmitted),
        )?;
        out.flush()
    }

    /// What a reader of the numbers has to know.
    fn notes(&self) -> Vec<String> {
        let t = &self.totals;
        let mut notes = Vec::new();
        match self.end {
            End::Whole => {}
            End::CutOff => notes.push("the capture is cut off in the middle of a frame; what is before it counts".into()),
            End::Damaged(at) => notes.push(format!(
                "the capture is damaged at byte {at} (of what it is when not compressed); what is before it counts"
            )),
        }
        if t.tcp.holes > 0 {
            notes.push(format!(
                "{} holes in the capture, {} in all: frames that were on the wire are not in it",
                show_count(t.tcp.holes),
                show_bytes(t.tcp.hole_bytes)
            ));
        }
        if t.cut_frames > 0 && t.calls_seen > 0 {
            notes.push(format!(
                "{} frames were cut short when captured: times of messages of several segments are those of the first segment",
                show_count(t.cut_frames)
            ));
        }
        if t.encrypted_calls > 0 {
            notes.push(format!(
                "{} calls are encrypted (krb5p): of these only the procedure is known",
                show_count(t.encrypted_calls)
            ));
        }
        if self.table.operations_unknown() > t.encrypted_calls {
            notes.push(format!(
                "of {} COMPOUNDs the main operation was not captured: capture 512 bytes of each frame or all (tcpdump -s 0)",
                show_count(self.table.operations_unknown() - t.encrypted_calls)
            ));
        }
        if t.tls_probes > 0 && t.calls_seen > t.tls_probes {
            notes.push("connections that turned to TLS (RPC over TLS) cannot be read".into());
        }
        if t.forgotten > 0 {
            notes.push(format!(
                "{} connections were too many to follow to their ends",
                show_count(t.forgotten)
            ));
        }
        notes
    }

    /// Why there is no table.
    fn nothing(&self) -> String {
        let t = &self.totals;
        if t.tls_probes > 0 {
            return "no NFS that can be read: the connections turned to TLS (RPC over TLS); capture inside of the tunnel's ends, or without it".into();
        }
        let mut seen =
            format!("{} frames, {} TCP connections", show_count(t.frames), show_count(t.connections));
        for (why, n) in &t.passed {
            seen.push_str(&format!(", {} frames {}", show_count(*n), why.words()));
        }
        if self.strange > 0 {
            seen.push_str(&format!(", {} frames that no interface is given for", show_count(self.strange)));
        }
        format!(
            "no calls to NFS in it ({seen}); capture with tcpdump -s 0 -w FILE host SERVER while the work runs"
        )
    }

    fn json(&self) -> Value {
        let t = &self.totals;
        let passed: serde_json::Map<_, _> =
            t.passed.iter().map(|(why, n)| (why.words().to_owned(), json!(n))).collect();
        json!({
            "procedures": self.table.rows().map(|(place, row)| procedure(place, row)).collect::<Vec<_>>(),
            "calls_seen": t.calls_seen,
            "calls_matched": t.calls_matched,
            "calls_unmeasured": t.calls_unmeasured,
            "calls_repeated": t.repeated_calls,
            "replies_repeated": t.repeated_replies,
            "replies_stray": t.stray_replies,
            "calls_encrypted": t.encrypted_calls,
            "calls_of_other_programs": t.other_calls,
            "compounds_of_unknown_operation": self.table.operations_unknown(),
            "tls_probes": t.tls_probes,
            "capture": {
                "end": match self.end { End::Whole => "whole", End::CutOff => "cut off", End::Damaged(_) => "damaged" },
                "frames": t.frames,
                "frames_cut_short": t.cut_frames,
                "frames_passed_over": passed,
                "seconds": t.span.map_or(0.0, |(from, to)| to.saturating_sub(from) as f64 / 1e9),
                "connections": t.connections,
                "connections_with_rpc": t.rpc_connections,
                "connections_forgotten": t.forgotten,
                "segments_retransmitted": t.tcp.retransmitted,
                "segments_early": t.tcp.early,
                "holes": t.tcp.holes,
                "hole_bytes": t.tcp.hole_bytes,
                "out_of_step": t.out_of_step,
            },
        })
    }
}

fn procedure(place: &Place, row: &Row) -> Value {
    let s = |ns: f64| ns / 1e9;
    json!({
        "program": place.program.name(),
        "version": place.version,
        "index": place.index(),
        "name": place.name(),
        "main_operation": matches!(place.item, Item::Operation(_)),
        "calls": row.calls,
        "min_s": s(row.min_ns as f64),
        "max_s": s(row.max_ns as f64),
        "avg_s": s(row.sum_ns as f64 / row.calls.max(1) as f64),
        "sum_s": s(row.sum_ns as f64),
        "median_s": s(row.percentile_ns(50.0) as f64),
        "p99_s": s(row.percentile_ns(99.0) as f64),
    })
}
