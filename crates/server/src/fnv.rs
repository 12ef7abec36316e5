//! 64-bit FNV-1a, for digests that handles and notes in the log keep: it must never change.

pub(crate) const BEGIN: u64 = 0xcbf2_9ce4_8422_2325;

/// The digest `h` with these bytes added.
pub(crate) fn add<'a>(h: u64, bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    bytes.into_iter().fold(h, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}
