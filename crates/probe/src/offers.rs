//! Finds out what a server offers: versions, TLS, delegations.

use crate::delegations::{
    Delegation, Delegations, directory_ops, given, in_place_of_open, of_directory, of_write_directory,
    open_ops, opened, with_times, write_directory_ops,
};
use crate::error::{Error, Result};
use crate::limits::{DELEGATION_PAUSE, DELEGATION_TRIES, PATIENCE};
use bytes::Bytes;
use landfast_client::cred::Identity;
use landfast_client::{Session, SessionLimits, SessionOptions};
use landfast_nfs::v4::args::CloseArgs;
use landfast_nfs::v4::res::OpenRes;
use landfast_nfs::v4::{
    ArgOp, CompoundArgs, CompoundRes, FileHandle, NfsStat, PROC_COMPOUND, VERSION, flags,
};
use landfast_nfs::{PROGRAM, v3};
use landfast_verify::Target;
use landfast_verify::blocking::nfs::Fh;
use landfast_verify::blocking::wire::{Procedure, Wire};
use landfast_verify::error::Error as ServerError;
use landfast_verify::url::Version;
use landfast_xdr::Decode;
use std::time::Duration;

/// OPEN flags that request a delegation (RFC 8881 section 18.16.3).
const WANT_READ_DELEG: u32 = 0x0100;
const WANT_WRITE_DELEG: u32 = 0x0200;

fn connect(target: &Target) -> Result<Wire> {
    Ok(Wire::connect(&target.addresses(target.port)?, PATIENCE)?)
}

/// The supported versions, lowest first. Fails if the server cannot be reached or supports none.
pub fn versions(target: &Target) -> Result<Vec<Version>> {
    let mut wire = connect(target)?;
    let mut offered = Vec::new();
    match wire.call(Procedure { prog: PROGRAM, vers: v3::VERSION, proc: 0 }, &()) {
        Ok(_) => offered.push(Version::V3),
        Err(ServerError::Refused { .. }) => {}
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
            Err(ServerError::Refused { .. }) => {}
            // Only the header was sent. If the server closes the connection over it, continue on another one.
            Err(_) => wire = connect(target)?,
        }
    }
    if offered.is_empty() {
        return Err(Error::NoVersion(format!("{}:{}", target.host, target.port)));
    }
    Ok(offered)
}

/// Whether the server accepts TLS (RFC 9289 section 4.1). Fails without an answer.
pub fn tls(target: &Target, version: Version) -> Result<bool> {
    let vers = if version == Version::V3 { v3::VERSION } else { VERSION };
    Ok(connect(target)?.offers_tls(Procedure { prog: PROGRAM, vers, proc: 0 })?)
}

/// Opens two files with a request for a delegation, on a session with callbacks. Fails if there is no session; a
/// refused OPEN is a result.
pub fn delegations(target: &Target, dir: &Fh, names: [&str; 2]) -> Result<Delegations> {
    let minor = match target.version {
        Version::V4(minor @ 1..) => minor,
        Version::V4(_) => return crate::delegations40::delegations(target, dir, names),
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
        if !session.binds_back_channel().await {
            session.destroy().await;
            return Ok(Delegations::not_asked("the server takes no back channel"));
        }
        let dir = FileHandle(Bytes::copy_from_slice(dir));
        let to_read = flags::OPEN4_SHARE_ACCESS_READ | WANT_READ_DELEG;
        let to_write = flags::OPEN4_SHARE_ACCESS_BOTH | WANT_WRITE_DELEG;
        let (_, read) = wish(&session, &dir, names[0], to_read).await;
        let (_, write) = wish(&session, &dir, names[1], to_write).await;
        let write_directory = write_directory(&session, &dir, &format!("{}-dir", names[0])).await;
        let directory = directory(&session, &dir).await;
        let mut found = Delegations {
            directory,
            write_directory,
            ..Delegations::simple(read, write, "they are an addition to version 4.2")
        };
        if minor >= 2 {
            let with = to_write | flags::OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS;
            let (open, said) = wish(&session, &dir, names[1], with).await;
            found.times = open.as_ref().map_or(said, with_times);
            let instead = to_read | flags::OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;
            let (open, said) = wish(&session, &dir, names[0], instead).await;
            found.in_place_of_open = open.as_ref().map_or(said, in_place_of_open);
        }
        session.destroy().await;
        Ok(found)
    })
}

async fn directory(session: &Session, dir: &FileHandle) -> Delegation {
    let reply = match session.compound(directory_ops(dir), false).await {
        Ok(reply) => reply,
        Err(e) => return Delegation::none(e.to_string()),
    };
    let mut back = vec![ArgOp::Putfh(dir.clone())];
    let said = of_directory(reply, &mut back);
    if said.offered {
        // If this fails, the state ends with the session.
        let _ = session.compound(back, false).await;
    }
    said
}

/// Makes a directory to ask for, and removes it.
async fn write_directory(session: &Session, dir: &FileHandle, name: &str) -> Delegation {
    let said = match session.compound(write_directory_ops(dir, name), false).await {
        Ok(reply) => of_write_directory(reply),
        Err(e) => Delegation::none(e.to_string()),
    };
    let remove = ArgOp::Remove(Bytes::copy_from_slice(name.as_bytes()));
    // If this fails, the probe says what is left.
    let _ = session.compound(vec![ArgOp::Putfh(dir.clone()), remove], false).await;
    said
}

/// Asks several times. Returns the last answer, with what the server said of the open if it opened the file.
async fn wish(
    session: &Session,
    dir: &FileHandle,
    name: &str,
    share_access: u32,
) -> (Option<OpenRes>, Delegation) {
    let mut said = (None, Delegation { offered: false, why: None });
    for attempt in 0..DELEGATION_TRIES {
        if attempt > 0 {
            // Nothing shows when the server has found out whether it can call back.
            tokio::time::sleep(DELEGATION_PAUSE).await;
        }
        said = open(session, dir, name, share_access).await;
        if said.1.offered {
            break;
        }
    }
    said
}

async fn open(
    session: &Session,
    dir: &FileHandle,
    name: &str,
    share_access: u32,
) -> (Option<OpenRes>, Delegation) {
    let reply = match session.compound(open_ops(dir, name, share_access, (0, 0)), false).await {
        Ok(reply) => reply,
        Err(e) => return (None, Delegation::none(e.to_string())),
    };
    let (open, fh) = match opened(reply) {
        Ok(opened) => opened,
        Err(none) => return (None, none),
    };
    let mut back = vec![ArgOp::Putfh(fh)];
    let said = given(&open.delegation, share_access, &mut back);
    if !in_place_of_open(&open).offered {
        back.push(ArgOp::Close(CloseArgs { seqid: 0, open_stateid: open.stateid }));
    }
    // If this fails, the state ends with the session.
    let _ = session.compound(back, false).await;
    (Some(open), said)
}
