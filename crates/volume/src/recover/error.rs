use rustix::io::Errno;

use crate::fold::FoldError;
use crate::record::ObjId;

/// Why recovery stopped. The log is kept; the next start tries again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Fold(#[from] FoldError),
    #[error("{what} ({}): {why}{}", place(.path, .obj), advice(.why))]
    Io {
        what: &'static str,
        obj: ObjId,
        /// The object's path, if it could be found out.
        path: Option<String>,
        why: std::io::Error,
    },
    /// A state that no crash leaves: a bug, or something else wrote to the volume.
    #[error("{what} ({}{}): something else than this server has changed the volume, or this is a bug", place(.path, .obj), entry(.name))]
    Surprise {
        what: &'static str,
        obj: ObjId,
        /// The object's path, if it could be found out.
        path: Option<String>,
        name: Option<bytes::Bytes>,
    },
}

impl Error {
    /// A file cannot be opened for writing: it is a program that runs, or somebody holds a lease on it.
    pub(super) fn is_busy(&self) -> bool {
        let Error::Io { why, .. } = self else { return false };
        matches!(Errno::from_io_error(why), Some(Errno::TXTBSY | Errno::AGAIN))
    }

    /// Room was short, on the disk or in somebody's quota.
    pub(super) fn is_full(&self) -> bool {
        let Error::Io { why, .. } = self else { return false };
        matches!(Errno::from_io_error(why), Some(Errno::NOSPC | Errno::DQUOT))
    }
}

fn place(path: &Option<String>, obj: &ObjId) -> String {
    path.clone().unwrap_or_else(|| format!("object {obj}"))
}

/// What to do about a system error that somebody can fix at once.
fn advice(why: &std::io::Error) -> &'static str {
    match Errno::from_io_error(why) {
        Some(Errno::TXTBSY) => {
            ". It is a program that runs, and the log has newer contents: end the program and start again"
        }
        Some(Errno::AGAIN) => {
            ". Another program holds a lease on it, and the log has newer contents: end that program and start again"
        }
        Some(Errno::NOKEY) => {
            ". It is encrypted (fscrypt), or the directory that it belongs to is: add the key and start again"
        }
        _ => "",
    }
}

fn entry(name: &Option<bytes::Bytes>) -> String {
    name.as_ref().map_or(String::new(), |n| format!(", entry {:?}", String::from_utf8_lossy(n)))
}

pub(super) fn io(what: &'static str, obj: &ObjId) -> impl FnOnce(std::io::Error) -> Error {
    let obj = obj.clone();
    move |why| Error::Io { what, obj, path: None, why }
}

pub(super) fn surprise(what: &'static str, obj: &ObjId, name: Option<&bytes::Bytes>) -> Error {
    Error::Surprise { what, obj: obj.clone(), path: None, name: name.cloned() }
}
