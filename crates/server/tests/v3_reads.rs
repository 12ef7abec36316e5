//! What NFS version 3 and MOUNT tell without changing anything, clause by clause (RFC 1813).

use crate::common;

use common::Rig;
use common::v3::*;
use landfast_nfs::mount::{self, ExportEntry, MntRes, MountEntry, MountStat};
use landfast_nfs::v3::args::*;
use landfast_nfs::v3::res::*;
use landfast_nfs::v3::types::*;
use landfast_nfs::v3::{Call, FileHandle, NfsStat3, Res, access, fsf, proc};
use landfast_rpc::{AcceptStat, CallError};
use landfast_xdr::{Bytes, Decode, Encode};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;

macro_rules! on_a_server {
    ($(async fn $name:ident($rig:ident, $c:ident) $body:block)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[cfg_attr(not(root), ignore = "needs root")]
        async fn $name() {
            let $rig = Rig::new().await;
            let $c = V3::new(&$rig).await;
            $body
        }
    )*};
}

on_a_server! {
    async fn rfc1813_5_2_1_mnt_finds_the_export_by_its_path_and_directories_below(rig, c) {
        let path = rig.export();
        let by_path = c.mounted(path.as_os_str().as_bytes()).await;
        assert_eq!(by_path.handle, c.root);
        assert_eq!(by_path.auth_flavors, [1, 0]);
        let sub = c.dir("sub").await;
        assert_eq!(c.mounted(b"/sub").await.handle, sub);
        let below = path.join("sub");
        assert_eq!(c.mounted(below.as_os_str().as_bytes()).await.handle, sub);
        c.file("f").await;
        let fail = |status| MntRes::Fail(status);
        assert_eq!(c.mnt(b"/f").await, fail(MountStat::NOTDIR));
        assert_eq!(c.mnt(b"/f/g").await, fail(MountStat::NOTDIR));
        assert_eq!(c.mnt(b"/absent").await, fail(MountStat::NOENT));
        assert_eq!(c.mnt(b"/sub/../..").await, fail(MountStat::NOENT));
        assert_eq!(c.mnt(b"").await, fail(MountStat::NOENT));
        assert_eq!(c.mnt(&[b'/'; 1025]).await, fail(MountStat::NAMETOOLONG));
    }

    async fn rfc1813_5_2_mounts_and_exports_are_listed(rig, c) {
        let dump = async || List::<MountEntry>::from_bytes(c.mount(mount::proc::DUMP, Bytes::new()).await.expect("rows")).expect("a list").0;
        let rows = dump().await;
        assert_eq!(rows, [MountEntry { host: name("127.0.0.1"), directory: name("/") }]);
        c.dir("sub").await;
        c.mounted(b"/sub").await;
        assert_eq!(dump().await.len(), 2);
        c.mount(mount::proc::UMNT, name("/sub").to_bytes()).await.expect("UMNT");
        assert_eq!(dump().await.len(), 1);
        c.mount(mount::proc::UMNTALL, Bytes::new()).await.expect("UMNTALL");
        assert_eq!(dump().await, []);
        let exports = c.mount(mount::proc::EXPORT, Bytes::new()).await.expect("exports");
        let exports = List::<ExportEntry>::from_bytes(exports).expect("a list").0;
        let path = Bytes::copy_from_slice(rig.export().as_os_str().as_bytes());
        assert_eq!(exports, [ExportEntry { directory: path, groups: List(vec![name("*")]) }]);
        assert_eq!(c.mount(mount::proc::NULL, Bytes::new()).await, Ok(Bytes::new()));
        assert_eq!(c.mount(6, Bytes::new()).await, Err(CallError::Failed(AcceptStat::ProcUnavail)));
        let garbage = c.mount(mount::proc::MNT, Bytes::from_static(&[0, 0, 0, 9])).await;
        assert_eq!(garbage, Err(CallError::Failed(AcceptStat::GarbageArgs)));
        let first = c.program(mount::PROGRAM, 1, 0, Bytes::new()).await;
        assert_eq!(first, Err(CallError::Failed(AcceptStat::ProgMismatch { low: 3, high: 3 })));
    }

    async fn rfc1813_3_3_6_a_file_that_is_read_and_written_again_and_again_is_not_opened_each_time(rig, c) {
        let fh = c.file("f").await;
        let volume = &rig.server().volumes()[0];
        let (before, begun) = (volume.stats().file_opens, std::time::Instant::now());
        for n in 0..50 {
            c.write(&fh, n, b"x", StableHow::FileSync).await;
            assert_eq!(c.read(&fh, n, 1).await.data, b"x"[..]);
        }
        // In half a second once for reading, and twice for writing: from the second time on it stays open.
        let most = 3 * (begun.elapsed().as_millis() as u64 / 500 + 1);
        let opens = volume.stats().file_opens - before;
        assert!((2..=most).contains(&opens), "{opens} opens for 100 calls");
    }

    async fn rfc1813_3_3_1_getattr(rig, c) {
        let fh = c.file("f").await;
        c.write(&fh, 0, b"hello", StableHow::FileSync).await;
        let a = c.attrs(&fh).await;
        use std::os::unix::fs::MetadataExt;
        let m = std::fs::metadata(rig.export().join("f")).expect("the file");
        assert_eq!((a.file_type, a.mode, a.nlink, a.uid, a.gid), (FileType::Reg, 0o644, 1, 0, 0));
        assert_eq!((a.size, a.fileid), (5, m.ino()));
        assert_eq!(u64::from(a.mtime.seconds), m.mtime() as u64);
        assert_eq!(u64::from(a.mtime.nseconds), m.mtime_nsec() as u64);
        let root = c.attrs(&c.root).await;
        assert_eq!((root.file_type, root.fsid), (FileType::Dir, a.fsid));
        // The same for NFSv4: the fsid's two halves in one.
        assert_ne!(a.fsid, 0);
    }

    async fn rfc1813_2_6_handles_that_are_none(_rig, c) {
        let status = async |fh: &[u8]| c.status(Call::Getattr(FileHandle(Bytes::copy_from_slice(fh)))).await;
        assert_eq!(status(b"").await, NfsStat3::BADHANDLE);
        assert_eq!(status(&[7; 64]).await, NfsStat3::BADHANDLE);
        let mut forged = c.root.0.to_vec();
        *forged.last_mut().expect("a byte") ^= 1;
        assert_eq!(status(&forged).await, NfsStat3::BADHANDLE);
        let gone = c.file("gone").await;
        assert_eq!(c.status(Call::Remove(at(&c.root, "gone"))).await, NfsStat3::OK);
        assert_eq!(c.status(Call::Getattr(gone.clone())).await, NfsStat3::STALE);
        for call in [
            Call::Access(AccessArgs { object: gone.clone(), access: 1 }),
            Call::Readlink(gone.clone()),
            Call::Read(ReadArgs { file: gone.clone(), offset: 0, count: 1 }),
            write(&gone, 0, b"x", StableHow::FileSync),
            setattr(&gone, mode(0o600)),
            Call::Lookup(at(&gone, "x")),
            Call::Fsstat(gone.clone()),
            Call::Fsinfo(gone.clone()),
            Call::Pathconf(gone.clone()),
            Call::Commit(CommitArgs { file: gone.clone(), offset: 0, count: 0 }),
            Call::Link(LinkArgs { file: gone.clone(), link: at(&c.root, "l") }),
        ] {
            let text = format!("{call:?}");
            assert_eq!(c.status(call).await, NfsStat3::STALE, "{text}");
        }
    }

    async fn rfc1813_3_3_3_lookup(_rig, c) {
        let sub = c.dir("sub").await;
        let found = c.lookup(&c.root, "sub").await;
        assert_eq!(found.object, sub);
        assert_eq!(found.attrs.expect("attributes").file_type, FileType::Dir);
        assert!(found.dir.is_some());
        assert_eq!(c.lookup(&sub, ".").await.object, sub);
        assert_eq!(c.lookup(&sub, "..").await.object, c.root);
        assert_eq!(c.lookup(&c.root, "..").await.object, c.root, "nothing is above the export");
        match c.call::<LookupOk, PostOp>(Call::Lookup(at(&c.root, "absent"))).await {
            Res::Fail(NfsStat3::NOENT, Some(dir)) => assert_eq!(dir.file_type, FileType::Dir),
            other => panic!("{other:?}"),
        }
        let f = c.file("f").await;
        assert_eq!(c.status(Call::Lookup(at(&f, "x"))).await, NfsStat3::NOTDIR);
        assert_eq!(c.status(Call::Lookup(at(&c.root, &"x".repeat(256)))).await, NfsStat3::NAMETOOLONG);
        assert_eq!(c.status(Call::Lookup(at(&c.root, ""))).await, NfsStat3::ACCES);
        assert_eq!(c.status(Call::Lookup(at(&c.root, "a/b"))).await, NfsStat3::ACCES);
        // The state directory is nobody's business.
        assert_eq!(c.status(Call::Lookup(at(&c.root, ".landfast"))).await, NfsStat3::NOENT);
        assert_eq!(c.status(setattr(&sub, mode(0o700))).await, NfsStat3::OK);
        assert_eq!(c.by(1000).status(Call::Lookup(at(&sub, "x"))).await, NfsStat3::ACCES);
    }

    async fn rfc1813_3_3_4_access_grants_of_what_was_asked(_rig, c) {
        let fh = c.file("f").await;
        let all = access::READ | access::LOOKUP | access::MODIFY | access::EXTEND | access::DELETE | access::EXECUTE;
        let access = async |c: &V3, fh: &FileHandle, bits| {
            let args = AccessArgs { object: fh.clone(), access: bits };
            c.ok::<AccessOk, PostOp>(Call::Access(args)).await.access
        };
        assert_eq!(access(&c, &fh, all).await, access::READ | access::MODIFY | access::EXTEND);
        assert_eq!(access(&c.by(1000), &fh, all).await, access::READ);
        assert_eq!(access(&c.by(1000), &fh, access::MODIFY).await, 0);
        assert_eq!(access(&c, &c.root, all).await, all & !access::EXECUTE);
        assert_eq!(access(&c, &c.root, u32::MAX).await, all & !access::EXECUTE, "no bit that does not exist");
        assert_eq!(access(&c, &fh, 0).await, 0);
    }

    async fn rfc1813_3_3_5_readlink(_rig, c) {
        let args = SymlinkArgs { at: at(&c.root, "l"), attrs: Default::default(), target: name("to/where") };
        let link = c.make(Call::Symlink(args)).await;
        assert_eq!(link.attrs.expect("attributes").file_type, FileType::Lnk);
        let read = c.ok::<ReadlinkOk, PostOp>(Call::Readlink(link.object.expect("a handle"))).await;
        assert_eq!(read.target, "to/where");
        let f = c.file("f").await;
        assert_eq!(c.status(Call::Readlink(f)).await, NfsStat3::INVAL);
    }

    async fn rfc1813_3_3_6_read_says_where_the_file_ends(_rig, c) {
        let fh = c.file("f").await;
        c.write(&fh, 0, b"0123456789", StableHow::FileSync).await;
        let r = c.read(&fh, 2, 4).await;
        assert_eq!((&r.data[..], r.count, r.eof), (&b"2345"[..], 4, false));
        assert_eq!(r.attrs.expect("attributes").size, 10);
        let r = c.read(&fh, 6, 4).await;
        assert_eq!((&r.data[..], r.eof), (&b"6789"[..], true), "the last byte is the file's last");
        let r = c.read(&fh, 8, 100).await;
        assert_eq!((&r.data[..], r.count, r.eof), (&b"89"[..], 2, true));
        for offset in [10, 11, 1 << 40, u64::MAX] {
            let r = c.read(&fh, offset, 5).await;
            assert_eq!((r.count, r.eof), (0, true), "{offset}");
        }
        let r = c.read(&fh, 0, 0).await;
        assert_eq!((r.count, r.eof), (0, false));
        let read = |file: &FileHandle| Call::Read(ReadArgs { file: file.clone(), offset: 0, count: 1 });
        assert_eq!(c.status(read(&c.root)).await, NfsStat3::ISDIR);
        let fifo = MknodArgs { at: at(&c.root, "p"), what: MknodWhat::Fifo(mode(0o600)) };
        let fifo = c.make(Call::Mknod(fifo)).await.object.expect("a handle");
        assert_eq!(c.status(read(&fifo)).await, NfsStat3::INVAL);
        assert_eq!(c.status(setattr(&fh, mode(0o600))).await, NfsStat3::OK);
        assert_eq!(c.by(1000).status(read(&fh)).await, NfsStat3::ACCES);
    }

    async fn rfc1813_4_4_the_owner_may_go_on_with_a_file_whose_mode_forbids_it(_rig, c) {
        assert_eq!(c.status(setattr(&c.root, mode(0o777))).await, NfsStat3::OK);
        let owner = c.by(1000);
        let fh = owner.file("f").await;
        assert_eq!(owner.status(setattr(&fh, mode(0))).await, NfsStat3::OK);
        owner.write(&fh, 0, b"mine", StableHow::FileSync).await;
        assert_eq!(owner.read(&fh, 0, 9).await.data, "mine");
        let read = Call::Read(ReadArgs { file: fh.clone(), offset: 0, count: 1 });
        assert_eq!(c.by(1001).status(read).await, NfsStat3::ACCES);
        assert_eq!(c.by(1001).status(write(&fh, 0, b"x", StableHow::FileSync)).await, NfsStat3::ACCES);
    }

    async fn rfc1813_3_3_16_readdir_goes_on_where_it_stopped(rig, c) {
        let sub = c.dir("sub").await;
        for n in 0..300 {
            std::fs::write(rig.export().join("sub").join(format!("file-{n:03}")), "").expect("a file");
        }
        let (mut cookie, mut names, mut calls) = (0, Vec::new(), 0);
        loop {
            let page = c.readdir(&sub, cookie, 1024).await;
            assert!(page.to_bytes().len() <= 1024, "never more than was asked for");
            calls += 1;
            for e in &page.entries.0 {
                names.push(String::from_utf8_lossy(&e.name).into_owned());
                cookie = e.cookie;
            }
            if page.eof {
                break;
            }
        }
        assert!(calls > 5);
        assert_eq!(&names[..2], [".", ".."]);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 302);
        let first = c.readdir(&sub, 0, 4096).await;
        let (sub_id, root_id) = (c.attrs(&sub).await.fileid, c.attrs(&c.root).await.fileid);
        assert_eq!((first.entries.0[0].fileid, first.entries.0[1].fileid), (sub_id, root_id));
        let readdir = |count, cookie, dir: &FileHandle| {
            Call::Readdir(ReaddirArgs { dir: dir.clone(), cookie, cookieverf: [9; 8], count })
        };
        assert_eq!(c.status(readdir(64, 0, &sub)).await, NfsStat3::TOOSMALL);
        assert_eq!(c.status(readdir(4096, u64::MAX, &sub)).await, NfsStat3::BAD_COOKIE);
        assert_eq!(c.status(readdir(4096, 0, &sub)).await, NfsStat3::OK, "whatever the verifier");
        let f = c.file("f").await;
        assert_eq!(c.status(readdir(4096, 0, &f)).await, NfsStat3::NOTDIR);
        let top = c.readdir(&c.root, 0, 4096).await;
        let names: Vec<_> = top.entries.0.iter().map(|e| e.name.clone()).collect();
        assert!(!names.contains(&name(".landfast")), "{names:?}");
        assert_eq!(top.entries.0[1].fileid, root_id, "the export is above itself");
    }

    async fn rfc1813_3_3_17_readdirplus_gives_what_lookup_gives(_rig, c) {
        let f = c.file("f").await;
        let sub = c.dir("sub").await;
        let page = c.readdirplus(&c.root, 0, (4096, 16384)).await;
        assert!(page.eof && page.dir.is_some());
        let found = |n: &str| page.entries.0.iter().find(|e| e.name == n).cloned().expect("an entry");
        for (n, fh) in [("f", &f), ("sub", &sub), (".", &c.root), ("..", &c.root)] {
            let e = found(n);
            assert_eq!(e.object.as_ref(), Some(fh), "{n}");
            // To list a directory is an access to it.
            let untouched = |a: Fattr| Fattr { atime: Time::default(), ..a };
            assert_eq!(e.attrs.map(untouched), Some(untouched(c.attrs(fh).await)), "{n}");
            assert_eq!(e.fileid, c.attrs(fh).await.fileid);
        }
        assert_eq!(page.entries.0.len(), 4);
    }

    async fn rfc1813_3_3_17_readdirplus_keeps_to_its_counts(rig, c) {
        for n in 0..100 {
            std::fs::write(rig.export().join(format!("file-{n:03}")), "").expect("a file");
        }
        for max in [(1 << 20, 800), (300, 1 << 20), (512, 4096), (1 << 20, 1 << 20)] {
            let (mut cookie, mut seen) = (0, HashSet::new());
            loop {
                let page = c.readdirplus(&c.root, cookie, max).await;
                assert!(page.to_bytes().len() <= max.1 as usize);
                let names: usize = page.entries.0.iter().map(|e| 24 + e.name.len()).sum();
                assert!(names <= max.0 as usize);
                for e in &page.entries.0 {
                    assert!(seen.insert(e.name.clone()), "{:?} comes twice", e.name);
                    cookie = e.cookie;
                }
                if page.eof {
                    break;
                }
                assert!(!page.entries.0.is_empty());
            }
            assert_eq!(seen.len(), 102, "{max:?}");
        }
    }

    async fn rfc1813_3_3_16_cookies_stay_good_while_entries_go(rig, c) {
        let sub = c.dir("sub").await;
        let file = |n: usize| rig.export().join("sub").join(format!("file-{n:03}"));
        for n in 0..200 {
            std::fs::write(file(n), "").expect("a file");
        }
        let mut cookie = 0;
        let mut seen: HashSet<Bytes> = HashSet::new();
        loop {
            let page = c.readdir(&sub, cookie, 700).await;
            for e in &page.entries.0 {
                assert!(seen.insert(e.name.clone()), "{:?} comes twice", e.name);
                cookie = e.cookie;
            }
            // As `rm -r` does: what was listed goes before the next call.
            for e in page.entries.0.iter().filter(|e| !e.name.starts_with(b".")) {
                assert_eq!(c.status(Call::Remove(DirOp { dir: sub.clone(), name: e.name.clone() })).await, NfsStat3::OK);
            }
            if page.eof {
                break;
            }
        }
        assert_eq!(seen.len(), 202);
        assert_eq!(c.status(Call::Rmdir(at(&c.root, "sub"))).await, NfsStat3::OK, "nothing was skipped");
    }

    async fn rfc1813_3_3_18_to_20_the_filesystem(_rig, c) {
        let stat = c.ok::<FsstatOk, PostOp>(Call::Fsstat(c.root.clone())).await;
        assert!(stat.tbytes >= stat.fbytes && stat.fbytes >= stat.abytes && stat.abytes > 0);
        assert!(stat.attrs.is_some());
        let info = c.ok::<FsinfoOk, PostOp>(Call::Fsinfo(c.root.clone())).await;
        assert_eq!((info.rtmax, info.wtmax), (1 << 20, 1 << 20));
        assert_eq!(info.maxfilesize, i64::MAX as u64);
        assert_eq!(info.properties, fsf::LINK | fsf::SYMLINK | fsf::HOMOGENEOUS | fsf::CANSETTIME);
        let conf = c.ok::<PathconfOk, PostOp>(Call::Pathconf(c.root.clone())).await;
        assert_eq!((conf.name_max, conf.no_trunc, conf.chown_restricted), (255, true, true));
        assert_eq!((conf.case_insensitive, conf.case_preserving), (false, true));
    }

    async fn rfc5531_9_what_is_no_call_of_version_3(_rig, c) {
        assert_eq!(c.raw(proc::NULL, Bytes::new()).await, Ok(Bytes::new()));
        assert_eq!(c.raw(22, Bytes::new()).await, Err(CallError::Failed(AcceptStat::ProcUnavail)));
        let garbage = |r| assert_eq!(r, Err(CallError::Failed(AcceptStat::GarbageArgs)));
        for number in 1..22 {
            garbage(c.raw(number, Bytes::new()).await);
            garbage(c.raw(number, Bytes::from_static(&[0xff; 40])).await);
        }
        // A handle of 65 bytes; bytes after the arguments.
        garbage(c.raw(proc::GETATTR, Bytes::from(vec![5u8; 65]).to_bytes()).await);
        let longer = [&Call::Getattr(c.root.clone()).to_bytes()[..], &[0; 4]].concat();
        garbage(c.raw(proc::GETATTR, longer.into()).await);
        assert!(c.attrs(&c.root).await.nlink > 0, "others are still served");
    }
}
