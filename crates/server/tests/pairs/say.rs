//! How an act is said in each version.

use super::acts::{Op, Version};
use super::common::v3::{self as three, V3};
use super::common::{Raw, Rig, fattr, mode, name};
use super::v40;
use landfast_nfs::v3::{self, Call, args as args3, types as types3};
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number;
use landfast_nfs::v4::data::*;
use landfast_nfs::v4::res::*;
use landfast_nfs::v4::*;
use landfast_nfs::{PROGRAM, nfsacl};
use landfast_rpc::conn::Target;
use landfast_xdr::{Bytes, Decode, Encode};
use std::time::Duration;

/// Longer than any hold.
const PATIENCE: Duration = Duration::from_secs(300);
/// Slots that a session is made with: as many as the server gives.
const SLOTS: usize = 256;

/// The handles of one pair's directory.
#[derive(Debug, Clone)]
pub struct Place {
    pub dir: FileHandle,
    pub x: FileHandle,
    pub y: FileHandle,
    pub s: FileHandle,
    pub f: FileHandle,
    pub k: FileHandle,
}

/// One of the two clients.
pub struct Speaker {
    version: Version,
    raw: Raw,
    client: u64,
    sessions: Vec<SessionId>,
    /// The number of the last request of each slot; a pair has its own.
    numbers: Vec<u32>,
    /// Of its open of `x`, in each pair that has one.
    opens: Vec<Option<Stateid>>,
    /// It writes this.
    byte: u8,
}

/// A call that is ready to be sent.
pub struct Said {
    raw: Raw,
    to: Target,
    body: Bytes,
    compound: bool,
}

/// Its answer.
#[derive(Debug, Clone)]
pub struct Heard {
    pub status: u32,
    stateid: Option<Stateid>,
}

impl Said {
    pub async fn send(self) -> Heard {
        let body = self.raw.conn.call(self.to, &self.raw.cred.to_opaque(), vec![self.body], PATIENCE).await;
        let body = body.expect("an answer");
        if !self.compound {
            return Heard { status: u32::from_bytes(body.slice(..4)).expect("a status"), stateid: None };
        }
        let res = CompoundRes::from_bytes(body).expect("a COMPOUND result");
        let stateid = res.results.iter().find_map(|r| match &r.body {
            ResBody::Open(o) => Some(o.stateid),
            ResBody::OpenConfirm(stateid) => Some(*stateid),
            _ => None,
        });
        Heard { status: res.status.0, stateid }
    }
}

fn three(fh: &FileHandle) -> v3::FileHandle {
    v3::FileHandle(fh.0.clone())
}

fn sized(size: u64) -> Fattr {
    fattr(AttrValues { size: Some(size), ..AttrValues::default() })
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
    nfsacl::SetaclArgs { object: three(object), lists }.to_bytes()
}

impl Speaker {
    /// A client for so many pairs; `byte` is its name, too.
    pub async fn new(rig: &Rig, version: Version, byte: u8, pairs: usize) -> Speaker {
        let mut raw = rig.raw().await;
        raw.minor = version.minor();
        let (mut client, mut sessions) = (0, Vec::new());
        match version {
            Version::V3 => {
                // Mounts, as clients do.
                let _ = V3::new(rig).await;
            }
            Version::V40 => client = v40::Client40::new(rig, &[byte]).await.id,
            _ => {
                let ex = raw.exchange_id(&[byte], 1).await;
                client = ex.clientid;
                for n in 0..pairs.div_ceil(SLOTS) {
                    let mut args = super::common::session_args(client, ex.sequenceid + n as u32);
                    let fore = &mut args.fore_chan_attrs;
                    (fore.max_requests, fore.max_response_size_cached) = (SLOTS as u32, 600);
                    let made = raw.create_session(args).await;
                    assert_eq!(made.fore_chan_attrs.max_requests as usize, SLOTS, "slots");
                    sessions.push(made.sessionid);
                }
            }
        }
        let mut it = Speaker {
            version,
            raw,
            client,
            sessions,
            numbers: vec![0; pairs],
            opens: vec![None; pairs],
            byte,
        };
        if !it.sessions.is_empty() {
            let heard = it.compound(0, vec![ArgOp::ReclaimComplete(false)]).send().await;
            assert_eq!(heard.status, 0, "RECLAIM_COMPLETE");
        }
        it
    }

    fn compound(&mut self, pair: usize, mut ops: Vec<ArgOp>) -> Said {
        if !self.sessions.is_empty() {
            self.numbers[pair] += 1;
            let sequence = ArgOp::Sequence(SequenceArgs {
                sessionid: self.sessions[pair / SLOTS],
                sequenceid: self.numbers[pair],
                slotid: (pair % SLOTS) as u32,
                highest_slotid: SLOTS as u32 - 1,
                cachethis: false,
            });
            ops.insert(0, sequence);
        }
        let to =
            Target { prog: PROGRAM, vers: landfast_nfs::v4::VERSION, proc: landfast_nfs::v4::PROC_COMPOUND };
        Said { body: self.raw.encode(ops), raw: self.raw.clone(), to, compound: true }
    }

    /// Returns when the answers have come that were ready before.
    pub async fn fence(&self) {
        let vers = if self.version == Version::V3 { v3::VERSION } else { landfast_nfs::v4::VERSION };
        let to = Target { prog: PROGRAM, vers, proc: 0 };
        let done = self.raw.conn.call(to, &self.raw.cred.to_opaque(), Vec::new(), PATIENCE).await;
        assert_eq!(done.map(|body| body.len()), Ok(0), "NULL");
    }

    /// What this client has done before anything is held: written to the file, opened it.
    pub async fn prepare(&mut self, pair: usize, place: &Place, op: Op) {
        if matches!(op, Op::WriteOpen | Op::SetSizeOpen | Op::CommitOpen) {
            let open = self.open(pair, "held", "x", OpenHow::NoCreate);
            let mut heard = self.compound(pair, vec![ArgOp::Putfh(place.dir.clone()), open]).send().await;
            assert_eq!(heard.status, 0, "OPEN");
            if self.version == Version::V40 {
                let confirm = v40::confirm_op(heard.stateid.expect("a stateid"), 2);
                heard = self.compound(pair, vec![ArgOp::Putfh(place.x.clone()), confirm]).send().await;
                assert_eq!(heard.status, 0, "OPEN_CONFIRM");
            }
            self.opens[pair] = heard.stateid;
        }
        if matches!(op, Op::CommitOwn | Op::CommitOpen) {
            let heard = self.say(pair, place, Op::WriteUnstable).send().await;
            assert_eq!(heard.status, 0, "WRITE UNSTABLE");
        }
    }

    /// `owner`: one for each request, since an owner of NFSv4.0 is busy until its request is answered.
    fn open(&self, pair: usize, owner: &str, file: &str, openhow: OpenHow) -> ArgOp {
        ArgOp::Open(OpenArgs {
            seqid: 1,
            share_access: 3,
            share_deny: 0,
            owner: landfast_nfs::v4::args::owner(self.client, format!("{owner} {pair}").as_bytes()),
            openhow,
            claim: OpenClaim::Null(name(file)),
        })
    }

    /// An act, ready to be sent.
    pub fn say(&mut self, pair: usize, place: &Place, op: Op) -> Said {
        if self.version == Version::V3 {
            return self.say3(place, op);
        }
        let ops = self.ops(pair, place, op);
        self.compound(pair, ops)
    }

    fn say3(&self, place: &Place, op: Op) -> Said {
        let to = Target { prog: PROGRAM, vers: v3::VERSION, proc: 0 };
        if op == Op::SetAcl {
            let to = Target { prog: nfsacl::PROGRAM, vers: nfsacl::VERSION, proc: nfsacl::proc::SETACL };
            return Said { raw: self.raw.clone(), to, body: acl3(&place.x), compound: false };
        }
        let call = self.call3(place, op);
        let to = Target { proc: call.number(), ..to };
        Said { raw: self.raw.clone(), to, body: call.to_bytes(), compound: false }
    }

    fn call3(&self, place: &Place, op: Op) -> Call {
        use args3::*;
        let (dir, x) = (three(&place.dir), three(&place.x));
        let at = |name: &str| three::at(&dir, name);
        let make = |name: &str, how| three::create(&dir, name, how);
        let attrs = three::mode(0o640);
        let sattr = v3::Sattr::default();
        let set = |attrs| three::setattr(&x, attrs);
        let fifo =
            |name: &str| Call::Mknod(MknodArgs { at: at(name), what: MknodWhat::Fifo(three::mode(0o640)) });
        let link = |name: &str| {
            let attrs = v3::Sattr::default();
            Call::Symlink(SymlinkArgs { at: at(name), attrs, target: three::name("target") })
        };
        let rename = |from: &str, to: &str| Call::Rename(RenameArgs { from: at(from), to: at(to) });
        let names = |name: &str| Call::Link(LinkArgs { file: x.clone(), link: at(name) });
        let time = |seconds| types3::SetTime::Client(v3::Time { seconds, nseconds: 5 });
        match op {
            Op::CreateGuarded => make("n", CreateHow::Guarded(attrs)),
            Op::CreateUnchecked => make("n", CreateHow::Unchecked(attrs)),
            Op::CreateExclusive => make("n", CreateHow::Exclusive(*b"verifier")),
            Op::CreateUncheckedThere => make("x", CreateHow::Unchecked(sattr)),
            Op::CreateTruncating => make("x", CreateHow::Unchecked(v3::Sattr { size: Some(0), ..sattr })),
            Op::CreateGuardedThere => make("x", CreateHow::Guarded(attrs)),
            Op::CreateExclusiveThere => make("x", CreateHow::Exclusive(*b"verifier")),
            Op::Mkdir => Call::Mkdir(MkdirArgs { at: at("n"), attrs }),
            Op::MkdirThere => Call::Mkdir(MkdirArgs { at: at("x"), attrs }),
            Op::Symlink => link("n"),
            Op::SymlinkThere => link("x"),
            Op::Mknod => fifo("n"),
            Op::MknodThere => fifo("x"),
            Op::Remove => Call::Remove(at("x")),
            Op::RemoveOneOfTwo => Call::Remove(at("l")),
            Op::RemoveMissing => Call::Remove(at("m")),
            Op::Rmdir => Call::Rmdir(at("s")),
            Op::RmdirFull => Call::Rmdir(at("f")),
            Op::Rename => rename("y", "n"),
            Op::RenameOver => rename("y", "x"),
            Op::RenameSame => rename("h", "l"),
            Op::RenameMissing => rename("m", "n"),
            Op::RenameOverFull => rename("s", "f"),
            Op::RenameInto => {
                let to = three::at(&three(&place.s), "n");
                Call::Rename(RenameArgs { from: at("y"), to })
            }
            Op::RemoveInDir => Call::Remove(three::at(&three(&place.f), "e")),
            Op::Link => names("n"),
            Op::LinkThere => names("y"),
            Op::MakeInDir => three::create(&three(&place.s), "n", CreateHow::Guarded(attrs)),
            Op::SetMode => set(three::mode(0o600 + u32::from(self.byte % 8))),
            Op::SetSize => set(v3::Sattr { size: Some(100 + u64::from(self.byte)), ..sattr }),
            Op::SetTimes => {
                let mtime = time(1_000_000 + u32::from(self.byte));
                set(v3::Sattr { atime: time(1000), mtime, ..sattr })
            }
            Op::SetNothing => set(sattr),
            Op::SetGuarded => {
                let guard = Some(v3::Time { seconds: 1, nseconds: 1 });
                Call::Setattr(SetattrArgs { object: x, attrs, guard })
            }
            Op::WriteSync => three::write(&x, 0, &[self.byte; 100], types3::StableHow::FileSync),
            Op::WriteUnstable => three::write(&x, 1000, &[self.byte; 100], types3::StableHow::Unstable),
            Op::Commit | Op::CommitOwn => Call::Commit(CommitArgs { file: x, offset: 0, count: 0 }),
            Op::Lookup => Call::Lookup(at("x")),
            Op::LookupMissing => Call::Lookup(at("m")),
            Op::GetattrFile => Call::Getattr(x),
            Op::GetattrDir => Call::Getattr(dir),
            Op::Read => Call::Read(ReadArgs { file: x, offset: 0, count: 100 }),
            Op::Readdir => Call::Readdirplus(ReaddirplusArgs {
                dir,
                cookie: 0,
                cookieverf: [0; 8],
                dircount: 4096,
                maxcount: 8192,
            }),
            Op::Access => Call::Access(AccessArgs { object: x, access: 0x3f }),
            Op::Readlink => Call::Readlink(three(&place.k)),
            other => panic!("{other:?} is not in version 3"),
        }
    }

    fn ops(&self, pair: usize, place: &Place, op: Op) -> Vec<ArgOp> {
        let within = |dir: &FileHandle, op| vec![ArgOp::Putfh(dir.clone()), op];
        let (in_dir, on_x) = (|op| within(&place.dir, op), |op| within(&place.x, op));
        let anonymous = Stateid::ANONYMOUS;
        let held = self.opens.get(pair).copied().flatten().unwrap_or(anonymous);
        let open = |file: &str, how| in_dir(self.open(pair, "act", file, OpenHow::Create(how)));
        let exclusive = || match self.version {
            Version::V40 => CreateHow::Exclusive(*b"verifier"),
            _ => CreateHow::Exclusive41 { verf: *b"verifier", attrs: mode(0o640) },
        };
        let make =
            |kind, new: &str| in_dir(ArgOp::Create(CreateArgs { kind, name: name(new), attrs: mode(0o750) }));
        let rename = |from: &str, to: &str| {
            let rename = ArgOp::Rename(RenameArgs { oldname: name(from), newname: name(to) });
            vec![ArgOp::Putfh(place.dir.clone()), ArgOp::Savefh, rename]
        };
        let link = |new: &str| {
            let (x, dir) = (ArgOp::Putfh(place.x.clone()), ArgOp::Putfh(place.dir.clone()));
            vec![x, ArgOp::Savefh, dir, ArgOp::Link(name(new))]
        };
        let set = |stateid, attrs| on_x(ArgOp::Setattr(SetattrArgs { stateid, attrs }));
        let write = |stateid, offset, stable| {
            let data = Bytes::from(vec![self.byte; 100]);
            on_x(ArgOp::Write(WriteArgs { stateid, offset, stable, data }))
        };
        let commit = || on_x(ArgOp::Commit(CommitArgs { offset: 0, count: 0 }));
        let xattr = |option, key: &str| {
            on_x(ArgOp::Setxattr(SetxattrArgs {
                option,
                key: name(key),
                value: Bytes::from(vec![self.byte; 20]),
            }))
        };
        let range = |offset| RangeArgs { stateid: anonymous, offset, length: 4096 };
        let from_y = |op| {
            let (y, x) = (ArgOp::Putfh(place.y.clone()), ArgOp::Putfh(place.x.clone()));
            vec![y, ArgOp::Savefh, x, op]
        };
        let time = |seconds| SetTime::ClientTime(NfsTime { seconds, nseconds: 5 });
        match op {
            Op::CreateGuarded => open("n", CreateHow::Guarded(mode(0o640))),
            Op::CreateUnchecked => open("n", CreateHow::Unchecked(mode(0o640))),
            Op::CreateExclusive => open("n", exclusive()),
            Op::CreateUncheckedThere => open("x", CreateHow::Unchecked(Fattr::default())),
            Op::CreateTruncating => open("x", CreateHow::Unchecked(sized(0))),
            Op::CreateGuardedThere => open("x", CreateHow::Guarded(mode(0o640))),
            Op::CreateExclusiveThere => open("x", exclusive()),
            Op::Mkdir => make(CreateType::Dir, "n"),
            Op::MkdirThere => make(CreateType::Dir, "x"),
            Op::Symlink => make(CreateType::Lnk(name("target")), "n"),
            Op::SymlinkThere => make(CreateType::Lnk(name("target")), "x"),
            Op::Mknod => make(CreateType::Fifo, "n"),
            Op::MknodThere => make(CreateType::Fifo, "x"),
            Op::Remove => in_dir(ArgOp::Remove(name("x"))),
            Op::RemoveOneOfTwo => in_dir(ArgOp::Remove(name("l"))),
            Op::RemoveMissing => in_dir(ArgOp::Remove(name("m"))),
            Op::Rmdir => in_dir(ArgOp::Remove(name("s"))),
            Op::RmdirFull => in_dir(ArgOp::Remove(name("f"))),
            Op::Rename => rename("y", "n"),
            Op::RenameOver => rename("y", "x"),
            Op::RenameSame => rename("h", "l"),
            Op::RenameMissing => rename("m", "n"),
            Op::RenameOverFull => rename("s", "f"),
            Op::RenameInto => {
                let rename = ArgOp::Rename(RenameArgs { oldname: name("y"), newname: name("n") });
                vec![ArgOp::Putfh(place.dir.clone()), ArgOp::Savefh, ArgOp::Putfh(place.s.clone()), rename]
            }
            Op::RemoveInDir => within(&place.f, ArgOp::Remove(name("e"))),
            Op::Link => link("n"),
            Op::LinkThere => link("y"),
            Op::MakeInDir => {
                let kind = CreateType::Dir;
                within(&place.s, ArgOp::Create(CreateArgs { kind, name: name("n"), attrs: mode(0o750) }))
            }
            Op::SetMode => set(anonymous, mode(0o600 + u32::from(self.byte % 8))),
            Op::SetSize => set(anonymous, sized(100 + u64::from(self.byte))),
            Op::SetSizeOpen => set(held, sized(100 + u64::from(self.byte))),
            Op::SetTimes => {
                let mtime = Some(time(1_000_000 + i64::from(self.byte)));
                let (time_access_set, time_modify_set) = (Some(time(1000)), mtime);
                let times = AttrValues { time_access_set, time_modify_set, ..AttrValues::default() };
                set(anonymous, fattr(times))
            }
            Op::SetNothing => set(anonymous, Fattr::default()),
            Op::SetAcl => set(anonymous, acl()),
            Op::WriteSync => write(anonymous, 0, StableHow::FileSync),
            Op::WriteUnstable => write(held, 1000, StableHow::Unstable),
            Op::WriteOpen => write(held, 0, StableHow::FileSync),
            Op::Commit | Op::CommitOwn | Op::CommitOpen => commit(),
            Op::SetxattrNew => xattr(SetxattrOption::Either, "new"),
            Op::SetxattrThere => xattr(SetxattrOption::Replace, "there"),
            Op::SetxattrMissing => xattr(SetxattrOption::Replace, "missing"),
            Op::Removexattr => on_x(ArgOp::Removexattr(name("there"))),
            Op::RemovexattrMissing => on_x(ArgOp::Removexattr(name("missing"))),
            Op::Allocate => on_x(ArgOp::Allocate(range(8192))),
            Op::Deallocate => on_x(ArgOp::Deallocate(range(0))),
            Op::Copy => from_y(ArgOp::Copy(CopyArgs {
                src_stateid: anonymous,
                dst_stateid: anonymous,
                src_offset: 0,
                dst_offset: 0,
                count: 1000,
                consecutive: true,
                synchronous: true,
                source_server: Vec::new(),
            })),
            Op::Clone => from_y(ArgOp::Clone(CloneArgs {
                src_stateid: anonymous,
                dst_stateid: anonymous,
                src_offset: 0,
                dst_offset: 0,
                count: 4096,
            })),
            Op::Lookup => in_dir(ArgOp::Lookup(name("x"))),
            Op::LookupMissing => in_dir(ArgOp::Lookup(name("m"))),
            Op::GetattrFile => on_x(ArgOp::Getattr(Bitmap::of(&[number::SIZE, number::MODE]))),
            Op::GetattrDir => in_dir(ArgOp::Getattr(Bitmap::of(&[number::CHANGE]))),
            Op::Read => on_x(super::common::read_op(anonymous, 0, 100)),
            Op::Readdir => in_dir(super::common::readdir_op(0, 4096, 8192, &[number::FILEID])),
            Op::Access => on_x(ArgOp::Access(0x3f)),
            Op::Readlink => within(&place.k, ArgOp::Readlink),
            Op::Open => in_dir(self.open(pair, "act", "x", OpenHow::NoCreate)),
            Op::Getxattr => on_x(ArgOp::Getxattr(name("there"))),
            Op::SetGuarded => panic!("{op:?} is in version 3 alone"),
        }
    }
}

/// The handles of the pairs' directories below the root, as a client of its own finds them.
pub async fn places(rig: &Rig, names: &[String]) -> Vec<Place> {
    /// Of what one COMPOUND may have.
    const AT_ONCE: usize = 6;
    let mut c = rig.client(b"places").await;
    let mut all = Vec::new();
    for names in names.chunks(AT_ONCE) {
        let mut ops = Vec::new();
        for dir in names {
            ops.extend([ArgOp::Putrootfh, ArgOp::Lookup(name(dir)), ArgOp::Getfh, ArgOp::Savefh]);
            for within in ["x", "y", "s", "f", "k"] {
                ops.extend([ArgOp::Restorefh, ArgOp::Lookup(name(within)), ArgOp::Getfh]);
            }
        }
        let res = c.run(ops).await;
        let handles = res.iter().filter_map(|r| match &r.body {
            ResBody::Getfh(fh) => Some(fh.clone()),
            _ => None,
        });
        let handles: Vec<_> = handles.collect();
        for each in handles.chunks_exact(6) {
            let [dir, x, y, s, f, k] = [0, 1, 2, 3, 4, 5].map(|i: usize| each[i].clone());
            all.push(Place { dir, x, y, s, f, k });
        }
    }
    assert_eq!(all.len(), names.len());
    all
}
