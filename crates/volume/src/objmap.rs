//! Keys for objects: the bytes of a kernel handle, and maps by identity.
//!
//! Recovery looks up each object of the log about ten times. So handles of the supported filesystems are stored inline, without
//! an allocation, and hashing takes a few multiplications. The kernel chooses the identities, so nobody can make them collide.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::record::ObjId;

pub type ObjMap<V> = HashMap<ObjId, V, BuildHasherDefault<ObjHasher>>;

pub type ObjSet = HashSet<ObjId, BuildHasherDefault<ObjHasher>>;

/// Bytes that are stored inline: ext4's handles have 8, XFS's up to 12 without a parent, btrfs's 20.
const IN_PLACE: usize = 22;

#[derive(Clone)]
pub struct HandleBytes(Key);

#[derive(Clone)]
enum Key {
    Here { len: u8, bytes: [u8; IN_PLACE] },
    Elsewhere(Arc<[u8]>),
}

impl From<&[u8]> for HandleBytes {
    fn from(from: &[u8]) -> HandleBytes {
        let mut bytes = [0; IN_PLACE];
        HandleBytes(match bytes.get_mut(..from.len()) {
            Some(here) => {
                here.copy_from_slice(from);
                Key::Here { len: from.len() as u8, bytes }
            }
            None => Key::Elsewhere(from.into()),
        })
    }
}

impl From<Vec<u8>> for HandleBytes {
    fn from(from: Vec<u8>) -> HandleBytes {
        from.as_slice().into()
    }
}

impl Deref for HandleBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Key::Here { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            Key::Elsewhere(bytes) => bytes,
        }
    }
}

impl PartialEq for HandleBytes {
    fn eq(&self, other: &HandleBytes) -> bool {
        **self == **other
    }
}

impl Eq for HandleBytes {}

impl PartialOrd for HandleBytes {
    fn partial_cmp(&self, other: &HandleBytes) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for HandleBytes {
    fn cmp(&self, other: &HandleBytes) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for HandleBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for HandleBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A length, then the bytes.
impl Serialize for HandleBytes {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(self)
    }
}

impl<'de> Deserialize<'de> for HandleBytes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<HandleBytes, D::Error> {
        struct Blob;
        impl Visitor<'_> for Blob {
            type Value = HandleBytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: Error>(self, v: &[u8]) -> Result<HandleBytes, E> {
                Ok(v.into())
            }
        }
        d.deserialize_bytes(Blob)
    }
}

/// Mixes a few words; only for identities chosen by the kernel.
#[derive(Default)]
pub struct ObjHasher(u64);

/// 2^64 divided by the golden ratio: odd, and without a pattern.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl ObjHasher {
    fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(SPREAD);
    }
}

impl Hasher for ObjHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn write_i32(&mut self, n: i32) {
        self.word(n as u64);
    }

    fn write_i64(&mut self, n: i64) {
        self.word(n as u64);
    }

    fn write_usize(&mut self, n: usize) {
        self.word(n as u64);
    }

    /// A hash table takes the position from the low bits and a tag from the high ones, so both must depend on every bit.
    fn finish(&self) -> u64 {
        let folded = self.0 ^ self.0 >> 32;
        folded.wrapping_mul(SPREAD) ^ folded >> 29
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::KernelHandle;

    #[test]
    fn short_and_long_handles_are_what_they_were_made_of() {
        for len in [0, 1, 8, IN_PLACE - 1, IN_PLACE, IN_PLACE + 1, 64] {
            let bytes: Vec<u8> = (0..len as u8).collect();
            let handle = HandleBytes::from(bytes.clone());
            assert_eq!(*handle, bytes[..]);
            let stored = postcard::to_allocvec(&handle).unwrap();
            assert_eq!(stored[1..], bytes[..]);
            assert_eq!(postcard::from_bytes::<HandleBytes>(&stored).unwrap(), handle);
            assert!(postcard::from_bytes::<HandleBytes>(&stored[..stored.len() - 1]).is_err());
            assert!(len == 0 || HandleBytes::from(&bytes[..len - 1]) < handle);
        }
        assert_eq!(size_of::<HandleBytes>(), IN_PLACE + 2);
    }

    /// Inodes are numbered consecutively, and neighbouring numbers differ in a bit.
    #[test]
    fn neighbours_go_to_different_places() {
        const ALL: u32 = 1 << 16;
        let id = |ino: u32, btime_ns| ObjId {
            kh: KernelHandle { kind: 1, bytes: [ino.to_le_bytes(), 7u32.to_le_bytes()].concat().into() },
            btime_ns,
        };
        let hash = |id: &ObjId| {
            let mut hasher = ObjHasher::default();
            id.hash(&mut hasher);
            hasher.finish()
        };
        for same_time in [true, false] {
            let hashes: Vec<u64> =
                (0..ALL).map(|n| hash(&id(n, if same_time { 0 } else { n.into() }))).collect();
            let low: HashSet<u64> = hashes.iter().map(|h| h % u64::from(ALL)).collect();
            let high: HashSet<u64> = hashes.iter().map(|h| h >> 57).collect();
            // By chance it would be 63 %.
            assert!(low.len() > ALL as usize / 2, "{}", low.len());
            assert_eq!(high.len(), 128);
        }
    }
}
