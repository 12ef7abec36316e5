//! What a server offers: versions, TLS, delegations.

use crate::error::{Error, Result};
use crate::limits::{DELEGATION_PAUSE, DELEGATION_TRIES, PATIENCE};
use bytes::Bytes;
use landfast_client::cred::Identity;
use landfast_client::{Session, SessionLimits, SessionOptions};
use landfast_nfs::v4::args::{CloseArgs, OpenArgs, OpenClaim, OpenHow, owner};
use landfast_nfs::v4::res::{OpenDelegation, OpenRes};
use landfast_nfs::v4::{
    ArgOp, CompoundArgs, CompoundRes, FileHandle, NfsStat, PROC_COMPOUND, ResBody, VERSION, flags,
};
use landfast_nfs::{PROGRAM, v3};
use landfast_verify::Target;
use landfast_verify::client::Fh;
use landfast_verify::error::Error as Said;
use landfast_verify::url::Version;
use landfast_verify::wire::{Procedure, Wire};
use landfast_xdr::Decode;
use serde::Serialize;
use std::time::Duration;

/// OPEN's wish for a delegation (RFC 8881 section 18.16.3).
const WANT_READ_DELEG: u32 = 0x0100;
const WANT_WRITE_DELEG: u32 = 0x0200;

fn connect(target: &Target) -> Result<Wire> {
    Ok(Wire::connect(&target.addresses(target.port)?, PATIENCE)?)
}

/// The versions, lowest first.
///
/// # Errors
/// The server cannot be reached; or it speaks none.
pub fn versions(target: &Target) -> Result<Vec<Version>> {
    let mut wire = connect(target)?;
    let mut offered = Vec::new();
    match wire.call(Procedure { prog: PROGRAM, vers: v3::VERSION, proc: 0 }, &()) {
        Ok(_) => offered.push(Version::V3),
        Err(Said::Refused { .. }) => {}
        Err(e) => return Err(e.into()),
    }
    for minor in 0..=2 {
        let args = CompoundArgs { tag: Bytes::new(), minor_version: minor, announced: 0, ops: Vec::new() };
        match wire.call(Procedure { prog: PROGRAM, vers: VERSION, proc: PROC_COMPOUND }, &args) {
            Ok(reply) => {
                let mismatch = CompoundRes::from_bytes(reply)
                    .map_or(true, |r| r.status == NfsStat::NFS4ERR_MINOR_VERS_MISMATCH);
                offered.extend((!mismatch).then_some(Version::V4(minor)));
            }
            Err(Said::Refused { .. }) => {}
            // Nothing but the header: a server that does not like that goes on with another connection.
            Err(_) => wire = connect(target)?,
        }
    }
    if offered.is_empty() {
        return Err(Error::NoVersion(format!("{}:{}", target.host, target.port)));
    }
    Ok(offered)
}

/// Whether the server would go on in TLS (RFC 9289 section 4.1).
///
/// # Errors
/// No answer.
pub fn tls(target: &Target, version: Version) -> Result<bool> {
    let vers = if version == Version::V3 { v3::VERSION } else { VERSION };
    Ok(connect(target)?.offers_tls(Procedure { prog: PROGRAM, vers, proc: 0 })?)
}

/// One kind of delegation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Delegation {
    /// It was given.
    pub offered: bool,
    /// If not, why, as far as that is known.
    pub why: Option<String>,
}

impl Delegation {
    /// Not given, because of this.
    pub(crate) fn none(why: String) -> Delegation {
        Delegation { offered: false, why: Some(why) }
    }
}

/// Delegations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Delegations {
    /// Of a file opened for reading.
    pub read: Delegation,
    /// Of a file opened for writing.
    pub write: Delegation,
}

impl Delegations {
    /// Nobody was asked.
    #[must_use]
    pub fn not_asked(why: &str) -> Delegations {
        let none = Delegation::none(why.to_owned());
        Delegations { read: none.clone(), write: none }
    }
}

/// Opens two files with a wish, on a session that can be called back.
///
/// # Errors
/// The session cannot be made. What the server answers to the OPENs is a finding.
pub fn delegations(target: &Target, dir: &Fh, names: [&str; 2]) -> Result<Delegations> {
    let minor = match target.version {
        Version::V4(minor @ 1..) => minor,
        Version::V4(_) => return crate::forty::delegations(target, dir, names),
        Version::V3 => return Ok(Delegations::not_asked("version 3 has none")),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::Unable(format!("no runtime: {e}")))?;
    runtime.block_on(async {
        let options = SessionOptions {
            host: target.host.clone(),
            port: target.port,
            version: Some(if minor == 1 {
                landfast_client::Version::V41
            } else {
                landfast_client::Version::V42
            }),
            mount_port: None,
            identity: Identity::of_process(),
            instance: None,
            connections: 1,
            ask: SessionLimits::ASK,
            call_patience: PATIENCE,
            reconnect_patience: Duration::ZERO,
            refused_patience: Duration::ZERO,
            reply_patience: None,
            watch: None,
        };
        let session = match Session::connect(options).await {
            Ok(session) => session,
            Err(e) => return Ok(Delegations::not_asked(&format!("no session to ask on: {e}"))),
        };
        if !session.listens().await {
            session.destroy().await;
            return Ok(Delegations::not_asked("the server takes no back channel"));
        }
        let dir = FileHandle(Bytes::copy_from_slice(dir));
        let read = wish(&session, &dir, names[0], flags::OPEN4_SHARE_ACCESS_READ | WANT_READ_DELEG).await;
        let write = wish(&session, &dir, names[1], flags::OPEN4_SHARE_ACCESS_BOTH | WANT_WRITE_DELEG).await;
        session.destroy().await;
        Ok(Delegations { read, write })
    })
}

async fn wish(session: &Session, dir: &FileHandle, name: &str, share_access: u32) -> Delegation {
    let mut said = Delegation { offered: false, why: None };
    for attempt in 0..DELEGATION_TRIES {
        if attempt > 0 {
            // Nothing tells when the server has found out whether it can call back.
            tokio::time::sleep(DELEGATION_PAUSE).await;
        }
        said = open(session, dir, name, share_access).await;
        if said.offered {
            break;
        }
    }
    said
}

async fn open(session: &Session, dir: &FileHandle, name: &str, share_access: u32) -> Delegation {
    let reply = match session.compound(open_ops(dir, name, share_access, (0, 0)), false).await {
        Ok(reply) => reply,
        Err(e) => return Delegation::none(e.to_string()),
    };
    let (open, fh) = match opened(reply) {
        Ok(opened) => opened,
        Err(none) => return none,
    };
    let mut back = vec![ArgOp::Putfh(fh)];
    let said = given(&open.delegation, share_access, &mut back);
    back.push(ArgOp::Close(CloseArgs { seqid: 0, open_stateid: open.stateid }));
    // If it fails the state goes with the session.
    let _ = session.compound(back, false).await;
    said
}

/// Opens the file `name`, as the owner of this client and with this number of the owner's (both 0 on a session).
pub(crate) fn open_ops(
    dir: &FileHandle,
    name: &str,
    share_access: u32,
    (clientid, seqid): (u64, u32),
) -> Vec<ArgOp> {
    let args = OpenArgs {
        seqid,
        share_access,
        share_deny: flags::OPEN4_SHARE_DENY_NONE,
        owner: owner(clientid, b"delegation"),
        openhow: OpenHow::NoCreate,
        claim: OpenClaim::Null(Bytes::copy_from_slice(name.as_bytes())),
    };
    vec![ArgOp::Putfh(dir.clone()), ArgOp::Open(args), ArgOp::Getfh]
}

/// What [`open_ops`] have opened, and its handle; or what is to be said if they have not.
pub(crate) fn opened(reply: CompoundRes) -> std::result::Result<(OpenRes, FileHandle), Delegation> {
    let (mut opened, mut fh) = (None, None);
    for result in reply.results {
        match result.body {
            ResBody::Open(open) => opened = Some(open),
            ResBody::Getfh(handle) => fh = Some(handle),
            _ => {}
        }
    }
    opened.zip(fh).ok_or_else(|| Delegation::none(format!("OPEN: {}", reply.status)))
}

/// What was given to an open of this access; it goes `back`.
pub(crate) fn given(given: &OpenDelegation, share_access: u32, back: &mut Vec<ArgOp>) -> Delegation {
    let offered = Delegation { offered: true, why: None };
    match given {
        OpenDelegation::Read { stateid, .. } => {
            back.push(ArgOp::DelegReturn(*stateid));
            match share_access & flags::OPEN4_SHARE_ACCESS_WRITE {
                0 => offered,
                _ => Delegation::none("one for reading was given".to_owned()),
            }
        }
        OpenDelegation::Write { stateid, .. } => {
            back.push(ArgOp::DelegReturn(*stateid));
            offered
        }
        OpenDelegation::NoneExt(why) => Delegation::none(because(why.why)),
        OpenDelegation::None => Delegation { offered: false, why: None },
    }
}

/// `why_no_delegation4` (RFC 8881 section 18.16.2).
fn because(why: u32) -> String {
    match why {
        0 => "the server says: not wanted".to_owned(),
        1 => "the server says: others use the file".to_owned(),
        2 => "the server says: no resources for it".to_owned(),
        3 => "the server says: not for files of this kind".to_owned(),
        4 => "the server says: none for writing to files of this kind".to_owned(),
        n => format!("the server's reason is number {n}"),
    }
}
