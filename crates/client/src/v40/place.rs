//! Where a COMPOUND is, in a form in which another COMPOUND can go there. Pure.

use bytes::Bytes;
use landfast_nfs::v4::{ArgOp, FileHandle};

/// The path to a filehandle: a base and names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HandlePath {
    base: ArgOp,
    steps: Vec<ArgOp>,
    /// The operation of the leg that returns the handle (a GETFH).
    told_by: Option<usize>,
}

impl HandlePath {
    pub(super) fn to(base: ArgOp) -> HandlePath {
        HandlePath { base, steps: Vec::new(), told_by: None }
    }

    /// Continues by LOOKUP or LOOKUPP.
    pub(super) fn step(&mut self, op: ArgOp) {
        self.steps.push(op);
        self.told_by = None;
    }

    /// Continues to an object that was made or opened under this name.
    pub(super) fn name(&mut self, name: &Bytes) {
        self.step(ArgOp::Lookup(name.clone()));
    }

    /// Operation `by` of the leg is a GETFH of this handle.
    pub(super) fn told(&mut self, by: usize) {
        self.told_by = Some(by);
    }

    /// Takes the handle that the GETFH `by` returned.
    pub(super) fn learn(&mut self, by: usize, fh: &FileHandle) {
        if self.told_by == Some(by) {
            *self = HandlePath::to(ArgOp::Putfh(fh.clone()));
        }
    }

    /// The leg has ended: a handle that was not returned is unknown.
    pub(super) fn forget(&mut self) {
        self.told_by = None;
    }

    /// The operations that go there.
    pub(super) fn ops(&self) -> impl Iterator<Item = &ArgOp> {
        std::iter::once(&self.base).chain(&self.steps)
    }
}

/// A filehandle, and the open of the current stateid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) way: Option<HandlePath>,
    pub(super) open: Option<usize>,
}

impl Place {
    pub(super) fn at(base: ArgOp) -> Place {
        Place { way: Some(HandlePath::to(base)), open: None }
    }
}

pub(super) fn uses_current(rest: &[ArgOp]) -> bool {
    !matches!(
        rest.first(),
        None | Some(ArgOp::Putfh(_) | ArgOp::Putrootfh | ArgOp::Putpubfh | ArgOp::Restorefh)
    )
}

pub(super) fn uses_saved(rest: &[ArgOp]) -> bool {
    let first = rest
        .iter()
        .find(|op| matches!(op, ArgOp::Savefh | ArgOp::Restorefh | ArgOp::Rename(_) | ArgOp::Link(_)));
    matches!(first, Some(ArgOp::Restorefh | ArgOp::Rename(_) | ArgOp::Link(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_as_short_as_what_is_known() {
        let fh = |n| FileHandle(Bytes::copy_from_slice(&[n]));
        let mut way = HandlePath::to(ArgOp::Putrootfh);
        way.name(&"a".into());
        way.told(3);
        way.learn(2, &fh(1));
        assert_eq!(way.ops().count(), 2);
        way.learn(3, &fh(2));
        assert!(way.ops().eq([&ArgOp::Putfh(fh(2))]));
        way.told(4);
        way.name(&"b".into());
        way.learn(4, &fh(3));
        assert_eq!(way.ops().count(), 2);
    }

    #[test]
    fn what_the_rest_needs() {
        let name = Bytes::from_static(b"n");
        let remove = ArgOp::Remove(name.clone());
        assert!(
            uses_current(std::slice::from_ref(&remove))
                && !uses_current(&[ArgOp::Restorefh])
                && !uses_current(&[])
        );
        assert!(uses_saved(&[remove.clone(), ArgOp::Restorefh]));
        assert!(uses_saved(&[ArgOp::Link(name)]));
        assert!(!uses_saved(&[ArgOp::Savefh, ArgOp::Restorefh]) && !uses_saved(&[remove]));
    }
}
