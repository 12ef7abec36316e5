//! NFS version 3 (RFC 1813) over the export table: one file for each family of procedures.
//!
//! A call runs where it was received, as a COMPOUND does. Its changes are one transaction of its volume, together with
//! the reply, which the duplicate request cache keeps ([`crate::state::drc`]). [`crate::path`] waits for the log in
//! between.
//!
//! Invariants:
//! - The reply to a modifying call is sent when the log holds the change and the reply.
//! - A call that was answered is not executed again.
//! - Weak cache consistency data has the "before" part only if nothing else happened in between.

mod acl;
mod attributes;
mod context;
mod errors;
mod fs;
mod io;
mod make;
mod names;
mod readdir;
mod serve;
mod touch;

use crate::exports::{Caller, Export};
use crate::limits;
use crate::looks::Looks;
use crate::path::{LateReply, Later, Outcome, Pending};
use crate::shared::Shared;
use crate::state::drc::CallKey;
use crate::state::notes::{Note, Stamped};
use crate::stats::Protocol;
use crate::wakeups::Awaited;
use bytes::{BufMut, Bytes, BytesMut};
use context::Context;
use landfast_nfs::nfsacl::{GetaclArgs, SetaclArgs, proc as acl_proc};
use landfast_nfs::v3::res::{LinkWcc, ReadOk, ReadRes, RenameWcc};
use landfast_nfs::v3::types::StableHow;
use landfast_nfs::v3::{Call, FileHandle, NfsStat3, Res, WccData};
use landfast_xdr::{Encode, padding};
use parking_lot::Mutex;
pub(crate) use serve::{nfs, nfsacl};
use std::sync::atomic::{AtomicBool, Ordering};

/// A decoded call of NFS version 3 or NFSACL.
pub(crate) enum DecodedCall {
    V3(Call),
    Getacl(GetaclArgs),
    Setacl(SetaclArgs),
}

impl DecodedCall {
    /// The object that the call may change; for a change of names the directory.
    pub(crate) fn changes(&self) -> Option<&FileHandle> {
        match self {
            DecodedCall::V3(call) => changes(call),
            DecodedCall::Getacl(_) => None,
            DecodedCall::Setacl(a) => Some(&a.object),
        }
    }

    /// Whether the reply is kept for a retry. COMMIT changes something, but may be executed any number of times.
    pub(crate) fn is_kept(&self) -> bool {
        self.changes().is_some() && !matches!(self, DecodedCall::V3(Call::Commit(_)))
    }

    /// Whether the call may wait for the disk while it runs.
    pub(crate) fn may_flush(&self, export: &Export) -> bool {
        match self {
            DecodedCall::V3(call) => may_flush(call, export),
            DecodedCall::Getacl(_) => false,
            DecodedCall::Setacl(_) => export.synced(),
        }
    }

    /// The reply to a call whose effect may not be durable; it says nothing about any object.
    pub(crate) fn failed(&self, status: NfsStat3) -> Bytes {
        match self {
            DecodedCall::V3(call) => failed(call, status),
            DecodedCall::Getacl(_) | DecodedCall::Setacl(_) => {
                Res::<(), Option<()>>::Fail(status, None).to_bytes()
            }
        }
    }
}

/// A decoded call and who sent it.
struct Request {
    caller: Caller,
    call: DecodedCall,
    /// Its key in the duplicate request cache, if its reply is kept.
    key: Option<CallKey>,
    parked: Parked,
}

/// A call that waits until a delegation is no longer in its way.
#[derive(Default)]
struct Parked {
    looks: Mutex<Option<Looks>>,
    /// It has waited long enough.
    over: AtomicBool,
}

fn changes(call: &Call) -> Option<&FileHandle> {
    match call {
        Call::Setattr(a) => Some(&a.object),
        Call::Write(a) => Some(&a.file),
        Call::Commit(a) => Some(&a.file),
        Call::Create(a) => Some(&a.at.dir),
        Call::Mkdir(a) => Some(&a.at.dir),
        Call::Symlink(a) => Some(&a.at.dir),
        Call::Mknod(a) => Some(&a.at.dir),
        Call::Remove(a) | Call::Rmdir(a) => Some(&a.dir),
        Call::Rename(a) => Some(&a.to.dir),
        Call::Link(a) => Some(&a.link.dir),
        Call::Null
        | Call::Getattr(_)
        | Call::Lookup(_)
        | Call::Access(_)
        | Call::Readlink(_)
        | Call::Read(_)
        | Call::Readdir(_)
        | Call::Readdirplus(_)
        | Call::Fsstat(_)
        | Call::Fsinfo(_)
        | Call::Pathconf(_) => None,
    }
}

fn may_flush(call: &Call, export: &Export) -> bool {
    match call {
        Call::Commit(_) => true,
        Call::Write(a) if a.stable != StableHow::Unstable => {
            export.synced() || a.data.len() > limits::LOGGED_WRITE_MAX
        }
        _ => export.synced() && changes(call).is_some(),
    }
}

fn run(sh: &Shared, req: &Request) -> Outcome {
    let mut ctx = Context::new(sh, &req.caller);
    if let Some(mut looks) = req.parked.looks.lock().take() {
        looks.again();
        ctx.looks = looks;
    }
    ctx.may_park = !req.parked.over.load(Ordering::Acquire);
    let (status, reply) = match (ctx.before(&req.call), &req.call) {
        (Err(status), call) => (status, vec![call.failed(status)]),
        (Ok(()), DecodedCall::V3(call)) => execute(&mut ctx, call),
        (Ok(()), DecodedCall::Getacl(a)) => one(ctx.getacl(a)),
        (Ok(()), DecodedCall::Setacl(a)) => one(ctx.setacl(a)),
    };
    if ctx.parks {
        *req.parked.looks.lock() = Some(ctx.looks);
        let waits = Some((Awaited::Delegation, limits::RECALL_WAIT));
        return Outcome { waits, ..Outcome::at_once(reply) };
    }
    let (protocol, procedure) = match &req.call {
        DecodedCall::V3(call) => (Protocol::V3, call.number()),
        DecodedCall::Getacl(_) => (Protocol::Nfsacl, acl_proc::GETACL),
        DecodedCall::Setacl(_) => (Protocol::Nfsacl, acl_proc::SETACL),
    };
    sh.counters.v3(protocol, procedure, status, status == NfsStat3::OK && req.call.changes().is_some());
    let Context { mut txs, noted, gone, exports, .. } = ctx;
    if status == NfsStat3::STALE
        && let Some(export) = req.call.changes().and_then(|changed| exports.of_handle(&changed.0))
    {
        txs.rests_on_removals(export);
    }
    let modified = txs.modified();
    let mut later = None;
    // "Try again later" is not kept: a retry, under whatever id, must be executed.
    if let Some(key) = req.key.as_ref().filter(|_| status != NfsStat3::JUKEBOX) {
        let home = txs.home().or_else(|| exports.keeper()).filter(|e| e.volume.keeps_notes()).cloned();
        let home = home.filter(|_| txs.lasting());
        let several = home.clone().filter(|home| txs.waits_elsewhere(home));
        later = several.map(|home| Later { home, reply: LateReply::Call(key.clone()), noted: true });
        let home = home.filter(|_| later.is_none());
        let note = {
            let mut st = sh.state();
            let noted = home.as_ref().map(|home| (st.next_version(), home.id()));
            let note = st.drc.answered(key, reply.concat().into(), noted);
            note.zip(noted.map(|(v, _)| v))
        };
        if let (Some(home), Some((note, v))) = (home, note) {
            txs.of(&home).note(Stamped { v, note: Note::Call(note) }.to_bytes());
        }
    }
    let receipts = txs.finish();
    let waits = modified || noted || receipts.settle(status == NfsStat3::IO);
    let pending =
        waits.then(|| Pending { later, gone, ..Pending::new(receipts, req.call.failed(NfsStat3::IO)) });
    Outcome { pending, ..Outcome::at_once(reply) }
}

fn one<T: Encode, F: Encode>(res: Res<T, F>) -> (NfsStat3, Vec<Bytes>) {
    (res.status(), vec![res.to_bytes()])
}

fn execute(ctx: &mut Context<'_>, call: &Call) -> (NfsStat3, Vec<Bytes>) {
    match call {
        Call::Null => (NfsStat3::OK, Vec::new()),
        Call::Getattr(a) => one(ctx.getattr(a)),
        Call::Setattr(a) => one(ctx.setattr(a)),
        Call::Lookup(a) => one(ctx.lookup(a)),
        Call::Access(a) => one(ctx.access(a)),
        Call::Readlink(a) => one(ctx.readlink(a)),
        Call::Read(a) => {
            let res = ctx.read(a);
            (res.status(), in_pieces(res))
        }
        Call::Write(a) => one(ctx.write(a)),
        Call::Create(a) => one(ctx.create(a)),
        Call::Mkdir(a) => one(ctx.mkdir(a)),
        Call::Symlink(a) => one(ctx.symlink(a)),
        Call::Mknod(a) => one(ctx.mknod(a)),
        Call::Remove(a) => one(ctx.remove(a, false)),
        Call::Rmdir(a) => one(ctx.remove(a, true)),
        Call::Rename(a) => one(ctx.rename(a)),
        Call::Link(a) => one(ctx.link(a)),
        Call::Readdir(a) => one(ctx.readdir(a)),
        Call::Readdirplus(a) => one(ctx.readdirplus(a)),
        Call::Fsstat(a) => one(ctx.fsstat(a)),
        Call::Fsinfo(a) => one(ctx.fsinfo(a)),
        Call::Pathconf(a) => one(ctx.pathconf(a)),
        Call::Commit(a) => one(ctx.commit(a)),
    }
}

/// The result of a READ without copying the data.
fn in_pieces(res: ReadRes) -> Vec<Bytes> {
    let Res::Ok(ReadOk { attrs, count, eof, data }) = res else { return vec![res.to_bytes()] };
    let mut head = BytesMut::with_capacity(128);
    NfsStat3::OK.encode(&mut head);
    attrs.encode(&mut head);
    count.encode(&mut head);
    eof.encode(&mut head);
    head.put_u32(data.len() as u32);
    let pad = Bytes::from_static(&[0; 3]).slice(..padding(data.len()));
    vec![head.freeze(), data, pad]
}

fn failed(call: &Call, status: NfsStat3) -> Bytes {
    match call {
        Call::Null => Bytes::new(),
        Call::Getattr(_) => status.to_bytes(),
        Call::Rename(_) => Res::<(), _>::Fail(status, RenameWcc::default()).to_bytes(),
        Call::Link(_) => Res::<(), _>::Fail(status, LinkWcc::default()).to_bytes(),
        call if changes(call).is_some() => Res::<(), _>::Fail(status, WccData::default()).to_bytes(),
        _ => Res::<(), Option<()>>::Fail(status, None).to_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfast_xdr::Decode;

    #[test]
    fn the_pieces_of_a_read_are_its_result() {
        for len in 0..9 {
            let data = Bytes::from(vec![7; len]);
            let res = ReadRes::Ok(ReadOk { attrs: None, count: len as u32, eof: true, data });
            assert_eq!(in_pieces(res.clone()).concat(), res.to_bytes());
        }
        let res = ReadRes::Fail(NfsStat3::STALE, None);
        assert_eq!(in_pieces(res.clone()).concat(), res.to_bytes());
    }

    #[test]
    fn a_failure_has_the_form_of_its_procedure() {
        use landfast_nfs::v3::res::*;
        use landfast_nfs::v3::types::DirOp;
        let fh = FileHandle(Bytes::new());
        let at = DirOp { dir: fh.clone(), name: Bytes::new() };
        let io = NfsStat3::IO;
        let remove = failed(&Call::Remove(at.clone()), io);
        assert_eq!(RemoveRes::from_bytes(remove), Ok(Res::Fail(io, WccData::default())));
        let link =
            failed(&Call::Link(landfast_nfs::v3::args::LinkArgs { file: fh.clone(), link: at.clone() }), io);
        assert_eq!(LinkRes::from_bytes(link), Ok(Res::Fail(io, LinkWcc::default())));
        assert_eq!(LookupRes::from_bytes(failed(&Call::Lookup(at), io)), Ok(Res::Fail(io, None)));
        assert_eq!(GetattrRes::from_bytes(failed(&Call::Getattr(fh), io)), Ok(Res::Fail(io, ())));
    }
}
