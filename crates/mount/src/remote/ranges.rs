//! Ranges of files: space, holes, and copies that the server makes (RFC 7862). Version 4.2 only.

use landfast_client::Version;
use landfast_client::compound::Results;
use landfast_nfs::v4::data::{CopyArgs, CopyRes, RangeArgs, SeekArgs};
use landfast_nfs::v4::{ArgOp, FileHandle, NfsStat, OpNum, ResBody, StableHow, Stateid, Verifier};

use super::names::change_of;
use super::send::{Caller, Fault, Remote};
use crate::core::attrs::{ASKED, Attrs, CHANGE};

/// What fallocate(2) does with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// It has room on the disk; the file becomes as long as that. What is there stays.
    Allocate,
    /// It becomes a hole; the file's length stays.
    Punch,
    /// It becomes zeros that have room; the file becomes as long as that.
    Zero,
}

/// Part of a file: the file, the stateid of an open of it, the first byte.
pub type Part<'a> = (&'a FileHandle, Stateid, u64);

/// What a COPY did.
#[derive(Debug)]
pub struct Copied {
    /// Bytes, from the beginning of what was asked for.
    pub count: u64,
    /// `None`: they are stable.
    pub verifier: Option<Verifier>,
    /// The destination's change attribute before it.
    pub before: u64,
    /// The destination's attributes afterwards.
    pub attrs: Attrs,
}

impl Remote {
    /// Whether the version has these operations. The server may lack some of them all the same.
    pub fn knows_ranges(&self) -> bool {
        self.version() == Version::V42
    }

    /// ALLOCATE, DEALLOCATE (RFC 7862 sections 15.1 and 15.4). For zeros, both, as Linux's client does. Returns the change attribute before it
    /// and all attributes afterwards.
    pub async fn set_space(
        &self,
        who: &Caller,
        file: &FileHandle,
        how: Space,
        (offset, length): (u64, u64),
    ) -> Result<(u64, Attrs), Fault> {
        let range = RangeArgs { stateid: Stateid::ANONYMOUS, offset, length };
        let changes = match how {
            Space::Allocate => vec![ArgOp::Allocate(range)],
            Space::Punch => vec![ArgOp::Deallocate(range)],
            Space::Zero => vec![ArgOp::Deallocate(range.clone()), ArgOp::Allocate(range)],
        };
        let numbers: Vec<OpNum> = changes.iter().map(ArgOp::op).collect();
        let mut ops = vec![ArgOp::Putfh(file.clone()), ArgOp::Getattr(CHANGE)];
        ops.extend(changes);
        ops.push(ArgOp::Getattr(ASKED));
        // Once more does no harm: nothing of ours is sent to this file meanwhile.
        let mut results = self.ask(who, ops).await?;
        results.take(OpNum::PUTFH)?;
        let before = change_of(&mut results)?;
        results.skip(&numbers)?;
        Ok((before, self.attrs(&results.getattr()?)?))
    }

    /// SEEK (RFC 7862 section 15.11) for `CONTENT_DATA` or `CONTENT_HOLE` from `offset`. Returns whether the file ends before there is any,
    /// and where it begins.
    pub async fn seek(
        &self,
        who: &Caller,
        file: &FileHandle,
        offset: u64,
        what: u32,
    ) -> Result<(bool, u64), Fault> {
        let seek = ArgOp::Seek(SeekArgs { stateid: Stateid::ANONYMOUS, offset, what });
        let mut results = self.ask(who, vec![ArgOp::Putfh(file.clone()), seek]).await?;
        results.take(OpNum::PUTFH)?;
        match results.take(OpNum::SEEK)? {
            ResBody::Seek(found) => Ok((found.eof, found.offset)),
            _ => Err(Fault::Op(OpNum::SEEK, NfsStat::NFS4ERR_IO)),
        }
    }

    /// COPY within the server, of `count` bytes at most, which the source has (RFC 7862 section 15.2). The reply waits for its end.
    pub async fn copy(
        &self,
        who: &Caller,
        (from, src_stateid, src_offset): Part<'_>,
        (to, dst_stateid, dst_offset): Part<'_>,
        count: u64,
    ) -> Result<Copied, Fault> {
        let copy = CopyArgs {
            src_stateid,
            dst_stateid,
            src_offset,
            dst_offset,
            count,
            consecutive: true,
            synchronous: true,
            source_server: Vec::new(),
        };
        let ops = vec![
            ArgOp::Putfh(from.clone()),
            ArgOp::Savefh,
            ArgOp::Putfh(to.clone()),
            ArgOp::Getattr(CHANGE),
            ArgOp::Copy(copy),
            ArgOp::Getattr(ASKED),
        ];
        let mut results = self.ask(who, ops).await?;
        results.skip(&[OpNum::PUTFH, OpNum::SAVEFH, OpNum::PUTFH])?;
        let before = change_of(&mut results)?;
        let CopyRes { response, .. } = copied(&mut results)?;
        if response.callback_id.is_some() || response.count > count {
            // It goes on behind the reply, although that was not asked for: nobody would hear of its end.
            return Err(Fault::Op(OpNum::COPY, NfsStat::NFS4ERR_IO));
        }
        let verifier = (response.committed != StableHow::FileSync).then_some(response.writeverf);
        let attrs = self.attrs(&results.getattr()?)?;
        Ok(Copied { count: response.count, verifier, before, attrs })
    }
}

fn copied(results: &mut Results) -> Result<CopyRes, Fault> {
    match results.take(OpNum::COPY)? {
        ResBody::Copy(res) => Ok(res),
        _ => Err(Fault::Op(OpNum::COPY, NfsStat::NFS4ERR_IO)),
    }
}
