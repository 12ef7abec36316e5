//! NFS version 3 (RFC 1813). Lanes are mere numbers.

use crate::ask::{Answer, Ask, Calls, File};
use crate::limits::{BURST_WRITE_BYTES, IN_FLIGHT, PATIENCE};
use bytes::Bytes;
use landfast_nfs::v3::args::{AccessArgs, CommitArgs, CreateArgs, CreateHow, SetattrArgs, WriteArgs};
use landfast_nfs::v3::res::{AccessOk, CommitOk, MakeOk, PostOp, WriteOk};
use landfast_nfs::v3::types::{DirOp, StableHow};
use landfast_nfs::v3::{Call, Fattr, FileHandle, Sattr, VERSION, WccData, access};
use landfast_nfs::v4::Stateid;
use landfast_rpc::message::Outcome;
use landfast_verify::Target;
use landfast_verify::blocking::nfs::{Fh, Nfs};
use landfast_verify::blocking::v3::{Client, result};
use landfast_verify::blocking::wire::{Procedure, results};
use landfast_verify::error::{Error, Result};

pub struct V3Calls {
    client: Client,
    dir: FileHandle,
}

fn fh(fh: &Fh) -> FileHandle {
    FileHandle(Bytes::copy_from_slice(fh))
}

fn procedure(proc: u32) -> Procedure {
    Procedure { prog: landfast_nfs::PROGRAM, vers: VERSION, proc }
}

impl V3Calls {
    /// Connects. Fails if there is no server, or no such export.
    pub fn connect(target: &Target) -> Result<V3Calls> {
        Ok(V3Calls { client: Client::connect(target, PATIENCE)?, dir: FileHandle(Bytes::new()) })
    }

    /// Builds the call. `None` for NULL.
    fn call(&self, ask: &Ask) -> Result<Option<Call>> {
        let at = |name: &str| DirOp { dir: self.dir.clone(), name: Bytes::copy_from_slice(name.as_bytes()) };
        Ok(Some(match ask {
            Ask::Null => return Ok(None),
            Ask::Getattr => Call::Getattr(self.dir.clone()),
            Ask::Access => {
                let access = access::READ | access::LOOKUP | access::MODIFY | access::EXTEND | access::DELETE;
                Call::Access(AccessArgs { object: self.dir.clone(), access })
            }
            Ask::Create(name) => {
                let how = CreateHow::Guarded(Sattr { mode: Some(0o644), ..Sattr::default() });
                Call::Create(CreateArgs { at: at(name), how })
            }
            Ask::Write { file, offset, data, stable } => Call::Write(WriteArgs {
                file: fh(&file.fh),
                offset: *offset,
                count: data.len() as u32,
                stable: if *stable { StableHow::FileSync } else { StableHow::Unstable },
                data: data.clone(),
            }),
            Ask::Commit(file) => Call::Commit(CommitArgs { file: fh(&file.fh), offset: 0, count: 0 }),
            Ask::Setattr(file, mode) => {
                let attrs = Sattr { mode: Some(*mode), ..Sattr::default() };
                Call::Setattr(SetattrArgs { object: fh(&file.fh), attrs, guard: None })
            }
            Ask::Remove(name) => Call::Remove(at(name)),
            Ask::Drop(file) => Call::Remove(at(&file.name)),
            Ask::Confirm(_) | Ask::Close(_) => {
                return Err(Error::Nonsense("version 3 has no opens".into()));
            }
        }))
    }
}

impl Calls for V3Calls {
    fn nfs(&mut self) -> &mut dyn Nfs {
        &mut self.client
    }

    fn set_dir(&mut self, dir: Fh) {
        self.dir = fh(&dir);
    }

    fn lanes(&self) -> usize {
        IN_FLIGHT.into_iter().max().unwrap_or(1)
    }

    fn has_opens(&self) -> bool {
        false
    }

    fn confirms(&self) -> bool {
        false
    }

    fn write_bytes_max(&self) -> usize {
        BURST_WRITE_BYTES
    }

    fn submit(&mut self, _: usize, ask: &Ask) -> Result<u32> {
        match self.call(ask)? {
            None => self.client.wire().submit(procedure(0), &()),
            Some(call) => self.client.wire().submit(procedure(call.number()), &call),
        }
    }

    fn next_reply(&mut self) -> Result<(u32, Outcome)> {
        self.client.wire().next_reply()
    }

    fn answer(&mut self, lane: usize, ask: &Ask, outcome: Outcome) -> Result<Answer> {
        use landfast_nfs::v3::proc;
        let to = |proc: u32| results(procedure(proc), outcome.clone());
        match ask {
            Ask::Null => to(proc::NULL).map(drop)?,
            Ask::Getattr => result::<Fattr, ()>(proc::GETATTR, to(proc::GETATTR)?).map(|_| ())?,
            Ask::Access => result::<AccessOk, PostOp>(proc::ACCESS, to(proc::ACCESS)?).map(|_| ())?,
            Ask::Commit(_) => result::<CommitOk, WccData>(proc::COMMIT, to(proc::COMMIT)?).map(|_| ())?,
            Ask::Setattr(..) => result::<WccData, WccData>(proc::SETATTR, to(proc::SETATTR)?).map(|_| ())?,
            Ask::Remove(_) | Ask::Drop(_) => {
                result::<WccData, WccData>(proc::REMOVE, to(proc::REMOVE)?).map(|_| ())?;
            }
            Ask::Confirm(_) | Ask::Close(_) => {}
            Ask::Write { .. } => {
                let ok = result::<WriteOk, WccData>(proc::WRITE, to(proc::WRITE)?)?;
                return Ok(Answer::Written { count: ok.count, stable: ok.committed == StableHow::FileSync });
            }
            Ask::Create(name) => {
                let ok = result::<MakeOk, WccData>(proc::CREATE, to(proc::CREATE)?)?;
                let fh = match ok.object {
                    Some(fh) => fh.0.to_vec(),
                    // The server may omit it (RFC 1813 section 3.3.8).
                    None => return Err(Error::Nonsense(format!("CREATE {name}: no handle"))),
                };
                let open = Stateid::ANONYMOUS;
                return Ok(Answer::Made(File { name: name.clone(), fh, open, confirm: false, lane }));
            }
        }
        Ok(Answer::Done)
    }
}
