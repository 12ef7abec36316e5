//! What people see while they wait: on a terminal only, on standard error.

use crate::units::show_count;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The bar that was made last.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Writes what does not come from the work itself, without tearing a bar.
pub fn apart(write: impl FnOnce()) {
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar.filter(|bar| !bar.is_finished()) {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// A spinner with what is being done, and a line for each thing that is done.
pub struct Steps {
    bar: ProgressBar,
}

impl Steps {
    /// Hidden when standard error is not a terminal.
    pub fn new() -> Steps {
        let bar =
            if std::io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        bar.enable_steady_tick(Duration::from_millis(100));
        Steps { bar }
    }

    /// Says what is being done.
    pub fn doing(&mut self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Leaves a line.
    pub fn done(&mut self, what: &str) {
        self.bar.println(format!("  {what}"));
    }

    /// Takes the spinner away.
    pub fn finish(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A bar over bytes of the archive, with files and files per second as its message.
pub fn bytes_bar(total: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match total {
        // What does not fit into the terminal's width is cut off.
        Some(n) => (ProgressBar::new(n), "{bar:14} {percent:>3}% {eta:>3} left {wide_msg}"),
        None => (ProgressBar::new_spinner(), "{spinner} {elapsed:>4} {wide_msg}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    *BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
    bar
}

/// What a bar says of what earlier runs did.
pub fn before(resumed: u64) -> String {
    if resumed == 0 { String::new() } else { format!(", {} done before", show_count(resumed)) }
}
