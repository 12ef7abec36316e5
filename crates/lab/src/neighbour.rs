//! Clients of another address that are a burden: one that asks for much and reads no reply, one that sends requests as fast as it can.

use crate::error::{Context, Error, Result};
use crate::limits::SERIAL_PATIENCE;
use crate::load::ATTRS;
use crate::serial::session::credential;
use landfast_nfs::v4::args::ReadArgs;
use landfast_nfs::v4::{ArgOp, FileHandle, PROC_COMPOUND, Stateid, VERSION};
use landfast_verify::blocking::session::{Options, Session, filehandle};
use landfast_verify::blocking::wire::{Procedure, Wire};
use landfast_xdr::Bytes;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const COMPOUND: Procedure = Procedure { prog: landfast_nfs::PROGRAM, vers: VERSION, proc: PROC_COMPOUND };

/// Requests that a neighbour has in flight on a connection.
const IN_FLIGHT: u32 = 64;

/// Bytes that are asked for in each READ.
const READ_BYTES: u32 = 1 << 20;

/// A session over a connection from this address; all of 127.0.0.0/8 is local.
fn session(from: Ipv4Addr, addr: SocketAddr, owner: &str) -> Result<Session> {
    let what = || format!("connect from {from} to {addr}");
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).map_err(std::io::Error::from);
    let socket = socket.context(what)?;
    bind(&socket, &SocketAddrV4::new(from, 0)).map_err(std::io::Error::from).context(what)?;
    connect(&socket, &addr).map_err(std::io::Error::from).context(what)?;
    let wire = Wire::over(TcpStream::from(socket), addr, credential(owner), 0, SERIAL_PATIENCE);
    let options = Options {
        operations: 16,
        slots: IN_FLIGHT,
        request_bytes: 64 << 10,
        persistent: false,
        callbacks: None,
    };
    Ok(Session::start(wire.context(what)?, 1, owner.to_owned(), &options)?)
}

/// The handle of a file of the export's root.
fn find(session: &mut Session, name: &str) -> Result<FileHandle> {
    let name = Bytes::from(name.to_owned());
    let results = session.compound(vec![ArgOp::Putrootfh, ArgOp::Lookup(name), ArgOp::Getfh])?;
    Ok(filehandle(&results)?)
}

/// Sends the same operations in each slot.
fn send(session: &mut Session, ops: &[ArgOp]) -> Result<u32> {
    let slots = session.slots();
    for slot in 0..slots {
        let all: Vec<_> = session.sequence(slot).into_iter().chain(ops.iter().cloned()).collect();
        let args = session.args(all);
        session.wire().submit(COMPOUND, &args)?;
    }
    Ok(slots as u32)
}

/// A client that has asked for 64 MiB and does not read. Dropping it closes its connection.
pub struct Unread(#[expect(dead_code, reason = "it is only held")] Session);

impl Unread {
    /// Asks for 64 times the first MiB of a file of the export's root.
    pub fn start(from: Ipv4Addr, addr: SocketAddr, file: &str) -> Result<Unread> {
        let mut session = session(from, addr, "it reads nothing")?;
        let handle = find(&mut session, file)?;
        let read = ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count: READ_BYTES };
        send(&mut session, &[ArgOp::Putfh(handle), ArgOp::Read(read)])?;
        Ok(Unread(session))
    }
}

/// Clients that send GETATTRs as fast as they are answered, until this is dropped.
pub struct Flood {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<Result<()>>>,
}

impl Flood {
    /// So many connections of one address, each with a session and 64 requests in flight.
    pub fn start(from: Ipv4Addr, addr: SocketAddr, file: &str, connections: u64) -> Result<Flood> {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut flood = Flood { stop, answered, threads: Vec::new() };
        for n in 0..connections {
            let mut session = session(from, addr, &format!("flood {n}"))?;
            let handle = find(&mut session, file)?;
            let (stop, answered) = (flood.stop.clone(), flood.answered.clone());
            let thread = std::thread::Builder::new().name("flood".into()).spawn(move || {
                let ops = [ArgOp::Putfh(handle), ArgOp::Getattr(ATTRS)];
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..send(&mut session, &ops)? {
                        session.wire().next_reply()?;
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Ok(())
            });
            flood.threads.push(thread.context(|| "start a thread".to_owned())?);
        }
        Ok(flood)
    }

    /// Ends it. Returns the requests that were answered.
    ///
    /// # Errors
    /// What made one of the clients end early.
    pub fn end(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| Error::Child { role: "flood", what: "panic".into() })??;
        }
        Ok(self.answered.load(Ordering::Relaxed))
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
