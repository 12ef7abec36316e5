//! READDIR (RFC 8881 section 18.23): cookies, limits, attributes, a directory that changes under it.

use crate::common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::res::ReaddirRes;
use landfast_nfs::v4::*;
use std::collections::BTreeSet;

fn page(res: ResOp) -> ReaddirRes {
    match res.body {
        ResBody::Readdir(page) => page,
        other => panic!("READDIR gave {:?} {other:?}", res.status),
    }
}

/// A directory `d` with this many entries.
async fn filled(rig: &Rig, entries: usize) -> (Client, ArgOp) {
    let mut c = rig.client(b"c").await;
    assert_ok(&c.run(vec![ArgOp::Putrootfh, mkdir("d")]).await);
    for i in 0..entries {
        std::fs::write(rig.export().join("d").join(format!("entry{i:04}")), b"x").expect("a file");
    }
    let fh = c.handle(&["d"]).await;
    (c, ArgOp::Putfh(fh))
}

/// All names, read in pages of `maxcount`; `between` runs after each page.
async fn list(c: &mut Client, put: &ArgOp, maxcount: u32) -> Vec<String> {
    let (mut cookie, mut names) = (0, Vec::new());
    loop {
        let p = page(c.last(vec![put.clone(), readdir_op(cookie, 0, maxcount, &[n::FILEID])]).await);
        for e in &p.entries {
            names.push(String::from_utf8_lossy(&e.name).into_owned());
            cookie = e.cookie;
        }
        if p.eof {
            return names;
        }
        assert!(!p.entries.is_empty(), "a page without an entry that is not the last");
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_23_3_an_empty_directory() {
    let rig = Rig::new().await;
    let (mut c, put) = filled(&rig, 0).await;
    // The encoding of nothing takes 16 bytes.
    for (maxcount, status) in
        [(0, NfsStat::NFS4ERR_TOOSMALL), (15, NfsStat::NFS4ERR_TOOSMALL), (16, NfsStat::NFS4_OK)]
    {
        let last = c.last(vec![put.clone(), readdir_op(0, 0, maxcount, &[])]).await;
        assert_eq!(last.status, status, "maxcount {maxcount}");
        if status.is_ok() {
            let p = page(last);
            assert!(p.eof && p.entries.is_empty());
        }
    }
    assert_eq!(c.status(vec![readdir_op(0, 0, 4096, &[])]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_23_3_every_page_size_lists_each_entry_once() {
    let rig = Rig::new().await;
    let (mut c, put) = filled(&rig, 100).await;
    let expected: Vec<String> = (0..100).map(|i| format!("entry{i:04}")).collect();
    for maxcount in [100, 128, 150, 400, 1000, 4096, 1 << 20] {
        let mut names = list(&mut c, &put, maxcount).await;
        names.sort();
        assert_eq!(names, expected, "maxcount {maxcount}");
    }
    assert_eq!(
        c.status(vec![put, readdir_op(0, 0, 50, &[n::FILEID])]).await,
        NfsStat::NFS4ERR_TOOSMALL,
        "not one entry fits"
    );
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_23_3_cookies() {
    let rig = Rig::new().await;
    let (mut c, put) = filled(&rig, 20).await;
    let all = page(c.last(vec![put.clone(), readdir_op(0, 0, 1 << 16, &[n::FILEID])]).await);
    let cookies: BTreeSet<u64> = all.entries.iter().map(|e| e.cookie).collect();
    assert_eq!(cookies.len(), 20, "each has one of its own");
    assert!(cookies.iter().all(|c| *c > 2), "0, 1 and 2 mean something else");
    assert!(all.entries.iter().all(|e| e.name != "." && e.name != ".."));
    for reserved in [1, 2] {
        let status = c.status(vec![put.clone(), readdir_op(reserved, 0, 4096, &[])]).await;
        assert_eq!(status, NfsStat::NFS4ERR_BAD_COOKIE);
    }
    // A cookie means "after this entry", from wherever it is used, with any verifier.
    for (i, e) in all.entries.iter().enumerate() {
        let op = ArgOp::Readdir(ReaddirArgs {
            cookie: e.cookie,
            cookieverf: [i as u8; 8],
            dircount: 0,
            maxcount: 1 << 16,
            attr_request: Bitmap::of(&[n::FILEID]),
        });
        let rest = page(c.last(vec![put.clone(), op]).await);
        assert_eq!(rest.entries, all.entries[i + 1..], "after {i}");
        assert!(rest.eof);
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_23_3_what_is_removed_and_made_meanwhile() {
    let rig = Rig::new().await;
    let (mut c, put) = filled(&rig, 200).await;
    let (mut cookie, mut seen, mut step) = (0, BTreeSet::new(), 0);
    loop {
        let p = page(c.last(vec![put.clone(), readdir_op(cookie, 0, 800, &[n::FILEID])]).await);
        for e in &p.entries {
            assert!(seen.insert(e.name.clone()), "{:?} twice", e.name);
            cookie = e.cookie;
        }
        if p.eof {
            break;
        }
        // The entry that the cookie names goes, others come; what was there all the time is not missed.
        let last = p.entries.last().expect("an entry").name.clone();
        let new = ArgOp::Create(CreateArgs {
            kind: CreateType::Fifo,
            name: name(&format!("new{step}")),
            attrs: mode(0o644),
        });
        assert_ok(&c.run(vec![put.clone(), ArgOp::Remove(last)]).await);
        assert_ok(&c.run(vec![put.clone(), new]).await);
        step += 1;
    }
    assert!(step > 5);
    for i in 0..200 {
        assert!(seen.contains(format!("entry{i:04}").as_bytes()), "entry{i:04} was there and was not listed");
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_23_3_removing_all_that_is_listed_empties_the_directory() {
    let rig = Rig::new().await;
    let (mut c, put) = filled(&rig, 150).await;
    let mut cookie = 0;
    loop {
        let p = page(c.last(vec![put.clone(), readdir_op(cookie, 0, 500, &[n::TYPE])]).await);
        for e in &p.entries {
            assert_ok(&c.run(vec![put.clone(), ArgOp::Remove(e.name.clone())]).await);
            cookie = e.cookie;
        }
        if p.eof {
            break;
        }
    }
    assert_eq!(list(&mut c, &put, 4096).await, Vec::<String>::new());
    assert_ok(&c.run(vec![ArgOp::Putrootfh, ArgOp::Remove(name("d"))]).await);
    assert_eq!(c.status(vec![put, readdir_op(0, 0, 4096, &[])]).await, NfsStat::NFS4ERR_STALE);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_23_3_attributes_of_entries_are_those_of_getattr() {
    let rig = Rig::new().await;
    let (mut c, put) = filled(&rig, 3).await;
    assert_ok(&c.run(vec![put.clone(), mkdir("sub")]).await);
    let wanted = [n::TYPE, n::SIZE, n::FILEID, n::FILEHANDLE, n::MODE, n::CHANGE, n::OWNER, n::FSID];
    let p = page(c.last(vec![put.clone(), readdir_op(0, 0, 1 << 16, &wanted)]).await);
    assert_eq!(p.entries.len(), 4);
    for e in p.entries {
        let v = AttrValues::from_fattr(&e.attrs).expect("values");
        assert_eq!(v.mask(), Bitmap::of(&wanted));
        let got = c.last(vec![put.clone(), ArgOp::Lookup(e.name), ArgOp::Getattr(Bitmap::of(&wanted))]).await;
        assert_eq!(got.body, ResBody::Getattr(e.attrs));
    }
    for set_only in [n::TIME_ACCESS_SET, n::TIME_MODIFY_SET] {
        let status = c.status(vec![put.clone(), readdir_op(0, 0, 4096, &[n::TYPE, set_only])]).await;
        assert_eq!(status, NfsStat::NFS4ERR_INVAL);
    }
    // An unknown attribute is left out.
    let p = page(c.last(vec![put, readdir_op(0, 0, 4096, &[n::FILEID, 126])]).await);
    assert!(p.entries.iter().all(|e| e.attrs.mask == Bitmap::of(&[n::FILEID])));
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_23_3_a_directory_that_may_not_be_read_or_searched() {
    let rig = Rig::new().await;
    let (mut c, put) = filled(&rig, 3).await;
    let chmod = |bits| ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: mode(bits) });
    assert_ok(&c.run(vec![put.clone(), chmod(0o700)]).await);
    c.raw.cred = user(1000);
    for wanted in [&[][..], &[n::RDATTR_ERROR, n::TYPE]] {
        let status = c.status(vec![put.clone(), readdir_op(0, 0, 4096, wanted)]).await;
        assert_eq!(status, NfsStat::NFS4ERR_ACCESS);
    }
    // Readable and not searchable: the names can be had.
    c.raw.cred = user(0);
    assert_ok(&c.run(vec![put.clone(), chmod(0o744)]).await);
    c.raw.cred = user(1000);
    let p = page(c.last(vec![put.clone(), readdir_op(0, 0, 4096, &[])]).await);
    assert_eq!(p.entries.len(), 3);
    let last = c.last(vec![put, readdir_op(0, 0, 8192, &[n::RDATTR_ERROR, n::TYPE])]).await;
    assert!(last.status.is_ok(), "rdattr_error stands in for what fails: {:?}", last.status);
}
