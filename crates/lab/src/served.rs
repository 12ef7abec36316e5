//! A Landfast server in a process of its own: `landfast serve`, as a user runs it.

use crate::child::{Child, Output, Role};
use crate::error::{Context, Error, Result};
use crate::limits::{OTHER_LOG_BYTES, READY_POLL, READY_WAIT};
use landfast_intentlog::faults::ACCEPT_WEAK;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Log,
    /// Each operation syncs what it changed.
    Sync,
    /// Replies before anything is durable.
    Unsafe,
}

impl Durability {
    pub fn word(self) -> &'static str {
        match self {
            Durability::Log => "log",
            Durability::Sync => "sync",
            Durability::Unsafe => "unsafe",
        }
    }
}

#[derive(Debug, Clone)]
pub struct ServeOptions {
    pub dir: PathBuf,
    /// The log's file or device; needed for [`Durability::Log`].
    pub log: Option<PathBuf>,
    /// Size of a log file that has to be made, in bytes.
    pub log_bytes: Option<u64>,
    pub durability: Durability,
    pub lease: Duration,
    /// Latency added to each of the volume's sync calls.
    pub inject_volume: Duration,
    /// Latency added to each flush of the log.
    pub inject_log: Duration,
    /// File for the counters at the end.
    pub stats: Option<PathBuf>,
    pub show: bool,
    /// The log's second half.
    pub mirror: Option<PathBuf>,
    pub metrics: Option<SocketAddr>,
    /// Another `landfast` than this one.
    pub binary: Option<PathBuf>,
    pub envs: Vec<(String, String)>,
    /// Whether it gives clients directories to change on their own.
    pub write_delegations: bool,
    /// Limits other than the usual ones, by their keys in `[limits]`.
    pub limits: Vec<(&'static str, u64)>,
    /// Further exports, each with a log of its own; the first is `/first` then.
    pub others: Vec<Other>,
    /// Whether the server checks its disks as usual. The lab's own would be refused, in a way that does not matter here.
    pub judges_disks: bool,
}

#[derive(Debug, Clone)]
pub struct Other {
    pub dir: PathBuf,
    /// Where clients find it, without its slash.
    pub name: String,
    /// Its log, a file that is made.
    pub log: PathBuf,
}

impl ServeOptions {
    pub fn new(dir: &Path, log: Option<&Path>, durability: Durability) -> Self {
        ServeOptions {
            dir: dir.to_owned(),
            log: log.filter(|_| durability == Durability::Log).map(Path::to_owned),
            log_bytes: None,
            durability,
            lease: Duration::from_secs(30),
            inject_volume: Duration::ZERO,
            inject_log: Duration::ZERO,
            stats: None,
            show: false,
            mirror: None,
            metrics: None,
            binary: None,
            envs: Vec::new(),
            write_delegations: false,
            limits: Vec::new(),
            others: Vec::new(),
            judges_disks: false,
        }
    }

    /// The same server without its log: each operation syncs what it changed.
    pub fn without_log(self) -> Self {
        ServeOptions { log: None, mirror: None, durability: Durability::Sync, ..self }
    }

    /// A configuration file with what the arguments say, and with the limits, which have no arguments.
    fn file(&self, listen: SocketAddr) -> Result<tempfile::NamedTempFile> {
        let text = |p: &Path| toml_text(&p.to_string_lossy());
        let mut toml = format!("listen = \"{listen}\"\nlease = \"{}s\"\n", self.lease.as_secs().max(1));
        if let Some(addr) = self.metrics {
            toml += &format!("metrics = \"{addr}\"\n");
        }
        toml += "[limits]\n";
        for (key, value) in &self.limits {
            toml += &format!("{key} = {value}\n");
        }
        let first = if self.others.is_empty() { "/" } else { "/first" };
        let log = self.log.as_ref().map(|log| {
            let mirror = self.mirror.as_ref().map(|m| format!(", mirror = {}", text(m))).unwrap_or_default();
            let size = self.log_bytes.map(|n| format!(", size = \"{}M\"", n >> 20)).unwrap_or_default();
            format!("{{ path = {}{mirror}{size} }}", text(log))
        });
        let others = self.others.iter().map(|other| {
            let log = format!("{{ path = {}, size = \"{}M\" }}", text(&other.log), OTHER_LOG_BYTES >> 20);
            (&other.dir, format!("/{}", other.name), Some(log))
        });
        for (dir, name, log) in std::iter::once((&self.dir, first.to_owned(), log)).chain(others) {
            let dir = std::fs::canonicalize(dir).context(|| format!("find {}", dir.display()))?;
            toml += &format!("[[export]]\npath = {}\nname = \"{name}\"\n", text(&dir));
            toml += &format!("durability = \"{}\"\n", self.durability.word());
            toml += &log.map(|log| format!("log = {log}\n")).unwrap_or_default();
            toml += &format!("write_delegations = {}\n", self.write_delegations);
            toml += "clients = [{ from = \"*\", options = [\"rw\", \"no_root_squash\", \"insecure\"] }]\n";
        }
        let what = || "write a configuration file".to_owned();
        let mut file = tempfile::NamedTempFile::with_prefix("landfast-lab-").context(what)?;
        file.write_all(toml.as_bytes()).context(what)?;
        Ok(file)
    }

    fn args(&self, listen: SocketAddr, file: Option<&Path>) -> Vec<String> {
        let text = |p: &Path| p.to_string_lossy().into_owned();
        let micros = |d: Duration| format!("{}us", d.as_micros());
        let mut args = vec!["serve".to_owned()];
        if let Some(file) = file {
            args.extend(["--config".to_owned(), text(file)]);
        } else {
            args.push(text(&self.dir));
        }
        let mut option = |name: &str, value: String| args.extend([name.to_owned(), value]);
        if !self.inject_volume.is_zero() {
            option("--inject-volume-flush", micros(self.inject_volume));
        }
        if !self.inject_log.is_zero() {
            option("--inject-log-flush", micros(self.inject_log));
        }
        if let Some(path) = &self.stats {
            option("--stats-file", text(path));
        }
        if file.is_some() {
            return args;
        }
        option("--listen", listen.to_string());
        option("--durability", self.durability.word().to_owned());
        option("--lease", format!("{}s", self.lease.as_secs().max(1)));
        if let Some(log) = &self.log {
            option("--log", text(log));
        }
        if let Some(mirror) = &self.mirror {
            option("--log-mirror", text(mirror));
        }
        if let Some(addr) = self.metrics {
            option("--metrics", addr.to_string());
        }
        if let Some(bytes) = self.log_bytes {
            option("--log-size", bytes.to_string());
        }
        if !rustix::process::geteuid().is_root() {
            args.push("--unprivileged".to_owned());
        }
        args
    }
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct Served {
    child: Child,
    port: ReservedPort,
    took: Duration,
    _file: Option<tempfile::NamedTempFile>,
}

impl Served {
    /// Starts a server and waits until it takes connections (it has recovered then).
    pub fn start(options: &ServeOptions) -> Result<Self> {
        let start = Instant::now();
        let mut served = Self::spawn(options)?;
        while TcpStream::connect(served.addr()).is_err() {
            served.wait_on(start, "does not take connections")?;
        }
        served.took = start.elapsed();
        Ok(served)
    }

    /// Starts a server that may stop itself (SIGSTOP) on its way: waits until it answers, which is `false`, or has
    /// stopped. (It listens before it has put its log in order.)
    pub fn start_or_stop(options: &ServeOptions) -> Result<(Self, bool)> {
        let start = Instant::now();
        let mut served = Self::spawn(options)?;
        let mut asked: Option<TcpStream> = None;
        loop {
            if served.child.is_stopped() {
                return Ok((served, true));
            }
            asked = asked.or_else(|| ask(served.addr()));
            if asked.as_mut().is_some_and(|stream| stream.read(&mut [0; 4]).is_ok_and(|n| n > 0)) {
                served.took = start.elapsed();
                return Ok((served, false));
            }
            served.wait_on(start, "does not answer")?;
        }
    }

    /// Waits a little longer for a server that started at `start`; an error if it has ended or takes too long.
    fn wait_on(&mut self, start: Instant, late: &str) -> Result<()> {
        let what = match self.child.ended() {
            Some(status) => format!("ended before it served ({status}): {}", self.child.last_words()),
            None if start.elapsed() > READY_WAIT => format!("{late}: {}", self.child.words()),
            None => {
                // There is no event for "somebody listens on this port now".
                std::thread::sleep(READY_POLL);
                return Ok(());
            }
        };
        Err(Error::Child { role: "server", what })
    }

    /// Waits until it has stopped itself (SIGSTOP) or ended; false when it has done neither by then.
    pub fn wait_stopped(&self, patience: Duration) -> bool {
        self.child.wait_stopped(patience)
    }

    /// Starts a server and does not wait for it.
    pub fn spawn(options: &ServeOptions) -> Result<Self> {
        let port = ReservedPort::new()?;
        let output = if options.show { Output::Inherit } else { Output::Keep };
        let needs_file =
            options.write_delegations || !options.limits.is_empty() || !options.others.is_empty();
        let file = needs_file.then(|| options.file(port.addr())).transpose()?;
        let args = options.args(port.addr(), file.as_ref().map(tempfile::NamedTempFile::path));
        let mut envs = options.envs.clone();
        let role = if options.judges_disks {
            // It may be in our own environment.
            let without = ["env", "-u", ACCEPT_WEAK].map(str::to_owned);
            let binary = options.binary.clone().map_or_else(crate::machine::exe, Ok)?;
            Role::Program([&without[..], &[binary.to_string_lossy().into_owned()], &args].concat())
        } else {
            // What the lab's disks and its memory keep is the lab's business.
            envs.push((ACCEPT_WEAK.to_owned(), "1".to_owned()));
            match &options.binary {
                Some(binary) => Role::Program([vec![binary.to_string_lossy().into_owned()], args].concat()),
                None => Role::Run(args),
            }
        };
        let child = Child::start_with("server", role, output, &envs)?;
        Ok(Served { child, port, took: Duration::ZERO, _file: file })
    }

    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// From start to the first connection: with recovery, if there was something to recover.
    pub fn start_took(&self) -> Duration {
        self.took
    }

    /// See [`Child::threads_and_descriptors`].
    pub fn threads_and_descriptors(&self) -> Option<(u64, u64)> {
        self.child.threads_and_descriptors()
    }

    pub fn rss_bytes(&self) -> Option<u64> {
        self.child.rss_bytes()
    }

    pub fn peak_rss_bytes(&self) -> Option<u64> {
        self.child.peak_rss_bytes()
    }

    /// See [`Child::forget_peak`].
    pub fn forget_peak(&self) -> Result<()> {
        self.child.forget_peak()
    }

    pub fn cpu(&self) -> Option<Duration> {
        self.child.cpu()
    }

    /// See [`Child::waited`].
    pub fn waited(&self) -> Option<Duration> {
        self.child.waited()
    }

    /// What it said so far on standard error.
    pub fn words(&self) -> String {
        self.child.words()
    }

    /// Stops it cleanly (SIGTERM): it makes a checkpoint and exits.
    pub fn stop(mut self) -> Result<()> {
        match self.child.stop() {
            Some(status) if status.success() => Ok(()),
            Some(status) => {
                let what = format!("{status} after SIGTERM: {}", self.child.words());
                Err(Error::Child { role: "server", what })
            }
            None => Err(Error::Child { role: "server", what: "does not end after SIGTERM".into() }),
        }
    }

    /// Stops it where it is (SIGSTOP), as a power cut does: not one more reply leaves it.
    pub fn freeze(&self) {
        self.child.signal(rustix::process::Signal::STOP);
    }

    /// It goes on after it was stopped (SIGCONT).
    pub fn thaw(&self) {
        self.child.signal(rustix::process::Signal::CONT);
    }

    pub fn kill(mut self) {
        self.child.kill();
    }
}

/// A string as TOML writes it.
fn toml_text(text: &str) -> String {
    let escaped: String =
        text.chars().flat_map(|c| if matches!(c, '"' | '\\') { vec!['\\', c] } else { vec![c] }).collect();
    format!("\"{escaped}\"")
}

/// A connection on which the answer to a call that does nothing will come, and whose reads do not wait.
fn ask(addr: SocketAddr) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(addr).ok()?;
    stream.write_all(&landfast_verify::blocking::wire::null_call()).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

/// A local TCP port that nobody else is given while this exists. A server that sets SO_REUSEADDR can listen on it.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    addr: SocketAddr,
    /// Bound, and not listening.
    _socket: OwnedFd,
}

impl ReservedPort {
    pub(crate) fn new() -> Result<ReservedPort> {
        let reserve = || -> std::io::Result<ReservedPort> {
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
            // Only now: with it, the kernel might give a port that somebody else has reserved.
            set_socket_reuseaddr(&socket, true)?;
            Ok(ReservedPort { addr: SocketAddr::try_from(getsockname(&socket)?)?, _socket: socket })
        };
        reserve().context(|| "find a free port".to_owned())
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_its_servers_alone() {
        let port = ReservedPort::new().unwrap();
        let connects = || TcpStream::connect(port.addr()).is_ok();
        assert!(!connects());
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        assert!(bind(&socket, &port.addr()).is_err(), "somebody who does not know that it is reserved");
        // The library sets SO_REUSEADDR, as servers do.
        let listener = std::net::TcpListener::bind(port.addr()).unwrap();
        assert!(connects());
        assert!(std::net::TcpListener::bind(port.addr()).is_err(), "a second server");
        drop(listener);
        assert!(!connects());
        assert!(std::net::TcpListener::bind(port.addr()).is_ok(), "its server once more");
    }
}
