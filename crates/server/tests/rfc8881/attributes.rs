//! Attributes one by one: GETATTR, SETATTR, VERIFY, NVERIFY, ACCESS (RFC 8881 sections 5, 18.1, 18.7, 18.15, 18.30, 18.31).

use crate::common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::*;
use landfast_xdr::Bytes;

/// Attributes that every server must have and that can be read (RFC 8881 section 5.6).
const REQUIRED: &[u32] = &[
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
    n::FILEHANDLE,
    n::SUPPATTR_EXCLCREAT,
];
/// Attributes that can only be set.
const SET_ONLY: &[u32] = &[n::TIME_ACCESS_SET, n::TIME_MODIFY_SET];

fn set(stateid: Stateid, attrs: Fattr) -> ArgOp {
    ArgOp::Setattr(SetattrArgs { stateid, attrs })
}

/// One object of each type.
async fn objects(c: &mut Client) -> Vec<FileHandle> {
    let d = SpecData { major: 1, minor: 2 };
    let kinds = [
        CreateType::Dir,
        CreateType::Lnk(name("x")),
        CreateType::Fifo,
        CreateType::Sock,
        CreateType::Blk(d),
        CreateType::Chr(d),
    ];
    let (file, _) = c.open("file", 3).await;
    let mut all = vec![file];
    for (i, kind) in kinds.into_iter().enumerate() {
        let create = CreateArgs { kind, name: name(&format!("o{i}")), attrs: mode(0o755) };
        match c.last(vec![ArgOp::Putrootfh, ArgOp::Create(create), ArgOp::Getfh]).await.body {
            ResBody::Getfh(fh) => all.push(fh),
            other => panic!("GETFH gave {other:?}"),
        }
    }
    all
}

async fn supported(c: &mut Client, fh: &FileHandle) -> Bitmap {
    c.attrs(fh, Bitmap::of(&[n::SUPPORTED_ATTRS])).await.supported_attrs.expect("supported_attrs")
}

#[tokio::test]
async fn rfc8881_5_each_attribute_of_each_type() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let all = objects(&mut c).await;
    // How full the filesystem is changes while one looks.
    let changing = Bitmap::of(&[
        n::RDATTR_ERROR,
        n::FILES_AVAIL,
        n::FILES_FREE,
        n::FILES_TOTAL,
        n::SPACE_AVAIL,
        n::SPACE_FREE,
        n::SPACE_TOTAL,
    ]);
    for minor in [1, 2] {
        c.raw.minor = minor;
        for fh in &all {
            let supported = supported(&mut c, fh).await;
            assert!(Bitmap::of(REQUIRED).minus(&supported).is_empty());
            for number in 0..127 {
                let one = Bitmap::of(&[number]);
                let res = c.last(vec![ArgOp::Putfh(fh.clone()), ArgOp::Getattr(one)]).await;
                let set_only = SET_ONLY.contains(&number) || (number == n::MODE_UMASK && minor >= 2);
                match res.body {
                    ResBody::Getattr(f) if !set_only => {
                        assert_eq!(f.mask, one.and(&supported), "attribute {number}");
                        // VERIFY and NVERIFY agree with it.
                        if supported.has(number) && !changing.has(number) {
                            let put = ArgOp::Putfh(fh.clone());
                            assert_ok(
                                &c.run(vec![put.clone(), ArgOp::Verify(f.clone()), ArgOp::Getfh]).await,
                            );
                            let same = c.status(vec![put, ArgOp::Nverify(f)]).await;
                            assert_eq!(same, NfsStat::NFS4ERR_SAME, "attribute {number}");
                        }
                    }
                    _ => assert_eq!((set_only, res.status), (true, NfsStat::NFS4ERR_INVAL), "{number}"),
                }
            }
        }
    }
}

#[tokio::test]
async fn rfc8881_5_unknown_and_no_attributes() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let mut unknown = Bitmap::default();
    unknown.set(1000);
    for wanted in [Bitmap::default(), unknown] {
        let res = c.last(vec![ArgOp::Putrootfh, ArgOp::Getattr(wanted)]).await;
        assert_eq!(res.body, ResBody::Getattr(Fattr::default()));
    }
    assert_eq!(c.status(vec![ArgOp::Getattr(unknown)]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
}

#[tokio::test]
async fn rfc8881_18_30_what_can_be_read_only_is_not_set() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let all = objects(&mut c).await;
    let settable = Bitmap::of(&[n::SIZE, n::MODE, n::OWNER, n::OWNER_GROUP]);
    for fh in &all {
        let supported = supported(&mut c, fh).await;
        for number in 0..127 {
            let set_only = SET_ONLY.contains(&number) || number == n::MODE_UMASK;
            if settable.has(number) || set_only || matches!(number, 12 | 58 | 59) {
                continue;
            }
            // The value is what is there, or a word where nothing is known.
            let one = Bitmap::of(&[number]);
            let there = match c.last(vec![ArgOp::Putfh(fh.clone()), ArgOp::Getattr(one)]).await.body {
                ResBody::Getattr(f) if !f.values.is_empty() => f.values,
                _ => Bytes::from_static(&[0; 4]),
            };
            let op = set(Stateid::ANONYMOUS, Fattr { mask: one, values: there });
            let expected =
                if supported.has(number) { NfsStat::NFS4ERR_INVAL } else { NfsStat::NFS4ERR_ATTRNOTSUPP };
            let last = c.last(vec![ArgOp::Putfh(fh.clone()), op]).await;
            assert_eq!((last.status, last.body), (expected, ResBody::Setattr(Bitmap::default())), "{number}");
        }
    }
}

#[tokio::test]
async fn rfc8881_18_30_values_that_are_none() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, _) = c.open("f", 3).await;
    let mode =
        |values: &'static [u8]| Fattr { mask: Bitmap::of(&[n::MODE]), values: Bytes::from_static(values) };
    let time = |nseconds| {
        let t = SetTime::ClientTime(NfsTime { seconds: 500_000_000, nseconds });
        fattr(AttrValues { time_modify_set: Some(t), ..AttrValues::default() })
    };
    let who = |s: &str| fattr(AttrValues { owner: Some(name(s)), ..AttrValues::default() });
    let group = |s: &str| fattr(AttrValues { owner_group: Some(name(s)), ..AttrValues::default() });
    let size = |size| fattr(AttrValues { size: Some(size), ..AttrValues::default() });
    for (attrs, status) in [
        (mode(b""), NfsStat::NFS4ERR_BADXDR),
        (mode(b"\0\0\x01\xa4Garbage data"), NfsStat::NFS4ERR_BADXDR),
        (mode(b"\0\0\x10\0"), NfsStat::NFS4ERR_INVAL),
        (time(1_000_000_000), NfsStat::NFS4ERR_INVAL),
        (time(u32::MAX), NfsStat::NFS4ERR_INVAL),
        // pynfs's SATT16 and SATT17.
        (who(""), NfsStat::NFS4ERR_INVAL),
        (group(""), NfsStat::NFS4ERR_INVAL),
        (group("no such group@nowhere"), NfsStat::NFS4ERR_BADOWNER),
        (who("no such user@nowhere"), NfsStat::NFS4ERR_BADOWNER),
        (who("4294967295"), NfsStat::NFS4ERR_BADOWNER),
        (size(u64::MAX), NfsStat::NFS4ERR_FBIG),
    ] {
        let last = c.last(vec![ArgOp::Putfh(fh.clone()), set(Stateid::ANONYMOUS, attrs)]).await;
        assert_eq!((last.status, last.body), (status, ResBody::Setattr(Bitmap::default())));
    }
    let nothing = c.last(vec![ArgOp::Putfh(fh), set(Stateid::ANONYMOUS, Fattr::default())]).await;
    assert_eq!((nothing.status, nothing.body), (NfsStat::NFS4_OK, ResBody::Setattr(Bitmap::default())));
}

#[tokio::test]
async fn rfc8881_18_30_4_the_size_of_what_has_none() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let all = objects(&mut c).await;
    let size = fattr(AttrValues { size: Some(0), ..AttrValues::default() });
    for (i, fh) in all.iter().enumerate() {
        let status = c.status(vec![ArgOp::Putfh(fh.clone()), set(Stateid::ANONYMOUS, size.clone())]).await;
        match i {
            0 => assert_eq!(status, NfsStat::NFS4_OK),
            _ => assert_eq!(status, NfsStat::NFS4ERR_INVAL, "object {i}"),
        }
    }
}

#[tokio::test]
async fn rfc8881_5_8_1_4_every_setattr_changes_the_change_attribute() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    for fh in objects(&mut c).await {
        let mut ops = vec![ArgOp::Putfh(fh.clone())];
        for bits in [0o740, 0o741, 0o742, 0o743, 0o743] {
            ops.push(ArgOp::Getattr(Bitmap::of(&[n::CHANGE])));
            ops.push(set(Stateid::ANONYMOUS, mode(bits)));
        }
        ops.push(ArgOp::Getattr(Bitmap::of(&[n::CHANGE])));
        let kind = c.attrs(&fh, Bitmap::of(&[n::TYPE])).await.kind;
        if kind == Some(FileType::Lnk) {
            // A symbolic link has no mode that could be set.
            continue;
        }
        let res = c.run(ops).await;
        assert_ok(&res);
        let changes: Vec<&Fattr> = res
            .iter()
            .filter_map(|r| if let ResBody::Getattr(f) = &r.body { Some(f) } else { None })
            .collect();
        assert!(changes.windows(2).take(4).all(|w| w[0] != w[1]), "{changes:?}");
    }
}

#[tokio::test]
async fn rfc8881_18_31_3_what_cannot_be_compared() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let one = |number, values: &'static [u8]| Fattr {
        mask: Bitmap::of(&[number]),
        values: Bytes::from_static(values),
    };
    for (attrs, status) in [
        (one(n::TIME_MODIFY_SET, &[0; 4]), NfsStat::NFS4ERR_INVAL),
        (one(n::TIME_ACCESS_SET, &[0; 4]), NfsStat::NFS4ERR_INVAL),
        (one(n::RDATTR_ERROR, &[0; 4]), NfsStat::NFS4ERR_INVAL),
        (one(14, &[0; 4]), NfsStat::NFS4ERR_ATTRNOTSUPP),
        (one(126, &[0; 4]), NfsStat::NFS4ERR_ATTRNOTSUPP),
    ] {
        for op in [ArgOp::Verify(attrs.clone()), ArgOp::Nverify(attrs)] {
            assert_eq!(c.status(vec![ArgOp::Putrootfh, op]).await, status);
        }
    }
    let size = one(n::SIZE, &[0, 0, 0, 0, 0, 0, 0, 17]);
    assert_eq!(c.status(vec![ArgOp::Verify(size.clone())]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
    assert_eq!(c.status(vec![ArgOp::Nverify(size)]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
}

#[tokio::test]
async fn rfc8881_18_1_access_answers_for_the_bits_that_mean_something() {
    if skipped() {
        return;
    }
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let all = objects(&mut c).await;
    c.raw.minor = 1;
    for (i, fh) in all.iter().enumerate() {
        let meaningless = if i == 1 { 0x20 } else { 0x02 | 0x10 };
        for asked in (0..64).chain([64, 65, 127, 128, u32::MAX]) {
            let res = c.last(vec![ArgOp::Putfh(fh.clone()), ArgOp::Access(asked)]).await;
            let ResBody::Access(a) = res.body else { panic!("ACCESS {asked:#x} gave {:?}", res.status) };
            assert_eq!(a.supported & !asked, 0);
            assert_eq!(a.access & !a.supported, 0);
            assert_eq!(a.supported & (meaningless | !0x3f), 0, "object {i}, asked {asked:#x}");
        }
    }
    assert_eq!(c.status(vec![ArgOp::Access(1)]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
}
