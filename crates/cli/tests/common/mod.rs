//! The binary under test, and servers that end with the test.
#![allow(dead_code)] // each test file uses some of it

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

/// Whether disks can be emulated here; says so when they cannot.
pub fn emulates_disks() -> bool {
    if !Path::new("/dev/fuse").exists() || !Path::new("/dev/loop-control").exists() {
        println!("skipped: needs FUSE and loop devices");
        return false;
    }
    true
}

/// Whether filesystems of this kind can be made here; says so when not.
pub fn makes(fs: &str) -> bool {
    let there = ["/sbin", "/usr/sbin", "/bin", "/usr/bin"]
        .iter()
        .any(|d| Path::new(d).join(format!("mkfs.{fs}")).exists());
    if !there {
        println!("skipped on {fs}: needs mkfs.{fs}");
    }
    there
}

/// Whether a program is here; says so when it is not.
pub fn has_program(name: &str) -> bool {
    let there = ["/sbin", "/usr/sbin", "/bin", "/usr/bin"].iter().any(|d| Path::new(d).join(name).exists());
    if !there {
        println!("skipped: needs {name}");
    }
    there
}

/// The command.
pub fn landfast() -> Command {
    Command::new(env!("CARGO_BIN_EXE_landfast"))
}

/// Runs it to its end.
pub fn run(args: &[&str]) -> Output {
    landfast().args(args).stdin(Stdio::null()).output().expect("landfast runs")
}

/// What it said on standard error.
pub fn stderr(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

/// What it said on standard output.
pub fn stdout(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned()
}

/// Exactly one line, which has all of these in it.
pub fn one_line_with(text: &str, parts: &[&str]) {
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    for part in parts {
        assert!(text.contains(part), "no '{part}' in: {text}");
    }
}

/// A running server; killed when dropped.
pub struct Serving {
    child: Child,
    stderr: BufReader<ChildStderr>,
    pub url: String,
    /// What it said until it served.
    pub words: String,
}

impl Serving {
    /// Serves `dir` with its log at `log` on a free port, and waits until it does.
    pub fn start(dir: &Path, log: &Path) -> Serving {
        Serving::with(dir, &["--log", path(log), "--log-size", "32M"])
    }

    /// Ends it at once, as a crash would, and serves again what it served under the same address.
    pub fn again(&mut self, dir: &Path, log: &Path) {
        self.again_after(rustix::process::Signal::KILL, dir, log);
    }

    /// Ends it with this signal, waits for that, and serves again what it served under the same address.
    pub fn again_after(&mut self, signal: rustix::process::Signal, dir: &Path, log: &Path) {
        self.signal(signal);
        let _ = self.child.wait();
        let address = self.address().to_owned();
        *self = Serving::on(&address, dir, &["--log", path(log)]);
    }

    /// Serves again what it served, after [`Serving::kill`].
    pub fn resume(&mut self, dir: &Path, log: &Path) {
        let address = self.address().to_owned();
        *self = Serving::on(&address, dir, &["--log", path(log)]);
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("nfs://").trim_end_matches('/')
    }

    /// Serves `dir` with these options.
    pub fn with(dir: &Path, options: &[&str]) -> Serving {
        Serving::on("127.0.0.1:0", dir, options)
    }

    /// Serves what a configuration file says.
    pub fn configured(file: &Path) -> Serving {
        Serving::run(&["serve", "--config", path(file)])
    }

    fn on(address: &str, dir: &Path, options: &[&str]) -> Serving {
        Serving::run(&[&["serve", path(dir), "--listen", address], options].concat())
    }

    fn run(args: &[&str]) -> Serving {
        let mut child = landfast()
            .args(args)
            .stderr(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .expect("landfast starts");
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut serving = Serving { child, stderr, url: String::new(), words: String::new() };
        while serving.url.is_empty() {
            let mut line = String::new();
            let n = serving.stderr.read_line(&mut line).expect("its standard error");
            assert!(n > 0, "it ended: {}", serving.words);
            serving.words.push_str(&line);
            if let Some((_, rest)) = line.split_once("nfs://") {
                serving.url = format!("nfs://{}/", rest.split('/').next().unwrap_or_default());
            }
        }
        serving
    }

    /// What it says next.
    pub fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).expect("its standard error");
        line
    }

    /// Sends it this signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it is there");
    }

    /// What it says up to a line with this in it.
    pub fn until(&mut self, part: &str) -> String {
        let mut words = String::new();
        loop {
            let line = self.next_line();
            assert!(!line.is_empty(), "it ended before it said '{part}': {words}");
            words.push_str(&line);
            if line.contains(part) {
                return words;
            }
        }
    }

    /// Ends it with this signal: its exit code, and what it said meanwhile.
    pub fn end(mut self, signal: rustix::process::Signal) -> (Option<i32>, String) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it is there");
        let mut words = String::new();
        self.stderr.read_to_string(&mut words).expect("its standard error");
        (self.child.wait().expect("it ends").code(), words)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a script in [`own_network`] begins with: an rpcbind of its own, which ends with it, and `waits COMMAND...`.
const OWN_NETWORK: &str = r#"
set -eu
mount -t tmpfs none /run
ip link set lo up
rpcbind -f &
mapper=$!
server=
trap 'kill $server $mapper 2>/dev/null || true; wait' EXIT
waits() { for _ in $(seq 600); do if "$@" >/dev/null 2>&1; then return; fi; sleep 0.05; done; echo "in vain: $*"; exit 1; }
waits test -S /run/rpcbind.sock
"#;

/// A shell script in a network and a mount namespace of its own, with an rpcbind of its own; `$server` is killed with it, `$LANDFAST`
/// is the binary. `None`: one of `tools` is missing, which is said.
pub fn own_network(script: &str, tools: &[&str]) -> Option<Command> {
    const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
    for tool in ["rpcbind", "rpcinfo", "unshare", "ip"].iter().chain(tools) {
        let mut look = Command::new("sh");
        look.args(["-c", &format!("command -v {tool}")]).env("PATH", PATH).stdout(Stdio::null());
        if !look.status().is_ok_and(|s| s.success()) {
            println!("skipped: needs {tool}");
            return None;
        }
    }
    let mut command = Command::new("unshare");
    command
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c"])
        .arg([OWN_NETWORK, script].concat())
        .env("LANDFAST", env!("CARGO_BIN_EXE_landfast"))
        .env("PATH", PATH)
        .stdin(Stdio::null());
    Some(command)
}

/// As text for the command line.
pub fn path(p: &Path) -> &str {
    p.to_str().expect("UTF-8")
}
