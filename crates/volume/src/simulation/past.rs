//! The state before a power cut, and the oracle's comparison with the present state.
//!
//! The simulated kernel keeps every metadata change with its position, so the volume at any moment can be rebuilt
//! ([`Past::at`]). The result of a recovery must be the volume at one such moment. For the bytes of files the oracle checks the
//! possible values of each byte ([`Past::may_be`]), since data that was not made stable may be there or not.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::strangers::Edit;
use crate::kernel::sim::{DataEvent, Entry, Kernel, Meta, ROOT, Serial};
use crate::orphans::ORPHANS_DIR;
use crate::state::STATE_DIR;
use crate::truncation_notes::{TRUNCATION_XATTR, TruncationNotes};
use crate::types::Kind;

/// All objects at one moment, by serial number; those without names are missing.
pub(super) type State = Vec<Option<Rc<Meta>>>;

pub(super) struct Past {
    base: State,
    base_data: HashMap<Serial, Vec<u8>>,
    history: Vec<(u64, Serial, Rc<Meta>)>,
    data: Vec<(u64, Serial, DataEvent)>,
    /// (position, object, from): writes to the object after `from` and up to `position` were stable then.
    stable: Vec<(u64, Serial, u64)>,
    /// The positions at which it began and ended.
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// Changes by others, which the comparison leaves out.
pub(super) struct Apart<'a> {
    pub(super) strangers: &'a HashSet<Serial>,
    pub(super) edits: &'a HashMap<Serial, Edit>,
    /// Directories that others have changed, if the times of these and of the files are theirs.
    pub(super) dirs: Option<&'a HashSet<Serial>>,
}

pub(super) struct Bytes {
    /// Smallest and largest possible size.
    sizes: (u64, u64),
    may: Vec<Vec<u8>>,
}

impl Bytes {
    fn reach(&mut self, len: usize) {
        if self.may.len() < len {
            self.may.resize_with(len, || vec![0]);
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8], stable: bool) {
        let end = offset as usize + bytes.len();
        self.reach(end);
        for (may, byte) in self.may[offset as usize..end].iter_mut().zip(bytes) {
            if stable {
                may.clear();
            }
            if !may.contains(byte) {
                may.push(*byte);
            }
        }
        if stable {
            self.sizes.0 = self.sizes.0.max(end as u64);
        }
        self.sizes.1 = self.sizes.1.max(end as u64);
    }

    fn size(&mut self, size: u64) {
        self.may.truncate(size as usize);
        self.reach(size as usize);
        self.sizes = (size, size);
    }

    fn sized(&self, size: u64) -> Bytes {
        let mut sized = Bytes { sizes: self.sizes, may: self.may.clone() };
        sized.size(size);
        sized
    }

    fn zero(&mut self, offset: u64, len: u64, stable: bool) {
        let end = self.may.len().min((offset + len) as usize);
        for may in self.may.iter_mut().take(end).skip(offset as usize) {
            if stable {
                may.clear();
            }
            if !may.contains(&0) {
                may.push(0);
            }
        }
    }

    /// Somebody else has written to the file: only its largest size is known, and each byte may be his.
    fn edited(&mut self, edit: Edit) {
        self.reach(edit.end as usize);
        self.sizes = (0, self.sizes.1.max(edit.end));
        for may in &mut self.may {
            may.extend([0, edit.byte]);
        }
    }

    /// Fails if these bytes are impossible.
    fn check(&self, found: &[u8]) -> Result<(), String> {
        let size = found.len() as u64;
        if size < self.sizes.0 || size > self.sizes.1 {
            return Err(format!("{size} bytes, must be {} to {}", self.sizes.0, self.sizes.1));
        }
        for (at, byte) in found.iter().enumerate() {
            if !self.may.get(at).is_some_and(|may| may.contains(byte)) {
                return Err(format!("byte {at} is {byte}, may be {:?}", self.may.get(at)));
            }
        }
        Ok(())
    }
}

impl Past {
    pub(super) fn begin(k: &mut Kernel) -> Past {
        k.begin_history();
        let base = k.history_base.clone();
        let files = base.iter().enumerate().filter_map(|(n, m)| Some((n as Serial, m.as_ref()?)));
        let base_data =
            files.filter(|(_, m)| m.kind == Kind::File).map(|(n, m)| (n, k.contents(m))).collect();
        Past {
            base,
            base_data,
            history: Vec::new(),
            data: Vec::new(),
            stable: Vec::new(),
            begin: k.position(),
            end: k.position(),
        }
    }

    /// A life in which nothing happened.
    pub(super) fn nothing(k: &mut Kernel) -> Past {
        let at = k.position();
        Past {
            base: Vec::new(),
            base_data: HashMap::new(),
            history: Vec::new(),
            data: Vec::new(),
            stable: Vec::new(),
            begin: at,
            end: at,
        }
    }

    pub(super) fn end(&mut self, k: &mut Kernel) {
        self.history = std::mem::take(&mut k.history);
        self.data = std::mem::take(&mut k.data);
        self.end = k.position();
    }

    /// Whether the object existed at the beginning of this life.
    pub(super) fn had(&self, serial: Serial) -> bool {
        self.base.get(serial as usize).and_then(Option::as_ref).is_some_and(|m| m.nlink > 0)
    }

    /// Notes that writes to the object since `from` are stable as soon as everything logged up to now is.
    pub(super) fn stable(&mut self, now: u64, serial: Serial, from: u64) {
        self.stable.push((now, serial, from));
    }

    pub(super) fn at(&self, position: u64) -> State {
        let mut state = self.base.clone();
        for (_, serial, meta) in self.history.iter().take_while(|(p, ..)| *p <= position) {
            let at = *serial as usize;
            if state.len() <= at {
                state.resize(at + 1, None);
            }
            state[at] = Some(meta.clone());
        }
        for slot in &mut state {
            if slot.as_ref().is_some_and(|m| m.nlink == 0) {
                *slot = None;
            }
        }
        state
    }

    /// Whether the attributes of an object may differ from those at a position: it had these at another time since they were
    /// last known to be stable.
    fn may_have(&self, serial: Serial, position: u64, found: &Meta) -> bool {
        let of = |(p, s, m): &(u64, Serial, Rc<Meta>)| (*s == serial).then(|| (*p, m.clone()));
        // Unstable data moves the times of a file.
        let unstable_since = self
            .data
            .iter()
            .filter(|(p, s, _)| *s == serial && !self.is_stable(*p, serial, position))
            .map(|(p, ..)| *p)
            .min();
        let Some(since) = unstable_since else { return false };
        let same = |m: &Meta| (m.mtime, m.atime, m.mode) == (found.mtime, found.atime, found.mode);
        let before =
            self.history.iter().filter(|(p, s, _)| *s == serial && *p < since).map(|(_, _, m)| m).next_back();
        let before = before.or_else(|| self.base.get(serial as usize).and_then(Option::as_ref));
        before.is_some_and(|m| same(m))
            || self.history.iter().filter_map(of).any(|(p, m)| p >= since && same(&m))
    }

    /// Whether the write at `p` is durable once the log is flushed up to `by`.
    fn is_stable(&self, p: u64, serial: Serial, by: u64) -> bool {
        self.stable.iter().any(|(at, s, from)| *s == serial && *at <= by && *from < p && p <= *at)
    }

    /// The possible contents of a file if all metadata up to `position` is there, and everything logged up to `by`.
    pub(super) fn may_be(&self, serial: Serial, position: u64, by: u64) -> Bytes {
        let base = self.base_data.get(&serial).map_or(&[][..], |b| b);
        let mut may = Bytes {
            sizes: (base.len() as u64, base.len() as u64),
            may: base.iter().map(|b| vec![*b]).collect(),
        };
        for (p, _, event) in self.data.iter().filter(|(_, s, _)| *s == serial) {
            let stable = *p <= by && self.is_stable(*p, serial, by);
            match event {
                DataEvent::Write(offset, bytes) if bytes.is_empty() => {
                    // Space was allocated up to there.
                    may.reach(*offset as usize);
                    may.sizes.1 = may.sizes.1.max(*offset);
                    may.sizes.0 = if stable { may.sizes.0.max(*offset) } else { may.sizes.0 };
                }
                DataEvent::Write(offset, bytes) => may.write(*offset, bytes, stable),
                // Setting a size is metadata: it has happened or it has not.
                DataEvent::Size(size) if *p <= position => may.size(*size),
                DataEvent::Size(_) => {}
                // Making a hole is a write of zeroes, and logged.
                DataEvent::Zero(offset, len) => may.zero(*offset, *len, *p <= by),
            }
        }
        may
    }

    /// Compares the present volume with `then`, the volume at `position`, with data as logged up to `by`, in transactions up to
    /// `logged_seq`. Returns the pairs of objects (then, now).
    pub(super) fn compare(
        &self,
        k: &Kernel,
        then: &State,
        position: u64,
        (by, logged_seq): (u64, u64),
        apart: &Apart<'_>,
    ) -> Result<Vec<(Serial, Serial)>, String> {
        let strangers = apart.strangers;
        let mut pairs: HashMap<Serial, Serial> = HashMap::new();
        let mut order = vec![(ROOT, ROOT)];
        pairs.insert(ROOT, ROOT);
        let peek_then = |s: Serial| then.get(s as usize).and_then(|slot| slot.as_deref());
        let (kept_then, kept_now) = (orphans_dir(peek_then), orphans_dir(|s| k.peek(s).map(|m| &**m)));
        let in_then = |dir: Option<Serial>| dir.and_then(peek_then).map(|m| &m.entries);
        // The first half of a removal: what has another name loses the one among the orphans at the start.
        let halves: HashSet<Serial> = in_then(kept_then)
            .into_iter()
            .flat_map(|entries| entries.values().map(|e| e.serial))
            .filter(|s| peek_then(*s).is_some_and(|m| m.nlink > 1))
            .collect();
        match (kept_then, kept_now) {
            (Some(then), Some(now)) => {
                pairs.insert(then, now);
                order.push((then, now));
            }
            (None, Some(now)) if k.peek(now).is_some_and(|m| !m.entries.is_empty()) => {
                return Err("there are orphans, and there was no place for them".to_owned());
            }
            _ => {}
        }
        let mut done = 0;
        while let Some((old, new)) = order.get(done).copied() {
            done += 1;
            let missing = || format!("object {old} was not there at {position}");
            let was = then.get(old as usize).and_then(Option::as_ref).ok_or_else(missing)?;
            let Some(is) = k.peek(new) else { return Err(format!("object {new} is not there")) };
            let orphans = Some(old) == kept_then;
            let half = halves.contains(&old);
            // Of the orphans' directory only the entries count.
            if !orphans {
                let whole;
                let was = if half {
                    whole = Meta { nlink: was.nlink - 1, ..Meta::clone(was) };
                    &whole
                } else {
                    was
                };
                self.compare_one(k, (old, was), is, (position, (by, logged_seq)), apart, true)
                    .map_err(|e| format!("object {old}, now {new} ({:?}): {e}", was.kind))?;
            }
            // Outside its original directory it may have lost the project.
            let above = then.get(was.parent as usize).and_then(Option::as_ref);
            if was.project != is.project && above.is_some_and(|above| above.project == was.project) {
                return Err(format!(
                    "object {old}, now {new}: project {}, must be {}",
                    is.project, was.project
                ));
            }
            let hidden = |name: &[u8]| old == ROOT && name == STATE_DIR.as_bytes();
            let ours = |s: Serial| !strangers.contains(&s);
            let half = |s: Serial| orphans && halves.contains(&s);
            let names_then =
                was.entries.iter().filter(|(n, e)| !hidden(n) && ours(e.serial) && !half(e.serial));
            let mut names_now = is.entries.iter().filter(|(n, e)| !hidden(n) && ours(e.serial));
            for (name, entry) in names_then {
                let shown = String::from_utf8_lossy(name);
                let found = names_now.next();
                let Some((_, now)) = found.filter(|(n, _)| *n == name) else {
                    let found = found.map(|(n, _)| String::from_utf8_lossy(n).into_owned());
                    return Err(format!(
                        "{old}: entry {shown} is missing or something is in its place ({found:?})"
                    ));
                };
                match pairs.insert(entry.serial, now.serial) {
                    None => order.push((entry.serial, now.serial)),
                    Some(known) if known == now.serial => {}
                    Some(known) => {
                        return Err(format!(
                            "{old}: {shown} was a name of what is {known} now, and is {}",
                            now.serial
                        ));
                    }
                }
            }
            if let Some((name, _)) = names_now.next() {
                let shown = String::from_utf8_lossy(name);
                return Err(format!("{old}: entry {shown} should not be there"));
            }
        }
        let distinct: HashSet<Serial> = order.iter().map(|(_, new)| *new).collect();
        if distinct.len() < order.len() {
            return Err("two objects have become one".to_owned());
        }
        Ok(order)
    }

    /// The same for one object; `links`: its names are known.
    pub(super) fn compare_one(
        &self,
        k: &Kernel,
        (serial, was): (Serial, &Meta),
        is: &Meta,
        (position, (by, logged_seq)): (u64, (u64, u64)),
        apart: &Apart<'_>,
        links: bool,
    ) -> Result<(), String> {
        if was.kind != is.kind {
            return Err(format!("it is a {:?}", is.kind));
        }
        let owner = |m: &Meta| (m.uid, m.gid, m.rdev);
        if owner(was) != owner(is) {
            return Err(format!("owner {:?}, must be {:?}", owner(is), owner(was)));
        }
        if was.target != is.target {
            return Err("another target".to_owned());
        }
        let edit = apart.edits.get(&serial).copied();
        let his = |e: &Entry| apart.strangers.contains(&e.serial);
        let crowded = was.entries.values().chain(is.entries.values()).any(his)
            || apart.dirs.is_some_and(|dirs| dirs.contains(&serial) || edit.is_some());
        let times = |m: &Meta| (m.mode, m.atime, m.mtime);
        if times(was) != times(is) && !crowded && !self.may_have(serial, by.min(position), is) {
            return Err(format!("mode and times {:x?}, must be {:x?}", times(is), times(was)));
        }
        if links && was.kind != Kind::Dir && was.nlink != is.nlink {
            return Err(format!("{} names, must be {}", is.nlink, was.nlink));
        }
        let xattrs = |m: &Meta| {
            let own = m.xattrs.iter().filter(|(name, _)| !name.starts_with(b"trusted."));
            own.map(|(n, v)| (n.clone(), v.clone())).collect::<Vec<_>>()
        };
        if xattrs(was) != xattrs(is) {
            return Err(format!("extended attributes {:?}, must be {:?}", xattrs(is), xattrs(was)));
        }
        if was.kind == Kind::File {
            let (mut may, found) = (self.may_be(serial, position, by), k.contents(is));
            edit.into_iter().for_each(|edit| may.edited(edit));
            let cut = was
                .xattrs
                .get(TRUNCATION_XATTR.as_bytes())
                .and_then(|said| TruncationNotes::last_after(logged_seq, said));
            // A truncation that was about to happen may have happened.
            let cut_off = cut.is_some_and(|size| may.sized(size).check(&found).is_ok());
            if !cut_off {
                may.check(&found)?;
            }
        }
        Ok(())
    }
}

/// The directory of files without a name that are kept.
fn orphans_dir<'a>(peek: impl Fn(Serial) -> Option<&'a Meta>) -> Option<Serial> {
    let within = |dir: Serial, name: &[u8]| Some(peek(dir)?.entries.get(name)?.serial);
    within(within(ROOT, STATE_DIR.as_bytes())?, ORPHANS_DIR.as_bytes())
}
