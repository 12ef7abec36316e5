//! What a client of any version can do.

use crate::error::{Error, Meaning, Result};
use crate::judge::FileKind;
use crate::limits::{DELAY_PATIENCE, DELAY_PAUSE};
use crate::plan::Abilities;
use std::time::Instant;

pub type Fh = Vec<u8>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attr {
    pub kind: FileKind,
    pub mode: u32,
    pub size: u64,
    pub fileid: u64,
    /// Modification time: seconds, nanoseconds.
    pub mtime: (i64, u32),
}

#[derive(Debug, Clone)]
pub struct Created {
    pub fh: Fh,
    pub fileid: u64,
    /// The server set the mode with the creation.
    pub mode_set: bool,
    /// The reply did not say what was made, so this is what was at its name a moment later.
    pub looked_up: bool,
}

#[derive(Debug, Clone)]
pub struct Written {
    pub count: u32,
    pub stable: bool,
    pub verf: [u8; 8],
}

#[derive(Debug, Clone, Copy)]
pub enum SetAttr {
    Mode(u32),
    Size(u64),
    /// Modification time in seconds.
    Mtime(u32),
}

/// How CREATE treats a file that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    Guarded,
    Unchecked,
    /// An existing file is emptied.
    Truncated,
    /// A file may exist only if it was made with this verifier.
    Exclusive([u8; 8]),
}

/// One client that makes one call after another.
pub trait Nfs: Send {
    fn base(&mut self) -> Result<(Fh, Attr)>;
    fn lookup(&mut self, dir: &Fh, name: &str) -> Result<(Fh, Attr)>;
    fn getattr(&mut self, fh: &Fh) -> Result<Attr>;
    /// An existing file keeps its mode.
    fn create(&mut self, dir: &Fh, name: &str, mode: u32, how: Creation) -> Result<Created>;
    fn mkdir(&mut self, dir: &Fh, name: &str, mode: u32) -> Result<Created>;
    fn symlink(&mut self, dir: &Fh, name: &str, text: &str) -> Result<Created>;
    fn write(&mut self, fh: &Fh, offset: u64, data: Vec<u8>, stable: bool) -> Result<Written>;
    /// COMMIT of the whole file. Returns the write verifier.
    fn commit(&mut self, fh: &Fh) -> Result<[u8; 8]>;
    fn set(&mut self, fh: &Fh, what: SetAttr) -> Result<()>;
    fn link(&mut self, fh: &Fh, dir: &Fh, name: &str) -> Result<()>;
    fn rename(&mut self, from: &Fh, old: &str, to: &Fh, new: &str) -> Result<()>;
    fn remove(&mut self, dir: &Fh, name: &str, is_dir: bool) -> Result<()>;
    /// The names in a directory without `.` and `..`; not many more than `max` of them.
    fn names(&mut self, dir: &Fh, max: usize) -> Result<Vec<String>>;
    /// Reads up to `count` bytes. Returns whether the file ends behind them, too.
    fn read(&mut self, fh: &Fh, offset: u64, count: u32) -> Result<(Vec<u8>, bool)>;
    fn readlink(&mut self, fh: &Fh) -> Result<String>;
    fn set_xattr(&mut self, fh: &Fh, name: &str, value: Option<Vec<u8>>) -> Result<()>;
    /// Sets an extended attribute that must not exist.
    fn new_xattr(&mut self, fh: &Fh, name: &str, value: Vec<u8>) -> Result<()>;
    /// Reserves room for the beginning of a file, which is that long afterwards (version 4.2).
    fn allocate(&mut self, fh: &Fh, len: u64) -> Result<()>;
    /// Closes the files that it has open, so that the server need not keep them open either.
    fn close_all(&mut self) -> Result<()>;
    fn xattr(&mut self, fh: &Fh, name: &str) -> Result<Option<Vec<u8>>>;
    /// What the server can do in the directory of the URL.
    fn abilities(&mut self) -> Result<Abilities>;
    /// Gives state back to the server, as far as that succeeds.
    fn leave(&mut self);
}

/// Repeats a call while the server says that it cannot be done now (DELAY, JUKEBOX, GRACE).
/// Errors: Any other failure; and this one after [`DELAY_PATIENCE`].
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

/// A verifier for an exclusive create, or for a client's start: never the same twice.
/// Errors: This machine gives no random numbers.
pub fn verifier() -> Result<[u8; 8]> {
    let random = getrandom::u64().map_err(|e| Error::Unable(format!("no random numbers: {e}")))?;
    Ok(random.to_be_bytes())
}
