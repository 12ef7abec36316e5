//! What the result of a SEQUENCE means for its request (RFC 8881 section 18.46).

use landfast_nfs::v4::{CompoundRes, NfsStat, OpNum, ResBody};

use super::epoch::Epoch;
use super::slots::Slot;

/// What to do about a reply to a SEQUENCE.
pub(super) enum Verdict {
    Done(CompoundRes),
    /// Not executed, and the sequence number was not used.
    Refused(NfsStat),
    Again,
    Rebind,
    /// The session is gone.
    Lost,
    /// It was executed, and the server has not kept the reply.
    Uncached,
}

/// Whether a server that refuses a COMPOUND with this status may take a smaller one.
pub(super) fn too_much(status: NfsStat) -> bool {
    matches!(
        status,
        NfsStat::NFS4ERR_TOO_MANY_OPS
            | NfsStat::NFS4ERR_REQ_TOO_BIG
            | NfsStat::NFS4ERR_REP_TOO_BIG
            | NfsStat::NFS4ERR_REP_TOO_BIG_TO_CACHE
            | NfsStat::NFS4ERR_RESOURCE
    )
}

/// Reads the SEQUENCE result (RFC 8881 section 18.46).
pub(super) fn judge(mut reply: CompoundRes, epoch: &Epoch, slot: Slot) -> Verdict {
    if reply.results.is_empty() {
        // Refused before the SEQUENCE was looked at.
        return match reply.status {
            NfsStat::NFS4ERR_DELAY => Verdict::Again,
            status => Verdict::Refused(status),
        };
    }
    let sequence = reply.results.remove(0);
    match (sequence.op, sequence.status, sequence.body) {
        (OpNum::SEQUENCE, NfsStat::NFS4_OK, ResBody::Sequence(res)) => {
            if res.sequenceid != slot.seq || res.slotid != slot.id {
                return Verdict::Lost;
            }
            epoch.follow(&res);
            Verdict::Done(reply)
        }
        (_, NfsStat::NFS4ERR_DELAY, _) => Verdict::Again,
        (
            _,
            NfsStat::NFS4ERR_BADSESSION
            | NfsStat::NFS4ERR_DEADSESSION
            | NfsStat::NFS4ERR_SEQ_MISORDERED
            | NfsStat::NFS4ERR_SEQ_FALSE_RETRY
            | NfsStat::NFS4ERR_BADSLOT
            | NfsStat::NFS4ERR_BAD_HIGH_SLOT,
            _,
        ) => Verdict::Lost,
        (_, NfsStat::NFS4ERR_CONN_NOT_BOUND_TO_SESSION, _) => Verdict::Rebind,
        (_, NfsStat::NFS4ERR_RETRY_UNCACHED_REP, _) => Verdict::Uncached,
        (_, status, _) => Verdict::Refused(status),
    }
}
