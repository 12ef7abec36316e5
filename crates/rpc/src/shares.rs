//! Fair shares of what is bounded: request bytes, calls, bytes of replies.
//!
//! A client is an address; of IPv6 the first 64 bits ([`share_of`]). What it holds is counted as it is used, not as it
//! is announced.
//!
//! - A client alone may hold up to its limit.
//! - Beside others it may hold as much as it leaves free. So any number of greedy clients leave a newcomer as much as
//!   each of them has.
//! - Each client may always hold a little, whatever the others hold, so that it is served, if slowly.
//! - A client at its share waits; nobody else waits behind it.
//!
//! [`ShareCounts`] is pure. [`Pool`] adds the waiting.
//!
//! An amount that grows while it is held (a record that arrives) must not wait for others that also grow: all might
//! wait for ever. So of each client one such amount may grow, whatever the client holds, until it is whole: see
//! [`ShareGuard::grow`].

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// What tells clients apart: the address; of IPv6 the first 64 bits, since a host may take any address below them (RFC
/// 4291 section 2.5.4, RFC 8981).
pub fn share_of(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & !u128::from(u64::MAX)).into()),
    }
}

/// One part in so many of what each may hold whatever others hold; this much is there for any number of clients.
const ALWAYS: usize = 16;

/// How much each client holds, and the limits.
#[derive(Debug)]
pub struct ShareCounts {
    max: usize,
    client_max: usize,
    least: usize,
    used: usize,
    clients: HashMap<IpAddr, usize>,
}

impl ShareCounts {
    /// `max` is the bound of all, `client_max` of one client. Up to `least` each client may hold whatever the others
    /// hold, as long as all hold at most twice `max`. The first sixteenth of `least` it may always hold.
    pub fn new(max: usize, client_max: usize, least: usize) -> ShareCounts {
        let client_max = client_max.min(max);
        ShareCounts { max, client_max, least: least.min(client_max), used: 0, clients: HashMap::new() }
    }

    /// Whether this client may hold so much more.
    pub fn may(&self, client: IpAddr, more: usize) -> bool {
        let has = self.of(client);
        let (sum, all) = (has.saturating_add(more), self.used.saturating_add(more));
        if sum <= self.least {
            return sum <= self.least / ALWAYS || all <= self.max.saturating_mul(2);
        }
        let alone = has == self.used;
        sum <= self.client_max && all <= self.max && (alone || sum <= self.max - all)
    }

    /// How much more than its least the client may hold now.
    pub fn spare(&self, client: IpAddr) -> usize {
        let (has, free) = (self.of(client), self.max.saturating_sub(self.used));
        let most = if has == self.used { self.client_max } else { self.client_max.min((free + has) / 2) };
        most.saturating_sub(has).min(free)
    }

    /// The bound of all, and how much of it one client may have.
    pub fn most_allowed(&self) -> (usize, usize) {
        (self.max, self.client_max)
    }

    /// Takes the amount if the client may have it.
    pub fn take(&mut self, client: IpAddr, more: usize) -> bool {
        let may = self.may(client, more);
        if may {
            self.force(client, more);
        }
        may
    }

    /// Takes the amount even if the client may not have it.
    pub fn force(&mut self, client: IpAddr, more: usize) {
        self.used += more;
        *self.clients.entry(client).or_default() += more;
    }

    pub fn give(&mut self, client: IpAddr, less: usize) {
        self.used = self.used.saturating_sub(less);
        if let Some(has) = self.clients.get_mut(&client) {
            *has = has.saturating_sub(less);
            if *has == 0 {
                self.clients.remove(&client);
            }
        }
    }

    pub fn used(&self) -> usize {
        self.used
    }

    pub fn of(&self, client: IpAddr) -> usize {
        self.clients.get(&client).copied().unwrap_or(0)
    }

    /// The most that one client holds.
    pub fn most(&self) -> usize {
        self.clients.values().copied().max().unwrap_or(0)
    }
}

/// Waiting requests by client. The heads of the queues are asked in turn; one that may not go on delays only its own
/// client.
#[derive(Debug, Default)]
struct Waiting {
    queues: HashMap<IpAddr, VecDeque<Waiter>>,
    round: VecDeque<IpAddr>,
}

#[derive(Debug)]
struct Waiter {
    amount: usize,
    grows: Option<Grows>,
    go: oneshot::Sender<ShareGuard>,
}

#[derive(Debug, Clone, Copy)]
struct Grows {
    id: u64,
    amount: usize,
}

impl Waiting {
    fn has(&self, client: IpAddr) -> bool {
        self.queues.contains_key(&client)
    }

    fn push(&mut self, client: IpAddr, waiter: Waiter) {
        let queue = self.queues.entry(client).or_default();
        if queue.is_empty() {
            self.round.push_back(client);
        }
        queue.push_back(waiter);
    }

    /// The first in turn that may go on.
    fn pop_if(&mut self, mut may: impl FnMut(IpAddr, &Waiter) -> bool) -> Option<(IpAddr, Waiter)> {
        for _ in 0..self.round.len() {
            let client = self.round.pop_front()?;
            let Some(queue) = self.queues.get_mut(&client) else { continue };
            // Skip those that have given up.
            while queue.front().is_some_and(|w| w.go.is_closed()) {
                queue.pop_front();
            }
            let found = if queue.front().is_some_and(|w| may(client, w)) { queue.pop_front() } else { None };
            if queue.is_empty() {
                self.queues.remove(&client);
            } else {
                self.round.push_back(client);
            }
            if let Some(waiter) = found {
                return Some((client, waiter));
            }
        }
        None
    }
}

#[derive(Debug)]
struct Inner {
    held: ShareCounts,
    waiting: Waiting,
    /// For each client, the growing amount that may grow whatever the client holds.
    growing: HashMap<IpAddr, u64>,
}

impl Inner {
    /// Takes the amount if it is available now.
    fn take(&mut self, client: IpAddr, more: usize, grows: Option<Grows>) -> bool {
        if self.held.take(client, more) {
            return true;
        }
        let Some(grows) = grows else { return false };
        let first = self.growing.entry(client).or_insert(grows.id);
        let goes_on = *first == grows.id && goes_on(&self.held, grows, more);
        if goes_on {
            self.held.force(client, more);
        }
        goes_on
    }
}

/// Whether the first growing amount of its client may grow: within twice the bound, or if nobody else holds anything.
fn goes_on(held: &ShareCounts, grows: Grows, more: usize) -> bool {
    held.used() + more <= held.max.saturating_mul(2) || held.used() == grows.amount
}

#[derive(Debug, Clone)]
pub(crate) struct Pool(Arc<Mutex<Inner>>);

impl Pool {
    pub(crate) fn new(max: usize, client_max: usize, least: usize) -> Pool {
        let held = ShareCounts::new(max, client_max, least);
        Pool(Arc::new(Mutex::new(Inner { held, waiting: Waiting::default(), growing: HashMap::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn used(&self) -> usize {
        self.lock().held.used()
    }

    /// The most that one client holds.
    pub(crate) fn most(&self) -> usize {
        self.lock().held.most()
    }

    /// An empty amount that will grow.
    pub(crate) fn nothing(&self, client: IpAddr) -> ShareGuard {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        ShareGuard { pool: self.clone(), client, amount: 0, id }
    }

    /// Waits until the client may hold this much more. A larger amount than it may ever hold counts as its limit.
    pub(crate) async fn take(&self, client: IpAddr, amount: usize) -> ShareGuard {
        let mut taken = self.nothing(client);
        taken.wait_for(amount, None).await;
        taken
    }

    /// Lets those waiting go on that may.
    fn go_on(&self, inner: &mut Inner) {
        loop {
            let Inner { held, waiting, growing } = inner;
            let next = waiting.pop_if(|client, w| {
                let first = w.grows.filter(|g| growing.get(&client).is_none_or(|id| *id == g.id));
                held.may(client, w.amount) || first.is_some_and(|g| goes_on(held, g, w.amount))
            });
            let Some((client, waiter)) = next else { return };
            if !inner.take(client, waiter.amount, waiter.grows) {
                return;
            }
            let taken = ShareGuard { pool: self.clone(), client, amount: waiter.amount, id: 0 };
            if let Err(mut back) = waiter.go.send(taken) {
                // Nobody waits for it any more. Its drop must not ask for the lock that is held here.
                inner.held.give(client, std::mem::take(&mut back.amount));
            }
        }
    }
}

/// What one call or record holds of its client's share. It is given back when dropped.
#[derive(Debug)]
pub(crate) struct ShareGuard {
    pool: Pool,
    client: IpAddr,
    amount: usize,
    /// 0: does not grow.
    id: u64,
}

impl ShareGuard {
    pub(crate) fn amount(&self) -> usize {
        self.amount
    }

    /// Waits until the total may be `to`. Of a client's growing amounts the first may grow, whatever the client holds,
    /// until [`ShareGuard::grown`].
    pub(crate) async fn grow(&mut self, to: usize) {
        let more = to.saturating_sub(self.amount);
        if more > 0 {
            self.wait_for(more, Some(Grows { id: self.id, amount: self.amount })).await;
        }
    }

    /// Stops growing, so that another of the client's amounts may grow. If the client holds more than it may, that
    /// happens when this one is given back.
    pub(crate) fn grown(&mut self) {
        let mut inner = self.pool.lock();
        let over = inner.held.of(self.client) > inner.held.client_max;
        if !over && inner.growing.get(&self.client) == Some(&self.id) {
            inner.growing.remove(&self.client);
            self.pool.go_on(&mut inner);
        }
    }

    async fn wait_for(&mut self, amount: usize, grows: Option<Grows>) {
        let go = {
            let mut inner = self.pool.lock();
            let amount = if grows.is_some() { amount } else { amount.min(inner.held.client_max) };
            // An amount that does not grow waits behind earlier ones.
            let free = grows.is_some() || !inner.waiting.has(self.client);
            if free && inner.take(self.client, amount, grows) {
                self.amount += amount;
                return;
            }
            let (waits, go) = oneshot::channel();
            inner.waiting.push(self.client, Waiter { amount, grows, go: waits });
            go
        };
        // The pool keeps the queue with the sender, which is never dropped without sending.
        if let Ok(mut more) = go.await {
            self.amount += std::mem::take(&mut more.amount);
        }
    }
}

impl Drop for ShareGuard {
    fn drop(&mut self) {
        // Merged into another amount.
        if self.amount == 0 && self.id == 0 {
            return;
        }
        let mut inner = self.pool.lock();
        if self.amount > 0 {
            inner.held.give(self.client, self.amount);
        }
        if inner.growing.get(&self.client) == Some(&self.id) {
            inner.growing.remove(&self.client);
        }
        self.pool.go_on(&mut inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    #[test]
    fn a_host_is_one_client_whatever_address_below_64_bits_it_takes() {
        let of = |s: &str| share_of(s.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), ip(1));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    /// However many take all they can get, one that comes gets as much as any of them would get now.
    #[test]
    fn greedy_clients_leave_room() {
        let mut held = ShareCounts::new(1 << 20, 1 << 19, 0);
        for n in 0..10 {
            while held.take(ip(n), 64) {}
        }
        assert!(held.take(ip(100), 64), "{held:?}");
        // From now on each gives back and takes again: they come to equal shares.
        for _ in 0..64 {
            for n in 0..10 {
                held.give(ip(n), held.of(ip(n)) / 2);
                while held.take(ip(n), 64) {}
            }
        }
        let (least, most) =
            (0..10).map(|n| held.of(ip(n))).fold((usize::MAX, 0), |(a, b), h| (a.min(h), b.max(h)));
        assert!(most < 2 * least && held.used() < (1 << 20) * 11 / 12, "{held:?}");
    }

    proptest! {
        #[test]
        fn nobody_is_over_and_each_may_have_a_little(
            steps in prop::collection::vec((0u8..6, 1usize..400, any::<bool>()), 1..300),
            (max, client_max, least) in (100usize..2000, 50usize..2000, 0usize..60),
        ) {
            let mut held = ShareCounts::new(max, client_max, least);
            let mut model: HashMap<u8, usize> = HashMap::new();
            for (who, n, takes) in steps {
                let has = model.get(&who).copied().unwrap_or(0);
                if takes {
                    let others = held.used() - has;
                    let spare = held.spare(ip(who));
                    let left = || max - others - has - spare;
                    prop_assert!(spare == 0 || others == 0 || has + spare <= left());
                    prop_assert!(spare == 0 || held.may(ip(who), spare));
                    let took = held.take(ip(who), n);
                    if took { *model.entry(who).or_default() += n; }
                    let little = has + n <= least.min(client_max).min(max);
                    prop_assert!(took || !little || held.used() + n > 2 * max);
                    prop_assert!(took || has + n > least.min(client_max).min(max) / ALWAYS);
                    prop_assert!(took || others > 0 || has + n > client_max.min(max));
                    // Beside others nobody takes more than it leaves.
                    prop_assert!(!took || little || others == 0 || has + n <= max - held.used());
                } else {
                    let n = n.min(has);
                    held.give(ip(who), n);
                    if n > 0 { *model.entry(who).or_default() -= n; }
                }
                model.retain(|_, n| *n > 0);
                prop_assert_eq!(held.used(), model.values().sum::<usize>());
                prop_assert!(held.used() <= 2 * max + 6 * (least / ALWAYS));
                for (who, n) in &model {
                    prop_assert_eq!(held.of(ip(*who)), *n);
                    prop_assert!(*n <= client_max.min(max).max(least));
                }
                prop_assert_eq!(held.most(), model.values().copied().max().unwrap_or(0));
            }
        }
    }

    /// Records of one client that arrive together and are each larger than what is left: they become whole one by one.
    #[tokio::test]
    async fn what_grows_together_does_not_wait_for_ever() {
        let pool = Pool::new(1000, 500, 0);
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let pool = pool.clone();
            all.spawn(async move {
                let mut taken = pool.nothing(ip(1));
                for part in 1..=10 {
                    taken.grow(40 * part).await;
                    tokio::task::yield_now().await;
                }
                taken.grown();
                assert!(pool.used() <= 500 + 400, "{}", pool.used());
            });
        }
        while let Some(done) = all.join_next().await {
            done.expect("whole");
        }
        assert_eq!(pool.used(), 0);
        assert!(pool.lock().growing.is_empty() && pool.lock().waiting.queues.is_empty());
    }

    #[tokio::test]
    async fn who_has_used_its_share_up_is_in_nobodys_way() {
        let pool = Pool::new(1000, 400, 0);
        let greedy = pool.take(ip(1), 400).await;
        let more = tokio::spawn({
            let pool = pool.clone();
            async move { drop(pool.take(ip(1), 300).await) }
        });
        let gives_up = tokio::spawn({
            let pool = pool.clone();
            async move { drop(pool.take(ip(1), 300).await) }
        });
        while pool.lock().waiting.queues.get(&ip(1)).map_or(0, VecDeque::len) < 2 {
            tokio::task::yield_now().await;
        }
        drop(pool.take(ip(2), 300).await);
        gives_up.abort();
        assert!(gives_up.await.is_err());
        drop(greedy);
        more.await.expect("its turn came");
        assert_eq!(pool.used(), 0);
    }
}
