//! Whether what is there can be, after what a program did. No I/O.
//!
//! | what | must be so |
//! |---|---|
//! | names of a directory | those that it had for the program at some moment: after a first part of its steps, which has all that is stable |
//! | content of a file | that of a version which is not older than what is stable; of a version that was not closed, also its beginning; if the server ended in the middle of a request, of any that is not stable |
//! | mode of a file | one that it had, not older than what is stable |
//! | what is lost | not older than it may be |

use super::history::{HEADER_BYTES, History, How, Id, Kind, Names, Naming, Object, apply, text};
use crate::powercut::found::{FoundObject, Tree, Type};
use crate::serial::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Mistakes that are described.
const WRONG_SHOWN_MAX: usize = 12;

/// Names that are told of a directory that is wrong.
const NAMES_SHOWN_MAX: usize = 4;

/// What is there under the names of one directory.
pub type Entries<'a> = BTreeMap<String, &'a FoundObject>;

#[derive(Debug, Default)]
pub struct Verdict {
    /// Names that were found and compared.
    pub names: u64,
    /// Changes that are gone.
    pub lost: u64,
    /// How long before the end the oldest of them was done.
    pub oldest_lost: Duration,
    pub wrong: Vec<String>,
}

impl Verdict {
    pub fn add(&mut self, other: Verdict) {
        self.names += other.names;
        self.lost += other.lost;
        self.oldest_lost = self.oldest_lost.max(other.oldest_lost);
        self.wrong.extend(other.wrong);
        self.wrong.truncate(WRONG_SHOWN_MAX);
    }

    fn wrong(&mut self, what: String) {
        if self.wrong.len() < WRONG_SHOWN_MAX {
            self.wrong.push(what);
        }
    }

    fn loses(&mut self, done: Option<Duration>, end: Duration) {
        self.lost += u64::from(done.is_some());
        self.oldest_lost = self.oldest_lost.max(done.map_or(Duration::ZERO, |done| end.saturating_sub(done)));
    }
}

/// Whether what is there under a name can be an object.
fn is(history: &History, found: &FoundObject, (object, node): (Id, &Object), open: Duration) -> bool {
    match (&found.kind, node.kind) {
        (Type::File, Kind::File) => {
            let header = object.to_be_bytes();
            match found.bytes.get(..HEADER_BYTES) {
                Some(begins) => begins == header,
                // Of less than a header it is content and mode that tell it from the file that it has replaced.
                None => {
                    let mode = node.modes.is_empty() || node.modes.iter().any(|m| m.mode == found.mode);
                    let torn = || history.torn && part_there(object, node, &found.bytes).is_some();
                    mode && (version_there((object, node), &found.bytes, 0, open).is_some() || torn())
                }
            }
        }
        (Type::Other(Node::Dir), Kind::Dir) => true,
        (Type::Other(Node::Symlink(to)), Kind::Symlink) => *to == text(object).into_bytes(),
        _ => false,
    }
}

/// In how many of these names two states differ.
struct Difference<'a> {
    history: &'a History,
    /// As for [`version_there`].
    open: Duration,
    found: &'a Entries<'a>,
    names: Names,
    count: usize,
}

impl<'a> Difference<'a> {
    fn new(history: &'a History, found: &'a Entries<'a>, open: Duration) -> Difference<'a> {
        Difference { history, open, found, names: Names::new(), count: found.len() }
    }

    fn differs(&self, name: &str) -> bool {
        match (self.names.get(name), self.found.get(name)) {
            (None, None) => false,
            (Some(id), Some(found)) => {
                !self.history.get(*id).is_some_and(|node| is(self.history, found, (*id, node), self.open))
            }
            _ => true,
        }
    }

    fn step(&mut self, what: &Naming) {
        let touched: Vec<&String> = match what {
            Naming::Add { name, .. } | Naming::Remove { name } => vec![name],
            Naming::Rename { from, to } => vec![from, to],
        };
        let count = |d: &Self| touched.iter().filter(|name| d.differs(name)).count();
        let before = count(self);
        apply(&mut self.names, what);
        self.count = self.count - before + count(self);
    }
}

/// The most steps of a directory, not fewer than `least` and not more than `most`, after which it has these names, with the names'
/// objects. `open`: as for [`version_there`].
pub fn steps_there(
    history: &History,
    dir: &Object,
    found: &Entries<'_>,
    (least, most): (usize, usize),
    open: Duration,
) -> Option<(usize, Names)> {
    let mut now = Difference::new(history, found, open);
    let mut best = (now.count == 0 && least == 0).then(|| (0, now.names.clone()));
    for (n, step) in dir.steps.iter().take(most).enumerate() {
        now.step(&step.what);
        if now.count == 0 && n + 1 >= least {
            best = Some((n + 1, now.names.clone()));
        }
    }
    best
}

/// What is wrong with a directory's names that it never had: those of the moment that is nearest.
fn never(history: &History, dir: &Object, found: &Entries<'_>, least: usize) -> String {
    let mut now = Difference::new(history, found, STILL_OPEN);
    let mut nearest = (usize::MAX, 0, Names::new());
    for n in 0..=dir.steps.len() {
        if n >= least && now.count < nearest.0 {
            nearest = (now.count, n, now.names.clone());
        }
        if let Some(step) = dir.steps.get(n) {
            now.step(&step.what);
        }
    }
    let (_, n, names) = nearest;
    now.names = names.clone();
    let all: BTreeSet<&String> = names.keys().chain(found.keys()).collect();
    let differ: Vec<String> = all
        .into_iter()
        .filter(|name| now.differs(name))
        .take(NAMES_SHOWN_MAX)
        .map(|name| {
            let wanted = now.names.get(name).map_or("nothing".to_owned(), |id| format!("object {id}"));
            let got = found.get(name).map_or("nothing".to_owned(), |f| described(f));
            format!("{name}: {got}, not {wanted}")
        })
        .collect();
    format!(
        "its names are those of no moment; nearest is that after {n} of {} steps, of which {least} are stable: {}",
        dir.steps.len(),
        differ.join(", ")
    )
}

pub fn described(found: &FoundObject) -> String {
    match &found.kind {
        Type::File => match found.bytes.get(..HEADER_BYTES).and_then(|h| h.try_into().ok()) {
            Some(header) => format!("file {} of {} bytes", Id::from_be_bytes(header), found.bytes.len()),
            None => format!("a file of {} bytes", found.bytes.len()),
        },
        Type::Other(Node::Symlink(to)) => format!("a link to {}", to.escape_ascii()),
        Type::Other(node) => format!("{node:?}"),
    }
}

/// For [`version_there`]: open is what was never closed.
pub const STILL_OPEN: Duration = Duration::MAX;

/// Whether a file's bytes are those of a version from `least` on, or of the beginning of one that was not closed before `open`. Returns
/// the version.
pub fn version_there(
    (object, node): (Id, &Object),
    bytes: &[u8],
    least: usize,
    open: Duration,
) -> Option<usize> {
    let mut found = None;
    for n in least..node.versions.len() {
        let v = &node.versions[n];
        let whole = node.content(object, n);
        let before = match v.how {
            How::Fresh => 0,
            How::Appended => whole.len() - v.bytes,
        };
        let part =
            v.done.is_none_or(|closed| closed > open) && bytes.len() >= before && whole.starts_with(bytes);
        if whole == bytes || part {
            found = Some(n);
        }
    }
    // A file that was made, and of which no write has begun.
    found.or_else(|| (node.versions.is_empty() && bytes.is_empty()).then_some(0))
}

/// Whether a file's bytes are the beginning of a version that is not stable. Returns the version.
fn part_there(object: Id, node: &Object, bytes: &[u8]) -> Option<usize> {
    let is_part = |n: &usize| node.content(object, *n).starts_with(bytes);
    (node.stable_versions..node.versions.len()).rev().find(is_part)
}

/// What is below one directory, by directory.
pub struct Forest<'a> {
    dirs: BTreeMap<Vec<u8>, Entries<'a>>,
}

impl<'a> Forest<'a> {
    pub fn new(tree: &'a Tree) -> Forest<'a> {
        let mut dirs: BTreeMap<Vec<u8>, Entries<'a>> = BTreeMap::new();
        for (path, found) in tree {
            let (above, name) = crate::serial::action::split(path);
            let name = String::from_utf8_lossy(name).into_owned();
            dirs.entry(above.to_vec()).or_default().insert(name, found);
        }
        Forest { dirs }
    }

    pub fn entries(&self, path: &[u8]) -> Entries<'a> {
        self.dirs.get(path).cloned().unwrap_or_default()
    }

    /// What is at a path.
    pub fn at(&self, path: &[u8]) -> Option<&'a FoundObject> {
        let (above, name) = crate::serial::action::split(path);
        self.dirs.get(above)?.get(&*String::from_utf8_lossy(name)).copied()
    }
}

/// Compares what is there at `path` with what a program did in the directory `top`. The end came at `end`; what was done more than
/// `age_max` before is there.
pub fn check(
    history: &History,
    top: Id,
    (forest, path): (&Forest<'_>, &[u8]),
    end: Duration,
    age_max: Duration,
) -> Verdict {
    let mut verdict = Verdict::default();
    let mut there: BTreeMap<Id, usize> = BTreeMap::new();
    let mut left = vec![(path.to_vec(), top)];
    while let Some((path, id)) = left.pop() {
        let Some(dir) = history.get(id) else { continue };
        let entries = forest.entries(&path);
        let shown = path.escape_ascii().to_string();
        let bounds = (dir.stable_steps, dir.steps.len());
        let Some((count, names)) = steps_there(history, dir, &entries, bounds, STILL_OPEN) else {
            verdict.wrong(format!("{shown}: {}", never(history, dir, &entries, dir.stable_steps)));
            continue;
        };
        there.insert(id, count);
        dir.steps[count..].iter().for_each(|step| verdict.loses(step.done, end));
        for (name, object) in names {
            let Some((node, found)) = history.get(object).zip(entries.get(&name)) else { continue };
            verdict.names += 1;
            let at = [&path[..], b"/", name.as_bytes()].concat();
            match node.kind {
                Kind::Dir => left.push((at, object)),
                Kind::File => file(&mut verdict, history, (object, node), found, &at, end),
                Kind::Symlink => {}
            }
        }
    }
    if let Some(moving) = history.moving {
        // Its steps are the last in both.
        let has = |dir: Id| there.get(&dir).map(|n| *n == history.get(dir).map_or(0, |d| d.steps.len()));
        if let (Some(gone), Some(come)) = (has(moving.from), has(moving.to))
            && gone != come
        {
            verdict.wrong(format!("object {}: moved by halves", moving.object));
        }
    }
    if verdict.oldest_lost > age_max {
        let what = format!("work is lost that was done {} ms before", verdict.oldest_lost.as_millis());
        verdict.wrong(format!("{what}; at most {} ms may be", age_max.as_millis()));
    }
    verdict
}

fn file(
    verdict: &mut Verdict,
    history: &History,
    (object, node): (Id, &Object),
    found: &FoundObject,
    at: &[u8],
    end: Duration,
) {
    let least = node.oldest_version();
    let mut there = version_there((object, node), &found.bytes, least, STILL_OPEN);
    if there.is_none() && history.torn {
        there = part_there(object, node, &found.bytes);
        verdict.loses(there.and_then(|n| node.versions[n].done), end);
    }
    if there.is_some_and(|n| (n, found.bytes.len()) < node.stable_part) {
        let (version, bytes) = node.stable_part;
        let at = at.escape_ascii();
        verdict.wrong(format!(
            "{at}: {} bytes; {bytes} of version {version} were synced, which is open",
            found.bytes.len()
        ));
    }
    match there {
        Some(n) => {
            for version in node.versions.iter().skip(n + 1) {
                verdict.loses(version.done, end);
            }
        }
        None => {
            let lengths: Vec<String> = (least..node.versions.len())
                .map(|n| {
                    let closed = if node.versions[n].done.is_some() { "closed" } else { "open" };
                    format!("{} ({closed})", node.content(object, n).len())
                })
                .collect();
            let same = version_there((object, node), &found.bytes, 0, STILL_OPEN);
            let old = same.map_or(String::new(), |n| format!(": version {n}, which is too old"));
            verdict.wrong(format!(
                "{}: {} bytes{old}; versions {least} to {} have {} bytes",
                at.escape_ascii(),
                found.bytes.len(),
                node.versions.len().saturating_sub(1),
                lengths.join(", ")
            ));
        }
    }
    let modes = &node.modes[node.stable_modes.saturating_sub(1).min(node.modes.len())..];
    match modes.iter().rposition(|m| m.mode == found.mode) {
        Some(n) => modes[n + 1..].iter().for_each(|m| verdict.loses(m.done, end)),
        None if modes.is_empty() => {}
        None => {
            let wanted: Vec<String> = modes.iter().map(|m| format!("{:o}", m.mode)).collect();
            let at = at.escape_ascii();
            verdict.wrong(format!("{at}: mode {:o}, not one of {}", found.mode, wanted.join(", ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Names a, b, c are made, 10 ms apart, each with 20 bytes; b is stable.
    fn three() -> (History, Id) {
        let mut h = History::default();
        let top = h.add(Kind::Dir);
        for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
            let object = h.add(Kind::File);
            let now = ms(10 * n as u64);
            let step = h.begin(top, Naming::Add { name: name.into(), object }, object, now);
            h.end(top, step, now);
            let version = h.write(object, How::Fresh, 20);
            h.written(object, version, now);
            if name == "b" {
                h.stable(object);
            }
        }
        (h, top)
    }

    fn verdict(h: &History, top: Id, there: &[(&str, Vec<u8>)]) -> Verdict {
        let tree: Tree = there
            .iter()
            .map(|(name, bytes)| (format!("t/{name}").into_bytes(), FoundObject::file(bytes)))
            .collect();
        check(h, top, (&Forest::new(&tree), b"t"), ms(1000), ms(985))
    }

    #[test]
    fn a_first_part_with_all_that_is_stable_is_right_and_anything_else_is_not() {
        let (h, top) = three();
        let whole = |n: Id| h.objects[&n].content(n, 0);
        let (a, b, c) = (whole(2), whole(3), whole(4));
        let all = verdict(&h, top, &[("a", a.clone()), ("b", b.clone()), ("c", c.clone())]);
        assert!(all.wrong.is_empty() && all.lost == 0 && all.names == 3, "{all:?}");
        let two = verdict(&h, top, &[("a", a.clone()), ("b", b.clone())]);
        assert!(two.wrong.is_empty() && two.lost == 1 && two.oldest_lost == ms(980), "{two:?}");
        for wrong in [
            // b is stable.
            vec![("a", a.clone())],
            // c without b.
            vec![("a", a.clone()), ("c", c.clone())],
            // A name without its content, half of it, and another's.
            vec![("a", a.clone()), ("b", Vec::new())],
            vec![("a", a.clone()), ("b", b[..15].to_vec())],
            vec![("a", a.clone()), ("b", c.clone())],
            // A name that nobody made.
            vec![("a", a.clone()), ("b", b.clone()), ("x", Vec::new())],
        ] {
            assert!(!verdict(&h, top, &wrong).wrong.is_empty(), "{wrong:?}");
        }
    }

    #[test]
    fn a_file_without_a_number_is_not_taken_for_the_one_that_was_to_replace_it() {
        let (mut h, top) = three();
        // An empty file d, over which an editor saves another one, and that is lost.
        let [empty, new] = [0, 20].map(|bytes| {
            let object = h.add(Kind::File);
            let version = h.write(object, How::Fresh, bytes);
            h.written(object, version, ms(40));
            object
        });
        for what in [
            Naming::Add { name: "d".into(), object: empty },
            Naming::Add { name: "t".into(), object: new },
            Naming::Rename { from: "t".into(), to: "d".into() },
        ] {
            let step = h.begin(top, what, new, ms(40));
            h.end(top, step, ms(40));
        }
        let [a, b, c, whole] = [2, 3, 4, new].map(|n| h.objects[&n].content(n, 0));
        let there = |d: Vec<u8>| [("a", a.clone()), ("b", b.clone()), ("c", c.clone()), ("d", d)];
        let lost = verdict(&h, top, &there(Vec::new()));
        assert!(lost.wrong.is_empty() && lost.lost == 2, "{lost:?}");
        assert_eq!(verdict(&h, top, &there(whole)).lost, 0);
        // Neither has such a beginning.
        assert!(!verdict(&h, top, &there(vec![0; 3])).wrong.is_empty());
        // An empty one over an empty one, with another mode.
        h.objects.get_mut(&new).unwrap().versions[0].bytes = 0;
        h.chmod(new, 0o600);
        assert_eq!(verdict(&h, top, &there(Vec::new())).lost, 2);
        h.chmod(new, 0o644);
        assert_eq!(verdict(&h, top, &there(Vec::new())).lost, 0);
    }

    #[test]
    fn what_is_lost_may_not_be_old() {
        let (mut h, top) = three();
        h.objects.get_mut(&top).unwrap().stable_steps = 0;
        h.objects.get_mut(&3).unwrap().stable_versions = 0;
        let a = h.objects[&2].content(2, 0);
        let lost = verdict(&h, top, &[("a", a)]);
        assert_eq!((lost.lost, lost.oldest_lost), (2, ms(990)));
        assert!(lost.wrong[0].contains("990 ms before"), "{lost:?}");
    }

    #[test]
    fn of_a_file_that_was_being_sent_when_the_server_ended_the_beginning_may_be_there() {
        let (mut h, top) = three();
        let [a, b, c] = [2, 3, 4].map(|n| h.objects[&n].content(n, 0));
        let there = |b: &[u8], c: &[u8]| [("a", a.clone()), ("b", b.to_vec()), ("c", c.to_vec())];
        for len in [0, 3, 15] {
            h.torn = false;
            assert!(!verdict(&h, top, &there(&b, &c[..len])).wrong.is_empty(), "{len}");
            h.torn = true;
            let part = verdict(&h, top, &there(&b, &c[..len]));
            assert!(part.wrong.is_empty() && part.lost == 1, "{part:?}");
            // b is stable.
            assert!(!verdict(&h, top, &there(&b[..len], &c)).wrong.is_empty(), "{len}");
        }
        assert!(!verdict(&h, top, &there(&b, &[7; 9])).wrong.is_empty());
    }

    #[test]
    fn of_a_file_that_is_open_the_beginning_may_be_there() {
        let (mut h, top) = three();
        h.objects.get_mut(&4).unwrap().versions[0].done = None;
        let whole = |n: Id| h.objects[&n].content(n, 0);
        for len in [0, 3, 15, 20] {
            let there = [("a", whole(2)), ("b", whole(3)), ("c", whole(4)[..len].to_vec())];
            assert!(verdict(&h, top, &there).wrong.is_empty(), "{len}");
        }
        // When it was read, it was.
        h.objects.get_mut(&4).unwrap().versions[0].done = Some(ms(500));
        let c = &h.objects[&4];
        let there = |open| version_there((4, c), &c.content(4, 0)[..3], 0, open).is_some();
        assert!(there(ms(499)) && !there(ms(500)) && !there(STILL_OPEN));
        h.objects.get_mut(&4).unwrap().versions[0].done = None;
        let whole = |n: Id| h.objects[&n].content(n, 0);
        let other = [("a", whole(2)), ("b", whole(3)), ("c", vec![9; 3])];
        assert!(!verdict(&h, top, &other).wrong.is_empty());
        // What was synced of it is there.
        h.stable_part(4, 0, 12);
        let whole = |n: Id| h.objects[&n].content(n, 0);
        for (len, right) in [(11, false), (12, true), (20, true)] {
            let there = [("a", whole(2)), ("b", whole(3)), ("c", whole(4)[..len].to_vec())];
            assert_eq!(verdict(&h, top, &there).wrong.is_empty(), right, "{len}");
        }
        assert!(!verdict(&h, top, &[("a", whole(2)), ("b", whole(3))]).wrong.is_empty());
    }
}
