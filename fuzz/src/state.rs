//! The server's state as a pure core, driven by any sequence of what clients can do, restarts and jumps of the clock included.
//!
//! Invariants: a slot executes each sequence number at most once; ranges of two lock owners that exclude each other are never
//! granted together; a restart keeps every confirmed client and its sessions; nothing is left of a client that is gone.

use arbitrary::{Arbitrary, Unstructured};
use landfast_nfs::v4::{ChannelAttrs, LockType, SessionId, Stateid};
use landfast_server::state::clients::{CreateSession, ExchangeId};
use landfast_server::state::identity::Requester;
use landfast_server::state::locks::{LockError, Locker, Span};
use landfast_server::state::notes::Stamped;
use landfast_server::state::sessions::{Begin, CachedReply, NewSession, SlotUse, UNKNOWN};
use landfast_server::state::{Bounds, Principal, State};
use landfast_xdr::Bytes;
use std::collections::HashMap;
use std::net::IpAddr;

const LEASE_MS: u64 = 90_000;
const SLOTS: u32 = 4;

#[derive(Debug, Arbitrary)]
enum Step {
    Clock(u64),
    Tick,
    Restart,
    Exchange { owner: u8, verifier: u8, uid: u8, update: bool },
    CreateSession { client: u8, offset: i8, uid: u8 },
    DestroySession { session: u8 },
    DestroyClient { client: u8 },
    Begin { session: u8, slot: u8, offset: i8, fingerprint: u8, solo: bool },
    End { session: u8, slot: u8, keep: bool },
    ReclaimComplete { client: u8 },
    Open { client: u8, owner: u8, file: u8, access: u8, deny: u8 },
    Downgrade { client: u8, stateid: u8, access: u8, deny: u8 },
    Close { client: u8, stateid: u8 },
    Lock { client: u8, stateid: u8, owner: u8, new: bool, kind: u8, offset: u8, length: u8 },
    Unlock { client: u8, stateid: u8, offset: u8, length: u8 },
    Free { client: u8, stateid: u8 },
}

struct World {
    st: State<u32>,
    now: u64,
    epoch: u32,
    clients: Vec<u64>,
    sessions: Vec<SessionId>,
    stateids: Vec<(Stateid, Bytes)>,
    made: u8,
    /// The last number that each slot executed.
    executed: HashMap<(SessionId, u32), u32>,
    busy: HashMap<(SessionId, u32), u32>,
    log: Vec<Stamped>,
}

fn channel() -> ChannelAttrs {
    ChannelAttrs {
        header_pad_size: 0,
        max_request_size: 4096,
        max_response_size: 4096,
        max_response_size_cached: 1024,
        max_operations: 8,
        max_requests: SLOTS,
        rdma_ird: Vec::new(),
    }
}

fn pick<T: Clone>(from: &[T], n: u8) -> Option<T> {
    from.get(usize::from(n) % from.len().max(1)).cloned()
}

fn file(n: u8) -> Bytes {
    Bytes::from(vec![b'f', n % 3])
}

/// One of two users at one of two addresses.
fn asker(n: u8) -> Requester {
    let principal = Principal { flavor: 1, uid: u32::from(n % 2) };
    Requester { principal, addr: IpAddr::from([192, 0, 2, n / 2 % 2]) }
}

/// The state of a server that has just started.
fn empty(epoch: u32) -> State<u32> {
    let bounds =
        Bounds { reply_bytes: 1 << 20, clients: 16, nlm_hosts: 16, call_bytes: 1 << 20, ..Bounds::new(None) };
    State::of_instance(epoch, [epoch as u8; 16], LEASE_MS, bounds)
}

/// Any sequence of steps.
pub fn state(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let mut w = World {
        st: empty(1),
        now: 0,
        epoch: 1,
        clients: Vec::new(),
        sessions: Vec::new(),
        stateids: Vec::new(),
        made: 0,
        executed: HashMap::new(),
        busy: HashMap::new(),
        log: Vec::new(),
    };
    for _ in 0..200 {
        if u.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut u) else { break };
        w.step(step);
        w.check();
    }
}

impl World {
    fn step(&mut self, step: Step) {
        match step {
            // The caller's clock never goes backwards; how far it jumps is anybody's guess.
            Step::Clock(by) => self.now = self.now.saturating_add(by % (1 << 40)),
            Step::Tick => {
                let gone = self.st.tick(self.now);
                self.log.extend(gone);
            }
            Step::Restart => self.restart(),
            Step::Exchange { owner, verifier, uid, update } => {
                let ask = ExchangeId {
                    owner: Bytes::from(vec![owner % 4]),
                    verifier: [verifier % 2; 8],
                    by: asker(uid),
                    update,
                };
                if let Ok(found) = self.st.exchange_id(self.now, &ask) {
                    if let Some(old) = found.replaced {
                        assert!(!self.st.has_state(old, self.now));
                        let gone = self.st.remove_client(old);
                        self.log.extend(gone);
                    }
                    self.clients.push(found.client);
                }
            }
            Step::CreateSession { client, offset, uid } => self.create_session(client, offset, uid),
            Step::DestroySession { session } => {
                if let Some(id) = pick(&self.sessions, session) {
                    let gone = self.st.remove_session(&id);
                    self.log.extend(gone);
                }
            }
            Step::DestroyClient { client } => {
                if let Some(id) = pick(&self.clients, client) {
                    let gone = self.st.remove_client(id);
                    self.log.extend(gone);
                    assert_eq!(self.st.files.opens_of(id), 0);
                    assert!(self.st.sessions.of_client(id).is_empty());
                }
            }
            Step::Begin { session, slot, offset, fingerprint, solo } => {
                self.begin(session, slot, offset, fingerprint, solo);
            }
            Step::End { session, slot, keep } => self.end(session, slot, keep),
            Step::ReclaimComplete { client } => {
                if let Some(id) = pick(&self.clients, client) {
                    let _ = self.st.reclaim_complete(id).map(|n| self.log.extend(n));
                }
            }
            Step::Open { client, owner, file: n, access, deny } => {
                let Some(client) = pick(&self.clients, client) else { return };
                let (f, access, deny) = (file(n), access % 3 + 1, deny % 4);
                if self.st.clients.get(client).is_some_and(|c| c.confirmed)
                    && self.st.files.check_share(&f, access, deny).is_ok()
                {
                    let owner = Bytes::from(vec![owner % 3]);
                    let opened = self.st.files.open(&f, client, &owner, access, deny, Some(1));
                    self.stateids.extend(opened.map(|s| (s, f)));
                }
            }
            Step::Downgrade { client, stateid, access, deny } => {
                if let (Some(c), Some((s, f))) = (pick(&self.clients, client), pick(&self.stateids, stateid))
                {
                    let new = self.st.files.downgrade(c, &f, &s, access % 4, deny % 4);
                    self.stateids.extend(new.map(|s| (s, f)));
                }
            }
            Step::Close { client, stateid } => {
                if let (Some(c), Some((s, f))) = (pick(&self.clients, client), pick(&self.stateids, stateid))
                    && self.st.files.close(c, &f, &s).is_ok()
                {
                    assert!(self.st.files.find(c, &s).is_err());
                }
            }
            Step::Lock { client, stateid, owner, new, kind, offset, length } => {
                self.lock(client, stateid, owner, new, kind, span_of(offset, length));
            }
            Step::Unlock { client, stateid, offset, length } => {
                if let (Some(c), Some((s, f)), Some(span)) =
                    (pick(&self.clients, client), pick(&self.stateids, stateid), span_of(offset, length))
                {
                    let new = self.st.files.unlock(c, &f, &s, span);
                    self.stateids.extend(new.map(|s| (s, f)));
                }
            }
            Step::Free { client, stateid } => {
                if let (Some(c), Some((s, _))) = (pick(&self.clients, client), pick(&self.stateids, stateid))
                    && self.st.files.free(c, &s).is_ok()
                {
                    assert!(self.st.files.find(c, &s).is_err());
                }
            }
        }
    }

    fn create_session(&mut self, client: u8, offset: i8, uid: u8) {
        let Some(client) = pick(&self.clients, client) else { return };
        let Some(next) = self.st.clients.get(client).map(|c| c.create_sequence) else { return };
        let sequence = next.wrapping_add_signed(i32::from(offset % 3));
        if self.st.clients.check_create_session(client, sequence, asker(uid)) != Ok(CreateSession::New) {
            return;
        }
        if let Some(old) = self.st.sessions.to_evict(client) {
            let gone = self.st.remove_session(&old);
            self.log.extend(gone);
        }
        let Ok(fore) = self.st.sessions.negotiate(&channel(), UNKNOWN) else { return };
        self.made = self.made.wrapping_add(1);
        let mut id = [self.made; 16];
        id[..4].copy_from_slice(&self.epoch.to_be_bytes());
        let v = self.log.iter().map(|n| n.v).max().unwrap_or(0) + 1;
        if let Some(old) = self.st.clients.created(client, self.now, Bytes::from_static(b"reply"), v) {
            assert_ne!(old, client);
            let gone = self.st.remove_client(old);
            self.log.extend(gone);
        }
        let back = ChannelAttrs::default();
        let new = NewSession { id, client, fore, back, callback_program: 0, flags: 1, callback_cred: None };
        if self.st.sessions.get(&id).is_none() {
            self.st.sessions.insert(new, v, self.now);
            self.sessions.push(id);
        }
        self.executed.retain(|(s, _), _| *s != id);
        self.busy.retain(|(s, _), _| *s != id);
    }

    fn begin(&mut self, session: u8, slot: u8, offset: i8, fingerprint: u8, solo: bool) {
        let Some(id) = pick(&self.sessions, session) else { return };
        let slot = u32::from(slot) % (SLOTS + 1);
        let last = self.executed.get(&(id, slot)).copied().unwrap_or(0);
        let sequence = last.wrapping_add_signed(i32::from(offset % 4));
        let ask = SlotUse { slot, sequence, highest: SLOTS, fingerprint: fingerprint.into(), solo };
        let Some(mut s) = self.st.sessions.get_mut(&id) else { return };
        if s.begin(self.now, &ask, true, || Ok(())) == Ok(Begin::New) {
            assert!(!self.busy.contains_key(&(id, slot)), "two requests on a slot");
            assert_ne!(Some(&sequence), self.executed.get(&(id, slot)), "executed twice");
            self.busy.insert((id, slot), sequence);
            self.executed.insert((id, slot), sequence);
        }
    }

    fn end(&mut self, session: u8, slot: u8, keep: bool) {
        let Some(id) = pick(&self.sessions, session) else { return };
        let slot = u32::from(slot) % SLOTS;
        if self.busy.remove(&(id, slot)).is_none() {
            return;
        }
        let kept = if keep { CachedReply::Reply(Bytes::from_static(b"kept")) } else { CachedReply::Uncached };
        if let Some(mut s) = self.st.sessions.get_mut(&id) {
            assert!(s.stage(slot, kept, 1, None).is_some());
            s.release(slot);
        }
    }

    fn lock(&mut self, client: u8, stateid: u8, owner: u8, new: bool, kind: u8, span: Option<Span>) {
        let (Some(c), Some((s, f)), Some(span)) =
            (pick(&self.clients, client), pick(&self.stateids, stateid), span)
        else {
            return;
        };
        let kind = if kind % 2 == 0 { LockType::Read } else { LockType::Write };
        let owner = Bytes::from(vec![owner % 3]);
        let locker = if new { Locker::New { open: s, owner: owner.clone() } } else { Locker::Known(s) };
        match self.st.files.lock(c, &f, &locker, kind, span) {
            Ok(held) => {
                if kind == LockType::Write {
                    // Nobody else may have any of it now.
                    let other = Bytes::from_static(b"somebody else");
                    let test = self.st.files.lock_test(c, &f, &other, false, span);
                    assert!(test.is_some_and(|d| d.client == c && d.exclusive));
                }
                self.stateids.push((held, f));
            }
            Err(LockError::Denied(d)) => assert!(self.st.files.opens_of(d.client) > 0),
            Err(LockError::Status(_)) => {}
        }
    }

    /// The server dies and starts again from a snapshot, which any older notes may come with.
    fn restart(&mut self) {
        let snapshot = self.st.snapshot();
        let confirmed = self.st.clients.iter().filter(|c| c.confirmed).count();
        let sessions = self.st.sessions.len();
        self.epoch += 1;
        let mut st = empty(self.epoch);
        let notes = snapshot.iter().map(|n| Stamped::from_bytes(&n.to_bytes()).expect("a note"));
        let restored = st.restore(notes, self.now);
        assert_eq!((restored.clients, restored.sessions), (confirmed, sessions));
        self.st = st;
        // What was under way was not executed as far as anybody knows.
        for (at, sequence) in self.busy.drain() {
            if self.executed.get(&at) == Some(&sequence) {
                self.executed.remove(&at);
            }
        }
        self.log.clear();
    }

    fn check(&self) {
        let opens: usize = self.st.clients.ids().iter().map(|id| self.st.files.opens_of(*id)).sum();
        assert_eq!(opens, self.st.files.len(), "an open belongs to a client that is there");
        for s in self.st.sessions.iter() {
            assert!(self.st.clients.get(s.client).is_some_and(|c| c.confirmed));
        }
    }
}

fn span_of(offset: u8, length: u8) -> Option<Span> {
    let length = if length == 255 { u64::MAX } else { u64::from(length % 32) };
    Span::new(u64::from(offset % 32), length).ok()
}
