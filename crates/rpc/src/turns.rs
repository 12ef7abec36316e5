//! Fair turns between clients: how many calls run at a time, and whose call is next.
//!
//! A connection takes a place for a call before it hands the call to the service. So no more calls than places wait for
//! a thread, however many calls a client sends. A call that finds no place waits in the queue of its client (an
//! address). A free place goes to the clients in turn, whatever the length of their queues. So a call waits for at most
//! one call of each other waiting client, and for the calls that have a place. The service gives the place back when
//! the call has run or first waits for something ([`Turn::during`]), so nobody waits for the disk of others.
//!
//! Invariants: a client is in the round exactly when its queue is not empty; nobody waits while a place is free.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::oneshot;

use crate::shares::share_of;

/// Runs `work`, and `before` at its first wait. (The caller pins `work`: a future that is passed by value takes its
/// space in each future that it is passed to, twice.)
pub(crate) async fn if_it_waits<T>(mut work: Pin<&mut impl Future<Output = T>>, before: impl FnOnce()) -> T {
    match poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
        Poll::Ready(done) => done,
        Poll::Pending => {
            before();
            work.await
        }
    }
}

/// One queue for each client; [`FairQueue::pop`] takes from the clients in turn.
#[derive(Debug)]
pub struct FairQueue<W> {
    len: usize,
    queues: HashMap<IpAddr, VecDeque<W>>,
    round: VecDeque<IpAddr>,
}

impl<W> Default for FairQueue<W> {
    fn default() -> Self {
        FairQueue { len: 0, queues: HashMap::new(), round: VecDeque::new() }
    }
}

impl<W> FairQueue<W> {
    /// Adds to the end of the client's queue ([`share_of`]).
    pub fn push(&mut self, client: IpAddr, who: W) {
        let client = share_of(client);
        let queue = self.queues.entry(client).or_default();
        if queue.is_empty() {
            self.round.push_back(client);
        }
        queue.push_back(who);
        self.len += 1;
    }

    pub fn pop(&mut self) -> Option<W> {
        self.pop_of(|_| true).map(|(_, who)| who)
    }

    /// Takes the first of the next client for which `may` is true, and returns that client too.
    pub fn pop_of(&mut self, may: impl Fn(&IpAddr) -> bool) -> Option<(IpAddr, W)> {
        let place = self.round.iter().position(may)?;
        let client = self.round.remove(place)?;
        let queue = self.queues.get_mut(&client)?;
        let who = queue.pop_front();
        self.len -= 1;
        if queue.is_empty() {
            self.queues.remove(&client);
        } else {
            self.round.push_back(client);
        }
        who.map(|who| (client, who))
    }

    pub fn has(&self, client: &IpAddr) -> bool {
        self.queues.contains_key(client)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many clients have something waiting.
    pub fn clients(&self) -> usize {
        self.round.len()
    }
}

#[derive(Debug)]
struct Places {
    free: usize,
    waiting: FairQueue<oneshot::Sender<Turn>>,
}

/// A number of places, and the clients that wait for one.
#[derive(Debug, Clone)]
pub struct Turns(Arc<Mutex<Places>>);

impl Turns {
    /// So many places, at least one.
    pub fn new(places: usize) -> Turns {
        Turns(Arc::new(Mutex::new(Places { free: places.max(1), waiting: FairQueue::default() })))
    }

    /// Waits for a place. Nobody waits while one is free.
    pub async fn wait(&self, client: IpAddr) -> Turn {
        let turn = {
            let mut places = self.lock();
            if places.free > 0 {
                places.free -= 1;
                return self.turn(client, true);
            }
            let (who, turn) = oneshot::channel();
            places.waiting.push(client, who);
            turn
        };
        // The queue is part of `self` and holds the sender, which is never dropped without sending.
        turn.await.unwrap_or_else(|_| self.turn(client, false))
    }

    /// Lets all that wait go on, without places.
    pub fn let_all_go(&self) {
        loop {
            let next = self.lock().waiting.pop_of(|_| true);
            let Some((client, next)) = next else { return };
            // Who has given up does not go on.
            let _ = next.send(self.turn(client, false));
        }
    }

    /// How many calls wait, and of how many clients.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let places = self.lock();
        (places.waiting.len(), places.waiting.clients())
    }

    fn turn(&self, client: IpAddr, held: bool) -> Turn {
        Turn { of: Some((self.clone(), client)), held }
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call's place among those that run; given back when dropped.
#[derive(Debug)]
pub struct Turn {
    of: Option<(Turns, IpAddr)>,
    held: bool,
}

impl Turn {
    /// A turn for a call that needs no place.
    pub fn free() -> Turn {
        Turn { of: None, held: false }
    }

    /// Gives the place to the next call in turn.
    pub fn give(&mut self) {
        let Some((turns, _)) = &self.of else { return };
        while self.held {
            let next = {
                let mut places = turns.lock();
                let next = places.waiting.pop();
                places.free += usize::from(next.is_none());
                next
            };
            self.held = false;
            let Some(next) = next else { return };
            // The client does not matter to a turn that is only given back.
            let turn = Turn { of: self.of.clone(), held: true };
            if let Err(mut back) = next.send(turn) {
                // A call that has given up does not take the place: the next one does.
                back.held = false;
                self.held = true;
            }
        }
    }

    /// Runs `work`. When it first waits, the place is given back; [`Turn::again`] asks for another.
    pub async fn during<T>(&mut self, work: Pin<&mut impl Future<Output = T>>) -> T {
        if_it_waits(work, || self.give()).await
    }

    /// Waits for a place, unless this has one.
    pub async fn again(&mut self) {
        if let (false, Some((turns, client))) = (self.held, &self.of) {
            *self = turns.wait(*client).await;
        }
    }

    /// Runs `work`, which may wait, before the call itself can run. Afterwards the call has its place or another one.
    pub async fn before<T>(&mut self, work: Pin<&mut impl Future<Output = T>>) -> T {
        let done = self.during(work).await;
        self.again().await;
        done
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.give();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;
    use proptest::prelude::*;

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    /// A thousand of one client wait; the first of the other is next but one, and then every second.
    #[test]
    fn a_flood_does_not_starve_another() {
        let mut queue = FairQueue::default();
        (0..1000).for_each(|i| queue.push(ip(1), i));
        queue.push(ip(2), 5000);
        queue.push(ip(2), 5001);
        assert_eq!((queue.len(), queue.clients()), (1002, 2));
        let order: Vec<i32> = std::iter::from_fn(|| queue.pop()).take(6).collect();
        assert_eq!(order, [0, 5000, 1, 5001, 2, 3]);
    }

    proptest! {
        /// Between two turns of a client that waits no other client has two; each queue keeps its order; nobody is lost.
        #[test]
        fn everybody_has_a_turn(steps in prop::collection::vec((0u8..5, any::<bool>()), 1..200)) {
            let mut queue = FairQueue::default();
            let mut number = 0u32;
            let mut since: HashMap<IpAddr, HashMap<IpAddr, u32>> = HashMap::new();
            let mut last: HashMap<IpAddr, u32> = HashMap::new();
            let mut left = 0usize;
            for (client, pops) in steps {
                if !pops {
                    number += 1;
                    left += 1;
                    if !queue.queues.contains_key(&ip(client)) {
                        since.remove(&ip(client));
                    }
                    queue.push(ip(client), (ip(client), number));
                } else if let Some((who, n)) = queue.pop() {
                    left -= 1;
                    prop_assert!(last.insert(who, n).is_none_or(|before| before < n));
                    since.remove(&who);
                    for waiting in queue.queues.keys().filter(|w| **w != who) {
                        let got = since.entry(*waiting).or_default().entry(who).or_default();
                        *got += 1;
                        prop_assert!(*got <= 1);
                    }
                } else {
                    prop_assert_eq!(left, 0);
                }
                prop_assert_eq!((queue.len(), queue.clients()), (left, queue.queues.len()));
            }
        }
    }

    #[tokio::test]
    async fn all_who_wait_can_be_let_go() {
        let turns = Turns::new(1);
        let mut first = turns.wait(ip(1)).await;
        let mut waiting: Vec<_> = (0..3).map(|n| Box::pin(turns.wait(ip(n)))).collect();
        for wait in &mut waiting {
            assert!(poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx).is_pending())).await);
        }
        turns.let_all_go();
        for wait in waiting {
            assert!(!wait.await.held);
        }
        first.give();
        assert!(turns.wait(ip(2)).await.held, "the one place is free again, and only one");
        assert_eq!(turns.lock().free, 1);
    }

    #[tokio::test]
    async fn who_gives_up_takes_no_place() {
        let turns = Turns::new(1);
        let first = turns.wait(ip(1)).await;
        let gone = tokio::spawn({
            let turns = turns.clone();
            async move { drop(turns.wait(ip(1)).await) }
        });
        while turns.waiting() == (0, 0) {
            tokio::task::yield_now().await;
        }
        gone.abort();
        assert!(gone.await.is_err());
        drop(first);
        drop(turns.wait(ip(2)).await);
        assert_eq!((turns.waiting(), turns.lock().free), ((0, 0), 1));
    }

    #[tokio::test]
    async fn who_waits_for_something_else_has_no_place() {
        let turns = Turns::new(1);
        let mut turn = turns.wait(ip(1)).await;
        assert_eq!(turn.before(pin!(async { 7 })).await, 7);
        assert_eq!(turns.lock().free, 0, "what does not wait keeps the place");
        let seen = turn
            .before(pin!(async {
                tokio::task::yield_now().await;
                turns.lock().free
            }))
            .await;
        assert_eq!((seen, turns.lock().free), (1, 0));
        drop(turn);
        assert_eq!(turns.lock().free, 1);
    }
}
