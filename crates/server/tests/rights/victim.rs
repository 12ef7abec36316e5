//! A server, and an honest client of it that has files open and locked.

use super::wire::Wire;
use crate::common::*;
use crate::v40::setclientid_op;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::flags::OPEN4_SHARE_ACCESS_BOTH;
use landfast_nfs::v4::v40::*;
use landfast_nfs::v4::*;
use landfast_server::exports::Features;
use landfast_server::{Running, Served, Server, ServerConfig, config};
use landfast_volume::{OpenOptions, Volume};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Who is who: the last number of the address.
pub const HONEST: u8 = 1;
pub const ROOT_SQUASH: u8 = 2;
pub const ALL_SQUASH: u8 = 3;
pub const READ_ONLY: u8 = 4;
pub const OUTSIDER: u8 = 5;
pub const NOBODY: u32 = 65534;

const RULES: &str = r#"
    { from = "127.0.0.1", options = ["rw", "no_root_squash", "insecure"] },
    { from = "127.0.0.2", options = ["rw", "root_squash", "insecure"] },
    { from = "127.0.0.3", options = ["rw", "all_squash", "insecure"] },
    { from = "127.0.0.4", options = ["ro", "no_root_squash", "insecure"] },
"#;

/// Exports with other rules, for the same host.
pub const SEVERAL: &[(&str, &str)] = &[
    ("/a", RULES),
    ("/root-squash", "{ from = \"*\", options = [\"rw\", \"root_squash\", \"insecure\"] }"),
    ("/all-squash", "{ from = \"*\", options = [\"rw\", \"all_squash\", \"insecure\"] }"),
    ("/read-only", "{ from = \"*\", options = [\"ro\", \"no_root_squash\", \"insecure\"] }"),
];

/// A server of one directory, which everybody may write.
pub struct Rig {
    pub dir: tempfile::TempDir,
    pub durability: &'static str,
    pub running: Option<Running>,
    lease_seconds: u32,
}

impl Rig {
    pub async fn new(durability: &'static str) -> Rig {
        Rig::with(durability, 90).await
    }

    pub async fn with(durability: &'static str, lease_seconds: u32) -> Rig {
        let dir =
            tempfile::Builder::new().prefix("landfast-rights-").tempdir_in("/var/tmp").expect("a directory");
        let data = dir.path().join("data");
        std::fs::create_dir(&data).expect("the export");
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o777)).expect("open to all");
        let mut rig = Rig { dir, durability, running: None, lease_seconds };
        rig.start().await;
        rig
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join("data").join(file)
    }

    /// A server of four directories, `/a` as that of [`Rig::new`], the others with other rules for the same hosts.
    pub async fn of_several() -> Rig {
        let dir =
            tempfile::Builder::new().prefix("landfast-rights-").tempdir_in("/var/tmp").expect("a directory");
        for (name, _) in SEVERAL {
            let data = dir.path().join(&name[1..]);
            std::fs::create_dir(&data).expect("the export");
            std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o777)).expect("open to all");
        }
        let mut rig = Rig { dir, durability: "unsafe", running: None, lease_seconds: 90 };
        rig.start_with(SEVERAL).await;
        rig
    }

    async fn start(&mut self) {
        self.start_with(&[("/data", RULES)]).await;
    }

    /// One export has the name `/`.
    async fn start_with(&mut self, exports: &[(&str, &str)]) {
        let log = match self.durability {
            "log" => {
                format!("log = {{ path = \"{}\", size = \"16M\" }}\n", self.dir.path().join("log").display())
            }
            _ => String::new(),
        };
        let mut text = "listen = \"127.0.0.1:0\"\n".to_owned();
        for (name, rules) in exports {
            text += &format!(
                "[[export]]\npath = \"{}\"\nname = \"{}\"\ndurability = \"{}\"\n{log}clients = [{rules}]\n",
                self.dir.path().join(&name[1..]).display(),
                if exports.len() == 1 { "/" } else { name },
                self.durability,
            );
        }
        let config = config::parse(&text).unwrap_or_else(|p| panic!("{p:?}"));
        let served = config.exports.iter().map(|e| {
            let (volume, recovery) = Volume::open(OpenOptions {
                log: e.log.clone(),
                log_size: 16 << 20,
                accept_weak: true,
                ..OpenOptions::new(&e.path, e.durability)
            })
            .expect("the volume opens");
            Served {
                volume,
                recovery,
                path: e.path.clone(),
                name: e.name.clone(),
                rules: e.rules.clone(),
                manage_gids: false,
                features: Features::default(),
            }
        });
        let usual = ServerConfig::of(served.collect(), config.listen.clone());
        let config = ServerConfig { workers: 4, lease_seconds: self.lease_seconds, ..usual };
        self.running = Some(Server::start(config).await.expect("the server starts"));
    }

    pub fn addr(&self) -> SocketAddr {
        self.running.as_ref().expect("a server").local_addr()
    }

    pub async fn from(&self, host: u8) -> Wire {
        Wire::from(host, self.addr()).await
    }

    pub async fn crash(&mut self) {
        self.running.take().expect("a server").abandon().await;
        self.start().await;
    }

    pub async fn restart(&mut self) {
        self.running.take().expect("a server").stop().await.expect("a clean stop");
        self.start().await;
    }
}

/// A client of any minor version, known to the server: whoever knows its session (or, in 4.0, its stateids) can speak for it.
pub struct Party {
    pub minor: u32,
    pub id: u64,
    pub session: SessionId,
    sequence: u32,
    pub opens: u32,
    /// Where the files are that it opens by name: below the server's root.
    pub at: Option<&'static str>,
}

impl Party {
    pub async fn new(wire: &mut Wire, minor: u32, name: &[u8]) -> Party {
        if minor == 0 {
            let set = wire.compound(0, 0, vec![setclientid_op(name, 1, "127.0.0.1.3.4")]).await;
            let ResBody::Setclientid(set) = &set.results[0].body else { panic!("{set:?}") };
            let args = SetclientidConfirmArgs { clientid: set.clientid, confirm: set.confirm };
            let res = wire.compound(0, 0, vec![ArgOp::SetclientidConfirm(args)]).await;
            assert_eq!(res.status, NfsStat::NFS4_OK);
            return Party { minor, id: set.clientid, session: [0; 16], sequence: 0, opens: 0, at: None };
        }
        Party::instance(wire, minor, name, 1).await
    }

    /// The client of this name with this verifier of its instance, in NFSv4.1 and 4.2.
    pub async fn instance(wire: &mut Wire, minor: u32, name: &[u8], verifier: u8) -> Party {
        let mut party = Party::begin_instance(wire, minor, name, verifier).await;
        assert_ok(&party.run(wire, 0, vec![ArgOp::ReclaimComplete(false)]).await);
        party
    }

    /// A client with a session that has done nothing yet.
    pub async fn begin(wire: &mut Wire, minor: u32, name: &[u8]) -> Party {
        Party::begin_instance(wire, minor, name, 1).await
    }

    async fn begin_instance(wire: &mut Wire, minor: u32, name: &[u8], verifier: u8) -> Party {
        let res = wire.compound(0, minor, vec![ArgOp::ExchangeId(exchange_args(name, verifier))]).await;
        let ResBody::ExchangeId(ex) = &res.results[0].body else { panic!("{res:?}") };
        // One that outlasts the server may not create with EXCLUSIVE4 (RFC 8881 section 18.16.3).
        let args = CreateSessionArgs { flags: 0, ..session_args(ex.clientid, ex.sequenceid) };
        let res = wire.compound(0, minor, vec![ArgOp::CreateSession(args)]).await;
        let ResBody::CreateSession(made) = &res.results[0].body else { panic!("{res:?}") };
        Party { minor, id: ex.clientid, session: made.sessionid, sequence: 0, opens: 0, at: None }
    }

    /// A new file that everybody may read and write.
    pub async fn file_for_all(&mut self, wire: &mut Wire, file: &str) -> FileHandle {
        let how = OpenHow::Create(CreateHow::Guarded(mode(0o666)));
        let made = self.open(wire, 0, file, OPEN4_SHARE_ACCESS_BOTH, how).await;
        made.expect("a file for all").0
    }

    /// A request in the party's name, by this user from there. The results without that of SEQUENCE.
    pub async fn run(&mut self, wire: &mut Wire, uid: u32, mut ops: Vec<ArgOp>) -> Vec<ResOp> {
        if self.minor == 0 {
            return wire.compound(uid, 0, ops).await.results;
        }
        self.sequence += 1;
        let sequence = SequenceArgs {
            sessionid: self.session,
            sequenceid: self.sequence,
            slotid: 0,
            highest_slotid: 0,
            cachethis: false,
        };
        ops.insert(0, ArgOp::Sequence(sequence));
        let mut res = wire.compound(uid, self.minor, ops).await.results;
        if res[0].status == NfsStat::NFS4ERR_ACCESS {
            // It was not heard: the slot is as it was.
            self.sequence -= 1;
            return res;
        }
        assert_eq!(res.remove(0).status, NfsStat::NFS4_OK, "SEQUENCE");
        res
    }

    /// The last status.
    pub async fn status(&mut self, wire: &mut Wire, uid: u32, ops: Vec<ArgOp>) -> NfsStat {
        self.run(wire, uid, ops).await.last().expect("a result").status
    }

    fn open_op(&mut self, owner_name: &str, access: u32, how: OpenHow, file: &str) -> ArgOp {
        ArgOp::Open(OpenArgs {
            seqid: 1,
            share_access: access,
            share_deny: 0,
            owner: owner(self.id, owner_name.as_bytes()),
            openhow: how,
            claim: OpenClaim::Null(name(file)),
        })
    }

    /// OPEN of a name in the root by a new open owner, confirmed where it must be: handle, stateid, the owner's name and number.
    /// Waits for the end of a grace period.
    pub async fn open(
        &mut self,
        wire: &mut Wire,
        uid: u32,
        file: &str,
        access: u32,
        how: OpenHow,
    ) -> Result<(FileHandle, Stateid, String, u32), NfsStat> {
        let begun = Instant::now();
        let (owner, res) = loop {
            self.opens += 1;
            let owner = format!("owner-{}", self.opens);
            let open = self.open_op(&owner, access, how.clone(), file);
            let mut ops = vec![ArgOp::Putrootfh];
            ops.extend(self.at.map(|export| ArgOp::Lookup(name(export))));
            ops.extend([open, ArgOp::Getfh]);
            let res = self.run(wire, uid, ops).await;
            match res.last().expect("a result").status {
                NfsStat::NFS4_OK => break (owner, res),
                NfsStat::NFS4ERR_GRACE if begun.elapsed() < PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                status => return Err(status),
            }
        };
        let [.., ResOp { body: ResBody::Open(open), .. }, ResOp { body: ResBody::Getfh(fh), .. }] = &res[..]
        else {
            panic!("{res:?}")
        };
        let (mut stateid, mut seqid) = (open.stateid, 1);
        if self.minor == 0 {
            seqid = 2;
            let confirm = ArgOp::OpenConfirm(OpenConfirmArgs { open_stateid: stateid, seqid });
            let res = self.run(wire, uid, vec![ArgOp::Putfh(fh.clone()), confirm]).await;
            let ResBody::OpenConfirm(now) = res[1].body else { panic!("{res:?}") };
            stateid = now;
        }
        Ok((fh.clone(), stateid, owner, seqid))
    }
}

/// A file that somebody has made, has open for reading and writing, and has locked, byte 0.
pub struct Victim {
    pub client: u64,
    pub file: String,
    pub fh: FileHandle,
    /// A file that everybody may read and write.
    pub common: FileHandle,
    pub open: Stateid,
    pub lock: Stateid,
    pub owner: String,
    /// The last number of the open owner.
    pub open_seqid: u32,
}

pub const SECRET: &[u8] = b"nobody else's business";

impl Victim {
    /// `uid` makes and opens the file with this mode.
    pub async fn new(
        party: &mut Party,
        wire: &mut Wire,
        (uid, file_mode): (u32, u32),
        common: &FileHandle,
    ) -> Victim {
        let file = format!("victim-{}-{}", party.minor, party.opens);
        let how = OpenHow::Create(CreateHow::Guarded(mode(file_mode)));
        let opened = party.open(wire, uid, &file, OPEN4_SHARE_ACCESS_BOTH, how).await;
        let (fh, open, owner_name, seqid) = opened.expect("the file is made");
        let lock_owner = owner(party.id, owner_name.as_bytes());
        let locker = Locker::New { open_seqid: seqid + 1, open_stateid: open, lock_seqid: 1, lock_owner };
        let locktype = LockType::Write;
        let lock = ArgOp::Lock(LockArgs { locktype, reclaim: false, offset: 0, length: 1, locker });
        let res = party.run(wire, uid, vec![ArgOp::Putfh(fh.clone()), write_op(open, 0, SECRET), lock]).await;
        assert_ok(&res);
        let ResBody::Lock(lock) = res[2].body else { panic!("{res:?}") };
        let (client, common) = (party.id, common.clone());
        Victim { client, file, fh, common, open, lock, owner: owner_name, open_seqid: seqid + 1 }
    }

    /// Closes what is still open of it, whatever number its owner has come to: an address may have so many opens.
    pub async fn close(self, party: &mut Party, wire: &mut Wire) {
        let open_stateid = Stateid { seqid: if party.minor == 0 { self.open.seqid } else { 0 }, ..self.open };
        for seqid in [self.open_seqid + 1, self.open_seqid + 2] {
            let close = ArgOp::Close(CloseArgs { seqid, open_stateid });
            if party.status(wire, 0, vec![self.put(), close]).await != NfsStat::NFS4ERR_BAD_SEQID {
                break;
            }
        }
    }

    pub fn put(&self) -> ArgOp {
        ArgOp::Putfh(self.fh.clone())
    }
}
