//! Who may have more of what all share; and room for one more open: where it is short, clients whose lease is over give up theirs, the one
//! that was silent longest first.

use super::opens::FileKey;
use super::refusals::AtLimit;
use super::{Millis, State};
use crate::state::notes::Stamped;
use bytes::Bytes;
use landfast_nfs::v4::NfsStat;
use std::net::IpAddr;

/// Whether an address that has `own` would have more than its share with `more`: more than is free then. `used` is what all have, of `max`.
pub(super) fn is_over_its_share(used: usize, max: usize, more: usize, own: impl FnOnce() -> usize) -> bool {
    let free = max.saturating_sub(used);
    // Where all together have less, so has each.
    used + more > free && own() + more > free
}

impl<F> State<F> {
    /// Makes sure that a client at this address may have one more open; of the open that it is, if that is known
    /// ([`super::opens::Files::room_for_open`]). The notes of clients that went for it are to be written in any case.
    ///
    /// # Errors
    /// `NOSPC` where the client has as many as any may have; `DELAY` where its address has its share, or all are in use:
    /// others may close theirs.
    pub fn make_room_for_open(
        &mut self,
        now: Millis,
        client: u64,
        known: Option<(&Bytes, &FileKey)>,
        from: IpAddr,
    ) -> (Result<(), NfsStat>, Vec<Stamped>) {
        let mut notes = Vec::new();
        loop {
            let limit = match self.files.room_for_open(client, known, from) {
                Ok(()) => return (Ok(()), notes),
                Err(limit) => limit,
            };
            let lapsed = match limit {
                AtLimit::ClientOpens => None,
                _ => self
                    .clients
                    .iter()
                    .filter(|c| c.id != client && self.files.opens_of(c.id) > 0)
                    .filter(|c| self.lapsed(c.id, now) && !self.is_busy(c.id))
                    .min_by_key(|c| c.renewed)
                    .map(|c| c.id),
            };
            let Some(lapsed) = lapsed else {
                self.files.refusals.at(limit);
                let status = match limit {
                    AtLimit::ClientOpens => NfsStat::NFS4ERR_NOSPC,
                    _ => NfsStat::NFS4ERR_DELAY,
                };
                return (Err(status), notes);
            };
            notes.extend(self.remove_client(lapsed));
        }
    }
}
