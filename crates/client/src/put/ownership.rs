//! Which owners a server sets at creation. No I/O.
//!
//! If the caller may not change owners (for example a squashed root), Linux's server does not set the owner, but replies that
//! it did. So the owner of the first new object in a COMPOUND is read back, for each combination of owner, group and mode,
//! until it is known what the server does with that combination.

use std::collections::HashMap;

use bytes::Bytes;
use landfast_nfs::v4::Fattr;
use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};

use crate::limits::OWNERS_KNOWN_MAX;

/// The attributes that are read back.
pub(super) const OWNERSHIP: Bitmap = Bitmap::of(&[number::OWNER, number::OWNER_GROUP]);

/// A mask of attributes, and their encoding.
pub(super) type With = (Bitmap, Bytes);

/// `None`: there is no owner or group among them.
pub(super) fn with(create: &Fattr) -> Option<With> {
    (!create.mask.and(&OWNERSHIP).is_empty()).then(|| (create.mask, create.values.clone()))
}

/// Which of the requested owner and group are missing in `got`. If the server gives a name instead of a number, that says
/// nothing.
pub(super) fn left_out(create: &Fattr, got: &Fattr) -> Bitmap {
    let (asked, has) = (AttrValues::from_fattr(create), AttrValues::from_fattr(got));
    let (Ok(asked), Ok(has)) = (asked, has) else { return Bitmap::default() };
    let number = |who: &Bytes| std::str::from_utf8(who).ok().and_then(|who| who.parse::<u32>().ok());
    let other = |asked: &Option<Bytes>, has: &Option<Bytes>| match (asked, has) {
        (Some(asked), Some(has)) => number(has).is_some_and(|has| number(asked) != Some(has)),
        _ => false,
    };
    let mut out = Bitmap::default();
    if other(&asked.owner, &has.owner) {
        out.set(number::OWNER);
    }
    if other(&asked.owner_group, &has.owner_group) {
        out.set(number::OWNER_GROUP);
    }
    out
}

#[derive(Debug, Default)]
pub(super) struct Ownership {
    known: HashMap<With, Bitmap>,
}

impl Ownership {
    /// Whether an object made with these attributes must be read back.
    pub(super) fn is_unknown(&self, create: &Fattr) -> bool {
        with(create).is_some_and(|with| !self.known.contains_key(&with))
            && self.known.len() < OWNERS_KNOWN_MAX
    }

    /// Notes that an object made with the attributes `create` has those in `got`.
    pub(super) fn found(&mut self, create: &Fattr, got: &Fattr) {
        if let Some(with) = with(create).filter(|_| self.known.len() < OWNERS_KNOWN_MAX) {
            self.known.insert(with, left_out(create, got));
        }
    }

    /// Which of these the server does not set.
    pub(super) fn left_out(&self, create: &Fattr) -> Bitmap {
        with(create).and_then(|with| self.known.get(&with)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compound::fattr;

    fn owned(owner: &'static str, group: &'static str, mode: Option<u32>) -> Fattr {
        let of = |who: &'static str| (!who.is_empty()).then(|| Bytes::from_static(who.as_bytes()));
        fattr(&AttrValues { owner: of(owner), owner_group: of(group), mode, ..AttrValues::default() })
    }

    #[test]
    fn what_differs_was_left_out() {
        let asked = owned("7", "8", Some(0o644));
        for (got, out) in [
            (owned("7", "8", None), Bitmap::default()),
            (owned("65534", "65534", None), OWNERSHIP),
            (owned("65534", "8", None), Bitmap::of(&[number::OWNER])),
            (owned("7", "0", None), Bitmap::of(&[number::OWNER_GROUP])),
            (owned("ann@example.org", "staff", None), Bitmap::default()),
            (owned("", "", None), Bitmap::default()),
        ] {
            assert_eq!(left_out(&asked, &got), out, "{got:?}");
        }
    }

    #[test]
    fn each_is_looked_at_until_it_is_known() {
        let mut given = Ownership::default();
        let (first, second) = (owned("7", "8", Some(0o644)), owned("65534", "65534", Some(0o644)));
        assert!(given.is_unknown(&first) && !given.is_unknown(&owned("", "", Some(0o644))));
        given.found(&first, &owned("65534", "65534", None));
        assert!(!given.is_unknown(&first) && given.is_unknown(&second));
        given.found(&second, &owned("65534", "65534", None));
        assert_eq!((given.left_out(&first), given.left_out(&second)), (OWNERSHIP, Bitmap::default()));
    }
}
