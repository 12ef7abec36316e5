//! NFS versions 4.0, 4.1 and 4.2 (RFC 7530, RFC 8881). Lanes are slots of one session, or open owners of one client.

use crate::ask::{Answer, Ask, Calls, File};
use crate::limits::{BURST_WRITE_BYTES, IN_FLIGHT, OPERATIONS_MAX};
use bytes::Bytes;
use landfast_nfs::v4::args::{
    CloseArgs, CommitArgs, CreateHow, OpenArgs, OpenClaim, OpenHow, SetattrArgs, WriteArgs, owner,
};
use landfast_nfs::v4::attr::number;
use landfast_nfs::v4::v40::OpenConfirmArgs;
use landfast_nfs::v4::{
    ArgOp, AttrValues, Bitmap, CompoundArgs, CompoundRes, FileHandle, OpNum, PROC_COMPOUND, ResBody, ResOp,
    StableHow, Stateid, VERSION, flags,
};
use landfast_rpc::message::Outcome;
use landfast_verify::Target;
use landfast_verify::blocking::nfs::{Fh, Nfs};
use landfast_verify::blocking::session::{Options, find, refused};
use landfast_verify::blocking::v4::Client;
use landfast_verify::blocking::wire::{Procedure, results};
use landfast_verify::error::{Error, Result};
use landfast_xdr::Decode;
use std::time::Duration;

/// More than the bytes of a request around a WRITE's data.
const AROUND_DATA: usize = 1024;

pub struct V4Calls {
    client: Client,
    dir: Fh,
    /// The next seqid of each lane's open owner (version 4.0).
    owners: Vec<u32>,
}

const ATTRS: Bitmap = Bitmap::of(&[
    number::TYPE,
    number::CHANGE,
    number::SIZE,
    number::FILEID,
    number::MODE,
    number::TIME_MODIFY,
]);

const ACCESS: u32 = flags::ACCESS4_READ
    | flags::ACCESS4_LOOKUP
    | flags::ACCESS4_MODIFY
    | flags::ACCESS4_EXTEND
    | flags::ACCESS4_DELETE;

fn put(fh: &Fh) -> ArgOp {
    ArgOp::Putfh(FileHandle(Bytes::copy_from_slice(fh)))
}

fn mode(mode: u32) -> AttrValues {
    AttrValues { mode: Some(mode), ..AttrValues::default() }
}

fn compound() -> Procedure {
    Procedure { prog: landfast_nfs::PROGRAM, vers: VERSION, proc: PROC_COMPOUND }
}

/// Connects with the settings of all clients in this crate. Fails if there is no server, or if it refuses.
pub fn client(target: &Target, minor: u32, patience: Duration) -> Result<Client> {
    Client::connect_as(PROGRAM_NAME, &options(), target, minor, patience)
}

/// What the name of this crate's clients begins with.
pub const PROGRAM_NAME: &str = "landfast probe";

/// What this crate's clients ask of a server.
pub fn options() -> Options {
    Options {
        operations: OPERATIONS_MAX,
        slots: IN_FLIGHT.into_iter().max().unwrap_or(1) as u32,
        request_bytes: (BURST_WRITE_BYTES + AROUND_DATA) as u32,
        persistent: false,
        callbacks: None,
    }
}

impl V4Calls {
    /// Connects. Fails if there is no server, or if it refuses.
    pub fn connect(target: &Target, minor: u32) -> Result<V4Calls> {
        let client = client(target, minor, crate::limits::PATIENCE)?;
        let lanes = IN_FLIGHT.into_iter().max().unwrap_or(1);
        Ok(V4Calls { client, dir: Fh::new(), owners: vec![0; lanes] })
    }

    fn ops(&self, lane: usize, ask: &Ask) -> Vec<ArgOp> {
        let seqid = self.owners.get(lane).copied().unwrap_or(0);
        let close = |file: &File| ArgOp::Close(CloseArgs { seqid, open_stateid: file.open });
        let name = |name: &str| Bytes::copy_from_slice(name.as_bytes());
        match ask {
            Ask::Null => Vec::new(),
            Ask::Getattr => vec![put(&self.dir), ArgOp::Getattr(ATTRS)],
            Ask::Access => vec![put(&self.dir), ArgOp::Access(ACCESS)],
            Ask::Create(new) => {
                let no_delegation = if self.client.session.minor() == 0 {
                    0
                } else {
                    flags::OPEN4_SHARE_ACCESS_WANT_NO_DELEG
                };
                let open = OpenArgs {
                    seqid,
                    share_access: flags::OPEN4_SHARE_ACCESS_BOTH | no_delegation,
                    share_deny: flags::OPEN4_SHARE_DENY_NONE,
                    owner: owner(self.client.session.clientid(), format!("lane {lane}").as_bytes()),
                    openhow: OpenHow::Create(CreateHow::Guarded(mode(0o644).to_fattr(&AttrValues::KNOWN))),
                    claim: OpenClaim::Null(name(new)),
                };
                vec![put(&self.dir), ArgOp::Open(open), ArgOp::Getfh, ArgOp::Getattr(ATTRS)]
            }
            Ask::Confirm(file) => {
                let confirm = OpenConfirmArgs { open_stateid: file.open, seqid };
                vec![put(&file.fh), ArgOp::OpenConfirm(confirm)]
            }
            Ask::Write { file, offset, data, stable } => {
                let stable = if *stable { StableHow::FileSync } else { StableHow::Unstable };
                let write = WriteArgs { stateid: file.open, offset: *offset, stable, data: data.clone() };
                vec![put(&file.fh), ArgOp::Write(write)]
            }
            Ask::Commit(file) => {
                vec![put(&file.fh), ArgOp::Commit(CommitArgs { offset: 0, count: 0 })]
            }
            Ask::Setattr(file, bits) => {
                let attrs = mode(*bits).to_fattr(&AttrValues::KNOWN);
                vec![put(&file.fh), ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs })]
            }
            Ask::Close(file) => vec![put(&file.fh), close(file)],
            Ask::Remove(old) => vec![put(&self.dir), ArgOp::Remove(name(old))],
            Ask::Drop(file) => {
                vec![put(&file.fh), close(file), put(&self.dir), ArgOp::Remove(name(&file.name))]
            }
        }
    }
}

/// By how much these results advance the open owner's seqid in version 4.0 (RFC 7530 section 9.1.7).
pub(crate) fn seqids_used(res: &CompoundRes) -> u32 {
    let has_seqid = |op| matches!(op, OpNum::OPEN | OpNum::CLOSE | OpNum::OPEN_CONFIRM);
    res.results.iter().filter(|r| has_seqid(r.op) && r.status.advances_seqid()).count() as u32
}

impl Calls for V4Calls {
    fn nfs(&mut self) -> &mut dyn Nfs {
        &mut self.client
    }

    fn set_dir(&mut self, dir: Fh) {
        self.dir = dir;
    }

    fn lanes(&self) -> usize {
        let slots = self.client.session.granted().map_or(usize::MAX, |g| g.max_requests.max(1) as usize);
        self.owners.len().min(slots)
    }

    fn has_opens(&self) -> bool {
        true
    }

    fn confirms(&self) -> bool {
        self.client.session.minor() == 0
    }

    fn write_bytes_max(&self) -> usize {
        let request = self.client.session.granted().map_or(usize::MAX, |g| g.max_request_size as usize);
        request.saturating_sub(AROUND_DATA).min(BURST_WRITE_BYTES)
    }

    fn submit(&mut self, lane: usize, ask: &Ask) -> Result<u32> {
        if matches!(ask, Ask::Null) {
            return self.client.session.wire().submit(Procedure { proc: 0, ..compound() }, &());
        }
        let mut ops: Vec<ArgOp> = self.client.session.sequence(lane).into_iter().collect();
        ops.extend(self.ops(lane, ask));
        let (announced, minor_version) = (ops.len() as u32, self.client.session.minor());
        let args = CompoundArgs { tag: Bytes::new(), minor_version, announced, ops };
        self.client.session.wire().submit(compound(), &args)
    }

    fn next_reply(&mut self) -> Result<(u32, Outcome)> {
        self.client.session.wire().next_reply()
    }

    fn answer(&mut self, lane: usize, ask: &Ask, outcome: Outcome) -> Result<Answer> {
        let reply = results(compound(), outcome)?;
        if matches!(ask, Ask::Null) {
            return Ok(Answer::Done);
        }
        let res = CompoundRes::from_bytes(reply).map_err(|e| Error::Nonsense(e.to_string()))?;
        if let Some(seqid) = self.owners.get_mut(lane) {
            *seqid = seqid.wrapping_add(seqids_used(&res));
        }
        if !res.status.is_ok() {
            let (op, status) = res.results.last().map_or((OpNum::ILLEGAL, res.status), |r| (r.op, r.status));
            if op == OpNum::SEQUENCE {
                self.client.session.not_counted(lane);
            }
            return Err(refused(op, status));
        }
        made_of(ask, lane, res.results)
    }
}

fn made_of(ask: &Ask, lane: usize, results: Vec<ResOp>) -> Result<Answer> {
    match ask {
        Ask::Create(name) => {
            let fh = results.iter().find_map(|r| match &r.body {
                ResBody::Getfh(fh) => Some(fh.0.to_vec()),
                _ => None,
            });
            let fh = fh.ok_or_else(|| Error::Nonsense("no result of GETFH".into()))?;
            let open = find(results, "OPEN", |b| match b {
                ResBody::Open(o) => Some(o),
                _ => None,
            })?;
            let confirm = open.rflags & flags::OPEN4_RESULT_CONFIRM != 0;
            Ok(Answer::Made(File { name: name.clone(), fh, open: open.stateid, confirm, lane }))
        }
        Ask::Confirm(file) => {
            let open = find(results, "OPEN_CONFIRM", |b| match b {
                ResBody::OpenConfirm(stateid) => Some(stateid),
                _ => None,
            })?;
            Ok(Answer::Made(File { open, confirm: false, ..file.clone() }))
        }
        Ask::Write { .. } => find(results, "WRITE", |b| match b {
            ResBody::Write(w) => {
                Some(Answer::Written { count: w.count, stable: w.committed == StableHow::FileSync })
            }
            _ => None,
        }),
        _ => Ok(Answer::Done),
    }
}
