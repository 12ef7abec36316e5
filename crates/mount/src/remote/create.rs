//! A whole new file in one COMPOUND: made, written stably, given its attributes, closed. One round trip, whatever it is over.
//!
//! What the server has not done of it is done by the file's handle. The file is made with GUARDED: if the name is taken meanwhile, nothing
//! is written.
//!
//! If a reply is lost and the next try finds the name taken, the file is ours only if its data says so. A verifier (EXCLUSIVE4_1) would
//! not help: servers that keep it in the times (RFC 8881 section 18.16.3) lose it with the WRITE and the SETATTR behind the OPEN.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use landfast_client::compound::Results;
use landfast_nfs::v4::args::{
    CloseArgs, CreateHow, OpenArgs, OpenClaim, OpenHow, SetattrArgs, WriteArgs, owner,
};
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::flags::{
    OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OPEN4_SHARE_DENY_NONE,
};
use landfast_nfs::v4::{ArgOp, ChangeInfo, FileHandle, FileType, NfsStat, OpNum, StableHow, Stateid};

use super::names::Also;
use super::send::{Caller, Doubt, Fault, Remote};
use crate::core::attrs::{ASKED, Attrs, Set};

/// A file to be made.
#[derive(Debug, Clone)]
pub struct NewFile {
    pub name: Bytes,
    /// The permission bits that it is made with.
    pub mode: u32,
    /// Offsets and data, in their order.
    pub data: Vec<(u64, Bytes)>,
    /// Attributes behind the data.
    pub set: Set,
}

/// A file that was made.
#[derive(Debug)]
pub struct Made {
    pub handle: FileHandle,
    /// `None`: to be asked for.
    pub attrs: Option<Attrs>,
    /// The directory's change, and its attributes afterwards.
    pub info: Option<ChangeInfo>,
    pub dir: Option<Attrs>,
    /// Data that is not written stably yet.
    pub unwritten: Vec<(u64, Bytes)>,
    /// Attributes that are not set yet.
    pub unset: Set,
}

impl NewFile {
    /// Where the data ends.
    fn end(&self) -> u64 {
        self.data.iter().map(|(at, data)| at + data.len() as u64).max().unwrap_or(0)
    }

    /// Whether a file of these attributes may be this one, as far as the server came with it. An empty file may be anybody's.
    fn may_be(&self, attrs: &Attrs) -> bool {
        let whole = self.set.size.unwrap_or(0);
        let ends = self.data.iter().map(|(at, data)| at + data.len() as u64).chain([whole]);
        attrs.kind == FileType::Reg
            && attrs.links == 1
            && attrs.size > 0
            && ends.into_iter().any(|e| e == attrs.size)
    }

    /// Whether what a file begins with is this one's data, and not only zeros that nobody has written.
    fn begins(&self, read: &[u8]) -> bool {
        let mut wanted = vec![0; read.len()];
        for (at, data) in &self.data {
            let at = usize::try_from(*at).unwrap_or(usize::MAX).min(wanted.len());
            let len = data.len().min(wanted.len() - at);
            wanted[at..at + len].copy_from_slice(&data[..len]);
        }
        self.data.iter().any(|(at, data)| !data.is_empty() && *at < read.len() as u64) && wanted == read
    }
}

impl Made {
    pub(super) fn of(handle: FileHandle, new: &NewFile) -> Made {
        Made { handle, attrs: None, info: None, dir: None, unwritten: new.data.clone(), unset: new.set }
    }

    /// A file that an earlier try has made, perhaps with more data than there is now.
    fn again(handle: FileHandle, found: &Attrs, new: &NewFile) -> Made {
        let mut made = Made::of(handle, new);
        if found.size > new.end() {
            made.unset.size.get_or_insert(new.end());
        }
        made
    }
}

impl Remote {
    /// Makes a file, and as much of the rest as goes into one COMPOUND. `doubt`: whether it may have been made already.
    ///
    /// # Errors
    /// EXIST: somebody has the name; or, after a lost reply, somebody may have it who is not this mount. Others: nothing was made.
    pub async fn create(
        &self,
        who: &Caller,
        dir: &FileHandle,
        new: &NewFile,
        doubt: Doubt,
    ) -> Result<Made, Fault> {
        let mut lost = doubt != Doubt::None;
        loop {
            let (ops, packed, parts) = self.creation(dir, new);
            let (reply, again) = self.change_surely(who, ops, OpNum::OPEN).await?;
            lost |= again;
            let mut results = Results::new(reply);
            results.skip(&[OpNum::PUTFH, OpNum::SAVEFH])?;
            let opened = match results.open().map_err(Fault::from) {
                Err(e @ Fault::Op(_, NfsStat::NFS4ERR_EXIST)) if lost => {
                    let found = self.look_up(who, dir, &new.name, Also::Nothing).await?.found;
                    let Some((handle, attrs)) = found else { continue };
                    let ours = doubt == Doubt::OursIfThere && attrs.kind == FileType::Reg
                        || new.may_be(&attrs) && self.holds(who, &handle, new).await?;
                    return if ours { Ok(Made::again(handle, &attrs, new)) } else { Err(e) };
                }
                other => other?,
            };
            let handle = match results.getfh() {
                Ok(handle) => handle,
                // It is made; only the handle did not come.
                Err(_) => {
                    let found = self.look_up(who, dir, &new.name, Also::Nothing).await?.found;
                    found.ok_or(Fault::Op(OpNum::LOOKUP, NfsStat::NFS4ERR_NOENT))?.0
                }
            };
            let mut made = Made::of(handle, new);
            made.info = Some(opened.cinfo);
            match self.take(&mut results, &mut made, packed, parts) {
                Ok(()) => made.dir = self.back(&mut results),
                Err(_) => self.close(who, &made.handle, opened.stateid).await,
            }
            return Ok(made);
        }
    }

    /// Writes and sets what a creation has left, as far as the server does it.
    pub async fn complete(&self, who: &Caller, made: &mut Made) {
        let mut left = VecDeque::from(std::mem::take(&mut made.unwritten));
        while let Some((offset, data)) = left.pop_front() {
            let written = self.write(who, &made.handle, offset, data.clone(), StableHow::FileSync).await;
            let count = written.ok().filter(|w| w.verifier.is_none()).map_or(0, |w| w.count);
            let rest = data.slice(count..);
            if !rest.is_empty() {
                left.push_front((offset + count as u64, rest));
            }
            if count == 0 {
                break;
            }
        }
        made.unwritten = left.into();
        if made.unwritten.is_empty()
            && !made.unset.is_empty()
            && let Ok(attrs) = self.set_attrs(who, &made.handle, &made.unset).await
        {
            (made.unset, made.attrs) = (Set::default(), Some(attrs));
        }
    }

    /// Whether a file has the data of a new one.
    async fn holds(&self, who: &Caller, handle: &FileHandle, new: &NewFile) -> Result<bool, Fault> {
        let mut read = BytesMut::new();
        while (read.len() as u64) < new.end() {
            let left = u32::try_from(new.end() - read.len() as u64).unwrap_or(u32::MAX);
            let (part, eof) = self.read(who, handle, read.len() as u64, left).await?;
            read.extend_from_slice(&part);
            if eof || part.is_empty() {
                break;
            }
        }
        Ok(new.begins(&read))
    }

    /// Reads what follows the GETFH. Fails where the file stays open.
    pub(super) fn take(
        &self,
        results: &mut Results,
        made: &mut Made,
        packed: usize,
        parts: usize,
    ) -> Result<(), Fault> {
        let mut left = Vec::new();
        let data = std::mem::take(&mut made.unwritten);
        let mut failed = None;
        for (n, (offset, data)) in data.into_iter().enumerate() {
            if n >= packed || failed.is_some() {
                left.push((offset, data));
                continue;
            }
            match results.write().map_err(Fault::from) {
                Ok(res) if res.committed == StableHow::FileSync && res.count as usize <= data.len() => {
                    let rest = data.slice(res.count as usize..);
                    if !rest.is_empty() {
                        left.push((offset + u64::from(res.count), rest));
                    }
                }
                Ok(_) => left.push((offset, data)),
                Err(e) => {
                    failed = Some(e);
                    left.push((offset, data));
                }
            }
        }
        made.unwritten = left;
        if let Some(e) = failed {
            return Err(e);
        }
        for _ in 0..parts {
            results.take(OpNum::SETATTR)?;
        }
        // What is written behind this moves the time again.
        if made.unwritten.is_empty() {
            made.unset = Set::default();
        }
        let attrs = self.attrs(&results.getattr()?)?;
        if made.unwritten.is_empty() {
            made.attrs = Some(attrs);
        }
        results.take(OpNum::CLOSE)?;
        Ok(())
    }

    /// The operations, and how many parts of the data and SETATTRs are among them.
    fn creation(&self, dir: &FileHandle, new: &NewFile) -> (Vec<ArgOp>, usize, usize) {
        let mut ops = vec![ArgOp::Putfh(dir.clone()), ArgOp::Savefh];
        let (packed, parts) = self.creation_in(new, &mut ops);
        ops.extend([ArgOp::Restorefh, ArgOp::Getattr(ASKED)]);
        (ops, packed, parts)
    }

    /// Those behind the ones that lead to the directory.
    pub(super) fn creation_in(&self, new: &NewFile, ops: &mut Vec<ArgOp>) -> (usize, usize) {
        let attrs = AttrValues { mode: Some(new.mode), ..AttrValues::default() };
        let open = OpenArgs {
            seqid: 0,
            share_access: OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: owner(0, format!("mount {}", self.number() % 64).as_bytes()),
            openhow: OpenHow::Create(CreateHow::Guarded(attrs.to_fattr(&AttrValues::KNOWN))),
            claim: OpenClaim::Null(new.name.clone()),
        };
        ops.extend([ArgOp::Open(open), ArgOp::Getfh]);
        let several = self.session().packs_data();
        // Room for the other operations, and for all of the shortest COMPOUNDs that servers take.
        let (mut room, most) =
            (self.write_room(), self.session().limits().ops.saturating_sub(12).max(1) as usize);
        let mut packed = 0;
        for (offset, data) in new.data.iter().take(most) {
            if data.len() + 64 > room || packed > 0 && !several {
                break;
            }
            room -= data.len() + 64;
            let (stateid, stable) = (Stateid::CURRENT, StableHow::FileSync);
            ops.push(ArgOp::Write(WriteArgs { stateid, offset: *offset, stable, data: data.clone() }));
            packed += 1;
        }
        let whole = packed == new.data.len();
        let parts = if whole { new.set.wire() } else { Vec::new() };
        let count = parts.len();
        ops.extend(
            parts.into_iter().map(|attrs| ArgOp::Setattr(SetattrArgs { stateid: Stateid::CURRENT, attrs })),
        );
        let close = CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT };
        ops.extend([ArgOp::Getattr(ASKED), ArgOp::Close(close)]);
        (packed, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(data: &[(u64, &'static [u8])], size: Option<u64>) -> NewFile {
        let data = data.iter().map(|(at, d)| (*at, Bytes::from_static(d))).collect();
        NewFile { name: Bytes::from_static(b"f"), mode: 0o644, data, set: Set { size, ..Set::default() } }
    }

    fn file(size: u64, links: u32) -> Attrs {
        let values = AttrValues {
            kind: Some(FileType::Reg),
            size: Some(size),
            numlinks: Some(links),
            ..AttrValues::default()
        };
        Attrs::of(&values, |_, _| 0).unwrap()
    }

    #[test]
    fn an_empty_file_is_somebody_elses_after_a_lost_reply() {
        for ours in [new(&[], None), new(&[(0, b"pid 1")], None)] {
            assert!(!ours.may_be(&file(0, 1)));
        }
        assert!(!new(&[], Some(9)).begins(&[]));
        // Zeros that SETATTR made prove nothing.
        assert!(!new(&[], Some(3)).begins(&[0; 3]));
        assert!(!new(&[(8, b"x")], None).begins(&[0; 3]));
    }

    #[test]
    fn a_file_that_was_made_before_has_no_more_than_is_written_now() {
        let again = |size, set| {
            let made = Made::again(FileHandle(Bytes::new()), &file(size, 1), &new(&[(2, b"abc")], set));
            made.unset.size
        };
        assert_eq!((again(3, None), again(5, None), again(6, None)), (None, None, Some(5)));
        assert_eq!((again(6, Some(9)), again(99, Some(9))), (Some(9), Some(9)));
    }

    #[test]
    fn a_file_is_ours_if_it_has_our_data_as_far_as_a_write_went() {
        let ours = new(&[(0, b"abc"), (6, b"def")], Some(20));
        let sizes: Vec<u64> = (0..30).filter(|s| ours.may_be(&file(*s, 1))).collect();
        assert_eq!(sizes, [3, 9, 20]);
        assert!(!ours.may_be(&file(9, 2)));
        assert!(ours.begins(b"abc") && ours.begins(b"abc\0\0\0def"));
        assert!(!ours.begins(b"abd") && !ours.begins(b"abc\0\0\0dex"));
    }
}
