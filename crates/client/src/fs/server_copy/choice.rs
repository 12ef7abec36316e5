//! How a file is copied within one server: by CLONE, by COPY (RFC 7862 sections 15.13 and 15.2), or through this machine.
//!
//! | reply | what follows |
//! |---|---|
//! | NOTSUPP, OP_ILLEGAL, XDEV | not asked again for files of that filesystem: COPY in place of CLONE, reading in place of COPY |
//! | no space, read-only and the like | the copy has failed |
//! | anything else to CLONE | as in the first row |
//! | anything else to COPY | this file is read and written |

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use landfast_nfs::v4::data::{CloneArgs, CopyArgs};
use landfast_nfs::v4::{ArgOp, Fsid, NfsStat, OpNum, Stateid};

use crate::compound::{OpError, Results};
use crate::limits::CLONED_MIN;
use crate::ops::{self, repeatable};
use crate::session::{Session, SessionError};
use crate::url::Version;

/// Whether copies share the storage of their source, as GNU cp's `--reflink`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reflink {
    /// If possible.
    #[default]
    Auto,
    /// A file that cannot is not copied.
    Always,
    /// No: data goes through this machine.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CopyMethod {
    Clone,
    Copy,
    Read,
}

/// What is known of a server's copying during one run. See the module.
#[derive(Debug)]
pub struct ServerCopies {
    reflink: Reflink,
    first: CopyMethod,
    /// Filesystems for which the server has refused `first`, and what is used instead.
    less: Mutex<HashMap<Fsid, CopyMethod>>,
    /// Copies need a COMMIT to be stable.
    pub(crate) commits: bool,
    /// The server copies only with the stateids of opens (RFC 7862 section 15.2.3).
    wants_opens: AtomicBool,
}

impl ServerCopies {
    /// Asks the server of a session what it supports. `None`: files go through this machine. Fails when the server
    /// cannot be asked.
    pub async fn of(session: &Session, reflink: Reflink) -> Result<Option<Arc<ServerCopies>>, ops::Error> {
        if session.version() != Version::V42 || reflink == Reflink::Never {
            return Ok(None);
        }
        let clone = has(session, clone(Stateid::ANONYMOUS, Stateid::ANONYMOUS)).await?;
        let copies = clone || has(session, copy(Stateid::ANONYMOUS, Stateid::ANONYMOUS, 0, 0, true)).await?;
        let first = match clone || reflink == Reflink::Always {
            true => CopyMethod::Clone,
            false => CopyMethod::Copy,
        };
        let commits = !session.is_landfast();
        let (less, wants_opens) = (Mutex::default(), AtomicBool::new(false));
        let found = ServerCopies { reflink, first, less, commits, wants_opens };
        Ok((copies || reflink == Reflink::Always).then(|| Arc::new(found)))
    }

    pub(crate) fn none() -> ServerCopies {
        ServerCopies {
            reflink: Reflink::Never,
            first: CopyMethod::Read,
            less: Mutex::default(),
            commits: true,
            wants_opens: AtomicBool::new(false),
        }
    }

    pub(crate) fn only_clones(&self) -> bool {
        self.reflink == Reflink::Always
    }

    pub(crate) fn way(&self, fsid: Fsid, size: u64) -> CopyMethod {
        if self.only_clones() {
            return CopyMethod::Clone;
        }
        let less = self.less.lock().unwrap_or_else(PoisonError::into_inner);
        let way = less.get(&fsid).copied().unwrap_or(self.first);
        // A COPY of a small file costs the server less than a CLONE, which needs a flush of its own, and there is
        // little to share.
        if way == CopyMethod::Clone && size < CLONED_MIN { CopyMethod::Copy } else { way }
    }

    pub(crate) fn wants_opens(&self) -> bool {
        self.wants_opens.load(Ordering::Relaxed)
    }

    /// Notes that the server refused to copy a file. Returns `true` if the file can be copied in another way.
    pub(crate) fn refused(&self, fsid: Fsid, op: OpNum, status: NfsStat) -> bool {
        let failed = matches!(
            status,
            NfsStat::NFS4ERR_NOSPC
                | NfsStat::NFS4ERR_DQUOT
                | NfsStat::NFS4ERR_FBIG
                | NfsStat::NFS4ERR_ROFS
                | NfsStat::NFS4ERR_STALE
        );
        if failed || self.only_clones() {
            return false;
        }
        let always =
            matches!(status, NfsStat::NFS4ERR_NOTSUPP | NfsStat::NFS4ERR_OP_ILLEGAL | NfsStat::NFS4ERR_XDEV);
        if matches!(
            status,
            NfsStat::NFS4ERR_BAD_STATEID | NfsStat::NFS4ERR_OPENMODE | NfsStat::NFS4ERR_LOCKED
        ) {
            self.wants_opens.store(true, Ordering::Relaxed);
            return true;
        }
        let left = match op {
            OpNum::CLONE => CopyMethod::Copy,
            OpNum::COPY if always => CopyMethod::Read,
            _ => return true,
        };
        let mut less = self.less.lock().unwrap_or_else(PoisonError::into_inner);
        let way = less.entry(fsid).or_insert(left);
        *way = left.max(*way);
        true
    }
}

/// Whether the server supports a copying operation. The question uses a directory, which no server copies.
async fn has(session: &Session, op: ArgOp) -> Result<bool, ops::Error> {
    let number = op.op();
    let reply = repeatable(session, vec![ArgOp::Putrootfh, ArgOp::Savefh, op]).await;
    let mut results = match reply {
        Ok(reply) => Results::new(reply),
        Err(SessionError::Refused(_)) => return Ok(false),
        Err(e) => return Err(e.into()),
    };
    results.skip(&[OpNum::PUTROOTFH, OpNum::SAVEFH])?;
    let status = results.take(number).err().map(|e: OpError| e.status());
    // A server that cannot decode the operation does not support it.
    Ok(!matches!(
        status,
        Some(NfsStat::NFS4ERR_NOTSUPP | NfsStat::NFS4ERR_OP_ILLEGAL | NfsStat::NFS4ERR_BADXDR)
    ))
}

/// CLONE of the whole saved file.
pub(crate) fn clone(src_stateid: Stateid, dst_stateid: Stateid) -> ArgOp {
    ArgOp::Clone(CloneArgs { src_stateid, dst_stateid, src_offset: 0, dst_offset: 0, count: 0 })
}

/// COPY of a range of the saved file to the same range of the current one. `waits`: the reply comes when all is copied.
pub(crate) fn copy(src_stateid: Stateid, dst_stateid: Stateid, at: u64, count: u64, waits: bool) -> ArgOp {
    ArgOp::Copy(CopyArgs {
        src_stateid,
        dst_stateid,
        src_offset: at,
        dst_offset: at,
        count,
        consecutive: true,
        synchronous: waits,
        source_server: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_not_asked_for_again_on_that_filesystem() {
        let copies = |reflink| ServerCopies {
            reflink,
            first: CopyMethod::Clone,
            less: Mutex::default(),
            commits: true,
            wants_opens: AtomicBool::new(false),
        };
        let (one, two) = (Fsid { major: 1, minor: 0 }, Fsid { major: 2, minor: 0 });
        let auto = copies(Reflink::Auto);
        assert_eq!(
            (auto.way(one, CLONED_MIN), auto.way(one, CLONED_MIN - 1)),
            (CopyMethod::Clone, CopyMethod::Copy)
        );
        // A failure of the file alone.
        assert!(!auto.refused(one, OpNum::COPY, NfsStat::NFS4ERR_NOSPC));
        assert!(auto.refused(one, OpNum::COPY, NfsStat::NFS4ERR_INVAL));
        assert_eq!(auto.way(one, CLONED_MIN), CopyMethod::Clone);
        assert!(auto.refused(one, OpNum::CLONE, NfsStat::NFS4ERR_NOTSUPP));
        assert_eq!(
            (auto.way(one, CLONED_MIN), auto.way(two, CLONED_MIN)),
            (CopyMethod::Copy, CopyMethod::Clone)
        );
        assert!(auto.refused(one, OpNum::COPY, NfsStat::NFS4ERR_XDEV));
        assert!(auto.refused(one, OpNum::CLONE, NfsStat::NFS4ERR_NOTSUPP));
        assert_eq!((auto.way(one, 1), auto.way(two, 1)), (CopyMethod::Read, CopyMethod::Copy));
        let always = copies(Reflink::Always);
        assert!(!always.refused(one, OpNum::CLONE, NfsStat::NFS4ERR_NOTSUPP));
        assert_eq!(always.way(one, 1), CopyMethod::Clone);
    }
}
