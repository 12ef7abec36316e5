//! The sequence of calls for each file, and how many files have the same sequence. No I/O.

use super::limits::{FILES_MAX, KEYS_MAX, SEQUENCE_MAX, SHAPES_MAX, TIMED_MAX, TYPICAL_MAX};
use super::think::About;
use super::typical::{Sample, Steps, Timed};
use crate::skim::facts::{Facts, ROOT};
use foldhash::HashMap;
use std::net::IpAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Item {
    /// Procedure or operation, numbered as for [`super::name`].
    pub label: u8,
    /// Whether its effect had to be durable.
    pub synchronous: bool,
    /// Its status if it failed, otherwise 0.
    pub error: u32,
    /// How many in a row. 0: more than eight.
    pub times: u8,
}

/// The files that have the same sequence of calls.
#[derive(Debug, Clone, Default)]
pub struct Shape {
    pub files: u64,
    pub calls: u64,
    /// Calls whose effect had to be durable.
    pub synchronous: u64,
    /// Sum of the durations of these calls, in nanoseconds.
    pub busy_ns: f64,
    /// Sum, over the files, of the time from first call to last reply, in nanoseconds.
    pub span_ns: f64,
}

impl Shape {
    pub fn add(&mut self, other: &Shape) {
        self.files += other.files;
        self.calls += other.calls;
        self.synchronous += other.synchronous;
        self.busy_ns += other.busy_ns;
        self.span_ns += other.span_ns;
    }
}

#[derive(Debug, Clone, Default)]
struct File {
    sequence: Vec<Item>,
    calls: u64,
    synchronous: u64,
    first_ns: i64,
    last_ns: i64,
    busy_ns: f64,
    is_directory: bool,
    /// Its calls with their times, if it is one of the files whose times are kept.
    steps: Option<Box<Steps>>,
}

/// How a call identifies its file: by handle, or by directory and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Handle(u64),
    Name(u64, u64),
}

#[derive(Debug, Default)]
pub struct Files {
    keys: HashMap<Key, u32>,
    files: HashMap<u32, File>,
    next: u32,
    shapes: HashMap<Vec<Item>, (Shape, Sample)>,
    directories: Shape,
    others: Shape,
    /// Number of files whose calls are kept with their times.
    timed: usize,
}

#[derive(Debug, Default)]
pub(super) struct Sequences {
    /// Sequences of files with their counts, most calls first.
    pub shapes: Vec<(Vec<Item>, Shape)>,
    /// A typical file for each of the first sequences.
    pub typical: Vec<Option<Steps>>,
    pub directories: Shape,
    /// Files whose sequences exceed the limit.
    pub others: Shape,
}

#[derive(Debug, Clone, Copy)]
pub struct Answered {
    pub label: u8,
    pub facts: Facts,
    /// Whether it had to be durable, judged by its reply.
    pub synchronous: bool,
    /// Its status if it failed, otherwise 0.
    pub error: u32,
    /// The handle in the reply.
    pub found: Option<u64>,
    /// First and last byte of the call, first and last byte of the reply, in nanoseconds.
    pub at: [i64; 4],
    /// The network's part of its wait in nanoseconds, if known.
    pub network_ns: Option<i64>,
    pub ends: (IpAddr, IpAddr),
}

impl Answered {
    fn timed(&self) -> Timed {
        let [begun_ns, whole, answered, ended] = self.at;
        let from = |a: i64, b: i64| (b - a).max(0) as f32;
        Timed {
            label: self.label,
            synchronous: self.synchronous,
            error: self.error,
            begun_ns,
            upload_ns: from(begun_ns, whole),
            wait_ns: from(whole, answered),
            reply_ns: from(answered, ended),
            network_ns: self.network_ns.map(|ns| ns as f32),
        }
    }
}

impl Files {
    /// The most memory for the keys, in bytes.
    #[cfg(test)]
    pub(super) const KEYS_BYTES_MAX: usize =
        (KEYS_MAX * 8 / 7).next_power_of_two() * 3 / 2 * (size_of::<(Key, u32)>() + 1);

    /// Counts a call and returns which file it is about.
    pub(super) fn add(&mut self, call: &Answered) -> About {
        let Some(handle) = call.facts.handle.filter(|handle| *handle != ROOT || call.facts.name.is_some())
        else {
            return About::default();
        };
        let key = call.facts.name.map_or(Key::Handle(handle), |name| Key::Name(handle, name));
        if call.facts.name.is_some()
            && let Some(directory) = self.keys.get(&Key::Handle(handle))
            && let Some(directory) = self.files.get_mut(directory)
        {
            directory.is_directory = true;
        }
        let mut at = match self.keys.get(&key) {
            Some(at) => *at,
            None => self.begin(key, call),
        };
        if let Some(found) = call.found {
            at = self.same(key, at, Key::Handle(found));
        }
        let Some(file) = self.files.get_mut(&at) else { return About::default() };
        file.calls += 1;
        file.synchronous += u64::from(call.synchronous);
        let [first_ns, .., last_ns] = call.at;
        file.first_ns = file.first_ns.min(first_ns);
        file.last_ns = file.last_ns.max(last_ns);
        file.busy_ns += (last_ns - first_ns).max(0) as f64;
        if let Some(steps) = &mut file.steps {
            steps.add([call.timed()]);
        }
        let item = Item { label: call.label, synchronous: call.synchronous, error: call.error, times: 1 };
        let has_room = file.sequence.len() < SEQUENCE_MAX;
        match file.sequence.last_mut() {
            Some(last) if (Item { times: 1, ..*last }) == item => {
                last.times = if last.times == 0 || last.times >= 8 { 0 } else { last.times + 1 };
            }
            _ if has_room => file.sequence.push(item),
            _ => {}
        }
        About { file: if file.is_directory { 0 } else { at }, begins: file.calls == 1 }
    }

    fn begin(&mut self, key: Key, call: &Answered) -> u32 {
        if self.files.len() >= FILES_MAX {
            self.fold_half();
        }
        // Should the number still be in use, then by a file 2^32 files older.
        self.next = self.next.wrapping_add(1);
        let steps = (self.timed < TIMED_MAX).then(|| Box::new(Steps::new(call.ends)));
        self.timed += usize::from(steps.is_some());
        let ns = call.at[0];
        self.files.insert(self.next, File { first_ns: ns, last_ns: ns, steps, ..File::default() });
        self.insert(key, self.next);
        self.next
    }

    /// Remembers that `key` identifies a file. A name that is given to one new file after another, such as that of a
    /// lock, has a handle each time.
    fn insert(&mut self, key: Key, at: u32) {
        if self.keys.len() >= KEYS_MAX && !self.keys.contains_key(&key) {
            self.keys.retain(|_, at| self.files.contains_key(at));
            if self.keys.len() > KEYS_MAX / 4 * 3 {
                self.keys.clear();
            }
        }
        self.keys.insert(key, at);
    }

    /// The file that was identified by `key` has this handle.
    fn same(&mut self, key: Key, at: u32, handle: Key) -> u32 {
        match self.keys.get(&handle).copied() {
            Some(known) if known != at && self.files.contains_key(&known) => {
                if let Some(new) = self.files.remove(&at)
                    && let Some(file) = self.files.get_mut(&known)
                {
                    file.calls += new.calls;
                    file.synchronous += new.synchronous;
                    file.busy_ns += new.busy_ns;
                    let room = SEQUENCE_MAX.saturating_sub(file.sequence.len());
                    file.sequence.extend(new.sequence.into_iter().take(room));
                    self.timed -= usize::from(new.steps.is_some());
                    match (&mut file.steps, new.steps) {
                        (Some(steps), Some(new)) => steps.add(new.calls),
                        // Not all of its calls have times.
                        (steps @ Some(_), None) => {
                            *steps = None;
                            self.timed -= 1;
                        }
                        _ => {}
                    }
                }
                self.insert(key, known);
                known
            }
            _ => {
                self.insert(handle, at);
                at
            }
        }
    }

    fn fold_half(&mut self) {
        let mut times: Vec<i64> = self.files.values().map(|f| f.last_ns).collect();
        let middle = times.len() / 2;
        let (_, oldest, _) = times.select_nth_unstable(middle);
        let oldest = *oldest;
        let mut old: Vec<u32> =
            self.files.iter().filter(|(_, f)| f.last_ns <= oldest).map(|(at, _)| *at).collect();
        old.sort_unstable();
        for at in old {
            if let Some(file) = self.files.remove(&at) {
                self.fold(file);
            }
        }
        self.keys.retain(|_, at| self.files.contains_key(at));
    }

    fn fold(&mut self, mut file: File) {
        let steps = file.steps.take();
        self.timed -= usize::from(steps.is_some());
        let shape = if file.is_directory {
            &mut self.directories
        } else if self.shapes.len() < SHAPES_MAX || self.shapes.contains_key(&file.sequence) {
            let (shape, sample) = self.shapes.entry(file.sequence).or_default();
            if let Some(steps) = steps {
                sample.add(*steps);
            }
            shape
        } else {
            &mut self.others
        };
        let File { calls, synchronous, busy_ns, .. } = file;
        let span_ns = (file.last_ns - file.first_ns) as f64;
        shape.add(&Shape { files: 1, calls, synchronous, busy_ns, span_ns });
    }

    pub(super) fn finish(mut self) -> Sequences {
        // In the order in which they began, so that the same capture always gives the same typical files.
        let mut files: Vec<_> = std::mem::take(&mut self.files).into_iter().collect();
        files.sort_unstable_by_key(|(at, _)| *at);
        for (_, file) in files {
            self.fold(file);
        }
        let mut shapes: Vec<_> = self.shapes.into_iter().collect();
        shapes.sort_by(|a, b| b.1.0.calls.cmp(&a.1.0.calls).then_with(|| a.0.cmp(&b.0)));
        let mut typical = Vec::new();
        let shapes = shapes.into_iter().map(|(sequence, (shape, sample))| {
            if typical.len() < TYPICAL_MAX {
                typical.push(sample.typical());
            }
            (sequence, shape)
        });
        let shapes = shapes.collect();
        Sequences { shapes, typical, directories: self.directories, others: self.others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(label: u8, handle: u64, name: Option<u64>, found: Option<u64>, ms: i64) -> Answered {
        let facts = Facts { handle: Some(handle), name, ..Facts::default() };
        let at = [0, 0, 400_000, 500_000].map(|ns| ms * 1_000_000 + ns);
        let here = IpAddr::from([127, 0, 0, 1]);
        Answered {
            label,
            facts,
            synchronous: label > 5,
            error: u32::from(found.is_none() && label == 3) * 2,
            found,
            at,
            network_ns: None,
            ends: (here, here),
        }
    }

    /// LOOKUP, CREATE, SETATTR, WRITE and two SETATTRs for each file of a directory.
    fn untar(files: &mut Files, n: u64) {
        for i in 0..n {
            let (name, handle, ms) = (1000 + i, 100_000 + i, i64::try_from(i).unwrap() * 10);
            files.add(&answered(3, 1, Some(name), None, ms));
            files.add(&answered(8, 1, Some(name), Some(handle), ms + 1));
            files.add(&answered(12, handle, None, None, ms + 2));
            files.add(&answered(7, handle, None, None, ms + 3));
            files.add(&answered(12, handle, None, None, ms + 4));
            files.add(&answered(12, handle, None, None, ms + 5));
        }
    }

    #[test]
    fn files_with_the_same_calls_are_one_shape() {
        for n in [7, 3 * FILES_MAX as u64] {
            let mut files = Files::default();
            files.add(&answered(4, 1, None, None, 0));
            untar(&mut files, n);
            let Sequences { shapes, typical, directories, others } = files.finish();
            assert_eq!(shapes.len(), 1, "{n}");
            let (sequence, shape) = &shapes[0];
            assert_eq!((shape.files, shape.calls, shape.synchronous), (n, 6 * n, 5 * n));
            let items: Vec<_> = sequence.iter().map(|i| (i.label, i.times, i.error)).collect();
            assert_eq!(items, [(3, 1, 2), (8, 1, 0), (12, 1, 0), (7, 1, 0), (12, 2, 0)]);
            assert!((shape.span_ns / n as f64 - 5.5e6).abs() < 1.0);
            assert!(n > 7 || directories.files == 1);
            assert_eq!(others.files, 0);
            let steps = typical[0].as_ref().expect("a typical file");
            let labels: Vec<_> = steps.calls.iter().map(|call| (call.label, call.error)).collect();
            assert_eq!(labels, [(3, 2), (8, 0), (12, 0), (7, 0), (12, 0), (12, 0)]);
            let first = steps.calls[0];
            assert_eq!((first.upload_ns, first.wait_ns, first.reply_ns), (0.0, 4e5, 1e5));
            assert_eq!((steps.calls[5].ended_ns() - first.begun_ns, typical.len()), (5_500_000, 1));
        }
    }

    #[test]
    fn a_name_that_has_a_new_handle_each_time_does_not_fill_memory() {
        let mut files = Files::default();
        let made = 3 * KEYS_MAX as u64;
        for i in 0..made {
            files.add(&answered(8, 1, Some(7), Some(100 + i), i64::try_from(i).unwrap()));
            assert!(files.keys.len() <= KEYS_MAX);
        }
        let Sequences { shapes, .. } = files.finish();
        assert_eq!(shapes.iter().map(|(_, shape)| shape.calls).sum::<u64>(), made);
    }

    #[test]
    fn a_file_that_is_found_again_is_the_same() {
        let mut files = Files::default();
        untar(&mut files, 1);
        files.add(&answered(3, 1, Some(7777), Some(100_000), 50));
        files.add(&answered(6, 100_000, None, None, 51));
        let Sequences { shapes, typical, .. } = files.finish();
        assert_eq!(shapes.len(), 1);
        assert_eq!(shapes[0].1.calls, 8);
        assert_eq!(typical[0].as_ref().map(|steps| steps.calls.len()), Some(8));
    }
}
