//! EXCLUSIVE creates: only a file that this server made with this verifier is a repetition's, and only for whom may use it.

use super::victim::*;
use super::wire::Wire;
use crate::common::{assert_ok, fattr, name, read_op, write_op};
use landfast_nfs::v3;
use landfast_nfs::v3::types::DirOp;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::flags::{OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ};
use landfast_nfs::v4::*;
use landfast_nfs::{PROGRAM, mount};
use landfast_xdr::{Bytes, Decode, Encode};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The four ways to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    V3,
    V4(u32),
    /// EXCLUSIVE4_1, which may set attributes as well.
    V41(u32),
}

const WAYS: [Way; 6] = [Way::V3, Way::V4(0), Way::V4(1), Way::V4(2), Way::V41(1), Way::V41(2)];

/// One who creates, of one version, from one host.
struct Creator {
    wire: Wire,
    way: Way,
    party: Option<Party>,
    root: Bytes,
}

impl Creator {
    async fn new(rig: &Rig, host: u8, way: Way, client: &str) -> Creator {
        let mut wire = rig.from(host).await;
        let (mut party, mut root) = (None, Bytes::new());
        match way {
            Way::V3 => {
                let at = Bytes::from_static(b"/").to_bytes();
                let res = wire.call(0, (mount::PROGRAM, mount::VERSION, mount::proc::MNT), &at).await;
                let mount::MntRes::Ok(mounted) = mount::MntRes::from_bytes(res).expect("a result") else {
                    panic!("MNT failed")
                };
                root = mounted.handle.0;
            }
            Way::V4(minor) | Way::V41(minor) => {
                party = Some(Party::new(&mut wire, minor, client.as_bytes()).await);
            }
        }
        Creator { wire, way, party, root }
    }

    /// One with EXCLUSIVE4_1 whose client has this verifier of its instance.
    async fn instance(rig: &Rig, client: &str, verifier: u8) -> Creator {
        let mut wire = rig.from(HONEST).await;
        let party = Party::instance(&mut wire, 2, client.as_bytes(), verifier).await;
        Creator { wire, way: Way::V41(2), party: Some(party), root: Bytes::new() }
    }

    /// Creates exclusively: handle and stateid, if the version has one.
    async fn create(&mut self, uid: u32, file: &str, verf: [u8; 8]) -> Result<(Bytes, Stateid), NfsStat> {
        let how = match self.way {
            Way::V3 => {
                let at = DirOp { dir: v3::FileHandle(self.root.clone()), name: name(file) };
                let how = v3::args::CreateHow::Exclusive(verf);
                let args = v3::args::CreateArgs { at, how }.to_bytes();
                let res = self.wire.call(uid, (PROGRAM, v3::VERSION, 8), &args).await;
                return match v3::res::MakeRes::from_bytes(res).expect("a result") {
                    v3::Res::Ok(made) => Ok((made.object.expect("a handle").0, Stateid::ANONYMOUS)),
                    v3::Res::Fail(status, _) => Err(match status {
                        v3::NfsStat3::EXIST => NfsStat::NFS4ERR_EXIST,
                        v3::NfsStat3::ACCES => NfsStat::NFS4ERR_ACCESS,
                        other => panic!("CREATE gave {other}"),
                    }),
                };
            }
            Way::V4(_) => CreateHow::Exclusive(verf),
            Way::V41(_) => CreateHow::Exclusive41 {
                verf,
                attrs: fattr(AttrValues { mode: Some(0o600), ..AttrValues::default() }),
            },
        };
        let party = self.party.as_mut().expect("a client");
        let how = OpenHow::Create(how);
        let opened = party.open(&mut self.wire, uid, file, OPEN4_SHARE_ACCESS_BOTH, how).await;
        opened.map(|(fh, stateid, ..)| (fh.0, stateid))
    }
}

fn set_times(path: &Path, (atime, mtime): (i64, i64)) {
    let time = |tv_sec| Timespec { tv_sec, tv_nsec: 0 };
    let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).expect("times");
}

fn times(path: &Path) -> (i64, i64) {
    let meta = std::fs::metadata(path).expect("the file");
    (meta.atime(), meta.mtime())
}

/// The seconds that a verifier is in big-endian halves: as they stand, and as some servers keep them, the other way round.
fn imitations(verf: [u8; 8]) -> Vec<(i64, i64)> {
    let [a, b, c, d, e, f, g, h] = verf;
    let (first, last) = ([a, b, c, d], [e, f, g, h]);
    let mut all = Vec::new();
    for (x, y) in [(first, last), (last, first)] {
        let signed = |x| i64::from(i32::from_be_bytes(x));
        let unsigned = |x| i64::from(u32::from_be_bytes(x));
        let little = |x| i64::from(i32::from_le_bytes(x));
        all.extend([(signed(x), signed(y)), (unsigned(x), unsigned(y)), (little(x), little(y))]);
    }
    all
}

const VERF: [u8; 8] = [0x12, 0x34, 0x56, 0x78, 0x1a, 0xbc, 0xde, 0xf0];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn roots_empty_file_with_a_verifiers_times_is_nobody_elses() {
    let rig = Rig::new("log").await;
    for (w, way) in WAYS.into_iter().enumerate() {
        let mut attacker = Creator::new(&rig, ROOT_SQUASH, way, &format!("attacker-{w}")).await;
        for (n, imitation) in imitations(VERF).into_iter().enumerate() {
            let file = format!("authorized_keys-{w}-{n}");
            std::fs::write(rig.path(&file), b"").expect("root's own file");
            std::fs::set_permissions(rig.path(&file), std::os::unix::fs::PermissionsExt::from_mode(0o600))
                .expect("a mode");
            set_times(&rig.path(&file), imitation);
            for uid in [0, 1000] {
                let got = attacker.create(uid, &file, VERF).await;
                assert_eq!(got.err(), Some(NfsStat::NFS4ERR_EXIST), "{way:?}, times {imitation:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_repetition_finds_the_file_that_it_made_and_another_caller_does_not() {
    for durability in ["log", "sync"] {
        let mut rig = Rig::with(durability, 1).await;
        for (w, way) in WAYS.into_iter().enumerate() {
            let file = format!("new-{w}");
            let mut honest = Creator::new(&rig, HONEST, way, &format!("honest-{w}")).await;
            let (fh, _) = honest.create(1000, &file, VERF).await.expect("it is new");
            let (again, stateid) = honest.create(1000, &file, VERF).await.expect("a repetition");
            assert_eq!(again, fh, "{way:?}");
            if let Some(party) = &mut honest.party {
                // Whatever mode the file was made with, its maker writes it.
                let ops = vec![ArgOp::Putfh(FileHandle(fh.clone())), write_op(stateid, 0, b"")];
                assert_ok(&party.run(&mut honest.wire, 1000, ops).await);
            }
            let other_verf = [0; 8];
            assert_eq!(honest.create(1000, &file, other_verf).await.err(), Some(NfsStat::NFS4ERR_EXIST));
            for (host, uid) in [(HONEST, 2000), (ROOT_SQUASH, 0), (ALL_SQUASH, 1000)] {
                let mut thief = Creator::new(&rig, host, way, &format!("thief-{w}-{host}")).await;
                let got = thief.create(uid, &file, VERF).await;
                assert_eq!(got.err(), Some(NfsStat::NFS4ERR_ACCESS), "{way:?} by {uid} from {host}");
            }
            // The times of this file do nothing for another one, whoever copies them.
            let copy = format!("copy-{w}");
            std::fs::write(rig.path(&copy), b"").expect("a file");
            set_times(&rig.path(&copy), times(&rig.path(&file)));
            std::os::unix::fs::chown(rig.path(&copy), Some(1000), Some(1000)).expect("an owner");
            assert_eq!(honest.create(1000, &copy, VERF).await.err(), Some(NfsStat::NFS4ERR_EXIST));
        }
        // The answer was lost with the server's process, and the client asks a new one.
        rig.crash().await;
        for (w, way) in WAYS.into_iter().enumerate() {
            let mut honest = Creator::new(&rig, HONEST, way, &format!("again-{w}")).await;
            let got = honest.create(1000, &format!("new-{w}"), VERF).await;
            assert!(got.is_ok(), "{durability}, {way:?}: {got:?}");
        }
        rig.restart().await;
        for (w, way) in WAYS.into_iter().enumerate() {
            let mut honest = Creator::new(&rig, HONEST, way, &format!("once-more-{w}")).await;
            let file = format!("new-{w}");
            let (fh, _) = honest.create(1000, &file, VERF).await.expect("a repetition");
            // The client's SETATTR ends it, as does time that goes on.
            set_by_client(&mut honest, fh).await;
            let got = honest.create(1000, &file, VERF).await;
            assert_eq!(got.err(), Some(NfsStat::NFS4ERR_EXIST), "{way:?} after SETATTR");
        }
    }
}

/// SETATTR of both times to the server's, as a client does after an exclusive create.
async fn set_by_client(c: &mut Creator, fh: Bytes) {
    let Some(party) = &mut c.party else {
        let now = v3::types::SetTime::Server;
        let attrs = v3::Sattr { atime: now, mtime: now, ..v3::Sattr::default() };
        let args = v3::args::SetattrArgs { object: v3::FileHandle(fh), attrs, guard: None };
        let res = c.wire.call(1000, (PROGRAM, v3::VERSION, 2), &args.to_bytes()).await;
        assert_eq!(res[..4], [0; 4], "SETATTR");
        return;
    };
    let now = AttrValues {
        time_access_set: Some(SetTime::ServerTime),
        time_modify_set: Some(SetTime::ServerTime),
        ..AttrValues::default()
    };
    let set = ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: fattr(now) });
    assert_ok(&party.run(&mut c.wire, 1000, vec![ArgOp::Putfh(FileHandle(fh)), set]).await);
}

/// Linux makes the verifier of the time since the machine's start and the number of a process: both come again after the next start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_16_4_another_instance_of_a_client_does_not_repeat_the_create() {
    for durability in ["log", "sync"] {
        let mut rig = Rig::with(durability, 1).await;
        let mut first = Creator::instance(&rig, "a", 1).await;
        let (fh, _) = first.create(1000, "lock", VERF).await.expect("it is new");
        let expected = |instance| if instance == 1 { Ok(fh.clone()) } else { Err(NfsStat::NFS4ERR_EXIST) };
        for (client, instance) in [("a", 2), ("b", 2), ("c", 1)] {
            let mut again = Creator::instance(&rig, client, instance).await;
            let got = again.create(1000, "lock", VERF).await.map(|(fh, _)| fh);
            assert_eq!(got, expected(instance), "{durability}, {client}");
        }
        // Another process of the server has nothing in memory of the first.
        rig.crash().await;
        for (client, instance) in [("d", 2), ("e", 1)] {
            let mut again = Creator::instance(&rig, client, instance).await;
            let got = again.create(1000, "lock", VERF).await.map(|(fh, _)| fh);
            assert_eq!(got, expected(instance), "{durability}, {client} after a crash");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_repetition_with_less_is_no_way_to_more() {
    // Made by root for all to read: a repetition by somebody who may read gets what he may, and no more.
    let rig = Rig::new("log").await;
    let mut root = Creator::new(&rig, HONEST, Way::V41(1), "root").await;
    let (fh, _) = root.create(0, "readable", VERF).await.expect("it is new");
    let times = times(&rig.path("readable"));
    std::fs::set_permissions(rig.path("readable"), std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .expect("a mode");
    set_times(&rig.path("readable"), times);
    let mut reader = Creator::new(&rig, ROOT_SQUASH, Way::V41(1), "reader").await;
    assert_eq!(reader.create(1000, "readable", VERF).await.err(), Some(NfsStat::NFS4ERR_ACCESS));
    let party = reader.party.as_mut().expect("a client");
    let how = OpenHow::Create(CreateHow::Exclusive41 { verf: VERF, attrs: Fattr::default() });
    let opened = party.open(&mut reader.wire, 1000, "readable", OPEN4_SHARE_ACCESS_READ, how).await;
    let (found, stateid, ..) = opened.expect("he may read");
    assert_eq!(found.0, fh);
    let put = ArgOp::Putfh(found);
    assert_ok(&party.run(&mut reader.wire, 1000, vec![put.clone(), read_op(stateid, 0, 10)]).await);
    let status = party.status(&mut reader.wire, 1000, vec![put, write_op(stateid, 0, b"x")]).await;
    assert_eq!(status, NfsStat::NFS4ERR_OPENMODE);
}
