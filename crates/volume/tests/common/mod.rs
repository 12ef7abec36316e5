//! A volume in a temporary directory, with or without a log.
#![allow(dead_code)] // Not every test binary uses all of it.

pub mod image;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfast_volume::{
    Attrs, CreateHow, Created, Cred, Durability, Error, Node, NoteKeeper, OpenFile, OpenMode, OpenOptions,
    RecoveryReport, SetAttrs, Stable, Tx, Volume,
};

/// A server without state.
pub struct NoNotes;

impl NoteKeeper for NoNotes {
    fn snapshot(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

/// A directory, a log beside it, and the volume.
pub struct Rig {
    /// Removed at the end.
    pub temp: tempfile::TempDir,
    pub volume: Volume,
    pub report: RecoveryReport,
}

/// False, with a line that says so, when the test cannot run.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: needs root");
    }
    root
}

pub fn options(base: &Path, durability: Durability) -> OpenOptions {
    let mut options = OpenOptions::new(base.join("dir"), durability);
    if durability == Durability::Log {
        options.log = Some(base.join("log"));
        options.log_size = 16 << 20;
    }
    options
}

pub fn open(options: OpenOptions) -> (Volume, RecoveryReport) {
    let (volume, report) = Volume::open(options).expect("open");
    volume.start(Arc::new(NoNotes)).expect("start");
    (volume, report)
}

impl Rig {
    pub fn new(durability: Durability) -> Rig {
        let temp = tempfile::tempdir().expect("tempdir");
        std::fs::create_dir(temp.path().join("dir")).expect("mkdir");
        let (volume, report) = open(options(temp.path(), durability));
        Rig { temp, volume, report }
    }

    /// With the log.
    pub fn log() -> Rig {
        Rig::new(Durability::Log)
    }

    pub fn dir(&self) -> PathBuf {
        self.temp.path().join("dir")
    }

    /// Stops the volume (cleanly) and opens it again.
    pub fn restart(self) -> Rig {
        let Rig { temp, volume, .. } = self;
        let durability = volume.durability();
        volume.shutdown().expect("shutdown");
        drop(volume);
        let (volume, report) = open(options(temp.path(), durability));
        Rig { temp, volume, report }
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

/// Somebody without privileges.
pub fn user(uid: u32) -> Cred {
    Cred { uid, gid: uid, groups: Arc::from([]) }
}
