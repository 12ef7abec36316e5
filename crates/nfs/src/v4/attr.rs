//! File attributes: bitmaps, the raw `fattr4`, and typed values (RFC 8881 section 5).

use super::NfsStat;
use super::types::NfsAce;
use super::types::{FileHandle, FileType, Fsid, NfsTime, SetTime, SpecData};
use landfast_xdr::{Bytes, BytesMut, Decode, Encode, Error, Reader};

/// `bitmap4`: a set of attribute numbers (RFC 8881 section 3.3.7). Numbers from 127 up are remembered as "some
/// attribute that is not known here".
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Bitmap {
    words: [u32; Bitmap::WORDS],
}

impl Bitmap {
    const WORDS: usize = 4;
    /// Stands for every number that does not fit.
    const UNKNOWN: u32 = 127;
    /// The most words that a client may send; more is BADXDR.
    const WORDS_MAX: usize = 64;

    /// The set of these numbers.
    pub const fn of(numbers: &[u32]) -> Bitmap {
        let mut b = Bitmap { words: [0; Bitmap::WORDS] };
        let mut i = 0;
        while i < numbers.len() {
            b.words[(numbers[i] / 32) as usize] |= 1 << (numbers[i] % 32);
            i += 1;
        }
        b
    }

    /// The same with `number`, which is below 127.
    pub const fn with(mut self, number: u32) -> Bitmap {
        self.words[(number / 32) as usize] |= 1 << (number % 32);
        self
    }

    /// Whether `number` is in the set.
    pub fn has(&self, number: u32) -> bool {
        self.words.get((number / 32) as usize).is_some_and(|w| w & (1 << (number % 32)) != 0)
    }

    /// Adds `number`.
    pub fn set(&mut self, number: u32) {
        let number = number.min(Bitmap::UNKNOWN);
        self.words[(number / 32) as usize] |= 1 << (number % 32);
    }

    /// Takes `number` out.
    pub fn clear(&mut self, number: u32) {
        if let Some(w) = self.words.get_mut((number / 32) as usize) {
            *w &= !(1 << (number % 32));
        }
    }

    /// What is in both.
    pub fn and(&self, other: &Bitmap) -> Bitmap {
        Bitmap { words: std::array::from_fn(|i| self.words[i] & other.words[i]) }
    }

    /// What is in either.
    pub fn or(&self, other: &Bitmap) -> Bitmap {
        Bitmap { words: std::array::from_fn(|i| self.words[i] | other.words[i]) }
    }

    /// What is here and not in `other`.
    pub fn minus(&self, other: &Bitmap) -> Bitmap {
        Bitmap { words: std::array::from_fn(|i| self.words[i] & !other.words[i]) }
    }

    /// Words up to the last that is not zero: what stands on the wire.
    fn used(&self) -> usize {
        Bitmap::WORDS - self.words.iter().rev().take_while(|w| **w == 0).count()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words == [0; Bitmap::WORDS]
    }

    /// The numbers in the set, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..Bitmap::WORDS as u32 * 32).filter(|&n| self.has(n))
    }
}

impl std::fmt::Debug for Bitmap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Encode for Bitmap {
    fn encode(&self, out: &mut BytesMut) {
        let used = self.used();
        (used as u32).encode(out);
        for w in &self.words[..used] {
            w.encode(out);
        }
    }
}

impl Decode for Bitmap {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        let n = r.count()?;
        if n > Bitmap::WORDS_MAX {
            return Err(Error::TooLong { len: n, max: Bitmap::WORDS_MAX });
        }
        let mut b = Bitmap::default();
        for i in 0..n {
            let w = r.u32()?;
            match b.words.get_mut(i) {
                Some(slot) => *slot = w,
                None if w != 0 => b.set(Bitmap::UNKNOWN),
                None => {}
            }
        }
        Ok(b)
    }
}

/// `fattr4`: values as they stand on the wire (RFC 8881 section 3.3.4).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct Fattr {
    /// Which attributes.
    pub mask: Bitmap,
    /// Their values, in ascending order of their numbers.
    pub values: Bytes,
}

impl Fattr {
    /// Bytes of the encoding.
    pub fn encoded_len(&self) -> usize {
        4 + 4 * self.mask.used() + 4 + self.values.len() + landfast_xdr::padding(self.values.len())
    }
}

macro_rules! attributes {
    ($($(#[$doc:meta])* $number:literal $name:ident / $constant:ident: $ty:ty;)*) => {
        /// The attributes' numbers (RFC 8881 sections 5.6, 5.7; RFC 7862 section 12; RFC 8275; RFC 8276; RFC 9754).
        pub mod number {
            $($(#[$doc])* pub const $constant: u32 = $number;)*
        }

        /// Typed values of attributes; those that are `None` are not there.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct AttrValues {
            $($(#[$doc])* pub $name: Option<$ty>,)*
        }

        impl AttrValues {
            /// Every attribute that has a typed value here.
            pub const KNOWN: Bitmap = Bitmap::of(&[$($number),*]);

            /// The RFC's name of an attribute that has a typed value here.
            pub fn name(number: u32) -> Option<&'static str> {
                let name = match number {
                    $($number => stringify!($name),)*
                    _ => return None,
                };
                Some(if name == "kind" { "type" } else { name })
            }

            /// Which attributes are there.
            pub fn mask(&self) -> Bitmap {
                let mut mask = Bitmap::default();
                $(if self.$name.is_some() { mask.set($number); })*
                mask
            }

            /// The wire form of what is there, `wanted` only.
            pub fn to_fattr(&self, wanted: &Bitmap) -> Fattr {
                let mut values = BytesMut::with_capacity(192);
                let mut mask = Bitmap::default();
                $(if wanted.has($number) && let Some(v) = &self.$name {
                    v.encode(&mut values);
                    mask.set($number);
                })*
                Fattr { mask, values: values.freeze() }
            }

            /// The typed values of `fattr`.
            /// Errors: `ATTRNOTSUPP` when the mask holds a number that is not known here; `BADXDR` when the values do
            /// not decode, or bytes are left over.
            pub fn from_fattr(fattr: &Fattr) -> Result<AttrValues, NfsStat> {
                if !fattr.mask.minus(&AttrValues::KNOWN).is_empty() {
                    return Err(NfsStat::NFS4ERR_ATTRNOTSUPP);
                }
                let mut r = Reader::new(fattr.values.clone());
                let mut all = AttrValues::default();
                $(if fattr.mask.has($number) {
                    all.$name = Some(Decode::decode(&mut r).map_err(|_| NfsStat::NFS4ERR_BADXDR)?);
                })*
                if r.remaining() == 0 { Ok(all) } else { Err(NfsStat::NFS4ERR_BADXDR) }
            }
        }
    };
}

attributes! {
    /// Which attributes the object has.
    0 supported_attrs / SUPPORTED_ATTRS: Bitmap;
    /// The object's type.
    1 kind / TYPE: FileType;
    /// How filehandles expire.
    2 fh_expire_type / FH_EXPIRE_TYPE: u32;
    /// Changes whenever data, attributes or entries change.
    3 change / CHANGE: u64;
    4 size / SIZE: u64;
    /// Hard links are possible.
    5 link_support / LINK_SUPPORT: bool;
    /// Symbolic links are possible.
    6 symlink_support / SYMLINK_SUPPORT: bool;
    /// The object has named attributes.
    7 named_attr / NAMED_ATTR: bool;
    /// Which filesystem.
    8 fsid / FSID: Fsid;
    /// Different handles mean different objects.
    9 unique_handles / UNIQUE_HANDLES: bool;
    /// Lease time in seconds.
    10 lease_time / LEASE_TIME: u32;
    /// Why an entry's attributes are missing (READDIR only).
    11 rdattr_error / RDATTR_ERROR: NfsStat;
    /// Access control list (RFC 8881 section 6.2.1).
    12 acl / ACL: Vec<NfsAce>;
    /// Which kinds of access control entries are supported.
    13 aclsupport / ACLSUPPORT: u32;
    /// Times can be set.
    15 cansettime / CANSETTIME: bool;
    /// Names differ by case only is one name.
    16 case_insensitive / CASE_INSENSITIVE: bool;
    /// Names keep their case.
    17 case_preserving / CASE_PRESERVING: bool;
    /// Only the superuser gives files away.
    18 chown_restricted / CHOWN_RESTRICTED: bool;
    /// The object's filehandle.
    19 filehandle / FILEHANDLE: FileHandle;
    /// The object's number, unique in its filesystem.
    20 fileid / FILEID: u64;
    /// Files that the caller may still create.
    21 files_avail / FILES_AVAIL: u64;
    /// Files that can still be created.
    22 files_free / FILES_FREE: u64;
    /// Files in all.
    23 files_total / FILES_TOTAL: u64;
    /// The filesystem's objects have the same attributes.
    26 homogeneous / HOMOGENEOUS: bool;
    /// The largest file in bytes.
    27 maxfilesize / MAXFILESIZE: u64;
    /// The most links of an object.
    28 maxlink / MAXLINK: u32;
    /// The longest name in bytes.
    29 maxname / MAXNAME: u32;
    /// The largest READ in bytes.
    30 maxread / MAXREAD: u64;
    /// The largest WRITE in bytes.
    31 maxwrite / MAXWRITE: u64;
    /// Mode bits, 0 to 0o7777.
    33 mode / MODE: u32;
    /// Names that are too long are refused, not cut.
    34 no_trunc / NO_TRUNC: bool;
    /// Hard links.
    35 numlinks / NUMLINKS: u32;
    /// The owner; a decimal number stands for a user ID (RFC 8881 section 5.9).
    36 owner / OWNER: Bytes;
    /// The group; a decimal number stands for a group ID.
    37 owner_group / OWNER_GROUP: Bytes;
    /// Device number.
    41 rawdev / RAWDEV: SpecData;
    /// Bytes that the caller may still use.
    42 space_avail / SPACE_AVAIL: u64;
    /// Bytes free.
    43 space_free / SPACE_FREE: u64;
    /// Bytes in all.
    44 space_total / SPACE_TOTAL: u64;
    /// Bytes that the object takes.
    45 space_used / SPACE_USED: u64;
    47 time_access / TIME_ACCESS: NfsTime;
    /// Sets the time of last access (SETATTR only).
    48 time_access_set / TIME_ACCESS_SET: SetTime;
    50 time_create / TIME_CREATE: NfsTime;
    /// The granularity of times.
    51 time_delta / TIME_DELTA: NfsTime;
    /// Last change of attributes.
    52 time_metadata / TIME_METADATA: NfsTime;
    /// Last change of data.
    53 time_modify / TIME_MODIFY: NfsTime;
    /// Sets the time of the last change of data (SETATTR only).
    54 time_modify_set / TIME_MODIFY_SET: SetTime;
    /// The fileid of the entry that this filesystem is mounted on.
    55 mounted_on_fileid / MOUNTED_ON_FILEID: u64;
    /// Layout types of the filesystem.
    62 fs_layout_types / FS_LAYOUT_TYPES: Vec<u32>;
    /// Which attributes an EXCLUSIVE4_1 create may set.
    75 suppattr_exclcreat / SUPPATTR_EXCLCREAT: Bitmap;
    /// What characters names may hold.
    76 fs_charset_cap / FS_CHARSET_CAP: u32;
    /// The unit of CLONE in bytes.
    77 clone_blksize / CLONE_BLKSIZE: u32;
    /// How the change attribute moves.
    79 change_attr_type / CHANGE_ATTR_TYPE: u32;
    /// Mode and umask of a new object (RFC 8275).
    81 mode_umask / MODE_UMASK: ModeUmask;
    /// Extended attributes are supported (RFC 8276).
    82 xattr_support / XATTR_SUPPORT: bool;
    /// Sets the time of last access, by the holder of a delegation (RFC 9754 section 8.2; SETATTR and CB_GETATTR only).
    84 time_deleg_access / TIME_DELEG_ACCESS: NfsTime;
    /// Sets the time of the last change of data, by the holder of a write delegation.
    85 time_deleg_modify / TIME_DELEG_MODIFY: NfsTime;
    /// What an OPEN may ask for (RFC 9754).
    86 open_arguments / OPEN_ARGUMENTS: OpenArguments;
}

/// `open_arguments4` (RFC 9754): each a set of numbers of what the server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct OpenArguments {
    /// `OPEN4_SHARE_ACCESS_READ`, `_WRITE`, `_BOTH`, by their values.
    pub share_access: Bitmap,
    /// `OPEN4_SHARE_DENY_*`, by their values.
    pub share_deny: Bitmap,
    /// `OPEN_ARGS_SHARE_ACCESS_WANT_*`.
    pub share_access_want: Bitmap,
    /// Values of `open_claim_type4`.
    pub open_claim: Bitmap,
    /// Values of `createmode4`.
    pub create_mode: Bitmap,
}

/// `mode_umask4` (RFC 8275 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ModeUmask {
    /// Mode as the application gave it.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_bitmap_drops_trailing_zero_words() {
        assert_eq!(Bitmap::of(&[3]).to_bytes().as_ref(), [0, 0, 0, 1, 0, 0, 0, 8]);
        assert_eq!(Bitmap::default().to_bytes().as_ref(), [0; 4]);
    }

    #[test]
    fn an_attribute_beyond_the_known_ones_is_not_lost() {
        let mut wire = BytesMut::new();
        vec![0u32, 0, 0, 0, 0, 1].encode(&mut wire);
        let b = Bitmap::from_bytes(wire.freeze()).expect("a bitmap");
        assert!(!b.minus(&AttrValues::KNOWN).is_empty());
        let f = Fattr { mask: b, values: Bytes::new() };
        assert_eq!(AttrValues::from_fattr(&f), Err(NfsStat::NFS4ERR_ATTRNOTSUPP));
    }

    #[test]
    fn rfc8881_5_values_stand_in_ascending_order() {
        let all = AttrValues {
            mode: Some(0o644),
            size: Some(5),
            kind: Some(FileType::Reg),
            owner: Some(Bytes::from_static(b"0")),
            ..AttrValues::default()
        };
        let f = all.to_fattr(&AttrValues::KNOWN);
        assert_eq!(&f.values[..16], &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 1, 0o244]);
        assert_eq!(AttrValues::from_fattr(&f), Ok(all));
    }

    proptest! {
        #[test]
        fn any_fattr_gives_values_or_a_status(b in proptest::collection::vec(any::<u8>(), 0..128)) {
            if let Ok(f) = Fattr::from_bytes(Bytes::from(b))
                && let Ok(v) = AttrValues::from_fattr(&f)
            {
                prop_assert_eq!(AttrValues::from_fattr(&v.to_fattr(&AttrValues::KNOWN)), Ok(v));
            }
        }
    }
}
