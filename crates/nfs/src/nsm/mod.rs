//! The Network Status Monitor, version 1 (The Open Group C702, XNFS, chapter 11): who held locks hears of the restart of
//! the other side.

use crate::v4::Opaque1024;
use landfast_xdr::{Decode, Encode};

pub const PROGRAM: u32 = 100_024;
pub const VERSION: u32 = 1;

/// The procedures.
pub mod proc {
    pub const NULL: u32 = 0;
    pub const STAT: u32 = 1;
    pub const MON: u32 = 2;
    pub const UNMON: u32 = 3;
    pub const UNMON_ALL: u32 = 4;
    pub const SIMU_CRASH: u32 = 5;
    pub const NOTIFY: u32 = 6;
}

/// `stat_succ`: the host is, or would be, monitored.
pub const STAT_SUCC: u32 = 0;
/// `stat_fail`: it is not.
pub const STAT_FAIL: u32 = 1;

/// `string<SM_MAXSTRLEN>`: at most 1,024 bytes.
pub type Name = Opaque1024;

/// `sm_name`: STAT.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SmName {
    /// The host.
    pub mon_name: Name,
}

/// `my_id`: whom to tell.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct MyId {
    /// The host.
    pub my_name: Name,
    pub my_prog: i32,
    pub my_vers: i32,
    pub my_proc: i32,
}

/// `mon_id`: UNMON.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct MonId {
    /// The host to watch.
    pub mon_name: Name,
    /// Whom to tell.
    pub my_id: MyId,
}

/// `mon`: MON.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Mon {
    /// Whom to watch, whom to tell.
    pub mon_id: MonId,
    /// Told with it.
    pub private: [u8; 16],
}

/// `sm_stat_res`: STAT and MON.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct StatRes {
    /// [`STAT_SUCC`] or [`STAT_FAIL`].
    pub res_stat: u32,
    /// The state of this monitor: odd, and higher after each restart.
    pub state: i32,
}

/// `sm_stat`: UNMON and UNMON_ALL.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Stat {
    /// The state of this monitor.
    pub state: i32,
}

/// `stat_chge`: NOTIFY.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct StatChange {
    /// The host that has restarted.
    pub mon_name: Name,
    /// The new state of its monitor.
    pub state: i32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfast_xdr::Bytes;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = Name> {
        prop::collection::vec(any::<u8>(), 0..1025).prop_map(|b| Opaque1024(Bytes::from(b)))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn all_round_trip(a in name(), b in name(), n in any::<[i32; 3]>(), private: [u8; 16], stat: u32) {
            let my_id = MyId { my_name: b, my_prog: n[0], my_vers: n[1], my_proc: n[2] };
            let mon = Mon { mon_id: MonId { mon_name: a.clone(), my_id }, private };
            prop_assert_eq!(Mon::from_bytes(mon.to_bytes()), Ok(mon));
            let change = StatChange { mon_name: a.clone(), state: n[0] };
            prop_assert_eq!(StatChange::from_bytes(change.to_bytes()), Ok(change));
            let res = StatRes { res_stat: stat, state: n[1] };
            prop_assert_eq!(StatRes::from_bytes(res.to_bytes()), Ok(res));
            let name = SmName { mon_name: a };
            prop_assert_eq!(SmName::from_bytes(name.to_bytes()), Ok(name));
        }

        #[test]
        fn any_bytes_decode_or_fail(b in prop::collection::vec(any::<u8>(), 0..200)) {
            let b = Bytes::from(b);
            let _ = Mon::from_bytes(b.clone());
            let _ = StatChange::from_bytes(b);
        }
    }
}
