//! pax extended headers (POSIX.1-2001): records of the form `LENGTH KEY=VALUE\n`.

use std::collections::HashMap;

use bytes::Bytes;

use super::header::Time;

/// The keys and values that apply to a member. Its own take precedence over global ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Records {
    global: HashMap<Vec<u8>, Vec<u8>>,
    own: HashMap<Vec<u8>, Vec<u8>>,
    /// All `GNU.sparse.offset` and `GNU.sparse.numbytes`, in order. They repeat in format 0.0.
    pub(super) sparse_pairs: Vec<(bool, u64)>,
}

impl Records {
    /// Adds the records of a member's header, or of a global one. `None`: malformed.
    pub(super) fn add(&mut self, data: &[u8], global: bool) -> Option<()> {
        let mut rest = data;
        while !rest.is_empty() {
            let space = rest.iter().position(|b| *b == b' ')?;
            let len: usize = decimal(&rest[..space])?.try_into().ok()?;
            let record = rest.get(space + 1..len)?.strip_suffix(b"\n")?;
            rest = &rest[len..];
            let equals = record.iter().position(|b| *b == b'=')?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"GNU.sparse.offset" => self.sparse_pairs.push((false, decimal(value)?)),
                b"GNU.sparse.numbytes" => self.sparse_pairs.push((true, decimal(value)?)),
                // An empty value in a member's header cancels the global value.
                _ if global && value.is_empty() => drop(self.global.remove(key)),
                _ if global => drop(self.global.insert(key.to_vec(), value.to_vec())),
                _ => drop(self.own.insert(key.to_vec(), value.to_vec())),
            }
        }
        Some(())
    }

    /// Drops the member's own records.
    pub(super) fn forget_own(&mut self) {
        self.own.clear();
        self.sparse_pairs.clear();
    }

    pub(super) fn get(&self, key: &str) -> Option<&[u8]> {
        let value = self.own.get(key.as_bytes()).or_else(|| self.global.get(key.as_bytes()))?;
        (!value.is_empty()).then_some(value)
    }

    /// Sorted by name.
    pub(super) fn xattrs(&self) -> Vec<(Vec<u8>, Bytes)> {
        let name = |key: &[u8]| key.strip_prefix(b"SCHILY.xattr.").map(<[u8]>::to_vec);
        let global = self.global.iter().filter(|(key, _)| !self.own.contains_key(*key));
        let mut all: Vec<_> = global
            .chain(&self.own)
            .filter_map(|(key, value)| Some((name(key)?, Bytes::copy_from_slice(value))))
            .collect();
        all.sort();
        all
    }

    /// A decimal value. `None`: missing. `Some(None)`: not a number.
    pub(super) fn number(&self, key: &str) -> Option<Option<u64>> {
        self.get(key).map(decimal)
    }

    /// A time, with results as [`Records::number`].
    pub(super) fn time(&self, key: &str) -> Option<Option<Time>> {
        self.get(key).map(time)
    }
}

pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, b| match b {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add(u64::from(b - b'0')),
        _ => None,
    })
}

/// Parses `[-]SECONDS[.FRACTION]`. Digits beyond nanoseconds are rounded towards the past.
fn time(value: &[u8]) -> Option<Time> {
    let (negative, value) = value.strip_prefix(b"-").map_or((false, value), |v| (true, v));
    let point = value.iter().position(|b| *b == b'.').unwrap_or(value.len());
    let seconds = i64::try_from(decimal(&value[..point])?).ok()?;
    let fraction = value.get(point + 1..).unwrap_or(&[]);
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |i: usize| u32::from(fraction.get(i).map_or(0, |b| b - b'0'));
    let nanos = (0..9).fold(0, |n, i| n * 10 + digit(i));
    let beyond = fraction.iter().skip(9).any(|b| *b != b'0');
    Some(match (negative, nanos + u32::from(negative && beyond)) {
        (false, nanos) => Time { seconds, nanos },
        (true, 0) => Time { seconds: -seconds, nanos: 0 },
        (true, nanos) => Time { seconds: -seconds - 1, nanos: 1_000_000_000 - nanos },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times() {
        for (text, seconds, nanos) in [
            ("12", 12, 0),
            ("12.5", 12, 500_000_000),
            ("1700000000.123456789", 1_700_000_000, 123_456_789),
            ("1.0000000009", 1, 0),
            ("-1.5", -2, 500_000_000),
            ("-3", -3, 0),
            ("-0.0000000001", -1, 999_999_999),
        ] {
            assert_eq!(time(text.as_bytes()), Some(Time { seconds, nanos }), "{text}");
        }
        for bad in ["", "-", ".5", "1.x", "x", "99999999999999999999"] {
            assert_eq!(time(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn own_records_hide_global_ones_and_end_with_the_member() {
        let mut r = Records::default();
        assert!(r.add(b"9 uid=12\n9 gid=13\n", true).is_some());
        assert!(r.add(b"8 uid=5\n7 gid=\n", false).is_some());
        assert_eq!((r.number("uid"), r.number("gid")), (Some(Some(5)), None));
        r.forget_own();
        assert_eq!((r.number("uid"), r.number("gid")), (Some(Some(12)), Some(Some(13))));
    }

    #[test]
    fn malformed() {
        for bad in [
            &b"9 uid=12"[..],
            b"99 uid=12\n",
            b"x uid=12\n",
            b"6 uid1\n",
            b"0 a=b\n",
            b"2 a=b\n",
            b"uid=12\n",
        ] {
            assert!(Records::default().add(bad, false).is_none(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Records::default().add(&bytes, false);
        }

        #[test]
        fn values_come_back(value in prop::collection::vec(any::<u8>(), 1..300)) {
            let body = [&b" path="[..], &value, b"\n"].concat();
            let mut len = body.len();
            while len != body.len() + len.to_string().len() { len = body.len() + len.to_string().len(); }
            let mut r = Records::default();
            prop_assert!(r.add(&[len.to_string().into_bytes(), body].concat(), false).is_some());
            prop_assert_eq!(r.get("path"), Some(&value[..]));
        }
    }
}
