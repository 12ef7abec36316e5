//! `landfast probe`: a live server, measured from here.

pub mod args;
mod print;

use crate::exit::{Exit, complain, print_json, told};
use args::ProbeArgs;
use indicatif::ProgressBar;
use landfast_probe::run::Teller;
use landfast_probe::{Error, Options};
use landfast_verify::Target;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Runs it.
pub fn run(args: &ProbeArgs) -> Exit {
    let Some(target) = told(args.url.parse::<Target>()) else { return Exit::Failed };
    let stop = Arc::new(AtomicBool::new(false));
    if let Err(e) = crate::signals::stop_on_signals(stop.clone()) {
        eprintln!("landfast: cannot wait for signals: {e}");
        return Exit::Failed;
    }
    let options = Options { count: args.count, time: Duration::from_secs_f64(args.seconds) };
    let tell = Tell { bar: io::stderr().is_terminal().then(ProgressBar::new_spinner) };
    let result = landfast_probe::run(&target, &options, &stop, &tell);
    if let Some(bar) = &tell.bar {
        bar.finish_and_clear();
    }
    let report = match result {
        Ok(report) => report,
        Err(Error::Interrupted) => {
            eprintln!("landfast: {}: interrupted; nothing was measured", args.url);
            return Exit::Interrupted;
        }
        Err(e) => {
            complain(&e);
            return Exit::Failed;
        }
    };
    if args.json {
        return print_json(&report).map_or(Exit::Failed, |()| Exit::Done);
    }
    // What did not arrive shows in the exit status.
    let _ = print::print(&report, crate::say::stdout());
    Exit::Done
}

struct Tell {
    bar: Option<ProgressBar>,
}

impl Teller for Tell {
    fn doing(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
            bar.tick();
        }
    }

    fn notice(&self, what: &str) {
        let say = || eprintln!("landfast: {what}");
        match &self.bar {
            Some(bar) => bar.suspend(say),
            None => say(),
        }
    }
}
