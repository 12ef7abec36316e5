//! A client of version 4 with sessions or of version 3; and the repetition of its last requests after a cut, each of which must
//! get the same reply as before.

use crate::error::{Error, Result};
use crate::serial::action::Path;
use crate::serial::{Action, Actor, Done, session, v3};
use landfast_nfs::v4::{AttrValues, FileHandle, NfsStat};
use landfast_xdr::Bytes;
use std::net::SocketAddr;

/// A client that does one thing at a time.
pub enum Peer {
    V4(Box<Actor>),
    V3(Box<v3::Actor3>),
}

/// The reply to the repetition of the request that was in flight when the power went.
#[derive(Debug)]
pub enum RetryOutcome {
    /// No request that changes something was in flight.
    Nothing,
    Done(Box<Done>),
    Refused(NfsStat),
}

#[derive(Debug)]
pub struct Repeated {
    pub count: u64,
    /// The replies that differ from the first ones, described.
    pub wrong: Vec<String>,
    pub under_way: RetryOutcome,
}

impl Peer {
    /// Does one action.
    /// Errors: [`Error::Nfs`]; after [`Error::Lost`] it is not known whether it was done.
    pub fn act(&mut self, action: &Action) -> Result<Done> {
        match self {
            Peer::V4(actor) => actor.act(action),
            Peer::V3(actor) => actor.act(action),
        }
    }

    /// The handle that it knows for a path.
    pub fn known(&self, path: &[u8]) -> Option<&FileHandle> {
        match self {
            Peer::V4(actor) => actor.handles().get(path),
            Peer::V3(actor) => actor.handles().get(path),
        }
    }

    pub fn remember(&mut self, path: Path, fh: FileHandle) {
        match self {
            Peer::V4(actor) => actor.remember(path, fh),
            Peer::V3(actor) => actor.remember(path, fh),
        }
    }

    pub fn handle(&mut self, path: &[u8]) -> Result<FileHandle> {
        match self {
            Peer::V4(actor) => actor.handle(path),
            Peer::V3(actor) => actor.handle(path),
        }
    }

    pub fn read(&mut self, fh: &FileHandle, offset: u64, count: u32) -> Result<Bytes> {
        match self {
            Peer::V4(actor) => actor.read(fh, offset, count),
            Peer::V3(actor) => actor.read(fh, offset, count),
        }
    }

    pub fn getattr(&mut self, fh: &FileHandle) -> Result<AttrValues> {
        match self {
            Peer::V4(actor) => actor.getattr(fh),
            Peer::V3(actor) => actor.getattr(fh),
        }
    }

    /// Gives back what state the server keeps of it.
    pub fn end(self) -> Result<()> {
        match self {
            Peer::V3(_) => Ok(()),
            Peer::V4(actor) => actor.into_session().close(),
        }
    }

    /// Connects again as the same client, with its session or its xids, and repeats its last requests.
    pub fn repeat(&mut self, addr: SocketAddr, action: Option<&Action>) -> Result<Repeated> {
        let mut out = Repeated { count: 0, wrong: Vec::new(), under_way: RetryOutcome::Nothing };
        match self {
            Peer::V4(actor) => repeat_v4(actor, addr, action, &mut out)?,
            Peer::V3(actor) => repeat_v3(actor, addr, &mut out)?,
        }
        Ok(out)
    }
}

fn judged(result: Result<Done>) -> Result<RetryOutcome> {
    match result {
        Ok(done) => Ok(RetryOutcome::Done(Box::new(done))),
        Err(Error::Nfs { status, .. }) => Ok(RetryOutcome::Refused(status)),
        Err(e) => Err(e),
    }
}

fn repeat_v4(actor: &mut Actor, addr: SocketAddr, action: Option<&Action>, out: &mut Repeated) -> Result<()> {
    actor.session_mut().reconnect(addr)?;
    let all = actor.session_mut().last_requests();
    for sent in all.into_iter().filter(session::Sent::is_kept) {
        let reply = actor.session_mut().repeat(&sent)?;
        match (&sent.reply, action) {
            (Some(first), _) => {
                out.count += 1;
                if *first != reply {
                    let now = session::results(reply).map(drop);
                    out.wrong.push(format!(
                        "an acknowledged COMPOUND ({}) got another reply: {now:?}",
                        names(&sent)
                    ));
                }
            }
            (None, Some(action)) => {
                out.under_way = judged(session::results(reply).map(|r| Actor::learn(action, &r)))?;
            }
            (None, None) => {}
        }
    }
    Ok(())
}

fn names(sent: &session::Sent) -> String {
    let names = sent.args.ops.iter().filter_map(|op| op.op().name());
    names.collect::<Vec<_>>().join(", ")
}

fn repeat_v3(actor: &mut v3::Actor3, addr: SocketAddr, out: &mut Repeated) -> Result<()> {
    actor.reconnect(addr)?;
    let all = actor.recent();
    for sent in all.into_iter().filter(v3::Sent::is_kept) {
        let reply = actor.repeat(&sent)?;
        match &sent.reply {
            Some(first) => {
                out.count += 1;
                if *first != reply {
                    let now = v3::learn(&sent.call, reply).map(drop);
                    out.wrong.push(format!(
                        "an acknowledged call (xid {:x}) got another reply: {now:?}",
                        sent.xid
                    ));
                }
            }
            None => out.under_way = judged(v3::learn(&sent.call, reply))?,
        }
    }
    Ok(())
}
