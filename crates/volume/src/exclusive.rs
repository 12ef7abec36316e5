//! How an exclusive create keeps its client's verifier (RFC 1813 section 3.3.8, RFC 8881 section 18.16.3) for a retry: as a keyed
//! digest of the verifier *and of this file*.
//!
//! So only a file that this server made with this verifier has that digest. A client that sets times as it likes, or copies them
//! or all attributes from another file, cannot know the right one: the key is the volume's own, which also signs handles. The digest
//! needs no flush. It lives across crashes (it is in the log with the file) and without a log.
//!
//! | | where it is | for | ends with |
//! |---|---|---|---|
//! | [`Kept::InTimes`](crate::types::Kept) | the file's times, which the client must then set | creates without attributes, and where an attribute cannot be set | the client's SETATTR, the first write |
//! | [`Kept::Apart`](crate::types::Kept) | an extended attribute that only root sees | EXCLUSIVE4_1, whose client needs no SETATTR then | the first write, or setting of the size or the times, which also removes it |
//!
//! An attribute that could not be removed in time means nothing: its digest includes the seconds of the modification time. What is left is
//! on files that nobody has written to, and may be removed while the volume is not served.

use std::hash::Hasher;

use bytes::Bytes;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use siphasher::sip::SipHasher24;

use crate::error::Error;
use crate::kernel::{self, AsFd};
use crate::node::{Node, NodeState};
use crate::record::Fact;
use crate::types::Timestamp;

/// First byte of the signed data, where a handle has its version: so none of them can be taken for another.
const DOMAIN_TIMES: u8 = 0xff;
const DOMAIN_APART: u8 = 0xfe;

/// The name of the attribute. Only root can use the `trusted` namespace, and ordinary tools do not copy it.
const VERIFIER_XATTR: &str = "trusted.landfast.made";

/// Access and modification time, as signed 32-bit numbers of seconds, which every filesystem can store. `fh` is the file's
/// wire handle.
pub(crate) fn times(key: &[u8; 16], fh: &[u8], verf: [u8; 8]) -> (Timestamp, Timestamp) {
    let mut h = SipHasher24::new_with_key(key);
    h.write_u8(DOMAIN_TIMES);
    h.write(&verf);
    h.write(fh);
    let [a, b, c, d, e, f, g, h] = h.finish().to_be_bytes();
    let time = |bytes| Timestamp { secs: i64::from(i32::from_be_bytes(bytes)), nanos: 0 };
    (time([e, f, g, h]), time([a, b, c, d]))
}

/// The attribute's value. `instance` is the client's; `mtime` is the file's since it was made.
pub(crate) fn apart(
    key: &[u8; 16],
    fh: &[u8],
    verf: [u8; 8],
    instance: [u8; 8],
    mtime: Timestamp,
) -> [u8; 8] {
    let mut h = SipHasher24::new_with_key(key);
    h.write_u8(DOMAIN_APART);
    h.write(&verf);
    h.write(&instance);
    h.write_i64(mtime.secs);
    h.write(fh);
    h.finish().to_be_bytes()
}

/// Sets the attribute of a new file. Returns false if this file cannot have it: then the times will do.
pub(crate) fn leave(fd: impl AsFd, digest: &[u8; 8]) -> Result<bool, Error> {
    match kernel::fsetxattr(fd, VERIFIER_XATTR, digest, XattrFlags::empty()) {
        Ok(()) => Ok(true),
        // Another filesystem, no capability for it, or no room beside what the file has.
        Err(Errno::OPNOTSUPP | Errno::PERM | Errno::NOSPC | Errno::DQUOT) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Whether the file's attribute has this value.
pub(crate) fn stands(fd: impl AsFd, digest: &[u8; 8]) -> Result<bool, Error> {
    let mut found = [0; 8];
    match kernel::getxattr(fd, VERIFIER_XATTR, &mut found) {
        Ok(len) => Ok(found.get(..len) == Some(digest)),
        // RANGE: too large to be ours.
        Err(Errno::NODATA | Errno::RANGE | Errno::OPNOTSUPP) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Removes the attribute from a file that has just been changed, if it is known to have one. Gives the fact to record. Call under the
/// file's attribute lock.
pub(crate) fn end(node: &Node, state: &mut NodeState, fd: impl AsFd) -> Option<Fact> {
    if !std::mem::take(&mut state.holds_verifier) {
        return None;
    }
    // If it stays it does no harm: see the module's comment.
    kernel::removexattr(fd, VERIFIER_XATTR).ok().map(|()| fact(node, None))
}

pub(crate) fn fact(node: &Node, digest: Option<[u8; 8]>) -> Fact {
    Fact::Xattr {
        obj: node.0.id.clone(),
        name: Bytes::from_static(VERIFIER_XATTR.as_bytes()),
        value: digest.map(|digest| Bytes::copy_from_slice(&digest)),
    }
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

    #[test]
    fn another_key_file_verifier_instance_or_second_gives_another_attribute() {
        let time = |secs| Timestamp { secs, nanos: 5 };
        let mut seen = HashSet::new();
        for (key, fh, verf, instance, secs) in [
            ([1; 16], &b"file"[..], *b"verifier", *b"instance", 7),
            ([2; 16], b"file", *b"verifier", *b"instance", 7),
            ([1; 16], b"gile", *b"verifier", *b"instance", 7),
            ([1; 16], b"file", *b"verifies", *b"instance", 7),
            ([1; 16], b"file", *b"verifier", *b"instancf", 7),
            ([1; 16], b"file", *b"instance", *b"verifier", 7),
            ([1; 16], b"file", *b"verifier", *b"instance", 8),
        ] {
            assert!(seen.insert(apart(&key, fh, verf, instance, time(secs))));
        }
    }
}
