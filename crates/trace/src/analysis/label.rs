//! Encodes what was called in one byte: a procedure of version 3, an operation of version 4, or neither.

use crate::skim::Program;

/// First label of version 4; the number of the operation is added.
pub(super) const V4: u8 = 64;
/// A COMPOUND whose main operation is unknown.
pub(super) const UNKNOWN: u8 = u8::MAX;
/// A call of another program that the client waits for.
pub(super) const BESIDE: u8 = u8::MAX - 1;

pub fn name(label: u8) -> String {
    let known = match label {
        UNKNOWN => Some("COMPOUND"),
        BESIDE => Some("MOUNT or NLM"),
        V4.. => landfast_nfs::v4::OpNum((label - V4).into()).name(),
        _ => Program::Nfs.procedure(3, label.into()),
    };
    known.map_or_else(|| format!("procedure {label}"), str::to_owned)
}

pub fn is_v4(label: u8) -> bool {
    label >= V4 && label != BESIDE
}
