//! A server on a temporary directory, archives, and trees to compare.
#![allow(dead_code)] // each test file uses its part

pub mod proxy;
pub mod stalled;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfast_client::put::{FatalError, PutOptions, Report, Silent};
use landfast_client::untar::{Archive, run};
use landfast_server::{Running, Server, ServerConfig};
use landfast_volume::{Durability, OpenError, OpenOptions, Volume};

/// The longest that a checkpoint of a server that has died keeps its locks.
const LOCKED_MAX: Duration = Duration::from_secs(30);

pub fn shell(dir: &Path, script: &str) {
    let done = Command::new("sh").arg("-ec").arg(script).current_dir(dir).output().unwrap();
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A server with an export that has an empty directory `dest`.
pub struct Rig {
    pub dir: tempfile::TempDir,
    pub running: Option<Running>,
    pub durability: Durability,
    /// Of the servers that are started from now on.
    pub lease_seconds: u32,
}

impl Rig {
    pub async fn new() -> Rig {
        Rig::with(Durability::Log).await
    }

    pub async fn with(durability: Durability) -> Rig {
        let dir = tempfile::Builder::new().prefix("landfast-client-").tempdir_in("/var/tmp").unwrap();
        fs::create_dir_all(dir.path().join("data/dest")).unwrap();
        let mut rig =
            Rig { dir, running: None, durability, lease_seconds: landfast_server::limits::LEASE_SECONDS };
        rig.start(SocketAddr::from(([127, 0, 0, 1], 0))).await;
        rig
    }

    pub async fn start(&mut self, listen: SocketAddr) {
        let export = self.dir.path().join("data");
        let log = (self.durability == Durability::Log).then(|| self.dir.path().join("log").into());
        let options = OpenOptions {
            log,
            log_size: 64 << 20,
            accept_weak: true,
            ..OpenOptions::new(&export, self.durability)
        };
        // A checkpoint may be under way that was so when the server before died.
        let begin = Instant::now();
        let (volume, recovery) = loop {
            match Volume::open(options.clone()) {
                Err(OpenError::DirInUse { .. } | OpenError::Log(_)) if begin.elapsed() < LOCKED_MAX => {
                    tokio::task::yield_now().await;
                }
                opened => break opened.unwrap(),
            }
        };
        let lease_seconds = self.lease_seconds;
        let config =
            ServerConfig { workers: 4, lease_seconds, ..ServerConfig::new(volume, recovery, listen, export) };
        self.running = Some(Server::start(config).await.unwrap());
    }

    /// A client of version 4.0 has to wait until the grace period of the server to be started ends; the others need time to
    /// come back in it.
    pub fn short_grace_for(&mut self, version: &str) {
        if version == "4.0" {
            self.lease_seconds = 2;
        }
    }

    pub fn addr(&self) -> SocketAddr {
        self.running.as_ref().unwrap().local_addr()
    }

    /// Where extracted files are on the server's side.
    pub fn dest(&self) -> PathBuf {
        self.dir.path().join("data/dest")
    }

    /// The path of `dest` in URLs: version 3 knows exports by their directories.
    pub fn top(&self, version: &str) -> String {
        match version {
            "3" => self.dest().display().to_string(),
            _ => "/dest".to_owned(),
        }
    }

    /// A directory of the test's own, beside the export.
    pub fn work(&self) -> PathBuf {
        let work = self.dir.path().join("work");
        fs::create_dir_all(&work).unwrap();
        work
    }

    pub async fn untar(&self, archive: &Path, options: PutOptions) -> Result<Report, FatalError> {
        self.untar_over("4.2", archive, options).await
    }

    pub async fn untar_over(
        &self,
        version: &str,
        archive: &Path,
        options: PutOptions,
    ) -> Result<Report, FatalError> {
        self.untar_from(version, Archive::file(archive), options).await
    }

    pub async fn untar_from(
        &self,
        version: &str,
        archive: Archive,
        options: PutOptions,
    ) -> Result<Report, FatalError> {
        let url = format!("nfs://{}{}?version={version}", self.addr(), self.top(version)).parse().unwrap();
        run(options, archive, &url, Arc::new(Silent)).await
    }

    pub async fn untar_all(&self, archive: &Path) -> Report {
        let report = self.untar(archive, PutOptions::default()).await.unwrap();
        assert!(report.complete(), "{:?} {:?}", report.stopped, &report.failed);
        report
    }

    pub async fn stop(mut self) {
        self.running.take().unwrap().stop().await.unwrap();
    }
}

/// Everything that a tree holds, one line an object: hard links show as the first of their names.
pub fn tree(root: &Path) -> BTreeMap<String, String> {
    let (mut out, mut first) = (BTreeMap::new(), BTreeMap::new());
    let mut stack = vec![root.to_path_buf()];
    let mut paths = Vec::new();
    while let Some(dir) = stack.pop() {
        for e in fs::read_dir(&dir).unwrap() {
            let path = e.unwrap().path();
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                stack.push(path.clone());
            }
            paths.push(path);
        }
    }
    paths.sort();
    for path in paths {
        let m = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let kind = m.file_type();
        let what = if kind.is_file() {
            let data = fs::read(&path).unwrap();
            let word = |c: &[u8]| c.iter().fold(0, |w, b| w << 8 | u64::from(*b));
            let words = data.chunks_exact(8).map(|c| u64::from_ne_bytes(c.try_into().unwrap()));
            let rest = word(data.chunks_exact(8).remainder());
            let sum = words.chain([rest]).fold(7u64, |h, w| h.wrapping_mul(0x1_0000_01b3).wrapping_add(w));
            format!("file {} {sum:x}", data.len())
        } else if kind.is_symlink() {
            format!("link {:?}", fs::read_link(&path).unwrap())
        } else if kind.is_dir() {
            "dir".into()
        } else if kind.is_fifo() {
            "fifo".into()
        } else {
            format!("device {kind:?} {:x}", m.rdev())
        };
        let same = if kind.is_dir() { &name } else { first.entry(m.ino()).or_insert(name.clone()) };
        let line = format!(
            "{what} {:o} {}:{} {}.{:09} is {same}",
            m.mode(),
            m.uid(),
            m.gid(),
            m.mtime(),
            m.mtime_nsec()
        );
        out.insert(name, line);
    }
    out
}

/// One member of an archive made by hand.
pub fn member(name: &str, kind: u8, link: &str, data: &[u8]) -> Vec<u8> {
    let mut h = [0u8; 512];
    h[..name.len()].copy_from_slice(name.as_bytes());
    h[100..108].copy_from_slice(b"0000644\0");
    h[108..116].copy_from_slice(b"0000000\0");
    h[116..124].copy_from_slice(b"0000000\0");
    h[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
    h[136..148].copy_from_slice(b"00000000001\0");
    h[148..156].fill(b' ');
    h[156] = kind;
    h[157..157 + link.len()].copy_from_slice(link.as_bytes());
    h[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = h.iter().map(|b| u32::from(*b)).sum();
    h[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut out = h.to_vec();
    out.extend_from_slice(data);
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

pub fn archive(path: &Path, members: &[Vec<u8>]) {
    fs::write(path, [members.concat(), vec![0; 1024]].concat()).unwrap();
}
