//! Copies that continue after the reply to their COPY (RFC 7862 sections 4.8, 15.8, 15.9).
//!
//! A copy keeps its stateid until the client has been told of its end or has cancelled it, or for one lease after its
//! end. None survives a restart. Then its stateid is one of a former instance, and the client, which must reclaim its
//! opens anyway, copies again.

use super::clock::Millis;
use super::ids::FileKey;
use super::share::is_over_its_share;
use crate::limits;
use landfast_nfs::v4::{NfsStat, Stateid};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The progress of a copy, shared with the thread that copies.
#[derive(Debug, Default)]
pub struct Progress {
    bytes: AtomicU64,
    at: Mutex<At>,
    idle: Condvar,
}

#[derive(Debug, Default)]
struct At {
    cancelled: bool,
    copying: bool,
}

impl Progress {
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    pub fn is_cancelled(&self) -> bool {
        self.at.lock().cancelled
    }

    pub fn cancel(&self) {
        self.at.lock().cancelled = true;
    }

    /// Cancels, and waits for a step that has begun. No other step begins after this.
    pub fn cancel_and_wait(&self) {
        let mut at = self.at.lock();
        at.cancelled = true;
        while at.copying {
            self.idle.wait(&mut at);
        }
    }

    /// Runs one step, unless the copy was cancelled.
    pub fn step<E>(&self, copy: impl FnOnce() -> Result<u64, E>) -> Option<Result<u64, E>> {
        /// Ends the step even after a panic: somebody may wait for it.
        struct Copying<'a>(&'a Progress);
        impl Drop for Copying<'_> {
            fn drop(&mut self) {
                self.0.at.lock().copying = false;
                self.0.idle.notify_all();
            }
        }
        {
            let mut at = self.at.lock();
            if at.cancelled {
                return None;
            }
            at.copying = true;
        }
        let copying = Copying(self);
        let done = copy();
        if let Ok(count) = &done {
            self.bytes.fetch_add(*count, Ordering::AcqRel);
        }
        drop(copying);
        Some(done)
    }
}

#[derive(Debug)]
pub struct Copy {
    client: u64,
    /// The address whose share it counts against.
    from: IpAddr,
    file: FileKey,
    pub progress: Arc<Progress>,
    pub ended: Option<NfsStat>,
    ended_at: Millis,
}

#[derive(Debug, Default)]
pub struct Copies {
    by_id: HashMap<[u8; 12], Copy>,
}

impl Copies {
    /// Adds a copy of a client at this address. `None` if the address has its share of running copies, or of remembered
    /// ones.
    pub fn insert(
        &mut self,
        stateid: Stateid,
        client: u64,
        from: IpAddr,
        file: FileKey,
    ) -> Option<Arc<Progress>> {
        let running = || self.by_id.values().filter(|c| c.ended.is_none());
        let (all, own) = (running().count(), running().filter(|c| c.from == from).count());
        let own_kept = || self.by_id.values().filter(|c| c.from == from).count();
        if is_over_its_share(self.by_id.len(), limits::COPIES_KEPT_MAX, 1, own_kept)
            || is_over_its_share(all, limits::COPIES_MAX, 1, || own)
        {
            return None;
        }
        let progress = Arc::new(Progress::default());
        let copy = Copy { client, from, file, progress: progress.clone(), ended: None, ended_at: 0 };
        self.by_id.insert(stateid.other, copy);
        Some(progress)
    }

    /// The client's copy into this file; the error is `BAD_STATEID`.
    pub fn find(&self, client: u64, file: &FileKey, stateid: &Stateid) -> Result<&Copy, NfsStat> {
        self.by_id
            .get(&stateid.other)
            .filter(|c| c.client == client && c.file == *file && stateid.seqid <= 1)
            .ok_or(NfsStat::NFS4ERR_BAD_STATEID)
    }

    /// Removes a copy so that it can be cancelled.
    pub fn take(&mut self, client: u64, file: &FileKey, stateid: &Stateid) -> Result<Arc<Progress>, NfsStat> {
        let progress = self.find(client, file, stateid)?.progress.clone();
        self.by_id.remove(&stateid.other);
        Ok(progress)
    }

    pub fn ended(&mut self, stateid: &Stateid, status: NfsStat, now: Millis) {
        if let Some(copy) = self.by_id.get_mut(&stateid.other) {
            (copy.ended, copy.ended_at) = (Some(status), now);
        }
    }

    /// The client knows that it has ended.
    pub fn forget(&mut self, stateid: &Stateid) {
        self.by_id.remove(&stateid.other);
    }

    pub fn remove_client(&mut self, client: u64) {
        self.by_id.retain(|_, c| {
            if c.client == client {
                c.progress.cancel();
            }
            c.client != client
        });
    }

    pub fn clients(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.by_id.values().map(|c| c.client).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub fn cancel_all(&mut self) {
        self.by_id.drain().for_each(|(_, c)| c.progress.cancel());
    }

    pub fn tick(&mut self, now: Millis, lease: Millis) {
        self.by_id.retain(|_, c| c.ended.is_none() || now.saturating_sub(c.ended_at) <= lease);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> Stateid {
        Stateid { seqid: 1, other: [n; 12] }
    }

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    fn file(n: u8) -> FileKey {
        vec![n].into()
    }

    #[test]
    fn a_copy_is_its_clients_and_its_files() {
        let mut all = Copies::default();
        let progress = all.insert(id(1), 7, ip(1), file(1)).expect("room");
        assert_eq!(progress.step(|| Ok::<_, ()>(5)), Some(Ok(5)));
        assert_eq!(progress.step(|| Err(3)), Some(Err(3)));
        let bad = |r: Result<&Copy, NfsStat>| assert_eq!(r.err(), Some(NfsStat::NFS4ERR_BAD_STATEID));
        bad(all.find(8, &file(1), &id(1)));
        bad(all.find(7, &file(2), &id(1)));
        bad(all.find(7, &file(1), &id(2)));
        let found = all.find(7, &file(1), &id(1)).expect("it");
        assert_eq!((found.progress.bytes(), found.ended), (5, None));
        all.ended(&id(1), NfsStat::NFS4_OK, 10);
        all.tick(110, 100);
        assert_eq!(all.find(7, &file(1), &id(1)).map(|c| c.ended), Ok(Some(NfsStat::NFS4_OK)));
        all.tick(111, 100);
        assert!(all.by_id.is_empty());
    }

    #[test]
    fn who_never_asks_how_its_copies_ended_keeps_nobody_from_one() {
        let mut all = Copies::default();
        let mut last = 0_u16;
        let mut fill = |all: &mut Copies, from: u8| {
            let mut begun = 0;
            loop {
                last += 1;
                let mut other = [0; 12];
                other[..2].copy_from_slice(&last.to_be_bytes());
                let id = Stateid { seqid: 1, other };
                if all.insert(id, u64::from(from), ip(from), file(1)).is_none() {
                    return begun;
                }
                all.ended(&id, NfsStat::NFS4_OK, 0);
                begun += 1;
            }
        };
        assert_eq!(fill(&mut all, 1), limits::COPIES_KEPT_MAX / 2);
        assert_eq!(fill(&mut all, 2), limits::COPIES_KEPT_MAX / 4);
        assert!(all.insert(id(255), 3, ip(3), file(1)).is_some());
    }

    #[test]
    fn cancelled_copies_do_no_further_step() {
        let mut all = Copies::default();
        let one = all.insert(id(1), 7, ip(1), file(1)).expect("room");
        let two = all.insert(id(2), 8, ip(1), file(1)).expect("room");
        all.remove_client(7);
        assert_eq!(one.step(|| Ok::<_, ()>(1)), None);
        assert_eq!(two.step(|| Ok::<_, ()>(1)), Some(Ok(1)));
        let taken = all.take(8, &file(1), &id(2)).expect("it");
        taken.cancel_and_wait();
        assert!(two.is_cancelled() && all.by_id.is_empty());
        assert_eq!(all.take(8, &file(1), &id(2)).err(), Some(NfsStat::NFS4ERR_BAD_STATEID));
    }

    #[test]
    fn a_cancel_waits_for_the_step_that_has_begun() {
        let progress = Arc::new(Progress::default());
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let stepping = progress.clone();
        let step = std::thread::spawn(move || {
            stepping.step(|| {
                begun.send(()).expect("the test waits");
                may_go_on.recv().map(|()| 1)
            })
        });
        has_begun.recv().expect("the step has begun");
        let cancelling = progress.clone();
        let cancel = std::thread::spawn(move || {
            cancelling.cancel_and_wait();
            cancelling.bytes()
        });
        while !progress.is_cancelled() {
            std::thread::yield_now();
        }
        go_on.send(()).expect("the step waits");
        assert_eq!(step.join().expect("the step"), Some(Ok(1)));
        assert_eq!(cancel.join().expect("the cancel"), 1);
    }

    #[test]
    fn there_is_an_end_to_how_many_are_kept() {
        let mut all = Copies::default();
        let mut kept = 0;
        for n in 0..2 * limits::COPIES_KEPT_MAX as u64 {
            let mut other = [0; 12];
            other[..8].copy_from_slice(&n.to_be_bytes());
            let stateid = Stateid { seqid: 1, other };
            // Each of another address.
            let addr = IpAddr::from((n as u32).to_be_bytes());
            kept += usize::from(all.insert(stateid, 1, addr, file(1)).is_some());
            all.ended(&stateid, NfsStat::NFS4_OK, 0);
        }
        assert_eq!((kept, all.by_id.len()), (limits::COPIES_KEPT_MAX, limits::COPIES_KEPT_MAX));
        all.cancel_all();
        assert!(all.insert(id(0xff), 1, ip(1), file(1)).is_some());
    }

    /// Whoever has many client IDs at one address leaves copies to others.
    #[test]
    fn an_address_has_its_share() {
        let mut all = Copies::default();
        let mut next = 0;
        let mut fill = |all: &mut Copies, addr: u8| {
            let one = |n: u64| {
                let mut other = [0; 12];
                other[..8].copy_from_slice(&n.to_be_bytes());
                Stateid { seqid: 1, other }
            };
            (0..)
                .take_while(|_| {
                    next += 1;
                    all.insert(one(next), next, ip(addr), file(1)).is_some()
                })
                .count()
        };
        assert_eq!(fill(&mut all, 1), limits::COPIES_MAX / 2);
        assert_eq!(fill(&mut all, 2), limits::COPIES_MAX / 4);
        assert_eq!(fill(&mut all, 1), 0);
        assert!(fill(&mut all, 3) > 0);
    }
}
