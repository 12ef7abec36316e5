//! READ, WRITE, COMMIT (RFC 1813 sections 3.3.6, 3.3.7, 3.3.21).
//!
//! NFSv3 has no opens. Each call needs the caller's own right (COMMIT the right to write). The file's owner is always
//! allowed, since its client checked the mode when the file was opened (section 4.4).

use super::context::{Context, Obj};
use super::errors::status;
use crate::attr::FILE_SIZE_MAX;
use crate::limits;
use crate::stable;
use crate::state::opens::{READ, WRITE};
use bytes::Bytes;
use landfast_nfs::v3::NfsStat3;
use landfast_nfs::v3::args::{CommitArgs, ReadArgs, WriteArgs};
use landfast_nfs::v3::res::{CommitOk, CommitRes, ReadOk, ReadRes, WriteOk, WriteRes};
use landfast_nfs::v3::types::StableHow;
use landfast_volume::{Keep, OpenMode};

impl Context<'_> {
    pub(super) fn read(&mut self, a: &ReadArgs) -> ReadRes {
        self.reading(&a.file, |ctx, obj| {
            let (data, eof) = ctx.read_from(obj, a)?;
            Ok(ReadOk { attrs: ctx.attrs(obj), count: data.len() as u32, eof, data })
        })
    }

    fn read_from(&mut self, obj: &Obj, a: &ReadArgs) -> Result<(Bytes, bool), NfsStat3> {
        obj.must_be_file()?;
        self.not_denied(obj, READ)?;
        let mode = OpenMode { read: true, write: false, owner_override: true };
        let file = obj.volume().open_stateless(obj.cred(), &obj.node, mode, Keep::Now).map_err(status)?;
        let count = a.count.min(limits::V3_IO_BYTES_MAX);
        obj.volume().read(&file, a.offset, count).map_err(status)
    }

    pub(super) fn write(&mut self, a: &WriteArgs) -> WriteRes {
        let write = |ctx: &mut Self, obj: &Obj| {
            let (count, committed) = ctx.write_to(obj, a)?;
            Ok((count, committed, obj.volume().write_verifier()))
        };
        let ok = |(count, committed, verf), wcc| WriteOk { wcc, count, committed, verf };
        self.changing(&a.file, write, ok)
    }

    fn write_to(&mut self, obj: &Obj, a: &WriteArgs) -> Result<(u32, StableHow), NfsStat3> {
        obj.must_be_file()?;
        if a.count as usize != a.data.len() {
            return Err(NfsStat3::INVAL);
        }
        // More than the server ever said it takes is written in part: the client sends the rest again.
        let data = a.data.slice(..a.data.len().min(limits::V3_IO_BYTES_MAX as usize));
        if a.offset.checked_add(data.len() as u64).is_none_or(|end| end > FILE_SIZE_MAX) {
            return Err(NfsStat3::FBIG);
        }
        self.not_denied(obj, WRITE)?;
        let sh = self.sh;
        let tx = match a.stable {
            StableHow::Unstable => self.write_unstably(obj)?,
            StableHow::DataSync | StableHow::FileSync => self.modify(obj)?,
        };
        let mode = OpenMode { read: false, write: true, owner_override: true };
        let keep = if a.stable == StableHow::Unstable { Keep::Now } else { Keep::IfAgain };
        let file = obj.volume().open_stateless(obj.cred(), &obj.node, mode, keep).map_err(status)?;
        if data.is_empty() {
            return Ok((0, a.stable));
        }
        if sh.space.any() {
            let part = (a.offset, data.len());
            sh.leaves_for_write(obj.volume(), obj.cred(), None, &file, part).map_err(status)?;
        }
        let stable = stable::asked(a.stable);
        let (count, committed) = obj.volume().write(tx, &file, a.offset, data, stable).map_err(status)?;
        Ok((count, stable::answered(committed)))
    }

    pub(super) fn commit(&mut self, a: &CommitArgs) -> CommitRes {
        self.changing(&a.file, |ctx, obj| ctx.commit_to(obj, a), |verf, wcc| CommitOk { wcc, verf })
    }

    fn commit_to(&mut self, obj: &Obj, a: &CommitArgs) -> Result<[u8; 8], NfsStat3> {
        obj.must_be_file()?;
        if a.offset.checked_add(u64::from(a.count)).is_none() {
            return Err(NfsStat3::INVAL);
        }
        let tx = self.modify(obj)?;
        let mode = OpenMode { owner_override: true, ..OpenMode::WRITE };
        obj.volume().may(obj.cred(), &obj.node, mode).map_err(status)?;
        obj.volume().commit(tx, &obj.node, a.offset, u64::from(a.count)).map_err(status)?;
        Ok(obj.volume().write_verifier())
    }
}
