//! Names of procedures and operations, and the operation that a COMPOUND was sent for.

use super::program::Program;
use super::{callback, v2, v4};
use landfast_nfs::v4::OpNum;
use landfast_nfs::{nlm, v3 as nfs3};

impl Program {
    /// The name of one of its procedures.
    pub fn procedure(self, version: u32, number: u32) -> Option<&'static str> {
        let at = usize::try_from(number).ok()?;
        match (self, version) {
            (Program::Callback, _) if number == 0 => Some("CB_NULL"),
            (_, _) if number == 0 => Some("NULL"),
            (Program::Nfs, v2::VERSION) => v2::PROC_NAMES.get(at).copied(),
            (Program::Nfs, 3) => nfs3::PROC_NAMES.get(at).copied(),
            (Program::Nfs, 4) if number == 1 => Some("COMPOUND"),
            (Program::Callback, _) if number == 1 => Some("CB_COMPOUND"),
            (Program::NfsAcl, 3) => ["NULL", "GETACL", "SETACL"].get(at).copied(),
            (Program::Mount, _) => ["NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT"].get(at).copied(),
            (Program::Nlm, _) => nlm_procedure(number),
            _ => None,
        }
    }

    /// The name of an operation of its COMPOUNDs.
    pub fn operation(self, number: u32) -> Option<&'static str> {
        match self {
            Program::Callback => callback::name(number),
            _ => OpNum(number).name(),
        }
    }

    /// Which operation a COMPOUND was sent for: the one with the lowest rank.
    pub(crate) fn rank(self, op: u8) -> u8 {
        if self == Program::Callback { callback::rank(op) } else { v4::rank(op) }
    }
}

fn nlm_procedure(number: u32) -> Option<&'static str> {
    Some(match number {
        nlm::proc::TEST => "TEST",
        nlm::proc::LOCK => "LOCK",
        nlm::proc::CANCEL => "CANCEL",
        nlm::proc::UNLOCK => "UNLOCK",
        nlm::proc::GRANTED => "GRANTED",
        nlm::proc::TEST_MSG => "TEST_MSG",
        nlm::proc::LOCK_MSG => "LOCK_MSG",
        nlm::proc::CANCEL_MSG => "CANCEL_MSG",
        nlm::proc::UNLOCK_MSG => "UNLOCK_MSG",
        nlm::proc::GRANTED_MSG => "GRANTED_MSG",
        nlm::proc::TEST_RES => "TEST_RES",
        nlm::proc::LOCK_RES => "LOCK_RES",
        nlm::proc::CANCEL_RES => "CANCEL_RES",
        nlm::proc::UNLOCK_RES => "UNLOCK_RES",
        nlm::proc::GRANTED_RES => "GRANTED_RES",
        nlm::proc::SHARE => "SHARE",
        nlm::proc::UNSHARE => "UNSHARE",
        nlm::proc::NM_LOCK => "NM_LOCK",
        nlm::proc::FREE_ALL => "FREE_ALL",
        _ => return None,
    })
}

/// The operation that a COMPOUND was sent for: the first of the highest rank. Operations that every COMPOUND contains
/// have the lowest rank. It is the first value of Wireshark's `nfs.main_opcode`.
pub fn main_operation(of: Program, ops: &[u8]) -> Option<OpNum> {
    ops.iter().min_by_key(|op| of.rank(**op)).map(|op| v4::number(*op))
}

/// All operations of the highest rank.
pub(crate) fn main_operations(of: Program, ops: &[u8]) -> impl Iterator<Item = OpNum> {
    let best = ops.iter().map(|op| of.rank(*op)).min();
    ops.iter().filter(move |op| Some(of.rank(**op)) == best).map(|op| v4::number(*op))
}

/// [`main_operation`] if further operations are unknown: only if none of them can have a higher rank.
pub fn only_main_operation(of: Program, ops: &[u8]) -> Option<OpNum> {
    ops.iter().find(|op| of.rank(**op) == 1).map(|op| v4::number(*op))
}
