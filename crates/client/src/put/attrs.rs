//! Which attributes a member gets, and when.
//!
//! - Creation sets mode, owner and group.
//! - Modification times are set last, because writing changes them.
//! - Set-user-ID and set-group-ID bits are set last, because writing and a change of owner clear them.
//! - A directory gets all attributes last, when nothing more is put into it.

use bytes::Bytes;
use landfast_nfs::v4::attr::{AttrValues, Fattr};
use landfast_nfs::v4::{NfsTime, SetTime};

use super::existing::Existing;
use super::options::{PutOptions, Xattrs};
use crate::archive::{Kind, Member, Time};
use crate::compound::fattr;
use crate::cred::Identity;
use crate::fs::Xattr;

/// Mode of a directory while it is being filled.
const DIR_MODE_MEANWHILE: u32 = 0o700;

/// The rules for one extraction.
#[derive(Debug)]
pub(super) struct AttrRules {
    same_owner: bool,
    /// The bits of a member's mode that are used.
    mode_mask: u32,
    touch: bool,
    umask: u32,
    /// Directories get their own mode at creation, with the owner's access added so that they can be filled.
    dir_mode_first: bool,
    own: Option<Identity>,
    xattrs: bool,
    /// A cache of the latest encoded attributes: successive members mostly have the same ones.
    last: Option<((u32, u32, u32), Fattr)>,
}

/// The attributes that are set at creation, and those set after the data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MemberAttrs {
    pub(super) create: Fattr,
    pub(super) finish: Fattr,
    /// Extended attributes, set before `finish`.
    pub(super) xattrs: Vec<Xattr>,
}

/// The extended attributes that NFS can hold, under the names that NFS uses (RFC 8276 section 1).
pub(super) fn user_xattrs(member: &Member) -> Vec<Xattr> {
    let short = |name: &[u8]| Some(Bytes::copy_from_slice(name.strip_prefix(b"user.")?));
    match member.kind {
        Kind::File | Kind::Dir => {
            member.xattrs.iter().filter_map(|(name, value)| Some((short(name)?, value.clone()))).collect()
        }
        _ => Vec::new(),
    }
}

/// Merges two sets of attributes. If both have an attribute, that of `later` is used.
pub(super) fn merge(first: &Fattr, later: &Fattr) -> Fattr {
    // Both were encoded here, so they decode.
    let a = AttrValues::from_fattr(first).unwrap_or_default();
    let b = AttrValues::from_fattr(later).unwrap_or_default();
    fattr(&AttrValues {
        mode: b.mode.or(a.mode),
        owner: b.owner.or(a.owner),
        owner_group: b.owner_group.or(a.owner_group),
        time_modify_set: b.time_modify_set.or(a.time_modify_set),
        time_access_set: b.time_access_set.or(a.time_access_set),
        size: b.size.or(a.size),
        ..AttrValues::default()
    })
}

impl AttrRules {
    pub(super) fn new(options: &PutOptions, root: bool) -> AttrRules {
        let same_permissions = options.same_permissions.unwrap_or(root);
        AttrRules {
            same_owner: options.same_owner.unwrap_or(root),
            mode_mask: if same_permissions { 0o7777 } else { 0o777 & !options.umask },
            touch: options.touch,
            umask: options.umask,
            dir_mode_first: !same_permissions && matches!(options.existing, Existing::Look(_)),
            own: options.own.clone(),
            xattrs: options.xattrs != Xattrs::No,
            last: None,
        }
    }

    /// Whether new objects get other owners than the caller.
    pub(super) fn sets_owners(&self) -> bool {
        self.same_owner
    }

    /// The destination has no extended attributes.
    pub(super) fn forget_xattrs(&mut self) {
        self.xattrs = false;
    }

    /// A directory that the archive does not name but needs.
    pub(super) fn implied_dir(&self) -> Fattr {
        fattr(&AttrValues { mode: Some(0o777 & !self.umask), ..AttrValues::default() })
    }

    pub(super) fn of(&mut self, member: &Member) -> MemberAttrs {
        let xattrs = if self.xattrs { user_xattrs(member) } else { Vec::new() };
        let kept = match (&self.own, self.same_owner) {
            (Some(own), false) => kept_bits(member, own),
            _ => 0o7777,
        };
        let mode = member.mode & self.mode_mask & kept;
        if member.kind == Kind::Dir {
            let create = AttrValues { mode: Some(DIR_MODE_MEANWHILE), ..AttrValues::default() };
            let mut finish = self.owner(member);
            finish.time_modify_set = self.time(member.mtime);
            finish.time_access_set = member.atime.and_then(|t| self.time(t));
            if self.dir_mode_first {
                let mode = member.mode & (self.mode_mask | 0o1000);
                let create = AttrValues { mode: Some(mode | DIR_MODE_MEANWHILE), ..AttrValues::default() };
                finish.mode = (mode | DIR_MODE_MEANWHILE != mode).then_some(mode);
                return MemberAttrs { create: fattr(&create), finish: fattr(&finish), xattrs };
            }
            finish.mode = Some(mode);
            return MemberAttrs { create: fattr(&create), finish: fattr(&finish), xattrs };
        }
        let set_id = mode & 0o6000 != 0;
        let is_link = member.kind == Kind::Symlink;
        let finish = AttrValues {
            mode: (set_id && !is_link).then_some(mode),
            time_modify_set: self.time(member.mtime),
            time_access_set: member.atime.and_then(|t| self.time(t)),
            ..AttrValues::default()
        };
        let key = (if is_link { u32::MAX } else { mode & 0o1777 }, member.uid, member.gid);
        let create = match &self.last {
            Some((last, fattr)) if *last == key => fattr.clone(),
            _ => {
                let mut create = self.owner(member);
                create.mode = (!is_link).then_some(mode & 0o1777);
                self.last.insert((key, fattr(&create))).1.clone()
            }
        };
        MemberAttrs { create, finish: fattr(&finish), xattrs }
    }

    fn owner(&self, member: &Member) -> AttrValues {
        let id = |n: u32| Bytes::from(n.to_string());
        let own_group = |gid: &u32| self.own.as_ref().is_some_and(|own| own.is_in(*gid));
        AttrValues {
            owner: self.same_owner.then(|| id(member.uid)),
            owner_group: Some(member.gid).filter(|gid| self.same_owner || own_group(gid)).map(id),
            ..AttrValues::default()
        }
    }

    fn time(&self, time: Time) -> Option<SetTime> {
        let time = NfsTime { seconds: time.seconds, nseconds: time.nanos };
        (!self.touch).then_some(SetTime::ClientTime(time))
    }
}

/// The bits of a member's mode that it keeps when this user, who may not give files away, makes it. If its owner and group
/// cannot both be kept, set-ID bits would give the rights of this user. As with GNU cp, a directory's sticky bit stays.
pub(crate) fn kept_bits(member: &Member, own: &Identity) -> u32 {
    match (own.uid == member.uid && own.is_in(member.gid), member.kind) {
        (true, _) => 0o7777,
        (false, Kind::Dir) => 0o1777,
        (false, _) => 0o777,
    }
}

/// The set-user-ID and set-group-ID bits.
const SET_ID: u32 = 0o6000;

pub(super) fn has_set_id(attrs: &Fattr) -> bool {
    let values = AttrValues::from_fattr(attrs).unwrap_or_default();
    values.mode.is_some_and(|mode| mode & SET_ID != 0)
}

/// The attributes without owner, group and set-ID bits, for an object whose owner could not be set. Set-ID bits would give
/// the rights of the wrong owner.
pub(super) fn without_its_owner(attrs: &Fattr) -> Fattr {
    let values = AttrValues::from_fattr(attrs).unwrap_or_default();
    let mode = values.mode.map(|mode| mode & !SET_ID);
    fattr(&AttrValues { mode, owner: None, owner_group: None, ..values })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(kind: Kind, mode: u32) -> Member {
        Member { mode, uid: 7, gid: 8, mtime: Time { seconds: 5, nanos: 6 }, ..Member::plain(b"m", kind) }
    }

    fn values(f: &Fattr) -> AttrValues {
        AttrValues::from_fattr(f).unwrap()
    }

    #[test]
    fn root_keeps_all_and_sets_set_id_bits_last() {
        let mut rules = AttrRules::new(&PutOptions::default(), true);
        let a = rules.of(&member(Kind::File, 0o6755));
        let (create, finish) = (values(&a.create), values(&a.finish));
        assert_eq!((create.mode, create.owner.as_deref()), (Some(0o755), Some(&b"7"[..])));
        assert_eq!((finish.mode, finish.owner), (Some(0o6755), None));
        assert!(finish.time_modify_set.is_some());
        let a = rules.of(&member(Kind::File, 0o644));
        assert_eq!((values(&a.create).mode, values(&a.finish).mode), (Some(0o644), None));
        let a = rules.of(&member(Kind::Symlink, 0o777));
        assert_eq!((values(&a.create).mode, values(&a.finish).mode), (None, None));
        let a = rules.of(&member(Kind::Dir, 0o2555));
        assert_eq!((values(&a.create).mode, values(&a.finish).mode), (Some(0o700), Some(0o2555)));
        assert_eq!(values(&a.finish).owner_group.as_deref(), Some(&b"8"[..]));
    }

    #[test]
    fn others_get_the_umask_and_no_owner() {
        let options = PutOptions { umask: 0o027, touch: true, ..PutOptions::default() };
        let mut rules = AttrRules::new(&options, false);
        let a = rules.of(&member(Kind::File, 0o6777));
        assert_eq!(values(&a.create), AttrValues { mode: Some(0o750), ..AttrValues::default() });
        assert!(a.finish.mask.is_empty());
        assert_eq!(values(&rules.implied_dir()).mode, Some(0o750));
    }

    /// As GNU cp: `member` is of user 7 and group 8.
    #[test]
    fn set_id_bits_are_kept_with_owner_and_group_only() {
        let modes = |uid, groups: &[u32]| {
            let own = Identity { uid, gid: 100, groups: groups.to_vec(), host: Vec::new() };
            let options =
                PutOptions { same_permissions: Some(true), own: Some(own), ..PutOptions::default() };
            let mut rules = AttrRules::new(&options, false);
            let file = rules.of(&member(Kind::File, 0o6755));
            let dir = rules.of(&member(Kind::Dir, 0o3770));
            (values(&file.finish).mode, values(&file.create).mode, values(&dir.finish).mode)
        };
        assert_eq!(modes(7, &[8]), (Some(0o6755), Some(0o755), Some(0o3770)));
        assert_eq!(modes(7, &[]), (None, Some(0o755), Some(0o1770)));
        assert_eq!(modes(9, &[8]), (None, Some(0o755), Some(0o1770)));
    }

    #[test]
    fn merging() {
        let v = |mode, owner: Option<&'static str>| {
            let owner = owner.map(|o| Bytes::from_static(o.as_bytes()));
            fattr(&AttrValues { mode, owner, ..AttrValues::default() })
        };
        assert_eq!(merge(&v(Some(1), Some("o")), &v(Some(2), None)), v(Some(2), Some("o")));
    }
}
