//! NFSACL for NFSv3 clients: GETACL and SETACL ([`landfast_nfs::nfsacl`]).
//!
//! Clients expect a mask in every list, even in one that equals the permission bits. So GETACL adds such a mask, and
//! SETACL removes it.

use super::context::{Context, Obj, fattr};
use super::errors::status;
use landfast_nfs::nfsacl::{
    DEFAULT, Entry, GetaclArgs, GetaclOk, GetaclRes, List, Lists, SetaclArgs, SetaclRes, mask,
};
use landfast_nfs::v3::NfsStat3;
use landfast_volume::{Acl, Acls, Attrs, Kind, SetAcls};

const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHERS: u16 = 32;

impl Context<'_> {
    pub(super) fn getacl(&mut self, a: &GetaclArgs) -> GetaclRes {
        self.reading(&a.object, |ctx, obj| {
            must_show_acls(obj)?;
            let (mut attrs, lists) = lists(obj, a.mask)?;
            ctx.looks.show_in(&obj.node, &mut attrs);
            Ok(GetaclOk { attrs: Some(fattr(&attrs)), lists })
        })
    }

    pub(super) fn setacl(&mut self, a: &SetaclArgs) -> SetaclRes {
        self.reading(&a.object, |ctx, obj| {
            must_show_acls(obj)?;
            ctx.set_lists(obj, &a.lists)?;
            Ok(ctx.attrs(obj))
        })
    }

    fn set_lists(&mut self, obj: &Obj, lists: &Lists) -> Result<(), NfsStat3> {
        let mut set = wanted(lists, obj.node.kind() == Kind::Dir)?;
        if lists.mask & mask::ACL != 0 && set.access.is_none() {
            // No list: permission bits as they are.
            let mode = obj.volume().getattr(&obj.node).map_err(status)?.mode;
            set.access = Some(Acl::from_mode(mode));
        }
        let tx = self.modify(obj)?;
        obj.volume().set_acls(tx, obj.cred(), &obj.node, &set).map_err(status)
    }
}

fn must_show_acls(obj: &Obj) -> Result<(), NfsStat3> {
    if obj.export.features.acls { Ok(()) } else { Err(NfsStat3::NOTSUPP) }
}

fn lists(obj: &Obj, asked: u32) -> Result<(Attrs, Lists), NfsStat3> {
    if asked & !mask::ALL != 0 {
        return Err(NfsStat3::INVAL);
    }
    let (attrs, acls) = if obj.node.kind() == Kind::Symlink {
        // It has none. NOTSUPP would be taken to concern the whole filesystem.
        let attrs = obj.volume().getattr(&obj.node).map_err(status)?;
        (attrs, Acls { access: Acl::from_mode(attrs.mode), default: None })
    } else {
        obj.volume().acls(&obj.node).map_err(status)?
    };
    let list = |acl: Option<&Acl>, send: u32, flag: u32| {
        let entries = acl.map_or_else(Vec::new, |acl| entries(acl, &attrs, flag));
        let count = entries.len() as u32;
        List { count, entries: if asked & send != 0 { entries } else { Vec::new() } }
    };
    let access = list(Some(&acls.access), mask::ACL, 0);
    let default = list(acls.default.as_ref(), mask::DFACL, DEFAULT);
    Ok((attrs, Lists { mask: asked, access, default }))
}

fn entries(acl: &Acl, attrs: &Attrs, flag: u32) -> Vec<Entry> {
    let entry = |kind: u16, id, perm: u8| Entry { kind: u32::from(kind) | flag, id, perm: u32::from(perm) };
    let mut all = vec![entry(OWNER, attrs.uid, acl.owner)];
    all.extend(acl.users.iter().map(|(id, perm)| entry(USER, *id, *perm)));
    all.push(entry(OWNING_GROUP, attrs.gid, acl.group));
    all.extend(acl.groups.iter().map(|(id, perm)| entry(GROUP, *id, *perm)));
    all.push(entry(MASK, 0, acl.mask.unwrap_or(acl.group)));
    all.push(entry(OTHERS, 0, acl.other));
    all
}

/// The ACLs to set. An empty access list removes the ACL.
fn wanted(lists: &Lists, dir: bool) -> Result<SetAcls, NfsStat3> {
    let one = |list: &List| -> Result<Option<Acl>, NfsStat3> {
        if list.entries.len() as u64 != u64::from(list.count) {
            return Err(NfsStat3::INVAL);
        }
        if list.entries.is_empty() {
            return Ok(None);
        }
        let entries = list.entries.iter().map(|e| {
            let kind = u16::try_from(e.kind & !DEFAULT).unwrap_or(u16::MAX);
            (kind, u16::try_from(e.perm).unwrap_or(u16::MAX), e.id)
        });
        let mut acl = Acl::of_entries(entries).map_err(|_| NfsStat3::INVAL)?;
        if acl.users.is_empty() && acl.groups.is_empty() && acl.mask == Some(acl.group) {
            acl.mask = None;
        }
        Ok(Some(acl))
    };
    if lists.mask & !mask::ALL != 0 {
        return Err(NfsStat3::INVAL);
    }
    let access = if lists.mask & mask::ACL != 0 { one(&lists.access)? } else { None };
    let default = if lists.mask & mask::DFACL != 0 { Some(one(&lists.default)?) } else { None };
    match default {
        Some(Some(_)) if !dir => Err(NfsStat3::INVAL),
        // Only a directory has a default list.
        Some(None) if !dir => Ok(SetAcls { access, default: None }),
        default => Ok(SetAcls { access, default }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfast_volume::Timestamp;
    use std::collections::BTreeMap;

    fn attrs() -> Attrs {
        Attrs {
            kind: Kind::File,
            mode: 0o640,
            nlink: 1,
            uid: 7,
            gid: 8,
            rdev: (0, 0),
            size: 0,
            used: 0,
            fsid: (0, 0),
            fileid: 1,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            btime: Timestamp::default(),
            change: 1,
        }
    }

    fn sent(acl: &Acl, flag: u32) -> List {
        let entries = entries(acl, &attrs(), flag);
        List { count: entries.len() as u32, entries }
    }

    #[test]
    fn what_was_sent_sets_the_same() {
        let named = Acl { users: BTreeMap::from([(9, 7)]), mask: Some(4), ..Acl::from_mode(0o640) };
        let masked = Acl { mask: Some(2), ..Acl::from_mode(0o640) };
        for acl in [Acl::from_mode(0o640), named, masked] {
            let lists =
                Lists { mask: mask::ACL | mask::DFACL, access: sent(&acl, 0), default: sent(&acl, DEFAULT) };
            let want = SetAcls { access: Some(acl.clone()), default: Some(Some(acl)) };
            assert_eq!(wanted(&lists, true), Ok(want));
        }
        // Permission bits have a mask on the way.
        assert_eq!(sent(&Acl::from_mode(0o640), 0).count, 4);
    }

    #[test]
    fn lists_that_are_none_are_refused() {
        let good = sent(&Acl::from_mode(0o640), 0);
        let set = |access: List| wanted(&Lists { mask: mask::ACL, access, default: List::default() }, false);
        assert!(set(good.clone()).is_ok());
        assert_eq!(set(List { count: 5, ..good.clone() }), Err(NfsStat3::INVAL));
        let mut odd = good.clone();
        odd.entries[0].perm = 8;
        assert_eq!(set(odd), Err(NfsStat3::INVAL));
        let mut odd = good.clone();
        odd.entries[0].kind = 3;
        assert_eq!(set(odd), Err(NfsStat3::INVAL));
        let mut odd = good.clone();
        odd.entries[0].kind = 0x1_0001;
        assert_eq!(set(odd), Err(NfsStat3::INVAL));
        let lists = Lists { mask: mask::DFACL, access: List::default(), default: good };
        assert_eq!(wanted(&lists, false), Err(NfsStat3::INVAL));
        assert_eq!(wanted(&Lists { mask: 16, ..lists }, true), Err(NfsStat3::INVAL));
    }
}
