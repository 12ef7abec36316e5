//! Wire handles: the kernel's own handle, the birth time, the volume's number and a keyed signature.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | [`HANDLE_VERSION`] |
//! | 2 | kind of the kernel handle, big-endian |
//! | 4 | number of the volume |
//! | 8 | birth time, ns since 1970, big-endian |
//! | n | the kernel handle, 1 to [`HANDLE_BYTES_MAX`] bytes |
//! | 8 | SipHash-2-4 of all before, under the volume's key, big-endian |
//!
//! The signature keeps a client from opening an object without having been given its handle, since opening by handle
//! bypasses the permissions of the directories above. The birth time is included because btrfs issues the same kernel
//! handle again after a crash that lost its first owner.

use std::hash::Hasher;

use bytes::{BufMut, Bytes, BytesMut};
use siphasher::sip::SipHasher24;

use crate::error::Error;
use crate::exclusive;
use crate::limits::HANDLE_BYTES_MAX;
use crate::record::{KernelHandle, ObjId};
use crate::types::Timestamp;

/// First byte of every wire handle of a volume. A server's own handles (pseudo filesystem) must start differently.
pub const HANDLE_VERSION: u8 = 1;

const HEAD: usize = 1 + 2 + 4 + 8;
const TAG: usize = 8;

#[derive(Clone)]
pub(crate) struct HandleCodec {
    key: [u8; 16],
    volume: u32,
}

impl HandleCodec {
    pub(crate) fn new(key: [u8; 16], volume: u32) -> HandleCodec {
        HandleCodec { key, volume }
    }

    fn tag(&self, bytes: &[u8]) -> u64 {
        let mut h = SipHasher24::new_with_key(&self.key);
        h.write(bytes);
        h.finish()
    }

    /// The wire handle of an object. `None` if the kernel's handle is too long (on Linux no filesystem has such handles).
    pub(crate) fn encode(&self, id: &ObjId) -> Option<Bytes> {
        let kind = u16::try_from(id.kh.kind).ok()?;
        if id.kh.bytes.is_empty() || id.kh.bytes.len() > HANDLE_BYTES_MAX {
            return None;
        }
        let mut b = BytesMut::with_capacity(HEAD + id.kh.bytes.len() + TAG);
        b.put_u8(HANDLE_VERSION);
        b.put_u16(kind);
        b.put_u32(self.volume);
        b.put_i64(id.btime_ns);
        b.put_slice(&id.kh.bytes);
        let tag = self.tag(&b);
        b.put_u64(tag);
        Some(b.freeze())
    }

    /// Access and modification times of a file made with this verifier ([`crate::exclusive`]).
    pub(crate) fn verifier_times(&self, fh: &[u8], verf: [u8; 8]) -> (Timestamp, Timestamp) {
        exclusive::times(&self.key, fh, verf)
    }

    /// What stands in the attribute of a file made with this verifier ([`crate::exclusive`]).
    pub(crate) fn verifier_apart(
        &self,
        fh: &[u8],
        verf: [u8; 8],
        instance: [u8; 8],
        mtime: Timestamp,
    ) -> [u8; 8] {
        exclusive::apart(&self.key, fh, verf, instance, mtime)
    }

    /// The object of a wire handle; [`Error::BadHandle`] for anything that [`HandleCodec::encode`] did not make.
    pub(crate) fn decode(&self, fh: &[u8]) -> Result<ObjId, Error> {
        if fh.len() <= HEAD + TAG || fh.len() > HEAD + HANDLE_BYTES_MAX + TAG {
            return Err(Error::BadHandle);
        }
        let (body, tag) = fh.split_at(fh.len() - TAG);
        if tag != self.tag(body).to_be_bytes() {
            return Err(Error::BadHandle);
        }
        let (head, kh) = body.split_at(HEAD);
        let &[version, k0, k1, v0, v1, v2, v3, b0, b1, b2, b3, b4, b5, b6, b7] = head else {
            return Err(Error::BadHandle);
        };
        if version != HANDLE_VERSION || u32::from_be_bytes([v0, v1, v2, v3]) != self.volume {
            return Err(Error::BadHandle);
        }
        Ok(ObjId {
            kh: KernelHandle { kind: i32::from(u16::from_be_bytes([k0, k1])), bytes: kh.into() },
            btime_ns: i64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7]),
        })
    }
}

impl std::fmt::Debug for HandleCodec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key must never be logged.
        f.debug_struct("HandleCodec").field("volume", &self.volume).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: usize) -> ObjId {
        ObjId {
            kh: KernelHandle { kind: 0x81, bytes: (0..n as u8).collect::<Vec<_>>().into() },
            btime_ns: -5,
        }
    }

    #[test]
    fn round_trip() {
        let c = HandleCodec::new([7; 16], 42);
        for n in [1, 8, 40, HANDLE_BYTES_MAX] {
            let fh = c.encode(&id(n)).unwrap();
            assert!(fh.len() <= 128);
            assert_eq!(c.decode(&fh), Ok(id(n)));
        }
        assert_eq!(c.encode(&id(0)), None);
        assert_eq!(c.encode(&id(HANDLE_BYTES_MAX + 1)), None);
    }

    #[test]
    fn every_changed_bit_and_every_other_length_is_refused() {
        let c = HandleCodec::new([7; 16], 42);
        let fh = c.encode(&id(8)).unwrap();
        for bit in 0..fh.len() * 8 {
            let mut forged = fh.to_vec();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(c.decode(&forged), Err(Error::BadHandle), "bit {bit}");
        }
        for len in 0..fh.len() {
            assert_eq!(c.decode(&fh[..len]), Err(Error::BadHandle));
        }
        let mut longer = fh.to_vec();
        longer.push(0);
        assert_eq!(c.decode(&longer), Err(Error::BadHandle));
        assert_eq!(c.decode(&[1; 200]), Err(Error::BadHandle));
    }

    #[test]
    fn another_volume_and_another_key_are_refused() {
        let fh = HandleCodec::new([7; 16], 42).encode(&id(8)).unwrap();
        assert_eq!(HandleCodec::new([7; 16], 43).decode(&fh), Err(Error::BadHandle));
        assert_eq!(HandleCodec::new([8; 16], 42).decode(&fh), Err(Error::BadHandle));
    }
}
