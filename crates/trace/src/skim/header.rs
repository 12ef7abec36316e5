//! Reads headers of RPC messages (RFC 5531 section 9).

use super::cursor::Cursor;
use super::head::{CallHead, Head, Outcome, ReplyHead};
use super::kind::{Kind, Protection};
use super::program::Program;

const AUTH_BODY_MAX: u32 = 400;
const RPCSEC_GSS: u32 = 6;
const AUTH_TLS: u32 = 7;

/// Yields the value, or returns if more bytes are needed.
macro_rules! get {
    ($e:expr) => {
        match $e {
            Some(v) => v,
            None => return Ok(None),
        }
    };
}

/// Reads as much of a header as is needed to recognise the message. In a truncated frame there may be no more. `Err`:
/// not an RPC header, reported as early as the bytes show it.
pub(super) fn header(c: &mut Cursor<'_>) -> Result<Option<Head>, ()> {
    let xid = get!(c.u32());
    match get!(c.u32()) {
        0 => {
            if get!(c.u32()) != 2 {
                return Err(());
            }
            let (program, version, procedure) = (get!(c.u32()), get!(c.u32()), get!(c.u32()));
            let kind = Kind { program: Program::of(program), version, procedure, ..Kind::default() };
            Ok(Some(Head::Call(CallHead { xid, kind, ..CallHead::default() })))
        }
        1 => {
            let outcome = match get!(c.u32()) {
                0 => Outcome::Done(None),
                1 => Outcome::Denied,
                _ => return Err(()),
            };
            let (operations, handle) = (None, None);
            Ok(Some(Head::Reply(ReplyHead { xid, outcome, operations, handle, shown: Vec::new() })))
        }
        _ => Err(()),
    }
}

/// The rest of the header: credential and verifier of a call, result of a reply.
pub(super) fn rest_of_header(head: &mut Head, c: &mut Cursor<'_>) -> Result<Option<()>, ()> {
    match head {
        Head::Call(call) => {
            let flavor = get!(c.u32());
            let credential = get!(auth_body(c)?);
            get!(c.u32());
            get!(auth_body(c)?);
            call.kind.protection = protection(flavor, credential);
        }
        Head::Reply(reply) if reply.outcome == Outcome::Denied => {
            if get!(c.u32()) > 1 {
                return Err(());
            }
            get!(c.u32());
        }
        Head::Reply(reply) => {
            get!(c.u32());
            get!(auth_body(c)?);
            reply.outcome = match get!(c.u32()) {
                0 => Outcome::Done(None),
                n @ 1..=5 => Outcome::NotTaken(n),
                _ => return Err(()),
            };
        }
    }
    Ok(Some(()))
}

fn auth_body<'a>(c: &mut Cursor<'a>) -> Result<Option<&'a [u8]>, ()> {
    let len = get!(c.u32());
    if len > AUTH_BODY_MAX {
        return Err(());
    }
    Ok(c.take((len as usize).next_multiple_of(4)))
}

fn protection(flavor: u32, body: &[u8]) -> Protection {
    match flavor {
        AUTH_TLS => Protection::TlsProbe,
        RPCSEC_GSS => {
            let mut c = Cursor::new(body);
            let fields = (c.u32(), c.u32(), c.u32(), c.u32());
            match fields {
                // Only calls with data are wrapped. Setting up a context is in clear text.
                (Some(1), Some(0), Some(_), Some(2)) => Protection::Integrity,
                (Some(1), Some(0), Some(_), Some(3)) => Protection::Privacy,
                _ => Protection::None,
            }
        }
        _ => Protection::None,
    }
}

/// Whether a record may begin here: a record mark, then the header of a call of a known program or of a reply to a
/// pending call. `None`: too few bytes to tell.
pub(crate) fn plausible(bytes: &[u8], record_max: u32, known: &dyn Fn(u32) -> Option<Kind>) -> Option<bool> {
    let mut c = Cursor::new(bytes);
    let mark = c.u32()?;
    let len = mark & 0x7fff_ffff;
    if mark >> 31 != 1 || len < 20 || len > record_max || len % 4 != 0 {
        return Some(false);
    }
    let xid = c.u32()?;
    Some(match c.u32()? {
        0 if len >= 40 => {
            let (rpc, program, version, procedure) = (c.u32()?, c.u32()?, c.u32()?, c.u32()?);
            let ours = !matches!(Program::of(program), Program::Other(_));
            rpc == 2 && ours && version <= 4 && procedure <= 64
        }
        1 => c.u32()? <= 1 && known(xid).is_some(),
        _ => false,
    })
}
