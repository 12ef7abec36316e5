//! Names: found, listed, made, removed, renamed.
//!
//! Behind each change come the directory's own attributes, so that nobody has to ask for them afterwards. A change whose reply is lost is
//! sent again; if the server then says that it was done already, the outcome is looked at.

use bytes::Bytes;
use landfast_client::compound::Results;
use landfast_nfs::v4::args::{CreateArgs, CreateType, ReaddirArgs, RenameArgs};
use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};
use landfast_nfs::v4::{ArgOp, ChangeInfo, Fattr, FileHandle, FileType, NfsStat, OpNum, ResBody, Verifier};

use super::delegations::{Delegation, ROOM, ask_for_delegation, delegation, room};
use super::send::{Caller, Doubt, Fault, Remote};
use crate::core::attrs::{ASKED, Attrs, CHANGE};
use crate::core::space::Needs;
use crate::limits::{FIRST_READ_BYTES, READDIR_BYTES};

/// What a LOOKUP found.
#[derive(Debug)]
pub struct Looked {
    /// The directory's change attribute before it.
    pub change: u64,
    pub found: Option<(FileHandle, Attrs)>,
    /// The beginning of the file, and whether that is all, if it was asked for and could be read.
    pub data: Option<(Bytes, bool)>,
    /// All names of the directory, if they were asked for. `Some(None)`: there are too many for one reply.
    pub names: Option<Option<Vec<Bytes>>>,
}

/// What a LOOKUP asks for as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Also {
    Nothing,
    /// The first data, if it is a file.
    Data,
    /// All names of the directory, if they fit in one reply.
    Names,
}

/// What a change of names left behind.
#[derive(Debug, Default)]
pub struct Changed {
    /// `None`: the server has told nothing that is certain.
    pub info: Option<ChangeInfo>,
    /// The directory afterwards.
    pub dir: Option<Attrs>,
    /// The other directory of a RENAME.
    pub other: Option<(Option<ChangeInfo>, Option<Attrs>)>,
    /// The object that was made or renamed.
    pub object: Option<(FileHandle, Attrs)>,
    /// The object's change attribute before a LINK.
    pub object_before: Option<u64>,
    /// What the server said when a delegation was asked for.
    pub delegation: Option<Delegation>,
    /// How much space the user has, if the server said.
    pub room: Option<Needs>,
}

/// An entry of a listing: cookie, name, and the object if the server told.
pub type PageEntry = (u64, Bytes, Option<(FileHandle, Attrs)>);

/// A part of a directory's listing.
#[derive(Debug)]
pub struct Page {
    /// The directory's change attribute before it.
    pub change: u64,
    pub verifier: Verifier,
    pub entries: Vec<PageEntry>,
    pub eof: bool,
}

/// A copy: a slice of a reply would keep the whole reply in memory.
pub(super) fn detached(handle: &FileHandle) -> FileHandle {
    FileHandle(Bytes::copy_from_slice(&handle.0))
}

fn putfh(handle: &FileHandle) -> ArgOp {
    ArgOp::Putfh(handle.clone())
}

impl Remote {
    /// LOOKUP of a name, with the change attribute of its directory.
    pub async fn look_up(
        &self,
        who: &Caller,
        dir: &FileHandle,
        name: &Bytes,
        also: Also,
    ) -> Result<Looked, Fault> {
        let mut ops = vec![putfh(dir), ArgOp::Getattr(CHANGE)];
        if also == Also::Names {
            // Before the LOOKUP, which may fail.
            ops.push(ArgOp::Readdir(self.listing(
                0,
                Verifier::default(),
                Bitmap::of(&[number::RDATTR_ERROR]),
            )));
        }
        ops.extend([ArgOp::Lookup(name.clone()), ArgOp::Getfh, ArgOp::Getattr(ASKED)]);
        if also == Also::Data {
            ops.push(Self::first_read());
        }
        let mut results = self.ask(who, ops).await?;
        results.take(OpNum::PUTFH)?;
        let change = change_of(&mut results)?;
        let names = match also {
            Also::Names => {
                let page = results.readdir()?;
                let name = |e: &landfast_nfs::v4::res::DirEntry| Bytes::copy_from_slice(&e.name);
                Some(page.eof.then(|| page.entries.iter().filter(|e| is_name(&e.name)).map(name).collect()))
            }
            _ => None,
        };
        match results.take(OpNum::LOOKUP).map_err(Fault::from) {
            Err(Fault::Op(OpNum::LOOKUP, NfsStat::NFS4ERR_NOENT)) => {
                return Ok(Looked { change, found: None, data: None, names });
            }
            other => other?,
        };
        let handle = results.getfh()?;
        let attrs = self.attrs(&results.getattr()?)?;
        let data = match also {
            Also::Data => results.read().ok().map(|r| (Bytes::copy_from_slice(&r.data), r.eof)),
            _ => None,
        };
        Ok(Looked { change, found: Some((handle, attrs)), data, names })
    }

    fn listing(&self, cookie: u64, cookieverf: Verifier, attr_request: Bitmap) -> ReaddirArgs {
        let maxcount = READDIR_BYTES.min(self.session().limits().response.saturating_sub(2048)).max(1024);
        ReaddirArgs { cookie, cookieverf, dircount: maxcount, maxcount, attr_request }
    }

    pub(super) fn first_read() -> ArgOp {
        ArgOp::Read(landfast_nfs::v4::args::ReadArgs {
            stateid: landfast_nfs::v4::Stateid::ANONYMOUS,
            offset: 0,
            count: FIRST_READ_BYTES,
        })
    }

    /// One part of a listing, behind `cookie`.
    pub async fn list(
        &self,
        who: &Caller,
        dir: &FileHandle,
        cookie: u64,
        verifier: Verifier,
    ) -> Result<Page, Fault> {
        let read = self.listing(cookie, verifier, ASKED.or(&Bitmap::of(&[number::RDATTR_ERROR])));
        let mut results =
            self.ask(who, vec![putfh(dir), ArgOp::Getattr(CHANGE), ArgOp::Readdir(read)]).await?;
        results.take(OpNum::PUTFH)?;
        let change = change_of(&mut results)?;
        let page = results.readdir()?;
        let object = |fattr: &Fattr| {
            let values = AttrValues::from_fattr(fattr).ok()?;
            let handle = values.filehandle.as_ref().map(detached)?;
            Some((handle, self.attrs_of(&values)?))
        };
        let names = page.entries.iter().filter(|e| is_name(&e.name));
        let entries = names.map(|e| (e.cookie, Bytes::copy_from_slice(&e.name), object(&e.attrs))).collect();
        Ok(Page { change, verifier: page.cookieverf, entries, eof: page.eof })
    }

    /// Makes a directory, a symbolic link or a special file. `doubt`: whether it may have been made already. `delegate`: a directory is
    /// to be this mount's own.
    pub async fn make(
        &self,
        who: &Caller,
        dir: &FileHandle,
        name: &Bytes,
        (kind, mode): (CreateType, Option<u32>),
        (doubt, delegate): (Doubt, bool),
    ) -> Result<Changed, Fault> {
        let attrs = AttrValues { mode, ..AttrValues::default() }.to_fattr(&AttrValues::KNOWN);
        let args = CreateArgs { kind: kind.clone(), name: name.clone(), attrs };
        let mut ops = vec![
            putfh(dir),
            ArgOp::Savefh,
            ArgOp::Create(args),
            ArgOp::Getfh,
            ArgOp::Getattr(ASKED),
            ArgOp::Restorefh,
            ArgOp::Getattr(ASKED),
        ];
        if delegate {
            // At the end, since a server that has no such operation ends the COMPOUND with it.
            ops.truncate(5);
            ops.extend([ask_for_delegation(), ArgOp::Getattr(ROOM)]);
        }
        let mut lost = doubt != Doubt::None;
        loop {
            let (reply, again) = self.change_surely(who, ops.clone(), OpNum::CREATE).await?;
            lost |= again;
            let mut results = Results::new(reply);
            results.skip(&[OpNum::PUTFH, OpNum::SAVEFH])?;
            let made = match results.take(OpNum::CREATE).map_err(Fault::from) {
                // The first transmission has made it, or somebody else did. Only a symbolic link says whose it is: a directory that two
                // programs make as a lock must not become both of theirs.
                Err(Fault::Op(_, NfsStat::NFS4ERR_EXIST)) if lost => {
                    let found = self.look_up(who, dir, name, Also::Nothing).await?.found;
                    let Some((handle, attrs)) = found else { continue };
                    let ours =
                        doubt == Doubt::OursIfThere && attrs.is_dir() == matches!(kind, CreateType::Dir);
                    if !ours && !self.is_as_made(who, &handle, &attrs, &kind).await? {
                        return Err(Fault::Op(OpNum::CREATE, NfsStat::NFS4ERR_EXIST));
                    }
                    return Ok(Changed { object: Some((handle, attrs)), ..Changed::default() });
                }
                other => other?,
            };
            let info = if let ResBody::Create(made) = made { Some(made.cinfo) } else { None };
            return match self.object(&mut results) {
                Ok(object) if delegate => {
                    let delegation = Some(delegation(&mut results).0);
                    let room = room(&mut results);
                    Ok(Changed { info, object: Some(object), delegation, room, ..Changed::default() })
                }
                Ok(object) => {
                    let dir = self.back(&mut results);
                    Ok(Changed { info, object: Some(object), dir, ..Changed::default() })
                }
                // It is made; only its attributes did not come.
                Err(_) => {
                    let found = self.look_up(who, dir, name, Also::Nothing).await?.found;
                    let object = found.ok_or(Fault::Op(OpNum::LOOKUP, NfsStat::NFS4ERR_NOENT))?;
                    Ok(Changed { info, object: Some(object), ..Changed::default() })
                }
            };
        }
    }

    async fn is_as_made(
        &self,
        who: &Caller,
        handle: &FileHandle,
        attrs: &Attrs,
        kind: &CreateType,
    ) -> Result<bool, Fault> {
        match kind {
            CreateType::Lnk(text) if attrs.kind == FileType::Lnk => {
                Ok(self.read_link(who, handle).await? == *text)
            }
            _ => Ok(false),
        }
    }

    /// GETFH and GETATTR.
    pub(super) fn object(&self, results: &mut Results) -> Result<(FileHandle, Attrs), Fault> {
        let handle = results.getfh()?;
        Ok((handle, self.attrs(&results.getattr()?)?))
    }

    /// RESTOREFH and GETATTR of the directory. What is missing is asked for when somebody needs it.
    pub(super) fn back(&self, results: &mut Results) -> Option<Attrs> {
        results.take(OpNum::RESTOREFH).ok()?;
        self.attrs(&results.getattr().ok()?).ok()
    }

    /// Removes a name. `again`: it may have been removed already.
    pub async fn remove(
        &self,
        who: &Caller,
        dir: &FileHandle,
        name: &Bytes,
        again: bool,
    ) -> Result<Changed, Fault> {
        let ops = vec![putfh(dir), ArgOp::Remove(name.clone()), ArgOp::Getattr(ASKED)];
        let (reply, lost) = self.change_surely(who, ops, OpNum::REMOVE).await?;
        let mut results = Results::new(reply);
        results.take(OpNum::PUTFH)?;
        let info = match results.take(OpNum::REMOVE).map_err(Fault::from) {
            Err(Fault::Op(_, NfsStat::NFS4ERR_NOENT)) if lost || again => return Ok(Changed::default()),
            Ok(ResBody::Remove(info)) => Some(info),
            Ok(_) => None,
            Err(e) => return Err(e),
        };
        let after = results.getattr().ok().and_then(|a| self.attrs(&a).ok());
        Ok(Changed { info, dir: after, ..Changed::default() })
    }

    /// Renames an object over whatever has the new name. `handle`: the object, to know it again when a reply is lost. `again`: it may have
    /// been renamed already.
    pub async fn rename(
        &self,
        who: &Caller,
        (from, oldname): (&FileHandle, &Bytes),
        (to, newname): (&FileHandle, &Bytes),
        handle: Option<&FileHandle>,
        again: bool,
    ) -> Result<Changed, Fault> {
        let args = RenameArgs { oldname: oldname.clone(), newname: newname.clone() };
        let ops = vec![
            putfh(from),
            ArgOp::Savefh,
            putfh(to),
            ArgOp::Rename(args),
            ArgOp::Getattr(ASKED),
            ArgOp::Restorefh,
            ArgOp::Getattr(ASKED),
        ];
        let (reply, lost) = self.change_surely(who, ops, OpNum::RENAME).await?;
        let mut results = Results::new(reply);
        results.skip(&[OpNum::PUTFH, OpNum::SAVEFH, OpNum::PUTFH])?;
        let (source, target) = match results.take(OpNum::RENAME).map_err(Fault::from) {
            Err(e @ Fault::Op(_, NfsStat::NFS4ERR_NOENT)) if lost || again => {
                let there = self.look_up(who, to, newname, Also::Nothing).await?.found;
                let ours = there.as_ref().is_some_and(|(h, _)| Some(h) == handle);
                return if ours { Ok(Changed { object: there, ..Changed::default() }) } else { Err(e) };
            }
            Ok(ResBody::Rename(done)) => (Some(done.source_cinfo), Some(done.target_cinfo)),
            Ok(_) => (None, None),
            Err(e) => return Err(e),
        };
        let after = results.getattr().ok().and_then(|a| self.attrs(&a).ok());
        let other = (target, after);
        let dir = self.back(&mut results);
        Ok(Changed { info: source, dir, other: Some(other), ..Changed::default() })
    }

    /// Gives an object a further name.
    pub async fn link(
        &self,
        who: &Caller,
        object: &FileHandle,
        dir: &FileHandle,
        name: &Bytes,
    ) -> Result<Changed, Fault> {
        let mut ops = vec![putfh(object)];
        if self.has_compounds() {
            ops.push(ArgOp::Getattr(CHANGE));
        }
        ops.extend([
            ArgOp::Savefh,
            putfh(dir),
            ArgOp::Link(name.clone()),
            ArgOp::Getattr(ASKED),
            ArgOp::Restorefh,
            ArgOp::Getattr(ASKED),
        ]);
        let (reply, lost) = self.change_surely(who, ops, OpNum::LINK).await?;
        let mut results = Results::new(reply);
        results.skip(&[OpNum::PUTFH])?;
        let object_before = if self.has_compounds() { Some(change_of(&mut results)?) } else { None };
        results.skip(&[OpNum::SAVEFH, OpNum::PUTFH])?;
        let info = match results.take(OpNum::LINK).map_err(Fault::from) {
            Err(e @ Fault::Op(_, NfsStat::NFS4ERR_EXIST)) if lost => {
                let there = self.look_up(who, dir, name, Also::Nothing).await?.found;
                let ours = there.as_ref().is_some_and(|(h, _)| h == object);
                return if ours { Ok(Changed { object: there, ..Changed::default() }) } else { Err(e) };
            }
            Ok(ResBody::Link(info)) => Some(info),
            Ok(_) => None,
            Err(e) => return Err(e),
        };
        let after = results.getattr().ok().and_then(|a| self.attrs(&a).ok());
        let attrs = self.back(&mut results);
        let object = attrs.map(|attrs| (object.clone(), attrs));
        Ok(Changed { info, dir: after, object, object_before, ..Changed::default() })
    }
}

/// A name that a directory can hold, whatever the server sends.
fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|b| matches!(b, 0 | b'/'))
}

/// The result of GETATTR of [`CHANGE`].
pub(super) fn change_of(results: &mut Results) -> Result<u64, Fault> {
    let values = AttrValues::from_fattr(&results.getattr()?).map_err(|s| Fault::Op(OpNum::GETATTR, s))?;
    Ok(values.change.unwrap_or_default())
}
