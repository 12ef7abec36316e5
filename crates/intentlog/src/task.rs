//! The writer's unfinished task, kept between two of its steps.

use std::path::PathBuf;
use std::sync::Arc;

use crate::device::Device;
use crate::format::BatchBuf;
use crate::generation::Generation;
use crate::superblocks::Superblocks;

pub(crate) enum Task {
    Seal {
        cut: bool,
        phase: SealPhase,
    },
    /// Makes a batch durable: in the ring, or, if it does not fit, by a checkpoint.
    Put {
        buf: BatchBuf,
        snapshot: bool,
        oversize: bool,
    },
    /// A batch of `length` bytes does not fit the ring.
    Absorb {
        length: u64,
    },
    AbsorbSync {
        records: Vec<Vec<u8>>,
        number: u64,
    },
    AbsorbWrite {
        records: Vec<Vec<u8>>,
    },
    /// Replaces a lost log.
    Renew(Renewal),
}

/// How far a seal is before it closes the gate: it waits for company (`pace.rs`) first, then for announced requests.
pub(crate) enum SealPhase {
    Start,
    Company {
        /// Transactions in the batch when the wait began.
        before: u64,
    },
    CompanyDone,
    Requests(Arc<Generation>),
    /// The announced requests have committed, or the wait for them has timed out.
    Ready,
}

/// The next step of replacing a lost log ([`crate::renew`] has the table).
pub(crate) enum Renewal {
    Cut,
    SetAside { records: Vec<Vec<u8>> },
    Build { records: Vec<Vec<u8>> },
    Place { made: NewLog },
    Resume { aside: Vec<PathBuf> },
    Renew { aside: Vec<PathBuf> },
}

/// A new log, complete but not yet at the lost one's path.
pub(crate) struct NewLog {
    pub(crate) device: Box<dyn Device>,
    pub(crate) superblocks: Superblocks,
    /// Bytes of the snapshot in the ring.
    pub(crate) length: u64,
    pub(crate) records: u64,
}
