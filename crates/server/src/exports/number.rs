//! The number by which a filehandle names its volume.

use landfast_volume::HANDLE_VERSION;

/// The number that a volume with this identity has in its handles.
pub(super) fn number_from(id: &[u8; 16]) -> u32 {
    let [a, b, c, d, ..] = *id;
    u32::from_be_bytes([a, b, c, d])
}

/// The number in a handle from the wire; `None` if a volume made no such handle.
pub(super) fn number_of(handle: &[u8]) -> Option<u32> {
    let [HANDLE_VERSION, _, _, a, b, c, d, ..] = *handle else { return None };
    Some(u32::from_be_bytes([a, b, c, d]))
}
