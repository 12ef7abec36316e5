//! Maps of sparse files: GNU's old format, and the pax formats 0.0, 0.1 and 1.0.

use super::header::RawMap;
use super::pax::{Records, decimal};
use crate::limits::SPARSE_SEGMENTS_MAX;

/// A run of bytes that the archive holds. Between runs the file has zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// In bytes. Never zero.
    pub len: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum PaxSparse {
    No,
    /// Formats 0.0 and 0.1, with the map in the header.
    Map {
        map: RawMap,
        size: u64,
    },
    /// Format 1.0, with the map before the data.
    InData {
        size: u64,
    },
}

/// `None`: the records contradict each other.
pub(super) fn from_pax(records: &Records) -> Option<PaxSparse> {
    if let Some(major) = records.number("GNU.sparse.major") {
        let minor = records.number("GNU.sparse.minor")??;
        if (major?, minor) == (1, 0) {
            return Some(PaxSparse::InData { size: records.number("GNU.sparse.realsize")?? });
        }
        if major? != 0 {
            return None;
        }
    }
    let Some(size) = records.number("GNU.sparse.size") else { return Some(PaxSparse::No) };
    let numbers = match records.get("GNU.sparse.map") {
        Some(map) => map.split(|b| *b == b',').map(decimal).collect::<Option<Vec<_>>>()?,
        None => {
            // Offset and length must alternate.
            let ordered =
                records.sparse_pairs.iter().enumerate().all(|(i, (is_len, _))| *is_len == (i % 2 == 1));
            ordered.then(|| records.sparse_pairs.iter().map(|(_, n)| *n).collect())?
        }
    };
    if numbers.len() % 2 != 0 || numbers.len() / 2 > SPARSE_SEGMENTS_MAX {
        return None;
    }
    Some(PaxSparse::Map { map: numbers.chunks_exact(2).map(|p| (p[0], p[1])).collect(), size: size? })
}

/// Checks that a map is ascending, does not overlap, lies within `size` bytes, and has `stored` bytes in total.
pub(super) fn check(map: &[(u64, u64)], size: u64, stored: u64) -> Option<Vec<Segment>> {
    let (mut end, mut sum) = (0u64, 0u64);
    let mut segments = Vec::with_capacity(map.len());
    for &(offset, len) in map {
        if offset < end {
            return None;
        }
        end = offset.checked_add(len)?;
        sum = sum.checked_add(len)?;
        if len > 0 {
            segments.push(Segment { offset, len });
        }
    }
    (end <= size && sum == stored).then_some(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_that_make_no_sense() {
        assert!(check(&[(0, 10), (20, 5), (30, 0)], 30, 15).is_some());
        for (map, size, stored) in [
            (&[(0, 10), (5, 5)][..], 30, 15),
            (&[(0, 10)], 9, 10),
            (&[(0, 10)], 10, 11),
            (&[(u64::MAX, 2)], u64::MAX, 2),
            (&[(20, 5), (0, 10)], 30, 15),
        ] {
            assert_eq!(check(map, size, stored), None, "{map:?}");
        }
    }

    #[test]
    fn pax_records() {
        let records = |text: &str| {
            let mut all = Vec::new();
            for line in text.split_whitespace() {
                let mut len = line.len() + 2;
                while len != line.len() + 2 + len.to_string().len() {
                    len = line.len() + 2 + len.to_string().len();
                }
                all.extend(format!("{len} {line}\n").into_bytes());
            }
            let mut r = Records::default();
            r.add(&all, false).unwrap();
            r
        };
        let map = PaxSparse::Map { map: vec![(1, 2), (5, 6)], size: 99 };
        let v00 = "GNU.sparse.size=99 GNU.sparse.numblocks=2 GNU.sparse.offset=1 GNU.sparse.numbytes=2 \
                   GNU.sparse.offset=5 GNU.sparse.numbytes=6";
        assert_eq!(from_pax(&records(v00)).as_ref(), Some(&map));
        assert_eq!(from_pax(&records("GNU.sparse.size=99 GNU.sparse.map=1,2,5,6")), Some(map));
        let v10 = "GNU.sparse.major=1 GNU.sparse.minor=0 GNU.sparse.realsize=7";
        assert_eq!(from_pax(&records(v10)), Some(PaxSparse::InData { size: 7 }));
        assert_eq!(from_pax(&records("path=x")), Some(PaxSparse::No));
        for bad in [
            "GNU.sparse.size=99 GNU.sparse.map=1,2,5",
            "GNU.sparse.size=99 GNU.sparse.map=1,x",
            "GNU.sparse.size=99 GNU.sparse.numbytes=2 GNU.sparse.offset=1",
            "GNU.sparse.major=2 GNU.sparse.minor=0 GNU.sparse.realsize=7",
            "GNU.sparse.major=1 GNU.sparse.minor=0",
        ] {
            assert_eq!(from_pax(&records(bad)), None, "{bad}");
        }
    }
}
