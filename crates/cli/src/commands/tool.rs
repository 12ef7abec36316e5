//! What all commands share: messages as GNU's, output, statistics, and what an interruption does.

use super::ask::Answers;
use super::common::Common;
use super::operand::{Operand, Place, Servers};
use super::quote;
use crate::exit::Exit;
use crate::progress;
use crate::say;
use crate::signals::stop_after_what_is_under_way;
use crate::units::show_count;
use landfast_client::resume::Resume;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Bytes of output that are collected before they are written.
const OUTPUT_BYTES: usize = 64 << 10;

/// One run of a command.
pub struct Tool {
    /// What it is called in messages.
    pub name: &'static str,
    common: Common,
    /// Where the trees are.
    pub servers: Servers,
    start: Instant,
    worst: Cell<Exit>,
    failures: Cell<u64>,
    /// Objects that earlier runs did, with a journal.
    resumed: Cell<Option<u64>>,
    out: Vec<u8>,
    stopped: Arc<AtomicBool>,
    /// The same for those who wait for it; `None`: nobody listens to signals yet.
    stop: RefCell<Option<watch::Receiver<bool>>>,
    answers: Arc<Answers>,
    /// Ends the process at the first signal, until [`Tool::stop_on_signals`].
    planning: RefCell<Option<JoinHandle<()>>>,
}

/// Runs a command's work; afterwards come the statistics.
pub fn run<F: Future<Output = Tool>>(
    name: &'static str,
    common: Common,
    work: impl FnOnce(Tool) -> F,
) -> Exit {
    say::speak_as(Some(name));
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("{name}: cannot start threads: {e}");
            return Exit::Failed;
        }
    };
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
    let exit = runtime.block_on(async { work(tool).await.end().await });
    say::flush();
    say::speak_as(None);
    exit
}

impl Tool {
    /// Whether output is for programs.
    pub fn json(&self) -> bool {
        self.common.json
    }

    /// Set when a signal has come.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stopped.clone()
    }

    /// Whom to ask, as long as no signal has come.
    pub fn answers(&self) -> Arc<Answers> {
        self.answers.clone()
    }

    /// So many failures were told by somebody else.
    pub fn count_failures(&self, failures: u64) {
        if failures > 0 {
            self.failures.set(self.failures.get() + failures);
            self.worst.set(self.worst.get().max(Exit::Partly));
        }
    }

    /// Says what went wrong; the command goes on and ends with status 1.
    pub fn complain(&self, what: &str) {
        self.complain_as(what, Exit::Partly);
    }

    /// The same with another status.
    pub fn complain_as(&self, what: &str, exit: Exit) {
        self.failures.set(self.failures.get() + 1);
        self.worst.set(self.worst.get().max(exit));
        eprintln!("{}: {what}", self.name);
    }

    /// The command ends with this status, or a worse one; what there is to say was said.
    pub fn note(&self, exit: Exit) {
        self.failures.set(self.failures.get() + u64::from(exit != Exit::Done));
        self.worst.set(self.worst.get().max(exit));
    }

    /// How many failures were told so far.
    pub fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// So many objects more were done by earlier runs; 0: there is a journal.
    pub fn count_resumed(&self, objects: u64) {
        self.resumed.set(Some(self.resumed.get().unwrap_or(0) + objects));
    }

    /// The end of a journal, if there is one. What is wrong with it is said; what was done is done all the same.
    pub fn close(&self, journal: Option<&Resume>) {
        let whole = self.failures() == 0 && !self.stopped();
        if let Some(Err(why)) = journal.map(|journal| journal.close(whole)) {
            eprintln!("{}: {why}", self.name);
        }
    }

    /// Understands operands and connects to their servers. What cannot be reached is told (as `what`, such as `cannot
    /// remove`) and left out.
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

    /// Lines for standard output; a terminal gets them escaped.
    pub fn print(&mut self, lines: &[u8]) {
        self.print_raw(&say::for_stdout(lines));
    }

    /// Bytes for standard output as they are: contents of files, and formats that a user gave.
    pub fn print_raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        if self.out.len() >= OUTPUT_BYTES {
            self.flush();
        }
    }

    /// One JSON object on a line.
    pub fn print_object(&mut self, object: &Value) {
        let line = format!("{object}\n");
        self.print(say::json(&line).as_bytes());
    }

    /// Writes out what is collected. A command that only reads ends when nobody takes it; one that changes something does all
    /// of its work first.
    pub fn flush(&mut self) {
        // Escaped when it came.
        let mut out = say::raw();
        let written = progress::apart(|| out.write_all(&self.out).and_then(|()| out.flush()));
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

    /// How a command ends whose output went to a full disk, as GNU's.
    fn status_when_full(&self) -> Exit {
        match self.name {
            "ls" | "tar" | "diff-tree" | "sync-tree" => Exit::Failed,
            _ => Exit::Partly,
        }
    }

    /// Until [`Tool::stop_on_signals`] SIGINT ends the process, as it does anyway, with these words.
    pub fn changes_nothing_yet(&self) {
        let name = self.name;
        let waiting = tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                progress::end();
                eprintln!("{name}: interrupted before anything was sent");
                std::process::exit(130);
            }
        });
        self.planning.replace(Some(waiting));
    }

    /// From here on the first SIGINT or SIGTERM lets what is under way end and begins nothing new; a second one ends the
    /// process, and so does a server that does not respond. To be called again when there are further servers. Tells when that has come.
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

    /// Listens to signals.
    fn listen(&self) -> watch::Receiver<bool> {
        let (stop, coming) = watch::channel(false);
        let (stopped, answers) = (self.stopped.clone(), self.answers.clone());
        stop_after_what_is_under_way(self.name, move || {
            stopped.store(true, Ordering::Release);
            stop.send_replace(true);
            answers.stop();
        });
        coming
    }

    /// Whether a signal has come.
    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// The command is done: `objects` of `what` (such as `removed`) in all.
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
                &format!("interrupted: {} {what}, nothing of the rest was begun", show_count(objects)),
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
