//! Files copied: by the server where it can (RFC 7862 sections 15.2, 15.13), small ones many in one COMPOUND.
//!
//! The destination is not truncated first: it is opened as it is, overwritten from its first byte on, and then truncated to the
//! source's size. So a file that is copied onto itself, which the server refuses, keeps its data.

use std::sync::Arc;

use bytes::Bytes;
use landfast_nfs::v4::args::{
    CloseArgs, CommitArgs, CreateHow, OpenArgs, OpenClaim, OpenHow, SetattrArgs, owner,
};
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::flags::{
    OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OPEN4_SHARE_ACCESS_WRITE, OPEN4_SHARE_DENY_NONE,
};
use landfast_nfs::v4::{ArgOp, FileHandle, FileType, NfsStat, OpNum, ResBody, StableHow, Stateid};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::choice::{CopyMethod, Reflink, ServerCopies, clone, copy};
use super::original::Original;
use super::single;
use crate::compound::{OpError, Results, fattr};
use crate::fs::action::{Action, AfterLostReply, Answer, Budget, Wants};
use crate::fs::item::Item;
use crate::fs::together::together;
use crate::fs::{Failure, Nfs, Object, Outcome};
use crate::limits::STEPWISE_MAX;

/// OPEN, GETFH, COPY or CLONE, SETATTR of the size, COMMIT and CLOSE. A file that goes alone: OPEN, GETFH and CLOSE.
#[derive(Debug)]
struct Copy {
    original: Original,
    mode: u32,
    number: u64,
    /// How this round copies.
    way: Option<CopyMethod>,
}

#[derive(Debug)]
enum BatchOutcome {
    Whole,
    /// The destination is open; the data is not copied yet.
    Opened(FileHandle),
}

impl Copy {
    /// Reads all results after the GETFH: whether all is done and stable.
    fn read(&self, results: &mut Results) -> Result<bool, OpError> {
        let mut done = false;
        if let Some(way) = self.way {
            let mut unstable = None;
            done = true;
            if self.original.size > 0 {
                match (way, results.take(if way == CopyMethod::Clone { OpNum::CLONE } else { OpNum::COPY })?)
                {
                    (CopyMethod::Clone, _) => {}
                    (_, ResBody::Copy(copied)) => {
                        let copied = copied.response;
                        done = copied.callback_id.is_none() && copied.count == self.original.size;
                        unstable = (copied.committed != StableHow::FileSync).then_some(copied.writeverf);
                    }
                    _ => return Err(OpError::Missing { op: OpNum::COPY }),
                }
            }
            results.take(OpNum::SETATTR)?;
            if commits(way, &self.original) {
                let verifier = results.commit()?;
                unstable = unstable.filter(|before| *before != verifier);
            }
            done &= unstable.is_none();
        }
        results.close()?;
        Ok(done)
    }
}

fn commits(way: CopyMethod, original: &Original) -> bool {
    original.size > 0 && (way == CopyMethod::Clone || original.copies.commits)
}

fn size(of: &Original) -> ArgOp {
    let attrs = fattr(&AttrValues { size: Some(of.size), ..AttrValues::default() });
    ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs })
}

together!(Copy);

impl Action for Copy {
    type Out = BatchOutcome;

    fn wants(&self) -> Wants {
        Wants::Parent
    }

    fn ops(&mut self, name: Option<&Bytes>, _: &Budget, out: &mut Vec<ArgOp>) {
        let create = fattr(&AttrValues { mode: Some(self.mode), ..AttrValues::default() });
        out.push(ArgOp::Open(OpenArgs {
            seqid: 0,
            share_access: OPEN4_SHARE_ACCESS_WRITE | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: owner(0, &[&b"copy "[..], &self.number.to_be_bytes()].concat()),
            openhow: OpenHow::Create(CreateHow::Unchecked(create)),
            claim: OpenClaim::Null(name.cloned().unwrap_or_default()),
        }));
        // RFC 8881 section 2.10.6.4: GETFH follows directly on what changes the filehandle for good.
        out.push(ArgOp::Getfh);
        self.way = (!self.original.alone()).then(|| self.original.way());
        if let Some(way) = self.way {
            let none = Stateid::ANONYMOUS;
            match way {
                _ if self.original.size == 0 => {}
                CopyMethod::Clone => out.push(clone(none, none)),
                _ => out.push(copy(none, none, 0, self.original.size, true)),
            }
            out.push(size(&self.original));
            if commits(way, &self.original) {
                out.push(ArgOp::Commit(CommitArgs { offset: 0, count: 0 }));
            }
        }
        out.push(ArgOp::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT }));
    }

    fn moves(&self) -> u64 {
        match self.original.alone() {
            true => 0,
            false => self.original.size,
        }
    }

    fn changes(&self) -> bool {
        true
    }

    fn answer(&mut self, results: &mut Results) -> Result<Answer<BatchOutcome>, OpError> {
        match results.open() {
            Ok(_) => {}
            Err(OpError::Failed { op: OpNum::OPEN, status: NfsStat::NFS4ERR_SYMLINK }) => {
                return Ok(Answer::Follow);
            }
            Err(e) => return Err(e),
        }
        let fh = results.getfh()?;
        match self.read(results) {
            Ok(true) => Ok(Answer::Done(BatchOutcome::Whole)),
            Ok(false) => Ok(Answer::Done(BatchOutcome::Opened(fh))),
            Err(OpError::Failed { op: op @ (OpNum::CLONE | OpNum::COPY), status }) => {
                match self.original.copies.refused(self.original.fsid, op, status) {
                    true => Ok(Answer::Done(BatchOutcome::Opened(fh))),
                    false => Err(OpError::Failed { op, status }),
                }
            }
            Err(e) => Err(e),
        }
    }

    /// Copying twice does no harm.
    fn lost(&mut self) -> AfterLostReply {
        AfterLostReply::Again
    }
}

impl Nfs {
    /// Copies files within the server: from, to; the bytes of each. Symbolic links are followed, directories refused. What
    /// stood at the new path is written over and keeps its mode; a new file gets the permission bits of its source.
    /// Committed: the copy is on the server's stable storage.
    ///
    /// With version 4.2 the server copies by itself (CLONE or COPY), and no data comes here; what it cannot copy is read and
    /// written. What grows meanwhile is copied as far as it went when the call began.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use landfast_client::fs::Nfs;
    ///
    /// let nfs = Nfs::connect(&"nfs://server/export".parse()?).await?;
    /// for copied in nfs.copy((0..100).map(|n| (format!("in/{n}"), format!("out/{n}")))).await {
    ///     println!("{} bytes", copied.into_result()?);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn copy<P: AsRef<[u8]>>(&self, pairs: impl IntoIterator<Item = (P, P)>) -> Vec<Outcome<u64>> {
        let (from, to): (Vec<P>, Vec<P>) = pairs.into_iter().unzip();
        let found = self.getattrs_followed(&from).await;
        let copies = match self.shared.copies.get_or_try_init(|| self.ask_copies()).await {
            Ok(copies) => copies.clone(),
            Err(outcome) => return from.iter().map(|_| outcome.clone()).collect(),
        };
        let mut outcomes: Vec<Outcome<u64>> = Vec::with_capacity(from.len());
        let (mut numbers, mut originals, mut items) = (Vec::new(), Vec::new(), Vec::new());
        for (n, (found, to)) in found.into_iter().zip(&to).enumerate() {
            let made = found.map(|object| self.original(object, &copies));
            let original = match made {
                Outcome::Committed(Ok(original)) => original,
                Outcome::Committed(Err(failure)) => {
                    outcomes.push(Outcome::Failed(failure));
                    continue;
                }
                other => {
                    outcomes.push(other.map(|_| 0));
                    continue;
                }
            };
            let (original, mode) = original;
            outcomes.push(Outcome::Committed(original.size));
            let number = self.shared.numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let action = Copy { original: original.clone(), mode, number, way: None };
            items.push(Item::new(to.as_ref(), action).with_source_at(original.fh.clone()));
            numbers.push((n, number));
            originals.push(original);
        }
        let mut rest = JoinSet::new();
        let turns = Arc::new(Semaphore::new(STEPWISE_MAX));
        for (((n, number), original), made) in numbers.into_iter().zip(originals).zip(self.all(items).await) {
            match made {
                Outcome::Committed(BatchOutcome::Whole) => {}
                Outcome::Committed(BatchOutcome::Opened(fh)) => {
                    let (nfs, turns) = (self.clone(), turns.clone());
                    rest.spawn(async move {
                        // Never closed.
                        let _turn = turns.acquire_owned().await;
                        (n, single::over(&nfs, fh, &original, number).await)
                    });
                }
                other => outcomes[n] = other.map(|_| 0),
            }
        }
        while let Some(done) = rest.join_next().await {
            match done {
                Ok((n, outcome)) => outcomes[n] = outcome,
                Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
                Err(_) => {}
            }
        }
        outcomes
    }

    async fn ask_copies(&self) -> Result<Arc<ServerCopies>, Outcome<u64>> {
        match ServerCopies::of(self.session(), Reflink::Auto).await {
            Ok(copies) => Ok(copies.unwrap_or_else(|| Arc::new(ServerCopies::none()))),
            Err(crate::ops::Error::Session(e)) => Err(Outcome::from(e)),
            Err(crate::ops::Error::Op(e)) => Err(Outcome::Failed(e.into())),
            Err(e) => Err(Outcome::NotExecuted(e.to_string())),
        }
    }

    fn original(&self, object: Object, copies: &Arc<ServerCopies>) -> Result<(Original, u32), Failure> {
        let Object { fh, attrs, .. } = object;
        let refused = |status| Failure::Status { op: OpNum::COPY, status };
        match attrs.kind {
            Some(FileType::Reg) => {}
            Some(FileType::Dir) => return Err(refused(NfsStat::NFS4ERR_ISDIR)),
            _ => return Err(refused(NfsStat::NFS4ERR_WRONG_TYPE)),
        }
        let (size, fsid) = (attrs.size.unwrap_or_default(), attrs.fsid.unwrap_or_default());
        let (fileid, mode) = (attrs.fileid.unwrap_or_default(), attrs.mode.unwrap_or(0o600) & 0o777);
        let (nfs, copies) = (self.clone(), copies.clone());
        Ok((Original { fh, size, fsid, fileid, nfs, copies }, mode))
    }
}
