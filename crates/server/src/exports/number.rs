//! The number of a volume, by which its handles name it.

use landfast_volume::HANDLE_VERSION;

/// The number of a volume in its handles.
pub(super) fn number_from(id: &[u8; 16]) -> u32 {
    let [a, b, c, d, ..] = *id;
    u32::from_be_bytes([a, b, c, d])
}

/// The number of the volume that a wire handle names.
pub(super) fn number_of(handle: &[u8]) -> Option<u32> {
    let [HANDLE_VERSION, _, _, a, b, c, d, ..] = *handle else { return None };
    Some(u32::from_be_bytes([a, b, c, d]))
}
