//! Each operation that can need room, on each version, on a full filesystem and with a used-up quota: it is done, or refused with
//! the status that says so; nothing of what was refused is there, what was done is there after a crash; and once there is room,
//! everything that was refused goes.

use crate::common;
use crate::small;
use crate::v40;

use common::v3::{self as three, V3};
use common::*;
use landfast_nfs::nfsacl;
use landfast_nfs::v3::args as args3;
use landfast_nfs::v3::types::StableHow as Stable3;
use landfast_nfs::v3::{Call, NfsStat3, Sattr};
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::data::*;
use landfast_nfs::v4::res::*;
use landfast_nfs::v4::*;
use landfast_xdr::{Bytes, Decode, Encode};
use small::image::{Image, Kernel};
use small::on_an_image;
use std::collections::{BTreeMap, BTreeSet};
use v40::Client40;

/// Each is tried this often at most, with a new place each time.
const TRIES: usize = 4;
/// A block of a directory has fewer names of this length.
const NEW_NAMES: usize = 22;
const PIECE: usize = 64 << 10;

/// What makes a name in the operation's own directory.
const NAMES: &[&str] =
    &["open", "guarded", "exclusive", "mkdir", "symlink", "fifo", "link", "rename", "named"];
/// What is done to `old0`, `old1`, ... there.
const OLD: &[&str] = &["link", "rename", "acl", "setxattr", "removexattr", "size", "remove"];
/// What fills a file of its own.
const DATA: &[&str] = &["write", "unstable", "allocate", "deallocate", "copy", "clone"];
/// Of version 4.2 alone.
const LATEST: &[&str] = &["setxattr", "removexattr", "allocate", "deallocate", "copy", "clone"];

const VERSIONS: &[&str] = &["v3", "v40", "v41", "v42"];

fn operations(version: &str) -> impl Iterator<Item = &'static str> {
    // NFSv3's CREATE is the OPEN of the others; "named" are the attributes that come with a name.
    let all: BTreeSet<_> = NAMES.iter().chain(OLD).chain(DATA).copied().collect();
    let latest = version == "v42";
    let third = version == "v3";
    all.into_iter().filter(move |op| (latest || !LATEST.contains(op)) && !(third && *op == "named"))
}

fn tries(op: &str, kernel: Kernel) -> usize {
    // btrfs has room of its own for names.
    if NAMES.contains(&op) && kernel != Kernel::Btrfs { NEW_NAMES } else { TRIES }
}

fn long(i: usize) -> String {
    format!("n{i:0>200}")
}

fn old(i: usize) -> String {
    format!("old{i}")
}

/// A client of one version.
enum Speaker {
    Three(V3),
    Zero(Client40),
    Session(Client),
}

/// What an operation works on.
struct Place {
    dir: FileHandle,
    /// Its file and the source of copies, open.
    file: Option<(FileHandle, Stateid)>,
    source: Option<(FileHandle, Stateid)>,
}

fn acl() -> Fattr {
    let allow = |access_mask, who: &str| NfsAce { kind: 0, flag: 0, access_mask, who: name(who) };
    let list = vec![allow(3, "OWNER@"), allow(3, "1001"), allow(1, "GROUP@")];
    fattr(AttrValues { acl: Some(list), ..AttrValues::default() })
}

fn acl3(object: &FileHandle) -> Bytes {
    let entry = |kind, id, perm| nfsacl::Entry { kind, id, perm };
    let entries = vec![entry(1, 0, 6), entry(2, 1001, 6), entry(4, 0, 4), entry(16, 0, 6), entry(32, 0, 0)];
    let access = nfsacl::List { count: entries.len() as u32, entries };
    let lists = nfsacl::Lists { mask: nfsacl::mask::ACL, access, default: nfsacl::List::default() };
    nfsacl::SetaclArgs { object: handle3(object), lists }.to_bytes()
}

fn handle3(fh: &FileHandle) -> landfast_nfs::v3::FileHandle {
    landfast_nfs::v3::FileHandle(fh.0.clone())
}

fn setxattr(key: &str, len: usize) -> ArgOp {
    let (option, value) = (SetxattrOption::Either, Bytes::from(vec![b'v'; len]));
    ArgOp::Setxattr(SetxattrArgs { option, key: name(key), value })
}

fn size(size: u64) -> Fattr {
    fattr(AttrValues { size: Some(size), ..AttrValues::default() })
}

fn create(kind: CreateType, new: &str, attrs: Fattr) -> ArgOp {
    ArgOp::Create(CreateArgs { kind, name: name(new), attrs })
}

impl Speaker {
    async fn new(rig: &Rig, version: &str) -> Speaker {
        match version {
            "v3" => Speaker::Three(V3::new(rig).await),
            "v40" => Speaker::Zero(Client40::new(rig, b"zero").await),
            _ => {
                let mut raw = rig.raw().await;
                raw.minor = if version == "v41" { 1 } else { 2 };
                let mut c = Client::new(raw, version.as_bytes()).await;
                c.cachethis = false;
                Speaker::Session(c)
            }
        }
    }

    /// A file in the root, which is made.
    async fn open(&mut self, file: &str) -> (FileHandle, Stateid) {
        match self {
            Speaker::Three(c) => (FileHandle(c.file(file).await.0), Stateid::ANONYMOUS),
            Speaker::Zero(c) => c.open(file, 3, 0).await,
            Speaker::Session(c) => c.open(file, 3).await,
        }
    }

    async fn run(&mut self, ops: Vec<ArgOp>) -> ResOp {
        match self {
            Speaker::Three(_) => panic!("version 3 has no operations"),
            Speaker::Zero(c) => c.last(ops).await,
            Speaker::Session(c) => c.last(ops).await,
        }
    }

    /// OPEN of a new file in `dir`.
    async fn make(&mut self, dir: &FileHandle, new: &str, how: CreateHow) -> ResOp {
        let how = OpenHow::Create(how);
        let open = match self {
            Speaker::Zero(c) => {
                let seqid = c.next();
                c.open_with(seqid, 3, 0, how, new)
            }
            _ => open_op(b"o", new, 3, 0, how),
        };
        self.run(vec![ArgOp::Putfh(dir.clone()), open]).await
    }

    /// The status of the `i`-th attempt, and how many bytes it has put into the file.
    async fn attempt(&mut self, p: &Place, op: &str, i: usize) -> (u32, usize) {
        if let Speaker::Three(c) = self {
            return attempt3(c, p, op, i).await;
        }
        let (new, at) = (long(i), (i * PIECE) as u64);
        let file = p.file.clone().unwrap_or((p.dir.clone(), Stateid::ANONYMOUS));
        let in_dir = |op| vec![ArgOp::Putfh(p.dir.clone()), op];
        let of_old = |op| vec![ArgOp::Putfh(p.dir.clone()), ArgOp::Lookup(name(&old(i))), op];
        let set = |attrs| ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs });
        let range = RangeArgs { stateid: file.1, offset: at, length: PIECE as u64 };
        let from_source = |op: &dyn Fn(Stateid) -> ArgOp| {
            let (source, stateid) = p.source.clone().expect("a source");
            vec![ArgOp::Putfh(source), ArgOp::Savefh, ArgOp::Putfh(file.0.clone()), op(stateid)]
        };
        let write = |stable| {
            let data = Bytes::from(vec![b'x'; PIECE]);
            ArgOp::Write(WriteArgs { stateid: file.1, offset: at, stable, data })
        };
        let ops = match op {
            "open" => return (self.make(&p.dir, &new, CreateHow::Unchecked(mode(0o644))).await.status.0, 0),
            "guarded" => return (self.make(&p.dir, &new, CreateHow::Guarded(mode(0o644))).await.status.0, 0),
            "exclusive" => {
                let how = match self {
                    Speaker::Zero(_) => CreateHow::Exclusive([1; 8]),
                    _ => CreateHow::Exclusive41 { verf: [1; 8], attrs: mode(0o600) },
                };
                return (self.make(&p.dir, &new, how).await.status.0, 0);
            }
            "mkdir" => in_dir(create(CreateType::Dir, &new, mode(0o755))),
            "named" => in_dir(create(CreateType::Dir, &new, acl())),
            "symlink" => in_dir(create(CreateType::Lnk(name(&"t".repeat(1000))), &new, mode(0o777))),
            "fifo" => in_dir(create(CreateType::Fifo, &new, mode(0o644))),
            "link" => {
                let mut ops = vec![ArgOp::Putfh(p.dir.clone()), ArgOp::Lookup(name(&old(0))), ArgOp::Savefh];
                ops.extend(in_dir(ArgOp::Link(name(&new))));
                ops
            }
            "rename" => {
                let mut ops = in_dir(ArgOp::Savefh);
                ops.push(ArgOp::Rename(RenameArgs { oldname: name(&old(i)), newname: name(&new) }));
                ops
            }
            "remove" => in_dir(ArgOp::Remove(name(&old(i)))),
            "acl" => of_old(set(acl())),
            "size" => of_old(set(size(1 << 20))),
            "setxattr" => of_old(setxattr("large", 700)),
            "removexattr" => of_old(ArgOp::Removexattr(name("small"))),
            "write" => vec![ArgOp::Putfh(file.0.clone()), write(StableHow::FileSync)],
            "unstable" => vec![ArgOp::Putfh(file.0.clone()), write(StableHow::Unstable)],
            "allocate" => vec![ArgOp::Putfh(file.0.clone()), ArgOp::Allocate(range)],
            "deallocate" => {
                vec![
                    ArgOp::Putfh(file.0.clone()),
                    ArgOp::Deallocate(RangeArgs { offset: 0, length: 4096, ..range }),
                ]
            }
            "copy" => from_source(&|src_stateid| {
                ArgOp::Copy(CopyArgs {
                    src_stateid,
                    dst_stateid: file.1,
                    src_offset: 0,
                    dst_offset: at,
                    count: PIECE as u64,
                    consecutive: true,
                    synchronous: true,
                    source_server: Vec::new(),
                })
            }),
            "clone" => from_source(&|src_stateid| {
                ArgOp::Clone(CloneArgs {
                    src_stateid,
                    dst_stateid: file.1,
                    src_offset: 0,
                    dst_offset: at,
                    count: PIECE as u64,
                })
            }),
            other => panic!("{other}"),
        };
        let res = self.run(ops).await;
        let count = match (&res.body, op) {
            (ResBody::Write(w), _) => w.count as usize,
            (ResBody::Copy(c), _) => c.response.count as usize,
            (_, "clone" | "allocate") if res.status == NfsStat::NFS4_OK => PIECE,
            _ => 0,
        };
        if let (ResBody::Write(w), "unstable") = (&res.body, op) {
            let commit = ArgOp::Commit(CommitArgs { offset: 0, count: 0 });
            let done = self.run(vec![ArgOp::Putfh(file.0), commit]).await;
            assert!(matches!(done.body, ResBody::Commit(v) if v == w.writeverf), "{}", done.status);
        }
        (res.status.0, count)
    }
}

async fn attempt3(c: &V3, p: &Place, op: &str, i: usize) -> (u32, usize) {
    let dir = handle3(&p.dir);
    let (new, plain) = (long(i), three::mode(0o644));
    let at = |n: &str| three::at(&dir, n);
    let make = |how| three::create(&dir, &new, how);
    let status = |call| async { (c.status(call).await.0, 0) };
    let old_file = async |i| c.lookup(&dir, &old(i)).await.object;
    match op {
        "open" => status(make(args3::CreateHow::Unchecked(plain))).await,
        "guarded" => status(make(args3::CreateHow::Guarded(plain))).await,
        "exclusive" => status(make(args3::CreateHow::Exclusive([1; 8]))).await,
        "mkdir" => status(Call::Mkdir(args3::MkdirArgs { at: at(&new), attrs: plain })).await,
        "symlink" => {
            let target = name(&"t".repeat(1000));
            status(Call::Symlink(args3::SymlinkArgs { at: at(&new), attrs: plain, target })).await
        }
        "fifo" => {
            let what = args3::MknodWhat::Fifo(plain);
            status(Call::Mknod(args3::MknodArgs { at: at(&new), what })).await
        }
        "link" => {
            let file = old_file(0).await;
            status(Call::Link(args3::LinkArgs { file, link: at(&new) })).await
        }
        "rename" => status(Call::Rename(args3::RenameArgs { from: at(&old(i)), to: at(&new) })).await,
        "remove" => status(Call::Remove(at(&old(i)))).await,
        "size" => {
            let attrs = Sattr { size: Some(1 << 20), ..Sattr::default() };
            status(three::setattr(&old_file(i).await, attrs)).await
        }
        "acl" => {
            let body = acl3(&FileHandle(old_file(i).await.0));
            let res = c.program(nfsacl::PROGRAM, nfsacl::VERSION, nfsacl::proc::SETACL, body).await;
            (NfsStat3::from_bytes(res.expect("an answer").slice(..4)).expect("a status").0, 0)
        }
        "write" | "unstable" => {
            let stable = if op == "write" { Stable3::FileSync } else { Stable3::Unstable };
            let file = handle3(&p.file.as_ref().expect("a file").0);
            let call = three::write(&file, (i * PIECE) as u64, &vec![b'x'; PIECE], stable);
            let w = match c.call::<landfast_nfs::v3::res::WriteOk, landfast_nfs::v3::WccData>(call).await {
                landfast_nfs::v3::Res::Ok(w) => w,
                landfast_nfs::v3::Res::Fail(status, _) => return (status.0, 0),
            };
            let commit = Call::Commit(args3::CommitArgs { file, offset: 0, count: 0 });
            let done = c.ok::<landfast_nfs::v3::res::CommitOk, landfast_nfs::v3::WccData>(commit).await;
            assert_eq!(done.verf, w.verf);
            (0, w.count as usize)
        }
        other => panic!("{other}"),
    }
}

/// Everything that is there while there is room.
async fn places(
    kernel: Kernel,
    rig: &Rig,
    speakers: &mut [(&'static str, Speaker)],
) -> BTreeMap<(String, String), Place> {
    let c = V3::new(rig).await;
    let mut setup = rig.client(b"setup").await;
    let mut all = BTreeMap::new();
    for (version, speaker) in speakers {
        for op in operations(version) {
            let dir = c.dir(&format!("{version}-{op}")).await;
            for i in (0..if op == "link" { 1 } else { tries(op, kernel) }).filter(|_| OLD.contains(&op)) {
                let made =
                    c.make(three::create(&dir, &old(i), args3::CreateHow::Guarded(three::mode(0o644)))).await;
                let fh = FileHandle(made.object.expect("a handle").0);
                // It takes the room that an inode has for attributes.
                if op == "acl" || op == "removexattr" {
                    let res = setup.last(vec![ArgOp::Putfh(fh), setxattr("small", 40)]).await;
                    assert_eq!(res.status, NfsStat::NFS4_OK);
                }
            }
            let (mut file, mut source) = (None, None);
            if DATA.contains(&op) {
                file = Some(speaker.open(&format!("{version}-{op}-file")).await);
            }
            if ["copy", "clone", "deallocate"].contains(&op) {
                let (fh, stateid) = speaker.open(&format!("{version}-{op}-source")).await;
                let data = vec![b'x'; PIECE];
                let res = speaker.run(vec![ArgOp::Putfh(fh.clone()), write_op(stateid, 0, &data)]).await;
                assert_eq!(res.status, NfsStat::NFS4_OK);
                source = Some((fh, stateid));
            }
            let dir = FileHandle(dir.0);
            all.insert(((*version).to_owned(), op.to_owned()), Place { dir, file, source });
        }
    }
    all
}

/// What must be there: names below the root and whether they are, the lengths of files at least and at most.
#[derive(Default)]
struct Expected {
    names: BTreeMap<String, bool>,
    sizes: BTreeMap<String, usize>,
}

impl Expected {
    fn note(&mut self, version: &str, op: &str, i: usize, (status, count): (u32, usize)) {
        let done = status == 0;
        if NAMES.contains(&op) {
            self.names.insert(format!("{version}-{op}/{}", long(i)), done);
        }
        if op == "rename" || op == "remove" {
            self.names.insert(format!("{version}-{op}/{}", old(i)), !done);
        }
        if op == "size" {
            self.sizes.insert(format!("{version}-{op}/{}", old(i)), if done { 1 << 20 } else { 0 });
        }
        if DATA.contains(&op) && op != "deallocate" {
            let size = self.sizes.entry(format!("{version}-{op}-file")).or_default();
            *size = (*size).max(if count > 0 { i * PIECE + count } else { 0 });
        }
    }

    fn check(&self, rig: &Rig, when: &str) {
        for (name, there) in &self.names {
            let found = rig.export().join(name).symlink_metadata().is_ok();
            assert_eq!(found, *there, "{when}: {name:.40}");
        }
        for (name, size) in &self.sizes {
            let found = std::fs::read(rig.export().join(name)).expect("a file");
            assert_eq!(found.len(), *size, "{when}: {name}");
            let filled = if name.contains("size") || name.contains("allocate") { 0 } else { b'x' };
            let first = &found[..found.len().min(PIECE)];
            assert!(first.iter().all(|b| *b == filled), "{when}: {name} has other bytes");
        }
    }
}

async fn every_operation(
    kernel: Kernel,
    take: impl FnOnce(&Image) -> bool,
    give: impl FnOnce(&Image),
    refusal: u32,
) {
    let Some((image, mut rig)) = on_an_image(kernel).await else { return };
    let mut speakers = Vec::new();
    for version in VERSIONS {
        speakers.push((*version, Speaker::new(&rig, version).await));
    }
    let places = places(kernel, &rig, &mut speakers).await;
    if !take(&image) {
        return;
    }
    let mut expected = Expected::default();
    let mut refused = BTreeMap::new();
    for (version, speaker) in &mut speakers {
        for op in operations(version) {
            let place = &places[&((*version).to_owned(), op.to_owned())];
            for i in 0..tries(op, kernel) {
                let done = speaker.attempt(place, op, i).await;
                if op == "clone" && done.0 == NfsStat::NFS4ERR_NOTSUPP.0 {
                    break;
                }
                expected.note(version, op, i, done);
                if done.0 != 0 {
                    assert_eq!(done.0, refusal, "{kernel:?}, {version}: {op}, attempt {i}");
                    refused.insert(((*version).to_owned(), op.to_owned()), i);
                    break;
                }
            }
        }
    }
    expected.check(&rig, "full");
    for version in VERSIONS {
        let ops: BTreeSet<_> = refused.keys().filter(|(v, _)| v == version).map(|(_, op)| &op[..]).collect();
        println!("{kernel:?}, {version}: status {refusal} for {ops:?}");
        let mut least = vec!["write", "unstable"];
        // A quota is used up for everything.
        if kernel != Kernel::Btrfs || refusal == NfsStat::NFS4ERR_DQUOT.0 {
            least.extend(NAMES.iter().filter(|op| **op != "named"));
        }
        if *version == "v42" {
            least.extend(["allocate", "copy"]);
        }
        assert!(least.iter().all(|op| ops.contains(op)), "{kernel:?}, {version}: room for some of {least:?}");
    }
    give(&image);
    for ((version, op), i) in &refused {
        let speaker = speakers.iter_mut().find(|(v, _)| v == version).map(|(_, s)| s).expect("a client");
        let done = speaker.attempt(&places[&(version.clone(), op.clone())], op, *i).await;
        assert_eq!(done.0, 0, "{kernel:?}, {version}: {op} where there is room");
        expected.note(version, op, *i, done);
    }
    drop(speakers);
    rig.crash().await;
    expected.check(&rig, "after the crash");
    rig.running.take().expect("a server").stop().await.expect("a clean stop");
    drop(rig);
    drop(image);
}

fn full(image: &Image) -> bool {
    image.fill();
    true
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn nospc_on_ext4() {
    every_operation(Kernel::Ext4, full, Image::free, NfsStat::NFS4ERR_NOSPC.0).await;
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn nospc_on_xfs() {
    every_operation(Kernel::Xfs, full, Image::free, NfsStat::NFS4ERR_NOSPC.0).await;
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn nospc_on_btrfs() {
    every_operation(Kernel::Btrfs, full, Image::free, NfsStat::NFS4ERR_NOSPC.0).await;
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn dquot_on_btrfs() {
    let take = |image: &Image| image.limited("12M") && full(image);
    let give = |image: &Image| assert!(image.unlimited());
    every_operation(Kernel::Btrfs, take, give, NfsStat::NFS4ERR_DQUOT.0).await;
}
