//! What a file must hold, each byte with the operation that put it there. Pure.
//!
//! Stable bytes must be there. Bytes that were written UNSTABLE and not committed lie over them: where such a write is,
//! the file may hold the older byte or the newer one, and it may end anywhere up to the end of the write.

/// Number of an operation in the journal.
pub type OpNo = u32;

/// A write whose data may be lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    pub op: OpNo,
    pub offset: usize,
    /// The bytes that no later write covers.
    pub data: Vec<u8>,
    /// The verifier of its reply; `None` when it was not acknowledged.
    pub verf: Option<String>,
}

impl Pending {
    fn end(&self) -> usize {
        self.offset + self.data.len()
    }

    fn at(&self, i: usize) -> Option<u8> {
        i.checked_sub(self.offset).and_then(|i| self.data.get(i)).copied()
    }
}

/// What a file must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    bytes: Vec<u8>,
    by: Vec<OpNo>,
    /// The last operation that cut something off.
    cut_by: Option<OpNo>,
    pending: Vec<Pending>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Difference {
    /// Operations of which bytes are missing or wrong.
    pub ops: Vec<OpNo>,
    /// The file has bytes that nobody wrote.
    pub strange: bool,
    /// The first byte that is missing or wrong.
    pub first: Option<usize>,
}

impl Contents {
    /// The smallest size in bytes that it may have.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its size if nothing is lost.
    pub fn size_live(&self) -> usize {
        self.pending.iter().map(Pending::end).fold(self.bytes.len(), usize::max)
    }

    pub fn pending(&self) -> &[Pending] {
        &self.pending
    }

    fn grow(&mut self, to: usize, op: OpNo) {
        if to > self.bytes.len() {
            self.bytes.resize(to, 0);
            self.by.resize(to, op);
        }
    }

    fn put(&mut self, offset: usize, data: &[u8], op: OpNo) {
        self.grow(offset + data.len(), op);
        let range = offset..offset + data.len();
        self.bytes[range.clone()].copy_from_slice(data);
        self.by[range].fill(op);
    }

    /// Applies a stable write. It replaces what it covers of pending writes, because the server has ordered them.
    pub fn write(&mut self, offset: usize, data: &[u8], op: OpNo) {
        let (from, to) = (offset, offset + data.len());
        let mut kept = Vec::new();
        for p in std::mem::take(&mut self.pending) {
            let (left, right) = (from.clamp(p.offset, p.end()), to.clamp(p.offset, p.end()));
            if left > p.offset {
                kept.push(Pending { data: p.data[..left - p.offset].to_vec(), ..p.clone() });
            }
            if right < p.end() {
                kept.push(Pending { offset: right, data: p.data[right - p.offset..].to_vec(), ..p });
            }
        }
        self.pending = kept;
        self.put(offset, data, op);
    }

    /// Applies a write that may be lost.
    pub fn write_unstable(&mut self, pending: Pending) {
        self.pending.push(pending);
    }

    /// Applies a COMMIT: the pending writes whose replies had the same verifier become stable.
    pub fn commit(&mut self, verf: Option<&str>, op: OpNo) {
        let (stable, kept) =
            std::mem::take(&mut self.pending).into_iter().partition(|p| p.verf.as_deref() == verf);
        self.pending = kept;
        let stable: Vec<Pending> = stable;
        for p in stable {
            self.put(p.offset, &p.data, op);
        }
    }

    /// Truncates, or extends with zeroes.
    pub fn resize(&mut self, size: usize, op: OpNo) {
        if size < self.size_live() {
            self.cut_by = Some(op);
        }
        self.pending.retain_mut(|p| {
            p.data.truncate(size.saturating_sub(p.offset));
            !p.data.is_empty()
        });
        self.bytes.truncate(size);
        self.by.truncate(size);
        self.grow(size, op);
    }

    /// Applies a truncation that was not answered and may have been done in part: filesystems write zeroes over the end before
    /// they cut it off.
    pub fn cut_begun(&mut self, size: usize, op: OpNo) {
        let data = vec![0; self.size_live().saturating_sub(size)];
        if !data.is_empty() {
            self.write_unstable(Pending { op, offset: size, data, verf: None });
        }
    }

    /// Operations that at least one byte depends on.
    pub fn ops(&self) -> impl Iterator<Item = OpNo> + '_ {
        // Most neighbouring bytes come from the same operation.
        let mut last = None;
        self.by.iter().copied().filter(move |op| last.replace(*op) != Some(*op)).chain(self.cut_by)
    }

    /// Compares with the bytes on the server.
    pub fn difference(&self, found: &[u8]) -> Difference {
        let mut d = Difference::default();
        let pending = |i: usize| self.pending.iter().filter_map(move |p| p.at(i));
        for (i, (byte, op)) in self.bytes.iter().zip(&self.by).enumerate() {
            let right = match found.get(i) {
                Some(f) => f == byte || pending(i).any(|p| p == *f),
                None => false,
            };
            if !right {
                d.first = d.first.or(Some(i));
                if d.ops.last() != Some(op) {
                    d.ops.push(*op);
                }
            }
        }
        let beyond = found.iter().enumerate().skip(self.bytes.len());
        let too_long = found.len() > self.size_live()
            || beyond.into_iter().any(|(i, f)| *f != 0 && !pending(i).any(|p| p == *f));
        match self.cut_by {
            Some(op) if too_long => d.ops.push(op),
            _ => d.strange = too_long,
        }
        d.ops.sort_unstable();
        d.ops.dedup();
        d
    }

    /// Acknowledged pending writes with bytes that are missing in `found`, and their verifiers. Such a write is lost unless the
    /// verifier has changed.
    pub fn unstable_missing(&self, found: &[u8]) -> Vec<(OpNo, String)> {
        let missing = |n: usize, p: &Pending| {
            let over = &self.pending[n + 1..];
            (p.offset..p.end())
                .any(|i| found.get(i).copied() != p.at(i) && !over.iter().any(|o| o.at(i).is_some()))
        };
        let all = self.pending.iter().enumerate();
        all.filter(|(n, p)| missing(*n, p)).filter_map(|(_, p)| Some((p.op, p.verf.clone()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(op: OpNo, offset: usize, data: &[u8]) -> Pending {
        Pending { op, offset, data: data.to_vec(), verf: Some("a".into()) }
    }

    #[test]
    fn stable_bytes_must_be_there_and_say_whose_they_are() {
        let mut c = Contents::default();
        c.write(0, b"abcd", 1);
        c.write(2, b"XY", 2);
        c.resize(6, 3);
        assert_eq!(c.difference(b"abXY\0\0"), Difference::default());
        assert_eq!(c.difference(b"abcd\0\0").ops, [2]);
        assert_eq!(c.difference(b"abXY").ops, [3]);
        assert_eq!(c.difference(b"abXY").first, Some(4));
        assert_eq!(c.difference(b"").ops, [1, 2, 3]);
        assert!(c.difference(b"abXY\0\0?").strange);
    }

    #[test]
    fn rfc1813_3_3_21_unstable_bytes_may_be_missing_until_their_commit() {
        let mut c = Contents::default();
        c.write(0, b"abcd", 1);
        c.write_unstable(pending(2, 2, b"XYZ"));
        for ok in [&b"abcd"[..], b"abXd", b"abXYZ", b"abcdZ", b"abcd\0"] {
            assert_eq!(c.difference(ok), Difference::default(), "{ok:?}");
        }
        assert_eq!(c.unstable_missing(b"abcd"), [(2, "a".to_owned())]);
        assert_eq!(c.unstable_missing(b"abXYZ"), []);
        let mut other = c.clone();
        other.commit(Some("b"), 3);
        assert_eq!(other, c, "a commit under another verifier says nothing of this write");
        c.commit(Some("a"), 3);
        assert_eq!(c.difference(b"abcd").ops, [3]);
        assert_eq!(c.difference(b"abXYZ"), Difference::default());
    }

    #[test]
    fn what_was_cut_off_must_not_be_there() {
        let mut c = Contents::default();
        c.write(0, b"abcd", 1);
        c.resize(2, 2);
        assert_eq!(c.difference(b"abcd"), Difference { ops: vec![2], ..Difference::default() });
        assert_eq!(c.ops().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn what_a_truncation_that_was_not_done_would_cut_off_may_be_zero() {
        let mut c = Contents::default();
        c.write(0, b"abcd", 1);
        c.cut_begun(2, 2);
        assert_eq!(c.difference(b"abcd"), Difference::default());
        assert_eq!(c.difference(b"ab\0\0"), Difference::default());
        assert_eq!(c.difference(b"a\0\0\0").ops, [1]);
        assert_eq!(c.difference(b"ab").ops, [1], "its end is where it was");
        c.cut_begun(4, 3);
        assert_eq!(c.pending().len(), 1, "nothing to cut off");
    }

    #[test]
    fn what_covers_a_pending_write_ends_it() {
        let mut c = Contents::default();
        c.write_unstable(pending(1, 0, b"1234"));
        c.write(1, b"ab", 2);
        assert_eq!(c.difference(b"1ab4"), Difference::default());
        assert_eq!(c.difference(b"\0ab"), Difference::default());
        assert_eq!(c.difference(b"12b4").ops, [2]);
        c.resize(2, 3);
        assert_eq!(c.size_live(), 2);
        assert_eq!(c.difference(b"1abc").ops, [3]);
    }
}
