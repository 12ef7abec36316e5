//! What clients may believe to hold, by the replies that they have seen, and which of it excludes what. This knows nothing of how the server works: the table
//! is that of RFC 8881 sections 9.1, 9.7, 10.2 to 10.4 and 10.9, and of `docs/internals/write-directory-delegations.md`.

use super::super::clock::Millis;
use super::super::opens::{Share, WRITE};
use landfast_nfs::v4::Stateid;

/// A client of the simulation, by its place.
pub(super) type Who = usize;
/// A file; 0 is the directory.
pub(super) type File = u16;
pub(super) const DIRECTORY: File = 0;
/// How many names there are in the directory.
pub(super) const NAMES: usize = 3;
/// Which file each name leads to.
pub(super) type Names = [Option<File>; NAMES];
/// First byte, last byte, exclusive.
pub(super) type Range = (u64, u64, bool);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Delegation {
        write: bool,
    },
    /// Of the directory: nobody changes its names; with one for writing nobody looks at them either.
    Names {
        write: bool,
    },
    Open {
        owner: u8,
        access: Share,
        deny: Share,
        /// What the server can know of its access. An open that denies nothing is in no log, so after a restart it is known once it is used: until then it is
        /// in nobody's way (docs/internals/nfsv4-state.md, "Opens and locks of a former instance").
        known: Share,
    },
    Locks {
        owner: u8,
        ranges: Vec<Range>,
        /// The open that they are under.
        open: [u8; 12],
    },
}

#[derive(Debug, Clone)]
pub(super) struct Right {
    pub(super) who: Who,
    pub(super) file: File,
    pub(super) stateid: Stateid,
    pub(super) kind: Kind,
    /// The server has lost it, and it is to be reclaimed.
    pub(super) reclaim: bool,
    /// What somebody else did in the meantime that it excludes.
    pub(super) broken: Option<String>,
    /// It was broken by this request, which only reads: if it is never answered, nothing has happened.
    pub(super) broken_by: Option<u64>,
    /// That is an open that denies nothing, so far: it is in the way of a delegation, but not of the open that is reclaimed in place of one.
    pub(super) beside_an_open: bool,
    /// A delegation that is recalled may be revoked from then on: its client is told at its next request.
    pub(super) until: Option<Millis>,
    /// What the last instance knew of an open's access when it ended. What it did not know is in nobody's way when it is reclaimed, until it is used.
    pub(super) was_known: Share,
    /// An open that denies nothing, and that its client has reclaimed.
    pub(super) reclaimed: bool,
    /// When it was given, in the order in which the server executed requests.
    pub(super) at: u64,
    /// An open of a file that was made with it, entered beside a delegation that somebody was given in between.
    pub(super) beside: bool,
    /// An open that its client was given by a delegation (CLAIM_DELEG_CUR_FH).
    pub(super) by_delegation: bool,
}

impl Right {
    /// A right that nothing has happened to.
    pub(super) fn new(who: Who, file: File, stateid: Stateid, kind: Kind) -> Right {
        Right {
            who,
            file,
            stateid,
            kind,
            reclaim: false,
            broken: None,
            broken_by: None,
            beside_an_open: false,
            until: None,
            was_known: 0,
            reclaimed: false,
            at: 0,
            beside: false,
            by_delegation: false,
        }
    }
}

/// What somebody does to a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    /// Data, attributes, or what name it has.
    Changes,
    /// The names in a directory.
    Renames,
}

fn overlap(a: &[Range], b: &[Range]) -> bool {
    a.iter().any(|(first, last, x)| b.iter().any(|(f, l, y)| (*x || *y) && first <= l && f <= last))
}

/// Whether two rights to one file exclude each other, one's being of the same client or not.
pub(super) fn excludes(a: &Right, b: &Right) -> bool {
    if a.file != b.file {
        return false;
    }
    let same = a.who == b.who;
    // What an open denies that was entered beside a delegation it does not deny to that one's holder.
    if a.beside && b.by_delegation || b.beside && a.by_delegation {
        return false;
    }
    match (&a.kind, &b.kind) {
        (Kind::Delegation { write: x }, Kind::Delegation { write: y })
        | (Kind::Names { write: x }, Kind::Names { write: y }) => !same && (*x || *y),
        (Kind::Delegation { write }, Kind::Open { deny, known, .. })
        | (Kind::Open { deny, known, .. }, Kind::Delegation { write }) => {
            // An OPEN that has made its file is entered beside a delegation that somebody was given in between, and recalls it.
            let beside = a.beside || b.beside;
            !same && !beside && (*write && *known != 0 || *known & WRITE != 0 || *deny != 0)
        }
        // The holder keeps its own locks to itself.
        (Kind::Delegation { write }, Kind::Locks { ranges, .. })
        | (Kind::Locks { ranges, .. }, Kind::Delegation { write }) => {
            !same && ranges.iter().any(|(.., exclusive)| *write || *exclusive)
        }
        (
            Kind::Open { owner: o, access: a, deny: d, .. },
            Kind::Open { owner: p, access: b, deny: e, .. },
        ) => !(same && o == p) && (a & e != 0 || b & d != 0),
        (Kind::Locks { owner: o, ranges: a, .. }, Kind::Locks { owner: p, ranges: b, .. }) => {
            !(same && o == p) && overlap(a, b)
        }
        _ => false,
    }
}

/// Whether what somebody else does is excluded by a right.
pub(super) fn forbids(kind: &Kind, effect: Effect) -> bool {
    match kind {
        Kind::Delegation { write } => *write || effect != Effect::Reads,
        Kind::Names { write } => *write || effect == Effect::Renames,
        _ => false,
    }
}

/// Takes a range away from those of a lock owner, and gives it anew if it is locked.
pub(super) fn set_range(ranges: &mut Vec<Range>, (first, last): (u64, u64), exclusive: Option<bool>) {
    let mut left = Vec::new();
    for (f, l, x) in ranges.drain(..) {
        if l < first || last < f {
            left.push((f, l, x));
            continue;
        }
        if f < first {
            left.push((f, first - 1, x));
        }
        if last < l {
            left.push((last + 1, l, x));
        }
    }
    left.extend(exclusive.map(|x| (first, last, x)));
    *ranges = left;
}

/// An owner asks for a shared lock of a range: what it has locked of it for itself alone is shared from then on (RFC 8881 section 9.3).
pub(super) fn share_range(ranges: &mut Vec<Range>, (first, last): (u64, u64)) {
    for (f, l, exclusive) in ranges.clone() {
        if exclusive && first <= l && f <= last {
            set_range(ranges, (f.max(first), l.min(last)), Some(false));
        }
    }
}

/// What a client knows of its lease.
#[derive(Debug, Clone, Default)]
pub(super) struct Knows {
    /// When it sent the last request that renewed its lease. `None`: it has none.
    pub(super) renewed: Option<Millis>,
    /// It was told that something is wrong, and has not found out what.
    pub(super) doubts: bool,
    /// A host that locks by NLM has no lease.
    pub(super) always: bool,
}

impl Knows {
    /// Whether it goes by what it holds.
    pub(super) fn is_sure(&self, now: Millis, lease: Millis) -> bool {
        self.always || !self.doubts && self.renewed.is_some_and(|at| now - at <= lease)
    }
}
