//! What only NFSv4.0 has on the wire (RFC 7530, RFC 7531): client IDs without sessions, OPEN_CONFIRM,
//! RELEASE_LOCKOWNER.

use super::limits;
use super::types::{Opaque1024, Stateid, Verifier};
use landfast_xdr::{Bytes, Decode, Encode, Error, Reader};

/// The program number by which servers call back: one of those that anybody may use (RFC 5531 section 8.3).
pub const CALLBACKS: u32 = 0x4000_0000;

/// `nfs_client_id4` (RFC 7530 section 2.2.15).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct NfsClientId {
    /// Changes with each start of the client.
    pub verifier: Verifier,
    pub id: Opaque1024,
}

/// `clientaddr4` (RFC 7530 section 2.2.10). Decoded, it has memory of its own: it is kept as long as its client.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode)]
pub struct ClientAddr {
    /// `tcp`, `tcp6` and the like.
    pub netid: Bytes,
    /// A universal address (RFC 5665).
    pub addr: Bytes,
}

impl Decode for ClientAddr {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        let netid = r.opaque_copied(limits::NETID_MAX)?;
        Ok(ClientAddr { netid, addr: r.opaque_copied(limits::UNIVERSAL_ADDRESS_MAX)? })
    }
}

/// `cb_client4`: where callbacks would go (RFC 7530 section 2.2.11).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct CallbackClient {
    /// The RPC program.
    pub program: u32,
    pub location: ClientAddr,
}

/// SETCLIENTID (RFC 7530 section 16.33).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SetclientidArgs {
    pub client: NfsClientId,
    /// Where callbacks would go.
    pub callback: CallbackClient,
    /// Comes back in each callback.
    pub callback_ident: u32,
}

/// SETCLIENTID, when it succeeds.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SetclientidRes {
    /// The client ID.
    pub clientid: u64,
    /// What SETCLIENTID_CONFIRM must repeat.
    pub confirm: Verifier,
}

/// SETCLIENTID_CONFIRM (RFC 7530 section 16.34).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SetclientidConfirmArgs {
    /// The client ID.
    pub clientid: u64,
    /// From the reply of SETCLIENTID.
    pub confirm: Verifier,
}

/// OPEN_CONFIRM (RFC 7530 section 16.18).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct OpenConfirmArgs {
    pub open_stateid: Stateid,
    /// The open owner's next number.
    pub seqid: u32,
}

#[cfg(test)]
mod tests {
    use super::super::args::{ArgOp, owner};
    use super::super::res::{ResBody, ResOp};
    use super::super::{CompoundArgs, NfsStat, OpNum};
    use super::*;

    #[test]
    fn rfc7531_the_operations_of_4_0_round_trip() {
        let client = NfsClientId { verifier: [1; 8], id: Opaque1024(Bytes::from_static(b"client")) };
        let location =
            ClientAddr { netid: Bytes::from_static(b"tcp"), addr: Bytes::from_static(b"10.0.2.15.3.4") };
        let callback = CallbackClient { program: 0x4000_0000, location };
        let ops = vec![
            ArgOp::Setclientid(SetclientidArgs { client, callback, callback_ident: 1 }),
            ArgOp::SetclientidConfirm(SetclientidConfirmArgs { clientid: 7, confirm: [2; 8] }),
            ArgOp::Renew(7),
            ArgOp::ReleaseLockowner(owner(7, b"o")),
            ArgOp::OpenConfirm(OpenConfirmArgs { open_stateid: Stateid::ANONYMOUS, seqid: 3 }),
        ];
        let args = CompoundArgs {
            tag: Bytes::new(),
            minor_version: 0,
            announced: ops.len() as u32,
            ops: ops.clone(),
        };
        let mut r = Reader::new(args.to_bytes());
        let decoded = CompoundArgs::decode_limited(&mut r, 10).expect("decodes");
        assert_eq!((decoded.ops, r.remaining()), (ops, 0));
    }

    #[test]
    fn rfc7530_16_33_3_an_error_says_who_uses_the_name() {
        let using =
            ClientAddr { netid: Bytes::from_static(b"tcp"), addr: Bytes::from_static(b"1.2.3.4.5.6") };
        for (status, body) in [
            (NfsStat::NFS4ERR_CLID_INUSE, ResBody::ClientInUse(using)),
            (NfsStat::NFS4_OK, ResBody::Setclientid(SetclientidRes { clientid: 9, confirm: [3; 8] })),
            (NfsStat::NFS4ERR_DELAY, ResBody::Empty),
        ] {
            let res = ResOp { op: OpNum::SETCLIENTID, status, body };
            assert_eq!(ResOp::from_bytes(res.to_bytes()), Ok(res));
        }
    }
}
