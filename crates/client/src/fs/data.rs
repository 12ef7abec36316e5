//! Whole files, read and written.

use bytes::{Bytes, BytesMut};
use landfast_nfs::v4::args::{
    CloseArgs, CommitArgs, CreateHow, OpenArgs, OpenClaim, OpenHow, ReadArgs, SetattrArgs, WriteArgs, owner,
};
use landfast_nfs::v4::flags::{
    OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OPEN4_SHARE_ACCESS_WRITE, OPEN4_SHARE_DENY_NONE,
};
use landfast_nfs::v4::{ArgOp, Fattr, FileHandle, NfsStat, OpNum, StableHow, Stateid, Verifier};

use super::action::{Action, AfterLostReply, Answer, Budget, Wants};
use super::outcome::Failure;
use super::together::together;
use crate::compound::{OpError, Results};
use crate::limits::{READ_BYTES, READ_BYTES_MIN, READ_FIRST_BYTES, REWRITES_MAX};

/// READ of a range or to the end.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) offset: u64,
    /// Bytes still wanted; `None`: to the end.
    pub(super) left: Option<u64>,
    /// The count of the first READ, so that many files fit in one reply.
    pub(super) page: u32,
    pub(super) data: BytesMut,
    pub(super) fh: Option<FileHandle>,
}

impl Read {
    pub(super) fn whole() -> Read {
        Read { offset: 0, left: None, page: READ_FIRST_BYTES, data: BytesMut::new(), fh: None }
    }

    /// As `whole`, for a file of known size.
    pub(super) fn whole_of(size: u64) -> Read {
        let page = u32::try_from(size).unwrap_or(READ_BYTES).clamp(1, READ_BYTES);
        Read { page, ..Read::whole() }
    }

    pub(super) fn range(offset: u64, count: u64) -> Read {
        let page = u32::try_from(count).unwrap_or(READ_BYTES).min(READ_BYTES);
        Read { offset, left: Some(count), page, ..Read::whole() }
    }
}

together!(Read);

impl Action for Read {
    type Out = Bytes;

    fn wants(&self) -> Wants {
        Wants::Object { follow: true }
    }

    fn ops(&mut self, _: Option<&Bytes>, room: &Budget, out: &mut Vec<ArgOp>) {
        if self.fh.is_none() {
            out.push(ArgOp::Getfh);
        }
        let room = u32::try_from(room.reply).unwrap_or(u32::MAX).saturating_sub(512).max(READ_BYTES_MIN);
        let left = self.left.map_or(u32::MAX, |left| u32::try_from(left).unwrap_or(u32::MAX));
        let count = self.page.min(room).min(left);
        out.push(ArgOp::Read(ReadArgs { stateid: Stateid::ANONYMOUS, offset: self.offset, count }));
    }

    fn changes(&self) -> bool {
        false
    }

    fn answer(&mut self, results: &mut Results) -> Result<Answer<Bytes>, OpError> {
        let fh = match self.fh.take() {
            Some(fh) => fh,
            None => results.getfh()?,
        };
        let part = match results.data() {
            Ok(part) => part,
            Err(OpError::Failed { status: NfsStat::NFS4ERR_SYMLINK, .. }) => return Ok(Answer::Follow),
            Err(e) => return Err(e),
        };
        let count = part.data.len() as u64;
        self.offset += count;
        self.left = self.left.map(|left| left.saturating_sub(count));
        if part.eof || self.left == Some(0) {
            if self.data.is_empty() {
                return Ok(Answer::Done(part.data));
            }
            self.data.extend_from_slice(&part.data);
            return Ok(Answer::Done(std::mem::take(&mut self.data).freeze()));
        }
        self.data.extend_from_slice(&part.data);
        self.page = READ_BYTES;
        self.fh = Some(fh.clone());
        Ok(Answer::MoreAt(fh))
    }
}

/// A whole file: OPEN, GETFH, WRITE, SETATTR and CLOSE in one segment, in several if it is large.
///
/// It is stable when it is done: a small file by WRITE FILE_SYNC, a large one by a COMMIT under the verifier of all its
/// WRITEs. Repeating a segment does no harm: the file is opened as it is (UNCHECKED) and truncated, and the same bytes
/// go to the same offsets.
#[derive(Debug)]
pub(super) struct Write {
    data: Bytes,
    create: Fattr,
    finish: Fattr,
    exclusive: bool,
    lost: bool,
    number: u64,
    at: u64,
    open: Option<(FileHandle, Stateid)>,
    verifier: Option<Verifier>,
    rewrites: usize,
    /// The last segment.
    doing: FileStep,
}

#[derive(Debug, Clone, PartialEq)]
enum FileStep {
    /// OPEN and the first data: how many bytes, and whether they are all.
    Open(u64, bool),
    Write,
    Commit,
    /// After a failure: gives the open back.
    Close(Failure),
}

impl Write {
    /// `create`: attributes of a new file. `finish`: attributes set after the data. `exclusive`: an existing file is an
    /// error; otherwise it is truncated and overwritten.
    pub(super) fn new(data: Bytes, create: Fattr, finish: Fattr, exclusive: bool, number: u64) -> Write {
        Write {
            data,
            create,
            finish,
            exclusive,
            lost: false,
            number,
            at: 0,
            open: None,
            verifier: None,
            rewrites: 0,
            doing: FileStep::Open(0, false),
        }
    }

    fn open_args(&self, name: Bytes) -> OpenArgs {
        let how = match self.exclusive {
            true => CreateHow::Guarded(self.create.clone()),
            false => CreateHow::Unchecked(self.create.clone()),
        };
        OpenArgs {
            seqid: 0,
            share_access: OPEN4_SHARE_ACCESS_WRITE | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
            share_deny: OPEN4_SHARE_DENY_NONE,
            // Each file has its own owner while it is written: a CLOSE ends the opens of all calls of this client that
            // share an owner.
            owner: owner(0, &[&b"file "[..], &self.number.to_be_bytes()].concat()),
            openhow: OpenHow::Create(how),
            claim: OpenClaim::Null(name),
        }
    }

    fn part(&self, room: &Budget) -> Bytes {
        let most = room.request.saturating_sub(1024).max(1);
        let from = usize::try_from(self.at).unwrap_or(usize::MAX).min(self.data.len());
        self.data.slice(from..self.data.len().min(from.saturating_add(most)))
    }

    fn finish(&self, stateid: Stateid, out: &mut Vec<ArgOp>) {
        if !self.finish.mask.is_empty() {
            out.push(ArgOp::Setattr(SetattrArgs { stateid, attrs: self.finish.clone() }));
        }
        if stateid != Stateid::ANONYMOUS {
            out.push(ArgOp::Close(CloseArgs { seqid: 0, open_stateid: stateid }));
        }
    }

    fn finished(&self, stateid: Stateid, results: &mut Results) -> Result<(), OpError> {
        if !self.finish.mask.is_empty() {
            results.take(OpNum::SETATTR)?;
        }
        if stateid != Stateid::ANONYMOUS {
            results.close()?;
        }
        Ok(())
    }

    /// Closes what a failed segment left open before it reports the failure. An open that the server has lost (by a
    /// restart or an expired lease) is no failure: the file is there, and the rest is written without an open.
    fn give_up(&mut self, e: OpError) -> Result<Answer<FileHandle>, OpError> {
        if let (
            NfsStat::NFS4ERR_BAD_STATEID
            | NfsStat::NFS4ERR_STALE_STATEID
            | NfsStat::NFS4ERR_OLD_STATEID
            | NfsStat::NFS4ERR_EXPIRED,
            Some((fh, stateid)),
        ) = (e.status(), self.open.clone())
            && stateid != Stateid::ANONYMOUS
        {
            self.open = Some((fh.clone(), Stateid::ANONYMOUS));
            self.rewrites += 1;
            self.at = 0;
            self.verifier = None;
            return Ok(self.go_on(fh));
        }
        match self.open.as_ref().filter(|(_, stateid)| *stateid != Stateid::ANONYMOUS) {
            Some((fh, _)) => {
                let fh = fh.clone();
                self.doing = FileStep::Close(e.into());
                Ok(Answer::MoreAt(fh))
            }
            None => Err(e),
        }
    }

    fn opened(
        &mut self,
        results: &mut Results,
        count: u64,
        all: bool,
    ) -> Result<Answer<FileHandle>, OpError> {
        let open = match results.open() {
            Ok(open) => open,
            Err(OpError::Failed { op: OpNum::OPEN, status: NfsStat::NFS4ERR_SYMLINK }) => {
                return Ok(Answer::Follow);
            }
            // Nobody can tell any more whether this request or somebody else created the name.
            Err(e @ OpError::Failed { op: OpNum::OPEN, status: NfsStat::NFS4ERR_EXIST }) if self.lost => {
                return Ok(Answer::Unknown(e));
            }
            Err(e) => return Err(e),
        };
        let fh = results.getfh()?;
        self.open = Some((fh.clone(), open.stateid));
        if count > 0 {
            let written = match results.write() {
                Ok(written) => written,
                Err(e) => return self.give_up(e),
            };
            self.wrote(&written);
            if u64::from(written.count) < count || (all && written.committed == StableHow::Unstable) {
                // The operations after it assumed the whole file. Executed early they harm only the open.
                let closed = if all { self.finished(Stateid::CURRENT, results) } else { Ok(()) };
                if all && closed.is_ok() {
                    self.open = Some((fh.clone(), Stateid::ANONYMOUS));
                }
                return Ok(self.go_on(fh));
            }
        }
        if all {
            return match self.finished(Stateid::CURRENT, results) {
                Ok(()) => Ok(Answer::Done(fh)),
                Err(e) => self.give_up(e),
            };
        }
        Ok(self.go_on(fh))
    }

    fn wrote(&mut self, written: &landfast_nfs::v4::res::WriteRes) {
        self.at += u64::from(written.count);
        match self.verifier {
            Some(before) if before != written.writeverf => {
                // The server has restarted: everything is sent again.
                self.at = 0;
                self.verifier = None;
                self.rewrites += 1;
            }
            _ => self.verifier = Some(written.writeverf),
        }
    }

    fn go_on(&mut self, fh: FileHandle) -> Answer<FileHandle> {
        if self.rewrites > REWRITES_MAX {
            return Answer::Failed(Failure::Status { op: OpNum::COMMIT, status: NfsStat::NFS4ERR_IO });
        }
        self.doing = if self.at < self.data.len() as u64 { FileStep::Write } else { FileStep::Commit };
        Answer::MoreAt(fh)
    }

    fn stateid(&self) -> Stateid {
        self.open.as_ref().map_or(Stateid::ANONYMOUS, |(_, stateid)| *stateid)
    }
}

together!(Write);

impl Action for Write {
    type Out = FileHandle;

    fn wants(&self) -> Wants {
        Wants::Parent
    }

    fn ops(&mut self, name: Option<&Bytes>, room: &Budget, out: &mut Vec<ArgOp>) {
        let stateid = self.stateid();
        match self.doing.clone() {
            FileStep::Open(..) => {
                let part = self.part(room);
                let all = part.len() == self.data.len();
                self.doing = FileStep::Open(part.len() as u64, all);
                out.push(ArgOp::Open(self.open_args(name.cloned().unwrap_or_default())));
                // RFC 8881 section 2.10.6.4: GETFH follows directly on what changes the filehandle for good.
                out.push(ArgOp::Getfh);
                if !part.is_empty() {
                    let stable = if all { StableHow::FileSync } else { StableHow::Unstable };
                    out.push(ArgOp::Write(WriteArgs {
                        stateid: Stateid::CURRENT,
                        offset: 0,
                        stable,
                        data: part,
                    }));
                }
                if all {
                    self.finish(Stateid::CURRENT, out);
                }
            }
            FileStep::Write => out.push(ArgOp::Write(WriteArgs {
                stateid,
                offset: self.at,
                stable: StableHow::Unstable,
                data: self.part(room),
            })),
            FileStep::Commit => {
                out.push(ArgOp::Commit(CommitArgs { offset: 0, count: 0 }));
                self.finish(stateid, out);
            }
            FileStep::Close(_) => out.push(ArgOp::Close(CloseArgs { seqid: 0, open_stateid: stateid })),
        }
    }

    fn changes(&self) -> bool {
        true
    }

    fn answer(&mut self, results: &mut Results) -> Result<Answer<FileHandle>, OpError> {
        match self.doing.clone() {
            FileStep::Open(count, all) => self.opened(results, count, all),
            FileStep::Write => match results.write() {
                Ok(written) if written.count > 0 => {
                    self.wrote(&written);
                    let Some((fh, _)) = &self.open else { return Err(OpError::Missing { op: OpNum::OPEN }) };
                    Ok(self.go_on(fh.clone()))
                }
                Ok(_) => self.give_up(OpError::Failed { op: OpNum::WRITE, status: NfsStat::NFS4ERR_IO }),
                Err(e) => self.give_up(e),
            },
            FileStep::Commit => {
                let verifier = match results.commit() {
                    Ok(verifier) => verifier,
                    Err(e) => return self.give_up(e),
                };
                let stable = self.verifier == Some(verifier);
                let Some((fh, stateid)) = self.open.clone() else {
                    return Err(OpError::Missing { op: OpNum::OPEN });
                };
                if let Err(e) = self.finished(stateid, results) {
                    return self.give_up(e);
                }
                if stable {
                    return Ok(Answer::Done(fh));
                }
                self.rewrites += 1;
                self.at = 0;
                self.verifier = None;
                self.open = Some((fh.clone(), Stateid::ANONYMOUS));
                Ok(self.go_on(fh))
            }
            FileStep::Close(failure) => {
                // An open whose CLOSE fails stays until the lease expires.
                let _ = results.close();
                Ok(Answer::Failed(failure))
            }
        }
    }

    fn lost(&mut self) -> AfterLostReply {
        self.lost |= self.exclusive && matches!(self.doing, FileStep::Open(..));
        AfterLostReply::Again
    }
}
