//! The limits of a session: for one COMPOUND, and for COMPOUNDs in flight.

use super::options::Tuning;
use super::pack::Capacity;
use super::report::FatalError;
use crate::limits;
use crate::session::{Session, SessionError, SessionLimits};
use crate::url::Version;

/// The limits of one COMPOUND.
pub(super) fn capacity(session: &Session, tuning: &Tuning) -> Capacity {
    let members = if session.is_sequential() { 1 } else { tuning.members_per_compound };
    Capacity {
        packs_data: session.packs_data(),
        // With version 3 new objects are read back anyway.
        looks: session.version() != Version::V3,
        ..Capacity::new(&session.limits(), members, tuning.request_bytes)
    }
}

/// How many COMPOUNDs may be in flight.
pub(super) fn window(session: &Session, tuning: &Tuning) -> usize {
    tuning.compounds_in_flight.min(session.limits().slots as usize).max(1)
}

/// Checks that the session's limits suffice.
pub(super) fn enough(session: &Session) -> Result<(), FatalError> {
    let server = session.server().to_owned();
    let SessionLimits { request, response, ops, .. } = session.limits();
    for (what, granted, needed) in [
        ("bytes of request", request, limits::MESSAGE_MIN),
        ("bytes of reply", response, limits::MESSAGE_MIN),
        ("operations in a compound", ops, limits::OPS_MIN),
    ] {
        if granted < needed {
            let what = format!("{granted} {what}, at least {needed} are needed");
            return Err(SessionError::TooSmall { server, what }.into());
        }
    }
    Ok(())
}
