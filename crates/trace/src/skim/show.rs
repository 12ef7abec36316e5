//! How a listing shows what is in a record.

use super::cursor::Cursor;
use crate::limits::OPERATIONS_MAX;
use std::fmt::Write;

/// For a listing: state from earlier operations of a COMPOUND.
#[derive(Debug, Default)]
pub(crate) struct Show {
    pub(super) handle: Option<u32>,
    pub(super) saved: Option<u32>,
    pub(super) checks: Option<u16>,
    pub(super) operations: Vec<(u8, String)>,
    /// Memory in bytes for their texts.
    texts: usize,
}

impl Show {
    pub(super) fn handle(&self, text: &mut String) {
        if let Some(handle) = self.handle {
            let _ = write!(text, " FH: 0x{handle:08x}");
        }
    }

    pub(super) fn checks(&mut self, bits: u32) {
        let bits = u16::try_from(bits).unwrap_or(0);
        self.checks = Some(if self.checks.is_none_or(|before| before == bits) { bits } else { 0 });
    }

    pub(super) fn push(&mut self, op: u8, text: String) {
        if self.operations.len() < OPERATIONS_MAX {
            self.texts += text.capacity();
            self.operations.push((op, text));
        }
    }

    /// Bytes of memory.
    pub(super) fn held(&self) -> usize {
        self.operations.capacity() * size_of::<(u8, String)>() + self.texts
    }

    pub(super) fn let_go(&mut self) {
        (self.operations, self.texts) = (Vec::new(), 0);
    }

    pub(super) fn name(&self, out: &mut String, name: &[u8]) {
        match self.handle {
            Some(handle) => _ = write!(out, " DH: 0x{handle:08x}/{}", text(name)),
            None => _ = write!(out, " {}", text(name)),
        }
    }
}

/// How a listing shows a handle: CRC-32 as in Wireshark.
pub(crate) fn digest(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// How a listing shows a stateid: CRC-16 of X.25 as in Wireshark.
fn stateid_digest(stateid: &[u8]) -> u16 {
    !stateid.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte), |crc, _| if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0x8408 })
    })
}

pub(super) fn stateid(c: &mut Cursor<'_>, text: &mut String) -> Option<()> {
    let _ = write!(text, " StateID: 0x{:04x}", stateid_digest(c.take(16)?));
    Some(())
}

/// A name with control characters escaped, for one line.
pub(crate) fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().flat_map(char::escape_debug).collect::<String>().replace("\\'", "'")
}

pub(crate) fn access(bits: u32) -> String {
    let names = ["RD", "LU", "MD", "XT", "DL", "XE", "XAR", "XAW", "XAL"];
    let set = names.iter().enumerate().filter(|(i, _)| bits & (1 << i) != 0);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
}

/// The byte range of a lock. Length `all` means to the end of the file.
pub(super) fn range(offset: u64, length: u64, all: u64, text: &mut String) {
    let _ = write!(text, " Offset: {offset} Length: ");
    if length == all {
        text.push_str("<End of File>");
    } else {
        let _ = write!(text, "{length}");
    }
}

/// The reply of ACCESS: bits that the server does not support, denied bits, allowed bits.
pub(super) fn answered(checked: u32, supported: u32, allowed: u32) -> String {
    let mut text = String::new();
    let kinds = [
        ("NOT Supported", checked & !supported),
        ("Access Denied", supported & !allowed),
        ("Allowed", allowed),
    ];
    for (what, bits) in kinds {
        let names = access(bits);
        if !names.is_empty() {
            let _ = write!(text, ", [{what}: {names}]");
        }
    }
    text
}

/// How stable a WRITE is to be, or was.
pub(crate) fn stable(how: u32) -> &'static str {
    ["UNSTABLE", "DATA_SYNC", "FILE_SYNC"].get(how as usize).copied().unwrap_or("stable?")
}
