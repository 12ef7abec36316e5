//! Requests and replies.

use super::super::opens::Share;
use super::rights::{DIRECTORY, File, Who};
use landfast_nfs::v4::{NfsStat, SessionId, Stateid};

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Op {
    Nothing,
    /// CLAIM_NULL; `make`: it may make the file.
    Open {
        name: usize,
        owner: u8,
        access: Share,
        deny: Share,
        instead: bool,
        make: bool,
    },
    /// CLAIM_FH, and with a delegation's stateid CLAIM_DELEG_CUR_FH.
    OpenFile {
        file: File,
        owner: u8,
        access: Share,
        deny: Share,
        instead: bool,
        by: Option<Stateid>,
    },
    /// CLAIM_PREVIOUS.
    Reclaim {
        file: File,
        owner: u8,
        access: Share,
        deny: Share,
    },
    Downgrade {
        file: File,
        stateid: Stateid,
        access: Share,
        deny: Share,
    },
    Close {
        file: File,
        stateid: Stateid,
    },
    Lock {
        file: File,
        open: Stateid,
        owner: u8,
        known: Option<Stateid>,
        exclusive: bool,
        range: (u64, u64),
        reclaim: bool,
    },
    Unlock {
        file: File,
        stateid: Stateid,
        range: (u64, u64),
    },
    TestLock {
        file: File,
        owner: u8,
        exclusive: bool,
        range: (u64, u64),
    },
    Read {
        file: File,
        stateid: Stateid,
    },
    Write {
        file: File,
        stateid: Stateid,
    },
    SetAttributes {
        file: File,
    },
    Look {
        file: File,
    },
    Remove {
        name: usize,
    },
    Rename {
        from: usize,
        to: usize,
    },
    Return {
        file: File,
        stateid: Stateid,
    },
    Test {
        stateids: Vec<Stateid>,
    },
    Free {
        stateid: Stateid,
    },
    Directory {
        write: bool,
    },
    Complete,
}

/// What comes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) status: NfsStat,
    pub(super) stateid: Stateid,
    pub(super) file: File,
    /// A delegation, and whether it is one for writing.
    pub(super) delegation: Option<(Stateid, bool)>,
    /// It is in place of an open.
    pub(super) alone: bool,
    /// The open was entered beside a delegation that somebody has of the file.
    pub(super) beside: bool,
    /// The place of the request in the order in which they were executed.
    pub(super) at: u64,
    pub(super) tests: Vec<NfsStat>,
}

impl Done {
    pub(super) fn of(status: NfsStat) -> Done {
        Done {
            status,
            stateid: Stateid::ANONYMOUS,
            file: DIRECTORY,
            delegation: None,
            alone: false,
            beside: false,
            at: 0,
            tests: Vec::new(),
        }
    }

    pub(super) fn with(stateid: Stateid, file: File) -> Done {
        Done { stateid, file, ..Done::of(NfsStat::NFS4_OK) }
    }
}

/// A reply: of SEQUENCE and of what follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) sequence: NfsStat,
    pub(super) flags: u32,
    pub(super) done: Done,
}

/// A request as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) who: Who,
    pub(super) session: SessionId,
    pub(super) slot: u32,
    pub(super) sequence: u32,
    pub(super) op: Op,
    /// The same for a retry.
    pub(super) print: u64,
}

/// The stateid that a request names.
pub(super) fn stateid_of(op: &Op) -> Option<Stateid> {
    match op {
        Op::Read { stateid, .. }
        | Op::Write { stateid, .. }
        | Op::Close { stateid, .. }
        | Op::Return { stateid, .. }
        | Op::Unlock { stateid, .. }
        | Op::Free { stateid }
        | Op::Downgrade { stateid, .. }
        | Op::OpenFile { by: Some(stateid), .. } => Some(*stateid),
        _ => None,
    }
}

/// The file that a request is about.
pub(super) fn file_of(op: &Op) -> Option<File> {
    match op {
        Op::OpenFile { file, .. }
        | Op::Reclaim { file, .. }
        | Op::Downgrade { file, .. }
        | Op::Close { file, .. }
        | Op::Lock { file, .. }
        | Op::Unlock { file, .. }
        | Op::TestLock { file, .. }
        | Op::Read { file, .. }
        | Op::Write { file, .. }
        | Op::SetAttributes { file }
        | Op::Look { file }
        | Op::Return { file, .. } => Some(*file),
        _ => None,
    }
}
