//! A client of NFSv4.0 that says exactly what a test wants said.
#![allow(dead_code)] // each test file uses its part

use super::common::{Raw, Rig, assert_ok, mode, name};
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::flags::OPEN4_RESULT_CONFIRM;
use landfast_nfs::v4::v40::*;
use landfast_nfs::v4::*;
use landfast_xdr::Bytes;

pub fn setclientid_op(id: &[u8], verifier: u8, addr: &str) -> ArgOp {
    ArgOp::Setclientid(SetclientidArgs {
        client: NfsClientId { verifier: [verifier; 8], id: Opaque1024(Bytes::copy_from_slice(id)) },
        callback: CallbackClient {
            program: 0x4000_0000,
            location: ClientAddr { netid: name("tcp"), addr: name(addr) },
        },
        callback_ident: 1,
    })
}

/// A client with one open owner, whose number is counted as RFC 7530 section 9.1.7 says.
#[derive(Clone)]
pub struct Client40 {
    pub raw: Raw,
    pub id: u64,
    pub owner: &'static [u8],
    /// The number of the owner's last request.
    pub seqid: u32,
}

impl Client40 {
    pub async fn new(rig: &Rig, id: &[u8]) -> Client40 {
        Client40::with(rig, id, 1).await
    }

    pub async fn with(rig: &Rig, id: &[u8], verifier: u8) -> Client40 {
        let mut raw = rig.raw().await;
        raw.minor = 0;
        let res = set(&raw, id, verifier).await;
        assert_eq!(confirm(&raw, &res).await, NfsStat::NFS4_OK);
        Client40 { raw, id: res.clientid, owner: b"o", seqid: 0 }
    }

    pub async fn run(&self, ops: Vec<ArgOp>) -> Vec<ResOp> {
        self.raw.compound(ops).await.results
    }

    pub async fn last(&self, ops: Vec<ArgOp>) -> ResOp {
        self.run(ops).await.pop().expect("a result")
    }

    pub async fn status(&self, ops: Vec<ArgOp>) -> NfsStat {
        let res = self.raw.compound(ops).await;
        assert_eq!(res.results.last().map_or(NfsStat::NFS4_OK, |r| r.status), res.status);
        res.status
    }

    pub async fn renew(&self) -> NfsStat {
        self.status(vec![ArgOp::Renew(self.id)]).await
    }

    pub fn next(&mut self) -> u32 {
        self.seqid += 1;
        self.seqid
    }

    pub fn open_op(&self, seqid: u32, file: &str, access: u32, deny: u32) -> ArgOp {
        self.open_with(seqid, access, deny, OpenHow::Create(CreateHow::Unchecked(mode(0o644))), file)
    }

    pub fn open_with(&self, seqid: u32, access: u32, deny: u32, openhow: OpenHow, file: &str) -> ArgOp {
        ArgOp::Open(OpenArgs {
            seqid,
            share_access: access,
            share_deny: deny,
            owner: owner(self.id, self.owner),
            openhow,
            claim: OpenClaim::Null(name(file)),
        })
    }

    pub fn reclaim_op(&self, seqid: u32, access: u32) -> ArgOp {
        let mut op = self.open_with(seqid, access, 0, OpenHow::NoCreate, "");
        if let ArgOp::Open(a) = &mut op {
            a.claim = OpenClaim::Previous(0);
        }
        op
    }

    /// OPEN of a file in the root, which need not be there: its handle, its stateid, whether it has to be confirmed.
    pub async fn open_only(&mut self, file: &str, access: u32, deny: u32) -> (FileHandle, Stateid, bool) {
        let open = self.open_op(self.seqid + 1, file, access, deny);
        self.seqid += 1;
        let res = self.run(vec![ArgOp::Putrootfh, open, ArgOp::Getfh]).await;
        assert_ok(&res);
        match (&res[1].body, &res[2].body) {
            (ResBody::Open(o), ResBody::Getfh(fh)) => {
                (fh.clone(), o.stateid, o.rflags & OPEN4_RESULT_CONFIRM != 0)
            }
            other => panic!("OPEN gave {other:?}"),
        }
    }

    /// [`Client40::open_only`], and confirms if need be.
    pub async fn open(&mut self, file: &str, access: u32, deny: u32) -> (FileHandle, Stateid) {
        let (fh, stateid, unconfirmed) = self.open_only(file, access, deny).await;
        if !unconfirmed {
            return (fh, stateid);
        }
        let seqid = self.next();
        let stateid = stateid_of(&self.on(&fh, confirm_op(stateid, seqid)).await);
        (fh, stateid)
    }

    /// One operation on a file.
    pub async fn on(&self, fh: &FileHandle, op: ArgOp) -> ResOp {
        self.last(vec![ArgOp::Putfh(fh.clone()), op]).await
    }

    pub fn new_lock(
        &self,
        open: Stateid,
        open_seqid: u32,
        lock: &[u8],
        lock_seqid: u32,
        at: (u64, u64),
    ) -> ArgOp {
        ArgOp::Lock(LockArgs {
            locktype: LockType::Write,
            reclaim: false,
            offset: at.0,
            length: at.1,
            locker: Locker::New {
                open_seqid,
                open_stateid: open,
                lock_seqid,
                lock_owner: owner(self.id, lock),
            },
        })
    }
}

pub async fn set(raw: &Raw, id: &[u8], verifier: u8) -> SetclientidRes {
    match raw.alone(setclientid_op(id, verifier, "127.0.0.1.3.4")).await.body {
        ResBody::Setclientid(r) => r,
        other => panic!("SETCLIENTID gave {other:?}"),
    }
}

pub async fn confirm(raw: &Raw, r: &SetclientidRes) -> NfsStat {
    let args = SetclientidConfirmArgs { clientid: r.clientid, confirm: r.confirm };
    raw.alone(ArgOp::SetclientidConfirm(args)).await.status
}

pub fn confirm_op(open_stateid: Stateid, seqid: u32) -> ArgOp {
    ArgOp::OpenConfirm(OpenConfirmArgs { open_stateid, seqid })
}

pub fn close_seq(open_stateid: Stateid, seqid: u32) -> ArgOp {
    ArgOp::Close(CloseArgs { seqid, open_stateid })
}

pub fn downgrade_op(open_stateid: Stateid, seqid: u32, access: u32) -> ArgOp {
    ArgOp::OpenDowngrade(OpenDowngradeArgs { open_stateid, seqid, share_access: access, share_deny: 0 })
}

pub fn relock_op(lock_stateid: Stateid, lock_seqid: u32, at: (u64, u64)) -> ArgOp {
    ArgOp::Lock(LockArgs {
        locktype: LockType::Write,
        reclaim: false,
        offset: at.0,
        length: at.1,
        locker: Locker::Existing { lock_stateid, lock_seqid },
    })
}

pub fn unlock_op(lock_stateid: Stateid, seqid: u32, at: (u64, u64)) -> ArgOp {
    ArgOp::Locku(LockuArgs { locktype: LockType::Write, seqid, lock_stateid, offset: at.0, length: at.1 })
}

pub fn stateid_of(res: &ResOp) -> Stateid {
    match &res.body {
        ResBody::OpenConfirm(s)
        | ResBody::OpenDowngrade(s)
        | ResBody::Lock(s)
        | ResBody::Locku(s)
        | ResBody::Close(s) => *s,
        ResBody::Open(o) => o.stateid,
        other => panic!("{} gave {}, {other:?}", res.op, res.status),
    }
}

pub fn stale(s: Stateid) -> Stateid {
    let mut other = s.other;
    other[3] ^= 0x40;
    Stateid { other, ..s }
}
