//! POSIX access control lists (IEEE 1003.1e draft 17, acl(5)) and the kernel's encoding of them in
//! `system.posix_acl_access` and `system.posix_acl_default`. Pure: no I/O.
//!
//! The encoding: a version (2, four bytes), then entries of tag (2 bytes), permissions (2) and id (4), all little-endian.
//! The order is owner, users, owning group, groups, mask, others; users and groups ascend by id.
//!
//! Invariants of an [`Acl`]: permissions are 0 to 7; each user or group is named at most once; if one is named there is
//! a mask. So the kernel accepts each value, and [`Acl::decode`] of [`Acl::encode`] gives the same value.

use std::collections::BTreeMap;

use crate::limits::ACL_ENTRIES_MAX;

pub const ACL_READ: u8 = 4;
pub const ACL_WRITE: u8 = 2;
/// Permission to execute a file, or to search a directory.
pub const ACL_EXECUTE: u8 = 1;

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The id in entries that name nobody.
const NO_ID: u32 = u32::MAX;

/// A POSIX ACL. Permissions are the sum of [`ACL_READ`], [`ACL_WRITE`], [`ACL_EXECUTE`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    pub owner: u8,
    /// Permissions of named users, before the mask.
    pub users: BTreeMap<u32, u8>,
    /// Permissions of the owning group, before the mask.
    pub group: u8,
    /// Permissions of named groups, before the mask.
    pub groups: BTreeMap<u32, u8>,
    /// The maximum for named users and all groups. Required when a user or group is named.
    pub mask: Option<u8>,
    pub other: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    #[error("not an access control list: {0}")]
    Malformed(&'static str),
    #[error("more than {ACL_ENTRIES_MAX} entries")]
    TooLong,
}

impl Acl {
    /// The ACL that is equivalent to permission bits.
    pub fn from_mode(mode: u32) -> Acl {
        let bits = |shift: u32| (mode >> shift & 7) as u8;
        Acl { owner: bits(6), group: bits(3), other: bits(0), ..Acl::default() }
    }

    /// The permission bits of an object with this ACL: the mask stands for the group.
    pub fn mode(&self) -> u32 {
        u32::from(self.owner) << 6 | u32::from(self.mask.unwrap_or(self.group)) << 3 | u32::from(self.other)
    }

    /// The ACL after chmod(2): the group's bits go to the mask if there is one.
    pub fn with_mode(&self, mode: u32) -> Acl {
        let bits = Acl::from_mode(mode);
        let mut acl = Acl { owner: bits.owner, other: bits.other, ..self.clone() };
        match &mut acl.mask {
            Some(mask) => *mask = bits.group,
            None => acl.group = bits.group,
        }
        acl
    }

    /// Permission bits express all of it; then the kernel stores nothing else.
    pub fn is_mode(&self) -> bool {
        self.mask.is_none() && self.users.is_empty() && self.groups.is_empty()
    }

    pub fn entries(&self) -> usize {
        3 + self.users.len() + self.groups.len() + usize::from(self.mask.is_some())
    }

    pub fn check(&self) -> Result<(), AclError> {
        let named = || self.users.iter().chain(&self.groups);
        let perms = [self.owner, self.group, self.other, self.mask.unwrap_or(0)];
        if perms.into_iter().chain(named().map(|(_, perm)| *perm)).any(|perm| perm > 7) {
            return Err(AclError::Malformed("a permission that there is not"));
        }
        if named().any(|(id, _)| *id == NO_ID) {
            return Err(AclError::Malformed("an entry for nobody"));
        }
        if self.mask.is_none() && named().next().is_some() {
            return Err(AclError::Malformed("named entries without a mask"));
        }
        if self.entries() > ACL_ENTRIES_MAX { Err(AclError::TooLong) } else { Ok(()) }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + 8 * self.entries());
        out.extend_from_slice(&VERSION.to_le_bytes());
        let mut entry = |tag: u16, perm: u8, id: u32| {
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&u16::from(perm).to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        };
        entry(USER_OBJ, self.owner, NO_ID);
        self.users.iter().for_each(|(id, perm)| entry(USER, *perm, *id));
        entry(GROUP_OBJ, self.group, NO_ID);
        self.groups.iter().for_each(|(id, perm)| entry(GROUP, *perm, *id));
        self.mask.into_iter().for_each(|perm| entry(MASK, perm, NO_ID));
        entry(OTHER, self.other, NO_ID);
        out
    }

    /// Decodes the kernel's form. The order of entries does not matter.
    pub fn decode(bytes: &[u8]) -> Result<Acl, AclError> {
        let (version, entries) = bytes.split_first_chunk::<4>().ok_or(AclError::Malformed("too short"))?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(AclError::Malformed("another version"));
        }
        let (entries, rest) = entries.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(AclError::Malformed("half an entry"));
        }
        if entries.len() > ACL_ENTRIES_MAX {
            return Err(AclError::TooLong);
        }
        let entries = entries.iter().map(|[t0, t1, p0, p1, id @ ..]| {
            (u16::from_le_bytes([*t0, *t1]), u16::from_le_bytes([*p0, *p1]), u32::from_le_bytes(*id))
        });
        Acl::of_entries(entries)
    }

    /// Makes an ACL from entries (tag, permissions, id) with the kernel's tags, in any order. Ignores the ids of entries that
    /// name nobody.
    pub fn of_entries(entries: impl IntoIterator<Item = (u16, u16, u32)>) -> Result<Acl, AclError> {
        const TWICE: AclError = AclError::Malformed("an entry twice");
        let mut acl = Acl::default();
        let (mut owner, mut group, mut other) = (None, None, None);
        for (tag, perm, id) in entries {
            let perm = u8::try_from(perm)
                .ok()
                .filter(|perm| *perm <= 7)
                .ok_or(AclError::Malformed("a permission that there is not"))?;
            let before = match tag {
                USER_OBJ => owner.replace(perm),
                GROUP_OBJ => group.replace(perm),
                OTHER => other.replace(perm),
                MASK => acl.mask.replace(perm),
                USER => acl.users.insert(id, perm),
                GROUP => acl.groups.insert(id, perm),
                _ => return Err(AclError::Malformed("an unknown tag")),
            };
            if before.is_some() {
                return Err(TWICE);
            }
        }
        let (Some(owner), Some(group), Some(other)) = (owner, group, other) else {
            return Err(AclError::Malformed("no entry for owner, group or others"));
        };
        acl = Acl { owner, group, other, ..acl };
        acl.check()?;
        Ok(acl)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acls {
    /// Who may do what. Permission bits, where they express everything.
    pub access: Acl,
    /// The ACL that new objects in it start with; only for directories.
    pub default: Option<Acl>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAcls {
    /// `None` leaves it unchanged.
    pub access: Option<Acl>,
    /// `None` leaves it unchanged, `Some(None)` removes it.
    pub default: Option<Option<Acl>>,
}

impl SetAcls {
    pub fn is_empty(&self) -> bool {
        *self == SetAcls::default()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::collection::btree_map;
    use proptest::prelude::*;

    prop_compose! {
        pub(crate) fn any_acl()(
            owner in 0u8..8,
            group in 0u8..8,
            other in 0u8..8,
            mask in proptest::option::of(0u8..8),
            users in btree_map(0u32..9, 0u8..8, 0..4),
            groups in btree_map(0u32..9, 0u8..8, 0..4),
        ) -> Acl {
            let mask = if users.is_empty() && groups.is_empty() { mask } else { mask.or(Some(5)) };
            Acl { owner, users, group, groups, mask, other }
        }
    }

    #[test]
    fn the_kernels_form_byte_by_byte() {
        let acl = Acl {
            owner: 6,
            users: BTreeMap::from([(1000, 7)]),
            group: 4,
            groups: BTreeMap::new(),
            mask: Some(5),
            other: 0,
        };
        let none = [0xff; 4];
        let want = [
            &[2, 0, 0, 0][..],
            &[1, 0, 6, 0],
            &none,
            &[2, 0, 7, 0, 0xe8, 3, 0, 0],
            &[4, 0, 4, 0],
            &none,
            &[0x10, 0, 5, 0],
            &none,
            &[0x20, 0, 0, 0],
            &none,
        ]
        .concat();
        assert_eq!(acl.encode(), want);
        assert_eq!(acl.mode(), 0o650);
        assert!(!acl.is_mode() && Acl::from_mode(0o4755).is_mode());
        assert_eq!(Acl::from_mode(0o4755).mode(), 0o755);
    }

    #[test]
    fn what_the_kernel_would_not_take_is_refused() {
        let good = Acl { mask: Some(7), users: BTreeMap::from([(1, 7)]), ..Acl::from_mode(0o640) }.encode();
        assert!(Acl::decode(&good).is_ok());
        assert!(Acl::decode(&good[..good.len() - 1]).is_err());
        // Without its mask (the last entry but one).
        let unmasked = [&good[..good.len() - 16], &good[good.len() - 8..]].concat();
        assert!(Acl::decode(&unmasked).is_err());
        let twice = [&good[..], &good[good.len() - 8..]].concat();
        assert!(Acl::decode(&twice).is_err());
        let mut version = good.clone();
        version[0] = 1;
        assert!(Acl::decode(&version).is_err());
        let many = Acl { mask: Some(7), users: (0..2000).map(|n| (n, 7)).collect(), ..Acl::default() };
        assert_eq!(Acl::decode(&many.encode()), Err(AclError::TooLong));
    }

    proptest! {
        #[test]
        fn decoding_what_was_encoded_gives_the_same(acl in any_acl()) {
            prop_assert_eq!(acl.check(), Ok(()));
            prop_assert_eq!(Acl::decode(&acl.encode()), Ok(acl));
        }

        #[test]
        fn any_bytes_give_an_acl_or_an_error(b in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut b = b;
            if b.len() > 4 {
                b[..4].copy_from_slice(&2u32.to_le_bytes());
            }
            if let Ok(acl) = Acl::decode(&b) {
                prop_assert_eq!(Acl::decode(&acl.encode()), Ok(acl));
            }
        }

        #[test]
        fn a_changed_mode_is_what_shows(acl in any_acl(), mode in 0u32..0o1000) {
            prop_assert_eq!(acl.with_mode(mode).mode(), mode);
            prop_assert_eq!(acl.with_mode(acl.mode()), acl);
        }
    }
}
