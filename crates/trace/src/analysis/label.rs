//! What was called, as one byte: a procedure of version 3, an operation of version 4, or neither.

use crate::skim::Program;

/// Labels of version 4 begin here: the number of the operation is added.
pub(super) const V4: u8 = 64;
/// A COMPOUND whose main operation is not known.
pub(super) const UNKNOWN: u8 = u8::MAX;
/// A call of a program beside NFS that the client waits for, too.
pub(super) const BESIDE: u8 = u8::MAX - 1;

/// The name of a label.
#[must_use]
pub fn name(label: u8) -> String {
    let known = match label {
        UNKNOWN => Some("COMPOUND"),
        BESIDE => Some("MOUNT or NLM"),
        V4.. => landfast_nfs::v4::OpNum((label - V4).into()).name(),
        _ => Program::Nfs.procedure(3, label.into()),
    };
    known.map_or_else(|| format!("procedure {label}"), str::to_owned)
}

/// Whether a label is of an operation of version 4.
#[must_use]
pub fn is_v4(label: u8) -> bool {
    label >= V4 && label != BESIDE
}
