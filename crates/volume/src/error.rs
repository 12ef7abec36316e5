//! Errors of operations ([`Error`]) and of opening a volume ([`OpenError`]).

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::inside::Inside;

/// Why an operation failed. The server maps each to one status of its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes are no handle of this volume: wrong length, version, export or signature.
    #[error("not a handle of this volume")]
    BadHandle,
    /// A genuine handle whose object is gone.
    #[error("the object is gone")]
    Stale,
    #[error("no such name")]
    NoEnt,
    #[error("the name is taken")]
    Exists,
    #[error("not a directory")]
    NotDir,
    #[error("is a directory")]
    IsDir,
    #[error("directory not empty")]
    NotEmpty,
    #[error("wrong kind of object")]
    WrongKind,
    #[error("is a symbolic link")]
    Symlink,
    #[error("empty name")]
    NameEmpty,
    #[error("the name is . or ..")]
    NameDots,
    #[error("the name contains / or NUL")]
    NameChar,
    /// A name or a link's target.
    #[error("name too long")]
    NameTooLong,
    /// A READDIR cookie that this volume never gives.
    #[error("bad directory cookie")]
    BadCookie,
    /// Permission bits or ACLs forbid it.
    #[error("access denied")]
    Access,
    /// Only the owner or the superuser may do this.
    #[error("operation not permitted")]
    Perm,
    #[error("read-only filesystem")]
    ReadOnly,
    #[error("invalid argument")]
    Inval,
    #[error("behind the end of the file")]
    BeyondEnd,
    #[error("not supported by the filesystem")]
    NotSupported,
    #[error("another filesystem")]
    CrossDevice,
    /// Another filesystem is mounted there: the volume ends at mount points.
    #[error("another filesystem is mounted there")]
    Mounted,
    #[error("too many links")]
    TooManyLinks,
    #[error("file too large")]
    TooBig,
    #[error("no space left")]
    NoSpace,
    #[error("quota exceeded")]
    Quota,
    #[error("no such extended attribute")]
    NoXattr,
    /// The value is larger than the filesystem takes.
    #[error("extended attribute too large")]
    XattrTooBig,
    /// A mount point, or a local process holds a lease; a retry may help.
    #[error("busy")]
    Busy,
    /// Out of memory or descriptors; a retry may help.
    #[error("out of resources")]
    Resources,
    #[error("input/output error")]
    Io,
    /// An earlier flush or log write failed: no modifying operation succeeds any more.
    #[error("the volume has failed; see its log")]
    Failed,
}

impl From<Errno> for Error {
    fn from(e: Errno) -> Error {
        match e {
            Errno::NOENT => Error::NoEnt,
            Errno::EXIST => Error::Exists,
            Errno::NOTDIR => Error::NotDir,
            Errno::ISDIR => Error::IsDir,
            Errno::NOTEMPTY => Error::NotEmpty,
            Errno::LOOP => Error::Symlink,
            Errno::NAMETOOLONG => Error::NameTooLong,
            Errno::ACCESS => Error::Access,
            Errno::PERM => Error::Perm,
            Errno::ROFS => Error::ReadOnly,
            Errno::INVAL => Error::Inval,
            Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => Error::NotSupported,
            Errno::XDEV => Error::CrossDevice,
            Errno::MLINK => Error::TooManyLinks,
            Errno::FBIG | Errno::OVERFLOW => Error::TooBig,
            Errno::NOSPC => Error::NoSpace,
            Errno::DQUOT => Error::Quota,
            Errno::NODATA => Error::NoXattr,
            Errno::TOOBIG => Error::XattrTooBig,
            Errno::BUSY | Errno::AGAIN | Errno::TXTBSY => Error::Busy,
            // A stale handle whose inode is just being reused also gives NOMEM; a retry then gives STALE.
            Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::NOBUFS => Error::Resources,
            Errno::STALE => Error::Stale,
            _ => Error::Io,
        }
    }
}

/// Why a volume could not be opened. Each message is one line and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{}: no such directory; create it or name another", .0.display())]
    Missing(PathBuf),
    #[error("{}: not a directory", .0.display())]
    NotADirectory(PathBuf),
    #[error(
        "nothing is mounted on {}, which the export's mountpoint says: mount its filesystem there, or take mountpoint out",
        .0.display()
    )]
    NotMounted(PathBuf),
    #[error("serving acts as each client's user, which needs root with {0}; missing: {1}")]
    Capabilities(&'static str, String),
    /// A thread that switches to another user keeps the superuser's rights, or cannot switch. Holds why and what to do.
    #[error("serving acts as each client's user, which a thread here tried and cannot: {0}")]
    Switch(String),
    #[error(
        "{}: filesystem {fs} is not one of ext4, XFS, btrfs, so a checkpoint of the log could lose data; \
         use --durability sync or a directory on one of those", .dir.display()
    )]
    Filesystem {
        dir: PathBuf,
        /// Name or magic number of the filesystem.
        fs: String,
    },
    /// The filesystem cannot keep what a flush promises.
    #[error(
        "{}: {why}; or serve it with --durability unsafe, or, if you know better, with --accept-weak", .dir.display()
    )]
    Weak { dir: PathBuf, why: String },
    #[error("{}: this filesystem has no {what}; choose a directory on ext4, XFS or btrfs", .dir.display())]
    Lacking { dir: PathBuf, what: &'static str },
    #[error(
        "{}: names that differ in case only are one there (casefold, ascii-ci), and the log cannot tell which of them a name is; \
         choose a directory that tells them apart",
        .0.display()
    )]
    FoldsCase(PathBuf),
    #[error("{}: in use by another landfast server ({holder}); stop that one first", .dir.display())]
    DirInUse {
        dir: PathBuf,
        /// Which process, for the message.
        holder: String,
    },
    #[error(
        "{} lies within {}, {}: each object belongs to one log", .dir.display(), .outer.display(),
        match .holder {
            Some(holder) => format!("which a landfast server has ({holder}): serve one of them only, or put one on a filesystem of its own"),
            None => "whose server was not stopped cleanly, so that its log may hold what is missing here: start that server and stop it cleanly first".to_owned(),
        }
    )]
    Within {
        dir: PathBuf,
        outer: PathBuf,
        /// Which process serves that directory; `None`: none does.
        holder: Option<String>,
    },
    #[error(
        "{} lies within {}: the former is in use by a landfast server ({holder}), and each object belongs to one log: serve \
         one of them only, or put one on a filesystem of its own", named(.inner), .dir.display()
    )]
    Around {
        dir: PathBuf,
        /// The other directory, where it can be found out.
        inner: Option<PathBuf>,
        holder: String,
    },
    #[error("{0}")]
    Options(String),
    #[error(
        "{}: the log may not lie inside the exported directory {}, whose clients could read and change it: it {how}; put it outside, \
         best on a device of its own", .log.display(), .dir.display()
    )]
    LogInside {
        /// The log or its mirror.
        log: PathBuf,
        dir: PathBuf,
        how: Inside,
    },
    /// Holds which log, what is wrong and what to do.
    #[error("{0}")]
    Log(String),
    #[error("{}: {why}", .dir.display())]
    WrongVolume {
        dir: PathBuf,
        /// What shows it.
        why: String,
    },
    #[error(
        "{}: damaged ({why}); restore it, or give up what the log holds and begin anew (docs/internals/recovery.md)",
        .path.display()
    )]
    State { path: PathBuf, why: String },
    #[error("recovery stopped, the log is kept: {0}")]
    Recovery(String),
    #[error("{what}: {err}")]
    Io {
        /// What was being done, with the path.
        what: String,
        err: io::Error,
    },
    #[error("the volume has failed: {0}")]
    Failed(String),
}

impl OpenError {
    pub(crate) fn io(what: impl Into<String>, err: impl Into<io::Error>) -> OpenError {
        OpenError::Io { what: what.into(), err: err.into() }
    }
}

/// The other volume's name in a message.
fn named(inner: &Option<PathBuf>) -> String {
    inner.as_ref().map_or_else(|| "a directory below it".to_owned(), |path| path.display().to_string())
}
