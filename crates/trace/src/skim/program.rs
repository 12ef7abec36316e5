//! RPC programs that are distinguished.

use landfast_nfs::{mount, nfsacl, nlm};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Program {
    /// Program 100003.
    Nfs,
    /// Program 100227: ACLs beside NFS version 3.
    NfsAcl,
    /// Program 100005.
    Mount,
    /// Program 100021.
    Nlm,
    /// Callbacks of an NFSv4 server to its clients.
    Callback,
    /// Any other program, by its number.
    Other(u32),
}

/// Transient program numbers (RFC 5531 section 8.3). NFSv4 clients choose the program of their callbacks from these.
const TRANSIENT: std::ops::RangeInclusive<u32> = 0x4000_0000..=0x5fff_ffff;

impl Default for Program {
    fn default() -> Self {
        Program::Other(0)
    }
}

impl Program {
    pub fn of(number: u32) -> Program {
        match number {
            landfast_nfs::PROGRAM => Program::Nfs,
            nfsacl::PROGRAM => Program::NfsAcl,
            mount::PROGRAM => Program::Mount,
            nlm::PROGRAM => Program::Nlm,
            n if TRANSIENT.contains(&n) => Program::Callback,
            n => Program::Other(n),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Program::Nfs => "NFS",
            Program::NfsAcl => "NFSACL",
            Program::Mount => "MOUNT",
            Program::Nlm => "NLM",
            Program::Callback => "NFS CB",
            Program::Other(_) => "RPC",
        }
    }
}
