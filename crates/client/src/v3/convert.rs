//! Converts attributes between the versions. Pure.

use bytes::Bytes;
use landfast_nfs::v3;
use landfast_nfs::v3::types as nfs3;
use landfast_nfs::v4::attr::{AttrValues, Bitmap};
use landfast_nfs::v4::{ChangeInfo, Fattr, FileHandle, FileType, Fsid, NfsStat, NfsTime, SetTime};

/// The status of the same number (RFC 1813 section 2.6, RFC 8881 section 15.1). NOT_SYNC means something else in NFSv4;
/// it is a reply to guards, which this client does not use.
pub(super) fn status(status: v3::NfsStat3) -> NfsStat {
    NfsStat(status.0)
}

fn time(t: nfs3::Time) -> NfsTime {
    NfsTime { seconds: i64::from(t.seconds), nseconds: t.nseconds }
}

pub(super) fn kind(file_type: nfs3::FileType) -> FileType {
    match file_type {
        nfs3::FileType::Reg => FileType::Reg,
        nfs3::FileType::Dir => FileType::Dir,
        nfs3::FileType::Blk => FileType::Blk,
        nfs3::FileType::Chr => FileType::Chr,
        nfs3::FileType::Lnk => FileType::Lnk,
        nfs3::FileType::Sock => FileType::Sock,
        nfs3::FileType::Fifo => FileType::Fifo,
    }
}

/// The attributes as NFSv4 has them.
pub(super) fn values(a: &v3::Fattr, fh: Option<&FileHandle>) -> AttrValues {
    AttrValues {
        kind: Some(kind(a.file_type)),
        change: Some(change(a.ctime)),
        size: Some(a.size),
        fsid: Some(Fsid { major: a.fsid, minor: 0 }),
        filehandle: fh.cloned(),
        fileid: Some(a.fileid),
        mode: Some(a.mode & 0o7777),
        numlinks: Some(a.nlink),
        owner: Some(Bytes::from(a.uid.to_string())),
        owner_group: Some(Bytes::from(a.gid.to_string())),
        rawdev: Some(a.rdev),
        space_used: Some(a.used),
        time_access: Some(time(a.atime)),
        time_metadata: Some(time(a.ctime)),
        time_modify: Some(time(a.mtime)),
        ..AttrValues::default()
    }
}

/// The change attribute that stands for a time of the last change of attributes: NFSv3 has none.
fn change(ctime: nfs3::Time) -> u64 {
    u64::from(ctime.seconds) << 32 | u64::from(ctime.nseconds)
}

/// What an operation did to a directory. A server gives what was before only when nothing else came between (RFC 1813 section 2.6).
pub(super) fn change_info(wcc: &nfs3::WccData) -> ChangeInfo {
    match (&wcc.before, &wcc.after) {
        (Some(before), Some(after)) => {
            ChangeInfo { atomic: true, before: change(before.ctime), after: change(after.ctime) }
        }
        _ => ChangeInfo::default(),
    }
}

/// Those of `wanted` that NFSv3 has.
pub(super) fn fattr(a: &v3::Fattr, fh: Option<&FileHandle>, wanted: &Bitmap) -> Fattr {
    values(a, fh).to_fattr(wanted)
}

/// Attributes to set. What NFSv3 cannot express is an error: a name that is no number, a time before 1970 or after
/// 2106.
pub(super) fn sattr(attrs: &Fattr) -> Result<v3::Sattr, NfsStat> {
    let values = AttrValues::from_fattr(attrs)?;
    let id = |name: &Option<Bytes>| match name {
        None => Ok(None),
        Some(name) => std::str::from_utf8(name)
            .ok()
            .and_then(|text| text.parse::<u32>().ok())
            .map(Some)
            .ok_or(NfsStat::NFS4ERR_BADOWNER),
    };
    let set = |t: &Option<SetTime>| match t {
        None => Ok(nfs3::SetTime::Dont),
        Some(SetTime::ServerTime) => Ok(nfs3::SetTime::Server),
        Some(SetTime::ClientTime(t)) => u32::try_from(t.seconds)
            .map(|seconds| nfs3::SetTime::Client(nfs3::Time { seconds, nseconds: t.nseconds }))
            .map_err(|_| NfsStat::NFS4ERR_INVAL),
    };
    Ok(v3::Sattr {
        mode: values.mode,
        uid: id(&values.owner)?,
        gid: id(&values.owner_group)?,
        size: values.size,
        atime: set(&values.time_access_set)?,
        mtime: set(&values.time_modify_set)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_known_only_with_both_its_ends() {
        let at = |seconds| nfs3::Time { seconds, nseconds: 3 };
        let before = Some(nfs3::WccAttr { size: 0, mtime: at(1), ctime: at(1) });
        assert!(!change_info(&nfs3::WccData { before, after: None }).atomic);
        assert!(!change_info(&nfs3::WccData::default()).atomic);
    }

    #[test]
    fn what_version_3_cannot_say_is_refused() {
        let all = |values: &AttrValues| values.to_fattr(&AttrValues::KNOWN);
        let time = |seconds| Some(SetTime::ClientTime(NfsTime { seconds, nseconds: 1 }));
        let ok = AttrValues {
            mode: Some(0o640),
            owner: Some("7".into()),
            size: Some(5),
            time_modify_set: time(4_294_967_295),
            ..AttrValues::default()
        };
        let set = sattr(&all(&ok)).unwrap();
        assert_eq!((set.mode, set.uid, set.gid, set.size), (Some(0o640), Some(7), None, Some(5)));
        assert_eq!(set.mtime, nfs3::SetTime::Client(nfs3::Time { seconds: u32::MAX, nseconds: 1 }));
        assert_eq!(set.atime, nfs3::SetTime::Dont);
        let late = AttrValues { time_modify_set: time(4_294_967_296), ..AttrValues::default() };
        assert_eq!(sattr(&all(&late)), Err(NfsStat::NFS4ERR_INVAL));
        let early = AttrValues { time_access_set: time(-1), ..AttrValues::default() };
        assert_eq!(sattr(&all(&early)), Err(NfsStat::NFS4ERR_INVAL));
        let named = AttrValues { owner: Some("root@here".into()), ..AttrValues::default() };
        assert_eq!(sattr(&all(&named)), Err(NfsStat::NFS4ERR_BADOWNER));
    }
}
