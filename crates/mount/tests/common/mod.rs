//! A server on a temporary directory, and mounts of it.
#![allow(dead_code)] // each test file uses its part

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use landfast_mount::control::{self, Mounted};
use landfast_mount::options::Options;
use landfast_server::limited::Limit;
use landfast_server::{Running, Server, ServerConfig};
use landfast_volume::{Durability, OpenError, OpenOptions, Volume};
use tokio::runtime::{Builder, Runtime};

pub const VERSIONS: [&str; 4] = ["3", "4.0", "4.1", "4.2"];
/// The longest that a checkpoint of a server that has died keeps its locks.
const LOCKED_MAX: Duration = Duration::from_secs(30);

/// The longest that a process keeps copies of descriptors before it becomes another program.
const COPIES_KEPT_MAX: Duration = Duration::from_secs(20);

/// Whether this machine can mount. Says so where it cannot.
pub fn can_mount() -> bool {
    let there = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !there {
        eprintln!("skipped: mounting needs /dev/fuse and root");
    }
    there
}

/// Runs a script with the shell; fails if it does.
pub fn shell(dir: &Path, script: &str) -> String {
    let done = Command::new("sh").arg("-ec").arg(script).current_dir(dir).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{script}: {out}{err}");
    out.into_owned()
}

/// Whether a program is here. Says so where it is not.
pub fn has(program: &str) -> bool {
    let found = Command::new("sh").arg("-c").arg(format!("command -v {program}")).output().unwrap();
    if !found.status.success() {
        eprintln!("skipped: no {program} here");
    }
    found.status.success()
}

/// A server with an export that has an empty directory `dest`.
pub struct Rig {
    pub dir: tempfile::TempDir,
    runtime: Option<Runtime>,
    running: Option<Running>,
    addr: SocketAddr,
    /// It gives write directory delegations.
    delegates: bool,
    /// What one client may have open, delegations included.
    client_opens: Option<usize>,
    /// The export is a filesystem of its own.
    mounted: bool,
}

impl Rig {
    pub fn new() -> Rig {
        Rig::with(false)
    }

    /// A server that gives write directory delegations.
    pub fn delegating() -> Rig {
        Rig::with(true)
    }

    /// The same, with fewer opens for one client: delegations are among them.
    pub fn delegating_with(client_opens: usize) -> Rig {
        let mut rig = Rig::delegating();
        rig.stop();
        rig.client_opens = Some(client_opens);
        rig.start();
        rig
    }

    /// The same on an ext4 filesystem of so many MiB. `None`: there is no such thing here.
    pub fn delegating_on_disk(mib: u64) -> Option<Rig> {
        if !can_mount() || !has("mkfs.ext4") {
            return None;
        }
        Some(Rig::new_on(true, Some(mib)))
    }

    fn with(delegates: bool) -> Rig {
        Rig::new_on(delegates, None)
    }

    fn new_on(delegates: bool, disk_mib: Option<u64>) -> Rig {
        let dir = tempfile::Builder::new().prefix("landfast-mount-").tempdir_in("/var/tmp").unwrap();
        if let Some(mib) = disk_mib {
            fs::create_dir(dir.path().join("data")).unwrap();
            fs::File::create_new(dir.path().join("disk")).unwrap().set_len(mib << 20).unwrap();
            shell(dir.path(), "mkfs.ext4 -q -m 0 disk; mount -o loop disk data");
        }
        fs::create_dir_all(dir.path().join("data/dest")).unwrap();
        let addr = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut rig = Rig {
            dir,
            runtime: None,
            running: None,
            addr,
            delegates,
            client_opens: None,
            mounted: disk_mib.is_some(),
        };
        rig.start();
        rig
    }

    /// Starts the server where it was before.
    pub fn start(&mut self) {
        let export = self.dir.path().join("data");
        let options = OpenOptions {
            log: Some(self.dir.path().join("log").into()),
            log_size: 16 << 20,
            accept_weak: true,
            ..OpenOptions::new(&export, Durability::Log)
        };
        let begin = Instant::now();
        let (volume, recovery) = loop {
            match Volume::open(options.clone()) {
                Err(OpenError::DirInUse { .. } | OpenError::Log(_)) if begin.elapsed() < LOCKED_MAX => {
                    std::thread::yield_now();
                }
                opened => break opened.unwrap(),
            }
        };
        let mut config = ServerConfig {
            workers: 2,
            lease_seconds: 5,
            ..ServerConfig::new(volume, recovery, self.addr, export)
        };
        if let Some(most) = self.client_opens {
            config.limits = config.limits.with(Limit::ClientOpens, most);
        }
        for export in &mut config.exports {
            export.features.write_delegations = self.delegates;
        }
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let running = runtime.block_on(Server::start(config)).unwrap();
        self.addr = running.local_addr();
        (self.runtime, self.running) = (Some(runtime), Some(running));
    }

    /// Stops the server as a service manager does.
    pub fn stop(&mut self) {
        if let (Some(runtime), Some(running)) = (self.runtime.take(), self.running.take()) {
            runtime.block_on(running.stop()).unwrap();
        }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The directory on the server's side.
    pub fn dest(&self) -> PathBuf {
        self.dir.path().join("data/dest")
    }

    /// A directory of the test's own, beside the export.
    pub fn work(&self) -> PathBuf {
        let work = self.dir.path().join("work");
        fs::create_dir_all(&work).unwrap();
        work
    }

    pub fn mount(&self, version: &str) -> At {
        self.mount_with(version, "")
    }

    /// A mount with `close=local`, whose back channel the server has found to work: before that it gives no delegations.
    pub fn mount_local(&self, options: &str) -> At {
        let at = self.mount_with("4.2", options);
        fs::remove_dir(at.own_dir("probe")).unwrap();
        assert!(control::sync(at.path()).unwrap().is_empty());
        at
    }

    /// A mount of `dest`.
    pub fn mount_with(&self, version: &str, options: &str) -> At {
        let path = match version {
            "3" => self.dest().display().to_string(),
            _ => "/dest".to_owned(),
        };
        At::new(&format!("nfs://{}{path}?version={version}", self.addr), options)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
        if self.mounted {
            let _ = rustix::mount::unmount(self.dir.path().join("data"), rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// A line of a mount's state.
pub fn state(at: &Path, line: &str) -> u64 {
    let status = control::status(at).unwrap();
    let value = status.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(": "));
    value.unwrap_or_else(|| panic!("{line}: {status}")).parse().unwrap()
}

/// A new directory of a mount's own. After a server has started that takes a moment, until its callbacks reach the mount.
pub fn own_dir(at: &Path, name: &str) -> PathBuf {
    let begin = Instant::now();
    for n in 0.. {
        let before = state(at, "directory delegations");
        let dir = at.join(format!("{name}{n}"));
        fs::create_dir(&dir).unwrap();
        assert!(control::sync(at).unwrap().is_empty());
        if state(at, "directory delegations") > before {
            return dir;
        }
        fs::remove_dir(&dir).unwrap();
        assert!(begin.elapsed() < LOCKED_MAX, "no delegation");
    }
    unreachable!("it has returned")
}

/// A mount. Dropping it unmounts it.
pub struct At {
    pub dir: tempfile::TempDir,
    serving: Option<JoinHandle<std::io::Result<Vec<String>>>>,
}

impl At {
    pub fn new(url: &str, options: &str) -> At {
        let dir = tempfile::Builder::new().prefix("landfast-at-").tempdir_in("/var/tmp").unwrap();
        let mut taken = Options::default();
        taken.take(options).unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let mounted: Mounted =
            control::mount(runtime, &url.parse().unwrap(), url, dir.path(), taken, None).unwrap();
        let serving = std::thread::spawn(move || mounted.serve());
        At { dir, serving: Some(serving) }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn join(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// A line of the mount's state.
    pub fn state(&self, line: &str) -> u64 {
        state(self.path(), line)
    }

    /// A new directory of the mount's own.
    pub fn own_dir(&self, name: &str) -> PathBuf {
        own_dir(self.path(), name)
    }

    /// Makes everything stable.
    pub fn sync(&self) {
        assert_eq!(control::sync(self.path()).unwrap(), Vec::<String>::new());
    }

    /// RPCs that `work` costs.
    pub fn rpcs(&self, work: impl FnOnce()) -> u64 {
        let before = self.state("rpcs");
        work();
        self.state("rpcs") - before
    }

    /// Unmounts. Returns what was lost.
    pub fn unmount(mut self) -> Vec<String> {
        self.end()
    }

    fn end(&mut self) -> Vec<String> {
        let Some(serving) = self.serving.take() else { return Vec::new() };
        let begun = Instant::now();
        // Another test of this program that starts a process: for a moment that has copies of all descriptors.
        while let Err(e) = control::unmount(self.dir.path()) {
            assert!(e.kind() == std::io::ErrorKind::ResourceBusy && begun.elapsed() < COPIES_KEPT_MAX, "{e}");
            std::thread::yield_now();
        }
        serving.join().unwrap().unwrap()
    }
}

impl Drop for At {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Whoever hangs in it must get an error, or the test never ends.
            let _ = rustix::mount::unmount(self.path(), rustix::mount::UnmountFlags::DETACH);
        } else {
            self.end();
        }
    }
}

/// Directories go, or are replaced, right after the last close of a file that was removed in them: the kernel does not wait for the end of
/// a close.
pub fn go_after_the_last_close(top: &Path) {
    for n in 0..50 {
        let (dir, other) = (top.join(format!("d{n}")), top.join(format!("other{n}")));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("f"), "text").unwrap();
        let f = fs::File::open(dir.join("f")).unwrap();
        fs::remove_file(dir.join("f")).unwrap();
        // As with Linux's client: the file is there, under a hidden name.
        let refused = fs::remove_dir(&dir).map_err(|e| e.raw_os_error());
        assert_eq!(refused, Err(Some(libc::ENOTEMPTY)), "{n}");
        let replaces = n % 2 == 1;
        if replaces {
            fs::create_dir(&other).unwrap();
        }
        drop(f);
        if replaces {
            fs::rename(&other, &dir).unwrap_or_else(|e| panic!("{n}: {e}"));
        }
        fs::remove_dir(&dir).unwrap_or_else(|e| panic!("{n}: {e}"));
    }
}
