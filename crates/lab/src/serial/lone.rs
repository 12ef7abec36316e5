//! One client that makes one kind of request at a time, in NFSv3 or NFSv4.2, in the kernel's shape: for measurements of a single operation.

use super::action::{Action, Actor, Change, Node, Path};
use super::v3::Actor3;
use crate::error::Result;
use landfast_nfs::v3;
use landfast_nfs::v3::args as args3;
use landfast_nfs::v3::types::DirOp;
use landfast_nfs::v4::args::{ReadArgs, ReaddirArgs};
use landfast_nfs::v4::attr::number;
use landfast_nfs::v4::{ArgOp, Bitmap, FileHandle, Stateid};
use landfast_xdr::Bytes;
use std::net::SocketAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Getattr,
    Lookup,
    Read4k,
    /// A directory of [`LISTED`] entries, with attributes.
    Readdir,
    Create,
    /// 4 KiB, FILE_SYNC.
    Write4k,
    /// Of the modification time.
    Setattr,
    Remove,
}

pub const KINDS: [Kind; 8] = [
    Kind::Getattr,
    Kind::Lookup,
    Kind::Read4k,
    Kind::Readdir,
    Kind::Create,
    Kind::Write4k,
    Kind::Setattr,
    Kind::Remove,
];

/// Entries of the directory that is listed.
pub const LISTED: u64 = 1000;

const SMALL_BYTES: usize = 4096;
const LISTING_BYTES: u32 = 512 << 10;

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Getattr => "GETATTR",
            Kind::Lookup => "LOOKUP",
            Kind::Read4k => "READ 4K",
            Kind::Readdir => "READDIR of 1,000",
            Kind::Create => "CREATE",
            Kind::Write4k => "WRITE 4K",
            Kind::Setattr => "SETATTR",
            Kind::Remove => "REMOVE",
        }
    }

    /// Whether its reply must wait for stable storage.
    pub fn is_durable(self) -> bool {
        matches!(self, Kind::Create | Kind::Write4k | Kind::Setattr | Kind::Remove)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V3,
    V42,
}

impl Version {
    pub fn name(self) -> &'static str {
        match self {
            Version::V3 => "NFSv3",
            Version::V42 => "NFSv4.2",
        }
    }
}

enum Client {
    V3(Box<Actor3>),
    V42(Box<Actor>),
}

/// A client with files of its own. CREATE makes files; WRITE, SETATTR and REMOVE take them in the same order.
pub struct Lone {
    client: Client,
    listed: FileHandle,
    file: FileHandle,
    content: Bytes,
    /// How many files CREATE, WRITE, SETATTR, CLOSE and REMOVE have dealt with.
    created: u64,
    written: u64,
    set: u64,
    closed: u64,
    removed: u64,
}

/// The attributes that Linux's client asks for in a listing.
const LISTED_ATTRS: Bitmap = Bitmap::of(&[
    number::TYPE,
    number::CHANGE,
    number::SIZE,
    number::FSID,
    number::FILEID,
    number::MODE,
    number::NUMLINKS,
    number::OWNER,
    number::OWNER_GROUP,
    number::TIME_ACCESS,
    number::TIME_METADATA,
    number::TIME_MODIFY,
    number::FILEHANDLE,
]);

fn make_dir(path: &str) -> Action {
    Action::Make { path: path.as_bytes().to_vec(), node: Node::Dir, mode: 0o755 }
}

fn content() -> Bytes {
    (0..SMALL_BYTES).map(|i| (i % 251) as u8 | 1).collect::<Vec<u8>>().into()
}

fn file(n: u64) -> Path {
    format!("f{n:07}").into_bytes()
}

impl Lone {
    /// Connects, and makes what is read in a new directory `name`.
    pub fn connect(addr: SocketAddr, version: Version, name: &str) -> Result<Lone> {
        let mut maker = Actor::connect(addr, format!("{name} prepares"), "/")?;
        let content = content();
        let listed = format!("{name}-listed");
        maker.act(&make_dir(&listed))?;
        for n in 0..LISTED {
            let path = format!("{listed}/name{n:04}").into_bytes();
            maker.act(&Action::Create { path: path.clone(), mode: 0o644 })?;
            if n == 0 {
                let data = content.clone();
                maker.act(&Action::Write { path: path.clone(), offset: 0, data, stable: true })?;
            }
            maker.act(&Action::Close { path })?;
        }
        let listed = maker.handle(listed.as_bytes())?;
        let file = maker.handle(format!("{name}-listed/name0000").as_bytes())?;
        maker.into_session().close()?;
        Ok(Lone { listed, file, ..Lone::connect_to_create(addr, version, name)? })
    }

    /// As [`Lone::connect`], but for requests that make and change files only.
    pub fn connect_to_create(addr: SocketAddr, version: Version, name: &str) -> Result<Lone> {
        let mut maker = Actor::connect(addr, format!("{name} prepares"), "/")?;
        maker.act(&make_dir(name))?;
        let dir = maker.handle(name.as_bytes())?;
        maker.into_session().close()?;
        let client = match version {
            Version::V3 => Client::V3(Box::new(Actor3::connect(addr, name, 1)?)),
            Version::V42 => {
                let mut actor = Actor::connect(addr, name, "/")?;
                actor.remember(Path::new(), dir.clone());
                Client::V42(Box::new(actor))
            }
        };
        let (listed, file) = (dir.clone(), dir);
        let content = content();
        Ok(Lone { client, listed, file, content, created: 0, written: 0, set: 0, closed: 0, removed: 0 })
    }

    /// Makes `count` requests of this kind, one at a time. WRITE, SETATTR and REMOVE need files that CREATE has made.
    /// Errors: The first answer that is an error.
    pub fn run(&mut self, kind: Kind, count: u64) -> Result<()> {
        for _ in 0..count {
            self.one(kind)?;
        }
        Ok(())
    }

    fn one(&mut self, kind: Kind) -> Result<()> {
        let action = match kind {
            Kind::Getattr | Kind::Lookup | Kind::Read4k | Kind::Readdir => return self.ask(kind),
            Kind::Create => {
                let path = file(next(&mut self.created));
                Action::Create { path, mode: 0o644 }
            }
            Kind::Write4k => {
                let path = file(next(&mut self.written));
                Action::Write { path, offset: 0, data: self.content.clone(), stable: true }
            }
            Kind::Setattr => {
                let change = Change { mtime: Some((1_000_000_000, 0)), ..Change::default() };
                Action::Set { path: file(next(&mut self.set)), change }
            }
            Kind::Remove => Action::Remove { path: file(next(&mut self.removed)) },
        };
        self.act(&action)
    }

    fn act(&mut self, action: &Action) -> Result<()> {
        match &mut self.client {
            Client::V3(actor) => actor.act(action).map(drop),
            Client::V42(actor) => actor.act(action).map(drop),
        }
    }

    /// Closes what CREATE has opened since the last call, as a client does before it removes a file.
    pub fn close_all(&mut self) -> Result<()> {
        while self.closed < self.created {
            let path = file(next(&mut self.closed));
            self.act(&Action::Close { path })?;
        }
        Ok(())
    }

    fn ask(&mut self, kind: Kind) -> Result<()> {
        let name = Bytes::from_static(b"name0000");
        match &mut self.client {
            Client::V3(actor) => {
                let handle = |fh: &FileHandle| v3::FileHandle(fh.0.clone());
                actor.ask(&match kind {
                    Kind::Lookup => args3::Call::Lookup(DirOp { dir: handle(&self.listed), name }),
                    Kind::Read4k => args3::Call::Read(args3::ReadArgs {
                        file: handle(&self.file),
                        offset: 0,
                        count: SMALL_BYTES as u32,
                    }),
                    Kind::Readdir => args3::Call::Readdirplus(args3::ReaddirplusArgs {
                        dir: handle(&self.listed),
                        cookie: 0,
                        cookieverf: [0; 8],
                        dircount: LISTING_BYTES,
                        maxcount: LISTING_BYTES,
                    }),
                    _ => args3::Call::Getattr(handle(&self.file)),
                })
            }
            Client::V42(actor) => {
                let getattr = ArgOp::Getattr(LISTED_ATTRS);
                let ops = match kind {
                    Kind::Lookup => {
                        vec![ArgOp::Putfh(self.listed.clone()), ArgOp::Lookup(name), ArgOp::Getfh, getattr]
                    }
                    Kind::Read4k => {
                        let read =
                            ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count: SMALL_BYTES as u32 };
                        vec![ArgOp::Putfh(self.file.clone()), ArgOp::Read(read)]
                    }
                    Kind::Readdir => {
                        let readdir = ReaddirArgs {
                            cookie: 0,
                            cookieverf: [0; 8],
                            dircount: LISTING_BYTES,
                            maxcount: LISTING_BYTES,
                            attr_request: LISTED_ATTRS,
                        };
                        vec![ArgOp::Putfh(self.listed.clone()), ArgOp::Readdir(readdir)]
                    }
                    _ => vec![ArgOp::Putfh(self.file.clone()), getattr],
                };
                actor.session_mut().compound(ops).map(drop)
            }
        }
    }

    /// A call that does nothing: what a round trip takes.
    pub fn null(&mut self) -> Result<()> {
        match &mut self.client {
            Client::V3(actor) => actor.null(),
            // NFSv4's NULL would do; a SEQUENCE alone is what its client sends to renew.
            Client::V42(actor) => actor.session_mut().compound(Vec::new()).map(drop),
        }
    }
}

fn next(counter: &mut u64) -> u64 {
    *counter += 1;
    *counter - 1
}
