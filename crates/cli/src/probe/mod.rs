//! `landfast probe`: measures a live server.

pub mod args;
mod print;

use crate::exit::{Exit, failed, ok_or_print, print_json};
use crate::progress::spinner;
use crate::signals::stop_on_signals;
use args::ProbeArgs;
use indicatif::ProgressBar;
use landfast_probe::progress::Progress;
use landfast_probe::{Error, Options};
use landfast_verify::Target;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub fn run(args: &ProbeArgs) -> Exit {
    let Some(target) = ok_or_print(args.url.parse::<Target>()) else { return Exit::Failed };
    let stop = Arc::new(AtomicBool::new(false));
    if let Err(e) = stop_on_signals(stop.clone()) {
        return failed(e);
    }
    let options = Options { count: args.count, time: Duration::from_secs_f64(args.seconds) };
    let display = Display { bar: spinner() };
    let result = landfast_probe::run(&target, &options, &stop, &display);
    display.bar.finish_and_clear();
    let report = match result {
        Ok(report) => report,
        Err(Error::Interrupted) => {
            eprintln!("landfast: {}: interrupted, nothing was measured", args.url);
            return Exit::Interrupted;
        }
        Err(e) => return failed(e),
    };
    if args.json {
        return print_json(&report);
    }
    // A failure to write shows in the exit status.
    let _ = print::print(&report, crate::say::stdout());
    Exit::Done
}

struct Display {
    bar: ProgressBar,
}

impl Progress for Display {
    fn doing(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.bar.tick();
    }

    fn notice(&self, what: &str) {
        self.bar.suspend(|| eprintln!("landfast: {what}"));
    }
}
