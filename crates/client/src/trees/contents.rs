//! Digests of file data, and extended attributes.
//!
//! A digest is a 128-bit SipHash under a random key that is made for one comparison. Two different files have the same
//! digest with a probability of at most 2^-64, whatever they contain.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::Hasher as _;
use std::io::{self, Read};
use std::path::Path;

use landfast_nfs::v4::FileHandle;
use rustix::fs::{Mode, OFlags};
use siphasher::sip128::{Hasher128, SipHasher24};
use tokio::task::JoinSet;

use super::tree::{Digest, OnProgress, Origin, Tree};
use crate::fs::{Fetched, ItemError, Nfs, Outcome, Wanted, Xattr, join};
use crate::limits::{
    COMPARED_CALLS_MAX, FETCHED_TOGETHER, FETCHED_TOGETHER_BYTES, FETCHED_WHOLE_MAX, READ_BYTES,
    STRETCH_BYTES,
};
use crate::local;
use crate::session::SessionError;

/// The key of the digests.
#[derive(Debug, Clone, Copy)]
pub struct Key(u64, u64);

impl Key {
    #[must_use]
    pub fn random() -> Key {
        let number = || getrandom::u64().unwrap_or_else(|_| std::process::id().into());
        Key(number(), number())
    }
}

pub(super) struct Hasher {
    inner: SipHasher24,
    at: u64,
}

impl Hasher {
    pub(super) fn new(Key(a, b): Key) -> Hasher {
        Hasher { inner: SipHasher24::new_with_keys(a, b), at: 0 }
    }

    pub(super) fn add(&mut self, data: &[u8]) {
        self.inner.write(data);
        self.at += data.len() as u64;
    }

    pub(super) fn zeroes_up_to(&mut self, to: u64) {
        static ZEROES: [u8; 1 << 16] = [0; 1 << 16];
        while self.at < to {
            let n = usize::try_from(to - self.at).unwrap_or(usize::MAX).min(ZEROES.len());
            self.add(&ZEROES[..n]);
        }
    }

    pub(super) fn end(&self) -> Digest {
        self.inner.finish128().into()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// `None`: it was not asked for.
    pub(super) digest: Option<Digest>,
    /// `None`: they were not asked for.
    pub(super) xattrs: Option<Vec<Xattr>>,
}

/// Contents by path, or why they cannot be read.
pub type ByPath = BTreeMap<Vec<u8>, Result<Contents, String>>;

/// What to read of the objects.
#[derive(Clone)]
pub struct ContentsOptions {
    /// The data of files.
    pub data: bool,
    /// The extended attributes of files and directories.
    pub xattrs: bool,
    /// Must be the same for all trees that are compared.
    pub key: Key,
    pub on_progress: OnProgress,
}

impl ContentsOptions {
    /// How many of these objects have to be read.
    #[must_use]
    pub fn reads(&self, tree: &Tree, paths: &[Vec<u8>]) -> u64 {
        let is_read = |path: &&Vec<u8>| self.xattrs || self.data && tree.is_file(path);
        match tree.origin {
            Origin::Archive => 0,
            _ => paths.iter().filter(is_read).count() as u64,
        }
    }
}

/// Reads the contents of these objects. `error_text` turns an error into the caller's words.
pub async fn contents(
    tree: &Tree,
    paths: Vec<Vec<u8>>,
    options: &ContentsOptions,
    error_text: impl Fn(&ItemError) -> String,
) -> ByPath {
    let ContentsOptions { data, xattrs, key, .. } = *options;
    match &tree.origin {
        Origin::Archive => {
            let of = |path: Vec<u8>| {
                let node = tree.nodes.get(&path)?;
                let digest = node.digest.filter(|_| data);
                Some((path, Ok(Contents { digest, xattrs: xattrs.then(|| node.xattrs.clone()) })))
            };
            paths.into_iter().filter_map(of).collect()
        }
        Origin::Local(top) => {
            let (top, on_progress) = (top.clone(), options.on_progress.clone());
            let wanted = paths.into_iter().map(|path| (data && tree.is_file(&path), path));
            let wanted: Vec<_> = wanted.filter(|(data, _)| *data || xattrs).collect();
            let read = tokio::task::spawn_blocking(move || {
                let one = |(data, path): (bool, Vec<u8>)| {
                    let read = of_local(&top, &path, data, xattrs, key).map_err(|e| e.to_string());
                    on_progress(1);
                    (path, read)
                };
                wanted.into_iter().map(one).collect()
            });
            match read.await {
                Ok(all) => all,
                Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
                Err(_) => BTreeMap::new(),
            }
        }
        Origin::Server(nfs) => {
            let known = |path: Vec<u8>| {
                let node = tree.nodes.get(&path)?;
                let size = (data && tree.is_file(&path)).then_some(node.meta.size);
                (size.is_some() || xattrs).then_some((path, node.fh.clone()?, size))
            };
            let wanted: Vec<_> = paths.into_iter().filter_map(known).collect();
            of_server(nfs, wanted, options, error_text).await
        }
    }
}

/// Opens a local file. Does not follow a symbolic link at `path`, unless `path` is the top.
pub(super) fn open(top: &Path, path: &[u8]) -> io::Result<File> {
    use std::os::unix::ffi::OsStrExt;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let (whole, flags) = match path {
        b"" => (top.as_os_str().as_bytes().to_vec(), flags),
        path => (join(top.as_os_str().as_bytes(), path), flags | OFlags::NOFOLLOW),
    };
    Ok(rustix::fs::open(std::ffi::OsStr::from_bytes(&whole), flags, Mode::empty())?.into())
}

fn of_local(top: &Path, path: &[u8], data: bool, xattrs: bool, key: Key) -> io::Result<Contents> {
    let mut file = open(top, path)?;
    let mut hasher = Hasher::new(key);
    if data {
        let mut part = vec![0; READ_BYTES as usize];
        loop {
            match file.read(&mut part) {
                Ok(0) => break,
                Ok(n) => hasher.add(&part[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
    let xattrs = if xattrs { Some(local::xattrs(&file)?) } else { None };
    Ok(Contents { digest: data.then(|| hasher.end()), xattrs })
}

/// A path, its filehandle, and the size if the data is to be read.
type Object = (Vec<u8>, FileHandle, Option<u64>);

/// Paths, whether their data is to be read, and the results.
type Batch = (Vec<(Vec<u8>, bool)>, Vec<Outcome<Fetched>>);

async fn of_server(
    nfs: &Nfs,
    wanted: Vec<Object>,
    ContentsOptions { xattrs, key, on_progress, .. }: &ContentsOptions,
    error_text: impl Fn(&ItemError) -> String,
) -> ByPath {
    let (xattrs, key) = (*xattrs, *key);
    let mut all = BTreeMap::new();
    let (large, small): (Vec<Object>, Vec<Object>) =
        wanted.into_iter().partition(|(_, _, size)| size.is_some_and(|n| n > FETCHED_WHOLE_MAX));
    let mut calls: JoinSet<Batch> = JoinSet::new();
    let mut small = small.into_iter().peekable();
    loop {
        while calls.len() < COMPARED_CALLS_MAX && small.peek().is_some() {
            let (mut paths, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0);
            while batch.len() < FETCHED_TOGETHER
                && bytes < FETCHED_TOGETHER_BYTES
                && let Some((path, fh, size)) = small.next()
            {
                paths.push((path, size.is_some()));
                let size = size.unwrap_or_default();
                bytes += size;
                // Ask for one byte more than expected: a file that has grown is different.
                batch.push(Wanted { fh, bytes: if size > 0 { size + 1 } else { 0 }, xattrs });
            }
            let nfs = nfs.clone();
            calls.spawn(async move { (paths, nfs.fetch(batch).await) });
        }
        match calls.join_next().await {
            Some(Ok((paths, outcomes))) => {
                on_progress(paths.len() as u64);
                for ((path, data), outcome) in paths.into_iter().zip(outcomes) {
                    let one = outcome.into_result().map(|got| {
                        let mut hasher = Hasher::new(key);
                        hasher.add(&got.data);
                        Contents { digest: data.then(|| hasher.end()), xattrs: xattrs.then_some(got.xattrs) }
                    });
                    all.insert(path, one.map_err(|e| error_text(&e)));
                }
            }
            Some(Err(e)) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
            Some(Err(_)) => {}
            None => break,
        }
    }
    for (path, fh, size) in large {
        let one = of_large(nfs, fh, size.unwrap_or_default(), xattrs, key).await.map_err(|e| error_text(&e));
        on_progress(1);
        all.insert(path, one);
    }
    all
}

/// For a file that is too large for memory.
async fn of_large(
    nfs: &Nfs,
    fh: FileHandle,
    size: u64,
    xattrs: bool,
    key: Key,
) -> Result<Contents, ItemError> {
    let mut hasher = Hasher::new(key);
    let ahead = STRETCH_BYTES * 4;
    let mut at = 0;
    'file: while at <= size {
        let piece = u64::from(READ_BYTES);
        let parts = (0..ahead / piece).map(|n| (fh.clone(), at + n * piece, piece));
        for part in nfs.read_of(parts.take_while(|(_, from, _)| *from <= size)).await {
            let part = part.into_result()?;
            hasher.add(&part);
            at += part.len() as u64;
            if (part.len() as u64) < piece {
                break 'file;
            }
        }
    }
    let none = || Outcome::from(SessionError::Ended);
    let xattrs = match xattrs {
        false => None,
        true => {
            let fetched = nfs.fetch([Wanted { fh, bytes: 0, xattrs }]).await.pop();
            Some(fetched.unwrap_or_else(none).into_result()?.xattrs)
        }
    };
    Ok(Contents { digest: Some(hasher.end()), xattrs })
}
