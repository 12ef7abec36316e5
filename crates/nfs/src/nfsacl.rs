//! NFSACL: POSIX ACLs for clients of NFS version 3. No RFC has it; these are the procedures and the form that Solaris began
//! with and Linux speaks (program 100227 version 3, of which Linux uses NULL, GETACL and SETACL).
//!
//! A list goes as two counts and its entries: how many there are, then how many follow (none, when only the number was
//! asked for).

use crate::v3::FileHandle;
use crate::v3::res::{PostOp, Res};
use landfast_xdr::{BytesMut, Decode, Encode, Error, Reader};

pub const PROGRAM: u32 = 100_227;
/// The version for NFS version 3.
pub const VERSION: u32 = 3;
/// The most entries of a list that goes over the wire; more do not decode.
pub const ENTRIES_MAX: usize = 1024;

/// Procedure numbers.
pub mod proc {
    pub const NULL: u32 = 0;
    pub const GETACL: u32 = 1;
    pub const SETACL: u32 = 2;
}

/// What is asked for, given or set.
pub mod mask {
    /// The list for access.
    pub const ACL: u32 = 0x1;
    /// Its number of entries.
    pub const ACLCNT: u32 = 0x2;
    /// What a directory's new objects begin with.
    pub const DFACL: u32 = 0x4;
    /// Its number of entries.
    pub const DFACLCNT: u32 = 0x8;
    /// All of these.
    pub const ALL: u32 = 0xf;
}

/// Added to the kind of each entry of a default list.
pub const DEFAULT: u32 = 0x1000;

/// An entry of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Entry {
    /// Kind: 1 owner, 2 user, 4 owning group, 8 group, 16 mask, 32 others; with [`DEFAULT`] in a default list.
    pub kind: u32,
    /// User or group; the object's own for owner and owning group.
    pub id: u32,
    /// Read 4, write 2, execute 1.
    pub perm: u32,
}

/// A list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct List {
    /// How many entries there are.
    pub count: u32,
    /// Those that are sent.
    pub entries: Vec<Entry>,
}

impl Encode for List {
    fn encode(&self, out: &mut BytesMut) {
        self.count.encode(out);
        self.entries.encode(out);
    }
}

impl Decode for List {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        let count = r.u32()?;
        let sent = r.count()?;
        if sent > ENTRIES_MAX {
            return Err(Error::TooLong { len: sent, max: ENTRIES_MAX });
        }
        let entries = (0..sent).map(|_| Entry::decode(r)).collect::<Result<_, _>>()?;
        Ok(List { count, entries })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct GetaclArgs {
    pub object: FileHandle,
    /// [`mask`]: what of it.
    pub mask: u32,
}

/// Lists, and which of them are meant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct Lists {
    /// [`mask`].
    pub mask: u32,
    /// For access.
    pub access: List,
    /// For what is made in a directory.
    pub default: List,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SetaclArgs {
    pub object: FileHandle,
    pub lists: Lists,
}

/// A successful GETACL.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct GetaclOk {
    pub attrs: PostOp,
    /// What was asked for.
    pub lists: Lists,
}

/// GETACL; with an error, the object's attributes.
pub type GetaclRes = Res<GetaclOk, PostOp>;
/// SETACL: the object's attributes.
pub type SetaclRes = Res<PostOp, PostOp>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::NfsStat3;
    use landfast_xdr::Bytes;
    use proptest::prelude::*;

    #[test]
    fn the_form_word_by_word() {
        let entry = |kind, id, perm| Entry { kind, id, perm };
        let access = List { count: 2, entries: vec![entry(1, 7, 6), entry(32, 0, 4)] };
        let default = List { count: 4, entries: Vec::new() };
        let lists = Lists { mask: mask::ACL | mask::DFACLCNT, access, default };
        let res = GetaclRes::Ok(GetaclOk { attrs: None, lists: lists.clone() });
        let words = [0, 0, 9, 2, 2, 1, 7, 6, 32, 0, 4, 4, 0u32];
        let want: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        assert_eq!(res.to_bytes(), want);
        assert_eq!(GetaclRes::from_bytes(want.into()), Ok(res));
        let fail = SetaclRes::Fail(NfsStat3::ROFS, None);
        assert_eq!(fail.to_bytes().as_ref(), [0, 0, 0, 30, 0, 0, 0, 0]);
    }

    #[test]
    fn a_list_that_is_too_long_does_not_decode() {
        let entries = vec![Entry { kind: 2, id: 1, perm: 4 }; ENTRIES_MAX + 1];
        let list = List { count: entries.len() as u32, entries };
        assert!(List::from_bytes(list.to_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_give_arguments_or_an_error(b in proptest::collection::vec(any::<u8>(), 0..200)) {
            let b = Bytes::from(b);
            if let Ok(a) = SetaclArgs::from_bytes(b.clone()) {
                prop_assert_eq!(SetaclArgs::from_bytes(a.to_bytes()), Ok(a));
            }
            let _ = GetaclArgs::from_bytes(b);
        }
    }
}
