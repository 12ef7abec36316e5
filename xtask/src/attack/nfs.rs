//! The calls of NFSv3 (RFC 1813) and operations of NFSv4 (RFC 7530, RFC 8881, RFC 7862) that the honest client and
//! the attackers send.

use super::wire::{Link, MOUNT, NFS, Reader, User, Xdr};

pub const OK: u32 = 0;

pub const COMPLETE_ALREADY: u32 = 10054;

pub const FALSE_RETRY: u32 = 10076;

pub mod v3 {
    use super::*;

    /// MNT of a path in the pseudo root.
    pub fn mount(link: &mut Link, user: User, path: &str) -> Result<Vec<u8>, String> {
        let results = link.call((MOUNT, 3, 1), Some(user), &Xdr::default().opaque(path.as_bytes()))?;
        let mut reader = Reader(&results);
        match reader.u32()? {
            OK => Ok(reader.opaque()?.to_vec()),
            status => Err(format!("MNT of {path}: status {status}")),
        }
    }

    fn status(link: &mut Link, procedure: u32, user: User, args: &Xdr) -> Result<u32, String> {
        Reader(&link.call((NFS, 3, procedure), Some(user), args)?).u32()
    }

    pub fn getattr(link: &mut Link, user: User, file: &[u8]) -> Result<u32, String> {
        status(link, 1, user, &Xdr::default().opaque(file))
    }

    pub fn lookup(link: &mut Link, user: User, dir: &[u8], name: &str) -> Result<Vec<u8>, String> {
        let args = Xdr::default().opaque(dir).opaque(name.as_bytes());
        let results = link.call((NFS, 3, 3), Some(user), &args)?;
        let mut reader = Reader(&results);
        match reader.u32()? {
            OK => Ok(reader.opaque()?.to_vec()),
            status => Err(format!("LOOKUP of {name}: status {status}")),
        }
    }

    pub fn read_args(file: &[u8], offset: u64, count: u32) -> Xdr {
        Xdr::default().opaque(file).u64(offset).u32(count)
    }

    pub fn read(link: &mut Link, user: User, file: &[u8], count: u32) -> Result<u32, String> {
        status(link, 6, user, &read_args(file, 0, count))
    }

    /// WRITE; `stable` is `stable_how`.
    pub fn write(link: &mut Link, user: User, file: &[u8], stable: u32, data: &[u8]) -> Result<u32, String> {
        let count = u32::try_from(data.len()).unwrap_or(0);
        let args = Xdr::default().opaque(file).u64(0).u32(count).u32(stable).opaque(data);
        status(link, 7, user, &args)
    }

    pub fn create_exclusive(
        link: &mut Link,
        user: User,
        dir: &[u8],
        name: &str,
        verifier: [u32; 2],
    ) -> Result<u32, String> {
        let args = Xdr::default().opaque(dir).opaque(name.as_bytes()).u32(2);
        status(link, 8, user, &args.u32(verifier[0]).u32(verifier[1]))
    }

    pub fn commit(link: &mut Link, user: User, file: &[u8]) -> Result<u32, String> {
        status(link, 21, user, &Xdr::default().opaque(file).u64(0).u32(0))
    }
}

/// Builds one COMPOUND of minor version 1 or 2.
#[derive(Clone, Debug, Default)]
pub struct Ops {
    args: Xdr,
    count: u32,
}

impl Ops {
    fn op(self, number: u32, args: &Xdr) -> Ops {
        Ops { args: self.args.u32(number).then(args), count: self.count + 1 }
    }

    pub fn put_root(self) -> Ops {
        self.op(24, &Xdr::default())
    }

    pub fn put(self, handle: &[u8]) -> Ops {
        self.op(22, &Xdr::default().opaque(handle))
    }

    pub fn lookup(self, name: &str) -> Ops {
        self.op(15, &Xdr::default().opaque(name.as_bytes()))
    }

    pub fn get_handle(self) -> Ops {
        self.op(10, &Xdr::default())
    }

    pub fn save(self) -> Ops {
        self.op(32, &Xdr::default())
    }

    /// GETATTR of the size.
    pub fn get_size(self) -> Ops {
        self.op(9, &Xdr::default().u32(1).u32(1 << 4))
    }

    /// OPEN of an existing file; `access` is `share_access`.
    pub fn open(self, owner: &[u8], access: u32, name: &str) -> Ops {
        let args = Xdr::default().u32(0).u32(access).u32(0).u64(0).opaque(owner).u32(0);
        self.op(18, &args.u32(0).opaque(name.as_bytes()))
    }

    pub fn open_exclusive(self, owner: &[u8], access: u32, name: &str, verifier: [u32; 2]) -> Ops {
        let args = Xdr::default().u32(0).u32(access).u32(0).u64(0).opaque(owner).u32(1).u32(2);
        let args = args.u32(verifier[0]).u32(verifier[1]);
        self.op(18, &args.u32(0).opaque(name.as_bytes()))
    }

    pub fn read(self, stateid: &[u8], count: u32) -> Ops {
        self.op(25, &Xdr::default().fixed(stateid).u64(0).u32(count))
    }

    /// WRITE FILE_SYNC under a stateid.
    pub fn write(self, stateid: &[u8], data: &[u8]) -> Ops {
        self.op(38, &Xdr::default().fixed(stateid).u64(0).u32(2).opaque(data))
    }

    /// COPY within the server. If not `synchronous`, it may continue after the reply.
    pub fn copy(self, from: &[u8], to: &[u8], at: u64, count: u64, synchronous: bool) -> Ops {
        let args = Xdr::default().fixed(from).fixed(to).u64(0).u64(at).u64(count);
        self.op(60, &args.u32(1).u32(u32::from(synchronous)).u32(0))
    }

    pub fn access(self) -> Ops {
        self.op(3, &Xdr::default().u32(0x1ff))
    }

    /// GETXATTR (RFC 8276).
    pub fn get_xattr(self, name: &str) -> Ops {
        self.op(72, &Xdr::default().opaque(name.as_bytes()))
    }

    pub fn set_xattr(self, name: &str, value: &[u8]) -> Ops {
        self.op(73, &Xdr::default().u32(0).opaque(name.as_bytes()).opaque(value))
    }

    pub fn list_xattrs(self) -> Ops {
        self.op(74, &Xdr::default().u64(0).u32(4096))
    }

    pub fn remove_xattr(self, name: &str) -> Ops {
        self.op(75, &Xdr::default().opaque(name.as_bytes()))
    }

    /// COPY_NOTIFY for some other server.
    pub fn copy_notify(self, stateid: &[u8]) -> Ops {
        self.op(61, &Xdr::default().fixed(stateid).u32(1).opaque(b"elsewhere"))
    }

    /// RECLAIM_COMPLETE for all filesystems.
    pub fn reclaim_complete(self) -> Ops {
        self.op(58, &Xdr::default().u32(0))
    }

    /// Prepends SEQUENCE on slot 0.
    fn with_sequence(self, session: &[u8], sequence: u32) -> Ops {
        self.with_slot(session, sequence, (0, 0), false)
    }

    /// Prepends SEQUENCE on a slot; `keep` is `sa_cachethis`.
    fn with_slot(self, session: &[u8], sequence: u32, (slot, highest): (u32, u32), keep: bool) -> Ops {
        let args = Xdr::default().fixed(session).u32(sequence).u32(slot).u32(highest).u32(u32::from(keep));
        let first = Ops::default().op(53, &args);
        Ops { args: first.args.then(&self.args), count: first.count + self.count }
    }

    fn args(&self, minor: u32) -> Xdr {
        Xdr::default().opaque(b"").u32(minor).u32(self.count).then(&self.args)
    }
}

/// Sends a COMPOUND. Returns its status, and the results from the first operation on.
fn compound(link: &mut Link, minor: u32, user: User, ops: &Ops) -> Result<(u32, Vec<u8>), String> {
    let results = link.call((NFS, 4, 1), Some(user), &ops.args(minor))?;
    let mut reader = Reader(&results);
    let status = reader.u32()?;
    reader.opaque()?;
    let _count = reader.u32()?;
    Ok((status, reader.0.to_vec()))
}

/// Checks that one operation succeeded. The caller reads its own results.
fn passed(reader: &mut Reader<'_>, number: u32) -> Result<(), String> {
    match (reader.u32()?, reader.u32()?) {
        (op, OK) if op == number => Ok(()),
        (op, status) => Err(format!("operation {op} (of {number}): status {status}")),
    }
}

/// Channel attributes that a client requests.
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    /// The largest kept reply, in bytes.
    pub cached: u32,
    pub slots: u32,
}

/// The request of Linux's client.
pub const LIKE_LINUX: Channel = Channel { cached: 7_584, slots: 64 };

/// Flag of CREATE_SESSION: `CREATE_SESSION4_FLAG_CONN_BACK_CHAN`.
const BACK_CHANNEL: u32 = 2;

/// A session of NFSv4.1 or 4.2 that uses one slot.
pub struct Session {
    pub link: Link,
    pub id: Vec<u8>,
    pub client: u64,
    user: User,
    /// The last sequence number of its slot.
    pub sequence: u32,
}

impl Session {
    /// EXCHANGE_ID and CREATE_SESSION only.
    pub fn begin(mut link: Link, user: User, owner: &[u8], channel: Channel) -> Result<Session, String> {
        let client = exchange_id(&mut link, user, owner, 1)?;
        let (id, _) = create_session(&mut link, user, client, channel)?;
        Ok(Session { link, id, client: client.0, user, sequence: 0 })
    }

    /// Like `begin`, with RECLAIM_COMPLETE.
    pub fn create(link: Link, user: User, owner: &[u8], channel: Channel) -> Result<Session, String> {
        let mut session = Session::begin(link, user, owner, channel)?;
        // The client may have sent RECLAIM_COMPLETE before.
        match session.status_as(user, &Ops::default().reclaim_complete())?.0 {
            OK | COMPLETE_ALREADY => Ok(session),
            status => Err(format!("RECLAIM_COMPLETE: status {status}")),
        }
    }

    /// Sends a COMPOUND. Returns the results after SEQUENCE's.
    pub fn run(&mut self, ops: &Ops) -> Result<Vec<u8>, String> {
        let user = self.user;
        self.run_as(user, ops)
    }

    /// Like `run`, as another user.
    pub fn run_as(&mut self, user: User, ops: &Ops) -> Result<Vec<u8>, String> {
        let (status, results) = self.status_as(user, ops)?;
        if status == OK { Ok(results) } else { Err(format!("status {status}")) }
    }

    /// Sends a COMPOUND. Returns its status and the results after SEQUENCE's.
    pub fn status_as(&mut self, user: User, ops: &Ops) -> Result<(u32, Vec<u8>), String> {
        self.sequence += 1;
        let ops = ops.clone().with_sequence(&self.id, self.sequence);
        let (status, results) = compound(&mut self.link, 2, user, &ops)?;
        let mut reader = Reader(&results);
        passed(&mut reader, 53)?;
        reader.fixed(16 + 5 * 4)?;
        Ok((status, reader.0.to_vec()))
    }

    /// Sends a COMPOUND on another slot and asks the server to keep the reply. Returns SEQUENCE's status.
    pub fn keep(&mut self, slot: (u32, u32), sequence: u32, ops: &Ops) -> Result<u32, String> {
        let (_, results) = on_slot(&mut self.link, self.user, (&self.id, slot, sequence), ops)?;
        let mut reader = Reader(&results);
        let _operation = reader.u32()?;
        reader.u32()
    }

    /// Like `keep`, but the reply is read later.
    pub fn repeat(&mut self, slot: u32, sequence: u32, ops: &Ops) -> std::io::Result<()> {
        let ops = ops.clone().with_slot(&self.id, sequence, (slot, slot), true);
        self.link.send((NFS, 4, 1), &ops.args(2))
    }

    /// Sends a COMPOUND without waiting for its reply. The session is useless afterwards.
    pub fn send(&mut self, ops: &Ops) -> std::io::Result<()> {
        self.sequence += 1;
        let ops = ops.clone().with_sequence(&self.id, self.sequence);
        self.link.send((NFS, 4, 1), &ops.args(2))
    }

    pub fn handle(&mut self, names: &[&str]) -> Result<Vec<u8>, String> {
        let ops = names.iter().fold(Ops::default().put_root(), |ops, name| ops.lookup(name));
        let results = self.run(&ops.get_handle())?;
        let mut reader = Reader(&results);
        passed(&mut reader, 24)?;
        for _ in names {
            passed(&mut reader, 15)?;
        }
        passed(&mut reader, 10)?;
        Ok(reader.opaque()?.to_vec())
    }

    /// Opens a file in a directory. Returns its stateid.
    pub fn open(&mut self, owner: &[u8], access: u32, dir: &[u8], name: &str) -> Result<[u8; 16], String> {
        let results = self.run(&Ops::default().put(dir).open(owner, access, name))?;
        let mut reader = Reader(&results);
        passed(&mut reader, 22)?;
        passed(&mut reader, 18)?;
        reader.fixed(16)?.try_into().map_err(|_| "a stateid that ends early".to_owned())
    }

    /// Destroys the session and the client ID.
    pub fn destroy(mut self) -> Result<(), String> {
        let (user, client) = (self.user, self.client);
        expect(destroy_session(&mut self.link, user, &self.id)?, "DESTROY_SESSION")?;
        let ops = Ops::default().op(57, &Xdr::default().u64(client));
        expect(compound(&mut self.link, 1, user, &ops)?.0, "DESTROY_CLIENTID")
    }
}

fn expect(status: u32, what: &str) -> Result<(), String> {
    if status == OK { Ok(()) } else { Err(format!("{what}: status {status}")) }
}

/// EXCHANGE_ID. Returns client ID and sequence number. `verifier` identifies the client's incarnation.
pub fn exchange_id(link: &mut Link, user: User, owner: &[u8], verifier: u64) -> Result<(u64, u32), String> {
    let args = Xdr::default().u64(verifier).opaque(owner).u32(0).u32(0).u32(0);
    let (status, results) = compound(link, 1, user, &Ops::default().op(42, &args))?;
    expect(status, "EXCHANGE_ID")?;
    let mut reader = Reader(&results);
    passed(&mut reader, 42)?;
    Ok((reader.u64()?, reader.u32()?))
}

/// CREATE_SESSION. Returns the session ID and the number of slots.
pub fn create_session(
    link: &mut Link,
    user: User,
    (client, sequence): (u64, u32),
    channel: Channel,
) -> Result<(Vec<u8>, u32), String> {
    let fore = Xdr::default().u32(0).u32(1 << 20).u32(1 << 20).u32(channel.cached);
    let fore = fore.u32(64).u32(channel.slots).u32(0);
    let back = Xdr::default().u32(0).u32(4096).u32(4096).u32(0).u32(2).u32(1).u32(0);
    let args = Xdr::default().u64(client).u32(sequence).u32(BACK_CHANNEL).then(&fore).then(&back);
    // The callback program, with AUTH_NONE.
    let args = args.u32(0x4000_0000).u32(1).u32(0);
    let (status, results) = compound(link, 1, user, &Ops::default().op(43, &args))?;
    expect(status, "CREATE_SESSION")?;
    let mut reader = Reader(&results);
    passed(&mut reader, 43)?;
    let id = reader.fixed(16)?.to_vec();
    reader.fixed(4 + 4 + 5 * 4)?;
    Ok((id, reader.u32()?))
}

/// Sends a COMPOUND on a slot of any session and asks the server to keep the reply. Returns its status and all
/// results.
pub fn on_slot(
    link: &mut Link,
    user: User,
    (session, slot, sequence): (&[u8], (u32, u32), u32),
    ops: &Ops,
) -> Result<(u32, Vec<u8>), String> {
    compound(link, 2, user, &ops.clone().with_slot(session, sequence, slot, true))
}

/// SEQUENCE alone, which renews the lease.
pub fn renew(link: &mut Link, user: User, session: &[u8], sequence: u32) -> Result<(), String> {
    let ops = Ops::default().with_sequence(session, sequence);
    expect(compound(link, 2, user, &ops)?.0, "SEQUENCE")
}

/// DESTROY_SESSION. Returns its status.
pub fn destroy_session(link: &mut Link, user: User, session: &[u8]) -> Result<u32, String> {
    let ops = Ops::default().op(44, &Xdr::default().fixed(session));
    Ok(compound(link, 1, user, &ops)?.0)
}
