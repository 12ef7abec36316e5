//! `landfast trace`: finds in a capture of NFS traffic where the time goes.

mod anonymise;
mod answer;
pub mod args;
mod compare;
mod fail_if;
mod input;
mod json;
mod live;
mod look;
mod mountstats;
mod notes;
mod print;
mod report;
mod results;
#[allow(unsafe_code)]
mod sys;

pub use mountstats::bound_words;

use crate::exit::{Exit, failed, ok_or_print, print_json};
use crate::page::place::Place;
use crate::say;
use args::TraceArgs;
use fail_if::FailIf;
use results::Results;
use std::path::Path;

pub fn run(args: &TraceArgs) -> Exit {
    if args.mountstats {
        return mountstats::run(args);
    }
    let name = match &args.interface {
        Some(interface) => interface.clone(),
        None => crate::input::name(&args.file),
    };
    let captures: Vec<&Path> =
        [Some(&args.file), args.merge.as_ref()].into_iter().flatten().map(|p| &**p).collect();
    let place = args.report.as_deref().map(|path| Place::prepare(path, &captures)).transpose();
    let Some(place) = ok_or_print(place) else { return Exit::Failed };
    if let Some(out) = &args.anonymise {
        return anonymise::run(&args.file, out, &name);
    }
    if let Some(before) = &args.compare {
        return compare::run(args, before, &name);
    }
    match look::look(args) {
        Ok(found) => {
            if let Some(place) = place
                && let Err(e) = place.write(&found.page(&both(&name, args.merge.as_deref())))
            {
                return failed(e);
            }
            found.report(&name, args)
        }
        // Writing the listing has failed: the exit status tells.
        Err(_) if say::is_closed() || say::is_full() => Exit::Done,
        Err(e) => failed(format!("{name}: {e}")),
    }
}

fn both(name: &str, other: Option<&Path>) -> String {
    other.map_or_else(|| name.to_owned(), |other| format!("{name} and {}", other.display()))
}

impl Results {
    fn report(&self, name: &str, args: &TraceArgs) -> Exit {
        let as_json = args.json;
        if as_json && print_json(&self.json()) != Exit::Done {
            return Exit::Failed;
        }
        for note in self.notes() {
            eprintln!("landfast: {name}: {note}");
        }
        let t = &self.totals;
        let seen = t.calls_seen + if self.named { t.other_calls } else { 0 };
        if seen <= t.tls_probes {
            return failed(format!("{name}: {}", self.nothing()));
        }
        // A failure to write shows in the exit status.
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
