//! Numbers by 64-bit keys. The latest ones are in a hash table; when these are many, they go to a temporary file, sorted. For
//! each such run memory has a filter of 2 bytes for each key, and the first key of each page.
//!
//! A run in the file is pages of [`PAGE`] pairs of key and number, little-endian. Later runs count before earlier ones.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};

use super::file::{OverflowError, TempFile};
use crate::limits::KEYS_IN_MEMORY;

/// A hash with a random key. That two of ten million differ in nothing else has a probability of one in 370,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key(u64);

impl Key {
    /// The key of what has a hash already, which nobody else can foresee.
    pub(crate) fn of_hash(hash: u64) -> Key {
        Key(hash)
    }
}

/// Makes keys.
#[derive(Debug, Default)]
pub(crate) struct Keys(RandomState);

impl Keys {
    pub(crate) fn of(&self, what: impl Hash) -> Key {
        Key(self.0.hash_one(what))
    }
}

/// Pairs in one page.
const PAGE: usize = 256;
/// Bytes of a pair.
const PAIR: usize = 16;
/// Stands for a key that was removed.
const GONE: u64 = u64::MAX;

type Recent = HashMap<u64, u64, BuildHasherDefault<Same>>;

/// Keys are hashes already.
#[derive(Debug, Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |all, b| all << 8 | u64::from(*b));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Table {
    /// Keys in memory, at most.
    most: usize,
    recent: Recent,
    runs: Vec<Run>,
    file: TempFile,
}

impl Default for Table {
    fn default() -> Table {
        Table::new(KEYS_IN_MEMORY, TempFile::new())
    }
}

impl Table {
    pub(crate) fn new(most: usize, file: TempFile) -> Table {
        Table { most, recent: Recent::default(), runs: Vec::new(), file }
    }

    pub(crate) fn get(&self, key: Key) -> Result<Option<u64>, OverflowError> {
        let found = match self.recent.get(&key.0) {
            Some(number) => Some(*number),
            None => self.earlier(key)?,
        };
        Ok(found.filter(|number| *number != GONE))
    }

    fn earlier(&self, key: Key) -> Result<Option<u64>, OverflowError> {
        for run in self.runs.iter().rev() {
            if let Some(number) = run.get(key.0, &self.file)? {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// `number`: not `u64::MAX`.
    pub(crate) fn insert(&mut self, key: Key, number: u64) {
        self.recent.insert(key.0, number);
        if self.recent.len() >= self.most {
            self.write();
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Result<(), OverflowError> {
        match self.earlier(key)? {
            Some(number) if number != GONE => self.insert(key, GONE),
            _ => drop(self.recent.remove(&key.0)),
        }
        Ok(())
    }

    /// All keys and their numbers.
    #[cfg(test)]
    pub(crate) fn pairs(&self) -> std::collections::BTreeMap<u64, u64> {
        let mut all = std::collections::BTreeMap::new();
        for run in &self.runs {
            let mut bytes = vec![0; run.pairs * PAIR];
            self.file.read(run.at, &mut bytes).unwrap();
            let (pairs, _) = bytes.as_chunks::<PAIR>();
            all.extend(pairs.iter().map(|pair| (number(&pair[..8]), number(&pair[8..]))));
        }
        all.extend(self.recent.iter().map(|(key, number)| (*key, *number)));
        all.retain(|_, number| *number != GONE);
        all
    }

    /// Why keys are in memory that should be in the file; once.
    pub(crate) fn trouble(&mut self) -> Option<OverflowError> {
        self.file.trouble()
    }

    fn write(&mut self) {
        // The table keeps its memory for the next keys.
        let mut pairs: Vec<(u64, u64)> = self.recent.drain().collect();
        pairs.sort_unstable_by_key(|(key, _)| *key);
        let mut run = Run {
            at: 0,
            pairs: pairs.len(),
            filter: Filter::new(pairs.len()),
            first: pairs.iter().step_by(PAGE).map(|(key, _)| *key).collect(),
        };
        let mut bytes = Vec::with_capacity(pairs.len() * PAIR);
        for (key, number) in pairs {
            run.filter.add(key);
            bytes.extend_from_slice(&key.to_le_bytes());
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        run.at = self.file.append(&bytes);
        self.runs.push(run);
    }
}

/// A sorted run in the file.
#[derive(Debug)]
struct Run {
    at: u64,
    pairs: usize,
    filter: Filter,
    /// The first key of each page.
    first: Vec<u64>,
}

impl Run {
    fn get(&self, key: u64, file: &TempFile) -> Result<Option<u64>, OverflowError> {
        if !self.filter.may_have(key) {
            return Ok(None);
        }
        let Some(page) = self.first.partition_point(|first| *first <= key).checked_sub(1) else {
            return Ok(None);
        };
        let pairs = PAGE.min(self.pairs - page * PAGE);
        let mut bytes = [0; PAGE * PAIR];
        let bytes = &mut bytes[..pairs * PAIR];
        file.read(self.at + (page * PAGE * PAIR) as u64, bytes)?;
        let (pairs, _) = bytes.as_chunks::<PAIR>();
        let found = pairs.binary_search_by_key(&key, |pair| number(&pair[..8]));
        Ok(found.ok().map(|n| number(&pairs[n][8..])))
    }
}

/// Half of a pair.
fn number(half: &[u8]) -> u64 {
    half.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// Says of nearly all keys that were not added that they were not (a Bloom filter in blocks of one cache line).
#[derive(Debug)]
struct Filter(Vec<[u64; 8]>);

impl Filter {
    /// Bits for a key.
    const BITS: usize = 16;
    /// Bits of a key that are set.
    const SET: u32 = 6;

    fn new(keys: usize) -> Filter {
        Filter(vec![[0; 8]; (keys * Filter::BITS).div_ceil(512).max(1)])
    }

    fn place(&self, key: u64) -> (usize, impl Iterator<Item = (usize, u64)> + use<>) {
        let block = ((u128::from(key) * self.0.len() as u128) >> 64) as usize;
        // The block is of the key's high bits, the bits are of all.
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = (0..Filter::SET).map(move |n| mixed >> (9 * n + 10) & 511);
        (block, bits.map(|bit| ((bit / 64) as usize, 1 << (bit % 64))))
    }

    fn add(&mut self, key: u64) {
        let (block, bits) = self.place(key);
        bits.for_each(|(word, bit)| self.0[block][word] |= bit);
    }

    fn may_have(&self, key: u64) -> bool {
        let (block, mut bits) = self.place(key);
        bits.all(|(word, bit)| self.0[block][word] & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn as_a_table_that_is_all_in_memory(
            (most, unbuffered) in (1usize..40, any::<bool>()),
            steps in prop::collection::vec((0u64..60, prop::option::of(0u64..1000)), 0..400),
        ) {
            let file = if unbuffered { TempFile::unbuffered() } else { TempFile::in_dir("/dev/null/none".as_ref()) };
            let mut table = Table::new(most, file);
            let keys = Keys::default();
            let mut want: HashMap<u64, u64> = HashMap::new();
            for (key, step) in steps {
                match step {
                    Some(number) => {
                        table.insert(keys.of(key), number);
                        want.insert(key, number);
                    }
                    None => {
                        table.remove(keys.of(key)).unwrap();
                        want.remove(&key);
                    }
                }
                prop_assert!(table.recent.len() < most.max(2));
            }
            let pairs = want.iter().map(|(key, number)| (keys.of(*key).0, *number)).collect();
            prop_assert_eq!(table.pairs(), pairs);
            for key in 0..60 {
                prop_assert_eq!(table.get(keys.of(key)).unwrap(), want.get(&key).copied());
            }
        }
    }

    #[test]
    fn the_filter_is_asked_and_seldom_wrong() {
        let (keys, many) = (Keys::default(), 100_000u64);
        let mut table = Table::new(many as usize / 4, TempFile::new());
        (0..many).for_each(|n| table.insert(keys.of(n), n));
        assert_eq!(table.runs.len(), 4);
        for n in (0..many).step_by(97) {
            assert_eq!(table.get(keys.of(n)).unwrap(), Some(n));
        }
        let others = (many..2 * many).map(|n| keys.of(n).0);
        let wrong = others.filter(|key| table.runs.iter().any(|run| run.filter.may_have(*key))).count();
        assert!(wrong < many as usize / 50, "{wrong} of {many}");
    }
}
