//! Processes that the lab starts from its own binary.
//!
//! An emulated disk must be a process of its own, and a measured server too. They are started as
//! `landfast lab child JSON`, a hidden command whose argument is a [`Role`]. A child dies with the
//! thread that started it, so that nothing is left over after a crash.

use crate::disk::DiskOptions;
use crate::error::{Context, Error, Result};
use crate::limits::{CHILD_LINES_MAX, READY_WAIT};
use crate::sys;
use parking_lot::Mutex;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process, set_parent_process_death_signal, waitid,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Role {
    Disk(DiskOptions),
    /// Another command of this binary, with these arguments, that ends with its parent.
    Run(Vec<String>),
    /// Another program, the first word, that ends with its parent.
    Program(Vec<String>),
    /// Makes a file of so many times this byte through a shared mapping.
    FillMapped {
        file: PathBuf,
        bytes: u64,
        with: u8,
    },
}

/// What stands in the argument: the role, and whose child this is.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    parent: u32,
    role: Role,
}

/// For another program that is the lab's own binary, as its tests are: does what `PROGRAM lab child JSON` asks, if it is that.
/// Must run before the process has a second thread.
pub fn if_asked(args: &[String]) -> Option<ExitCode> {
    let [_, lab, child, json] = args else { return None };
    if (lab.as_str(), child.as_str()) != ("lab", "child") {
        return None;
    }
    Some(match main(json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    })
}

/// The body of `landfast lab child JSON`. Must run before the process has a second thread.
pub fn main(json: &str) -> Result<()> {
    let order: Order = serde_json::from_str(json)
        .map_err(|e| Error::Unable(format!("`lab child` is for the lab's own use: {e}")))?;
    set_parent_process_death_signal(Some(Signal::KILL)).context(|| "death signal".to_owned())?;
    if std::os::unix::process::parent_id() != order.parent {
        // The parent went before the signal was set.
        return Err(Error::Child { role: "lab child", what: "nobody waits for it".into() });
    }
    match order.role {
        Role::Disk(options) => crate::disk::serve(&options),
        Role::FillMapped { file, bytes, with } => {
            sys::fill_mapped(&file, bytes, with).context(|| file.display().to_string())
        }
        // The death signal outlives exec.
        Role::Run(args) => {
            let e = Command::new(crate::machine::exe()?).args(args).exec();
            Err(Error::Child { role: "exec", what: e.to_string() })
        }
        Role::Program(words) => {
            let [program, args @ ..] = words.as_slice() else {
                return Err(Error::Unable("`lab child` was given no program".into()));
            };
            let e = Command::new(program).args(args).exec();
            Err(Error::Child { role: "exec", what: format!("{program}: {e}") })
        }
    }
}

/// A change of state of a child, which stays to be seen by others.
fn wait_id(pid: u32, what: WaitIdOptions) -> Option<WaitIdStatus> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    loop {
        match waitid(WaitId::Pid(pid), what) {
            Err(rustix::io::Errno::INTR) => {}
            done => return done.ok().flatten(),
        }
    }
}

/// What children said of panics, until somebody asks.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A panic has two lines: where it was, and why.
fn note_panic(role: &str, line: &str) {
    let mut panics = PANICS.lock();
    if panics.len() < CHILD_LINES_MAX {
        panics.push(format!("{role}: {line}"));
    }
}

/// What children said of panics since the last call, as far as their words are kept ([`Output::Keep`]).
pub fn take_panics() -> Vec<String> {
    std::mem::take(&mut *PANICS.lock())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Inherit,
    Keep,
}

/// A running child process; killed when dropped.
#[derive(Debug)]
pub struct Child {
    role: &'static str,
    process: std::process::Child,
    lines: Mutex<mpsc::Receiver<String>>,
    words: Arc<Mutex<VecDeque<String>>>,
    /// Who reads its standard error.
    listener: Option<std::thread::JoinHandle<()>>,
}

impl Child {
    /// Starts a child of this binary.
    pub fn start(role: &'static str, what: Role, errors: Output) -> Result<Self> {
        Self::start_with(role, what, errors, &[])
    }

    /// As [`Child::start`], with these variables in its environment.
    pub fn start_with(
        role: &'static str,
        what: Role,
        errors: Output,
        envs: &[(String, String)],
    ) -> Result<Self> {
        let order = Order { parent: std::process::id(), role: what };
        let json = serde_json::to_string(&order).map_err(|e| Error::Child { role, what: e.to_string() })?;
        let args: [OsString; 3] = ["lab".into(), "child".into(), json.into()];
        let mut process = Command::new(crate::machine::exe()?)
            .args(args)
            .envs(envs.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(if errors == Output::Inherit { Stdio::inherit() } else { Stdio::piped() })
            .spawn()
            .context(|| format!("start a {role} process"))?;
        // Its output is read to the end, whoever listens, so that it never blocks on a full pipe.
        let (tx, lines) = mpsc::channel();
        if let Some(out) = process.stdout.take() {
            let read = move || {
                for line in BufReader::new(out).lines().map_while(std::result::Result::ok) {
                    let _ = tx.send(line);
                }
            };
            let thread = std::thread::Builder::new().name(format!("{role}-output"));
            thread.spawn(read).context(|| "thread".to_owned())?;
        }
        let words = Arc::new(Mutex::new(VecDeque::new()));
        let mut listener = None;
        if let Some(err) = process.stderr.take() {
            let kept = words.clone();
            let read = move || {
                let mut in_panic = false;
                for line in BufReader::new(err).lines().map_while(std::result::Result::ok) {
                    let begins = line.contains("panicked at");
                    if begins || in_panic {
                        note_panic(role, &line);
                    }
                    in_panic = begins;
                    let mut kept = kept.lock();
                    if kept.len() == CHILD_LINES_MAX {
                        kept.pop_front();
                    }
                    kept.push_back(line);
                }
            };
            let thread = std::thread::Builder::new().name(format!("{role}-errors"));
            listener = Some(thread.spawn(read).context(|| "thread".to_owned())?);
        }
        Ok(Child { role, process, lines: Mutex::new(lines), words, listener })
    }

    /// Waits for the line `ready`.
    /// Errors: When the process ends or says nothing in time.
    pub fn wait_ready(&mut self) -> Result<()> {
        self.wait_line(READY_WAIT, |line| line == "ready").map(drop)
    }

    /// Waits for the first line on standard output that `is_it` accepts.
    /// Errors: When the process ends or says nothing in time.
    pub fn wait_line(&mut self, wait: Duration, is_it: impl Fn(&str) -> bool) -> Result<String> {
        let until = Instant::now() + wait;
        loop {
            match self.next_line(until) {
                Ok(line) if is_it(&line) => return Ok(line),
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.kill();
                    let what = format!("not ready after {} s", wait.as_secs());
                    return Err(Error::Child { role: self.role, what });
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    let status = self.process.wait().context(|| "wait".to_owned())?;
                    return Err(Error::Child { role: self.role, what: format!("ended early: {status}") });
                }
            }
        }
    }

    fn next_line(&self, until: Instant) -> std::result::Result<String, mpsc::RecvTimeoutError> {
        self.lines.lock().recv_timeout(until.saturating_duration_since(Instant::now()))
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal; a process that has gone is no error.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills the process and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Waits for the end of a process that was told to end; kills it after `READY_WAIT`.
    pub fn wait_or_kill(&mut self) -> Option<ExitStatus> {
        // Standard output closes when the process ends, so its last line is the event to wait for.
        let until = Instant::now() + READY_WAIT;
        loop {
            match self.next_line(until) {
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.kill();
                    return None;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return self.process.wait().ok(),
            }
        }
    }

    /// Waits for its end, and for all that it prints until then; kills it after `wait`.
    pub fn finish(&mut self, wait: Duration) -> (Option<ExitStatus>, String) {
        let mut printed = String::new();
        if self.hear_out(wait, &mut printed) {
            return (self.process.wait().ok(), printed);
        }
        self.kill();
        (None, printed)
    }

    /// Waits for its end, or for so long. Returns whether it has ended.
    pub fn ends_within(&mut self, wait: Duration) -> bool {
        self.hear_out(wait, &mut String::new())
    }

    /// Takes what it prints until its end, or for so long. Returns whether it has ended.
    fn hear_out(&self, wait: Duration, printed: &mut String) -> bool {
        let until = Instant::now() + wait;
        loop {
            match self.next_line(until) {
                Ok(line) => {
                    printed.push_str(&line);
                    printed.push('\n');
                }
                Err(e) => return e == mpsc::RecvTimeoutError::Disconnected,
            }
        }
    }

    /// Ends the process with SIGTERM and waits for it; kills it after `READY_WAIT`.
    pub fn stop(&mut self) -> Option<ExitStatus> {
        self.signal(Signal::TERM);
        self.wait_or_kill()
    }

    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    pub fn is_stopped(&self) -> bool {
        let now = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        wait_id(self.process.id(), now).is_some_and(|status| status.stopped())
    }

    /// Waits until it has stopped (SIGSTOP) or ended; false when it has done neither by then.
    pub fn wait_stopped(&self, patience: Duration) -> bool {
        let (tell, told) = mpsc::channel();
        let pid = self.process.id();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let until = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                let _ = tell.send(wait_id(pid, until).is_some());
            });
            let in_time = told.recv_timeout(patience).unwrap_or(false);
            if !in_time {
                // Ends the wait of the thread.
                self.signal(Signal::STOP);
            }
            in_time
        })
    }

    /// The last lines that it said on standard error, when they are kept.
    pub fn words(&self) -> String {
        self.words.lock().iter().map(String::as_str).collect::<Vec<_>>().join("; ")
    }

    /// As [`Child::words`] of a process that has ended, to the last of them.
    pub fn last_words(&mut self) -> String {
        if let Some(listener) = self.listener.take() {
            // It reads until nobody can write any more; a panic in it loses words only.
            let _ = listener.join();
        }
        self.words()
    }

    /// The lines it printed since the last call.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().try_iter().collect()
    }

    /// Processor time that the process has used so far, all threads, user and system together.
    pub fn cpu(&self) -> Option<Duration> {
        sys::process_cpu_ns(self.pid()).ok().map(Duration::from_nanos)
    }

    /// How long all threads of the process have waited for a processor so far, those that have ended not included.
    pub fn waited(&self) -> Option<Duration> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).ok()?;
        Some(tasks.flatten().filter_map(|task| waited(&task.path().join("schedstat"))).sum())
    }

    /// Forgets the peak of its resident memory: from now on the peak is that of what comes.
    ///
    /// # Errors
    /// It has ended, or this process is not root.
    pub fn forget_peak(&self) -> Result<()> {
        let file = format!("/proc/{}/clear_refs", self.pid());
        std::fs::write(&file, "5").context(|| file)
    }

    /// Threads of the process, and descriptors that it has open, if it still runs.
    pub fn threads_and_descriptors(&self) -> Option<(u64, u64)> {
        let process = procfs::process::Process::new(self.pid().cast_signed()).ok()?;
        let threads = process.stat().ok()?.num_threads;
        Some((u64::try_from(threads).ok()?, process.fd_count().ok()? as u64))
    }

    /// Resident memory of the process now, in bytes, if it still runs.
    pub fn rss_bytes(&self) -> Option<u64> {
        let process = procfs::process::Process::new(self.pid().cast_signed()).ok()?;
        process.status().ok()?.vmrss.map(|kib| kib << 10)
    }

    /// Peak resident memory of the process so far, in bytes, if it still runs.
    pub fn peak_rss_bytes(&self) -> Option<u64> {
        let process = procfs::process::Process::new(self.pid().cast_signed()).ok()?;
        process.status().ok()?.vmhwm.map(|kib| kib << 10)
    }
}

/// How long a thread has waited for a processor so far: the second figure of its `schedstat`.
pub(crate) fn waited(schedstat: &std::path::Path) -> Option<Duration> {
    let figures = std::fs::read_to_string(schedstat).ok()?;
    figures.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}
