//! The locked byte ranges of one file. An operation costs O(log n) for each range that it touches, so a client that
//! locks very many ranges does not slow down the others.
//!
//! Invariants:
//! - Ranges of one owner never overlap, and neighbours of one owner and kind are joined.
//! - Ranges of two owners overlap only if both are shared.
//! - The index holds exactly the ranges of the owners.

use landfast_nfs::v4::NfsStat;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};

/// Bytes `start` to `end`, both included; an `end` of `u64::MAX` means the end of the file, wherever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: u64,
    end: u64,
}

impl Span {
    pub const ALL: Span = Span { start: 0, end: u64::MAX };

    /// The span of `offset4` and `length4` (RFC 8881 section 18.10.3): a length of all ones reaches to the end.
    /// Errors: `INVAL` for length 0, and where offset and length together are more than 64 bits: the last byte of all
    /// is locked with a length of all ones.
    pub fn new(offset: u64, length: u64) -> Result<Span, NfsStat> {
        match length {
            0 => Err(NfsStat::NFS4ERR_INVAL),
            u64::MAX => Ok(Span { start: offset, end: u64::MAX }),
            n => match offset.checked_add(n) {
                Some(next) => Ok(Span { start: offset, end: next - 1 }),
                None => Err(NfsStat::NFS4ERR_INVAL),
            },
        }
    }

    /// The bytes from the first to the last, both included; `None` if there are none.
    pub(super) fn of(first: u64, last: u64) -> Option<Span> {
        (first <= last).then_some(Span { start: first, end: last })
    }

    pub(super) fn first(&self) -> u64 {
        self.start
    }

    pub(super) fn last(&self) -> u64 {
        self.end
    }

    pub fn offset(&self) -> u64 {
        self.start
    }

    pub fn length(&self) -> u64 {
        if self.end == u64::MAX { u64::MAX } else { self.end - self.start + 1 }
    }

    pub fn to_the_end(&self) -> bool {
        self.end == u64::MAX
    }

    pub(super) fn overlaps(&self, other: &Span) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    pub(super) fn common(&self, other: &Span) -> Option<Span> {
        Span::of(self.start.max(other.start), self.end.min(other.end))
    }

    /// The parts of this span that are not in the other.
    fn without(&self, other: &Span) -> impl Iterator<Item = Span> + use<> {
        let before = other.start.checked_sub(1).and_then(|last| Span::of(self.start, self.end.min(last)));
        let after = other.end.checked_add(1).and_then(|first| Span::of(self.start.max(first), self.end));
        [before, after].into_iter().flatten()
    }
}

/// A locked range and the lock state (an owner on this file) that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) span: Span,
    pub(super) exclusive: bool,
    pub(super) state: u64,
}

/// One owner's ranges by start: end and kind.
type Own = BTreeMap<u64, (u64, bool)>;

#[derive(Debug, Default)]
pub(super) struct Ranges {
    owners: HashMap<u64, Own>,
    index: Index,
}

/// Ranges of one owner in a span, and whether each is exclusive. `None` if they are too many to remember.
pub type Held = Option<Vec<(Span, bool)>>;

/// `held` after `span` is given to its owner.
pub(super) fn given(held: Held, span: Span, exclusive: bool, most: usize) -> Held {
    let rest = held?.into_iter().flat_map(|(had, kind)| had.without(&span).map(move |part| (part, kind)));
    let all: Vec<_> = rest.chain([(span, exclusive)]).collect();
    Some(all).filter(|all| all.len() <= most)
}

/// The change in the number of ranges; negative when some are joined or removed.
pub(super) type Growth = isize;

fn overlapping(own: &Own, span: Span) -> impl Iterator<Item = Range> + '_ {
    own.range(..=span.end)
        .rev()
        .take_while(move |(_, (end, _))| *end >= span.start)
        .map(|(&start, &(end, exclusive))| Range { span: Span { start, end }, exclusive, state: 0 })
}

impl Ranges {
    /// The first lock, by start, of another state that is in the way.
    pub(super) fn conflict(&self, span: &Span, exclusive: bool, state: Option<u64>) -> Option<Range> {
        self.index.first(span.start, state, exclusive).filter(|r| r.span.start <= span.end)
    }

    /// The states other than `state` that have a range in the way, and how many states were examined, at most `most`.
    pub(super) fn all_in_the_way(
        &self,
        span: &Span,
        exclusive: bool,
        state: Option<u64>,
        most: usize,
    ) -> (Vec<u64>, usize) {
        let mut looked = 0;
        let found = self.owners.iter().take(most).inspect(|_| looked += 1).filter(|(id, own)| {
            Some(**id) != state && overlapping(own, *span).any(|r| exclusive || r.exclusive)
        });
        let found = found.map(|(id, _)| *id).collect();
        (found, looked)
    }

    /// The ranges of a state, and whether each is exclusive.
    pub(super) fn of(&self, state: u64) -> Vec<(Span, bool)> {
        let own = self.owners.get(&state).into_iter().flatten();
        own.map(|(&start, &(end, exclusive))| (Span { start, end }, exclusive)).collect()
    }

    /// What a state holds of a span, if that is at most `most` ranges.
    pub(super) fn held(&self, span: &Span, state: u64, most: usize) -> Held {
        let Some(own) = self.owners.get(&state) else { return Some(Vec::new()) };
        let parts = overlapping(own, *span).filter_map(|r| Some((r.span.common(span)?, r.exclusive)));
        Some(parts.take(most + 1).collect::<Vec<_>>()).filter(|parts| parts.len() <= most)
    }

    /// What a state still holds of `before`; exclusive is what was and still is.
    pub(super) fn still_held(&self, before: &[(Span, bool)], state: u64) -> Vec<(Span, bool)> {
        let Some(own) = self.owners.get(&state) else { return Vec::new() };
        let parts = |(span, exclusive): &(Span, bool)| {
            let (span, exclusive) = (*span, *exclusive);
            let now = overlapping(own, span);
            now.filter_map(move |r| Some((r.span.common(&span)?, exclusive && r.exclusive)))
        };
        before.iter().flat_map(parts).collect()
    }

    pub(super) fn count_of(&self, state: u64) -> usize {
        self.owners.get(&state).map_or(0, BTreeMap::len)
    }

    pub(super) fn holds(&self, state: u64) -> bool {
        self.owners.contains_key(&state)
    }

    /// By how many the number of ranges would grow with [`Ranges::clear`].
    pub(super) fn growth_of_clear(&self, span: &Span, state: u64) -> Growth {
        let Some(own) = self.owners.get(&state) else { return 0 };
        overlapping(own, *span)
            .map(|r| -1 + Growth::from(r.span.start < span.start) + Growth::from(r.span.end > span.end))
            .sum()
    }

    /// By how many the number of ranges would grow at most with [`Ranges::set`]: joining of neighbours is not
    /// considered.
    pub(super) fn growth_of_set(&self, span: &Span, state: u64) -> Growth {
        1 + self.growth_of_clear(span, state)
    }

    /// Takes `span` away from `state`, splitting ranges where necessary. Returns whether it held any of it.
    pub(super) fn clear(&mut self, span: &Span, state: u64) -> bool {
        let Some(own) = self.owners.get_mut(&state) else { return false };
        let touched: Vec<Range> = overlapping(own, *span).collect();
        for r in &touched {
            own.remove(&r.span.start);
            self.index.remove(r.span.start, state);
            let before = (r.span.start < span.start).then(|| (r.span.start, span.start - 1));
            let after = (r.span.end > span.end).then(|| (span.end + 1, r.span.end));
            for (start, end) in [before, after].into_iter().flatten() {
                own.insert(start, (end, r.exclusive));
                self.index.insert(Range { span: Span { start, end }, exclusive: r.exclusive, state });
            }
        }
        if own.is_empty() {
            self.owners.remove(&state);
        }
        !touched.is_empty()
    }

    /// Gives `span` to `state`. The caller has checked that nothing is in the way.
    pub(super) fn set(&mut self, span: Span, exclusive: bool, state: u64) {
        self.clear(&span, state);
        let own = self.owners.entry(state).or_default();
        let mut span = span;
        let before = own.range(..span.start).next_back().map(|(s, (e, x))| (*s, *e, *x));
        if let Some((start, end, kind)) = before
            && kind == exclusive
            && end.checked_add(1) == Some(span.start)
        {
            own.remove(&start);
            self.index.remove(start, state);
            span.start = start;
        }
        if let Some(next) = span.end.checked_add(1)
            && let Some(&(end, kind)) = own.get(&next)
            && kind == exclusive
        {
            own.remove(&next);
            self.index.remove(next, state);
            span.end = end;
        }
        own.insert(span.start, (span.end, exclusive));
        self.index.insert(Range { span, exclusive, state });
    }

    /// Removes all ranges of a state; returns their number.
    pub(super) fn drop_state(&mut self, state: u64) -> usize {
        let Some(own) = self.owners.remove(&state) else { return 0 };
        for start in own.keys() {
            self.index.remove(*start, state);
        }
        own.len()
    }

    pub(super) fn len(&self) -> usize {
        self.index.len
    }
}

/// The farthest end among some ranges, and the farthest of any other owner. So the farthest end not held by a given
/// owner is known.
#[derive(Debug, Clone, Copy, Default)]
struct Reach {
    best: Option<(u64, u64)>,
    other: Option<(u64, u64)>,
}

impl Reach {
    fn add(&mut self, item: Option<(u64, u64)>) {
        let Some((end, state)) = item else { return };
        match self.best {
            Some((_, of)) if of == state => self.best = self.best.max(item),
            Some((best, _)) if best >= end => match self.other {
                Some((other, _)) if other >= end => {}
                _ => self.other = item,
            },
            _ => {
                self.other = self.best;
                self.best = item;
            }
        }
    }

    fn join(&mut self, more: Reach) {
        self.add(more.best);
        self.add(more.other);
    }

    /// Whether a range of another owner than `state` reaches `from`.
    fn reaches(&self, from: u64, state: Option<u64>) -> bool {
        let farthest = match self.best {
            Some((_, of)) if Some(of) == state => self.other,
            best => best,
        };
        farthest.is_some_and(|(end, _)| end >= from)
    }
}

type Link = Option<Box<Node>>;

#[derive(Debug)]
struct Node {
    range: Range,
    priority: u64,
    left: Link,
    right: Link,
    /// Of this node and all below.
    all: Reach,
    /// Of the exclusive ranges among them.
    exclusive: Reach,
}

impl Node {
    fn key(&self) -> (u64, u64) {
        (self.range.span.start, self.range.state)
    }

    fn update(&mut self) {
        let own = Some((self.range.span.end, self.range.state));
        self.all = Reach { best: own, other: None };
        self.exclusive = Reach { best: own.filter(|_| self.range.exclusive), other: None };
        for below in [&self.left, &self.right].into_iter().flatten() {
            self.all.join(below.all);
            self.exclusive.join(below.exclusive);
        }
    }
}

/// All ranges of a file by start and owner: a treap (a search tree by key that is a heap by random priority, so of
/// logarithmic depth whatever the order of the keys). Nobody outside can know the priorities.
#[derive(Debug, Default)]
struct Index {
    root: Link,
    len: usize,
    made: u64,
    random: RandomState,
}

impl Index {
    fn insert(&mut self, range: Range) {
        self.made += 1;
        let priority = self.random.hash_one(self.made);
        let mut node = Box::new(Node {
            range,
            priority,
            left: None,
            right: None,
            all: Reach::default(),
            exclusive: Reach::default(),
        });
        node.update();
        let (left, right) = split(self.root.take(), node.key());
        self.root = merge(merge(left, Some(node)), right);
        self.len += 1;
    }

    fn remove(&mut self, start: u64, state: u64) {
        if remove(&mut self.root, (start, state)) {
            self.len -= 1;
        }
    }

    /// The first range by start that ends at `from` or later, is not `state`'s, and is exclusive unless `any`.
    fn first(&self, from: u64, state: Option<u64>, any: bool) -> Option<Range> {
        let reaches = |n: &Node| (if any { n.all } else { n.exclusive }).reaches(from, state);
        let mut at = self.root.as_deref().filter(|n| reaches(n))?;
        loop {
            if let Some(left) = at.left.as_deref().filter(|n| reaches(n)) {
                at = left;
                continue;
            }
            let r = at.range;
            if Some(r.state) != state && (any || r.exclusive) && r.span.end >= from {
                return Some(r);
            }
            at = at.right.as_deref().filter(|n| reaches(n))?;
        }
    }
}

/// Splits into what is before `key`, and the rest.
fn split(link: Link, key: (u64, u64)) -> (Link, Link) {
    let Some(mut node) = link else { return (None, None) };
    if node.key() < key {
        let (before, after) = split(node.right.take(), key);
        node.right = before;
        node.update();
        (Some(node), after)
    } else {
        let (before, after) = split(node.left.take(), key);
        node.left = after;
        node.update();
        (before, Some(node))
    }
}

/// Joins two trees; all keys of the first are before those of the second.
fn merge(a: Link, b: Link) -> Link {
    match (a, b) {
        (None, one) | (one, None) => one,
        (Some(mut a), Some(mut b)) => {
            if a.priority >= b.priority {
                a.right = merge(a.right.take(), Some(b));
                a.update();
                Some(a)
            } else {
                b.left = merge(Some(a), b.left.take());
                b.update();
                Some(b)
            }
        }
    }
}

fn remove(link: &mut Link, key: (u64, u64)) -> bool {
    let Some(node) = link else { return false };
    let found = match key.cmp(&node.key()) {
        Ordering::Less => remove(&mut node.left, key),
        Ordering::Greater => remove(&mut node.right, key),
        Ordering::Equal => {
            let (left, right) = (node.left.take(), node.right.take());
            *link = merge(left, right);
            return true;
        }
    };
    if found {
        node.update();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes of the model; the last stands for all from there on.
    const BYTES: u64 = 40;

    #[derive(Debug, Clone)]
    enum Step {
        Set(u64, u64, u64, bool),
        Clear(u64, u64, u64),
        Drop(u64),
    }

    fn span(start: u64, len: u64) -> Span {
        Span { start, end: if start + len >= BYTES { u64::MAX } else { start + len - 1 } }
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0..4u64, 0..BYTES, 1..20u64, any::<bool>()).prop_map(|(s, a, l, x)| Step::Set(s, a, l, x)),
            3 => (0..4u64, 0..BYTES, 1..20u64).prop_map(|(s, a, l)| Step::Clear(s, a, l)),
            1 => (0..4u64).prop_map(Step::Drop),
        ];
        prop::collection::vec(step, 0..80)
    }

    /// For each owner what it holds of each byte.
    type Model = Vec<Vec<Option<bool>>>;

    fn bytes(span: &Span) -> std::ops::Range<usize> {
        span.start as usize..(span.end.min(BYTES - 1) + 1) as usize
    }

    fn runs(model: &Model) -> Vec<(u64, u64, bool)> {
        let mut out = Vec::new();
        for (state, held) in model.iter().enumerate() {
            for (at, kind) in held.iter().enumerate() {
                if let Some(kind) = kind
                    && (at == 0 || held[at - 1] != Some(*kind))
                {
                    out.push((at as u64, state as u64, *kind));
                }
            }
        }
        out.sort_unstable();
        out
    }

    fn all(link: &Link, out: &mut Vec<(u64, u64, bool)>) {
        if let Some(n) = link {
            all(&n.left, out);
            out.push((n.range.span.start, n.range.state, n.range.exclusive));
            all(&n.right, out);
        }
    }

    fn depth(link: &Link) -> usize {
        link.as_ref().map_or(0, |n| 1 + depth(&n.left).max(depth(&n.right)))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        /// What the table says is what a table of bytes says, and its conflicts are the first of those there are.
        #[test]
        fn ranges_behave_like_bytes(steps in steps()) {
            let mut ranges = Ranges::default();
            let mut model: Model = vec![vec![None; BYTES as usize]; 4];
            for step in steps {
                match step {
                    Step::Set(state, at, len, exclusive) => {
                        let span = span(at, len);
                        let in_the_way = runs(&model).into_iter().find(|(start, of, kind)| {
                            let held = &model[*of as usize];
                            let end = (*start as usize..held.len()).take_while(|b| held[*b] == Some(*kind)).last();
                            *of != state && (*kind || exclusive) && *start < bytes(&span).end as u64
                                && end.is_some_and(|e| e >= bytes(&span).start)
                        });
                        let found = ranges.conflict(&span, exclusive, Some(state));
                        prop_assert_eq!(found.map(|r| (r.span.start, r.state, r.exclusive)), in_the_way);
                        if found.is_none() {
                            let most = ranges.len() as isize + ranges.growth_of_set(&span, state);
                            ranges.set(span, exclusive, state);
                            prop_assert!(ranges.len() as isize <= most && most - ranges.len() as isize <= 2);
                            model[state as usize][bytes(&span)].fill(Some(exclusive));
                        }
                    }
                    Step::Clear(state, at, len) => {
                        let span = span(at, len);
                        let held = model[state as usize][bytes(&span)].iter().any(Option::is_some);
                        let after = ranges.len() as isize + ranges.growth_of_clear(&span, state);
                        prop_assert_eq!(ranges.clear(&span, state), held);
                        prop_assert_eq!(ranges.len() as isize, after);
                        model[state as usize][bytes(&span)].fill(None);
                    }
                    Step::Drop(state) => {
                        let had = ranges.owners.get(&state).map_or(0, BTreeMap::len);
                        prop_assert_eq!(ranges.drop_state(state), had);
                        model[state as usize].fill(None);
                    }
                }
                let mut listed = Vec::new();
                all(&ranges.index.root, &mut listed);
                prop_assert_eq!(&listed, &runs(&model));
                prop_assert_eq!(ranges.len(), listed.len());
                for state in 0..4 {
                    prop_assert_eq!(ranges.holds(state), model[state as usize].iter().any(Option::is_some));
                }
            }
        }
    }

    /// Judged by the depth that a lookup may have to go, not by time.
    #[test]
    fn a_hundred_thousand_ranges_in_order_make_no_deep_tree() {
        let mut ranges = Ranges::default();
        for i in 0..100_000u64 {
            ranges.set(Span { start: 2 * i, end: 2 * i }, i % 2 == 0, i % 3);
        }
        assert_eq!(ranges.len(), 100_000);
        // The expected depth is about 40; the chance of more than 100 is beyond imagination.
        assert!(depth(&ranges.index.root) < 100, "depth {}", depth(&ranges.index.root));
        assert_eq!(ranges.conflict(&Span::ALL, true, Some(0)).map(|r| r.span.start), Some(2));
        assert_eq!(ranges.drop_state(1) + ranges.drop_state(2), 66_666);
        assert_eq!(ranges.conflict(&Span::ALL, true, Some(0)), None);
    }
}
