//! The loop around items: COMPOUNDs out, replies in, until each item has its outcome.
//!
//! | the server says | what is done |
//! |---|---|
//! | an operation fails | its item ends so (or follows a link, ...); those behind it were not executed and are sent again |
//! | DELAY, GRACE, RESOURCE | the item and those behind it are sent again after a pause that grows, up to [`DELAY_PATIENCE`] |
//! | TOO_MANY_OPS, REQ_TOO_BIG, REP_TOO_BIG, ..., arguments that it cannot decode | the same with smaller COMPOUNDs from here on; an item that is too large alone fails |
//! | nothing, and the reply is lost for good | items that change nothing are sent again, up to [`DELAY_PATIENCE`]; the others say for themselves |
//! | what is no RPC record, each time | the same, with shorter replies from here on |

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Instant;

use landfast_nfs::v4::{CompoundRes, FileHandle, NfsStat, OpNum};
use landfast_rpc::{AcceptStat, CallError};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::action::Action;
use super::ahead::Ahead;
use super::item::{Item, Next, PathOf, Segment};
use super::outcome::{Failure, Outcome};
use super::pack::{Capacity, Packed, Packer, Prefix, base_handle};
use super::queue::{Numbered, Queue};
use super::shared::Shared;
use super::untaken::Untaken;
use crate::compound::{OpError, Results};
use crate::limits::{BACKOFF_MAX, BACKOFF_MIN, DELAY_PATIENCE, GATHERED_MIN};
use crate::session::SessionError;

/// The error of an item whose companions failed.
const APART: &str = "what it goes with is not there";

/// The error of an item that was not started when a stop came.
const INTERRUPTED: &str = "interrupted";

/// A COMPOUND and its reply.
type Replied<A> = (Packed<Numbered<A>>, Result<CompoundRes, SessionError>);

/// Runs items to their results. `each` gets every result with the item's number (items are numbered in the order in
/// which they were given) and may add items.
pub(super) async fn run<A: Action>(
    shared: &Shared,
    items: impl IntoIterator<Item = Item<A>>,
    each: impl FnMut(usize, Item<A>, Outcome<A::Out>, &mut Vec<Item<A>>),
) {
    start(shared, items, each, None).await;
}

/// What bounds a [`run_gathered`].
#[derive(Clone, Copy)]
pub(super) struct Bounds<'a> {
    /// Items that change nothing are sent only as far as this allows, or if nothing else is in flight.
    pub(super) ahead: &'a Ahead,
    /// Results that the consumer has not taken. While they are too many, nothing is sent and no further reply is read.
    pub(super) untaken: Option<&'a Untaken>,
}

/// As [`run`], for work where each result adds items. Few items wait for others while something is in flight. Items that
/// change nothing are sent in the order of their turns, so that a tree is walked depth first.
pub(super) async fn run_gathered<A: Action>(
    shared: &Shared,
    items: impl IntoIterator<Item = Item<A>>,
    bounds: Bounds<'_>,
    each: impl FnMut(usize, Item<A>, Outcome<A::Out>, &mut Vec<Item<A>>),
) {
    start(shared, items, each, Some(bounds)).await;
}

async fn start<A: Action>(
    shared: &Shared,
    items: impl IntoIterator<Item = Item<A>>,
    each: impl FnMut(usize, Item<A>, Outcome<A::Out>, &mut Vec<Item<A>>),
    bounds: Option<Bounds<'_>>,
) {
    let looks = match bounds {
        Some(_) => Queue::Turns(BTreeMap::new()),
        None => Queue::Line(VecDeque::new()),
    };
    let mut run = Run {
        shared,
        given: 0,
        looks,
        changes: Queue::Line(VecDeque::new()),
        each,
        bounds,
        under_way: JoinSet::new(),
        looks_under_way: 0,
        pause: BACKOFF_MIN,
        pause_until: None,
        garbled: shared.session.stats().garbled,
    };
    for numbered in items.into_iter().enumerate() {
        run.given += 1;
        run.queue(&numbered.1).push(numbered);
    }
    run.drive().await;
}

struct Run<'a, A: Action, F> {
    shared: &'a Shared,
    /// Items that are ready, in two queues. A COMPOUND holds only changes or none, because the replies of changes must
    /// fit in what the server keeps for replay.
    looks: Queue<A>,
    changes: Queue<A>,
    given: usize,
    each: F,
    /// `None`: the items are not gathered.
    bounds: Option<Bounds<'a>>,
    under_way: JoinSet<Replied<A>>,
    /// Items in COMPOUNDs under way that change nothing.
    looks_under_way: usize,
    pause: std::time::Duration,
    pause_until: Option<Instant>,
    /// The session's count of calls that were given up for garbled replies, when this run last looked.
    garbled: u64,
}

impl<A: Action, F> Run<'_, A, F>
where
    F: FnMut(usize, Item<A>, Outcome<A::Out>, &mut Vec<Item<A>>),
{
    async fn drive(mut self) {
        loop {
            if let Some(untaken) = self.bounds.and_then(|bounds| bounds.untaken) {
                tokio::select! {
                    () = untaken.fewer() => {}
                    () = self.shared.stop_comes() => {}
                }
            }
            let stop = self.shared.stop_comes();
            if self.shared.stopped() {
                self.drop_untouched();
            }
            self.send();
            let idle = self.looks.is_empty() && self.changes.is_empty();
            if self.under_way.is_empty() && idle {
                return;
            }
            let pause = self.pause_until.filter(|_| !idle);
            let timer = async {
                match pause {
                    Some(until) => sleep_until(until.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(done) = self.under_way.join_next() => match done {
                    Ok((packed, reply)) => {
                        self.looks_under_way -= packed.looks();
                        self.take(packed, reply);
                    }
                    // A task panicked: nobody knows the results of its items. The runtime has reported it; the panic
                    // continues here.
                    Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
                    // Cancelled: the runtime is shutting down.
                    Err(_) => std::future::pending().await,
                },
                () = timer => {}
                () = stop => {}
            }
        }
    }

    fn queue(&mut self, item: &Item<A>) -> &mut Queue<A> {
        if item.changes() { &mut self.changes } else { &mut self.looks }
    }

    /// After a stop nothing new is started; what has been started goes on.
    fn drop_untouched(&mut self) {
        loop {
            let all: Vec<_> = self.changes.take_all().into_iter().chain(self.looks.take_all()).collect();
            let (begun, untouched): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, item)| item.begun());
            self.again(begun.into_iter());
            if untouched.is_empty() {
                return;
            }
            for (number, item) in untouched {
                self.end(number, item, Outcome::NotExecuted(INTERRUPTED.to_owned()));
            }
        }
    }

    /// Sends what is ready, within the session's slots.
    fn send(&mut self) {
        if self.pause_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.pause_until = None;
        let window = self.shared.window();
        while self.under_way.len() < window {
            // Changes go first: they keep items in memory.
            let packed = match self.pack(usize::MAX, |run| &mut run.changes) {
                None => self.pack(self.looks_max(), |run| &mut run.looks),
                packed => packed,
            };
            let Some(packed) = packed else { return };
            self.looks_under_way += packed.looks();
            let session = self.shared.session.clone();
            self.under_way.spawn(async move {
                let reply = session.compound_encoded(packed.body.clone(), packed.ops, packed.cachethis).await;
                (packed, reply)
            });
        }
    }

    /// How many items that change nothing the next COMPOUND may hold.
    fn looks_max(&self) -> usize {
        match self.bounds {
            None => usize::MAX,
            // What is next in the walk is sent however much has come before its turn.
            Some(Bounds { ahead, .. }) if self.under_way.is_empty() => {
                ahead.more(self.looks_under_way).max(ahead.together())
            }
            Some(Bounds { ahead, .. }) => ahead.more(self.looks_under_way),
        }
    }

    /// Packs ready items of one queue, at most `most`, in a COMPOUND.
    fn pack(&mut self, most: usize, queue: fn(&mut Self) -> &mut Queue<A>) -> Option<Packed<Numbered<A>>> {
        let mut capacity = *self.shared.capacity();
        let gathered = self.bounds.is_some();
        let waits = gathered && capacity.members > 1 && !self.under_way.is_empty();
        let together = match self.bounds {
            Some(bounds) if most != usize::MAX => bounds.ahead.together(),
            _ => GATHERED_MIN,
        };
        if most == 0 || waits && queue(self).len().min(most) < together {
            return None;
        }
        capacity.members = capacity.members.min(most);
        let mut packer = Packer::new(capacity, &self.shared.top);
        let mut with: HashSet<usize> = HashSet::new();
        let mut last: Vec<(Numbered<A>, Segment)> = Vec::new();
        let mut next = self.next_segment(&capacity, queue);
        while let Some((whose, segment)) = next.take() {
            if !whose.1.behind.is_empty() {
                last.push((whose, segment));
                next = self.next_segment(&capacity, queue);
                continue;
            }
            let number = gathered.then_some(whose.0);
            let after = self.next_segment(&capacity, queue);
            let more_here =
                after.as_ref().is_some_and(|(_, s)| s.place == segment.place && s.source.is_none());
            match packer.add(whose, segment, more_here) {
                None => {
                    with.extend(number);
                    next = after;
                }
                Some(whose) => {
                    if let Some((after, _)) = after {
                        queue(self).push_first(after);
                    }
                    queue(self).push_first(whose);
                }
            }
        }
        // A directory is requested after its entries.
        last.sort_unstable_by_key(|((number, _), _)| *number);
        for ((number, item), segment) in last {
            let goes = item.behind.iter().all(|number| with.contains(number));
            let left = match goes {
                true => packer.add((number, item), segment, false),
                false => Some((number, item)),
            };
            match left {
                None => _ = with.insert(number),
                Some((number, item)) => self.end(number, item, Outcome::NotExecuted(APART.to_owned())),
            }
        }
        // Items that ended here may have added others.
        if packer.is_empty() && !queue(self).is_empty() {
            return self.pack(most, queue);
        }
        (!packer.is_empty()).then(|| packer.finish())
    }

    fn next_segment(
        &mut self,
        capacity: &Capacity,
        queue: impl Fn(&mut Self) -> &mut Queue<A>,
    ) -> Option<(Numbered<A>, Segment)> {
        loop {
            let (number, mut item) = queue(self).pop()?;
            let segment = item.segment(&self.shared.dirs(), &capacity.room(), Instant::now());
            match segment {
                Ok(segment) => return Some(((number, item), segment)),
                Err(failure) => self.end(number, item, Outcome::Failed(failure)),
            }
        }
    }

    fn end(&mut self, number: usize, item: Item<A>, outcome: Outcome<A::Out>) {
        let mut more = Vec::new();
        (self.each)(number, item, outcome, &mut more);
        let first = self.given;
        self.given += more.len();
        let numbered: Vec<_> = more.into_iter().enumerate().map(|(n, item)| (first + n, item)).collect();
        if self.bounds.is_some() {
            self.again(numbered.into_iter());
        } else {
            for numbered in numbered {
                self.queue(&numbered.1).push(numbered);
            }
        }
    }

    fn take(&mut self, packed: Packed<Numbered<A>>, reply: Result<CompoundRes, SessionError>) {
        match reply {
            Ok(reply) => self.read(packed, reply),
            Err(SessionError::Refused(status)) => {
                let alone = packed.members.len() == 1;
                if self.smaller_or_later(&packed, alone, status) {
                    return self.again(packed.members.into_iter().map(|m| m.whose));
                }
                for member in packed.members {
                    let (number, item) = member.whose;
                    let failure = Failure::Status { op: OpNum::SEQUENCE, status };
                    self.end(number, item, Outcome::Failed(failure));
                }
            }
            Err(SessionError::Unknown(why)) => {
                let garbled = self.shared.session.stats().garbled;
                if std::mem::replace(&mut self.garbled, garbled) != garbled {
                    // A server that fails on its own reply may manage a shorter one.
                    self.shared.capacity().shorter_reply(packed.reply, packed.members.len() == 1);
                }
                let mut again = Vec::new();
                for member in packed.members {
                    let (number, mut item) = member.whose;
                    item.put_off += BACKOFF_MAX;
                    match item.lost(&why) {
                        Next::Again if item.put_off > DELAY_PATIENCE => {
                            self.end(number, item, Outcome::Unknown(why.clone()));
                        }
                        Next::Again => again.push((number, item)),
                        Next::End(outcome) => self.end(number, item, outcome),
                    }
                }
                self.again(again.into_iter());
            }
            // Ganesha decodes at most 1,024 operations, whatever it has granted.
            Err(SessionError::Rpc(CallError::Failed(AcceptStat::GarbageArgs)))
                if packed.members.len() > 1 && self.shared.capacity().fewer_ops(packed.ops, false) =>
            {
                self.again(packed.members.into_iter().map(|m| m.whose));
            }
            Err(e) => {
                for member in packed.members {
                    let (number, item) = member.whose;
                    self.end(number, item, Outcome::from(e.clone()));
                }
            }
        }
    }

    /// Puts items back at the front, in their order.
    fn again(&mut self, items: impl DoubleEndedIterator<Item = Numbered<A>>) {
        for numbered in items.rev() {
            self.queue(&numbered.1).push_first(numbered);
        }
    }

    /// Learns from a COMPOUND that was too large for the server or came too early. Returns `false` if it was neither,
    /// or if there is nothing left to give up.
    fn smaller_or_later(&mut self, packed: &Packed<Numbered<A>>, alone: bool, status: NfsStat) -> bool {
        let mut capacity = self.shared.capacity();
        match status {
            NfsStat::NFS4ERR_TOO_MANY_OPS => capacity.fewer_ops(packed.ops, alone),
            NfsStat::NFS4ERR_REQ_TOO_BIG => capacity.shorter_request(packed.body.len(), alone),
            NfsStat::NFS4ERR_REP_TOO_BIG => capacity.shorter_reply(packed.reply, alone),
            NfsStat::NFS4ERR_REP_TOO_BIG_TO_CACHE => {
                let less = capacity.reply_cached.min(packed.reply) / 2;
                std::mem::replace(&mut capacity.reply_cached, less) > 0
            }
            // Some servers use one status for all of these and for lack of memory, which a pause may cure.
            NfsStat::NFS4ERR_RESOURCE if !alone => capacity.fewer_ops(packed.ops, alone),
            NfsStat::NFS4ERR_DELAY | NfsStat::NFS4ERR_GRACE | NfsStat::NFS4ERR_RESOURCE => {
                drop(capacity);
                self.wait();
                true
            }
            _ => false,
        }
    }

    fn wait(&mut self) {
        self.pause_until = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(BACKOFF_MAX);
    }

    fn read(&mut self, mut packed: Packed<Numbered<A>>, reply: CompoundRes) {
        let status = reply.status;
        let mut results = Results::new(reply);
        let members = std::mem::take(&mut packed.members);
        let alone = members.len() == 1;
        let mut members = members.into_iter();
        let mut again = Vec::new();
        for member in members.by_ref() {
            let whose = member.whose;
            // The COMPOUND stopped at the last result.
            let done = results.remaining().saturating_sub(1);
            let stops_here = !status.is_ok() && done < member.lead.len() + member.own;
            if stops_here && self.put_off(&packed, alone, status, &whose.1) {
                let (number, mut item) = whose;
                item.put_off += self.pause;
                // What the segment has already done must not be done twice.
                let next = match done > member.lead.len() {
                    true => item.lost("the server stopped in the middle of it"),
                    false => Next::Again,
                };
                self.settle(number, item, next, &mut again);
                break;
            }
            let (number, mut item) = whose;
            let next = match walk(&member.lead, &mut results) {
                Ok(learnt) => {
                    if let (Some(fh), Some(steps)) = (learnt, &member.known_as) {
                        self.shared.dirs().learn(steps, fh, Instant::now());
                    }
                    self.pause = BACKOFF_MIN;
                    item.answer(&mut results)
                }
                Err((way, step, e)) => {
                    let place = match (way, &member.source) {
                        (PathOf::Source, Some(source)) => source,
                        _ => &member.place,
                    };
                    if let (None, Some(fh)) = (step, base_handle(place)) {
                        self.shared.dirs().forget_handle(fh);
                    }
                    item.unreached(way, place, step, e)
                }
            };
            self.settle(number, item, next, &mut again);
            if stops_here {
                break;
            }
        }
        // The items after it were not executed.
        again.extend(members.map(|m| m.whose));
        self.again(again.into_iter());
    }

    fn settle(&mut self, number: usize, item: Item<A>, next: Next<A::Out>, again: &mut Vec<Numbered<A>>) {
        match next {
            Next::Again => again.push((number, item)),
            Next::End(outcome) => self.end(number, item, outcome),
        }
    }

    /// The COMPOUND stopped within this item for a reason that is not the item's: it is sent again.
    fn put_off(
        &mut self,
        packed: &Packed<Numbered<A>>,
        alone: bool,
        status: NfsStat,
        item: &Item<A>,
    ) -> bool {
        item.put_off < DELAY_PATIENCE && self.smaller_or_later(packed, alone, status)
    }
}

/// Reads the results of the walk to a segment: a handle to remember, or where the walk ended.
fn walk(
    lead: &[Prefix],
    results: &mut Results,
) -> Result<Option<FileHandle>, (PathOf, Option<usize>, OpError)> {
    let mut learnt = None;
    for op in lead {
        match op {
            Prefix::Put(way, op) => drop(results.take(*op).map_err(|e| (*way, None, e))?),
            Prefix::Step(way, n, op) => drop(results.take(*op).map_err(|e| (*way, Some(*n), e))?),
            Prefix::Learn => learnt = Some(results.getfh().map_err(|e| (PathOf::Place, None, e))?),
            Prefix::Keep(op) => drop(results.take(*op).map_err(|e| (PathOf::Place, None, e))?),
        }
    }
    Ok(learnt)
}
