//! A directory's attributes as bytes, from when it is made until they are set. Pure.

use bytes::Bytes;
use landfast_xdr::{Decode, Encode, Reader};

use crate::archive::{Kind, Member, Time};

#[derive(Debug, Encode, Decode)]
struct Record {
    path: Bytes,
    mode: u32,
    uid: u32,
    gid: u32,
    mtime: TimeRecord,
    atime: Option<TimeRecord>,
    xattrs: Vec<XattrRecord>,
    existed: bool,
}

#[derive(Debug, Encode, Decode)]
struct TimeRecord {
    seconds: i64,
    nanos: u32,
}

#[derive(Debug, Encode, Decode)]
struct XattrRecord {
    name: Bytes,
    value: Bytes,
}

/// `existed`: no run of this copy has made it.
pub(super) fn write(dir: Member, existed: bool) -> Bytes {
    let time = |time: Time| TimeRecord { seconds: time.seconds, nanos: time.nanos };
    let xattr = |(name, value): (Vec<u8>, Bytes)| XattrRecord { name: name.into(), value };
    let record = Record {
        path: dir.path.into(),
        mode: dir.mode,
        uid: dir.uid,
        gid: dir.gid,
        mtime: time(dir.mtime),
        atime: dir.atime.map(time),
        xattrs: dir.xattrs.into_iter().map(xattr).collect(),
        existed,
    };
    record.to_bytes()
}

pub(super) fn read(bytes: Vec<u8>) -> Option<(Member, bool)> {
    let record = Record::decode(&mut Reader::new(bytes.into())).ok()?;
    let time = |time: TimeRecord| Time { seconds: time.seconds, nanos: time.nanos };
    let member = Member {
        path: record.path.into(),
        kind: Kind::Dir,
        mode: record.mode,
        uid: record.uid,
        gid: record.gid,
        user: Vec::new(),
        group: Vec::new(),
        mtime: time(record.mtime),
        atime: record.atime.map(time),
        link: Vec::new(),
        device: (0, 0),
        size: 0,
        stored: 0,
        sparse: None,
        xattrs: record.xattrs.into_iter().map(|xattr| (xattr.name.into(), xattr.value)).collect(),
    };
    Some((member, record.existed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_comes_back() {
        let dir = Member {
            mode: 0o2750,
            uid: 7,
            gid: 8,
            mtime: Time { seconds: -5, nanos: 3 },
            xattrs: vec![(b"user.a".to_vec(), "b".into())],
            ..Member::plain(b"a/b", Kind::Dir)
        };
        for (atime, existed) in [(None, true), (Some(Time { seconds: 9, nanos: 1 }), false)] {
            let dir = Member { atime, ..dir.clone() };
            assert_eq!(read(write(dir.clone(), existed).to_vec()), Some((dir, existed)));
        }
    }
}
