//! `landfast serve` as a process, on a scratch filesystem: started, ended by either signal, started again.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use procfs::process::{ProcState, Process};
use rustix::process::{Pid, Signal, kill_process};

use super::machine::tail;
use super::network::SERVER;
use crate::proc::{self, command, run};

/// How long the server may take to accept connections (recovery of a full log included), or to end.
const LIMIT: Duration = Duration::from_secs(60);

/// The clients' lease: short, since a restarted server waits for clients that do not come back for so long.
const LEASE: &str = "15s";

/// What a configuration file calls the export.
pub const NAME: &str = "/exported/volume";

/// How long to wait for a connection, or between two tries.
const TRY: Duration = Duration::from_millis(20);

/// NULL of NFSv4 (RFC 5531 section 9; RFC 8881 section 16.1): the record's length, then any number, a call, the version of RPC, program, version,
/// procedure, and twice no authentication.
const NULL_CALL: [u32; 11] = [0x8000_0028, 1, 0, 2, 100_003, 4, 0, 0, 0, 0, 0];

/// A filesystem in a file, mounted for the life of the mount namespace.
pub struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    /// Makes a filesystem of `bytes` (sparse) and mounts it. Needs a mount namespace of our own.
    pub fn new(fs_type: &str, bytes: u64) -> Result<Scratch, String> {
        let dir = super::image::run_dir("volume")?;
        let image = dir.path().join("image");
        fs::File::create(&image)
            .and_then(|file| file.set_len(bytes))
            .map_err(|e| format!("{}: {e}", image.display()))?;
        run(command(&format!("mkfs.{fs_type}"), ["-q"]).arg(&image))?;
        let scratch = Scratch { dir };
        let volume = scratch.volume();
        fs::create_dir(&volume).map_err(|e| format!("{}: {e}", volume.display()))?;
        run(command("mount", ["-o", "loop", "-t", fs_type]).arg(&image).arg(&volume))?;
        Ok(scratch)
    }

    pub fn volume(&self) -> PathBuf {
        self.dir.path().join("volume")
    }

    /// The directory beside it, on the host's filesystem.
    pub fn dir(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// A place there.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Before the directory goes; if the server still runs, the namespace's end does it.
        if let Err(why) = run(command("umount", ["--lazy"]).arg(self.volume())) {
            eprintln!("{why}");
        }
    }
}

pub struct Server {
    binary: PathBuf,
    volume: PathBuf,
    log: PathBuf,
    messages: PathBuf,
    address: SocketAddr,
    /// Where it serves its metrics, if it is started from a configuration file.
    metrics: SocketAddr,
    durability: String,
    lease: String,
    /// The configuration file that says all of it, in place of arguments.
    config: Option<PathBuf>,
    child: Option<Child>,
}

impl Server {
    /// Starts a server on a scratch filesystem and waits until it accepts connections.
    pub fn start(binary: &Path, scratch: &Scratch, durability: &str) -> Result<Server, String> {
        Server::start_on(
            binary,
            scratch.volume(),
            [scratch.beside("log"), scratch.beside("messages")],
            durability,
        )
    }

    /// The same with another lease than the usual short one, which is for restarts, if one is given. With `options`, lines about the export, it is
    /// started from a configuration file that gives the export the name [`NAME`]; then it does not start unless it can register with the
    /// port mapper.
    pub fn start_with(
        binary: &Path,
        scratch: &Scratch,
        durability: &str,
        lease_s: Option<u64>,
        options: Option<&str>,
    ) -> Result<Server, String> {
        let files = [scratch.beside("log"), scratch.beside("messages")];
        let mut server = Server::new(binary, scratch.volume(), files, durability)?;
        if let Some(lease_s) = lease_s {
            server.lease = format!("{lease_s}s");
        }
        if let Some(options) = options {
            let config = scratch.beside("server.toml");
            fs::write(&config, server.in_words(options)).map_err(|e| format!("{}: {e}", config.display()))?;
            server.config = Some(config);
        }
        server.start_again()?;
        Ok(server)
    }

    /// As [`Server::start_with`] with `options`, on a volume, with its log and its messages there and `config` for the configuration file. It
    /// answers when this returns.
    pub fn start_configured(
        binary: &Path,
        volume: PathBuf,
        files: [PathBuf; 2],
        durability: &str,
        lease_s: u64,
        (config, options): (PathBuf, &str),
    ) -> Result<Server, String> {
        let mut server = Server::new(binary, volume, files, durability)?;
        server.lease = format!("{lease_s}s");
        fs::write(&config, server.in_words(options)).map_err(|e| format!("{}: {e}", config.display()))?;
        server.config = Some(config);
        server.start_again()?;
        server.answers()?;
        Ok(server)
    }

    /// Starts a server on a volume, with its log and its messages there, and waits until it accepts connections.
    pub fn start_on(
        binary: &Path,
        volume: PathBuf,
        files: [PathBuf; 2],
        durability: &str,
    ) -> Result<Server, String> {
        let mut server = Server::new(binary, volume, files, durability)?;
        server.start_again()?;
        Ok(server)
    }

    fn new(
        binary: &Path,
        volume: PathBuf,
        [log, messages]: [PathBuf; 2],
        durability: &str,
    ) -> Result<Server, String> {
        let port = || TcpListener::bind((SERVER, 0)).map_err(|e| format!("a port: {e}"));
        // Both at once, so that they differ.
        let listeners = [port()?, port()?];
        let address = |listener: &TcpListener| listener.local_addr().map_err(|e| format!("a port: {e}"));
        let (address, metrics) = (address(&listeners[0])?, address(&listeners[1])?);
        drop(listeners);
        let (binary, durability) = (binary.to_owned(), durability.to_owned());
        let lease = LEASE.to_owned();
        Ok(Server {
            binary,
            volume,
            log,
            messages,
            address,
            metrics,
            durability,
            lease,
            config: None,
            child: None,
        })
    }

    /// A configuration file for it. The guest's root is root, as in the tests of its suites; it comes from a privileged
    /// port by itself.
    fn in_words(&self, options: &str) -> String {
        let (volume, durability, lease) = (self.volume.display(), &self.durability, &self.lease);
        let log = if durability == "log" { format!("log = {:?}\n", self.log) } else { String::new() };
        format!(
            "listen = \"{}\"\nmetrics = \"{}\"\nlease = \"{lease}\"\nrpcbind = \"require\"\n\n[[export]]\npath = \"{volume}\"\nname = \"{NAME}\"\n{log}{options}\
             durability = \"{durability}\"\nclients = [{{ from = \"*\", options = [\"rw\", \"no_root_squash\"] }}]\n",
            self.address, self.metrics
        )
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its metrics, as text. It serves them only if it was started from a configuration file.
    pub fn metrics(&self) -> Result<String, String> {
        let ask = || {
            let mut stream = TcpStream::connect_timeout(&self.metrics, LIMIT)?;
            stream.set_read_timeout(Some(LIMIT))?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text).map(|_| text)
        };
        let text = ask().map_err(|e: std::io::Error| format!("the server's metrics: {e}"))?;
        match text.split_once("\r\n\r\n") {
            Some((head, text)) if head.starts_with("HTTP/1.1 200") => Ok(text.to_owned()),
            _ => Err(format!("the server's metrics: {text}")),
        }
    }

    /// Starts it after it was ended.
    pub fn start_again(&mut self) -> Result<(), String> {
        let messages = fs::File::options()
            .create(true)
            .append(true)
            .open(&self.messages)
            .map_err(|e| format!("{}: {e}", self.messages.display()))?;
        let errors = messages.try_clone().map_err(|e| format!("{}: {e}", self.messages.display()))?;
        let mut serve = Command::new("setpriv");
        serve.args(["--pdeathsig", "KILL"]).arg(&self.binary).arg("serve");
        if let Some(config) = &self.config {
            serve.arg("--config").arg(config);
        } else {
            serve.arg(&self.volume);
            if self.durability == "log" {
                serve.arg("--log").arg(&self.log);
            }
            serve.arg("--listen").arg(self.address.to_string());
            // The guest's root is root, as in the tests of its suites.
            serve.args(["--allow", "*", "--durability", &self.durability, "--lease", &self.lease]);
        }
        let child = serve
            .stdin(Stdio::null())
            .stdout(messages)
            .stderr(errors)
            .spawn()
            .map_err(|e| format!("{}: {e}", self.binary.display()))?;
        self.child = Some(child);
        let deadline = Instant::now() + LIMIT;
        loop {
            self.alive()?;
            if TcpStream::connect_timeout(&self.address, TRY).is_ok() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("the server does not listen on {}\n{}", self.address, self.said()));
            }
            std::thread::sleep(TRY);
        }
    }

    /// Waits until it answers a call. It takes connections before its recovery is over.
    pub fn answers(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            self.alive()?;
            let ask = || {
                let mut stream = TcpStream::connect_timeout(&self.address, LIMIT)?;
                stream.set_read_timeout(Some(LIMIT))?;
                stream.write_all(&NULL_CALL.map(u32::to_be_bytes).concat())?;
                stream.read_exact(&mut [0; 4])
            };
            match ask() {
                Ok(()) => return Ok(()),
                Err(e) if Instant::now() > deadline => {
                    return Err(format!("the server does not answer: {e}\n{}", self.said()));
                }
                // It closes the connections that it cannot serve yet.
                Err(_) => std::thread::sleep(TRY),
            }
        }
    }

    /// Stops it wherever it is; returns when none of its threads does anything any more but wait in the kernel, from where it does not
    /// come back.
    pub fn freeze(&mut self) -> Result<(), String> {
        self.alive()?;
        let Some(pid) = self.pid().map(u32::cast_signed) else { return Ok(()) };
        let named = Pid::from_raw(pid).ok_or("the server has no process")?;
        kill_process(named, Signal::STOP).map_err(|e| format!("SIGSTOP to the server: {e}"))?;
        let stands = || -> procfs::ProcResult<bool> {
            for task in Process::new(pid)?.tasks()? {
                if !matches!(task?.stat()?.state()?, ProcState::Stopped | ProcState::Waiting) {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let deadline = Instant::now() + LIMIT;
        while !stands().map_err(|e| format!("the server: {e}"))? {
            if Instant::now() > deadline {
                return Err("the server does not stop".to_owned());
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// An error if it has ended by itself.
    pub fn alive(&mut self) -> Result<(), String> {
        let Some(child) = &mut self.child else { return Ok(()) };
        match child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("the server ended: {status}\n{}", self.said())),
            Err(e) => Err(format!("the server: {e}")),
        }
    }

    /// Asks it to end (SIGTERM) and waits; an error if it does not end well, or not in time.
    pub fn stop(&mut self) -> Result<(), String> {
        self.alive()?;
        let Some(mut child) = self.child.take() else { return Ok(()) };
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM).map_err(|e| format!("SIGTERM to the server: {e}"))?;
        }
        let deadline = Instant::now() + LIMIT;
        loop {
            match child.try_wait().map_err(|e| format!("the server: {e}"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("the server ended badly: {status}\n{}", self.said())),
                None if Instant::now() > deadline => {
                    self.child = Some(child);
                    return Err(format!("the server does not end\n{}", self.said()));
                }
                None => std::thread::sleep(TRY),
            }
        }
    }

    pub fn kill(&mut self) -> Result<(), String> {
        self.alive()?;
        if let Some(mut child) = self.child.take() {
            child.kill().and_then(|()| child.wait()).map_err(|e| format!("SIGKILL to the server: {e}"))?;
        }
        Ok(())
    }

    pub fn said(&self) -> String {
        tail(&self.messages)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Options of commands that start `landfast serve`.
#[derive(Args)]
pub struct ServeOptions {
    /// The binary, instead of building the release one.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// The server's durability: log, sync or unsafe.
    #[arg(long, default_value = "log")]
    pub durability: String,
    /// The scratch volume's filesystem: ext4, xfs or btrfs.
    #[arg(long, default_value = "ext4")]
    pub fs: String,
}

impl ServeOptions {
    /// The binary, built now if it was not chosen and is not up to date.
    pub fn binary(&self) -> Result<PathBuf, String> {
        chosen_binary(self.binary.as_deref())
    }
}

/// The binary that was chosen, or the release one.
pub fn chosen_binary(chosen: Option<&Path>) -> Result<PathBuf, String> {
    match chosen {
        Some(binary) => fs::canonicalize(binary).map_err(|e| format!("{}: {e}", binary.display())),
        None => release_binary(),
    }
}

/// The release binary, built now if it is not up to date.
pub fn release_binary() -> Result<PathBuf, String> {
    run(&mut command(&proc::cargo(), ["build", "--quiet", "--release", "--package", "landfast-cli"]))?;
    Ok(proc::landfast())
}
