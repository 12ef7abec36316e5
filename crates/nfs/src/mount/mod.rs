//! The MOUNT protocol, version 3 (RFC 1813 section 5): from the path of an export to its handle.
//!
//! Versions 1 and 2 (RFC 1094 appendix A) have the same DUMP, UMNT, UMNTALL and EXPORT; their MNT gives handles of NFS
//! version 2.

use crate::v3::types::{FileHandle, List};
use landfast_xdr::{Bytes, BytesMut, Decode, Encode, Error, Reader};

pub const PROGRAM: u32 = 100_005;
/// The version that goes with NFS version 3.
pub const VERSION: u32 = 3;
/// Longest path (`MNTPATHLEN`).
pub const PATH_MAX: usize = 1024;
/// Longest host name (`MNTNAMLEN`).
pub const NAME_MAX: usize = 255;

/// Procedure numbers (RFC 1813 section 5.2).
pub mod proc {
    pub const NULL: u32 = 0;
    pub const MNT: u32 = 1;
    pub const DUMP: u32 = 2;
    pub const UMNT: u32 = 3;
    pub const UMNTALL: u32 = 4;
    pub const EXPORT: u32 = 5;
}

/// `mountstat3` (RFC 1813 section 5.1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct MountStat(pub u32);

impl MountStat {
    pub const OK: MountStat = MountStat(0);
    pub const PERM: MountStat = MountStat(1);
    pub const NOENT: MountStat = MountStat(2);
    pub const IO: MountStat = MountStat(5);
    pub const ACCES: MountStat = MountStat(13);
    pub const NOTDIR: MountStat = MountStat(20);
    pub const INVAL: MountStat = MountStat(22);
    pub const NAMETOOLONG: MountStat = MountStat(63);
    pub const NOTSUPP: MountStat = MountStat(10004);
    pub const SERVERFAULT: MountStat = MountStat(10006);
}

/// The result of MNT (section 5.2.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MntRes {
    Ok(Mounted),
    /// Not; the status is not OK.
    Fail(MountStat),
}

/// What MNT gives.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Mounted {
    /// The directory's handle.
    pub handle: FileHandle,
    /// RPC flavours that its objects can be used with.
    pub auth_flavors: Vec<u32>,
}

impl Encode for MntRes {
    fn encode(&self, out: &mut BytesMut) {
        match self {
            MntRes::Ok(mounted) => {
                MountStat::OK.encode(out);
                mounted.encode(out);
            }
            MntRes::Fail(status) => status.encode(out),
        }
    }
}

impl Decode for MntRes {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        match MountStat::decode(r)? {
            MountStat::OK => Mounted::decode(r).map(MntRes::Ok),
            status => Ok(MntRes::Fail(status)),
        }
    }
}

/// A row of DUMP (section 5.2.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Encode, Decode)]
pub struct MountEntry {
    /// The client.
    pub host: Bytes,
    /// What it has mounted.
    pub directory: Bytes,
}

/// A row of EXPORT (section 5.2.5).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ExportEntry {
    /// The export's path.
    pub directory: Bytes,
    /// Who may mount it; empty is everybody.
    pub groups: List<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from)
    }

    proptest! {
        #[test]
        fn results_round_trip(handle in bytes(65), flavors in prop::collection::vec(any::<u32>(), 0..5), bad in 1u32..) {
            let ok = MntRes::Ok(Mounted { handle: FileHandle(handle), auth_flavors: flavors });
            prop_assert_eq!(MntRes::from_bytes(ok.to_bytes()), Ok(ok));
            let fail = MntRes::Fail(MountStat(bad));
            prop_assert_eq!(MntRes::from_bytes(fail.to_bytes()), Ok(fail));
        }

        #[test]
        fn lists_round_trip(rows in prop::collection::vec((bytes(40), prop::collection::vec(bytes(20), 0..4)), 0..6)) {
            let exports = List(rows.iter().map(|(d, g)| ExportEntry { directory: d.clone(), groups: List(g.clone()) }).collect());
            prop_assert_eq!(List::<ExportEntry>::from_bytes(exports.to_bytes()), Ok(exports));
            let mounts = List(rows.into_iter().map(|(d, _)| MountEntry { host: d.clone(), directory: d }).collect());
            prop_assert_eq!(List::<MountEntry>::from_bytes(mounts.to_bytes()), Ok(mounts));
        }

        #[test]
        fn any_bytes_decode_or_fail(data in bytes(200)) {
            let _ = List::<ExportEntry>::from_bytes(data.clone());
            let _ = List::<MountEntry>::from_bytes(data.clone());
            let _ = MntRes::from_bytes(data);
        }
    }

    #[test]
    fn rfc1813_5_2_1_a_handle_of_more_than_64_bytes_is_none() {
        let long =
            MntRes::Ok(Mounted { handle: FileHandle(Bytes::from(vec![7; 65])), auth_flavors: vec![1] });
        assert!(MntRes::from_bytes(long.to_bytes()).is_err());
    }
}
