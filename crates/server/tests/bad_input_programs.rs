//! Arguments that are cut off, lie about their lengths, or are no arguments, to every procedure of every program but
//! NFSv4's COMPOUND (which is in `bad_input.rs`): an answer to each, on a connection that goes on.

use crate::common;

use common::lockd::{cookie, text};
use common::v3::{V3, at, create, mode, setattr, write};
use common::wire::{Line, header};
use common::{PATIENCE, Rig, lockd, name};
use landfast_nfs::nfsacl::{self, Entry, GetaclArgs, List, Lists, SetaclArgs};
use landfast_nfs::nlm::{
    CancelArgs, Lock, LockArgs, NlmStat, Notify, Res, Share, ShareArgs, TestArgs, UnlockArgs,
};
use landfast_nfs::v3::args::*;
use landfast_nfs::v3::types::StableHow;
use landfast_nfs::v3::{self, Call, FileHandle, NfsStat3};
use landfast_nfs::v4::Opaque1024;
use landfast_nfs::{mount, nlm, nsm};
use landfast_xdr::{Bytes, Encode};
use proptest::prelude::*;
use tokio::net::UdpSocket;

/// A procedure and arguments that are right.
type Good = ((u32, u32, u32), Bytes);

const SUCCESS: u32 = 0;
const PROC_UNAVAIL: u32 = 3;
const GARBAGE_ARGS: u32 = 4;

async fn rig() -> (Rig, V3, FileHandle) {
    // Nobody is called back: nothing listens where the port mapper would be.
    let mut rig = Rig::new().await;
    rig.portmapper = lockd::portmapper_port().await;
    rig.restart().await;
    let c = V3::new(&rig).await;
    let file = c.file("f").await;
    (rig, c, file)
}

/// Every procedure that has arguments.
fn all(root: &FileHandle, file: &FileHandle) -> Vec<Good> {
    let at = |n: &str| at(root, n);
    let plain = mode(0o644);
    let special = MknodWhat::Fifo(plain.clone());
    let how = |how| create(root, "g", how);
    let calls = [
        Call::Getattr(file.clone()),
        setattr(file, plain.clone()),
        Call::Lookup(at("f")),
        Call::Access(AccessArgs { object: file.clone(), access: 0x3f }),
        Call::Readlink(file.clone()),
        Call::Read(ReadArgs { file: file.clone(), offset: 0, count: 10 }),
        write(file, 0, b"data", StableHow::FileSync),
        how(CreateHow::Unchecked(plain.clone())),
        how(CreateHow::Guarded(plain.clone())),
        how(CreateHow::Exclusive([7; 8])),
        Call::Mkdir(MkdirArgs { at: at("d"), attrs: plain.clone() }),
        Call::Symlink(SymlinkArgs { at: at("s"), attrs: plain, target: name("where") }),
        Call::Mknod(MknodArgs { at: at("p"), what: special }),
        Call::Remove(at("g")),
        Call::Rmdir(at("d")),
        Call::Rename(RenameArgs { from: at("s"), to: at("t") }),
        Call::Link(LinkArgs { file: file.clone(), link: at("l") }),
        Call::Readdir(ReaddirArgs { dir: root.clone(), cookie: 0, cookieverf: [0; 8], count: 4096 }),
        Call::Readdirplus(ReaddirplusArgs {
            dir: root.clone(),
            cookie: 0,
            cookieverf: [0; 8],
            dircount: 4096,
            maxcount: 4096,
        }),
        Call::Fsstat(root.clone()),
        Call::Fsinfo(root.clone()),
        Call::Pathconf(root.clone()),
        Call::Commit(CommitArgs { file: file.clone(), offset: 0, count: 0 }),
    ];
    let v3 = calls.iter().map(|c| ((landfast_nfs::PROGRAM, v3::VERSION, c.number()), c.to_bytes()));
    let path = name("/sub/directory").to_bytes();
    let mount = [mount::proc::MNT, mount::proc::UMNT]
        .map(|proc| ((mount::PROGRAM, mount::VERSION, proc), path.clone()));
    v3.chain(mount).chain(locks(file)).chain(monitor()).chain(acls(file)).collect()
}

fn locks(file: &FileHandle) -> Vec<Good> {
    let fh = Opaque1024(file.0.clone());
    let lock =
        Lock { caller_name: text("host"), fh: fh.clone(), oh: text("owner"), svid: 1, offset: 0, length: 10 };
    let test = TestArgs { cookie: cookie(), exclusive: true, lock: lock.clone() }.to_bytes();
    let take = LockArgs {
        cookie: cookie(),
        block: false,
        exclusive: true,
        lock: lock.clone(),
        reclaim: false,
        state: 1,
    };
    let take = take.to_bytes();
    let cancel =
        CancelArgs { cookie: cookie(), block: false, exclusive: true, lock: lock.clone() }.to_bytes();
    let unlock = UnlockArgs { cookie: cookie(), lock }.to_bytes();
    let share = Share { caller_name: text("host"), fh, oh: text("owner"), mode: 1, access: 1 };
    let share = ShareArgs { cookie: cookie(), share, reclaim: false }.to_bytes();
    let granted = Res { cookie: cookie(), stat: NlmStat::GRANTED }.to_bytes();
    let free = Notify { name: text("host"), state: 1 }.to_bytes();
    use nlm::proc::*;
    [
        (TEST, &test),
        (LOCK, &take),
        (CANCEL, &cancel),
        (UNLOCK, &unlock),
        (GRANTED, &test),
        (TEST_MSG, &test),
        (LOCK_MSG, &take),
        (CANCEL_MSG, &cancel),
        (UNLOCK_MSG, &unlock),
        (GRANTED_MSG, &test),
        (GRANTED_RES, &granted),
        (SHARE, &share),
        (UNSHARE, &share),
        (NM_LOCK, &take),
        (FREE_ALL, &free),
    ]
    .map(|(proc, args)| ((nlm::PROGRAM, nlm::VERSION, proc), args.clone()))
    .to_vec()
}

fn monitor() -> Vec<Good> {
    let me = nsm::MyId { my_name: text("me"), my_prog: 1, my_vers: 2, my_proc: 3 };
    let notify = nsm::StatChange { mon_name: text("host"), state: 3 }.to_bytes();
    use nsm::proc::*;
    [
        (STAT, nsm::SmName { mon_name: text("host") }.to_bytes()),
        (UNMON, nsm::MonId { mon_name: text("host"), my_id: me.clone() }.to_bytes()),
        (UNMON_ALL, me.to_bytes()),
        (NOTIFY, notify),
    ]
    .map(|(proc, args)| ((nsm::PROGRAM, nsm::VERSION, proc), args))
    .to_vec()
}

fn acls(file: &FileHandle) -> Vec<Good> {
    let entries = [1, 4, 32].map(|kind| Entry { kind, id: 0, perm: 6 }).to_vec();
    let list = List { count: 3, entries };
    let lists = Lists { mask: nfsacl::mask::ACL, access: list, default: List::default() };
    let get = GetaclArgs { object: file.clone(), mask: nfsacl::mask::ALL }.to_bytes();
    let set = SetaclArgs { object: file.clone(), lists }.to_bytes();
    [(nfsacl::proc::GETACL, get), (nfsacl::proc::SETACL, set)]
        .map(|(proc, args)| ((nfsacl::PROGRAM, nfsacl::VERSION, proc), args))
        .to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc5531_9_arguments_cut_anywhere_are_garbage() {
    let (rig, c, file) = rig().await;
    let mut line = Line::new(rig.addr()).await;
    for (to, args) in all(&c.root, &file) {
        for cut in 0..args.len() {
            let (stat, _) = line.call(to, &args[..cut]).await;
            assert_eq!(stat, GARBAGE_ARGS, "{to:?} cut at {cut} of {}", args.len());
        }
        assert_eq!(line.call(to, &args).await.0, SUCCESS, "{to:?} whole");
    }
    assert_eq!(c.status(Call::Getattr(c.root.clone())).await, NfsStat3::OK);
}

/// Each word of the arguments says something else: a length of 4 GiB, one that is beyond the message, one that is a little too
/// short or long, a number that is none of an enumeration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn lies_in_each_word_of_the_arguments_get_an_answer() {
    let (rig, c, file) = rig().await;
    let mut line = Line::new(rig.addr()).await;
    for (to, args) in all(&c.root, &file) {
        for word in 0..args.len() / 4 {
            let was = u32::from_be_bytes(args[4 * word..4 * word + 4].try_into().expect("four bytes"));
            for lie in [u32::MAX, 0x7fff_ffff, 65_536, was.wrapping_add(1), was.wrapping_sub(1), 0] {
                let mut args = args.to_vec();
                args[4 * word..4 * word + 4].copy_from_slice(&lie.to_be_bytes());
                let (stat, _) = line.call(to, &args).await;
                assert!(matches!(stat, SUCCESS | GARBAGE_ARGS), "{to:?}, word {word} is {lie}: {stat}");
            }
        }
    }
    assert_eq!(c.status(Call::Getattr(c.root.clone())).await, NfsStat3::OK);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn any_bytes_to_any_procedure_get_an_answer() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (rig, c, file) = runtime.block_on(rig());
    let line = tokio::sync::Mutex::new(runtime.block_on(Line::new(rig.addr())));
    let programs = prop::sample::select(common::wire::PROGRAMS.to_vec());
    let mut runner =
        proptest::test_runner::TestRunner::new(ProptestConfig { cases: 600, ..ProptestConfig::default() });
    let handle = file.0.to_bytes();
    runner
        .run(&(programs, 0u32..26, any::<bool>(), prop::collection::vec(any::<u8>(), 0..200)), |ask| {
            let ((prog, vers), proc, with_handle, mut bytes) = ask;
            if with_handle {
                bytes.splice(0..0, handle.iter().copied());
            }
            let to = (prog, vers, proc);
            let (stat, _) = runtime.block_on(async { line.lock().await.call(to, &bytes).await });
            prop_assert!(matches!(stat, SUCCESS | PROC_UNAVAIL | GARBAGE_ARGS), "{:?}: {}", to, stat);
            Ok(())
        })
        .expect("an answer to all");
    runtime.block_on(async { assert_eq!(c.status(Call::Getattr(c.root.clone())).await, NfsStat3::OK) });
}

/// NLM and NSM by datagram: what is no call gets no answer, what is a wrong call an error, and the next call its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn datagrams_that_are_none() {
    let (rig, _c, file) = rig().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    socket.connect(rig.addr()).await.expect("connected");
    let ping = async |xid: u32| {
        let mut call = header(nlm::PROGRAM, nlm::VERSION, 0);
        call[..4].copy_from_slice(&xid.to_be_bytes());
        socket.send(&call).await.expect("sent");
        let mut reply = [0; 256];
        let len = tokio::time::timeout(PATIENCE, socket.recv(&mut reply)).await.expect("in time");
        let len = len.expect("received");
        assert_eq!(reply[..4], xid.to_be_bytes(), "the answer to the ping, and to nothing before it");
        assert_eq!(len, 24);
    };
    // Without a whole header nobody knows whom to answer.
    let call = header(nlm::PROGRAM, nlm::VERSION, nlm::proc::LOCK);
    for cut in [0, 1, 3, 8, 20] {
        socket.send(&call[..cut]).await.expect("sent");
    }
    socket.send(&[0xff; 1400]).await.expect("sent");
    ping(1000).await;
    let good: Vec<Good> = locks(&file).into_iter().chain(monitor()).collect();
    for (i, ((prog, vers, proc), args)) in good.into_iter().enumerate() {
        for cut in [0, args.len() / 2, args.len() - 1] {
            let call = [header(prog, vers, proc), args[..cut].to_vec()].concat();
            socket.send(&call).await.expect("sent");
            let mut reply = [0; 256];
            let len = tokio::time::timeout(PATIENCE, socket.recv(&mut reply)).await.expect("in time");
            assert_eq!(reply[20..len.expect("received")], GARBAGE_ARGS.to_be_bytes(), "{prog} {proc} {cut}");
        }
        ping(2000 + i as u32).await;
    }
}

/// RFC 1813 section 2.6, 3.3: each name that is none, in each procedure that has one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc1813_3_2_names_that_are_none() {
    let (_rig, c, file) = rig().await;
    let dir = c.dir("d").await;
    let long = "x".repeat(256);
    let longer = "x".repeat(65_536);
    let plain = mode(0o644);
    for (bad, expected) in [
        ("", &[NfsStat3::INVAL, NfsStat3::ACCES, NfsStat3::NOENT][..]),
        (".", &[NfsStat3::INVAL, NfsStat3::EXIST, NfsStat3::ACCES, NfsStat3::ISDIR]),
        ("..", &[NfsStat3::INVAL, NfsStat3::EXIST, NfsStat3::ACCES, NfsStat3::ISDIR, NfsStat3::NOTEMPTY]),
        ("a/b", &[NfsStat3::INVAL, NfsStat3::ACCES]),
        ("/", &[NfsStat3::INVAL, NfsStat3::ACCES]),
        ("a\0b", &[NfsStat3::INVAL, NfsStat3::ACCES]),
        (&long, &[NfsStat3::NAMETOOLONG]),
        (&longer, &[NfsStat3::NAMETOOLONG]),
    ] {
        let at = || at(&dir, bad);
        let good = common::v3::at(&dir, "good");
        let target = name("where");
        let mut calls = vec![
            create(&dir, bad, CreateHow::Unchecked(plain.clone())),
            create(&dir, bad, CreateHow::Guarded(plain.clone())),
            create(&dir, bad, CreateHow::Exclusive([1; 8])),
            Call::Mkdir(MkdirArgs { at: at(), attrs: plain.clone() }),
            Call::Symlink(SymlinkArgs { at: at(), attrs: plain.clone(), target }),
            Call::Mknod(MknodArgs { at: at(), what: MknodWhat::Fifo(plain.clone()) }),
            Call::Remove(at()),
            Call::Rmdir(at()),
            Call::Rename(RenameArgs { from: at(), to: good.clone() }),
            Call::Rename(RenameArgs { from: common::v3::at(&c.root, "f"), to: at() }),
            Call::Link(LinkArgs { file: file.clone(), link: at() }),
        ];
        // LOOKUP of "." and ".." is what some clients do (RFC 1813 section 3.3.3).
        if !matches!(bad, "." | "..") {
            calls.push(Call::Lookup(at()));
        }
        for call in calls {
            let number = call.number();
            let status = c.status(call).await;
            let shown = &bad[..bad.len().min(20)];
            assert!(expected.contains(&status), "procedure {number} of {shown:?} gave {status}");
        }
    }
    assert_eq!(c.readdir(&dir, 0, 4096).await.entries.0.len(), 2, "nothing was made");
    c.lookup(&c.root, "f").await;
}

/// A target that no symbolic link can have; data that is not what was announced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc1813_3_3_7_and_10_targets_and_data_that_cannot_be() {
    let (_rig, c, file) = rig().await;
    let symlink = |target: &[u8]| {
        let target = Bytes::copy_from_slice(target);
        Call::Symlink(SymlinkArgs { at: at(&c.root, "l"), attrs: mode(0o777), target })
    };
    assert_eq!(c.status(symlink(&[b'x'; 5000])).await, NfsStat3::NAMETOOLONG);
    let empty = c.status(symlink(b"")).await;
    assert!(matches!(empty, NfsStat3::INVAL | NfsStat3::NOENT), "{empty}");
    assert_eq!(c.status(symlink(b"a\0b")).await, NfsStat3::INVAL);
    let Call::Write(args) = write(&file, 0, b"data", StableHow::FileSync) else { unreachable!() };
    for count in [3, 5, u32::MAX] {
        let status = c.status(Call::Write(WriteArgs { count, ..args.clone() })).await;
        assert_eq!(status, NfsStat3::INVAL, "{count} bytes announced, 4 sent");
    }
    let far = c.status(write(&file, u64::MAX - 1, b"data", StableHow::FileSync)).await;
    assert!(matches!(far, NfsStat3::FBIG | NfsStat3::INVAL), "{far}");
    assert_eq!(c.attrs(&file).await.size, 0, "nothing was written");
}
