//! Bytes at offsets, none of which overlap: data of a file that is not on the server.

use std::collections::BTreeMap;

/// Bytes at offsets. An extent is at most so long that it fits in one WRITE.
#[derive(Debug, Clone, Default)]
pub struct Extents {
    extents: BTreeMap<u64, Vec<u8>>,
    bytes: u64,
    /// The longest extent that writes in order make.
    longest: usize,
}

impl Extents {
    pub fn new(longest: usize) -> Extents {
        Extents { extents: BTreeMap::new(), bytes: 0, longest: longest.max(1) }
    }

    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn count(&self) -> usize {
        self.extents.len()
    }

    /// The offset behind the last byte.
    pub fn end(&self) -> u64 {
        self.extents.last_key_value().map_or(0, |(at, data)| at + data.len() as u64)
    }

    /// Puts `data` at `offset`, over what is there.
    pub fn write(&mut self, mut offset: u64, mut data: &[u8]) {
        while !data.is_empty() {
            // The extent that `offset` lies in, or that ends there.
            let before = self.extents.range(..=offset).next_back().map(|(at, d)| (*at, d.len()));
            let next = self.extents.range(offset.saturating_add(1)..).next().map_or(u64::MAX, |(at, _)| *at);
            let take = match before {
                Some((at, len)) if offset < at + len as u64 => {
                    let from = (offset - at) as usize;
                    let take = data.len().min(len - from);
                    if let Some(extent) = self.extents.get_mut(&at) {
                        extent[from..from + take].copy_from_slice(&data[..take]);
                    }
                    take
                }
                Some((at, len)) if offset == at + len as u64 && len < self.longest => {
                    let take = data.len().min(self.longest - len).min(room(next, offset));
                    if let Some(extent) = self.extents.get_mut(&at) {
                        extent.extend_from_slice(&data[..take]);
                    }
                    self.bytes += take as u64;
                    take
                }
                _ => {
                    let take = data.len().min(self.longest).min(room(next, offset));
                    self.extents.insert(offset, data[..take].to_vec());
                    self.bytes += take as u64;
                    take
                }
            };
            offset += take as u64;
            data = &data[take..];
        }
    }

    /// Puts `data` at `offset` where nothing is.
    pub fn write_under(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let mut at = offset;
        while at < end {
            let covered =
                self.extents.range(..=at).next_back().map(|(s, d)| s + d.len() as u64).filter(|e| *e > at);
            match covered {
                Some(until) => at = until,
                None => {
                    let next = self.extents.range(at..).next().map_or(u64::MAX, |(s, _)| *s).min(end);
                    self.write(at, &data[(at - offset) as usize..(next - offset) as usize]);
                    at = next;
                }
            }
        }
    }

    /// Takes away what lies at `size` and behind.
    pub fn truncate(&mut self, size: u64) {
        let behind = self.extents.split_off(&size);
        self.bytes -= behind.values().map(|d| d.len() as u64).sum::<u64>();
        if let Some((at, last)) = self.extents.iter_mut().next_back() {
            let keep = (size - at).min(last.len() as u64);
            self.bytes -= last.len() as u64 - keep;
            last.truncate(keep as usize);
        }
    }

    /// Takes an extent out.
    pub fn take(&mut self, offset: u64) -> Option<Vec<u8>> {
        let data = self.extents.remove(&offset)?;
        self.bytes -= data.len() as u64;
        Some(data)
    }

    /// All extents: offset, data.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.extents.iter().map(|(at, data)| (*at, &data[..]))
    }

    /// Those that begin at `offset` or behind.
    pub fn from(&self, offset: u64) -> impl Iterator<Item = (u64, &[u8])> {
        self.extents.range(offset..).map(|(at, data)| (*at, &data[..]))
    }

    /// Those that have something between `offset` and `end`. The first may end before.
    pub fn within(&self, offset: u64, end: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let first = self.extents.range(..=offset).next_back().map_or(offset, |(at, _)| *at);
        self.from(first).take_while(move |(at, _)| *at < end)
    }

    /// Puts what is here into `out`, which begins at `offset`.
    pub fn read_over(&self, offset: u64, out: &mut [u8]) {
        let end = offset.saturating_add(out.len() as u64);
        self.within(offset, end).for_each(|(at, data)| overlay(at, data, offset, out));
    }

    /// Whether all bytes from `offset` to `end` are here.
    pub fn covers(&self, offset: u64, end: u64) -> bool {
        let mut at = offset;
        while at < end {
            match self.extents.range(..=at).next_back().map(|(s, d)| s + d.len() as u64) {
                Some(until) if until > at => at = until,
                _ => return false,
            }
        }
        true
    }
}

/// Copies the part of `data`, which lies at `at`, that `out` has a place for; `out` begins at `offset`.
pub fn overlay(at: u64, data: &[u8], offset: u64, out: &mut [u8]) {
    let from = at.max(offset);
    let to = (at + data.len() as u64).min(offset + out.len() as u64);
    if from < to {
        let source = &data[(from - at) as usize..(to - at) as usize];
        out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
    }
}

fn room(next: u64, offset: u64) -> usize {
    usize::try_from(next - offset).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPACE: usize = 64;

    #[derive(Debug, Clone)]
    enum Op {
        Write(u64, Vec<u8>),
        Under(u64, Vec<u8>),
        Truncate(u64),
        Take(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        let data = || proptest::collection::vec(1u8.., 0..20);
        prop_oneof![
            4 => (0..40u64, data()).prop_map(|(at, d)| Op::Write(at, d)),
            1 => (0..40u64, data()).prop_map(|(at, d)| Op::Under(at, d)),
            1 => (0..60u64).prop_map(Op::Truncate),
            1 => (0..40u64).prop_map(Op::Take),
        ]
    }

    proptest! {
        #[test]
        fn bytes_are_as_if_they_were_in_an_array(longest in 1..16usize, ops in proptest::collection::vec(op(), 0..24)) {
            let (mut extents, mut model) = (Extents::new(longest), [None; SPACE]);
            for op in ops {
                match op {
                    Op::Write(at, data) => {
                        extents.write(at, &data);
                        data.iter().enumerate().for_each(|(i, b)| model[at as usize + i] = Some(*b));
                    }
                    Op::Under(at, data) => {
                        extents.write_under(at, &data);
                        for (i, b) in data.iter().enumerate() {
                            model[at as usize + i].get_or_insert(*b);
                        }
                    }
                    Op::Truncate(size) => {
                        extents.truncate(size);
                        model[size as usize..].fill(None);
                    }
                    Op::Take(at) => {
                        if let Some(data) = extents.take(at) {
                            model[at as usize..at as usize + data.len()].fill(None);
                        }
                    }
                }
                prop_assert_eq!(extents.bytes(), model.iter().flatten().count() as u64);
                prop_assert_eq!(extents.end(), model.iter().rposition(Option::is_some).map_or(0, |i| i as u64 + 1));
                let mut out = [0; SPACE];
                extents.read_over(0, &mut out);
                prop_assert_eq!(out, model.map(Option::unwrap_or_default));
                let mut part = [0; 9];
                extents.read_over(7, &mut part);
                prop_assert_eq!(&part[..], &out[7..16]);
                prop_assert_eq!(extents.covers(7, 16), model[7..16].iter().all(Option::is_some));
                let mut behind = 0;
                for (at, data) in extents.iter() {
                    prop_assert!(at >= behind && !data.is_empty() && data.len() <= longest);
                    behind = at + data.len() as u64;
                }
            }
        }
    }
}
