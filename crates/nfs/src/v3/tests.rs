//! Each call and each result reads as it was written; other bytes are refused or read, never worse.

use super::args::*;
use super::res::*;
use super::types::*;
use super::*;
use landfast_xdr::{Bytes, Decode, Encode};
use proptest::prelude::*;

fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from)
}

fn handle() -> impl Strategy<Value = FileHandle> {
    bytes(FHSIZE + 1).prop_map(FileHandle)
}

fn time() -> impl Strategy<Value = Time> {
    any::<(u32, u32)>().prop_map(|(seconds, nseconds)| Time { seconds, nseconds })
}

fn set_time() -> impl Strategy<Value = SetTime> {
    prop_oneof![Just(SetTime::Dont), Just(SetTime::Server), time().prop_map(SetTime::Client)]
}

fn sattr() -> impl Strategy<Value = Sattr> {
    (any::<(Option<u32>, Option<u32>, Option<u32>, Option<u64>)>(), set_time(), set_time())
        .prop_map(|((mode, uid, gid, size), atime, mtime)| Sattr { mode, uid, gid, size, atime, mtime })
}

fn dirop() -> impl Strategy<Value = DirOp> {
    (handle(), bytes(40)).prop_map(|(dir, name)| DirOp { dir, name })
}

fn dev() -> impl Strategy<Value = SpecData> {
    any::<(u32, u32)>().prop_map(|(major, minor)| SpecData { major, minor })
}

fn stable() -> impl Strategy<Value = StableHow> {
    prop_oneof![Just(StableHow::Unstable), Just(StableHow::DataSync), Just(StableHow::FileSync)]
}

fn how() -> impl Strategy<Value = CreateHow> {
    prop_oneof![
        sattr().prop_map(CreateHow::Unchecked),
        sattr().prop_map(CreateHow::Guarded),
        any::<[u8; 8]>().prop_map(CreateHow::Exclusive),
    ]
}

fn what() -> impl Strategy<Value = MknodWhat> {
    prop_oneof![
        (sattr(), dev()).prop_map(|(a, d)| MknodWhat::Chr(a, d)),
        (sattr(), dev()).prop_map(|(a, d)| MknodWhat::Blk(a, d)),
        sattr().prop_map(MknodWhat::Sock),
        sattr().prop_map(MknodWhat::Fifo),
        Just(MknodWhat::Other(FileType::Dir)),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let readdir = || (handle(), any::<u64>(), any::<[u8; 8]>(), any::<u32>(), any::<u32>());
    prop_oneof![
        Just(Call::Null),
        handle().prop_map(Call::Getattr),
        (handle(), sattr(), prop::option::of(time()))
            .prop_map(|(object, attrs, guard)| Call::Setattr(SetattrArgs { object, attrs, guard })),
        dirop().prop_map(Call::Lookup),
        (handle(), any::<u32>()).prop_map(|(object, access)| Call::Access(AccessArgs { object, access })),
        handle().prop_map(Call::Readlink),
        (handle(), any::<u64>(), any::<u32>()).prop_map(|(file, offset, count)| Call::Read(ReadArgs {
            file,
            offset,
            count
        })),
        (handle(), any::<u64>(), any::<u32>(), stable(), bytes(90)).prop_map(
            |(file, offset, count, stable, data)| Call::Write(WriteArgs {
                file,
                offset,
                count,
                stable,
                data
            })
        ),
        (dirop(), how()).prop_map(|(at, how)| Call::Create(CreateArgs { at, how })),
        (dirop(), sattr()).prop_map(|(at, attrs)| Call::Mkdir(MkdirArgs { at, attrs })),
        (dirop(), sattr(), bytes(50)).prop_map(|(at, attrs, target)| Call::Symlink(SymlinkArgs {
            at,
            attrs,
            target
        })),
        (dirop(), what()).prop_map(|(at, what)| Call::Mknod(MknodArgs { at, what })),
        dirop().prop_map(Call::Remove),
        dirop().prop_map(Call::Rmdir),
        (dirop(), dirop()).prop_map(|(from, to)| Call::Rename(RenameArgs { from, to })),
        (handle(), dirop()).prop_map(|(file, link)| Call::Link(LinkArgs { file, link })),
        readdir().prop_map(|(dir, cookie, cookieverf, count, _)| Call::Readdir(ReaddirArgs {
            dir,
            cookie,
            cookieverf,
            count
        })),
        readdir().prop_map(|(dir, cookie, cookieverf, dircount, maxcount)| Call::Readdirplus(
            ReaddirplusArgs { dir, cookie, cookieverf, dircount, maxcount }
        )),
        handle().prop_map(Call::Fsstat),
        handle().prop_map(Call::Fsinfo),
        handle().prop_map(Call::Pathconf),
        (handle(), any::<u64>(), any::<u32>()).prop_map(|(file, offset, count)| Call::Commit(CommitArgs {
            file,
            offset,
            count
        })),
    ]
}

fn fattr() -> impl Strategy<Value = Fattr> {
    let types = prop_oneof![
        Just(FileType::Reg),
        Just(FileType::Dir),
        Just(FileType::Blk),
        Just(FileType::Chr),
        Just(FileType::Lnk),
        Just(FileType::Sock),
        Just(FileType::Fifo)
    ];
    (types, any::<[u32; 4]>(), any::<[u64; 4]>(), dev(), time(), time(), time()).prop_map(
        |(file_type, [mode, nlink, uid, gid], [size, used, fsid, fileid], rdev, atime, mtime, ctime)| Fattr {
            file_type,
            mode,
            nlink,
            uid,
            gid,
            size,
            used,
            rdev,
            fsid,
            fileid,
            atime,
            mtime,
            ctime,
        },
    )
}

fn wcc() -> impl Strategy<Value = WccData> {
    let before =
        (any::<u64>(), time(), time()).prop_map(|(size, mtime, ctime)| WccAttr { size, mtime, ctime });
    (prop::option::of(before), prop::option::of(fattr()))
        .prop_map(|(before, after)| WccData { before, after })
}

fn same<T: Encode + Decode + PartialEq + std::fmt::Debug>(value: &T) {
    assert_eq!(T::from_bytes(value.to_bytes()).as_ref(), Ok(value));
}

proptest! {
    #[test]
    fn calls_round_trip(call in call()) {
        prop_assert_eq!(Call::decode(call.number(), call.to_bytes()), Ok(call));
    }

    #[test]
    fn a_call_that_is_cut_or_too_long_is_garbage(call in call(), cut in 1usize..9) {
        let whole = call.to_bytes();
        if whole.len() >= cut {
            prop_assert!(matches!(
                Call::decode(call.number(), whole.slice(..whole.len() - cut)),
                Err(NoCall::Garbage(_))
            ));
        }
        let longer = [&whole[..], &[0; 4]].concat();
        prop_assert!(matches!(Call::decode(call.number(), longer.into()), Err(NoCall::Garbage(_))));
    }

    #[test]
    fn any_bytes_decode_or_fail(number in 0u32..24, data in bytes(300)) {
        if let Ok(call) = Call::decode(number, data.clone()) {
            prop_assert_eq!(call.to_bytes(), data);
        }
    }

    #[test]
    fn results_round_trip(
        wcc in wcc(), attrs in prop::option::of(fattr()), object in handle(), n: [u32; 4], m: [u64; 6],
        data in bytes(60), flag: bool, verf: [u8; 8], bad in 1u32.., stable in stable(),
    ) {
        let status = NfsStat3(bad);
        let a = || attrs.clone();
        same(&SetattrRes::Ok(wcc.clone()));
        same(&SetattrRes::Fail(status, wcc.clone()));
        same(&GetattrRes::Fail(status, ()));
        same(&LookupRes::Ok(LookupOk { object: object.clone(), attrs: a(), dir: a() }));
        same(&LookupRes::Fail(status, a()));
        same(&AccessRes::Ok(AccessOk { attrs: a(), access: n[0] }));
        same(&ReadlinkRes::Ok(ReadlinkOk { attrs: a(), target: data.clone() }));
        same(&ReadRes::Ok(ReadOk { attrs: a(), count: n[0], eof: flag, data: data.clone() }));
        same(&WriteRes::Ok(WriteOk { wcc: wcc.clone(), count: n[0], committed: stable, verf }));
        same(&MakeRes::Ok(MakeOk { object: flag.then(|| object.clone()), attrs: a(), dir: wcc.clone() }));
        same(&RenameRes::Fail(status, RenameWcc { from: wcc.clone(), to: wcc.clone() }));
        same(&LinkRes::Ok(LinkWcc { attrs: a(), dir: wcc.clone() }));
        let plain = Entry { fileid: m[0], name: data.clone(), cookie: m[1] };
        same(&ReaddirRes::Ok(ReaddirOk {
            dir: a(), cookieverf: verf, entries: List(vec![plain; (n[1] % 3) as usize]), eof: flag,
        }));
        let plus = EntryPlus {
            fileid: m[0], name: data, cookie: m[1], attrs: a(), object: flag.then_some(object),
        };
        same(&ReaddirplusRes::Ok(ReaddirplusOk {
            dir: a(), cookieverf: verf, entries: List(vec![plus; (n[1] % 3) as usize]), eof: flag,
        }));
        same(&FsstatRes::Ok(FsstatOk {
            attrs: a(), tbytes: m[0], fbytes: m[1], abytes: m[2], tfiles: m[3], ffiles: m[4], afiles: m[5],
            invarsec: n[0],
        }));
        same(&FsinfoRes::Ok(FsinfoOk {
            attrs: a(), rtmax: n[0], rtpref: n[1], rtmult: n[2], wtmax: n[3], wtpref: n[0], wtmult: n[1],
            dtpref: n[2], maxfilesize: m[0], time_delta: Time { seconds: n[0], nseconds: n[1] }, properties: n[3],
        }));
        same(&PathconfRes::Ok(PathconfOk {
            attrs: a(), linkmax: n[0], name_max: n[1], no_trunc: flag, chown_restricted: !flag,
            case_insensitive: flag, case_preserving: !flag,
        }));
        same(&CommitRes::Ok(CommitOk { wcc, verf }));
    }
}

#[test]
fn rfc1813_2_4_a_handle_has_at_most_64_bytes() {
    let call = |n| Call::Getattr(FileHandle(vec![1; n].into())).to_bytes();
    assert!(Call::decode(proc::GETATTR, call(64)).is_ok());
    assert!(matches!(Call::decode(proc::GETATTR, call(65)), Err(NoCall::Garbage(_))));
}

#[test]
fn rfc1813_3_there_are_22_procedures() {
    assert_eq!(Call::decode(22, Bytes::new()), Err(NoCall::NoProcedure));
    assert_eq!(PROC_NAMES.len(), 22);
    assert_eq!(PROC_NAMES[proc::COMMIT as usize], "COMMIT");
}

#[test]
fn rfc1813_2_6_statuses_have_their_names() {
    assert_eq!(NfsStat3::OK.to_string(), "NFS3_OK");
    assert_eq!(NfsStat3::NOT_SYNC.to_string(), "NFS3ERR_NOT_SYNC");
    assert_eq!(NfsStat3(4711).to_string(), "nfsstat3 4711");
}
