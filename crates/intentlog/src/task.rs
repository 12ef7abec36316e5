//! What the writer is in the middle of, between two of its steps.

use std::path::PathBuf;
use std::sync::Arc;

use crate::device::Device;
use crate::format::BatchBuf;
use crate::generation::Generation;
use crate::superblocks::Superblocks;

/// What the writer is in the middle of.
pub(crate) enum Task {
    Seal {
        cut: bool,
        hand: Hand,
    },
    /// A batch is to be made durable: in the ring, or, if it does not fit, through a checkpoint.
    Put {
        buf: BatchBuf,
        snapshot: bool,
        oversize: bool,
    },
    /// A batch of `length` bytes does not fit.
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
    /// The log was lost, and another one takes its place.
    Renew(Renewal),
}

/// What a seal waits for before it closes the gate: company first, then requests in hand.
pub(crate) enum Hand {
    Begun,
    /// The batch had so many transactions when it began to wait for company.
    Company {
        before: u64,
    },
    Unasked,
    Awaited(Arc<Generation>),
    /// They have come, or were waited for long enough.
    Done,
}

/// What it does next to replace a lost log ([`crate::renew`] has the table).
pub(crate) enum Renewal {
    Cut,
    SetAside { records: Vec<Vec<u8>> },
    Build { records: Vec<Vec<u8>> },
    Place { made: Made },
    Resume { aside: Vec<PathBuf> },
    Renew { aside: Vec<PathBuf> },
}

/// A log without a name.
pub(crate) struct Made {
    pub(crate) device: Box<dyn Device>,
    pub(crate) superblocks: Superblocks,
    /// Of the snapshot in the ring.
    pub(crate) length: u64,
    pub(crate) records: u64,
}
