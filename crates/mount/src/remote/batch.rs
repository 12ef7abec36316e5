//! Many changes in one directory in one COMPOUND, executed in their order up to the first that fails.

use bytes::Bytes;
use landfast_client::compound::Results;
use landfast_nfs::v4::args::{CreateArgs, CreateType, RenameArgs, SetattrArgs};
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{ArgOp, FileHandle, NfsStat, OpNum, Stateid};

use super::create::{Made, NewFile};
use super::delegations::{Delegation, ROOM, ask_for_delegation, delegation, room_in};
use super::names::Also;
use super::send::{Caller, Fault, Remote};
use crate::core::attrs::{ASKED, Attrs, Set};
use crate::core::space::Needs;

/// One change.
#[derive(Debug, Clone)]
pub enum Step {
    File(NewFile),
    /// `delegate`: it is to be this mount's own.
    Dir {
        name: Bytes,
        mode: u32,
        delegate: bool,
    },
    Link {
        name: Bytes,
        text: Bytes,
        set: Set,
    },
    Remove {
        name: Bytes,
    },
    Rename {
        from: Bytes,
        to: Bytes,
    },
    Set {
        handle: FileHandle,
        set: Set,
    },
}

/// What a change that was executed left behind.
#[derive(Debug)]
pub enum StepDone {
    File(Box<Made>),
    Object {
        handle: FileHandle,
        attrs: Option<Attrs>,
        delegation: Delegation,
        /// Why attributes of a symbolic link were not set.
        unset: Option<Fault>,
    },
    /// A name was removed or renamed.
    Name,
    Set(Option<Attrs>),
}

impl StepDone {
    /// What was made.
    pub fn handle(&self) -> Option<&FileHandle> {
        match self {
            StepDone::File(made) => Some(&made.handle),
            StepDone::Object { handle, .. } => Some(handle),
            StepDone::Name | StepDone::Set(_) => None,
        }
    }
}

/// How far a COMPOUND came.
#[derive(Debug)]
pub struct Sent {
    pub done: Vec<StepDone>,
    /// Why the change behind those was not done. `None`: all were done, or the rest was not executed for another reason.
    pub failed: Option<Fault>,
    /// The directory afterwards, if all was done.
    pub dir: Option<Attrs>,
    /// If all was done: how much space the user has. `None` within: the server does not say.
    pub room: Option<Option<Needs>>,
}

/// Room for a reply of a change, in bytes: OPEN, GETFH, GETATTR with long owners, and what is small.
const REPLY_BYTES: usize = 1152;
/// The same for the directory itself and the head.
const REPLY_HEAD_BYTES: usize = 1536;
/// What a change takes of a request beside names and data.
const REQUEST_BYTES: usize = 640;
const REQUEST_HEAD_BYTES: usize = 2048;
/// The most operations that a change needs beside its WRITEs.
const OPS: usize = 10;

/// Room in one COMPOUND.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    request: usize,
    reply: usize,
    ops: usize,
    used: bool,
}

impl Room {
    /// Takes the room of one change with so much data in so many parts. The first one always has room.
    pub fn take(&mut self, bytes: usize, parts: usize) -> bool {
        let (request, ops) = (bytes + REQUEST_BYTES + 32 * parts, OPS + parts);
        let reply = REPLY_BYTES + 32 * parts;
        let fits = request <= self.request && reply <= self.reply && ops <= self.ops;
        if !fits && self.used {
            return false;
        }
        self.request = self.request.saturating_sub(request);
        self.reply = self.reply.saturating_sub(reply);
        self.ops = self.ops.saturating_sub(ops);
        self.used = true;
        true
    }
}

impl Remote {
    /// The room of a COMPOUND whose reply the server keeps.
    pub fn batch_room(&self) -> Room {
        let limits = self.session().limits();
        let reply = limits.response.min(limits.response_cached) as usize;
        Room {
            request: (limits.request as usize).saturating_sub(REQUEST_HEAD_BYTES),
            reply: reply.saturating_sub(REPLY_HEAD_BYTES),
            ops: (limits.ops as usize).saturating_sub(6),
            used: false,
        }
    }

    /// Sends changes in a directory, in this session and no other.
    ///
    /// # Errors
    /// BADSESSION of SEQUENCE: another session is in force, and nothing was executed. [`Fault::Unknown`]: any of them may have been
    /// executed, each before those behind it.
    pub async fn batch(
        &self,
        who: &Caller,
        dir: &FileHandle,
        steps: &[Step],
        session: u64,
    ) -> Result<Sent, Fault> {
        let mut ops = vec![ArgOp::Putfh(dir.clone()), ArgOp::Savefh];
        let mut parts = Vec::with_capacity(steps.len());
        for (n, step) in steps.iter().enumerate() {
            if n > 0 {
                ops.push(ArgOp::Restorefh);
            }
            parts.push(self.encode(step, &mut ops));
        }
        ops.extend([ArgOp::Restorefh, ArgOp::Getattr(ASKED.or(&ROOM))]);
        let reply = self.once_in(who, &ops, session).await?;
        let mut results = Results::new(reply);
        results.skip(&[OpNum::PUTFH, OpNum::SAVEFH])?;
        let mut sent = Sent { done: Vec::new(), failed: None, dir: None, room: None };
        for (n, (step, parts)) in steps.iter().zip(parts).enumerate() {
            if n > 0 && results.take(OpNum::RESTOREFH).is_err() {
                return Ok(sent);
            }
            match self.read_step(who, dir, step, parts, &mut results).await {
                Ok((done, whole)) => {
                    sent.done.push(done);
                    if !whole {
                        return Ok(sent);
                    }
                }
                Err(e) => {
                    sent.failed = Some(e);
                    return Ok(sent);
                }
            }
        }
        let values = results.take(OpNum::RESTOREFH).and_then(|_| results.getattr());
        if let Some(values) = values.ok().and_then(|a| AttrValues::from_fattr(&a).ok()) {
            (sent.dir, sent.room) = (self.attrs_of(&values), Some(room_in(&values)));
        }
        Ok(sent)
    }

    /// Appends a change's operations. Returns how many WRITEs and SETATTRs are among them.
    fn encode(&self, step: &Step, ops: &mut Vec<ArgOp>) -> (usize, usize) {
        let create = |kind, name: &Bytes, mode| {
            let attrs = AttrValues { mode, ..AttrValues::default() }.to_fattr(&AttrValues::KNOWN);
            ArgOp::Create(CreateArgs { kind, name: name.clone(), attrs })
        };
        let set = |set: &Set, ops: &mut Vec<ArgOp>| {
            let parts = set.wire();
            let count = parts.len();
            let setattr = |attrs| ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs });
            ops.extend(parts.into_iter().map(setattr));
            count
        };
        match step {
            Step::File(new) => self.creation_in(new, ops),
            Step::Dir { name, mode, delegate } => {
                ops.extend([create(CreateType::Dir, name, Some(*mode)), ArgOp::Getfh]);
                ops.push(ArgOp::Getattr(ASKED));
                ops.extend(delegate.then(ask_for_delegation));
                (0, 0)
            }
            Step::Link { name, text, set: attrs } => {
                ops.extend([create(CreateType::Lnk(text.clone()), name, None), ArgOp::Getfh]);
                let count = set(attrs, ops);
                ops.push(ArgOp::Getattr(ASKED));
                (0, count)
            }
            Step::Remove { name } => {
                ops.push(ArgOp::Remove(name.clone()));
                (0, 0)
            }
            Step::Rename { from, to } => {
                ops.push(ArgOp::Rename(RenameArgs { oldname: from.clone(), newname: to.clone() }));
                (0, 0)
            }
            Step::Set { handle, set: attrs } => {
                ops.push(ArgOp::Putfh(handle.clone()));
                let count = set(attrs, ops);
                ops.push(ArgOp::Getattr(ASKED));
                (0, count)
            }
        }
    }

    /// Reads a change's results. Returns also whether the COMPOUND went on behind it.
    async fn read_step(
        &self,
        who: &Caller,
        dir: &FileHandle,
        step: &Step,
        (writes, sets): (usize, usize),
        results: &mut Results,
    ) -> Result<(StepDone, bool), Fault> {
        match step {
            Step::File(new) => {
                let opened = results.open()?;
                let handle = match results.getfh() {
                    Ok(handle) => handle,
                    Err(_) => self.made_as(who, dir, &new.name).await?,
                };
                let mut made = Made::of(handle, new);
                let whole = self.take(results, &mut made, writes, sets).is_ok();
                if !whole {
                    self.close(who, &made.handle, opened.stateid).await;
                }
                Ok((StepDone::File(Box::new(made)), whole))
            }
            Step::Dir { name, delegate, .. } => {
                results.take(OpNum::CREATE)?;
                let Ok(handle) = results.getfh() else {
                    let handle = self.made_as(who, dir, name).await?;
                    let delegation = Delegation::None;
                    return Ok((StepDone::Object { handle, attrs: None, delegation, unset: None }, false));
                };
                let attrs = results.getattr().ok().and_then(|a| self.attrs(&a).ok());
                let (delegation, whole) = match delegate {
                    true => delegation(results),
                    false => (Delegation::None, attrs.is_some()),
                };
                Ok((StepDone::Object { handle, attrs, delegation, unset: None }, whole))
            }
            Step::Link { name, .. } => {
                results.take(OpNum::CREATE)?;
                let delegation = Delegation::None;
                let Ok(handle) = results.getfh() else {
                    let handle = self.made_as(who, dir, name).await?;
                    return Ok((StepDone::Object { handle, attrs: None, delegation, unset: None }, false));
                };
                for _ in 0..sets {
                    if let Err(e) = results.take(OpNum::SETATTR) {
                        let unset = Some(e.into());
                        return Ok((StepDone::Object { handle, attrs: None, delegation, unset }, false));
                    }
                }
                let attrs = results.getattr().ok().and_then(|a| self.attrs(&a).ok());
                let whole = attrs.is_some();
                Ok((StepDone::Object { handle, attrs, delegation, unset: None }, whole))
            }
            Step::Remove { .. } => {
                results.take(OpNum::REMOVE).map(|_| (StepDone::Name, true)).map_err(Fault::from)
            }
            Step::Rename { .. } => {
                results.take(OpNum::RENAME).map(|_| (StepDone::Name, true)).map_err(Fault::from)
            }
            Step::Set { .. } => {
                results.take(OpNum::PUTFH)?;
                for _ in 0..sets {
                    results.take(OpNum::SETATTR)?;
                }
                let attrs = results.getattr().ok().and_then(|a| self.attrs(&a).ok());
                let whole = attrs.is_some();
                Ok((StepDone::Set(attrs), whole))
            }
        }
    }

    /// Something was made; only its handle did not come.
    async fn made_as(&self, who: &Caller, dir: &FileHandle, name: &Bytes) -> Result<FileHandle, Fault> {
        let found = self.look_up(who, dir, name, Also::Nothing).await?.found;
        Ok(found.ok_or(Fault::Op(OpNum::LOOKUP, NfsStat::NFS4ERR_NOENT))?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_change_has_room_and_the_others_as_long_as_there_is_some() {
        let mut room = Room { request: 10_000, reply: 1 << 20, ops: 1000, used: false };
        assert!(room.take(1 << 20, 1));
        assert!(!room.take(1, 1));
        let mut room = Room { request: 10_000, reply: 1 << 20, ops: 1000, used: false };
        assert_eq!((0..100).take_while(|_| room.take(1000, 1)).count(), 10_000 / 1672);
        let mut room = Room { request: 1 << 20, reply: 1 << 20, ops: 33, used: false };
        assert_eq!((0..100).take_while(|_| room.take(0, 1)).count(), 3);
        let mut room = Room { request: 1 << 20, reply: 96 << 10, ops: 2048, used: false };
        assert_eq!((0..100).take_while(|_| room.take(0, 1)).count(), 83);
    }
}
