//! What both forms say to everybody, compared.

use super::*;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

const FILE_OWNER: u32 = 1;
const FILE_GROUP: u32 = 2;

/// Somebody who asks; never the superuser.
#[derive(Clone, Debug)]
struct Caller {
    uid: u32,
    groups: Vec<u32>,
}

impl Caller {
    /// acl(5), "access check algorithm", for one permission.
    fn has_by_posix(&self, acl: &Acl, perm: u8) -> bool {
        let within = acl.mask.unwrap_or(7);
        if self.uid == FILE_OWNER {
            return acl.owner & perm != 0;
        }
        if let Some(user) = acl.users.get(&self.uid) {
            return user & within & perm != 0;
        }
        let mut matching = self.groups.iter().filter_map(|g| acl.groups.get(g)).copied().collect::<Vec<u8>>();
        if self.groups.contains(&FILE_GROUP) {
            matching.push(acl.group);
        }
        match matching.is_empty() {
            true => acl.other & perm != 0,
            false => matching.iter().any(|g| g & within & perm != 0),
        }
    }

    /// RFC 8881 section 6.2.1: for each bit the first entry that has it decides; what none has is denied.
    fn has_by_nfs4(&self, list: &[NfsAce], wanted: u32) -> bool {
        let mut open = wanted;
        for ace in list.iter().filter(|ace| ace.flag & ACE4_INHERIT_ONLY_ACE == 0) {
            let fits = match who(ace).expect("a who") {
                Who::Owner => self.uid == FILE_OWNER,
                Who::User(id) => self.uid == id,
                Who::Group => self.groups.contains(&FILE_GROUP),
                Who::GroupId(id) => self.groups.contains(&id),
                Who::Everyone => true,
            };
            if !fits || ace.access_mask & open == 0 {
                continue;
            }
            if ace.kind == ACE4_ACCESS_DENIED_ACE_TYPE {
                return false;
            }
            open &= !ace.access_mask;
        }
        open == 0
    }
}

prop_compose! {
    fn any_caller()(uid in 1u32..6, groups in vec(1u32..6, 0..4)) -> Caller {
        Caller { uid, groups }
    }
}

prop_compose! {
    fn any_acl()(
        owner in 0u8..8,
        group in 0u8..8,
        other in 0u8..8,
        mask in 0u8..8,
        users in btree_map(1u32..6, 0u8..8, 0..4),
        groups in btree_map(1u32..6, 0u8..8, 0..4),
    ) -> Acl {
        let mask = (!users.is_empty() || !groups.is_empty()).then_some(mask);
        Acl { owner, users, group, groups, mask, other }
    }
}

fn any_ace() -> impl Strategy<Value = NfsAce> {
    let who = prop_oneof![
        Just(("OWNER@".to_owned(), 0)),
        Just(("GROUP@".to_owned(), 0)),
        Just(("EVERYONE@".to_owned(), 0)),
        (1u32..6).prop_map(|id| (id.to_string(), 0)),
        (1u32..6).prop_map(|id| (id.to_string(), ACE4_IDENTIFIER_GROUP)),
    ];
    let inherit = prop_oneof![
        4 => Just(0),
        1 => Just(INHERIT),
        1 => Just(INHERIT | ACE4_INHERIT_ONLY_ACE),
    ];
    let bits = [ACE4_READ_DATA, ACE4_WRITE_DATA, ACE4_APPEND_DATA, ACE4_DELETE_CHILD, ACE4_EXECUTE];
    let bits = proptest::sample::subsequence(bits.to_vec(), 1..=5);
    (0u32..2, who, inherit, bits).prop_map(|(kind, (who, flag), inherit, bits)| NfsAce {
        kind,
        flag: flag | inherit,
        access_mask: bits.into_iter().fold(0, |a, b| a | b),
        who: who.into(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn there_and_back_is_the_same(access in any_acl(), default in proptest::option::of(any_acl()), dir: bool) {
        let acls = Acls { access, default: default.filter(|_| dir) };
        let back = from_nfs4(&to_nfs4(&acls, dir), dir, FILE_OWNER);
        let want = SetAcls { access: Some(acls.access), default: dir.then_some(acls.default) };
        prop_assert_eq!(back, Ok(want));
    }

    #[test]
    fn both_forms_grant_the_same(acl in any_acl(), caller in any_caller(), dir: bool) {
        let list = to_nfs4(&Acls { access: acl.clone(), default: None }, dir);
        for (perm, wanted) in parts(dir) {
            prop_assert_eq!(
                caller.has_by_nfs4(&list, wanted),
                caller.has_by_posix(&acl, perm),
                "{} of {:?} by {:?}", perm, caller, list
            );
            // Nor is any part of writing to be had alone.
            for part in (0..32).map(|n| 1 << n).filter(|part| wanted & part != 0) {
                prop_assert_eq!(caller.has_by_nfs4(&list, part), caller.has_by_posix(&acl, perm));
            }
        }
        prop_assert!(caller.has_by_nfs4(&list, ACE4_READ_ACL | ACE4_READ_ATTRIBUTES));
        prop_assert_eq!(caller.has_by_nfs4(&list, ACE4_WRITE_ACL), caller.uid == FILE_OWNER);
    }

    #[test]
    fn a_list_that_was_set_never_grants_more_than_it_says(
        list in vec(any_ace(), 0..9),
        callers in vec(any_caller(), 8),
    ) {
        let set = from_nfs4(&list, true, FILE_OWNER).expect("every such list is taken");
        let acl = set.access.expect("an ACL");
        for caller in callers {
            for (perm, wanted) in parts(true) {
                prop_assert!(
                    !caller.has_by_posix(&acl, perm) || caller.has_by_nfs4(&list, wanted),
                    "{} of {:?} by {:?}", perm, caller, acl
                );
            }
        }
    }

    #[test]
    fn what_is_inherited_never_grants_more_either(
        list in vec(any_ace(), 0..9),
        callers in vec(any_caller(), 8),
    ) {
        let set = from_nfs4(&list, true, FILE_OWNER).expect("every such list is taken");
        let inherited: Vec<NfsAce> = list
            .iter()
            .filter(|ace| ace.flag & INHERIT != 0)
            .map(|ace| NfsAce { flag: ace.flag & ACE4_IDENTIFIER_GROUP, ..ace.clone() })
            .collect();
        prop_assert_eq!(inherited.is_empty(), set.default == Some(None));
        if let Some(Some(acl)) = set.default {
            for caller in callers {
                for (perm, wanted) in parts(true) {
                    prop_assert!(!caller.has_by_posix(&acl, perm) || caller.has_by_nfs4(&inherited, wanted));
                }
            }
        }
    }
}

fn ace(kind: u32, flag: u32, access_mask: u32, who: &'static str) -> NfsAce {
    NfsAce { kind, flag, access_mask, who: who.into() }
}

fn text(list: &[NfsAce]) -> Vec<String> {
    let each = |ace: &NfsAce| {
        let bits = "rwaxdDtTcCoyN".chars().zip([
            ACE4_READ_DATA,
            ACE4_WRITE_DATA,
            ACE4_APPEND_DATA,
            ACE4_EXECUTE,
            ACE4_DELETE,
            ACE4_DELETE_CHILD,
            ACE4_READ_ATTRIBUTES,
            ACE4_WRITE_ATTRIBUTES,
            ACE4_READ_ACL,
            ACE4_WRITE_ACL,
            ACE4_WRITE_OWNER,
            ACE4_SYNCHRONIZE,
        ]);
        let perm: String = bits.filter(|(_, bit)| ace.access_mask & bit != 0).map(|(c, _)| c).collect();
        let flags = "fdig".chars().zip([
            ACE4_FILE_INHERIT_ACE,
            ACE4_DIRECTORY_INHERIT_ACE,
            ACE4_INHERIT_ONLY_ACE,
            ACE4_IDENTIFIER_GROUP,
        ]);
        let flag: String = flags.filter(|(_, bit)| ace.flag & bit != 0).map(|(c, _)| c).collect();
        let who = String::from_utf8_lossy(&ace.who);
        format!("{}:{flag}:{who}:{perm}", if ace.kind == 0 { 'A' } else { 'D' })
    };
    list.iter().map(each).collect()
}

#[test]
fn permission_bits_as_a_list() {
    let of = |mode, dir| text(&to_nfs4(&Acls { access: Acl::from_mode(mode), default: None }, dir));
    assert_eq!(of(0o644, false), ["A::OWNER@:rwatTcCy", "A::GROUP@:rtcy", "A::EVERYONE@:rtcy"]);
    assert_eq!(of(0o755, true), ["A::OWNER@:rwaxDtTcCy", "A::GROUP@:rxtcy", "A::EVERYONE@:rxtcy"]);
    // The owner and the group have less than others.
    assert_eq!(
        of(0o057, false),
        ["A::OWNER@:tTcCy", "D::OWNER@:rwax", "A::GROUP@:rxtcy", "D::GROUP@:wa", "A::EVERYONE@:rwaxtcy"]
    );
}

#[test]
fn a_mask_and_what_is_inherited() {
    let acl = Acl { users: BTreeMap::from([(7, 7)]), mask: Some(5), ..Acl::from_mode(0o740) };
    let acls = Acls { access: acl.clone(), default: Some(Acl::from_mode(0o700)) };
    let want = [
        "A::OWNER@:rwaxDtTcCy",
        "D::7:waD",
        "A::7:rwaxDtcy",
        "D::GROUP@:waD",
        "A::GROUP@:rtcy",
        "D::GROUP@:x",
        "A::EVERYONE@:tcy",
        "A:fdi:OWNER@:rwaxDtTcCy",
        "A:fdi:GROUP@:tcy",
        "A:fdi:EVERYONE@:tcy",
    ];
    assert_eq!(text(&to_nfs4(&acls, true)), want);
}

#[test]
fn a_mask_that_masks_nobody_who_is_named_is_merged() {
    let acl = Acl { mask: Some(4), ..Acl::from_mode(0o770) };
    let back = from_nfs4(&to_nfs4(&Acls { access: acl, default: None }, false), false, FILE_OWNER);
    assert_eq!(back.map(|set| set.access), Ok(Some(Acl::from_mode(0o740))));
}

#[test]
fn rfc8881_6_2_1_what_cannot_be_said_is_refused() {
    let refused = |dir, ace| from_nfs4(&[ace], dir, FILE_OWNER).expect_err("refused");
    let r = ACE4_READ_DATA;
    assert_eq!(refused(false, ace(2, 0, r, "OWNER@")), NfsStat::NFS4ERR_ATTRNOTSUPP);
    assert_eq!(refused(false, ace(4, 0, r, "OWNER@")), NfsStat::NFS4ERR_INVAL);
    assert_eq!(refused(false, ace(0, 0x100, r, "OWNER@")), NfsStat::NFS4ERR_INVAL);
    assert_eq!(refused(false, ace(0, 0, 1 << 30, "OWNER@")), NfsStat::NFS4ERR_INVAL);
    assert_eq!(refused(true, ace(0, ACE4_FILE_INHERIT_ACE, r, "OWNER@")), NfsStat::NFS4ERR_ATTRNOTSUPP);
    assert_eq!(
        refused(true, ace(0, INHERIT | ACE4_NO_PROPAGATE_INHERIT_ACE, r, "OWNER@")),
        NfsStat::NFS4ERR_ATTRNOTSUPP
    );
    assert_eq!(refused(true, ace(0, ACE4_INHERIT_ONLY_ACE, r, "OWNER@")), NfsStat::NFS4ERR_INVAL);
    assert_eq!(refused(false, ace(0, INHERIT, r, "OWNER@")), NfsStat::NFS4ERR_INVAL);
    assert_eq!(refused(false, ace(1, 0, ACE4_READ_ACL, "EVERYONE@")), NfsStat::NFS4ERR_ATTRNOTSUPP);
    for who in ["AUTHENTICATED@", "joe@example.org", "01", "4294967295"] {
        assert_eq!(refused(false, ace(0, 0, r, who)), NfsStat::NFS4ERR_BADOWNER, "{who}");
    }
    assert_eq!(refused(false, ace(0, 0, r, "")), NfsStat::NFS4ERR_INVAL);
    let many = vec![ace(0, 0, r, "OWNER@"); ACES_MAX + 1];
    assert_eq!(from_nfs4(&many, false, FILE_OWNER), Err(NfsStat::NFS4ERR_NOSPC));
}

#[test]
fn half_of_writing_is_none_and_half_a_denial_is_a_whole_one() {
    let set = |list: &[NfsAce]| from_nfs4(list, false, FILE_OWNER).expect("taken").access.expect("an ACL");
    assert_eq!(set(&[ace(0, 0, ACE4_WRITE_DATA, "EVERYONE@")]).mode(), 0);
    let all = ACE4_WRITE_DATA | ACE4_APPEND_DATA;
    assert_eq!(set(&[ace(0, 0, all, "EVERYONE@")]).mode(), 0o222);
    let list = [ace(1, 0, ACE4_APPEND_DATA, "GROUP@"), ace(0, 0, all, "EVERYONE@")];
    assert_eq!(set(&list).mode(), 0o002, "the owner may be in the group");
}

#[test]
fn a_denial_to_another_user_is_none_to_the_owner() {
    let rw = ACE4_READ_DATA | ACE4_WRITE_DATA | ACE4_APPEND_DATA;
    let list = |who| [ace(1, 0, rw, who), ace(0, 0, rw, "OWNER@"), ace(0, 0, ACE4_READ_DATA, "EVERYONE@")];
    let acl = from_nfs4(&list("9"), false, FILE_OWNER).expect("taken").access.expect("an ACL");
    assert_eq!((acl.owner, acl.users[&9], acl.other), (6, 0, 4));
    let acl = from_nfs4(&list("1"), false, FILE_OWNER).expect("taken").access.expect("an ACL");
    assert_eq!(acl.owner, 0);
}
