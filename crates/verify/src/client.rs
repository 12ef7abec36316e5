//! What a client of any version can do, and how an operation is done with it.

use crate::error::{Error, Meaning, Result};
use crate::judge::SeenKind;
use crate::limits::{DELAY_PATIENCE, DELAY_PAUSE};
use crate::model::{Id, Model};
use crate::op::{Op, Reply, data, hex, split, unhex};
use crate::plan::Abilities;
use std::time::{Duration, Instant};

/// A handle.
pub type Fh = Vec<u8>;

/// Attributes of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attr {
    /// What it is.
    pub kind: SeenKind,
    /// Permission bits.
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
    /// File id.
    pub fileid: u64,
    /// Modification time: seconds, nanoseconds.
    pub mtime: (i64, u32),
}

/// What was made.
#[derive(Debug, Clone)]
pub struct Made {
    /// Its handle.
    pub fh: Fh,
    /// Its file id.
    pub fileid: u64,
    /// The mode was set with it.
    pub mode_set: bool,
    /// The reply did not say what was made: what was at its name a moment later is told.
    pub looked_up: bool,
}

/// What a WRITE did.
#[derive(Debug, Clone)]
pub struct Written {
    /// Bytes.
    pub count: u32,
    /// They are stable.
    pub stable: bool,
    /// The write verifier.
    pub verf: [u8; 8],
}

/// What SETATTR sets.
#[derive(Debug, Clone, Copy)]
pub enum Set {
    /// Permission bits.
    Mode(u32),
    /// Size in bytes.
    Size(u64),
    /// Modification time in seconds.
    Mtime(u32),
}

/// How a file is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It must not exist.
    Guarded,
    /// It may exist.
    Unchecked,
    /// It may exist, and is empty afterwards.
    Truncated,
    /// It must not exist, unless it was made with this verifier.
    Exclusive([u8; 8]),
}

/// One client: one call after another.
pub trait Nfs: Send {
    /// The directory of the URL.
    fn base(&mut self) -> Result<(Fh, Attr)>;
    /// A name in a directory.
    fn lookup(&mut self, dir: &Fh, name: &str) -> Result<(Fh, Attr)>;
    /// Attributes.
    fn getattr(&mut self, fh: &Fh) -> Result<Attr>;
    /// A file, new or not; what exists keeps its mode.
    fn create(&mut self, dir: &Fh, name: &str, mode: u32, how: How) -> Result<Made>;
    /// A new directory.
    fn mkdir(&mut self, dir: &Fh, name: &str, mode: u32) -> Result<Made>;
    /// A new symbolic link.
    fn symlink(&mut self, dir: &Fh, name: &str, text: &str) -> Result<Made>;
    /// WRITE.
    fn write(&mut self, fh: &Fh, offset: u64, data: Vec<u8>, stable: bool) -> Result<Written>;
    /// COMMIT of all: the verifier.
    fn commit(&mut self, fh: &Fh) -> Result<[u8; 8]>;
    /// SETATTR.
    fn set(&mut self, fh: &Fh, what: Set) -> Result<()>;
    /// A further name.
    fn link(&mut self, fh: &Fh, dir: &Fh, name: &str) -> Result<()>;
    /// Another name.
    fn rename(&mut self, from: &Fh, old: &str, to: &Fh, new: &str) -> Result<()>;
    /// One name less, of what is a directory or not.
    fn remove(&mut self, dir: &Fh, name: &str, is_dir: bool) -> Result<()>;
    /// The names in a directory but `.` and `..`; not many more than `max` of them.
    fn names(&mut self, dir: &Fh, max: usize) -> Result<Vec<String>>;
    /// Up to `count` bytes, and whether the file ends behind them.
    fn read(&mut self, fh: &Fh, offset: u64, count: u32) -> Result<(Vec<u8>, bool)>;
    /// Where a symbolic link leads.
    fn readlink(&mut self, fh: &Fh) -> Result<String>;
    /// Sets or removes an extended attribute.
    fn set_xattr(&mut self, fh: &Fh, name: &str, value: Option<Vec<u8>>) -> Result<()>;
    /// Sets an extended attribute that must not be there.
    fn new_xattr(&mut self, fh: &Fh, name: &str, value: Vec<u8>) -> Result<()>;
    /// Reserves room for the beginning of a file, which is that long afterwards (version 4.2).
    fn allocate(&mut self, fh: &Fh, len: u64) -> Result<()>;
    /// Closes the files that it has open, so that the server need not keep them open either.
    fn close_all(&mut self) -> Result<()>;
    /// An extended attribute, if there is one.
    fn xattr(&mut self, fh: &Fh, name: &str) -> Result<Option<Vec<u8>>>;
    /// What the server can do in the directory of the URL.
    fn abilities(&mut self) -> Result<Abilities>;
    /// Gives its state back to the server, as far as it gets.
    fn leave(&mut self);
}

/// Does something again while the server says that it cannot be done now.
///
/// # Errors
/// Any other failure; and that one when it lasts too long.
pub fn patiently<T>(mut what: impl FnMut() -> Result<T>) -> Result<T> {
    let since = Instant::now();
    loop {
        match what() {
            Err(e) if e.meaning() == Some(Meaning::Later) && since.elapsed() < DELAY_PATIENCE => {
                // RFC 8881 section 15.1.1.3: the client waits and tries again.
                std::thread::sleep(DELAY_PAUSE);
            }
            done => return done,
        }
    }
}

/// Does an operation, with the handles that the model knows.
///
/// # Errors
/// As the call's; [`Error::Nonsense`] when the model knows no handle.
pub fn perform(nfs: &mut dyn Nfs, base: &Fh, model: &Model, op: &Op) -> Result<Reply> {
    let handle = |id: Option<Id>| -> Result<Fh> {
        let id = id.ok_or_else(|| Error::Nonsense("no object at a path of the plan".into()))?;
        if id == crate::model::BASE {
            return Ok(base.clone());
        }
        let fh = model.object(id).and_then(|o| o.fh.as_deref()).and_then(unhex);
        fh.ok_or_else(|| Error::Nonsense("an object without a handle".into()))
    };
    let at = |path: &str| handle(model.find(path));
    let dir = |path: &str| at(split(path).0);
    let made = |m: Made| Reply {
        fh: Some(hex(&m.fh)),
        fileid: Some(m.fileid),
        mode_set: m.mode_set,
        ..Reply::default()
    };
    let nothing = |()| Reply::default();
    match op {
        Op::Create { path, mode, exclusive } => {
            let dir = dir(path)?;
            let how = if *exclusive { How::Exclusive(verifier()?) } else { How::Guarded };
            patiently(|| nfs.create(&dir, split(path).1, *mode, how)).map(made)
        }
        Op::Mkdir { path, mode } => {
            let dir = dir(path)?;
            patiently(|| nfs.mkdir(&dir, split(path).1, *mode)).map(made)
        }
        Op::Symlink { path, text } => {
            let dir = dir(path)?;
            patiently(|| nfs.symlink(&dir, split(path).1, text)).map(made)
        }
        Op::Write { path, offset, len, tag, stable } => {
            let (fh, data) = (at(path)?, data(*tag, *len as usize));
            let done = patiently(|| nfs.write(&fh, *offset, data.clone(), *stable))?;
            Ok(Reply {
                verf: Some(hex(&done.verf)),
                count: Some(done.count.min(*len)),
                stable: done.stable,
                ..Reply::default()
            })
        }
        Op::Commit { path, late } => {
            let fh = at(path)?;
            if let Some(millis) = late {
                nfs.close_all()?;
                std::thread::sleep(Duration::from_millis(u64::from(*millis)));
            }
            let verf = patiently(|| nfs.commit(&fh))?;
            Ok(Reply { verf: Some(hex(&verf)), ..Reply::default() })
        }
        Op::SetMode { path, mode } => {
            let fh = at(path)?;
            patiently(|| nfs.set(&fh, Set::Mode(*mode))).map(nothing)
        }
        Op::SetSize { path, size } => {
            let fh = at(path)?;
            patiently(|| nfs.set(&fh, Set::Size(*size))).map(nothing)
        }
        Op::SetTimes { path, mtime } => {
            let fh = at(path)?;
            patiently(|| nfs.set(&fh, Set::Mtime(*mtime))).map(nothing)
        }
        Op::Rmdir { path } | Op::Remove { path } => {
            let dir = dir(path)?;
            let is_dir = matches!(op, Op::Rmdir { .. });
            patiently(|| nfs.remove(&dir, split(path).1, is_dir)).map(nothing)
        }
        Op::Link { from, to } => {
            let (fh, dir) = (at(from)?, dir(to)?);
            patiently(|| nfs.link(&fh, &dir, split(to).1)).map(nothing)
        }
        Op::Rename { from, to, .. } => {
            let (old, new) = (dir(from)?, dir(to)?);
            patiently(|| nfs.rename(&old, split(from).1, &new, split(to).1)).map(nothing)
        }
        Op::SetXattr { path, name, len, tag } => {
            let (fh, value) = (at(path)?, data(*tag, *len as usize));
            patiently(|| nfs.set_xattr(&fh, name, Some(value.clone()))).map(nothing)
        }
        Op::RemoveXattr { path, name } => {
            let fh = at(path)?;
            patiently(|| nfs.set_xattr(&fh, name, None)).map(nothing)
        }
    }
}

/// A verifier for an exclusive create, or for a client's start: never the same twice.
///
/// # Errors
/// This machine gives no random numbers.
pub fn verifier() -> Result<[u8; 8]> {
    let random = getrandom::u64().map_err(|e| Error::Unable(format!("no random numbers: {e}")))?;
    Ok(random.to_be_bytes())
}
