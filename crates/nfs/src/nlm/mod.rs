//! The Network Lock Manager, version 4 (RFC 1813 appendix II; The Open Group C702, XNFS, chapters 10 and 14): byte-range
//! locks and share reservations for NFSv3 clients.
//!
//! Either side calls the other: the server answers a blocked LOCK later by a GRANTED of its own. Each procedure has an
//! asynchronous form: a `_MSG` call, whose answer is not its RPC reply but a `_RES` call in the other direction.

use crate::v4::Opaque1024;
use landfast_xdr::{Decode, Encode};
use std::fmt;

pub const PROGRAM: u32 = 100_021;
pub const VERSION: u32 = 4;

/// The procedures (RFC 1813 section 6.2).
pub mod proc {
    pub const NULL: u32 = 0;
    pub const TEST: u32 = 1;
    pub const LOCK: u32 = 2;
    pub const CANCEL: u32 = 3;
    pub const UNLOCK: u32 = 4;
    pub const GRANTED: u32 = 5;
    pub const TEST_MSG: u32 = 6;
    pub const LOCK_MSG: u32 = 7;
    pub const CANCEL_MSG: u32 = 8;
    pub const UNLOCK_MSG: u32 = 9;
    pub const GRANTED_MSG: u32 = 10;
    pub const TEST_RES: u32 = 11;
    pub const LOCK_RES: u32 = 12;
    pub const CANCEL_RES: u32 = 13;
    pub const UNLOCK_RES: u32 = 14;
    pub const GRANTED_RES: u32 = 15;
    pub const SHARE: u32 = 20;
    pub const UNSHARE: u32 = 21;
    pub const NM_LOCK: u32 = 22;
    pub const FREE_ALL: u32 = 23;
}

/// `netobj`, and `string<LM_MAXSTRLEN>`: at most 1,024 bytes, in memory of their own, since locks are kept.
pub type NetObj = Opaque1024;

/// `nlm4_stats` (RFC 1813 section 6.1.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NlmStat(pub u32);

crate::status::statuses! {
    NlmStat:
    GRANTED = 0;
    DENIED = 1;
    DENIED_NOLOCKS = 2;
    BLOCKED = 3;
    DENIED_GRACE_PERIOD = 4;
    DEADLCK = 5;
    ROFS = 6;
    STALE_FH = 7;
    FBIG = 8;
    FAILED = 9;
}

impl fmt::Debug for NlmStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "nlm4_stats {}", self.0),
        }
    }
}

/// `nlm4_lock`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Lock {
    pub caller_name: NetObj,
    pub fh: NetObj,
    /// The owner, opaque.
    pub oh: NetObj,
    pub svid: i32,
    pub offset: u64,
    /// How many bytes; 0 is to the end of the file.
    pub length: u64,
}

/// `nlm4_holder`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Holder {
    pub exclusive: bool,
    pub svid: i32,
    /// The owner, opaque.
    pub oh: NetObj,
    pub offset: u64,
    /// How many bytes; 0 is to the end of the file.
    pub length: u64,
}

/// `nlm4_testargs`: TEST and GRANTED.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct TestArgs {
    /// Comes back in the answer.
    pub cookie: NetObj,
    pub exclusive: bool,
    pub lock: Lock,
}

/// `nlm4_testrply`: with `DENIED` the holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestReply {
    pub stat: NlmStat,
    /// The lock in the way: with `DENIED` and only then.
    pub holder: Option<Holder>,
}

impl Encode for TestReply {
    fn encode(&self, out: &mut landfast_xdr::BytesMut) {
        match (&self.holder, self.stat) {
            (Some(holder), NlmStat::DENIED) => {
                self.stat.encode(out);
                holder.encode(out);
            }
            // Without a holder it cannot be said.
            (None, NlmStat::DENIED) => NlmStat::FAILED.encode(out),
            (_, stat) => stat.encode(out),
        }
    }
}

impl Decode for TestReply {
    fn decode(r: &mut landfast_xdr::Reader) -> Result<Self, landfast_xdr::Error> {
        let stat = NlmStat::decode(r)?;
        let holder = if stat == NlmStat::DENIED { Some(Holder::decode(r)?) } else { None };
        Ok(TestReply { stat, holder })
    }
}

/// `nlm4_testres`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct TestRes {
    pub cookie: NetObj,
    pub reply: TestReply,
}

/// `nlm4_res`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Res {
    pub cookie: NetObj,
    pub stat: NlmStat,
}

/// `nlm4_lockargs`: LOCK and NM_LOCK.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LockArgs {
    /// Comes back in the answer.
    pub cookie: NetObj,
    /// Wait for it when it is not free.
    pub block: bool,
    pub exclusive: bool,
    pub lock: Lock,
    /// It was held before the server restarted.
    pub reclaim: bool,
    /// The state of the client's status monitor.
    pub state: i32,
}

/// `nlm4_cancargs`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CancelArgs {
    /// Comes back in the answer.
    pub cookie: NetObj,
    /// As in the LOCK.
    pub block: bool,
    /// As in the LOCK.
    pub exclusive: bool,
    pub lock: Lock,
}

/// `nlm4_unlockargs`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct UnlockArgs {
    /// Comes back in the answer.
    pub cookie: NetObj,
    pub lock: Lock,
}

/// `nlm4_share`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Share {
    pub caller_name: NetObj,
    pub fh: NetObj,
    /// The owner, opaque.
    pub oh: NetObj,
    /// `fsh4_mode`: what is denied to others; bit 0 reading, bit 1 writing.
    pub mode: u32,
    /// `fsh4_access`: what is wanted; the same bits.
    pub access: u32,
}

/// `nlm4_shareargs`: SHARE and UNSHARE.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ShareArgs {
    /// Comes back in the answer.
    pub cookie: NetObj,
    pub share: Share,
    /// It was held before the server restarted.
    pub reclaim: bool,
}

/// `nlm4_shareres`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ShareRes {
    pub cookie: NetObj,
    pub stat: NlmStat,
    /// Of no use: 0.
    pub sequence: i32,
}

/// `nlm4_notify`: FREE_ALL.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Notify {
    /// The client that has restarted.
    pub name: NetObj,
    /// Of no use.
    pub state: i32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfast_xdr::Bytes;
    use proptest::prelude::*;

    fn obj() -> impl Strategy<Value = NetObj> {
        prop::collection::vec(any::<u8>(), 0..1025).prop_map(|b| Opaque1024(Bytes::from(b)))
    }

    fn lock() -> impl Strategy<Value = Lock> {
        (obj(), obj(), obj(), any::<i32>(), any::<u64>(), any::<u64>()).prop_map(
            |(caller_name, fh, oh, svid, offset, length)| Lock { caller_name, fh, oh, svid, offset, length },
        )
    }

    fn same<T: Encode + Decode + PartialEq + fmt::Debug>(t: &T) -> Result<(), TestCaseError> {
        let back = T::from_bytes(t.to_bytes());
        prop_assert_eq!(back.as_ref(), Ok(t));
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn arguments_and_results_round_trip(
            cookie in obj(), lock in lock(), bits in any::<[bool; 3]>(), n in any::<(i32, u32, u32)>(), stat in 0u32..12,
        ) {
            let [block, exclusive, reclaim] = bits;
            let (state, mode, access) = n;
            let (stat, sequence) = (NlmStat(stat), state);
            same(&TestArgs { cookie: cookie.clone(), exclusive, lock: lock.clone() })?;
            same(&CancelArgs { cookie: cookie.clone(), block, exclusive, lock: lock.clone() })?;
            same(&UnlockArgs { cookie: cookie.clone(), lock: lock.clone() })?;
            same(&LockArgs { cookie: cookie.clone(), block, exclusive, lock: lock.clone(), reclaim, state })?;
            let Lock { caller_name, fh, oh, svid, offset, length } = lock;
            let share = Share { caller_name: caller_name.clone(), fh, oh: oh.clone(), mode, access };
            same(&ShareArgs { cookie: cookie.clone(), share, reclaim })?;
            same(&ShareRes { cookie: cookie.clone(), stat, sequence })?;
            same(&Res { cookie: cookie.clone(), stat })?;
            same(&Notify { name: caller_name, state })?;
            let holder = (stat == NlmStat::DENIED).then_some(Holder { exclusive, svid, oh, offset, length });
            same(&TestRes { cookie, reply: TestReply { stat, holder } })?;
        }

        #[test]
        fn any_bytes_decode_or_fail(b in prop::collection::vec(any::<u8>(), 0..300)) {
            let b = Bytes::from(b);
            let _ = TestArgs::from_bytes(b.clone());
            let _ = LockArgs::from_bytes(b.clone());
            let _ = ShareArgs::from_bytes(b.clone());
            let _ = TestRes::from_bytes(b.clone());
            let _ = Notify::from_bytes(b);
        }
    }

    #[test]
    fn what_a_lock_is_kept_with_does_not_share_the_memory_of_its_record() {
        let obj = || Opaque1024(Bytes::from_static(b"name"));
        let lock = Lock { caller_name: obj(), fh: obj(), oh: obj(), svid: 1, offset: 0, length: 1 };
        let record = lock.to_bytes();
        let lock = Lock::from_bytes(record.clone()).expect("a lock");
        let range = record.as_ptr_range();
        assert!([lock.caller_name, lock.fh, lock.oh].iter().all(|kept| !range.contains(&kept.0.as_ptr())));
    }

    #[test]
    fn an_object_of_1025_bytes_is_refused() {
        let long = Opaque1024(Bytes::from(vec![0; 1025]));
        let mut wire = landfast_xdr::BytesMut::new();
        landfast_xdr::put_opaque(&long.0, &mut wire);
        0u32.encode(&mut wire);
        assert!(Res::from_bytes(wire.freeze()).is_err());
    }

    #[test]
    fn a_denial_without_a_holder_is_never_sent() {
        let reply = TestReply { stat: NlmStat::DENIED, holder: None };
        assert_eq!(TestReply::from_bytes(reply.to_bytes()).map(|r| r.stat), Ok(NlmStat::FAILED));
    }
}
