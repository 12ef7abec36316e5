//! What NFSv4.0 needs of opens and locks beyond NFSv4.1 (RFC 7530 sections 9.1.4.4, 16.18, 16.37): a stateid identifies
//! its client, an open is confirmed, a lock owner is released.

use super::ids::FileKey;
use super::opens::{Files, OpenOrLock, bump, mark, number};
use bytes::Bytes;
use landfast_nfs::v4::{NfsStat, Stateid};
use std::collections::HashMap;

impl<F> Files<F> {
    pub fn id_of(&self, stateid: &Stateid) -> Option<u64> {
        (mark(stateid) == self.mark).then_some(number(stateid))
    }

    /// Finds what a stateid names and its client, whatever its seqid.
    /// Errors: `BAD_STATEID` for special ones, unknown ones and those given back; `STALE_STATEID` for another
    /// instance's; `EXPIRED`.
    pub fn locate(&self, stateid: &Stateid) -> Result<(OpenOrLock, u64), NfsStat> {
        if stateid.other == [0; 12] || stateid.other == [0xff; 12] {
            return Err(NfsStat::NFS4ERR_BAD_STATEID);
        }
        let id = self.id_of(stateid).ok_or(NfsStat::NFS4ERR_STALE_STATEID)?;
        if let Some(o) = self.opens.get(&id) {
            Ok((OpenOrLock::Open(id), o.client))
        } else if let Some(l) = self.locks.get(&id) {
            Ok((OpenOrLock::Lock(id), l.client))
        } else if self.expired.has(id) {
            Err(NfsStat::NFS4ERR_EXPIRED)
        } else {
            Err(NfsStat::NFS4ERR_BAD_STATEID)
        }
    }

    /// Checks that a stateid's seqid is current. 0 is no wildcard in NFSv4.0.
    /// Errors: Those of [`Files::locate`]; `OLD_STATEID`; `BAD_STATEID` for a seqid not yet given.
    pub fn exact(&self, stateid: &Stateid) -> Result<(), NfsStat> {
        let (which, _) = self.locate(stateid)?;
        let now = self.present(which).map_or(0, |s| s.seqid);
        if stateid.seqid == now {
            Ok(())
        } else if stateid.seqid == 0 || (now.wrapping_sub(stateid.seqid) as i32) > 0 {
            Err(NfsStat::NFS4ERR_OLD_STATEID)
        } else {
            Err(NfsStat::NFS4ERR_BAD_STATEID)
        }
    }

    /// Client and name of an open's owner.
    pub fn owner_of_open(&self, open: u64) -> Option<(u64, Bytes)> {
        self.opens.get(&open).map(|o| (o.client, o.owner.clone()))
    }

    /// Client and name of a lock state's owner.
    pub fn owner_of_lock(&self, lock: u64) -> Option<(u64, Bytes)> {
        self.locks.get(&lock).map(|l| (l.client, l.owner.clone()))
    }

    /// The lock state of a lock owner on an open's file, and whether it has locks created under this open.
    pub fn lock_state_of(&self, client: u64, owner: &Bytes, open: u64) -> Option<(u64, bool)> {
        let file = self.opens.get(&open)?.file.clone();
        let id = *self.clients.get(&client)?.locks.get(&(owner.clone(), file.clone()))?;
        let from_it = self.locks.get(&id)?.open == Some(open);
        Some((id, from_it && self.files.get(&file).is_some_and(|f| f.ranges.holds(id))))
    }

    pub fn locks_under(&self, open: u64) -> Vec<u64> {
        self.opens.get(&open).map(|o| o.lock_states.clone()).unwrap_or_default()
    }

    pub fn opens_by_owner(&self, client: u64) -> HashMap<Bytes, Vec<u64>> {
        let mut all: HashMap<Bytes, Vec<u64>> = HashMap::new();
        for ((owner, _), id) in self.clients.get(&client).iter().flat_map(|c| &c.opens) {
            all.entry(owner.clone()).or_default().push(*id);
        }
        all
    }

    /// Removes all of an owner's opens. Returns what the shell must drop outside the lock.
    pub fn drop_opens_of(&mut self, client: u64, owner: &Bytes) -> Vec<F> {
        let ids = self.opens_by_owner(client).remove(owner).unwrap_or_default();
        ids.into_iter().flat_map(|id| self.drop_open(id)).collect()
    }

    /// OPEN_CONFIRM: returns the open's next stateid.
    pub fn confirm(&mut self, open: u64) -> Option<Stateid> {
        let seqid = bump(&mut self.opens.get_mut(&open)?.seqid);
        Some(self.stateid(open, seqid))
    }

    /// Forgets a lock owner's states; `LOCKS_HELD` if it holds a lock.
    pub fn release_lock_owner(&mut self, client: u64, owner: &Bytes) -> Result<(), NfsStat> {
        let states: Vec<(u64, FileKey)> = self
            .clients
            .get(&client)
            .iter()
            .flat_map(|c| &c.locks)
            .filter(|((name, _), _)| name == owner)
            .map(|((_, file), id)| (*id, file.clone()))
            .collect();
        if states.iter().any(|(id, file)| self.files.get(file).is_some_and(|f| f.ranges.holds(*id))) {
            return Err(NfsStat::NFS4ERR_LOCKS_HELD);
        }
        for (id, _) in states {
            self.drop_lock_state(id);
        }
        Ok(())
    }

    /// Remembers a client's states as expired; [`Files::remove_client`] removes them.
    pub fn expire(&mut self, client: u64) {
        if let Some(c) = self.clients.get(&client) {
            for id in c.opens.values().chain(c.locks.values()) {
                self.expired.add(*id);
            }
        }
    }
}
