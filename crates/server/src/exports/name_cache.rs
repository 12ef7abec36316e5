//! Looks up what callers do not say themselves: the names of their addresses, the groups of their users.
//!
//! A look-up may take a name server's time. So a few separate threads make it, and the results are kept
//! ([`limits::KNOWN_MS`]). A request that needs one waits a little. If the answer is not there in time, the access
//! check says so, and the client tries again. Nobody else waits. An old answer serves until the new one is there, at
//! most for [`limits::KNOWN_STALE_MS`]. While no answer comes at all, an unknown caller gets nothing.
//!
//! A call by datagram does not wait ([`Wait::No`]): whoever forges the addresses of its datagrams could make any number wait. What they
//! ask for takes no answer's place that somebody on a connection has asked for, no more than half of all places, and few of the look-ups
//! that are under way at a time.

use super::hosts::Asked;
use super::rules::{ClientSpec, Names};
use crate::limits;
use crate::pool::Pool;
use crate::state::Millis;
use crate::sys;
use landfast_rpc::shares::ShareCounts;
use landfast_rpc::{RateLimit, share_of};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Notify;

pub(crate) trait Source: Send + Sync + 'static {
    /// The names of an address, as far as `asked` matters, with what of that could be judged. `None`: no answer.
    fn names(&self, addr: IpAddr, asked: &Asked) -> Option<Names>;
    /// The addresses of a name; empty for an unknown one. `None`: no answer.
    fn addresses(&self, name: &str) -> Option<Vec<IpAddr>>;
    /// A user's groups; an unknown user has none. `None`: no answer.
    fn groups(&self, uid: u32) -> Option<Vec<u32>>;
}

/// Whether a call waits for an answer that is not there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// For as long as [`limits::KNOWN_WAIT_MS`].
    ALittle,
    /// It goes on without; the answer is there when its client tries again.
    No,
}

pub(crate) struct System;

/// A netgroup cannot be judged. Clients that wait for that hear no reason.
fn say_unknown(group: &str, e: &io::Error) {
    static UNKNOWN: RateLimit = RateLimit::new();
    UNKNOWN.warn(|more| {
        tracing::warn!(
            "netgroup @{group}: {e}. Clients whom only a rule after it lets in wait: make it known, or take it out of the rules{more}"
        );
    });
}

impl Source for System {
    fn names(&self, addr: IpAddr, asked: &Asked) -> Option<Names> {
        let mut found = Names::default();
        let mut judged = Asked::new();
        if let Some(name) = sys::name(addr).ok()? {
            // The owner of an address can give it any name, so the name must resolve back to it.
            if sys::addresses(&name).ok()?.contains(&addr) {
                found.names.push(name);
            }
        }
        for from in asked {
            match from {
                ClientSpec::Host(host) => {
                    let known = found.names.contains(host);
                    match if known { Ok(true) } else { sys::addresses(host).map(|all| all.contains(&addr)) } {
                        Ok(true) => found.hosts.push(host.clone()),
                        Ok(false) => {}
                        Err(_) => continue,
                    }
                }
                ClientSpec::Netgroup(group) => {
                    let text = addr.to_string();
                    let mut names = found.names.iter().chain([&text]);
                    let within =
                        names.try_fold(
                            false,
                            |within, name| {
                                if within { Ok(true) } else { sys::in_netgroup(group, name) }
                            },
                        );
                    match within.inspect_err(|e| say_unknown(group, e)) {
                        Ok(true) => found.netgroups.push(group.clone()),
                        Ok(false) => {}
                        Err(_) => continue,
                    }
                }
                _ => {}
            }
            judged.insert(from.clone());
        }
        found.asked = Arc::new(judged);
        Some(found)
    }

    fn addresses(&self, name: &str) -> Option<Vec<IpAddr>> {
        sys::addresses(name).ok().map(|all| all.into_iter().map(|a| a.to_canonical()).collect())
    }

    fn groups(&self, uid: u32) -> Option<Vec<u32>> {
        sys::groups(uid, limits::GROUPS_MAX).ok().map(Option::unwrap_or_default)
    }
}

struct Answers<K, V> {
    all: HashMap<K, Answer<V>>,
    /// Answers to questions of an earlier generation are dropped.
    generation: u64,
    /// What the rules of this generation name.
    asked: Arc<Asked>,
}

struct Answer<V> {
    value: Option<Arc<V>>,
    at: Millis,
    asking: bool,
    brief: bool,
}

enum State<V> {
    Fresh(Arc<V>),
    /// The caller must look it up.
    Ask(Option<Arc<V>>),
    /// Somebody is looking it up.
    Asked(Option<Arc<V>>),
}

impl<K: Eq + Hash + Clone, V> Answers<K, V> {
    fn new() -> Self {
        Answers { all: HashMap::new(), generation: 0, asked: Arc::default() }
    }

    fn look(&self, key: &K, now: Millis) -> State<V> {
        let Some(answer) = self.all.get(key) else { return State::Ask(None) };
        let age = now.saturating_sub(answer.at);
        let usable = answer.value.clone().filter(|_| age < limits::KNOWN_STALE_MS);
        match usable {
            Some(value) if age < if answer.brief { limits::KNOWN_BRIEFLY_MS } else { limits::KNOWN_MS } => {
                State::Fresh(value)
            }
            old if answer.asking => State::Asked(old),
            old => State::Ask(old),
        }
    }

    /// Returns a generation, and what its rules name, to the caller that must look it up and then call
    /// [`Answers::answered`]; `None` when somebody does that already, or there is no place.
    fn begin(&mut self, key: &K, now: Millis, wait: Wait) -> Option<(u64, Arc<Asked>)> {
        if !self.all.contains_key(key) {
            self.make_place(now, wait)?;
        }
        let new = Answer { value: None, at: now, asking: false, brief: false };
        let answer = self.all.entry(key.clone()).or_insert(new);
        if std::mem::replace(&mut answer.asking, true) {
            return None;
        }
        Some((self.generation, self.asked.clone()))
    }

    fn make_place(&mut self, now: Millis, wait: Wait) -> Option<()> {
        if wait == Wait::No && self.all.len() >= limits::KNOWN_BY_DATAGRAM_MAX {
            // What is too old to be used keeps nobody out.
            self.all.retain(|_, a| a.asking || now.saturating_sub(a.at) < limits::KNOWN_STALE_MS);
            if self.all.len() >= limits::KNOWN_BY_DATAGRAM_MAX {
                return None;
            }
        }
        if self.all.len() >= limits::KNOWN_MAX {
            // Drop the oldest half.
            let mut ages: Vec<Millis> = self.all.values().map(|a| a.at).collect();
            ages.sort_unstable();
            let middle = ages.get(ages.len() / 2).copied().unwrap_or(now);
            self.all.retain(|_, a| a.asking || a.at > middle);
        }
        Some(())
    }

    /// The answer to a question, and whether it is a brief one: it leaves something open, and is asked for again soon.
    fn answered(&mut self, key: &K, generation: u64, value: Option<(V, bool)>, now: Millis) {
        if generation == self.generation
            && let Some(answer) = self.all.get_mut(key)
        {
            answer.asking = false;
            match value {
                Some((value, brief)) => {
                    (answer.value, answer.at, answer.brief) = (Some(Arc::new(value)), now, brief);
                }
                None if answer.value.is_none() => drop(self.all.remove(key)),
                None => {}
            }
        }
    }
}

struct Inner {
    source: Box<dyn Source>,
    started: std::time::Instant,
    names: Mutex<Answers<IpAddr, Names>>,
    /// Clients with look-ups of names and addresses in progress.
    asking: Mutex<ShareCounts>,
    /// Clients with look-ups of users in progress.
    users: Mutex<ShareCounts>,
    addresses: Mutex<Answers<String, Vec<IpAddr>>>,
    groups: Mutex<Answers<u32, Vec<u32>>>,
    told: Notify,
}

impl Inner {
    fn now(&self) -> Millis {
        self.started.elapsed().as_millis() as Millis
    }
}

pub(crate) struct NameCache {
    inner: Arc<Inner>,
    threads: Pool,
}

impl NameCache {
    pub(crate) fn new(source: Box<dyn Source>) -> std::io::Result<NameCache> {
        let inner = Inner {
            source,
            started: std::time::Instant::now(),
            names: Mutex::new(Answers::new()),
            asking: Mutex::new(ShareCounts::new(
                limits::KNOWN_ASKING_MAX,
                limits::KNOWN_ASKING_CLIENT_MAX,
                1,
            )),
            users: Mutex::new(ShareCounts::new(limits::KNOWN_USERS_MAX, limits::KNOWN_USERS_CLIENT_MAX, 1)),
            addresses: Mutex::new(Answers::new()),
            groups: Mutex::new(Answers::new()),
            told: Notify::new(),
        };
        Ok(NameCache { inner: Arc::new(inner), threads: Pool::new(limits::KNOWN_THREADS)? })
    }

    /// Called when there are other rules: from now on names are looked up for what these name.
    pub(crate) fn forget(&self, asked: Arc<Asked>) {
        let mut names = self.inner.names.lock();
        names.all.clear();
        names.generation += 1;
        names.asked = asked;
    }

    /// The names of an address if they are known now; starts no look-up.
    pub(crate) fn names_now(&self, addr: IpAddr) -> Option<Arc<Names>> {
        let names = self.inner.names.lock();
        let known = names.all.get(&addr)?;
        let age = self.inner.now().saturating_sub(known.at);
        known.value.clone().filter(|_| age < limits::KNOWN_STALE_MS)
    }

    /// The names of an address; `None` when they are not known in time.
    pub(crate) async fn names(&self, addr: IpAddr, wait: Wait) -> Option<Arc<Names>> {
        let find = move |source: &dyn Source, asked: Arc<Asked>| {
            let found = source.names(addr, &asked)?;
            // Most often all of it: then there is one list for all addresses.
            let brief = found.asked.len() < asked.len();
            Some((if brief { found } else { Names { asked, ..found } }, brief))
        };
        self.ask(|inner| &inner.names, |inner| &inner.asking, (addr, wait), addr, find).await
    }

    /// The addresses of a name given by somebody at `by`; `None` when they are not known in time.
    pub(crate) async fn addresses(&self, by: IpAddr, name: &str) -> Option<Arc<Vec<IpAddr>>> {
        let name = name.to_owned();
        let asked = name.clone();
        let find = move |source: &dyn Source, _| Some((source.addresses(&asked)?, false));
        self.ask(|inner| &inner.addresses, |inner| &inner.asking, (by, Wait::ALittle), name, find).await
    }

    /// The groups of a user, who calls from `by`; `None` when they are not known in time.
    pub(crate) async fn groups(&self, by: IpAddr, uid: u32, wait: Wait) -> Option<Arc<Vec<u32>>> {
        let find = move |source: &dyn Source, _| Some((source.groups(uid)?, false));
        self.ask(|inner| &inner.groups, |inner| &inner.users, (by, wait), uid, find).await
    }

    /// Looks a question up; `find` says also whether its answer is to be asked for again soon. A client with many questions has few look-ups at a time, and keeps no thread from others.
    async fn ask<K, V>(
        &self,
        answers: fn(&Inner) -> &Mutex<Answers<K, V>>,
        asking: fn(&Inner) -> &Mutex<ShareCounts>,
        (by, wait): (IpAddr, Wait),
        key: K,
        find: impl Fn(&dyn Source, Arc<Asked>) -> Option<(V, bool)> + Clone + Send + 'static,
    ) -> Option<Arc<V>>
    where
        K: Eq + Hash + Clone + Send + 'static,
        V: Send + Sync + 'static,
    {
        let share = share_of(by);
        let ask = |inner: &Arc<Inner>| {
            let mut counts = asking(inner).lock();
            let crowded = wait == Wait::No && counts.used() >= limits::KNOWN_ASKING_BY_DATAGRAM_MAX;
            if crowded || !counts.take(share, 1) {
                return;
            }
            drop(counts);
            let Some((generation, asked)) = answers(inner).lock().begin(&key, inner.now(), wait) else {
                return asking(inner).lock().give(share, 1);
            };
            let (inner, key, find) = (inner.clone(), key.clone(), find.clone());
            self.threads.run_for(share, move || {
                let found = find(&*inner.source, asked);
                answers(&inner).lock().answered(&key, generation, found, inner.now());
                asking(&inner).lock().give(share, 1);
                inner.told.notify_waiters();
            });
        };
        let look = |inner: &Inner| answers(inner).lock().look(&key, inner.now());
        match wait {
            Wait::ALittle => self.get(look, ask).await,
            Wait::No => match look(&self.inner) {
                State::Fresh(value) => Some(value),
                State::Ask(old) => {
                    ask(&self.inner);
                    old
                }
                State::Asked(old) => old,
            },
        }
    }

    async fn get<V>(&self, look: impl Fn(&Inner) -> State<V>, ask: impl Fn(&Arc<Inner>)) -> Option<Arc<V>> {
        let wait = tokio::time::sleep(std::time::Duration::from_millis(limits::KNOWN_WAIT_MS));
        tokio::pin!(wait);
        let mut asked = false;
        loop {
            let mut told = std::pin::pin!(self.inner.told.notified());
            told.as_mut().enable();
            match look(&self.inner) {
                State::Fresh(value) => return Some(value),
                State::Ask(old) => {
                    // If no answer came, the next request asks again.
                    if asked || old.is_some() {
                        if !asked {
                            ask(&self.inner);
                        }
                        return old;
                    }
                    ask(&self.inner);
                    asked = true;
                }
                State::Asked(Some(old)) => return Some(old),
                State::Asked(None) => {}
            }
            tokio::select! {
                () = &mut wait => return None,
                () = told => {}
            }
        }
    }
}

impl std::fmt::Debug for NameCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NameCache").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// Knows one name for all, when it is let answer.
    #[derive(Clone, Default)]
    struct Fake {
        asked: Arc<AtomicUsize>,
        silent: Arc<AtomicBool>,
    }

    impl Source for Fake {
        fn names(&self, _: IpAddr, asked: &Asked) -> Option<Names> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let names = vec!["a.example.org".into()];
            let found = Names { names, asked: Arc::new(asked.clone()), ..Names::default() };
            (!self.silent.load(Ordering::SeqCst)).then_some(found)
        }

        fn addresses(&self, name: &str) -> Option<Vec<IpAddr>> {
            Some(if name == "a" { vec![addr()] } else { Vec::new() })
        }

        fn groups(&self, uid: u32) -> Option<Vec<u32>> {
            Some(vec![uid + 1])
        }
    }

    fn addr() -> IpAddr {
        IpAddr::from([10, 0, 0, 1])
    }

    #[tokio::test]
    async fn asked_once_and_remembered_until_the_rules_change() {
        let fake = Fake::default();
        let known = NameCache::new(Box::new(fake.clone())).expect("threads");
        let (a, b) = tokio::join!(known.names(addr(), Wait::ALittle), known.names(addr(), Wait::ALittle));
        assert!(a.is_some() && a == b);
        assert!(known.names(addr(), Wait::ALittle).await.is_some());
        assert_eq!(fake.asked.load(Ordering::SeqCst), 1);
        known.forget(Arc::default());
        assert!(known.names(addr(), Wait::ALittle).await.is_some());
        assert_eq!(fake.asked.load(Ordering::SeqCst), 2);
        assert_eq!(known.groups(addr(), 5, Wait::ALittle).await.as_deref(), Some(&vec![6]));
        assert_eq!(known.addresses(addr(), "a").await.as_deref(), Some(&vec![addr()]));
        assert_eq!(known.addresses(addr(), "b").await.as_deref(), Some(&Vec::new()));
    }

    #[tokio::test]
    async fn no_answer_is_not_remembered() {
        let fake = Fake::default();
        fake.silent.store(true, Ordering::SeqCst);
        let known = NameCache::new(Box::new(fake.clone())).expect("threads");
        assert_eq!(known.names(addr(), Wait::ALittle).await, None);
        fake.silent.store(false, Ordering::SeqCst);
        assert!(known.names(addr(), Wait::ALittle).await.is_some());
    }

    /// Knows nobody before it is let go on.
    #[derive(Clone, Default)]
    struct Slow(Arc<(Mutex<bool>, parking_lot::Condvar)>);

    impl Source for Slow {
        /// Is all that is asked, when it is let go on.
        fn names(&self, _: IpAddr, asked: &Asked) -> Option<Names> {
            let mut goes_on = self.0.0.lock();
            self.0.1.wait_while(&mut goes_on, |goes_on| !*goes_on);
            let hosts = asked.iter().map(ToString::to_string).collect();
            Some(Names { hosts, asked: Arc::new(asked.clone()), ..Names::default() })
        }

        fn addresses(&self, name: &str) -> Option<Vec<IpAddr>> {
            (name == "here").then(|| vec![addr()])
        }

        fn groups(&self, uid: u32) -> Option<Vec<u32>> {
            if uid != 5 {
                let mut goes_on = self.0.0.lock();
                self.0.1.wait_while(&mut goes_on, |goes_on| !*goes_on);
            }
            Some(vec![uid])
        }
    }

    /// Lets it go on at the end, however that comes.
    struct GoesOn(Slow);

    impl Drop for GoesOn {
        fn drop(&mut self) {
            *self.0.0.0.lock() = true;
            self.0.0.1.notify_all();
        }
    }

    #[tokio::test]
    async fn a_client_with_many_users_keeps_nobody_else_from_an_answer_and_is_bounded() {
        let slow = Slow::default();
        let known = Arc::new(NameCache::new(Box::new(slow.clone())).expect("threads"));
        let _goes_on = GoesOn(slow);
        let other = IpAddr::from([10, 0, 0, 2]);
        for uid in 1000..1000 + 2 * limits::KNOWN_USERS_MAX as u32 {
            let known = known.clone();
            tokio::spawn(async move { known.groups(addr(), uid, Wait::ALittle).await });
        }
        for _ in 0..2 * limits::KNOWN_USERS_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(known.inner.users.lock().of(addr()), limits::KNOWN_USERS_CLIENT_MAX);
        // On a busy machine its thread may come later than the wait ends; the answer is there for who asks again.
        let begun = std::time::Instant::now();
        let waits = || assert!(begun.elapsed() < std::time::Duration::from_secs(60), "no answer");
        let groups = loop {
            match known.groups(other, 5, Wait::ALittle).await {
                Some(groups) => break groups,
                None => waits(),
            }
        };
        assert_eq!(*groups, [5]);
        let addresses = loop {
            match known.addresses(other, "here").await {
                Some(addresses) => break addresses,
                None => waits(),
            }
        };
        assert_eq!(*addresses, [addr()]);
        assert!(known.inner.groups.lock().all.len() <= limits::KNOWN_MAX + limits::KNOWN_USERS_MAX);
    }

    #[tokio::test]
    async fn calls_by_datagram_from_many_senders_leave_look_ups_to_calls_on_connections() {
        let slow = Slow::default();
        let known = NameCache::new(Box::new(slow.clone())).expect("threads");
        let _goes_on = GoesOn(slow);
        let sender = |n: usize| IpAddr::from([10, 1, (n / 256) as u8, (n % 256) as u8]);
        for n in 0..4 * limits::KNOWN_ASKING_MAX {
            assert_eq!(known.names(sender(n), Wait::No).await, None);
        }
        assert_eq!(known.inner.asking.lock().used(), limits::KNOWN_ASKING_BY_DATAGRAM_MAX);
        assert_eq!(known.names(addr(), Wait::ALittle).await, None, "nobody answers");
        assert_eq!(known.inner.asking.lock().of(addr()), 1, "it is asked about");
    }

    /// Two requests wait for the names of their address while the rules change; the second goes on to ask when the answer
    /// for the first is dropped.
    #[tokio::test]
    async fn what_is_asked_after_the_rules_have_changed_is_what_they_name() {
        let asked = |name: &str| Arc::new(Asked::from([ClientSpec::Host(name.into())]));
        let slow = Slow::default();
        let known = Arc::new(NameCache::new(Box::new(slow.clone())).expect("threads"));
        known.forget(asked("a"));
        let calls = [0, 1].map(|_| {
            let known = known.clone();
            tokio::spawn(async move { known.names(addr(), Wait::ALittle).await })
        });
        while !known.inner.names.lock().all.get(&addr()).is_some_and(|answer| answer.asking) {
            tokio::task::yield_now().await;
        }
        known.forget(asked("b"));
        drop(GoesOn(slow));
        for call in calls {
            let names = call.await.expect("no panic");
            assert!(names.is_none_or(|names| names.hosts == ["b"]));
        }
        let begun = std::time::Instant::now();
        let names = loop {
            match known.names(addr(), Wait::ALittle).await {
                Some(names) => break names,
                None => assert!(begun.elapsed() < std::time::Duration::from_secs(60), "no answer"),
            }
        };
        let b = ClientSpec::Host("b".into());
        assert_eq!((&names.hosts[..], b.matches(addr(), Some(&names))), (&["b".to_owned()][..], Some(true)));
        // Who has them for other rules knows nothing of what was not asked.
        assert_eq!(ClientSpec::Host("a".into()).matches(addr(), Some(&names)), None);
        assert_eq!(ClientSpec::Netgroup("a".into()).matches(addr(), Some(&names)), None);
    }

    /// The name server of netgroups does not answer, or knows no such group: whether the address is in it is not known. Of other rules all is
    /// known.
    #[tokio::test]
    async fn a_netgroup_that_nobody_knows_leaves_its_rule_alone_open() {
        let here = IpAddr::from([127, 0, 0, 1]);
        let group = ClientSpec::Netgroup("no such group".into());
        let [host, other] = ["localhost", "no-such-host.invalid"].map(|name| ClientSpec::Host(name.into()));
        let known = NameCache::new(Box::new(System)).expect("threads");
        known.forget(Arc::new(Asked::from([group.clone(), host.clone(), other.clone()])));
        let names = known.names(here, Wait::ALittle).await.expect("an answer");
        assert_eq!(host.matches(here, Some(&names)), Some(true));
        assert_eq!(group.matches(here, Some(&names)), None);
        assert!(known.inner.names.lock().all.get(&here).is_some_and(|answer| answer.brief));
        known.forget(Arc::new(Asked::from([host.clone()])));
        let names = known.names(here, Wait::ALittle).await.expect("an answer");
        assert_eq!((host.matches(here, Some(&names)), other.matches(here, Some(&names))), (Some(true), None));
        assert!(known.inner.names.lock().all.get(&here).is_some_and(|answer| !answer.brief));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut answers: Answers<usize, ()> = Answers::new();
        for i in 0..3 * limits::KNOWN_MAX {
            let now = i as Millis;
            assert!(matches!(answers.look(&i, now), State::Ask(None)));
            let (generation, _) = answers.begin(&i, now, Wait::ALittle).expect("nobody has asked");
            answers.answered(&i, generation, Some(((), false)), now);
            assert!(matches!(answers.look(&i, now), State::Fresh(_)));
            assert!(answers.all.len() <= limits::KNOWN_MAX);
        }
    }

    /// Whoever forges addresses of datagrams takes nobody's place who asks on a connection.
    #[test]
    fn what_is_asked_by_datagram_displaces_nothing() {
        let mut answers: Answers<usize, ()> = Answers::new();
        let mut ask = |key: usize, wait| {
            let begun = answers.begin(&key, key as Millis, wait);
            let told = begun
                .map(|(generation, _)| answers.answered(&key, generation, Some(((), false)), key as Millis));
            (told.is_some(), answers.all.len())
        };
        for key in 0..limits::KNOWN_BY_DATAGRAM_MAX {
            assert_eq!(ask(key, Wait::No), (true, key + 1));
        }
        assert_eq!(ask(limits::KNOWN_MAX, Wait::No), (false, limits::KNOWN_BY_DATAGRAM_MAX));
        assert!(ask(0, Wait::No).0, "what is known is asked for again");
        for key in limits::KNOWN_BY_DATAGRAM_MAX..limits::KNOWN_MAX {
            assert_eq!(ask(key, Wait::ALittle), (true, key + 1));
        }
        assert_eq!(ask(limits::KNOWN_MAX, Wait::No), (false, limits::KNOWN_MAX));
    }

    #[tokio::test]
    async fn who_does_not_wait_has_the_answer_when_he_comes_again() {
        let slow = Slow::default();
        let known = NameCache::new(Box::new(slow.clone())).expect("threads");
        let goes_on = GoesOn(slow);
        assert_eq!(known.names(addr(), Wait::No).await, None);
        assert!(known.inner.names.lock().all.get(&addr()).is_some_and(|answer| answer.asking));
        drop(goes_on);
        assert!(known.names(addr(), Wait::ALittle).await.is_some(), "the same look-up");
        assert!(known.names(addr(), Wait::No).await.is_some());
    }

    /// An address of which nothing is found out takes no place.
    #[test]
    fn no_answer_leaves_nothing_behind() {
        let mut answers: Answers<usize, ()> = Answers::new();
        let (generation, _) = answers.begin(&1, 0, Wait::ALittle).expect("nobody has asked");
        answers.answered(&1, generation, None, 0);
        assert!(answers.all.is_empty());
        for (now, value) in [(1, Some(((), false))), (2, None)] {
            let (generation, _) = answers.begin(&1, now, Wait::ALittle).expect("nobody has asked");
            answers.answered(&1, generation, value, now);
        }
        assert!(matches!(answers.look(&1, 3), State::Fresh(_)), "an answer stays");
    }
}
