//! An object by its handle: attributes, data, extended attributes.

use bytes::Bytes;
use landfast_client::compound::Results;
use landfast_nfs::v4::args::{
    CommitArgs, ListxattrsArgs, ReadArgs, SetattrArgs, SetxattrArgs, SetxattrOption, WriteArgs,
};
use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};
use landfast_nfs::v4::{ArgOp, FileHandle, NfsStat, OpNum, StableHow, Stateid, Verifier};

use super::names::change_of;
use super::send::{Caller, Fault, Remote};
use crate::core::attrs::{ASKED, Attrs, CHANGE, Set};

/// What a WRITE did.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    /// Bytes, at least one.
    pub count: usize,
    /// `None`: they are stable.
    pub verifier: Option<Verifier>,
}

/// What a filesystem has room for. Bytes and files.
#[derive(Debug, Clone, Copy, Default)]
pub struct Room {
    pub total: u64,
    pub free: u64,
    pub available: u64,
    pub files: u64,
    pub files_free: u64,
    /// The longest name.
    pub name_max: u32,
}

const ROOM: Bitmap = Bitmap::of(&[
    number::SPACE_TOTAL,
    number::SPACE_FREE,
    number::SPACE_AVAIL,
    number::FILES_TOTAL,
    number::FILES_FREE,
    number::MAXNAME,
]);

fn putfh(handle: &FileHandle) -> ArgOp {
    ArgOp::Putfh(handle.clone())
}

/// The result of a WRITE of `len` bytes.
fn written(results: &mut Results, len: usize) -> Result<Written, Fault> {
    let res = results.write()?;
    if res.count == 0 || res.count as usize > len {
        return Err(Fault::Op(OpNum::WRITE, NfsStat::NFS4ERR_IO));
    }
    let verifier = (res.committed != StableHow::FileSync).then_some(res.writeverf);
    Ok(Written { count: res.count as usize, verifier })
}

impl Remote {
    pub async fn get_attrs(&self, who: &Caller, handle: &FileHandle) -> Result<Attrs, Fault> {
        let mut results = self.ask(who, vec![putfh(handle), ArgOp::Getattr(ASKED)]).await?;
        results.take(OpNum::PUTFH)?;
        self.attrs(&results.getattr()?)
    }

    /// Sets attributes. Returns all of them afterwards.
    pub async fn set_attrs(&self, who: &Caller, handle: &FileHandle, set: &Set) -> Result<Attrs, Fault> {
        Ok(self.set_attrs_and(who, handle, set, false).await?.1)
    }

    /// As [`Remote::set_attrs`]. Returns also the change attribute before it: somebody else may have changed the file since memory has heard of
    /// it. Not in version 3, where that is one request more.
    pub async fn set_attrs_after(
        &self,
        who: &Caller,
        handle: &FileHandle,
        set: &Set,
    ) -> Result<(Option<u64>, Attrs), Fault> {
        self.set_attrs_and(who, handle, set, self.has_compounds()).await
    }

    async fn set_attrs_and(
        &self,
        who: &Caller,
        handle: &FileHandle,
        set: &Set,
        ask_before: bool,
    ) -> Result<(Option<u64>, Attrs), Fault> {
        let mut ops = vec![putfh(handle)];
        if ask_before {
            ops.push(ArgOp::Getattr(CHANGE));
        }
        let parts = set.wire();
        let count = parts.len();
        for attrs in parts {
            ops.push(ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs }));
        }
        ops.push(ArgOp::Getattr(ASKED));
        // The same values once more do no harm.
        let mut results = self.ask(who, ops).await?;
        results.take(OpNum::PUTFH)?;
        let before = if ask_before { Some(change_of(&mut results)?) } else { None };
        for _ in 0..count {
            results.take(OpNum::SETATTR)?;
        }
        Ok((before, self.attrs(&results.getattr()?)?))
    }

    /// One READ; the data may be less than asked for. Returns also whether the file ends behind it.
    pub async fn read(
        &self,
        who: &Caller,
        handle: &FileHandle,
        offset: u64,
        count: u32,
    ) -> Result<(Bytes, bool), Fault> {
        let room = self.session().limits().response.saturating_sub(1024).max(512);
        let read = ReadArgs { stateid: Stateid::ANONYMOUS, offset, count: count.min(room) };
        let mut results = self.ask(who, vec![putfh(handle), ArgOp::Read(read)]).await?;
        results.take(OpNum::PUTFH)?;
        let part = results.data()?;
        Ok((part.data, part.eof))
    }

    /// The most data of one WRITE.
    pub fn write_room(&self) -> usize {
        (self.session().limits().request as usize).saturating_sub(2048).max(512)
    }

    /// One WRITE, which need not take all of `data`.
    pub async fn write(
        &self,
        who: &Caller,
        handle: &FileHandle,
        offset: u64,
        data: Bytes,
        stable: StableHow,
    ) -> Result<Written, Fault> {
        let data = data.slice(..data.len().min(self.write_room()));
        let len = data.len();
        let write = WriteArgs { stateid: Stateid::ANONYMOUS, offset, stable, data };
        // The same data once more does no harm.
        let mut results = self.ask(who, vec![putfh(handle), ArgOp::Write(write)]).await?;
        results.take(OpNum::PUTFH)?;
        written(&mut results, len)
    }

    /// A stable WRITE, which need not take all of `data`, between two looks at the change attribute. The second one may fail.
    pub async fn write_between(
        &self,
        who: &Caller,
        handle: &FileHandle,
        offset: u64,
        data: Bytes,
    ) -> Result<(u64, Written, Option<u64>), Fault> {
        let data = data.slice(..data.len().min(self.write_room()));
        let len = data.len();
        let (before, mut results) = self.write_stably(who, handle, (offset, data), CHANGE).await?;
        let written = written(&mut results, len)?;
        Ok((before, written, change_of(&mut results).ok()))
    }

    /// Writes all of `data`, stably, in one COMPOUND. Returns the change attribute before it and all attributes afterwards; `None`: the
    /// server has not written all of it stably.
    pub async fn write_whole(
        &self,
        who: &Caller,
        handle: &FileHandle,
        offset: u64,
        data: Bytes,
    ) -> Result<Option<(u64, Attrs)>, Fault> {
        let len = data.len();
        let (before, mut results) = self.write_stably(who, handle, (offset, data), ASKED).await?;
        let res = results.write()?;
        if res.count as usize != len || res.committed != StableHow::FileSync {
            return Ok(None);
        }
        Ok(Some((before, self.attrs(&results.getattr()?)?)))
    }

    /// A stable WRITE between a look at the change attribute, which is returned, and one at `after`: its results begin with those of
    /// WRITE.
    async fn write_stably(
        &self,
        who: &Caller,
        handle: &FileHandle,
        (offset, data): (u64, Bytes),
        after: Bitmap,
    ) -> Result<(u64, Results), Fault> {
        let write = WriteArgs { stateid: Stateid::ANONYMOUS, offset, stable: StableHow::FileSync, data };
        let ops = vec![putfh(handle), ArgOp::Getattr(CHANGE), ArgOp::Write(write), ArgOp::Getattr(after)];
        let mut results = self.ask(who, ops).await?;
        results.take(OpNum::PUTFH)?;
        Ok((change_of(&mut results)?, results))
    }

    /// Makes all that was written stable. Returns the server's verifier, and the attributes.
    pub async fn commit(&self, who: &Caller, handle: &FileHandle) -> Result<(Verifier, Attrs), Fault> {
        let commit = ArgOp::Commit(CommitArgs { offset: 0, count: 0 });
        let mut results = self.ask(who, vec![putfh(handle), commit, ArgOp::Getattr(ASKED)]).await?;
        results.take(OpNum::PUTFH)?;
        let verifier = results.commit()?;
        Ok((verifier, self.attrs(&results.getattr()?)?))
    }

    pub async fn read_link(&self, who: &Caller, handle: &FileHandle) -> Result<Bytes, Fault> {
        let mut results = self.ask(who, vec![putfh(handle), ArgOp::Readlink]).await?;
        results.take(OpNum::PUTFH)?;
        Ok(results.readlink()?)
    }

    pub async fn room(&self, who: &Caller, handle: &FileHandle) -> Result<Room, Fault> {
        let mut results = self.ask(who, vec![putfh(handle), ArgOp::Getattr(ROOM)]).await?;
        results.take(OpNum::PUTFH)?;
        let values = AttrValues::from_fattr(&results.getattr()?).map_err(|s| Fault::Op(OpNum::GETATTR, s))?;
        Ok(Room {
            total: values.space_total.unwrap_or_default(),
            free: values.space_free.unwrap_or_default(),
            available: values.space_avail.unwrap_or_default(),
            files: values.files_total.unwrap_or_default(),
            files_free: values.files_free.unwrap_or_default(),
            name_max: values.maxname.unwrap_or(crate::limits::NAME_BYTES_MAX as u32),
        })
    }

    pub async fn get_xattr(&self, who: &Caller, handle: &FileHandle, name: Bytes) -> Result<Bytes, Fault> {
        let mut results = self.ask(who, vec![putfh(handle), ArgOp::Getxattr(name)]).await?;
        results.take(OpNum::PUTFH)?;
        Ok(results.getxattr()?)
    }

    pub async fn set_xattr(
        &self,
        who: &Caller,
        handle: &FileHandle,
        key: Bytes,
        value: Bytes,
        option: SetxattrOption,
    ) -> Result<(), Fault> {
        let ops = vec![
            putfh(handle),
            ArgOp::Setxattr(SetxattrArgs { option, key: key.clone(), value: value.clone() }),
        ];
        let (reply, lost) = self.change_surely(who, ops, OpNum::SETXATTR).await?;
        let mut results = Results::new(reply);
        results.take(OpNum::PUTFH)?;
        match results.take(OpNum::SETXATTR).map_err(Fault::from) {
            Err(e @ Fault::Op(_, NfsStat::NFS4ERR_EXIST)) if lost => {
                let ours = self.get_xattr(who, handle, key).await.is_ok_and(|v| v == value);
                if ours { Ok(()) } else { Err(e) }
            }
            other => other.map(drop),
        }
    }

    pub async fn remove_xattr(&self, who: &Caller, handle: &FileHandle, name: Bytes) -> Result<(), Fault> {
        let ops = vec![putfh(handle), ArgOp::Removexattr(name)];
        let (reply, lost) = self.change_surely(who, ops, OpNum::REMOVEXATTR).await?;
        let mut results = Results::new(reply);
        results.take(OpNum::PUTFH)?;
        match results.take(OpNum::REMOVEXATTR).map_err(Fault::from) {
            Err(Fault::Op(_, NfsStat::NFS4ERR_NOXATTR)) if lost => Ok(()),
            other => other.map(drop),
        }
    }

    /// The names of all extended attributes, without their namespace.
    pub async fn list_xattrs(&self, who: &Caller, handle: &FileHandle) -> Result<Vec<Bytes>, Fault> {
        let (mut cookie, mut names) = (0, Vec::new());
        loop {
            let list = ListxattrsArgs { cookie, maxcount: crate::limits::ANSWER_BYTES_MAX as u32 };
            let mut results = self.ask(who, vec![putfh(handle), ArgOp::Listxattrs(list)]).await?;
            results.take(OpNum::PUTFH)?;
            let page = results.listxattrs()?;
            let none = page.names.is_empty();
            names.extend(page.names);
            if page.eof || none || names.len() > landfast_client::limits::XATTRS_MAX {
                return Ok(names);
            }
            cookie = page.cookie;
        }
    }
}
