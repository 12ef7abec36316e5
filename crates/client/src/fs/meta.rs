//! Attributes of an object in compact form, so that listings of many objects fit in memory. Pure.

use std::sync::Arc;

use bytes::Bytes;
use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};
use landfast_nfs::v4::{FileHandle, FileType, Fsid, NfsStat, NfsTime};

use crate::ops::STAT;

/// Attributes for a listing: [`STAT`], and the error where attributes are missing.
pub(super) const LISTED: Bitmap = STAT.with(number::RDATTR_ERROR);
/// Attributes of one object: [`STAT`], and its time of creation.
pub(super) const LOOKED: Bitmap = STAT.with(number::TIME_CREATE);
/// Attributes for the removal of a tree.
pub(super) const REMOVED: Bitmap =
    Bitmap::of(&[number::TYPE, number::FILEHANDLE, number::FSID, number::RDATTR_ERROR]);

/// An owner or group as the server gives it (RFC 8881 section 5.9).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    Id(u32),
    /// A name such as `user@domain`.
    Name(Arc<[u8]>),
}

impl Owner {
    fn of(text: Option<&Bytes>) -> Owner {
        let text = text.map(|t| &t[..]).unwrap_or_default();
        match std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()) {
            Some(id) => Owner::Id(id),
            None => Owner::Name(text.into()),
        }
    }

    /// As it stands in SETATTR.
    #[must_use]
    pub fn wire(&self) -> Bytes {
        match self {
            Owner::Id(id) => Bytes::from(id.to_string()),
            Owner::Name(name) => Bytes::copy_from_slice(name),
        }
    }
}

/// Attributes of an object. What the server did not give is zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// `None`: the server did not say.
    pub kind: Option<FileType>,
    pub mode: u32,
    pub links: u32,
    pub owner: Owner,
    pub group: Owner,
    /// Bytes of data, or of a symbolic link's text.
    pub size: u64,
    /// Bytes of storage.
    pub used: u64,
    /// Unique in its filesystem.
    pub fileid: u64,
    pub fsid: Fsid,
    /// Major and minor number of a device.
    pub rdev: (u32, u32),
    pub accessed: NfsTime,
    pub modified: NfsTime,
    pub changed: NfsTime,
    /// Time of creation, if known.
    pub born: Option<NfsTime>,
}

impl Meta {
    #[must_use]
    pub fn of(attrs: &AttrValues) -> Meta {
        Meta {
            kind: attrs.kind,
            mode: attrs.mode.unwrap_or_default(),
            links: attrs.numlinks.unwrap_or_default(),
            owner: Owner::of(attrs.owner.as_ref()),
            group: Owner::of(attrs.owner_group.as_ref()),
            size: attrs.size.unwrap_or_default(),
            used: attrs.space_used.unwrap_or_default(),
            fileid: attrs.fileid.unwrap_or_default(),
            fsid: attrs.fsid.unwrap_or(Fsid { major: 0, minor: 0 }),
            rdev: attrs.rawdev.map(|d| (d.major, d.minor)).unwrap_or_default(),
            accessed: attrs.time_access.unwrap_or_default(),
            modified: attrs.time_modify.unwrap_or_default(),
            changed: attrs.time_metadata.unwrap_or_default(),
            born: attrs.time_create,
        }
    }

    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.kind == Some(FileType::Dir)
    }

    #[must_use]
    pub fn is_link(&self) -> bool {
        self.kind == Some(FileType::Lnk)
    }
}

#[derive(Debug, Clone)]
pub struct Entry {
    /// Never empty, `.` or `..`, and without `/` and NUL, whatever the server sends.
    pub name: Box<[u8]>,
    pub meta: Meta,
    /// `None`: the server gave none.
    pub fh: Option<FileHandle>,
    /// The target of a symbolic link, if it was asked for and could be read.
    pub text: Option<Bytes>,
    /// The number of its listing in a walk, if the walk enters it.
    pub listing: Option<usize>,
}

impl Entry {
    /// The entry that READDIR gave; `Ok(None)`: `.` and `..`, which NFSv4 does not list. Fails for a name that no
    /// directory can hold.
    pub(super) fn of(name: &[u8], attrs: &AttrValues) -> Result<Option<Entry>, NfsStat> {
        match name {
            b"." | b".." => return Ok(None),
            b"" => return Err(NfsStat::NFS4ERR_IO),
            name if name.iter().any(|b| matches!(b, 0 | b'/')) => return Err(NfsStat::NFS4ERR_IO),
            _ => {}
        }
        // A copy: a slice would keep the whole reply in memory.
        let fh = attrs.filehandle.as_ref().map(|fh| FileHandle(Bytes::copy_from_slice(&fh.0)));
        let meta = Meta::of(attrs);
        Ok(Some(Entry { name: name.into(), meta, fh, text: None, listing: None }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_that_leads_elsewhere_comes_out_of_a_listing() {
        let entry = |name: &[u8]| Entry::of(name, &AttrValues::default()).map(|e| e.map(|e| e.name));
        assert_eq!(entry(b"a"), Ok(Some(b"a"[..].into())));
        assert_eq!(entry(b".."), Ok(None));
        assert_eq!(entry(b"."), Ok(None));
        for bad in [&b""[..], b"../x", b"/", b"a\0"] {
            assert_eq!(entry(bad), Err(NfsStat::NFS4ERR_IO), "{bad:?}");
        }
    }

    #[test]
    fn a_number_is_a_number_and_all_else_a_name() {
        let owner = |text: &'static str| Owner::of(Some(&Bytes::from_static(text.as_bytes())));
        assert_eq!(owner("1000"), Owner::Id(1000));
        assert_eq!(owner("ann@home"), Owner::Name(b"ann@home"[..].into()));
        assert_eq!(owner("4294967296"), Owner::Name(b"4294967296"[..].into()));
        assert_eq!(owner("ann@home").wire(), "ann@home");
    }
}
