//! A volume in a temporary directory, with or without a log.
#![allow(dead_code)] // Not every test binary uses all of it.

pub mod image;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfast_volume::{
    Attrs, ChangeInfo, CreateHow, Created, Cred, Durability, EntryDetail, Error, Node, NoteKeeper, OpenError,
    OpenFile, OpenMode, OpenOptions, RecoveryReport, SetAttrs, Stable, Tx, Volume,
};

pub struct NoNotes;

impl NoteKeeper for NoNotes {
    fn snapshot(&self) -> Box<dyn landfast_volume::Snapshot> {
        Box::new(Vec::new())
    }
}

pub struct Rig {
    /// Contains the directory `dir`.
    pub temp: tempfile::TempDir,
    /// Contains the log `log`: in memory where possible, since these tests cut no power.
    pub beside: tempfile::TempDir,
    pub volume: Volume,
    pub report: RecoveryReport,
}

/// `base` contains the directory, `beside` the log.
pub fn options(base: &Path, beside: &Path, durability: Durability) -> OpenOptions {
    let mut options = OpenOptions::new(base.join("dir"), durability);
    if durability == Durability::Log {
        options.log = Some(beside.join("log").into());
        options.log_size = 16 << 20;
    }
    options
}

/// A place for a log.
pub fn beside() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("tempdir")
}

/// False, with a message, if the temporary directory cannot have a log.
pub fn tempdir_suits() -> bool {
    let temp = tempfile::tempdir().expect("tempdir");
    std::fs::create_dir(temp.path().join("dir")).expect("mkdir");
    let beside = beside();
    match Volume::open(options(temp.path(), beside.path(), Durability::Log)) {
        Err(OpenError::Filesystem { .. }) => {
            println!("skipped: the temporary directory is not on ext4, XFS or btrfs");
            false
        }
        _ => true,
    }
}

/// How long a checkpoint of a dropped volume keeps its locks at most.
const LOCKED_MAX: Duration = Duration::from_secs(30);

pub fn open(options: OpenOptions) -> (Volume, RecoveryReport) {
    let begin = Instant::now();
    let (volume, report) = loop {
        match Volume::open(options.clone()) {
            Err(OpenError::DirInUse { .. } | OpenError::Log(_)) if begin.elapsed() < LOCKED_MAX => {
                std::thread::yield_now();
            }
            opened => break opened.expect("open"),
        }
    };
    volume.start(Arc::new(NoNotes)).expect("start");
    (volume, report)
}

impl Rig {
    pub fn new(durability: Durability) -> Rig {
        Rig::at(tempfile::tempdir().expect("tempdir"), durability)
    }

    /// In the given directory.
    pub fn at(temp: tempfile::TempDir, durability: Durability) -> Rig {
        // Independent of the thread's umask.
        std::fs::create_dir(temp.path().join("dir")).expect("mkdir");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(temp.path().join("dir"), mode).expect("chmod");
        let beside = beside();
        let (volume, report) = open(options(temp.path(), beside.path(), durability));
        Rig { temp, beside, volume, report }
    }

    pub fn log() -> Rig {
        Rig::new(Durability::Log)
    }

    pub fn dir(&self) -> PathBuf {
        self.temp.path().join("dir")
    }

    /// Stops the volume (cleanly) and opens it again.
    pub fn restart(self) -> Rig {
        let Rig { temp, beside, volume, .. } = self;
        let durability = volume.durability();
        volume.shutdown().expect("shutdown");
        drop(volume);
        let (volume, report) = open(options(temp.path(), beside.path(), durability));
        Rig { temp, beside, volume, report }
    }

    /// Opens it again as after a crash of the server alone: nothing is stopped cleanly.
    pub fn crash(self) -> Rig {
        let Rig { temp, beside, volume, .. } = self;
        let durability = volume.durability();
        drop(volume);
        let (volume, report) = open(options(temp.path(), beside.path(), durability));
        Rig { temp, beside, volume, report }
    }

    /// Runs one operation as one request and waits until it is stable.
    pub fn run<T>(&self, op: impl FnOnce(&mut Tx) -> Result<T, Error>) -> Result<T, Error> {
        let mut tx = self.volume.tx();
        let result = op(&mut tx);
        tx.finish().wait_blocking()?;
        result
    }

    pub fn create(&self, cred: &Cred, dir: &Node, name: &str) -> Result<Created, Error> {
        self.create_how(cred, dir, name, CreateHow::Guarded(mode(0o644)))
    }

    pub fn create_how(&self, cred: &Cred, dir: &Node, name: &str, how: CreateHow) -> Result<Created, Error> {
        self.run(|tx| self.volume.create(tx, cred, dir, name.as_bytes(), how, OpenMode::BOTH))
    }

    pub fn mkdir(&self, cred: &Cred, dir: &Node, name: &str) -> Result<Node, Error> {
        self.run(|tx| self.volume.mkdir(tx, cred, dir, name.as_bytes(), mode(0o755))).map(|m| m.node)
    }

    pub fn write(&self, file: &OpenFile, offset: u64, data: &[u8]) -> Result<(u32, Stable), Error> {
        let data = bytes::Bytes::copy_from_slice(data);
        self.run(|tx| self.volume.write(tx, file, offset, data, Stable::FileSync))
    }

    pub fn setattr(&self, cred: &Cred, node: &Node, attrs: SetAttrs) -> Result<Attrs, Error> {
        self.run(|tx| self.volume.setattr(tx, cred, node, None, attrs))?;
        self.volume.getattr(node)
    }

    pub fn remove(&self, cred: &Cred, dir: &Node, name: &str) -> Result<ChangeInfo, Error> {
        self.run(|tx| self.volume.remove(tx, cred, dir, name.as_bytes()))
    }

    pub fn link(&self, cred: &Cred, node: &Node, dir: &Node, name: &str) -> Result<ChangeInfo, Error> {
        self.run(|tx| self.volume.link(tx, cred, node, dir, name.as_bytes()))
    }

    pub fn rename(
        &self,
        cred: &Cred,
        (from_dir, from): (&Node, &str),
        (to_dir, to): (&Node, &str),
    ) -> Result<(ChangeInfo, ChangeInfo), Error> {
        self.run(|tx| self.volume.rename(tx, cred, from_dir, from.as_bytes(), to_dir, to.as_bytes()))
    }

    pub fn lookup(&self, cred: &Cred, dir: &Node, name: &str) -> Result<Node, Error> {
        self.volume.lookup(cred, dir, name.as_bytes())
    }

    pub fn attrs(&self, node: &Node) -> Attrs {
        self.volume.getattr(node).expect("getattr")
    }

    /// All names of a directory, read in pages of `limit`.
    pub fn names(&self, dir: &Node, limit: usize) -> Vec<String> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let page = self.volume.readdir(&root(), dir, cookie, limit, EntryDetail::Names).expect("readdir");
            for entry in &page.entries {
                assert!(entry.cookie > 2);
                names.push(String::from_utf8_lossy(&entry.name).into_owned());
            }
            if page.eof {
                return names;
            }
            cookie = page.entries.last().expect("progress").cookie;
        }
    }

    pub fn change(&self, node: &Node) -> u64 {
        self.volume.getattr(node).expect("getattr").change
    }
}

pub fn mode(mode: u32) -> SetAttrs {
    SetAttrs { mode: Some(mode), ..SetAttrs::default() }
}

pub fn root() -> Cred {
    Cred::root()
}

/// A user without privileges.
pub fn user(uid: u32) -> Cred {
    Cred { uid, gid: uid, groups: Arc::from([]) }
}
