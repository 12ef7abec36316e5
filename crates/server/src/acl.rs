//! Converts POSIX ACLs to NFSv4 ACLs and back (RFC 8881 section 6; the IETF's draft-ietf-nfsv4-acl-mapping). Pure.
//!
//! The filesystem keeps POSIX ACLs and the kernel applies them. NFSv4 clients see and set lists of allow and deny
//! entries; for each permission the first entry that applies decides.
//!
//! **To NFSv4** ([`to_nfs4`]): the owner; each user; the allow entries of all groups, then their deny entries;
//! everyone. If there is a mask, each member of the group class (users and groups) is first denied what the mask takes
//! away, then allowed what its entry says, then denied the rest, so that no later entry gives it more. The result
//! grants each single permission to exactly those whom the POSIX ACL grants it. (Combinations may differ: a caller with
//! one permission by one group and another by a second group has both in NFSv4, but not in POSIX. The kernel decides.)
//! The default ACL follows as entries with FILE_INHERIT, DIRECTORY_INHERIT and INHERIT_ONLY.
//!
//! **From NFSv4** ([`from_nfs4`]): entries are added up in order for the owner, each user, the owning group, each group
//! and everyone. If it cannot be known whether a denial concerns somebody (membership in a group), it is taken to. What
//! POSIX cannot express is refused, or grants less, never more:
//!
//! | in the list | answer |
//! |---|---|
//! | AUDIT, ALARM; NO_PROPAGATE and flags of audit; only one of FILE_INHERIT and DIRECTORY_INHERIT | `ATTRNOTSUPP` |
//! | a denial only of what POSIX always gives, or never gives in the object itself (attributes, ACL, deletion) | `ATTRNOTSUPP` |
//! | inherit flags on an object that is no directory; INHERIT_ONLY alone; unknown types, flags, permissions | `INVAL` |
//! | a `who` that is neither special nor a number | `BADOWNER` |
//! | an allow of only part of what POSIX calls writing | nothing is allowed |
//! | a deny of part of it | all of it is denied |
//!
//! A list made by [`to_nfs4`] is recognised, so setting what was read changes nothing. One exception: a mask without a
//! named user or group is merged into the group's entry.

use crate::limits::ACES_MAX;
use crate::owner::owner_number;
use bytes::Bytes;
use landfast_nfs::v4::NfsStat;
use landfast_nfs::v4::flags::*;
use landfast_nfs::v4::types::NfsAce;
use landfast_volume::acl::{ACL_EXECUTE, ACL_READ, ACL_WRITE};
use landfast_volume::{Acl, Acls, SetAcls};
use std::collections::BTreeMap;

const OWNER: &[u8] = b"OWNER@";
const GROUP: &[u8] = b"GROUP@";
const EVERYONE: &[u8] = b"EVERYONE@";

/// What POSIX gives everybody who can reach the object.
const ALWAYS: u32 = ACE4_READ_ATTRIBUTES | ACE4_READ_ACL | ACE4_SYNCHRONIZE;
/// What POSIX gives the owner.
const OWNERS: u32 = ACE4_WRITE_ATTRIBUTES | ACE4_WRITE_ACL;
const INHERIT: u32 = ACE4_FILE_INHERIT_ACE | ACE4_DIRECTORY_INHERIT_ACE;
/// `ACE4_SUCCESSFUL_ACCESS_ACE_FLAG` and `ACE4_FAILED_ACCESS_ACE_FLAG`.
const OF_AUDIT: u32 = 0x30;
/// `ACE4_INHERITED_ACE`: says where an entry came from, which is not kept.
const INHERITED: u32 = 0x80;
const KNOWN_FLAGS: u32 = INHERIT
    | ACE4_NO_PROPAGATE_INHERIT_ACE
    | ACE4_INHERIT_ONLY_ACE
    | OF_AUDIT
    | ACE4_IDENTIFIER_GROUP
    | INHERITED;
const KNOWN_MASK: u32 = 0x1f_07ff;

const ALL: u8 = ACL_READ | ACL_WRITE | ACL_EXECUTE;

/// The NFSv4 bits of each POSIX permission.
fn parts(dir: bool) -> [(u8, u32); 3] {
    let write = ACE4_WRITE_DATA | ACE4_APPEND_DATA | if dir { ACE4_DELETE_CHILD } else { 0 };
    [(ACL_READ, ACE4_READ_DATA), (ACL_WRITE, write), (ACL_EXECUTE, ACE4_EXECUTE)]
}

fn mask(perm: u8, dir: bool) -> u32 {
    parts(dir).iter().filter(|(bit, _)| perm & bit != 0).fold(0, |sum, (_, mask)| sum | mask)
}

/// The permissions whose bits are all in `mask`.
fn all_of(mask: u32, dir: bool) -> u8 {
    parts(dir).iter().filter(|(_, part)| mask & part == *part).fold(0, |sum, (bit, _)| sum | bit)
}

/// The permissions that have any bit in `mask`.
fn any_of(mask: u32, dir: bool) -> u8 {
    parts(dir).iter().filter(|(_, part)| mask & part != 0).fold(0, |sum, (bit, _)| sum | bit)
}

pub fn to_nfs4(acls: &Acls, dir: bool) -> Vec<NfsAce> {
    let mut list = Vec::with_capacity(8);
    one_to_nfs4(&acls.access, dir, 0, &mut list);
    if let Some(default) = &acls.default {
        one_to_nfs4(default, dir, INHERIT | ACE4_INHERIT_ONLY_ACE, &mut list);
    }
    list
}

fn one_to_nfs4(acl: &Acl, dir: bool, flag: u32, list: &mut Vec<NfsAce>) {
    let mut push = |allow: bool, who: &Bytes, group: bool, perm: u8| {
        let access_mask = match (allow, &who[..] == OWNER) {
            (true, true) => mask(perm, dir) | ALWAYS | OWNERS,
            (true, false) => mask(perm, dir) | ALWAYS,
            (false, _) => mask(perm, dir),
        };
        if allow || access_mask != 0 {
            list.push(NfsAce {
                kind: if allow { ACE4_ACCESS_ALLOWED_ACE_TYPE } else { ACE4_ACCESS_DENIED_ACE_TYPE },
                flag: flag | if group { ACE4_IDENTIFIER_GROUP } else { 0 },
                access_mask,
                who: who.clone(),
            });
        }
    };
    let number = |id: &u32| Bytes::from(id.to_string());
    let (owner, group) = (Bytes::from_static(OWNER), Bytes::from_static(GROUP));
    let within = acl.mask.unwrap_or(ALL);
    let class =
        acl.users.values().chain(acl.groups.values()).fold(acl.group, |sum, perm| sum | perm) & within;
    push(true, &owner, false, acl.owner);
    push(false, &owner, false, (class | acl.other) & !acl.owner);
    // Without a mask there is only the owning group, and only "everyone" can give it more.
    let rest = |perm: u8| if acl.mask.is_some() { within & !perm } else { acl.other & !perm };
    for (id, perm) in &acl.users {
        push(false, &number(id), false, ALL & !within);
        push(true, &number(id), false, *perm);
        push(false, &number(id), false, rest(*perm));
    }
    push(false, &group, false, ALL & !within);
    push(true, &group, false, acl.group);
    for (id, perm) in &acl.groups {
        push(false, &number(id), true, ALL & !within);
        push(true, &number(id), true, *perm);
    }
    push(false, &group, false, rest(acl.group));
    for (id, perm) in &acl.groups {
        push(false, &number(id), true, rest(*perm));
    }
    push(true, &Bytes::from_static(EVERYONE), false, acl.other);
}

/// Whom an entry is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Owner,
    User(u32),
    Group,
    GroupId(u32),
    Everyone,
}

fn who(ace: &NfsAce) -> Result<Who, NfsStat> {
    Ok(match &ace.who[..] {
        OWNER => Who::Owner,
        GROUP => Who::Group,
        EVERYONE => Who::Everyone,
        name if ace.flag & ACE4_IDENTIFIER_GROUP != 0 => Who::GroupId(owner_number(name)?),
        name => Who::User(owner_number(name)?),
    })
}

/// Converts a list for an object of `owner`.
/// Errors: See the module's table; `NOSPC` for a list of too many entries.
pub fn from_nfs4(list: &[NfsAce], dir: bool, owner: u32) -> Result<SetAcls, NfsStat> {
    if list.len() > ACES_MAX {
        return Err(NfsStat::NFS4ERR_NOSPC);
    }
    let (mut access, mut default) = (Sum::default(), None::<Sum>);
    for ace in list {
        let allow = check(ace, dir)?;
        let who = who(ace)?;
        let perm = if allow { all_of(ace.access_mask, dir) } else { any_of(ace.access_mask, dir) };
        if ace.flag & ACE4_INHERIT_ONLY_ACE == 0 {
            access.add(who, allow, perm, Some(owner));
        }
        if ace.flag & INHERIT != 0 {
            // The owner of objects to be created is not known yet.
            default.get_or_insert_default().add(who, allow, perm, None);
        }
    }
    let set = SetAcls { access: Some(access.acl()), default: dir.then(|| default.map(Sum::acl)) };
    for acl in set.access.iter().chain(set.default.iter().flatten()) {
        acl.check().map_err(|_| NfsStat::NFS4ERR_NOSPC)?;
    }
    Ok(set)
}

/// Checks an entry; returns whether it allows.
fn check(ace: &NfsAce, dir: bool) -> Result<bool, NfsStat> {
    const ELSEWHERE: NfsStat = NfsStat::NFS4ERR_ATTRNOTSUPP;
    let allow = match ace.kind {
        ACE4_ACCESS_ALLOWED_ACE_TYPE => true,
        ACE4_ACCESS_DENIED_ACE_TYPE => false,
        ACE4_SYSTEM_AUDIT_ACE_TYPE | ACE4_SYSTEM_ALARM_ACE_TYPE => return Err(ELSEWHERE),
        _ => return Err(NfsStat::NFS4ERR_INVAL),
    };
    if ace.flag & !KNOWN_FLAGS != 0 || ace.access_mask & !KNOWN_MASK != 0 {
        return Err(NfsStat::NFS4ERR_INVAL);
    }
    if ace.flag & (ACE4_NO_PROPAGATE_INHERIT_ACE | OF_AUDIT) != 0 {
        return Err(ELSEWHERE);
    }
    match ace.flag & INHERIT {
        0 if ace.flag & ACE4_INHERIT_ONLY_ACE != 0 => return Err(NfsStat::NFS4ERR_INVAL),
        0 => {}
        _ if !dir => return Err(NfsStat::NFS4ERR_INVAL),
        INHERIT => {}
        _ => return Err(ELSEWHERE),
    }
    // Together with others of its kind, as in the generic permissions, such a denial says no more than they do.
    if !allow && ace.access_mask != 0 && any_of(ace.access_mask, dir) == 0 {
        return Err(ELSEWHERE);
    }
    Ok(allow)
}

/// What the entries so far decide for one of the parties.
#[derive(Clone, Copy, Default)]
struct Decided {
    allow: u8,
    deny: u8,
    /// Of its own entries: how many allow, what they allow, what was denied before and after.
    allows: usize,
    said: u8,
    first: u8,
    last: u8,
}

impl Decided {
    fn decide(&mut self, allow: bool, perm: u8) {
        if allow {
            self.allow |= perm & !self.deny;
        } else {
            self.deny |= perm & !self.allow;
        }
    }

    /// Adds an entry about exactly this party.
    fn own(&mut self, allow: bool, perm: u8) {
        self.decide(allow, perm);
        match allow {
            true => {
                self.allows += 1;
                self.said |= perm;
            }
            false if self.allows == 0 => self.first |= perm,
            false => self.last |= perm,
        }
    }

    /// The mask, if these entries are those that [`to_nfs4`] makes when there is one.
    fn mask(&self) -> Option<u8> {
        let whole = self.first | self.said | self.last == ALL;
        let apart = self.last & (self.said | self.first) == 0;
        let within = ALL & !self.first;
        (self.allows == 1 && whole && apart && self.allow == self.said & within).then_some(within)
    }
}

/// What the entries so far decide.
#[derive(Clone, Default)]
struct Sum {
    owner: Decided,
    users: BTreeMap<u32, Decided>,
    group: Decided,
    groups: BTreeMap<u32, Decided>,
    other: Decided,
    /// A user not named yet, who may be in any named group.
    unnamed: Decided,
}

impl Sum {
    fn add(&mut self, who: Who, allow: bool, perm: u8, owner: Option<u32>) {
        let unnamed = self.unnamed;
        match who {
            Who::Owner => self.owner.decide(allow, perm),
            Who::User(id) => {
                self.users.entry(id).or_insert(unnamed).own(allow, perm);
                if !allow && owner.is_none_or(|owner| owner == id) {
                    self.owner.decide(false, perm);
                }
            }
            Who::Group => {
                self.group.own(allow, perm);
                self.members(allow, perm);
            }
            Who::GroupId(id) => {
                self.groups.entry(id).or_insert(unnamed).own(allow, perm);
                self.members(allow, perm);
            }
            Who::Everyone => {
                self.owner.decide(allow, perm);
                self.other.decide(allow, perm);
                self.everybody_but_those(allow, perm);
            }
        }
    }

    /// A denial to a group may concern anybody who has a permission by another entry.
    fn members(&mut self, allow: bool, perm: u8) {
        if !allow {
            self.owner.decide(false, perm);
            self.everybody_but_those(false, perm);
        }
    }

    fn everybody_but_those(&mut self, allow: bool, perm: u8) {
        self.group.decide(allow, perm);
        self.unnamed.decide(allow, perm);
        self.users.values_mut().chain(self.groups.values_mut()).for_each(|d| d.decide(allow, perm));
    }

    fn acl(self) -> Acl {
        let named = || self.users.values().chain(self.groups.values());
        let class = || named().chain([&self.group]);
        let perms = |of: &BTreeMap<u32, Decided>, perm: fn(&Decided) -> u8| {
            of.iter().map(|(id, d)| (*id, perm(d))).collect::<BTreeMap<u32, u8>>()
        };
        let mut acl = Acl { owner: self.owner.allow, other: self.other.allow, ..Acl::default() };
        let first = self.group.mask();
        if named().next().is_some() && first.is_some() && class().all(|d| d.mask() == first) {
            acl.mask = first;
            acl.group = self.group.said;
            (acl.users, acl.groups) = (perms(&self.users, |d| d.said), perms(&self.groups, |d| d.said));
            return acl;
        }
        acl.group = self.group.allow;
        (acl.users, acl.groups) = (perms(&self.users, |d| d.allow), perms(&self.groups, |d| d.allow));
        acl.mask = named().next().is_some().then(|| class().fold(0, |sum, d| sum | d.allow));
        acl
    }
}

#[cfg(test)]
mod tests;
