//! Attributes (RFC 8881 section 5): which ones exist, their values, and which ones SETATTR and creates may set.
//!
//! The lists are data. An attribute in the list of write-only ones is never read; one that is read-only is never set.

use crate::acl;
use crate::exports::{Delegate, Features};
use crate::limits;
use crate::owner::owner_number;
use crate::shared::Shared;
use bytes::Bytes;
use landfast_nfs::v4::attr::OpenArguments;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::flags::*;
use landfast_nfs::v4::types::NfsAce;
use landfast_nfs::v4::{
    AttrValues, Bitmap, Fattr, FileHandle, FileType, Fsid, NfsStat, NfsTime, SetTime, SpecData,
};
use landfast_volume::{Attrs, AttrsSet, FsStat, Kind, SetAcls, SetAttrs, TimeSet, Timestamp, Volume};
use landfast_xdr::padding;

/// Attributes that can be read in all minor versions that have them.
const READABLE: Bitmap = Bitmap::of(&[
    n::SUPPORTED_ATTRS,
    n::TYPE,
    n::FH_EXPIRE_TYPE,
    n::CHANGE,
    n::SIZE,
    n::LINK_SUPPORT,
    n::SYMLINK_SUPPORT,
    n::NAMED_ATTR,
    n::FSID,
    n::UNIQUE_HANDLES,
    n::LEASE_TIME,
    n::RDATTR_ERROR,
    n::ACL,
    n::ACLSUPPORT,
    n::CANSETTIME,
    n::CASE_INSENSITIVE,
    n::CASE_PRESERVING,
    n::CHOWN_RESTRICTED,
    n::FILEHANDLE,
    n::FILEID,
    n::FILES_AVAIL,
    n::FILES_FREE,
    n::FILES_TOTAL,
    n::HOMOGENEOUS,
    n::MAXFILESIZE,
    n::MAXLINK,
    n::MAXNAME,
    n::MAXREAD,
    n::MAXWRITE,
    n::MODE,
    n::NO_TRUNC,
    n::NUMLINKS,
    n::OWNER,
    n::OWNER_GROUP,
    n::RAWDEV,
    n::SPACE_AVAIL,
    n::SPACE_FREE,
    n::SPACE_TOTAL,
    n::SPACE_USED,
    n::TIME_ACCESS,
    n::TIME_CREATE,
    n::TIME_DELTA,
    n::TIME_METADATA,
    n::TIME_MODIFY,
    n::MOUNTED_ON_FILEID,
    n::SUPPATTR_EXCLCREAT,
    n::FS_CHARSET_CAP,
]);

const HANDLE_BYTES: usize = 128;
/// Room for all values of [`STAT_ATTRS`]: type, change, size, fsid, error, handle, fileid, mode, links, owner and group,
/// device, space, four times, fileid of the entry.
const STAT_BYTES: usize = 4 + 8 + 8 + 16 + 4 + (4 + HANDLE_BYTES) + 8 + 4 + 4 + 2 * 16 + 8 + 8 + 4 * 12 + 8;

/// The last attribute of NFSv4.0 (RFC 7530 section 5).
const LAST_40: u32 = n::MOUNTED_ON_FILEID;

/// Attributes that can be read since minor version 2.
const READABLE_42: Bitmap =
    Bitmap::of(&[n::CLONE_BLKSIZE, n::CHANGE_ATTR_TYPE, n::XATTR_SUPPORT, n::OPEN_ARGUMENTS]);
const WRITE_ONLY: Bitmap = Bitmap::of(&[n::TIME_ACCESS_SET, n::TIME_MODIFY_SET]);
/// Write-only attributes since minor version 2.
const WRITE_ONLY_42: Bitmap = Bitmap::of(&[n::MODE_UMASK]);
/// Times that the holder of a delegation sets, in minor version 2, where there are such delegations (RFC 9754 section 8.2).
const DELEGATED_TIMES: Bitmap = Bitmap::of(&[n::TIME_DELEG_ACCESS, n::TIME_DELEG_MODIFY]);
const SETTABLE: Bitmap =
    Bitmap::of(&[n::SIZE, n::ACL, n::MODE, n::OWNER, n::OWNER_GROUP, n::TIME_ACCESS_SET, n::TIME_MODIFY_SET]);
/// What an EXCLUSIVE4_1 create may set. No times: they hold the verifier where nothing else can.
const EXCLUSIVE: Bitmap = Bitmap::of(&[n::SIZE, n::ACL, n::MODE, n::OWNER, n::OWNER_GROUP, n::MODE_UMASK]);
/// Attributes that a READDIR entry has without a look at its object.
const IN_ENTRY: Bitmap = Bitmap::of(&[n::RDATTR_ERROR, n::FILEID, n::MOUNTED_ON_FILEID]);
/// Attributes that one look at the object gives: those that clients ask for again and again.
const STAT_ATTRS: Bitmap = Bitmap::of(&[
    n::TYPE,
    n::CHANGE,
    n::SIZE,
    n::FSID,
    n::RDATTR_ERROR,
    n::FILEHANDLE,
    n::FILEID,
    n::MODE,
    n::NUMLINKS,
    n::OWNER,
    n::OWNER_GROUP,
    n::RAWDEV,
    n::SPACE_USED,
    n::TIME_ACCESS,
    n::TIME_CREATE,
    n::TIME_METADATA,
    n::TIME_MODIFY,
    n::MOUNTED_ON_FILEID,
]);
/// Attributes that need a query to the filesystem.
const OF_FILESYSTEM: Bitmap = Bitmap::of(&[
    n::FILES_AVAIL,
    n::FILES_FREE,
    n::FILES_TOTAL,
    n::SPACE_AVAIL,
    n::SPACE_FREE,
    n::SPACE_TOTAL,
]);

/// What an OPEN may ask for (RFC 9754) where there are no delegations: so no claims by delegation; of the delegation wishes only
/// "none".
const OPEN_ARGUMENTS: OpenArguments = OpenArguments {
    share_access: Bitmap::of(&[OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WRITE, OPEN4_SHARE_ACCESS_BOTH]),
    share_deny: Bitmap::of(&[
        OPEN4_SHARE_DENY_NONE,
        OPEN4_SHARE_DENY_READ,
        OPEN4_SHARE_DENY_WRITE,
        OPEN4_SHARE_DENY_BOTH,
    ]),
    share_access_want: Bitmap::of(&[OPEN_ARGS_SHARE_ACCESS_WANT_NO_DELEG]),
    // CLAIM_NULL, CLAIM_PREVIOUS, CLAIM_FH.
    open_claim: Bitmap::of(&[0, 1, 4]),
    // UNCHECKED4, GUARDED4, EXCLUSIVE4, EXCLUSIVE4_1.
    create_mode: Bitmap::of(&[0, 1, 2, 3]),
};

/// The same where there are delegations.
fn open_arguments(delegations: Delegate) -> OpenArguments {
    let mut all = OPEN_ARGUMENTS;
    if delegations > Delegate::Off {
        all.share_access_want.set(OPEN_ARGS_SHARE_ACCESS_WANT_ANY_DELEG);
        all.share_access_want.set(OPEN_ARGS_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION);
        // CLAIM_DELEGATE_CUR, CLAIM_DELEG_CUR_FH.
        all.open_claim.set(2);
        all.open_claim.set(5);
    }
    if delegations == Delegate::Times {
        all.share_access_want.set(OPEN_ARGS_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS);
    }
    all
}

/// Whether any of these changes when data is written.
pub fn a_writer_changes(wanted: &Bitmap) -> bool {
    const CHANGED: Bitmap =
        Bitmap::of(&[n::CHANGE, n::SIZE, n::SPACE_USED, n::TIME_ACCESS, n::TIME_METADATA, n::TIME_MODIFY]);
    !wanted.and(&CHANGED).is_empty()
}

/// Whether any of these of a directory is the holder's to change who has a write delegation of it.
pub fn a_directory_holder_changes(wanted: &Bitmap) -> bool {
    const CHANGED: Bitmap = Bitmap::of(&[
        n::CHANGE,
        n::SIZE,
        n::ACL,
        n::MODE,
        n::NUMLINKS,
        n::OWNER,
        n::OWNER_GROUP,
        n::SPACE_USED,
        n::TIME_ACCESS,
        n::TIME_CREATE,
        n::TIME_METADATA,
        n::TIME_MODIFY,
    ]);
    !wanted.and(&CHANGED).is_empty()
}

pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;
/// FSCHARSET_CAP4_CONTAINS_NON_UTF8 (RFC 8881 section 14.4): names are bytes.
const CHARSET_ANY: u32 = 1;

pub fn supported(minor: u32) -> Bitmap {
    let mut both = READABLE.or(&WRITE_ONLY);
    if minor == 0 {
        let later: Vec<u32> = both.iter().filter(|number| *number > LAST_40).collect();
        later.into_iter().for_each(|number| both.clear(number));
    }
    if minor >= 2 { both.or(&READABLE_42).or(&WRITE_ONLY_42) } else { both }
}

/// The attributes asked for by a GETATTR or READDIR that can be given.
/// Errors: `INVAL` for a write-only attribute (RFC 8881 section 5.5).
pub fn readable(wanted: &Bitmap, minor: u32) -> Result<Bitmap, NfsStat> {
    let set_only = WRITE_ONLY.or(&WRITE_ONLY_42).and(&supported(minor));
    if !wanted.and(&set_only).is_empty() {
        return Err(NfsStat::NFS4ERR_INVAL);
    }
    Ok(wanted.and(&supported(minor)))
}

/// Attributes that say what the caller has of the filesystem.
const SPACE_OF_CALLER: Bitmap = Bitmap::of(&[n::FILES_AVAIL, n::SPACE_AVAIL]);

pub fn asks_for_space(wanted: &Bitmap) -> bool {
    !wanted.and(&SPACE_OF_CALLER).is_empty()
}

pub fn asks_for_all_space(wanted: &Bitmap) -> bool {
    SPACE_OF_CALLER.minus(wanted).is_empty()
}

pub fn without_space(wanted: &Bitmap) -> Bitmap {
    wanted.minus(&SPACE_OF_CALLER)
}

pub fn needs_object(wanted: &Bitmap) -> bool {
    !wanted.minus(&IN_ENTRY).is_empty()
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::Reg,
        Kind::Dir => FileType::Dir,
        Kind::Symlink => FileType::Lnk,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Sock,
        Kind::CharDev => FileType::Chr,
        Kind::BlockDev => FileType::Blk,
    }
}

fn time(t: Timestamp) -> NfsTime {
    NfsTime { seconds: t.secs, nseconds: t.nanos }
}

fn number_string(id: u32) -> Bytes {
    Bytes::from(id.to_string())
}

/// What an object's attributes are computed from.
#[derive(Debug, Clone)]
pub struct Subject {
    pub handle: Bytes,
    pub attrs: Attrs,
    /// The fileid of the directory entry; differs from the object's at a mount point.
    pub mounted_on: u64,
    /// The volume of its filesystem; `None` for a synthetic directory.
    pub volume: Option<Volume>,
    /// Whether clients see access control lists and extended attributes here.
    pub features: Features,
    /// The access control list, if it was asked for and exists.
    pub acl: Option<Vec<NfsAce>>,
    /// Bytes and objects that its filesystem has for the caller, if that is less than what it has for all.
    pub room: Option<(u64, u64)>,
}

/// Whether [`StatValues`] has all of these.
pub fn only_stat_attrs(wanted: &Bitmap) -> bool {
    wanted.minus(&STAT_ATTRS).is_empty()
}

/// The least that the encoding of these attributes of an object takes, bytes.
pub fn bytes_min(a: &Attrs, handle: &[u8], wanted: &Bitmap) -> usize {
    let known = wanted.and(&STAT_ATTRS);
    let values = StatValues::new(a, handle, a.fileid, &known).bytes().len();
    // At least one word of the mask.
    4 + 4 + 4 + values + padding(values)
}

/// The values of [`STAT_ATTRS`] attributes, in the order of their numbers (RFC 8881 section 3.3.4).
pub struct StatValues {
    bytes: [u8; STAT_BYTES],
    len: usize,
}

impl StatValues {
    /// The values of `wanted`, for which [`only_stat_attrs`] must hold.
    pub fn new(a: &Attrs, handle: &[u8], mounted_on: u64, wanted: &Bitmap) -> StatValues {
        let mut v = StatValues { bytes: [0; STAT_BYTES], len: 0 };
        if wanted.has(n::TYPE) {
            v.u32(match a.kind {
                Kind::File => 1,
                Kind::Dir => 2,
                Kind::BlockDev => 3,
                Kind::CharDev => 4,
                Kind::Symlink => 5,
                Kind::Socket => 6,
                Kind::Fifo => 7,
            });
        }
        if wanted.has(n::CHANGE) {
            v.u64(a.change);
        }
        if wanted.has(n::SIZE) {
            v.u64(a.size);
        }
        if wanted.has(n::FSID) {
            v.u64(a.fsid.0);
            v.u64(a.fsid.1);
        }
        if wanted.has(n::RDATTR_ERROR) {
            v.u32(NfsStat::NFS4_OK.0);
        }
        if wanted.has(n::FILEHANDLE) {
            v.opaque(handle);
        }
        if wanted.has(n::FILEID) {
            v.u64(a.fileid);
        }
        if wanted.has(n::MODE) {
            v.u32(a.mode & 0o7777);
        }
        if wanted.has(n::NUMLINKS) {
            v.u32(a.nlink);
        }
        if wanted.has(n::OWNER) {
            v.number(a.uid);
        }
        if wanted.has(n::OWNER_GROUP) {
            v.number(a.gid);
        }
        if wanted.has(n::RAWDEV) {
            v.u32(a.rdev.0);
            v.u32(a.rdev.1);
        }
        if wanted.has(n::SPACE_USED) {
            v.u64(a.used);
        }
        for (number, t) in [
            (n::TIME_ACCESS, a.atime),
            (n::TIME_CREATE, a.btime),
            (n::TIME_METADATA, a.ctime),
            (n::TIME_MODIFY, a.mtime),
        ] {
            if wanted.has(number) {
                v.u64(t.secs.cast_unsigned());
                v.u32(t.nanos);
            }
        }
        if wanted.has(n::MOUNTED_ON_FILEID) {
            v.u64(mounted_on);
        }
        v
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// [`STAT_BYTES`] is room for all of [`STAT_ATTRS`].
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn u32(&mut self, v: u32) {
        self.put(&v.to_be_bytes());
    }

    fn u64(&mut self, v: u64) {
        self.put(&v.to_be_bytes());
    }

    fn opaque(&mut self, data: &[u8]) {
        // No handle is longer (RFC 8881 section 3.1).
        let data = &data[..data.len().min(HANDLE_BYTES)];
        self.u32(data.len() as u32);
        self.put(data);
        self.len += padding(data.len());
    }

    /// A user's or group's number as a string.
    fn number(&mut self, id: u32) {
        let mut digits = [0; 10];
        let (mut at, mut rest) = (digits.len(), id);
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.opaque(&digits[at..]);
    }
}

/// Encodes the attributes `wanted` of `s`; `wanted` contains only readable ones.
/// Errors: `IO` and the like when the filesystem cannot say how full it is.
pub fn values(shared: &Shared, minor: u32, s: &Subject, wanted: &Bitmap) -> Result<Fattr, NfsStat> {
    let a = &s.attrs;
    if only_stat_attrs(wanted) {
        let values = StatValues::new(a, &s.handle, s.mounted_on, wanted);
        return Ok(Fattr { mask: *wanted, values: Bytes::copy_from_slice(values.bytes()) });
    }
    let mut v = AttrValues {
        kind: Some(file_type(a.kind)),
        change: Some(a.change),
        size: Some(a.size),
        fsid: Some(Fsid { major: a.fsid.0, minor: a.fsid.1 }),
        rdattr_error: Some(NfsStat::NFS4_OK),
        filehandle: Some(FileHandle(s.handle.clone())),
        fileid: Some(a.fileid),
        mode: Some(a.mode & 0o7777),
        numlinks: Some(a.nlink),
        rawdev: Some(SpecData { major: a.rdev.0, minor: a.rdev.1 }),
        space_used: Some(a.used),
        time_access: Some(time(a.atime)),
        time_create: Some(time(a.btime)),
        time_metadata: Some(time(a.ctime)),
        time_modify: Some(time(a.mtime)),
        mounted_on_fileid: Some(s.mounted_on),
        ..AttrValues::default()
    };
    if wanted.has(n::OWNER) {
        v.owner = Some(number_string(a.uid));
    }
    if wanted.has(n::OWNER_GROUP) {
        v.owner_group = Some(number_string(a.gid));
    }
    v.acl.clone_from(&s.acl);
    if wanted.has(n::CLONE_BLKSIZE) {
        let block = s.volume.as_ref().map(Volume::clone_block).transpose().map_err(crate::errors::status)?;
        v.clone_blksize = Some(block.unwrap_or(0));
    }
    constants(&mut v, shared, minor);
    if !s.features.acls {
        v.aclsupport = Some(0);
    }
    if let Some(supported) = &mut v.supported_attrs
        && s.features.delegations.sets_times(minor)
    {
        *supported = supported.or(&DELEGATED_TIMES);
    }
    v.open_arguments = Some(open_arguments(s.features.delegations));
    // A symbolic link can have no ACL.
    if (a.kind == Kind::Symlink || !s.features.acls)
        && let Some(supported) = &mut v.supported_attrs
    {
        supported.clear(n::ACL);
    }
    if wanted.has(n::XATTR_SUPPORT) {
        // Clients ask the root of what they mount. A synthetic directory leads to exports that have xattrs.
        v.xattr_support = Some(s.features.xattrs && s.volume.as_ref().is_none_or(Volume::has_xattrs));
    }
    if !wanted.and(&OF_FILESYSTEM).is_empty() {
        let f = s.volume.as_ref().map(Volume::statfs).transpose().map_err(crate::errors::status)?;
        let of = |field: fn(&FsStat) -> u64| Some(f.as_ref().map_or(0, field));
        let most = |all: Option<u64>, room: Option<u64>| all.map(|all| all.min(room.unwrap_or(all)));
        v.files_avail = most(of(|f| f.free_files), s.room.map(|room| room.1));
        v.files_free = of(|f| f.free_files);
        v.files_total = of(|f| f.total_files);
        v.space_avail = most(of(|f| f.avail_bytes), s.room.map(|room| room.0));
        v.space_free = of(|f| f.free_bytes);
        v.space_total = of(|f| f.total_bytes);
    }
    Ok(v.to_fattr(wanted))
}

/// Values that are the same for all objects.
fn constants(v: &mut AttrValues, shared: &Shared, minor: u32) {
    v.supported_attrs = Some(supported(minor));
    v.fh_expire_type = Some(FH4_PERSISTENT);
    v.link_support = Some(true);
    v.symlink_support = Some(true);
    v.named_attr = Some(false);
    v.unique_handles = Some(true);
    v.lease_time = Some(shared.lease_seconds);
    v.aclsupport = Some(ACL4_SUPPORT_ALLOW_ACL | ACL4_SUPPORT_DENY_ACL);
    v.cansettime = Some(true);
    v.case_insensitive = Some(false);
    v.case_preserving = Some(true);
    v.chown_restricted = Some(true);
    v.homogeneous = Some(true);
    v.maxfilesize = Some(FILE_SIZE_MAX);
    v.maxlink = Some(65_000);
    v.maxname = Some(limits::NAME_MAX as u32);
    v.maxread = Some(u64::from(limits::IO_BYTES_MAX));
    v.maxwrite = Some(u64::from(limits::IO_BYTES_MAX));
    v.no_trunc = Some(true);
    v.time_delta = Some(NfsTime { seconds: 0, nseconds: 1 });
    v.suppattr_exclcreat = Some(settable(minor, Purpose::Exclusive));
    v.fs_charset_cap = Some(CHARSET_ANY);
    v.change_attr_type = Some(CHANGE_TYPE_IS_MONOTONIC_INCR);
}

/// The attributes of a READDIR entry whose object was not, or could not be, looked at.
pub fn entry_values(fileid: u64, error: NfsStat, wanted: &Bitmap) -> Fattr {
    let v = AttrValues {
        rdattr_error: Some(error),
        fileid: error.is_ok().then_some(fileid),
        mounted_on_fileid: Some(fileid),
        ..AttrValues::default()
    };
    v.to_fattr(wanted)
}

/// The operation that sets attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Set,
    /// The same where the holders of delegations set times.
    SetByHolder,
    /// CREATE and OPEN with UNCHECKED4 or GUARDED4.
    Create,
    /// OPEN with EXCLUSIVE4_1.
    Exclusive,
}

pub fn settable(minor: u32, purpose: Purpose) -> Bitmap {
    let all = match purpose {
        Purpose::Set => SETTABLE,
        Purpose::SetByHolder => return SETTABLE.or(&DELEGATED_TIMES),
        Purpose::Create => SETTABLE.or(&WRITE_ONLY_42),
        Purpose::Exclusive => EXCLUSIVE,
    };
    all.and(&supported(minor))
}

/// Decodes the attributes to set.
/// Errors: `ATTRNOTSUPP` for unsupported attributes; `INVAL` for those that cannot be set here and for values out of
/// range; `BADXDR`; `BADOWNER` for an owner that is no number.
pub fn to_set(f: &Fattr, minor: u32, purpose: Purpose) -> Result<SetAttrs, NfsStat> {
    if !f.mask.minus(&supported(minor).or(&settable(minor, purpose))).is_empty() {
        return Err(NfsStat::NFS4ERR_ATTRNOTSUPP);
    }
    if !f.mask.minus(&settable(minor, purpose)).is_empty() {
        return Err(NfsStat::NFS4ERR_INVAL);
    }
    let v = AttrValues::from_fattr(f)?;
    let mode = match v.mode {
        Some(m) if m > 0o7777 => return Err(NfsStat::NFS4ERR_INVAL),
        m => m,
    };
    let mode_umask = match v.mode_umask {
        // RFC 8275 section 4: not both, and only the permission bits.
        Some(_) if mode.is_some() => return Err(NfsStat::NFS4ERR_INVAL),
        Some(m) if m.mode > 0o7777 || m.umask > 0o777 => return Err(NfsStat::NFS4ERR_INVAL),
        Some(m) => Some((m.mode, m.umask)),
        None => None,
    };
    let size = match v.size {
        Some(s) if s > FILE_SIZE_MAX => return Err(NfsStat::NFS4ERR_FBIG),
        s => s,
    };
    let time = |set: Option<SetTime>, delegated: Option<NfsTime>| match (set, delegated) {
        (Some(_), Some(_)) => Err(NfsStat::NFS4ERR_INVAL),
        (set, delegated) => set.or(delegated.map(SetTime::ClientTime)).map(time_set).transpose(),
    };
    Ok(SetAttrs {
        mode,
        uid: v.owner.as_deref().map(owner_number).transpose()?,
        gid: v.owner_group.as_deref().map(owner_number).transpose()?,
        size,
        atime: time(v.time_access_set, v.time_deleg_access)?,
        mtime: time(v.time_modify_set, v.time_deleg_modify)?,
        mode_umask,
    })
}

/// Errors: `INVAL` if what is asked for can only be set, by the holder of a delegation.
pub fn not_delegated(wanted: &Bitmap, minor: u32, delegations: Delegate) -> Result<(), NfsStat> {
    if delegations.sets_times(minor) && !wanted.and(&DELEGATED_TIMES).is_empty() {
        Err(NfsStat::NFS4ERR_INVAL)
    } else {
        Ok(())
    }
}

/// The times that only the holder of a delegation may set: whether there are any, and whether one needs a delegation for writing.
pub fn delegated_times(f: &Fattr) -> (bool, bool) {
    (!f.mask.and(&DELEGATED_TIMES).is_empty(), f.mask.has(n::TIME_DELEG_MODIFY))
}

/// Of what was asked, the times that only the holder of a delegation may set.
pub fn only_delegated_times(asked: &Bitmap) -> Bitmap {
    asked.and(&DELEGATED_TIMES)
}

/// The ACLs to set on an object of this kind and owner, after the other attributes (RFC 8881 section 6.4.1.3). Call
/// after [`to_set`].
/// Errors: Those of [`acl::from_nfs4`]; `ATTRNOTSUPP` for a symbolic link, which has none, and where clients see none.
pub fn acls_to_set(f: &Fattr, kind: Kind, owner: u32, features: Features) -> Result<SetAcls, NfsStat> {
    if !f.mask.has(n::ACL) {
        return Ok(SetAcls::default());
    }
    if kind == Kind::Symlink || !features.acls {
        return Err(NfsStat::NFS4ERR_ATTRNOTSUPP);
    }
    let list = AttrValues::from_fattr(f)?.acl.unwrap_or_default();
    acl::from_nfs4(&list, kind == Kind::Dir, owner)
}

fn time_set(t: SetTime) -> Result<TimeSet, NfsStat> {
    match t {
        SetTime::ServerTime => Ok(TimeSet::Now),
        SetTime::ClientTime(t) if t.nseconds > 999_999_999 => Err(NfsStat::NFS4ERR_INVAL),
        SetTime::ClientTime(t) => Ok(TimeSet::At(Timestamp { secs: t.seconds, nanos: t.nseconds })),
    }
}

/// The reply's bitmap of what was set.
pub fn set_mask(s: &AttrsSet) -> Bitmap {
    let mut b = Bitmap::default();
    for (set, number) in [
        (s.size, n::SIZE),
        (s.mode, n::MODE),
        (s.uid, n::OWNER),
        (s.gid, n::OWNER_GROUP),
        (s.atime, n::TIME_ACCESS_SET),
        (s.mtime, n::TIME_MODIFY_SET),
        (s.mode_umask, n::MODE_UMASK),
    ] {
        if set {
            b.set(number);
        }
    }
    b
}

/// [`set_mask`] of an exclusive create whose verifier is in the times (RFC 8881 section 18.16.3); the mask tells the
/// client to set them.
pub fn set_mask_exclusive(s: &AttrsSet) -> Bitmap {
    set_mask(s).or(&Bitmap::of(&[n::TIME_ACCESS, n::TIME_MODIFY]))
}

/// Checks that VERIFY and NVERIFY may compare these (RFC 8881 section 18.31.3).
/// Errors: `ATTRNOTSUPP` for unsupported attributes; `INVAL` for write-only ones and for rdattr_error.
pub fn comparable(mask: &Bitmap, minor: u32) -> Result<(), NfsStat> {
    if !mask.minus(&supported(minor)).is_empty() {
        return Err(NfsStat::NFS4ERR_ATTRNOTSUPP);
    }
    if mask.has(n::RDATTR_ERROR) {
        return Err(NfsStat::NFS4ERR_INVAL);
    }
    readable(mask, minor).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfast_nfs::v4::attr::ModeUmask;

    fn fattr(v: &AttrValues) -> Fattr {
        v.to_fattr(&AttrValues::KNOWN)
    }

    #[test]
    fn every_supported_attribute_has_a_type() {
        assert!(supported(2).minus(&AttrValues::KNOWN).is_empty());
    }

    #[test]
    fn rfc8881_5_what_a_look_gives_stands_as_typed_values_do() {
        let t = |secs| Timestamp { secs, nanos: 7 };
        for (uid, kind) in [
            (0, Kind::File),
            (1000, Kind::Dir),
            (u32::MAX, Kind::CharDev),
            (9, Kind::BlockDev),
            (10, Kind::Symlink),
            (99, Kind::Socket),
            (100, Kind::Fifo),
        ] {
            let a = Attrs {
                kind,
                mode: 0o100_644,
                nlink: 3,
                uid,
                gid: uid / 3,
                rdev: (8, 1),
                size: 1 << 40,
                used: 512,
                fsid: (5, 6),
                fileid: 77,
                atime: t(-1),
                mtime: t(2),
                ctime: t(3),
                btime: t(4),
                change: 99,
            };
            let typed = AttrValues {
                kind: Some(file_type(a.kind)),
                change: Some(a.change),
                size: Some(a.size),
                fsid: Some(Fsid { major: a.fsid.0, minor: a.fsid.1 }),
                rdattr_error: Some(NfsStat::NFS4_OK),
                filehandle: Some(FileHandle(Bytes::from_static(b"handle"))),
                fileid: Some(a.fileid),
                mode: Some(0o644),
                numlinks: Some(a.nlink),
                owner: Some(number_string(a.uid)),
                owner_group: Some(number_string(a.gid)),
                rawdev: Some(SpecData { major: 8, minor: 1 }),
                space_used: Some(a.used),
                time_access: Some(time(a.atime)),
                time_create: Some(time(a.btime)),
                time_metadata: Some(time(a.ctime)),
                time_modify: Some(time(a.mtime)),
                mounted_on_fileid: Some(78),
                ..AttrValues::default()
            };
            let alone = STAT_ATTRS.iter().map(|number| Bitmap::of(&[number]));
            for wanted in alone.chain([STAT_ATTRS, Bitmap::default()]) {
                let values = StatValues::new(&a, b"handle", 78, &wanted);
                let fattr = Fattr { mask: wanted, values: Bytes::copy_from_slice(values.bytes()) };
                assert_eq!(fattr, typed.to_fattr(&wanted));
            }
        }
    }

    #[test]
    fn rfc7530_5_the_attributes_of_4_0_end_with_mounted_on_fileid() {
        assert!(supported(0).iter().all(|number| number <= n::MOUNTED_ON_FILEID));
        assert!(supported(0).has(n::MOUNTED_ON_FILEID) && supported(0).has(n::TIME_MODIFY_SET));
        assert_eq!(readable(&Bitmap::of(&[n::SIZE, n::SUPPATTR_EXCLCREAT]), 0), Ok(Bitmap::of(&[n::SIZE])));
    }

    #[test]
    fn rfc8881_5_9_owners_are_numbers() {
        assert_eq!(owner_number(b"0"), Ok(0));
        assert_eq!(owner_number(b"4294967294"), Ok(u32::MAX - 1));
        assert_eq!(owner_number(b""), Err(NfsStat::NFS4ERR_INVAL));
        for bad in [&b"4294967295"[..], b"00", b"-1", b"+1", b" 1", b"root@example.org", b"99999999999"] {
            assert_eq!(owner_number(bad), Err(NfsStat::NFS4ERR_BADOWNER));
        }
    }

    #[test]
    fn write_only_attributes_cannot_be_read() {
        assert_eq!(readable(&Bitmap::of(&[n::TIME_MODIFY_SET]), 1), Err(NfsStat::NFS4ERR_INVAL));
        assert_eq!(readable(&Bitmap::of(&[n::MODE_UMASK]), 2), Err(NfsStat::NFS4ERR_INVAL));
        // In 4.1 that number means nothing, and what means nothing is left out.
        assert_eq!(readable(&Bitmap::of(&[n::MODE_UMASK]), 1), Ok(Bitmap::default()));
    }

    #[test]
    fn what_may_be_set_where() {
        let mode = fattr(&AttrValues { mode: Some(0o644), ..AttrValues::default() });
        assert_eq!(to_set(&mode, 1, Purpose::Set).map(|s| s.mode), Ok(Some(0o644)));
        let both = AttrValues {
            mode: Some(0o644),
            mode_umask: Some(ModeUmask { mode: 0o666, umask: 0o22 }),
            ..AttrValues::default()
        };
        assert_eq!(to_set(&fattr(&both), 2, Purpose::Create), Err(NfsStat::NFS4ERR_INVAL));
        assert_eq!(to_set(&fattr(&both), 1, Purpose::Create), Err(NfsStat::NFS4ERR_ATTRNOTSUPP));
        let times = AttrValues { time_modify_set: Some(SetTime::ServerTime), ..AttrValues::default() };
        assert_eq!(to_set(&fattr(&times), 1, Purpose::Exclusive), Err(NfsStat::NFS4ERR_INVAL));
        let kind = AttrValues { kind: Some(FileType::Reg), ..AttrValues::default() };
        assert_eq!(to_set(&fattr(&kind), 1, Purpose::Set), Err(NfsStat::NFS4ERR_INVAL));
        let late = NfsTime { seconds: 1, nseconds: 1_000_000_000 };
        let late = AttrValues { time_access_set: Some(SetTime::ClientTime(late)), ..AttrValues::default() };
        assert_eq!(to_set(&fattr(&late), 1, Purpose::Set), Err(NfsStat::NFS4ERR_INVAL));
    }

    #[test]
    fn rfc8881_5_8_2_14_the_exclusive_set_has_no_times() {
        let exclusive = |minor| settable(minor, Purpose::Exclusive);
        assert!(!exclusive(1).has(n::TIME_MODIFY_SET) && !exclusive(1).has(n::TIME_ACCESS_SET));
        assert!(exclusive(2).has(n::MODE_UMASK) && !exclusive(1).has(n::MODE_UMASK));
    }
}
