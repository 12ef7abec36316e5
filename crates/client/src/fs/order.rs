//! Puts listings that arrive in any order into the order of a depth-first walk. Pure.
//!
//! Listings that arrive early are kept. A walk that goes deep before it goes wide keeps few.

use std::collections::HashMap;
use std::sync::Arc;

use super::meta::Entry;
use super::outcome::Outcome;
use super::tree::Listing;

/// The next step of a depth-first walk.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all steps are entries")]
pub enum Step {
    /// Everything up to its [`Step::Left`] is below the start of this number.
    Start(usize),
    /// An entry. If it has an [`Entry::listing`], its contents follow.
    Entry {
        /// The path of its directory.
        dir: Arc<[u8]>,
        /// Levels below the start, at least 1.
        depth: usize,
        entry: Entry,
    },
    /// The last directory could not be listed. Its [`Step::Left`] follows.
    Unlisted { path: Vec<u8>, outcome: Outcome<()> },
    /// A directory or a start is complete.
    Left,
}

#[derive(Debug, Default)]
pub struct InOrder {
    starts: usize,
    next_start: usize,
    came: HashMap<usize, Listing>,
    /// Entries of these.
    held: usize,
    stack: Vec<Level>,
    sort: Option<fn(&Entry, &Entry) -> std::cmp::Ordering>,
}

#[derive(Debug)]
enum Level {
    Waits(usize),
    In { dir: Arc<[u8]>, entries: std::vec::IntoIter<Entry>, next: Option<usize> },
}

impl InOrder {
    #[must_use]
    pub fn new(starts: usize) -> InOrder {
        InOrder { starts, ..InOrder::default() }
    }

    /// Orders the entries of a directory by `by`.
    #[must_use]
    pub fn sorted(self, by: fn(&Entry, &Entry) -> std::cmp::Ordering) -> InOrder {
        InOrder { sort: Some(by), ..self }
    }

    /// Entries that have come before their turn.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    pub fn came(&mut self, listing: Listing) {
        self.held += listing.len();
        self.came.insert(listing.number, listing);
    }

    /// The next step, if what has arrived reaches that far.
    #[expect(clippy::should_implement_trait, reason = "after `None` there may be more")]
    pub fn next(&mut self) -> Option<Step> {
        let depth = self.stack.len();
        let Some(level) = self.stack.last_mut() else {
            if self.next_start == self.starts {
                return None;
            }
            let start = self.next_start;
            self.next_start += 1;
            self.stack.push(Level::Waits(start));
            return Some(Step::Start(start));
        };
        match level {
            Level::Waits(number) => {
                let listing = self.came.remove(number)?;
                self.held -= listing.len();
                let Listing { path, entries, next, .. } = listing;
                match entries {
                    Outcome::Committed(mut entries) => {
                        if let Some(by) = self.sort {
                            entries.sort_by(by);
                        }
                        *level = Level::In { dir: path.into(), entries: entries.into_iter(), next };
                        self.next()
                    }
                    other => {
                        let (dir, entries) = (path.clone().into(), Vec::new().into_iter());
                        *level = Level::In { dir, entries, next: None };
                        Some(Step::Unlisted { path, outcome: other.map(drop) })
                    }
                }
            }
            Level::In { dir, entries, next } => match entries.next() {
                Some(entry) => {
                    let dir = dir.clone();
                    if let Some(listing) = entry.listing {
                        self.stack.push(Level::Waits(listing));
                    }
                    Some(Step::Entry { dir, depth, entry })
                }
                None if let Some(next) = *next => {
                    *level = Level::Waits(next);
                    self.next()
                }
                None => {
                    self.stack.pop();
                    Some(Step::Left)
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use landfast_nfs::v4::attr::AttrValues;

    use super::*;

    fn listing(number: usize, path: &str, entries: &[(&str, Option<usize>)]) -> Listing {
        let entries = entries.iter().map(|(name, listing)| {
            let entry = Entry::of(name.as_bytes(), &AttrValues::default()).unwrap().unwrap();
            Entry { listing: *listing, ..entry }
        });
        Listing { number, path: path.into(), entries: Outcome::Committed(entries.collect()), next: None }
    }

    fn all(order: &mut InOrder) -> String {
        let mut out = Vec::new();
        while let Some(step) = order.next() {
            out.push(match step {
                Step::Start(n) => format!("start {n}"),
                Step::Entry { dir, depth, entry } => {
                    let (dir, name) = (String::from_utf8_lossy(&dir), String::from_utf8_lossy(&entry.name));
                    format!("{depth} {dir}/{name}")
                }
                Step::Unlisted { path, .. } => format!("not {}", String::from_utf8_lossy(&path)),
                Step::Left => "left".to_owned(),
            });
        }
        out.join(", ")
    }

    #[test]
    fn the_order_is_that_of_the_tree_whatever_comes_first() {
        let lists = || {
            [
                listing(0, "s", &[("b", Some(2)), ("a", None), ("c", Some(3))]),
                listing(1, "t", &[]),
                listing(2, "s/b", &[("x", None)]),
                Listing {
                    number: 3,
                    path: b"s/c".to_vec(),
                    entries: Outcome::Unknown("lost".into()),
                    next: None,
                },
            ]
        };
        let expected = "start 0, 1 s/b, 2 s/b/x, left, 1 s/a, 1 s/c, not s/c, left, left, start 1, left";
        for turn in 0..4 {
            let mut order = InOrder::new(2);
            let mut lists = lists();
            lists.rotate_left(turn);
            let mut said = Vec::new();
            for listing in lists {
                order.came(listing);
                said.push(all(&mut order));
            }
            said.retain(|s| !s.is_empty());
            assert_eq!(said.join(", "), expected, "{turn}");
        }
        // A directory in three parts, of which one cannot be listed.
        let mut order = InOrder::new(1);
        let part = |number, name, listed, next| Listing { next, ..listing(number, "s", &[(name, listed)]) };
        order.came(part(3, "c", None, Some(4)));
        order.came(listing(2, "s/b", &[("x", None)]));
        assert_eq!((order.held(), all(&mut order)), (2, "start 0".to_owned()));
        order.came(part(0, "b", Some(2), Some(3)));
        assert_eq!((all(&mut order), order.held()), ("1 s/b, 2 s/b/x, left, 1 s/c".to_owned(), 0));
        let entries = Outcome::Unknown("lost".into());
        order.came(Listing { number: 4, path: b"s".to_vec(), entries, next: None });
        assert_eq!(all(&mut order), "not s, left");
        let mut order = InOrder::new(1).sorted(|a, b| a.name.cmp(&b.name));
        order.came(listing(0, "", &[("b", None), ("a", None)]));
        assert_eq!(all(&mut order), "start 0, 1 /a, 1 /b, left");
    }
}
