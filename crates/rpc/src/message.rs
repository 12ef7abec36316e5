//! RPC messages (RFC 5531 section 9): the headers of calls and replies.
//!
//! Pure. Decoding tells three cases apart:
//! - no RPC message at all ([`MessageError`]): the connection is closed;
//! - a call that is refused without a further look ([`Incoming::Refused`]);
//! - calls and replies.

use landfast_xdr::{Bytes, BytesMut, Decode, Encode, Error, Reader, put_opaque};

use crate::limits::AUTH_BODY_MAX;

pub const RPC_VERSION: u32 = 2;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const MSG_ACCEPTED: u32 = 0;
const MSG_DENIED: u32 = 1;
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;

/// `opaque_auth` (RFC 5531 section 8.2): a flavour and up to 400 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpaqueAuth {
    pub flavor: u32,
    pub body: Bytes,
}

impl OpaqueAuth {
    /// AUTH_NONE with an empty body, which is also the verifier that goes with AUTH_SYS.
    pub const NONE: OpaqueAuth = OpaqueAuth { flavor: 0, body: Bytes::new() };
}

impl Encode for OpaqueAuth {
    fn encode(&self, out: &mut BytesMut) {
        self.flavor.encode(out);
        put_opaque(&self.body, out);
    }
}

impl Decode for OpaqueAuth {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(OpaqueAuth { flavor: r.u32()?, body: r.opaque(AUTH_BODY_MAX)? })
    }
}

/// `auth_stat` (RFC 5531 section 9): why authentication failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuthStat(pub u32);

impl AuthStat {
    /// Bad credential: seal broken, or of a flavour that is not served.
    pub const BADCRED: AuthStat = AuthStat(1);
    /// The client must begin a new session.
    pub const REJECTEDCRED: AuthStat = AuthStat(2);
    pub const BADVERF: AuthStat = AuthStat(3);
    /// The verifier expired or was replayed.
    pub const REJECTEDVERF: AuthStat = AuthStat(4);
    /// Rejected for security reasons.
    pub const TOOWEAK: AuthStat = AuthStat(5);
}

impl std::fmt::Display for AuthStat {
    /// What servers mean by it, and what to do.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            AuthStat::BADCRED => f.write_str("the server exports nothing to this address (AUTH_BADCRED)"),
            AuthStat::TOOWEAK => f.write_str(
                "the server wants calls from a port below 1024, which only root opens, or another flavor than AUTH_SYS \
                 (AUTH_TOOWEAK)",
            ),
            AuthStat(n) => write!(f, "auth_stat {n}"),
        }
    }
}

/// `rejected_reply`: the call was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RejectStat {
    /// The server does not support this RPC version.
    #[error("RPC version not served (served: {low} to {high})")]
    RpcMismatch { low: u32, high: u32 },
    #[error("credential refused: {0}")]
    AuthError(AuthStat),
}

/// `accept_stat`: the outcome of an accepted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AcceptStat {
    #[error("success")]
    Success,
    #[error("program unavailable")]
    ProgUnavail,
    /// The program is served in other versions.
    #[error("program version unavailable (available: {low} to {high})")]
    ProgMismatch { low: u32, high: u32 },
    #[error("procedure unavailable")]
    ProcUnavail,
    #[error("arguments not understood by the server")]
    GarbageArgs,
    /// The server is out of memory or otherwise unable.
    #[error("system error at the server")]
    SystemErr,
}

/// The bytes are no RPC message; the connection must be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The message ends inside its header or has a malformed field.
    #[error("malformed RPC header: {0}")]
    Malformed(#[from] Error),
    /// A header field has a value that its type does not know.
    #[error("malformed RPC header: {what} {value}")]
    BadTag { what: &'static str, value: u32 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawCall {
    pub xid: u32,
    pub prog: u32,
    pub vers: u32,
    pub proc: u32,
    pub cred: OpaqueAuth,
    pub verf: OpaqueAuth,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    Call(RawCall, Bytes),
    /// A call to refuse: of another RPC version, or with an oversized credential.
    Refused {
        xid: u32,
        why: RejectStat,
    },
    Reply {
        xid: u32,
        outcome: Outcome,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Accepted; only [`AcceptStat::Success`] has results.
    Accepted(AcceptStat, Bytes),
    Denied(RejectStat),
}

/// Parses one record. After an error the connection must be closed, since the peer does not speak RPC.
pub fn parse(record: Bytes) -> Result<Incoming, MessageError> {
    let r = &mut Reader::new(record);
    let xid = r.u32()?;
    match r.u32()? {
        CALL => parse_call(xid, r),
        REPLY => Ok(Incoming::Reply { xid, outcome: parse_reply(r)? }),
        value => Err(MessageError::BadTag { what: "msg_type", value }),
    }
}

fn parse_call(xid: u32, r: &mut Reader) -> Result<Incoming, MessageError> {
    if r.u32()? != RPC_VERSION {
        let why = RejectStat::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION };
        return Ok(Incoming::Refused { xid, why });
    }
    let (prog, vers, proc) = (r.u32()?, r.u32()?, r.u32()?);
    let refuse = |stat| Ok(Incoming::Refused { xid, why: RejectStat::AuthError(stat) });
    let cred = match OpaqueAuth::decode(r) {
        Err(Error::TooLong { .. }) => return refuse(AuthStat::BADCRED),
        other => other?,
    };
    let verf = match OpaqueAuth::decode(r) {
        Err(Error::TooLong { .. }) => return refuse(AuthStat::BADVERF),
        other => other?,
    };
    Ok(Incoming::Call(RawCall { xid, prog, vers, proc, cred, verf }, r.clone().into_rest()))
}

fn parse_reply(r: &mut Reader) -> Result<Outcome, MessageError> {
    match r.u32()? {
        MSG_ACCEPTED => {
            OpaqueAuth::decode(r)?;
            let stat = match r.u32()? {
                0 => AcceptStat::Success,
                1 => AcceptStat::ProgUnavail,
                2 => AcceptStat::ProgMismatch { low: r.u32()?, high: r.u32()? },
                3 => AcceptStat::ProcUnavail,
                4 => AcceptStat::GarbageArgs,
                5 => AcceptStat::SystemErr,
                value => return Err(MessageError::BadTag { what: "accept_stat", value }),
            };
            Ok(Outcome::Accepted(stat, r.clone().into_rest()))
        }
        MSG_DENIED => Ok(Outcome::Denied(match r.u32()? {
            RPC_MISMATCH => RejectStat::RpcMismatch { low: r.u32()?, high: r.u32()? },
            AUTH_ERROR => RejectStat::AuthError(AuthStat(r.u32()?)),
            value => return Err(MessageError::BadTag { what: "reject_stat", value }),
        })),
        value => Err(MessageError::BadTag { what: "reply_stat", value }),
    }
}

impl Encode for RawCall {
    /// Encodes the header; the arguments follow it.
    fn encode(&self, out: &mut BytesMut) {
        for word in [self.xid, CALL, RPC_VERSION, self.prog, self.vers, self.proc] {
            word.encode(out);
        }
        self.cred.encode(out);
        self.verf.encode(out);
    }
}

/// Appends the header of an accepted reply with an AUTH_NONE verifier. After [`AcceptStat::Success`] the results must
/// follow.
pub fn encode_accepted(xid: u32, stat: AcceptStat, out: &mut BytesMut) {
    for word in [xid, REPLY, MSG_ACCEPTED] {
        word.encode(out);
    }
    OpaqueAuth::NONE.encode(out);
    let (number, range) = match stat {
        AcceptStat::Success => (0u32, None),
        AcceptStat::ProgUnavail => (1, None),
        AcceptStat::ProgMismatch { low, high } => (2, Some((low, high))),
        AcceptStat::ProcUnavail => (3, None),
        AcceptStat::GarbageArgs => (4, None),
        AcceptStat::SystemErr => (5, None),
    };
    number.encode(out);
    if let Some((low, high)) = range {
        low.encode(out);
        high.encode(out);
    }
}

/// Appends a whole denied reply.
pub fn encode_denied(xid: u32, stat: RejectStat, out: &mut BytesMut) {
    for word in [xid, REPLY, MSG_DENIED] {
        word.encode(out);
    }
    match stat {
        RejectStat::RpcMismatch { low, high } => [RPC_MISMATCH, low, high].iter().for_each(|w| w.encode(out)),
        RejectStat::AuthError(AuthStat(stat)) => [AUTH_ERROR, stat].iter().for_each(|w| w.encode(out)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(w: &[u32]) -> Bytes {
        w.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>().into()
    }

    #[test]
    fn refusals_without_disconnect() {
        let why = RejectStat::RpcMismatch { low: 2, high: 2 };
        assert_eq!(parse(words(&[9, 0, 3])), Ok(Incoming::Refused { xid: 9, why }));
        let long = words(&[9, 0, 2, 100003, 4, 1, 1, 404]);
        let why = RejectStat::AuthError(AuthStat::BADCRED);
        assert_eq!(parse(long), Ok(Incoming::Refused { xid: 9, why }));
    }

    #[test]
    fn malformed_headers() {
        for bad in [
            &[][..],
            &[1],
            &[1, 2],
            &[1, 0],
            &[1, 0, 2, 3, 4],
            &[1, 1, 2],
            &[1, 1, 0, 0, 0, 6],
            &[1, 1, 1, 2],
        ] {
            assert!(parse(words(bad)).is_err(), "{bad:?}");
        }
    }

    fn accept() -> impl Strategy<Value = AcceptStat> {
        prop_oneof![
            Just(AcceptStat::Success),
            Just(AcceptStat::ProgUnavail),
            any::<(u32, u32)>().prop_map(|(low, high)| AcceptStat::ProgMismatch { low, high }),
            Just(AcceptStat::ProcUnavail),
            Just(AcceptStat::GarbageArgs),
            Just(AcceptStat::SystemErr),
        ]
    }

    proptest! {
        #[test]
        fn calls_round_trip(xid: u32, prog: u32, vers: u32, proc: u32, flavor: u32,
                            body in prop::collection::vec(any::<u8>(), 0..=400),
                            args in prop::collection::vec(any::<u8>(), 0..64)) {
            let cred = OpaqueAuth { flavor, body: body.into() };
            let call = RawCall { xid, prog, vers, proc, cred, verf: OpaqueAuth::NONE };
            let mut out = BytesMut::new();
            call.encode(&mut out);
            out.extend_from_slice(&args);
            prop_assert_eq!(parse(out.freeze()), Ok(Incoming::Call(call, args.into())));
        }

        #[test]
        fn replies_round_trip(xid: u32, stat in accept(), low: u32, high: u32, auth: u32,
                              results in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut out = BytesMut::new();
            encode_accepted(xid, stat, &mut out);
            out.extend_from_slice(&results);
            let outcome = Outcome::Accepted(stat, results.into());
            prop_assert_eq!(parse(out.freeze()), Ok(Incoming::Reply { xid, outcome }));
            for why in [RejectStat::RpcMismatch { low, high }, RejectStat::AuthError(AuthStat(auth))] {
                let mut out = BytesMut::new();
                encode_denied(xid, why, &mut out);
                prop_assert_eq!(parse(out.freeze()), Ok(Incoming::Reply { xid, outcome: Outcome::Denied(why) }));
            }
        }

        #[test]
        fn any_bytes_parse_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
            let _ = parse(bytes.into());
        }
    }
}
