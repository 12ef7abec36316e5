//! Paths, and where in the server's tree their walk begins. No I/O.
//!
//! A path is bytes with `/` between names; empty names and `.` are ignored. `..` is a step of its own, a LOOKUPP from
//! where the walk is. Removing it together with the name before it would be wrong after a symbolic link.

use bytes::Bytes;
use landfast_nfs::v4::FileHandle;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Step {
    /// LOOKUP.
    Name(Bytes),
    /// LOOKUPP.
    Up,
}

pub(super) fn steps(path: &[u8]) -> Vec<Step> {
    path.split(|b| *b == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .map(|name| match name {
            b".." => Step::Up,
            name => Step::Name(Bytes::copy_from_slice(name)),
        })
        .collect()
}

/// Where a walk begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Base {
    /// The directory where all paths begin.
    Top,
    /// PUTFH.
    Handle(FileHandle),
}

/// An object, by a walk from a base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) base: Base,
    pub(super) steps: Vec<Step>,
}

/// `dir/name`, or `name` alone in the top directory.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match dir {
        b"" => name.to_vec(),
        [.., b'/'] => [dir, name].concat(),
        dir => [dir, b"/", name].concat(),
    }
}

/// `a`, `a/b` and `a/b/c` for `a/b/c`.
pub(super) fn above(path: &[u8]) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty() && *name != b".") {
        all.push(join(all.last().map_or(&[], Vec::as_slice), name));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_names_and_dots_count_for_nothing_and_parents_are_steps() {
        let name = |n: &'static str| Step::Name(Bytes::from_static(n.as_bytes()));
        assert_eq!(steps(b"//a/./b/"), [name("a"), name("b")]);
        assert_eq!(steps(b"a/../b"), [name("a"), Step::Up, name("b")]);
        assert_eq!(steps(b"/"), []);
    }
}
