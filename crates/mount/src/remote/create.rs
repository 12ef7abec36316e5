//! A whole new file in one COMPOUND: made, written stably, given its attributes, closed. One round trip, whatever it is over.
//!
//! What the server has not done of it is done by the file's handle. The file is made with GUARDED: if the name is taken meanwhile, nothing
//! is written.

use bytes::Bytes;
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
use super::send::{Caller, Fault, Remote};
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

impl Made {
    fn of(handle: FileHandle, new: &NewFile) -> Made {
        Made { handle, attrs: None, info: None, dir: None, unwritten: new.data.clone(), unset: new.set }
    }
}

impl Remote {
    /// Makes a file, and as much of the rest as goes into one COMPOUND.
    ///
    /// # Errors
    /// EXIST: somebody has the name. Others: nothing was made.
    pub async fn create(&self, who: &Caller, dir: &FileHandle, new: &NewFile) -> Result<Made, Fault> {
        let mut lost = false;
        loop {
            let (ops, packed, parts) = self.creation(dir, new);
            let reply = match self.change(who, ops, OpNum::OPEN).await {
                Err(Fault::Unknown) => {
                    lost = true;
                    continue;
                }
                other => other?,
            };
            let mut results = Results::new(reply);
            results.skip(&[OpNum::PUTFH, OpNum::SAVEFH])?;
            let opened = match results.open().map_err(Fault::from) {
                Err(e @ Fault::Op(_, NfsStat::NFS4ERR_EXIST)) if lost => {
                    let found = self.look_up(who, dir, &new.name, Also::Nothing).await?.found;
                    let Some((handle, attrs)) = found else { continue };
                    let bytes = new.data.last().map_or(0, |(at, d)| at + d.len() as u64);
                    let ours = attrs.kind == FileType::Reg && attrs.links == 1 && attrs.size <= bytes;
                    return if ours { Ok(Made::of(handle, new)) } else { Err(e) };
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
            if self.take(&mut results, &mut made, packed, parts).is_err() {
                self.close(who, &made.handle, opened.stateid).await;
            }
            return Ok(made);
        }
    }

    /// Reads what follows the GETFH. Fails where the file stays open.
    fn take(&self, results: &mut Results, made: &mut Made, packed: usize, parts: usize) -> Result<(), Fault> {
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
        made.dir = self.back(results);
        Ok(())
    }

    /// The operations, and how many parts of the data and SETATTRs are among them.
    fn creation(&self, dir: &FileHandle, new: &NewFile) -> (Vec<ArgOp>, usize, usize) {
        let attrs = AttrValues { mode: Some(new.mode), ..AttrValues::default() };
        let open = OpenArgs {
            seqid: 0,
            share_access: OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: owner(0, format!("mount {}", self.number() % 64).as_bytes()),
            openhow: OpenHow::Create(CreateHow::Guarded(attrs.to_fattr(&AttrValues::KNOWN))),
            claim: OpenClaim::Null(new.name.clone()),
        };
        let mut ops = vec![ArgOp::Putfh(dir.clone()), ArgOp::Savefh, ArgOp::Open(open), ArgOp::Getfh];
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
        ops.extend([ArgOp::Getattr(ASKED), ArgOp::Close(close), ArgOp::Restorefh, ArgOp::Getattr(ASKED)]);
        (ops, packed, count)
    }
}
