//! What people see while they wait: on a terminal only, on standard error.
//!
//! One bar is drawn at a time. All that [`crate::say`] prints goes through [`apart`], which clears the bar before it and draws it again
//! behind it, so that no line is mixed with it, whichever of both outputs it goes to.

use crate::units::{show_bytes, show_count};
use indicatif::{ProgressBar, ProgressStyle};
use landfast_client::fs::{Listing, Outcome};
use landfast_client::trees::Heard;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The bar that was made last.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

thread_local! {
    /// The bar is cleared, and this thread writes.
    static APART: Cell<bool> = const { Cell::new(false) };
}

fn current() -> Option<ProgressBar> {
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).clone();
    bar.filter(|bar| !bar.is_finished() && !bar.is_hidden())
}

/// Writes without tearing a bar. What is written inside of this may be written apart, too.
pub fn apart<T>(write: impl FnOnce() -> T) -> T {
    if APART.get() {
        return write();
    }
    let Some(bar) = current() else { return write() };
    bar.suspend(|| {
        APART.set(true);
        let done = write();
        APART.set(false);
        done
    })
}

/// Clears the bar for good, as before the process ends.
pub fn end() {
    if let Some(bar) = current().filter(|_| !APART.get()) {
        bar.finish_and_clear();
    }
}

/// How long a [`Counter`] waits before it is drawn: what is quicker leaves no trace.
const DRAWN_AFTER: Duration = Duration::from_millis(500);
/// How often it is drawn.
const DRAWN_EVERY: Duration = Duration::from_millis(100);

/// Counts what a command does, on a terminal.
pub struct Counter {
    what: &'static str,
    /// How many there are in all, if that is known.
    total: Option<u64>,
    shows: bool,
    start: Instant,
    /// How many are done, and when that was last drawn.
    done: Mutex<(u64, Instant)>,
    bar: OnceLock<ProgressBar>,
}

impl Counter {
    /// Of objects that are `what` (such as `removed`). `prints`: the command's lines go to standard output; if that is a pipe, its
    /// reader may be a pager that has the terminal to itself, and nothing is drawn.
    pub fn new(what: &'static str, total: Option<u64>, prints: bool) -> Counter {
        let (shows, start) = (io::stderr().is_terminal() && !(prints && into_a_pipe()), Instant::now());
        Counter { what, total, shows, start, done: Mutex::new((0, start)), bar: OnceLock::new() }
    }

    fn done(&self) -> MutexGuard<'_, (u64, Instant)> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many more are done.
    pub fn more(&self, objects: u64) {
        if self.shows {
            let mut done = self.done();
            done.0 += objects;
            self.draw(&mut done);
        }
    }

    /// What a directory of a server's holds was listed.
    pub fn listed(&self, listing: &Listing) {
        if let Outcome::Committed(entries) = &listing.entries {
            self.more(entries.len() as u64);
        }
    }

    /// For a library, which counts with it for as long as it is needed.
    pub fn heard(self) -> Heard {
        Arc::new(move |objects| self.more(objects))
    }

    fn draw(&self, (done, drawn): &mut (u64, Instant)) {
        let now = Instant::now();
        let waited = now - self.start;
        if waited < DRAWN_AFTER || self.bar.get().is_some() && now - *drawn < DRAWN_EVERY {
            return;
        }
        *drawn = now;
        let bar = self.bar.get_or_init(|| drawn_bar(self.total).with_elapsed(waited));
        let rate = show_count((*done as f64 / waited.as_secs_f64()) as u64);
        let of = self.total.map(|total| format!(" of {}", show_count(total))).unwrap_or_default();
        bar.set_position(*done);
        bar.set_message(format!("{}{of} {}, {rate}/s", show_count(*done), self.what));
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}

/// Whether somebody reads standard output who need not be the terminal.
fn into_a_pipe() -> bool {
    let own = io::stdout().as_fd().try_clone_to_owned();
    let kind = own.and_then(|own| File::from(own).metadata()).map(|meta| meta.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket())
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
    drawn_bar(total)
}

/// A bar over what there is in all, or a spinner where that is not known.
fn drawn_bar(total: Option<u64>) -> ProgressBar {
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

/// What a bar says of what is on stable storage, and how quickly it came there since `start`.
pub fn stable(members: u64, bytes: u64, start: Instant, resumed: u64) -> String {
    let rate = members as f64 / start.elapsed().as_secs_f64().max(1e-3);
    let (count, rate) = (show_count(members), show_count(rate as u64));
    format!("{count} stable ({}), {rate}/s{}", show_bytes(bytes), before(resumed))
}

/// What a bar says of what earlier runs did.
pub fn before(resumed: u64) -> String {
    if resumed == 0 { String::new() } else { format!(", {} done before", show_count(resumed)) }
}
