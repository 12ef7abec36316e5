//! How an exclusive create keeps its client's verifier (RFC 1813 section 3.3.8, RFC 8881 section 18.16.3) for a retry: in the
//! times of the file, as a keyed digest of the verifier *and of this file*.
//!
//! So only a file that this server made with this verifier has these times. A client that sets times as it likes, or copies them
//! from another file, cannot know the right ones: the key is the volume's own, which also signs handles. The digest needs no
//! flush and no removal. It lives as long as the file, across crashes (times are in the log) and without a log, on every
//! filesystem. The client must follow with a SETATTR, which sets the proper times; so does the first write.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::types::Timestamp;

/// First byte of the signed data, where a handle has its version: so neither can be taken for the other.
const DOMAIN: u8 = 0xff;

/// Access and modification time, as signed 32-bit numbers of seconds, which every filesystem can store. `fh` is the file's
/// wire handle.
pub(crate) fn times(key: &[u8; 16], fh: &[u8], verf: [u8; 8]) -> (Timestamp, Timestamp) {
    let mut h = SipHasher24::new_with_key(key);
    h.write_u8(DOMAIN);
    h.write(&verf);
    h.write(fh);
    let [a, b, c, d, e, f, g, h] = h.finish().to_be_bytes();
    let time = |bytes| Timestamp { secs: i64::from(i32::from_be_bytes(bytes)), nanos: 0 };
    (time([e, f, g, h]), time([a, b, c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn another_key_file_or_verifier_gives_other_times() {
        let mut seen = HashSet::new();
        for (key, fh, verf) in [
            ([1; 16], &b"file"[..], *b"verifier"),
            ([2; 16], b"file", *b"verifier"),
            ([1; 16], b"gile", *b"verifier"),
            ([1; 16], b"file", *b"verifies"),
        ] {
            let (atime, mtime) = times(&key, fh, verf);
            assert_eq!(times(&key, fh, verf), (atime, mtime));
            for t in [atime, mtime] {
                assert!(i32::try_from(t.secs).is_ok() && t.nanos == 0);
            }
            assert!(seen.insert((atime.secs, mtime.secs)));
        }
    }
}
