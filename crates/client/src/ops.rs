//! Jobs of a few COMPOUNDs that change nothing: resolve a path, stat, list, read. [`crate::fs`] handles trees. All jobs
//! are repeated when the server answers DELAY or a reply is lost.

use bytes::{Bytes, BytesMut};
use landfast_nfs::v4::args::{ReadArgs, ReaddirArgs};
use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};
use landfast_nfs::v4::res::DirEntry;
use landfast_nfs::v4::{
    ArgOp, CompoundRes, FileHandle, FileType, NfsStat, OpNum, ResBody, ResOp, Stateid, Verifier,
};

use crate::compound::{OpError, Results, values};
use crate::limits;
use crate::patience::Patience;
use crate::session::{Session, SessionError};

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Op(#[from] OpError),
    /// A component of a path could not be resolved.
    #[error("{path}: {source}")]
    Path {
        /// The path up to that component.
        path: String,
        source: OpError,
    },
    /// More than [`limits::SYMLINKS_MAX`] symbolic links.
    #[error("{0}: too many levels of symbolic links")]
    Loop(String),
    /// A symbolic link that contains `..`, in the path of a URL: it cannot be followed.
    #[error("{0}: cannot follow a symbolic link with `..`")]
    Link(String),
}

impl Error {
    /// The NFS status, if a server gave one.
    pub fn status(&self) -> Option<NfsStat> {
        match self {
            Error::Op(e) | Error::Path { source: e, .. } => Some(e.status()),
            Error::Session(SessionError::Refused(status)) => Some(*status),
            _ => None,
        }
    }
}

/// The attributes that [`stat`] and [`list`] ask for.
pub const STAT: Bitmap = Bitmap::of(&[
    number::TYPE,
    number::CHANGE,
    number::SIZE,
    number::FSID,
    number::FILEHANDLE,
    number::FILEID,
    number::MODE,
    number::NUMLINKS,
    number::OWNER,
    number::OWNER_GROUP,
    number::RAWDEV,
    number::SPACE_USED,
    number::TIME_ACCESS,
    number::TIME_METADATA,
    number::TIME_MODIFY,
]);

#[derive(Debug, Clone)]
pub struct Entry {
    pub name: Bytes,
    /// As far as the server gave them.
    pub attrs: AttrValues,
}

/// Sends a COMPOUND that may be repeated, until it is neither lost nor delayed. Fails as [`Session::compound`], or when
/// DELAY or GRACE lasts longer than [`limits::DELAY_PATIENCE`].
pub async fn repeatable(session: &Session, ops: Vec<ArgOp>) -> Result<CompoundRes, SessionError> {
    let mut patience = Patience::new();
    loop {
        let done = session.compound(ops.clone(), false).await;
        let again = match &done {
            Ok(reply) => matches!(reply.status, NfsStat::NFS4ERR_DELAY | NfsStat::NFS4ERR_GRACE),
            Err(e) => e.is_unknown(),
        };
        if !again || !patience.wait().await {
            return done;
        }
    }
}

/// The filehandle and attributes of a path from the server's root, through symbolic links. [`Error::Path`] names the
/// component that could not be resolved.
pub async fn resolve(session: &Session, path: &[Vec<u8>]) -> Result<(FileHandle, AttrValues), Error> {
    resolve_from(session, path, None).await
}

/// The first operations that resolve a path, for [`Session::connect_with`]; none if the path needs several COMPOUNDs.
pub(crate) fn resolving(path: &[Vec<u8>]) -> Vec<ArgOp> {
    if path.len() > NAMES_MAX { Vec::new() } else { going(ArgOp::Putrootfh, path) }
}

/// As [`resolve`], with the reply to [`resolving`], if there is one.
pub(crate) async fn resolve_from(
    session: &Session,
    path: &[Vec<u8>],
    mut first: Option<CompoundRes>,
) -> Result<(FileHandle, AttrValues), Error> {
    let mut path: Vec<Vec<u8>> = path.to_vec();
    // What may succeed the next time is asked again.
    first = first.filter(|reply| {
        reply.results.last().is_some_and(|r| {
            !matches!(r.status, NfsStat::NFS4ERR_DELAY | NfsStat::NFS4ERR_GRACE | NfsStat::NFS4ERR_RESOURCE)
        })
    });
    for _ in 0..=limits::SYMLINKS_MAX {
        match walk_down(session, &path, first.take()).await? {
            Step::There(fh, attrs) => return Ok((fh, *attrs)),
            Step::Link { at, text } => {
                let shown = || show(&path[..=at]);
                let target: Vec<Vec<u8>> = text
                    .split(|b| *b == b'/')
                    .filter(|c| !c.is_empty() && *c != b".")
                    .map(<[u8]>::to_vec)
                    .collect();
                if target.iter().any(|c| c == b"..") {
                    return Err(Error::Link(shown()));
                }
                let from = if text.first() == Some(&b'/') { 0 } else { at };
                path.splice(from..=at, target);
            }
        }
    }
    Err(Error::Loop(show(&path)))
}

enum Step {
    There(FileHandle, Box<AttrValues>),
    /// Component `at` is a symbolic link.
    Link {
        at: usize,
        text: Bytes,
    },
}

/// The most names looked up in one COMPOUND.
const NAMES_MAX: usize = 128;

/// Looks names up from `at`, and asks what is there.
fn going(at: ArgOp, names: &[Vec<u8>]) -> Vec<ArgOp> {
    let mut ops = vec![at];
    ops.extend(names.iter().map(|c| ArgOp::Lookup(Bytes::copy_from_slice(c))));
    ops.extend([ArgOp::Getfh, ArgOp::Getattr(STAT)]);
    ops
}

async fn walk_down(
    session: &Session,
    path: &[Vec<u8>],
    mut first: Option<CompoundRes>,
) -> Result<Step, Error> {
    // SEQUENCE, PUTROOTFH, GETFH and GETATTR take four. A longer path takes several COMPOUNDs.
    let each = (session.limits().ops.saturating_sub(4) as usize).clamp(1, NAMES_MAX);
    let each = if first.is_some() { NAMES_MAX } else { each };
    let mut at = ArgOp::Putrootfh;
    let mut done = 0;
    loop {
        let part = &path[done..path.len().min(done + each)];
        let reply = match first.take() {
            Some(reply) => reply,
            None => repeatable(session, going(at.clone(), part)).await?,
        };
        let passed = reply.results.iter().filter(|r| r.op == OpNum::LOOKUP && r.status.is_ok()).count();
        let mut results = Results::new(reply);
        results.take(at.op())?;
        for i in 0..part.len() {
            match results.take(OpNum::LOOKUP) {
                Ok(_) => {}
                // LOOKUP in an object that is no directory: the component before it is a symbolic link.
                Err(e)
                    if i + done > 0
                        && matches!(e.status(), NfsStat::NFS4ERR_SYMLINK | NfsStat::NFS4ERR_NOTDIR) =>
                {
                    let at = done + passed - 1;
                    return match read_link_at(session, &path[..=at]).await {
                        Ok(text) => Ok(Step::Link { at, text }),
                        Err(_) => Err(Error::Path { path: show(&path[..=at]), source: e }),
                    };
                }
                Err(source) => return Err(Error::Path { path: show(&path[..=done + i]), source }),
            }
        }
        let fh = results.getfh()?;
        let attrs = values(&results.getattr()?)?;
        done += part.len();
        if done == path.len() {
            return match attrs.kind {
                Some(FileType::Lnk) if done > 0 => {
                    Ok(Step::Link { at: done - 1, text: readlink(session, &fh).await? })
                }
                _ => Ok(Step::There(fh, Box::new(attrs))),
            };
        }
        at = ArgOp::Putfh(fh);
    }
}

async fn read_link_at(session: &Session, path: &[Vec<u8>]) -> Result<Bytes, Error> {
    let mut ops = vec![ArgOp::Putrootfh];
    ops.extend(path.iter().map(|c| ArgOp::Lookup(Bytes::copy_from_slice(c))));
    ops.push(ArgOp::Readlink);
    let mut results = Results::new(repeatable(session, ops).await?);
    results.take(OpNum::PUTROOTFH)?;
    path.iter().try_for_each(|_| results.take(OpNum::LOOKUP).map(drop))?;
    Ok(results.readlink()?)
}

fn show(path: &[Vec<u8>]) -> String {
    path.iter().map(|c| format!("/{}", String::from_utf8_lossy(c))).collect()
}

pub async fn stat(session: &Session, fh: &FileHandle) -> Result<AttrValues, Error> {
    let ops = vec![ArgOp::Putfh(fh.clone()), ArgOp::Getattr(STAT)];
    let mut results = Results::new(repeatable(session, ops).await?);
    results.take(OpNum::PUTFH)?;
    Ok(values(&results.getattr()?)?)
}

/// The filehandle and attributes of a name in a directory; `None` if it does not exist. Does not follow symbolic links.
pub async fn lookup(
    session: &Session,
    dir: &FileHandle,
    name: &[u8],
) -> Result<Option<(FileHandle, AttrValues)>, Error> {
    let ops = vec![
        ArgOp::Putfh(dir.clone()),
        ArgOp::Lookup(Bytes::copy_from_slice(name)),
        ArgOp::Getfh,
        ArgOp::Getattr(STAT),
    ];
    let mut results = Results::new(repeatable(session, ops).await?);
    results.take(OpNum::PUTFH)?;
    match results.take(OpNum::LOOKUP) {
        Err(OpError::Failed { status: NfsStat::NFS4ERR_NOENT, .. }) => return Ok(None),
        other => other?,
    };
    Ok(Some((results.getfh()?, values(&results.getattr()?)?)))
}

pub async fn readlink(session: &Session, fh: &FileHandle) -> Result<Bytes, Error> {
    let mut results =
        Results::new(repeatable(session, vec![ArgOp::Putfh(fh.clone()), ArgOp::Readlink]).await?);
    results.take(OpNum::PUTFH)?;
    Ok(results.readlink()?)
}

/// All entries of a directory with these attributes; `None` if there are more than `max`.
pub async fn list(
    session: &Session,
    dir: &FileHandle,
    attrs: Bitmap,
    max: usize,
) -> Result<Option<Vec<Entry>>, Error> {
    let maxcount = limits::READDIR_BYTES.min(session.limits().response.saturating_sub(1024)).max(1024);
    let (mut cookie, mut cookieverf) = (0, Verifier::default());
    let mut entries = Vec::new();
    loop {
        let read = ReaddirArgs { cookie, cookieverf, dircount: maxcount, maxcount, attr_request: attrs };
        let ops = vec![ArgOp::Putfh(dir.clone()), ArgOp::Readdir(read)];
        let mut results = Results::new(repeatable(session, ops).await?);
        results.take(OpNum::PUTFH)?;
        let page = results.readdir()?;
        cookieverf = page.cookieverf;
        let Some(last) = page.entries.last() else { return Ok(Some(entries)) };
        cookie = last.cookie;
        for e in page.entries {
            entries.push(Entry { name: e.name, attrs: values(&e.attrs)? });
        }
        if entries.len() > max {
            return Ok(None);
        }
        if page.eof {
            return Ok(Some(entries));
        }
    }
}

/// Lists the first entries of the current directory, after [`resolving`].
pub(crate) fn listing(attrs: Bitmap) -> ArgOp {
    let maxcount = limits::READDIR_FIRST_BYTES;
    ArgOp::Readdir(ReaddirArgs {
        cookie: 0,
        cookieverf: Verifier::default(),
        dircount: maxcount,
        maxcount,
        attr_request: attrs,
    })
}

/// The result of [`listing`], the last one of a reply: all entries, if these were all.
pub(crate) fn listed(reply: &CompoundRes) -> Option<Vec<Entry>> {
    let Some(ResOp { body: ResBody::Readdir(page), status: NfsStat::NFS4_OK, .. }) = reply.results.last()
    else {
        return None;
    };
    let entry = |e: &DirEntry| Some(Entry { name: e.name.clone(), attrs: values(&e.attrs).ok()? });
    page.eof.then(|| page.entries.iter().map(entry).collect())?
}

pub async fn read_file(session: &Session, fh: &FileHandle) -> Result<Bytes, Error> {
    let count = limits::READ_BYTES.min(session.limits().response.saturating_sub(1024)).max(1024);
    let mut all = BytesMut::new();
    loop {
        let read = ReadArgs { stateid: Stateid::ANONYMOUS, offset: all.len() as u64, count };
        let ops = vec![ArgOp::Putfh(fh.clone()), ArgOp::Read(read)];
        let mut results = Results::new(repeatable(session, ops).await?);
        results.take(OpNum::PUTFH)?;
        let part = results.data()?;
        if all.is_empty() && part.eof {
            return Ok(part.data);
        }
        all.extend_from_slice(&part.data);
        if part.eof {
            return Ok(all.freeze());
        }
    }
}
