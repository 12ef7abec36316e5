//! Shared by all commands: messages in GNU's form, output, statistics, and what an interruption does.

use super::ask::Answers;
use super::common::Common;
use super::operand::{Operand, Place, Servers};
use super::quote;
use crate::exit::{Exit, runtime};
use crate::progress;
use crate::say;
use crate::signals::{INTERRUPTED, stop_gracefully};
use crate::units::show_count;
use landfast_client::resume::Resume;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Output is collected up to this many bytes.
const OUTPUT_BYTES: usize = 64 << 10;

pub struct Tool {
    pub name: &'static str,
    common: Common,
    pub servers: Servers,
    start: Instant,
    worst: Cell<Exit>,
    failures: Cell<u64>,
    /// With a journal: how many objects earlier runs have done.
    resumed: Cell<Option<u64>>,
    out: Vec<u8>,
    stopped: Arc<AtomicBool>,
    /// The same flag for tasks that wait for it; `None`: no signal handler yet.
    stop: RefCell<Option<watch::Receiver<bool>>>,
    answers: Arc<Answers>,
    /// Ends the process at the first signal, until [`Tool::stop_on_signals`].
    planning: RefCell<Option<JoinHandle<()>>>,
}

/// Runs a command, then prints the statistics.
pub fn run<F: Future<Output = Tool>>(
    name: &'static str,
    common: Common,
    work: impl FnOnce(Tool) -> F,
) -> Exit {
    say::report_failures_as(Some(name));
    let Some(runtime) = runtime() else { return Exit::Failed };
    let tool = Tool {
        name,
        common,
        servers: Servers::new(common.timeout),
        start: Instant::now(),
        worst: Cell::new(Exit::Done),
        failures: Cell::new(0),
        resumed: Cell::new(None),
        out: Vec::with_capacity(OUTPUT_BYTES),
        stopped: Arc::default(),
        stop: RefCell::default(),
        answers: Arc::default(),
        planning: RefCell::default(),
    };
    // On the heap: the runtime would compile the whole command once for each of its schedulers.
    let work: Pin<Box<dyn Future<Output = _>>> = Box::pin(async { work(tool).await.end().await });
    let exit = runtime.block_on(work);
    say::flush();
    say::report_failures_as(None);
    exit
}

impl Tool {
    pub fn json(&self) -> bool {
        self.common.json
    }

    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stopped.clone()
    }

    pub fn answers(&self) -> Arc<Answers> {
        self.answers.clone()
    }

    /// Counts failures that were printed elsewhere.
    pub fn count_failures(&self, failures: u64) {
        if failures > 0 {
            self.failures.set(self.failures.get() + failures);
            self.worst.set(self.worst.get().max(Exit::Partly));
        }
    }

    /// Prints a failure. The command goes on and ends with status 1, or a worse one.
    pub fn complain(&self, what: &str) {
        self.complain_as(what, Exit::Partly);
    }

    pub fn complain_as(&self, what: &str, exit: Exit) {
        self.failures.set(self.failures.get() + 1);
        self.worst.set(self.worst.get().max(exit));
        eprintln!("{}: {what}", self.name);
    }

    /// Sets the exit status, unless it is worse already. Prints nothing.
    pub fn set_status(&self, exit: Exit) {
        self.failures.set(self.failures.get() + u64::from(exit != Exit::Done));
        self.worst.set(self.worst.get().max(exit));
    }

    pub fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// Counts objects that earlier runs have done; 0 says that there is a journal.
    pub fn count_resumed(&self, objects: u64) {
        self.resumed.set(Some(self.resumed.get().unwrap_or(0) + objects));
    }

    /// Closes the journal. A failure is printed, but changes nothing: the work was done.
    pub fn close(&self, journal: Option<&Resume>) {
        let whole = self.failures() == 0 && !self.stopped();
        if let Some(Err(why)) = journal.map(|journal| journal.close(whole)) {
            eprintln!("{}: {why}", self.name);
        }
    }

    /// Resolves operands and connects to their servers. One that fails is printed, beginning with `what` (such as
    /// `cannot remove`), and left out.
    pub async fn places(&mut self, urls: &[String], what: &str, exit: Exit) -> Vec<(Operand, Place)> {
        let mut all = Vec::with_capacity(urls.len());
        for text in urls {
            let operand = match Operand::parse(text) {
                Ok(operand) => operand,
                Err(e) => {
                    self.complain_as(&e.to_string(), exit);
                    continue;
                }
            };
            match self.servers.place(&operand).await {
                Ok(place) => all.push((operand, place)),
                Err(e) => {
                    self.complain_as(&format!("{what} {}: {e}", quote::shown(text.as_bytes())), exit);
                }
            }
        }
        all
    }

    pub async fn place(&mut self, url: &str) -> Result<(Operand, Place), String> {
        let operand = Operand::parse(url).map_err(|e| e.to_string())?;
        let place = self.servers.place(&operand).await.map_err(|e| format!("{}: {e}", operand.shown))?;
        Ok((operand, place))
    }

    /// Prints lines; they are escaped for a terminal.
    pub fn print(&mut self, lines: &[u8]) {
        self.print_raw(&say::for_stdout(lines));
    }

    /// Prints bytes unchanged: contents of files, and formats of the user.
    pub fn print_raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        if self.out.len() >= OUTPUT_BYTES {
            self.flush();
        }
    }

    pub fn print_object(&mut self, object: &Value) {
        let line = format!("{object}\n");
        self.print(say::json(&line).as_bytes());
    }

    /// Writes the collected output. If nobody reads it, a command that only reads ends the process; one that changes something goes on.
    pub fn flush(&mut self) {
        // It was escaped when it was collected.
        let mut out = say::raw();
        let written = progress::without_bar(|| out.write_all(&self.out).and_then(|()| out.flush()));
        self.out.clear();
        if written.is_err() && !matches!(self.name, "cp" | "rm" | "mkdir" | "tar" | "sync-tree") {
            let status = match (say::is_full(), self.status_when_full()) {
                (false, _) => say::ENDED_BY_PIPE.into(),
                (true, Exit::Failed) => 2,
                (true, _) => 1,
            };
            progress::end();
            std::process::exit(status);
        }
    }

    /// The status of the GNU tool for output on a full disk.
    fn status_when_full(&self) -> Exit {
        match self.name {
            "ls" | "tar" | "diff-tree" | "sync-tree" => Exit::Failed,
            _ => Exit::Partly,
        }
    }

    /// Until [`Tool::stop_on_signals`] SIGINT ends the process at once, with a message.
    pub fn exit_on_interrupt(&self) {
        let name = self.name;
        let waiting = tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                progress::end();
                eprintln!("{name}: interrupted before anything was changed");
                std::process::exit(INTERRUPTED);
            }
        });
        self.planning.replace(Some(waiting));
    }

    /// From here on the first SIGINT or SIGTERM lets requests in flight finish and starts no new ones; a second one
    /// ends the process, and so does a server that does not respond. Call it again after connecting to further
    /// servers. The receiver becomes true at the first signal.
    pub fn stop_on_signals(&self) -> watch::Receiver<bool> {
        if let Some(planning) = self.planning.take() {
            planning.abort();
        }
        let stop = self.stop.borrow_mut().get_or_insert_with(|| self.listen()).clone();
        for tree in self.servers.trees() {
            let (tree, mut stop) = (tree.clone(), stop.clone());
            tokio::spawn(async move {
                if stop.wait_for(|stop| *stop).await.is_ok() {
                    tree.stop();
                }
            });
        }
        stop
    }

    fn listen(&self) -> watch::Receiver<bool> {
        let (stop, coming) = watch::channel(false);
        let (stopped, answers) = (self.stopped.clone(), self.answers.clone());
        stop_gracefully(self.name, move || {
            stopped.store(true, Ordering::Release);
            stop.send_replace(true);
            answers.stop();
        });
        coming
    }

    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Prints the summary: `objects` in all were `what` (such as `removed`).
    pub fn summary(&mut self, what: &str, objects: u64) {
        let rpcs = self.servers.rpcs();
        let (sent, received) = self.servers.bytes();
        let seconds = self.start.elapsed().as_secs_f64();
        let each = rpcs as f64 / objects.max(1) as f64;
        if self.json() {
            let mut summary = json!({
                what: objects,
                "failures": self.failures.get(),
                "interrupted": self.stopped(),
                "rpcs": rpcs,
                "rpcs_each": each,
                "bytes_sent": sent,
                "bytes_received": received,
                "seconds": seconds,
            });
            if let Some(resumed) = self.resumed.get() {
                summary["resumed"] = resumed.into();
            }
            self.print_object(&json!({ "summary": summary }));
        }
        self.flush();
        if self.stopped() {
            self.complain_as(
                &format!("interrupted: {} {what}; the rest was not started", show_count(objects)),
                Exit::Interrupted,
            );
        }
        if self.common.rpc_counts {
            let before = self.resumed.get().filter(|n| *n > 0);
            let before = before.map(|n| format!(" ({} before)", show_count(n))).unwrap_or_default();
            eprintln!(
                "{}: {} {what}{before} in {seconds:.2} s: {} RPCs, {each:.3} RPCs each",
                self.name,
                show_count(objects),
                show_count(rpcs),
            );
        }
    }

    async fn end(mut self) -> Exit {
        self.flush();
        let worst = self.worst.get().max(if say::is_full() { self.status_when_full() } else { Exit::Done });
        self.servers.close().await;
        worst
    }
}
