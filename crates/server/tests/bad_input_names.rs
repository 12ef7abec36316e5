//! Names and targets that are not UTF-8, or of which there are two spellings: any version makes them, every version and the
//! filesystem see the same bytes, and what else has a name takes them too.

use crate::common;
use crate::v40;

use common::v3::V3;
use common::*;
use landfast_nfs::mount::{MntRes, MountStat};
use landfast_nfs::v3;
use landfast_nfs::v3::args as args3;
use landfast_nfs::v3::res::PostOp;
use landfast_nfs::v3::types::DirOp;
use landfast_nfs::v3::{Call, NfsStat3};
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;
use landfast_xdr::Bytes;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use v40::Client40;

/// Latin-1, cut-off and overlong UTF-8, a surrogate, every byte above 127, the two spellings of one letter, control characters,
/// what other systems do not take.
fn odd() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        &b"caf\xe9"[..],
        b"\xe2\x82",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xff\xfe\xfd",
        b"caf\xc3\xa9",
        b"cafe\xcc\x81",
        b"\x01\x1b[31m\x7f",
        b"back\\slash:*?\"<>|",
        b" ",
        b"trailing. ",
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    names.push((128..=255).collect());
    names.push(vec![0xfe; 255]);
    names
}

/// What makes names and finds them, in one version.
enum Speaker {
    Three(V3),
    Zero(Client40),
    Sessions(Client),
}

impl Speaker {
    async fn all(rig: &Rig) -> Vec<Speaker> {
        let mut out =
            vec![Speaker::Three(V3::new(rig).await), Speaker::Zero(Client40::new(rig, b"zero").await)];
        for minor in [1, 2] {
            let mut raw = rig.raw().await;
            raw.minor = minor;
            let mut c = Client::new(raw, format!("minor {minor}").as_bytes()).await;
            // A kept reply would be cut to what may be kept.
            c.cachethis = false;
            out.push(Speaker::Sessions(c));
        }
        out
    }

    fn name(&self) -> String {
        match self {
            Speaker::Three(_) => "3".into(),
            Speaker::Zero(_) => "4.0".into(),
            Speaker::Sessions(c) => format!("4.{}", c.raw.minor),
        }
    }

    /// Operations of version 4 on the directory of this name in the root.
    async fn four(&mut self, dir: &str, ops: Vec<ArgOp>) -> Vec<ResOp> {
        let all = [vec![ArgOp::Putrootfh, ArgOp::Lookup(common::name(dir))], ops].concat();
        match self {
            Speaker::Zero(c) => c.run(all).await,
            Speaker::Sessions(c) => c.run(all).await,
            Speaker::Three(_) => unreachable!("only version 4 is asked"),
        }
    }

    /// Makes a file with OPEN or CREATE; a directory, a symbolic link to the name, a further name, and gives all another name.
    async fn make(&mut self, dir: &str, n: &[u8]) {
        let with = |end: &str| Bytes::from([&n[..n.len().min(250)], end.as_bytes()].concat());
        let whole = Bytes::copy_from_slice(n);
        if let Speaker::Three(c) = self {
            let d = c.lookup(&c.root, dir).await.object;
            let at = |name| DirOp { dir: d.clone(), name };
            let plain = common::v3::mode(0o644);
            let how = args3::CreateHow::Guarded(plain.clone());
            let f = c.make(Call::Create(args3::CreateArgs { at: at(whole.clone()), how })).await;
            c.make(Call::Mkdir(args3::MkdirArgs { at: at(with("d")), attrs: plain.clone() })).await;
            let target = whole.clone();
            c.make(Call::Symlink(args3::SymlinkArgs { at: at(with("s")), attrs: plain, target })).await;
            let link = at(with("l"));
            let link = Call::Link(args3::LinkArgs { file: f.object.expect("a handle"), link });
            assert_eq!(c.status(link).await, NfsStat3::OK);
            let rename = args3::RenameArgs { from: at(with("d")), to: at(with("r")) };
            assert_eq!(c.status(Call::Rename(rename)).await, NfsStat3::OK);
            return;
        }
        match self {
            Speaker::Zero(c) => {
                // CREATE makes no files: this version's OPEN has to be confirmed and closed.
                let seqid = c.next();
                let how = OpenHow::Create(CreateHow::Guarded(mode(0o644)));
                let mut open = c.open_with(seqid, 3, 0, how, "");
                if let ArgOp::Open(a) = &mut open {
                    a.claim = OpenClaim::Null(whole.clone());
                }
                let look = vec![ArgOp::Putrootfh, ArgOp::Lookup(common::name(dir)), open, ArgOp::Getfh];
                let res = c.run(look).await;
                assert_ok(&res);
                let (ResBody::Open(o), ResBody::Getfh(fh)) = (&res[2].body, &res[3].body) else {
                    panic!("OPEN gave {:?}", res[2].body)
                };
                let mut s = o.stateid;
                if o.rflags & flags::OPEN4_RESULT_CONFIRM != 0 {
                    let seqid = c.next();
                    s = v40::stateid_of(&c.on(fh, v40::confirm_op(s, seqid)).await);
                }
                let seqid = c.next();
                assert_eq!(c.on(fh, v40::close_seq(s, seqid)).await.status, NfsStat::NFS4_OK);
            }
            _ => {
                let open = ArgOp::Open(OpenArgs {
                    seqid: 0,
                    share_access: 3,
                    share_deny: 0,
                    owner: owner(0, b"o"),
                    openhow: OpenHow::Create(CreateHow::Guarded(mode(0o644))),
                    claim: OpenClaim::Null(whole.clone()),
                });
                assert_ok(&self.four(dir, vec![open, close_op(Stateid::CURRENT)]).await);
            }
        }
        let create = |kind, name| ArgOp::Create(CreateArgs { kind, name, attrs: mode(0o755) });
        assert_ok(&self.four(dir, vec![create(CreateType::Dir, with("d"))]).await);
        assert_ok(&self.four(dir, vec![create(CreateType::Lnk(whole.clone()), with("s"))]).await);
        let up = vec![ArgOp::Putrootfh, ArgOp::Lookup(common::name(dir))];
        let link = [vec![ArgOp::Lookup(whole), ArgOp::Savefh], up, vec![ArgOp::Link(with("l"))]].concat();
        assert_ok(&self.four(dir, link).await);
        let rename = RenameArgs { oldname: with("d"), newname: with("r") };
        assert_ok(&self.four(dir, vec![ArgOp::Savefh, ArgOp::Rename(rename)]).await);
    }

    /// The names in a directory.
    async fn list(&mut self, dir: &str) -> BTreeSet<Vec<u8>> {
        if let Speaker::Three(c) = self {
            let d = c.lookup(&c.root, dir).await.object;
            let (mut out, mut cookie) = (BTreeSet::new(), 0);
            loop {
                let page = c.readdir(&d, cookie, 8192).await;
                for e in &page.entries.0 {
                    cookie = e.cookie;
                    out.insert(e.name.to_vec());
                }
                if page.eof {
                    break;
                }
            }
            out.retain(|n| n != b"." && n != b"..");
            return out;
        }
        let (mut out, mut cookie) = (BTreeSet::new(), 0);
        loop {
            let res = self.four(dir, vec![readdir_op(cookie, 0, 8192, &[])]).await.pop().expect("a result");
            let ResBody::Readdir(page) = res.body else { panic!("READDIR gave {:?}", res.status) };
            for e in &page.entries {
                cookie = e.cookie;
                out.insert(e.name.to_vec());
            }
            if page.eof {
                return out;
            }
        }
    }

    /// Looks a name up, and reads what it leads to if it is a symbolic link.
    async fn look(&mut self, dir: &str, n: &[u8], target: Option<&[u8]>) {
        let n = Bytes::copy_from_slice(n);
        if let Speaker::Three(c) = self {
            let dir = c.lookup(&c.root, dir).await.object;
            let found = c.ok::<v3::res::LookupOk, PostOp>(Call::Lookup(DirOp { dir, name: n }));
            let object = found.await.object;
            if let Some(target) = target {
                let read = c.ok::<v3::res::ReadlinkOk, PostOp>(Call::Readlink(object)).await;
                assert_eq!(read.target[..], *target);
            }
            return;
        }
        let mut ops = vec![ArgOp::Lookup(n)];
        ops.extend(target.map(|_| ArgOp::Readlink));
        let res = self.four(dir, ops).await;
        assert_ok(&res);
        if let Some(target) = target {
            assert_eq!(res[3].body, ResBody::Readlink(Bytes::copy_from_slice(target)));
        }
    }

    async fn remove(&mut self, dir: &str, n: &[u8], is_dir: bool) {
        let n = Bytes::copy_from_slice(n);
        if let Speaker::Three(c) = self {
            let dir = c.lookup(&c.root, dir).await.object;
            let at = DirOp { dir, name: n };
            let call = if is_dir { Call::Rmdir(at) } else { Call::Remove(at) };
            assert_eq!(c.status(call).await, NfsStat3::OK);
            return;
        }
        assert_ok(&self.four(dir, vec![ArgOp::Remove(n)]).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_14_and_rfc1813_4_6_names_are_kept_byte_for_byte_on_every_version() {
    let mut rig = Rig::new().await;
    let mut speakers = Speaker::all(&rig).await;
    let mut made = Vec::new();
    for speaker in &mut speakers {
        let dir = format!("by {}", speaker.name());
        std::fs::create_dir(rig.export().join(&dir)).expect("a directory");
        for n in odd() {
            // What gets a further letter must be different from what gets none.
            speaker.make(&dir, &n).await;
        }
        made.push(dir);
    }
    let expected: BTreeSet<Vec<u8>> = odd()
        .into_iter()
        .flat_map(|n| {
            let with = |end: &[u8]| [&n[..n.len().min(250)], end].concat();
            [n.clone(), with(b"r"), with(b"s"), with(b"l")]
        })
        .collect();
    for dir in &made {
        let local: BTreeSet<Vec<u8>> = std::fs::read_dir(rig.export().join(dir))
            .expect("a directory")
            .map(|e| e.expect("an entry").file_name().as_bytes().to_vec())
            .collect();
        assert_eq!(local, expected, "{dir}, as the filesystem has it");
        let link = [&odd()[0][..], b"s"].concat();
        let target = std::fs::read_link(rig.export().join(dir).join(OsStr::from_bytes(&link)));
        assert_eq!(target.expect("a link").as_os_str().as_bytes(), odd()[0]);
        for speaker in &mut speakers {
            assert_eq!(speaker.list(dir).await, expected, "{dir}, as {} sees it", speaker.name());
            for n in odd() {
                speaker.look(dir, &n, None).await;
                speaker.look(dir, &[&n[..n.len().min(250)], b"s"].concat(), Some(&n)).await;
            }
        }
    }
    // Each version removes what the next one has made.
    let count = made.len();
    for (i, speaker) in speakers.iter_mut().enumerate() {
        let dir = &made[(i + 1) % count];
        for n in &expected {
            let is_dir = std::fs::symlink_metadata(rig.export().join(dir).join(OsStr::from_bytes(n)));
            speaker.remove(dir, n, is_dir.expect("it is there").is_dir()).await;
        }
        assert_eq!(std::fs::read_dir(rig.export().join(dir)).expect("a directory").count(), 0);
    }
    // After a crash the log has them, too.
    for (speaker, dir) in speakers.iter_mut().zip(&made) {
        for n in odd() {
            speaker.make(dir, &n).await;
        }
    }
    drop(speakers);
    rig.crash().await;
    for dir in &made {
        let local = std::fs::read_dir(rig.export().join(dir)).expect("a directory");
        let local: BTreeSet<Vec<u8>> =
            local.map(|e| e.expect("an entry").file_name().as_bytes().to_vec()).collect();
        assert_eq!(local, expected, "{dir}, after a crash");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8276_8_4_2_names_of_extended_attributes_are_kept_byte_for_byte() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    c.cachethis = false;
    let (fh, s) = c.open("f", 3).await;
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), close_op(s)]).await);
    let keys: BTreeSet<Vec<u8>> = odd().into_iter().filter(|n| n.len() < 200).collect();
    for key in &keys {
        let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(key));
        let set = SetxattrArgs { option: SetxattrOption::Create, key: key.clone(), value: value.clone() };
        let ops = vec![ArgOp::Putfh(fh.clone()), ArgOp::Setxattr(set), ArgOp::Getxattr(key)];
        let last = c.last(ops).await;
        assert_eq!((last.status, last.body), (NfsStat::NFS4_OK, ResBody::Getxattr(value)));
    }
    let all = ListxattrsArgs { cookie: 0, maxcount: 16 << 10 };
    let last = c.last(vec![ArgOp::Putfh(fh.clone()), ArgOp::Listxattrs(all)]).await;
    let ResBody::Listxattrs(list) = last.body else { panic!("LISTXATTRS gave {:?}", last.status) };
    assert_eq!(list.names.iter().map(|n| n.to_vec()).collect::<BTreeSet<_>>(), keys);
    for key in &keys {
        let key = Bytes::copy_from_slice(key);
        assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), ArgOp::Removexattr(key)]).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc1813_5_2_1_a_path_to_mount_is_bytes() {
    let rig = Rig::new().await;
    let c = V3::new(&rig).await;
    for n in odd() {
        std::fs::create_dir(rig.export().join(OsStr::from_bytes(&n))).expect("a directory");
        let path = [b"/", &n[..]].concat();
        assert!(matches!(c.mnt(&path).await, MntRes::Ok(_)), "{n:?}");
    }
    assert_eq!(c.mnt(b"/caf\xe8").await, MntRes::Fail(MountStat::NOENT));
    assert_eq!(c.mnt(b"/a\0b").await, MntRes::Fail(MountStat::INVAL));
    assert_eq!(c.mnt(&[b"/".as_slice(), &[0xff; 300]].concat()).await, MntRes::Fail(MountStat::NAMETOOLONG));
}
