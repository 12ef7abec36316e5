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
    /// No such name.
    #[error("no such name")]
    NoEnt,
    /// The name is taken.
    #[error("the name is taken")]
    Exists,
    /// The object is not a directory but must be one.
    #[error("not a directory")]
    NotDir,
    /// The object is a directory but must not be one.
    #[error("is a directory")]
    IsDir,
    /// The directory is not empty.
    #[error("directory not empty")]
    NotEmpty,
    /// The object has the wrong kind for this operation.
    #[error("wrong kind of object")]
    WrongKind,
    /// The object is a symbolic link but must not be one.
    #[error("is a symbolic link")]
    Symlink,
    /// An empty name.
    #[error("empty name")]
    NameEmpty,
    /// The name is `.` or `..`.
    #[error("the name is . or ..")]
    NameDots,
    /// The name contains `/` or NUL.
    #[error("the name contains / or NUL")]
    NameChar,
    /// The name (or a link's target) is too long.
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
    /// Read-only filesystem.
    #[error("read-only filesystem")]
    ReadOnly,
    /// An argument out of range or of no sense.
    #[error("invalid argument")]
    Inval,
    /// An offset behind the end of the file.
    #[error("behind the end of the file")]
    BeyondEnd,
    /// The filesystem cannot do this.
    #[error("not supported by the filesystem")]
    NotSupported,
    /// The operation would cross filesystems.
    #[error("another filesystem")]
    CrossDevice,
    /// Something else is mounted there: the volume ends at mount points.
    #[error("another filesystem is mounted there")]
    Mounted,
    /// Too many names for one object.
    #[error("too many links")]
    TooManyLinks,
    /// File too large.
    #[error("file too large")]
    TooBig,
    /// No space left.
    #[error("no space left")]
    NoSpace,
    /// Quota exceeded.
    #[error("quota exceeded")]
    Quota,
    /// No extended attribute of that name.
    #[error("no such extended attribute")]
    NoXattr,
    /// The value of an extended attribute is larger than the filesystem takes.
    #[error("extended attribute too large")]
    XattrTooBig,
    /// Busy: a mount point, or a local process holds a lease; trying again later may help.
    #[error("busy")]
    Busy,
    /// Want of memory or descriptors; trying again later may help.
    #[error("out of resources")]
    Resources,
    /// Input/output error.
    #[error("input/output error")]
    Io,
    /// An earlier flush or log write failed: nothing that modifies is answered with success any more.
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
            // NOMEM also of a stale handle whose inode is just being made anew: asked again, it is stale.
            Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::NOBUFS => Error::Resources,
            Errno::STALE => Error::Stale,
            _ => Error::Io,
        }
    }
}

/// Why a volume could not be opened. Each is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory does not exist.
    #[error("{}: no such directory; create it or name another", .0.display())]
    Missing(PathBuf),
    /// Not a directory.
    #[error("{}: not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The process lacks capabilities.
    #[error("serving acts as each client's user, which needs root with {0}; missing: {1}")]
    Capabilities(&'static str, String),
    /// A thread that becomes another user keeps the superuser's rights, or cannot become one: why and what to do.
    #[error("serving acts as each client's user, which a thread here tried and cannot: {0}")]
    Switch(String),
    /// The filesystem is not on the allow-list for a log.
    #[error(
        "{}: filesystem {fs} is not one of ext4, XFS, btrfs, so a checkpoint of the log could lose data; \
         use --durability sync or a directory on one of those", .dir.display()
    )]
    Filesystem {
        /// The directory.
        dir: PathBuf,
        /// Name or magic number of its filesystem.
        fs: String,
    },
    /// Its filesystem cannot keep what a flush promises.
    #[error(
        "{}: {why}; or serve it with --durability unsafe, or, if you know better, with --accept-weak", .dir.display()
    )]
    Weak {
        /// The directory.
        dir: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// The filesystem cannot give file handles or birth times.
    #[error("{}: this filesystem has no {what}; choose a directory on ext4, XFS or btrfs", .dir.display())]
    Lacking {
        /// The directory.
        dir: PathBuf,
        /// What is missing.
        what: &'static str,
    },
    /// Its names ignore case.
    #[error(
        "{}: names that differ in case only are one there (casefold, ascii-ci), and the log cannot tell which of them a name is; \
         choose a directory that tells them apart",
        .0.display()
    )]
    FoldsCase(PathBuf),
    /// Another server uses the directory.
    #[error("{}: in use by another landfast server ({holder}); stop that one first", .dir.display())]
    DirInUse {
        /// The directory.
        dir: PathBuf,
        /// Which process, in words.
        holder: String,
    },
    /// It lies within another volume's directory.
    #[error(
        "{} lies within {}, {}: each object belongs to one log", .dir.display(), .outer.display(),
        match .holder {
            Some(holder) => format!("which a landfast server has ({holder}): serve one of them only, or put one on a filesystem of its own"),
            None => "whose server was not stopped cleanly, so that its log may hold what is missing here: start that server and stop it cleanly first".to_owned(),
        }
    )]
    Within {
        /// The directory.
        dir: PathBuf,
        /// The other's.
        outer: PathBuf,
        /// Which process has that, in words; `None`: none.
        holder: Option<String>,
    },
    /// Another volume's directory lies within it.
    #[error(
        "{} lies within {}: the former is in use by a landfast server ({holder}), and each object belongs to one log: serve \
         one of them only, or put one on a filesystem of its own", named(.inner), .dir.display()
    )]
    Around {
        /// The directory.
        dir: PathBuf,
        /// The other's, where it can be found out.
        inner: Option<PathBuf>,
        /// Which process has that, in words.
        holder: String,
    },
    /// `--durability log` without a log, or the other way round.
    #[error("{0}")]
    Options(String),
    /// The log file lies inside the exported directory.
    #[error(
        "{}: the log may not lie inside the exported directory {}, whose clients could read and change it: it {how}; put it outside, \
         best on a device of its own", .log.display(), .dir.display()
    )]
    LogInside {
        /// The log, or its mirror.
        log: PathBuf,
        /// The directory.
        dir: PathBuf,
        /// How it does.
        how: Inside,
    },
    /// The log could not be opened: which, what is wrong and what to do.
    #[error("{0}")]
    Log(String),
    /// The log has records, but the directory is not the one they belong to.
    #[error("{}: {why}", .dir.display())]
    WrongVolume {
        /// The directory.
        dir: PathBuf,
        /// How it is known.
        why: String,
    },
    /// A file of the state directory is damaged.
    #[error(
        "{}: damaged ({why}); restore it, or give up what the log holds and begin anew (docs/internals/recovery.md)",
        .path.display()
    )]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Recovery stopped; the log is kept.
    #[error("recovery stopped, the log is kept: {0}")]
    Recovery(String),
    /// A system call failed.
    #[error("{what}: {err}")]
    Io {
        /// What was being done, with the path.
        what: String,
        /// The system's error.
        err: io::Error,
    },
    /// The volume failed while starting.
    #[error("the volume has failed: {0}")]
    Failed(String),
}

impl OpenError {
    /// Wraps a system error with what was being done.
    pub(crate) fn io(what: impl Into<String>, err: impl Into<io::Error>) -> OpenError {
        OpenError::Io { what: what.into(), err: err.into() }
    }
}

/// How the other volume is called in a message.
fn named(inner: &Option<PathBuf>) -> String {
    inner.as_ref().map_or_else(|| "a directory below it".to_owned(), |path| path.display().to_string())
}
