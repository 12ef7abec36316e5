//! `landfast log`: prints, checks, prepares and resizes logs.

pub mod args;
mod salvage;

use crate::exit::{Exit, failed, ok_or_print, print_json};
use crate::say;
use crate::units::{show_bytes, show_count};
use args::{LogArgs, LogCommand};
use landfast_volume::log::{self, Contents};
use landfast_volume::record::Record;
use serde_json::json;
use std::io::{BufWriter, Write};
use std::path::Path;

pub fn run(command: &LogCommand) -> Exit {
    match command {
        LogCommand::Create(args) => {
            ok_or_print(log::create(&args.path, args.size)).map_or(Exit::Failed, |made| {
                println!("{made}");
                Exit::Done
            })
        }
        LogCommand::Resize(args) => {
            ok_or_print(log::resize(&args.path, args.size)).map_or(Exit::Failed, |(before, after)| {
                println!("{}: {}, was {}", args.path.display(), show_bytes(after), show_bytes(before));
                Exit::Done
            })
        }
        LogCommand::Info(args) => info(args),
        LogCommand::Check(args) => check(args),
        LogCommand::Dump(args) => dump(args),
        LogCommand::Salvage(args) => salvage::run(args),
    }
}

fn info(args: &LogArgs) -> Exit {
    let log = match log::open(&args.path) {
        Ok(log) => log,
        Err(e) => return refused(e),
    };
    let found = match log::contents(&log) {
        Ok(found) => found,
        Err(e) => return refused(e),
    };
    warn(&log);
    if args.json {
        return print_json(&found);
    }
    say(&args.path, &found);
    Exit::Done
}

/// Exit status 1: the log is damaged. 2: that cannot be determined, or it is not for this program.
fn refused(e: log::OpenError) -> Exit {
    let damaged = matches!(e, log::OpenError::Corrupt { .. });
    failed(e);
    if damaged { Exit::Partly } else { Exit::Failed }
}

fn warn(log: &log::Inspected) {
    if let Some(warning) = log.warning() {
        eprintln!("landfast: {warning}");
    }
}

fn say(path: &Path, c: &Contents) {
    println!("{}: {}", path.display(), show_bytes(c.bytes));
    println!("  on              {}", c.device);
    let Some(log) = &c.log else {
        println!("  never used");
        return;
    };
    println!("  format version  {}", log.version);
    println!("  log             {}", log.log_id);
    println!("  volume          {}", log.volume_id);
    println!(
        "  stopped         {}",
        if log.clean { "cleanly" } else { "by a crash, or a server was killed" }
    );
    println!("  checkpoint      {}", show_count(log.checkpoint));
    println!(
        "  to be replayed  {} records in {} batches, {} of {}",
        show_count(log.records),
        show_count(log.batches),
        show_bytes(log.used),
        show_bytes(log.ring)
    );
}

/// Exit status 0: intact. 1: damaged. 2: that cannot be determined.
fn check(args: &LogArgs) -> Exit {
    let log = match log::open(&args.path) {
        Ok(log) => log,
        Err(e) => return refused(e),
    };
    warn(&log);
    match log::check(&log) {
        Ok(found) => {
            if args.json {
                return print_json(&found);
            }
            say(&args.path, &found);
            println!("  whole");
            Exit::Done
        }
        Err(e) => {
            failed(e);
            Exit::Partly
        }
    }
}

fn dump(args: &LogArgs) -> Exit {
    let Some(log) = ok_or_print(log::open(&args.path)) else { return Exit::Failed };
    let mut out = BufWriter::new(say::stdout());
    let mut written = Ok(());
    let walked = log.walk(|batch, records| {
        if written.is_ok() {
            written = put(&mut out, args.json, batch, &records);
        }
    });
    // The reader has stopped reading, as `head` does; the exit status tells.
    if written.and_then(|()| out.flush()).is_err() {
        return Exit::Done;
    }
    ok_or_print(walked).map_or(Exit::Partly, |_| Exit::Done)
}

fn put(out: &mut impl Write, json: bool, batch: &log::Batch, records: &[Vec<u8>]) -> std::io::Result<()> {
    if !json {
        let restart = if batch.restart { ", all before it is done" } else { "" };
        writeln!(
            out,
            "batch at {}: {} bytes, records {} to {}, after checkpoint {}{restart}",
            batch.offset, batch.bytes, batch.first_seq, batch.last_seq, batch.checkpoint
        )?;
    }
    for (seq, bytes) in (batch.first_seq..).zip(records) {
        match (Record::decode(bytes), json) {
            (Ok(record), true) => {
                let facts: Vec<String> = record.facts.iter().map(ToString::to_string).collect();
                let line = json!({ "record": seq, "transaction": record.seq, "batch": batch.offset, "facts": facts });
                writeln!(out, "{line}")?;
            }
            (Ok(record), false) => {
                writeln!(out, "  record {seq}, transaction {}", record.seq)?;
                for fact in &record.facts {
                    writeln!(out, "    {fact}")?;
                }
            }
            (Err(e), true) => {
                writeln!(out, "{}", json!({ "record": seq, "batch": batch.offset, "error": e.to_string() }))?;
            }
            (Err(e), false) => {
                writeln!(out, "  record {seq}: {} bytes that are not a record: {e}", bytes.len())?
            }
        }
    }
    Ok(())
}
