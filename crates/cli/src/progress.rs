//! Progress on standard error, if that is a terminal.
//!
//! One bar is drawn at a time. Everything that [`crate::say`] prints goes through [`without_bar`], which clears the bar
//! before the output and draws it again after it, so that no line is mixed with the bar.

use crate::units::{show_bytes, show_count};
use indicatif::{ProgressBar, ProgressStyle};
use landfast_client::trees::OnProgress;
use parking_lot::Mutex;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

thread_local! {
    /// Set while the bar is cleared and this thread writes.
    static BAR_CLEARED: Cell<bool> = const { Cell::new(false) };
}

fn current() -> Option<ProgressBar> {
    let bar = BAR.lock().clone();
    bar.filter(|bar| !bar.is_finished() && !bar.is_hidden())
}

/// Calls `write` while the bar is cleared. Nested calls are allowed.
pub fn without_bar<T>(write: impl FnOnce() -> T) -> T {
    if BAR_CLEARED.get() {
        return write();
    }
    let Some(bar) = current() else { return write() };
    bar.suspend(|| {
        BAR_CLEARED.set(true);
        let done = write();
        BAR_CLEARED.set(false);
        done
    })
}

pub fn end() {
    if let Some(bar) = current().filter(|_| !BAR_CLEARED.get()) {
        bar.finish_and_clear();
    }
}

/// A [`Counter`] is drawn after this time: a quick command shows none.
const DRAWN_AFTER: Duration = Duration::from_millis(500);
const DRAWN_EVERY: Duration = Duration::from_millis(100);

pub struct Counter {
    what: &'static str,
    total: Option<u64>,
    shows: bool,
    start: Instant,
    /// The count, and when it was last drawn.
    done: Mutex<(u64, Instant)>,
    bar: OnceLock<ProgressBar>,
}

impl Counter {
    /// `what`: what happens to the objects, such as `removed`. `prints`: the command writes lines to standard output.
    /// If that is a pipe, its reader may be a pager that owns the terminal: then nothing is drawn.
    pub fn new(what: &'static str, total: Option<u64>, prints: bool) -> Counter {
        let (shows, start) = (io::stderr().is_terminal() && !(prints && into_a_pipe()), Instant::now());
        Counter { what, total, shows, start, done: Mutex::new((0, start)), bar: OnceLock::new() }
    }

    pub fn more(&self, objects: u64) {
        if self.shows {
            let mut done = self.done.lock();
            done.0 += objects;
            self.draw(&mut done);
        }
    }

    /// The counter as a callback for the library.
    pub fn heard(self) -> OnProgress {
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

/// Whether standard output goes to a program, which may own the terminal.
fn into_a_pipe() -> bool {
    let own = io::stdout().as_fd().try_clone_to_owned();
    let kind = own.and_then(|own| File::from(own).metadata()).map(|meta| meta.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket())
}

/// A spinner on standard error; hidden if that is not a terminal.
pub fn spinner() -> ProgressBar {
    if io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() }
}

/// A spinner with the current step, and a line for each step that is done.
pub struct Steps {
    bar: ProgressBar,
}

impl Steps {
    pub fn new() -> Steps {
        let bar = spinner();
        bar.enable_steady_tick(Duration::from_millis(100));
        Steps { bar }
    }

    pub fn doing(&mut self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    pub fn done(&mut self, what: &str) {
        self.bar.println(format!("  {what}"));
    }

    pub fn finish(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A bar for the bytes of an archive, or a hidden one if standard error is not a terminal.
pub fn bytes_bar(total: Option<u64>) -> ProgressBar {
    if io::stderr().is_terminal() { drawn_bar(total) } else { ProgressBar::hidden() }
}

/// A bar up to `total`, or a spinner if that is not known.
fn drawn_bar(total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        // What does not fit into the terminal's width is cut off.
        Some(n) => (ProgressBar::new(n), "{bar:14} {percent:>3}% {eta:>3} left {wide_msg}"),
        None => (ProgressBar::new_spinner(), "{spinner} {elapsed:>4} {wide_msg}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    *BAR.lock() = Some(bar.clone());
    bar
}

/// The message of a bar: what is durable, and how many members a second since `start`.
pub fn stable(members: u64, bytes: u64, start: Instant, resumed: u64) -> String {
    let rate = members as f64 / start.elapsed().as_secs_f64().max(1e-3);
    let (count, rate) = (show_count(members), show_count(rate as u64));
    format!("{count} stable ({}), {rate}/s{}", show_bytes(bytes), before(resumed))
}

/// The part of the message about earlier runs.
pub fn before(resumed: u64) -> String {
    if resumed == 0 { String::new() } else { format!(", {} done before", show_count(resumed)) }
}
