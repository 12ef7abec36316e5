//! One RPC after another over a blocking socket.

use crate::error::{Error, Result};
use crate::limits::REPLY_BYTES_MAX;
use landfast_client::cred::Identity;
use landfast_rpc::AcceptStat;
use landfast_rpc::message::{Incoming, OpaqueAuth, Outcome, RawCall, parse};
use landfast_rpc::record::{Assembler, HEADER_LEN, last_fragment_header};
use landfast_xdr::{Bytes, BytesMut, Encode};
use rustix::net::{AddressFamily, SocketType};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Bytes that are read from the socket at once.
const READ_BYTES: usize = 64 << 10;

/// Ports that only the superuser may use, and that have no well-known owner: servers often want one of a client.
const RESERVED: std::ops::Range<u16> = 700..1000;

/// What is called.
#[derive(Debug, Clone, Copy)]
pub struct Procedure {
    /// Program.
    pub prog: u32,
    /// Version.
    pub vers: u32,
    /// Procedure.
    pub proc: u32,
}

/// A connection.
pub struct Wire {
    server: String,
    stream: TcpStream,
    assembler: Assembler,
    buffer: BytesMut,
    cred: OpaqueAuth,
    xid: u32,
    patience: Duration,
}

impl Wire {
    /// Connects to the first of `addresses` that takes it, as the user of this process.
    ///
    /// # Errors
    /// None does.
    pub fn connect(addresses: &[SocketAddr], patience: Duration) -> Result<Wire> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for addr in addresses {
            match connect(*addr, patience) {
                Ok(stream) => {
                    return Ok(Wire {
                        server: addr.to_string(),
                        stream,
                        assembler: Assembler::new(REPLY_BYTES_MAX),
                        buffer: BytesMut::new(),
                        cred: Identity::of_process().credential().to_opaque(),
                        xid: getrandom::u32().unwrap_or(1),
                        patience,
                    });
                }
                Err(e) => last = e,
            }
        }
        let server = addresses.first().map(ToString::to_string).unwrap_or_default();
        Err(Error::Gone { server, why: last })
    }

    /// Makes one call; its results, if the server accepted it.
    ///
    /// # Errors
    /// [`Error::Gone`] without an answer; [`Error::Refused`] when the RPC itself is refused.
    pub fn call(&mut self, to: Procedure, args: &impl Encode) -> Result<Bytes> {
        let sent = self.send(to, args).and_then(|()| self.receive());
        match sent {
            Ok(Outcome::Accepted(AcceptStat::Success, results)) => Ok(results),
            Ok(Outcome::Accepted(stat, _)) => Err(refused(to, stat.to_string())),
            Ok(Outcome::Denied(why)) => Err(refused(to, why.to_string())),
            Err(why) => Err(Error::Gone { server: self.server.clone(), why }),
        }
    }

    fn send(&mut self, to: Procedure, args: &impl Encode) -> io::Result<()> {
        self.xid = self.xid.wrapping_add(1);
        let call = RawCall {
            xid: self.xid,
            prog: to.prog,
            vers: to.vers,
            proc: to.proc,
            cred: self.cred.clone(),
            verf: OpaqueAuth::NONE,
        };
        let mut out = BytesMut::with_capacity(1024);
        out.extend_from_slice(&[0; HEADER_LEN]);
        call.encode(&mut out);
        args.encode(&mut out);
        let header = last_fragment_header(out.len() - HEADER_LEN);
        out[..HEADER_LEN].copy_from_slice(&header);
        self.stream.write_all(&out)
    }

    fn receive(&mut self) -> io::Result<Outcome> {
        let until = Instant::now() + self.patience;
        loop {
            let record = self.assembler.next(&mut self.buffer).map_err(io::Error::other)?;
            let Some(record) = record else {
                self.fill(until)?;
                continue;
            };
            match parse(record).map_err(io::Error::other)? {
                Incoming::Reply { xid, outcome } if xid == self.xid => return Ok(outcome),
                // A callback that nobody asked for.
                _ => {}
            }
        }
    }

    fn fill(&mut self, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no reply came"));
        }
        self.stream.set_read_timeout(Some(left))?;
        let have = self.buffer.len();
        self.buffer.resize(have + READ_BYTES, 0);
        let got = self.stream.read(&mut self.buffer[have..]);
        self.buffer.truncate(have + *got.as_ref().unwrap_or(&0));
        match got {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            Ok(_) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "no reply came"))
            }
            Err(e) => Err(e),
        }
    }
}

fn refused(to: Procedure, status: String) -> Error {
    Error::Refused {
        op: format!("program {} version {}", to.prog, to.vers),
        status,
        meaning: crate::error::Meaning::Other,
    }
}

/// Connects, from a reserved port if this is the superuser and one is free.
fn connect(to: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let stream = match reserved(to) {
        Some(stream) => stream,
        None => TcpStream::connect_timeout(&to, patience)?,
    };
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

/// A connection from a reserved port; `None` for whatever reason there is none.
fn reserved(to: SocketAddr) -> Option<TcpStream> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    // To find out at once that nobody is there, and not at the twentieth port.
    drop(TcpStream::connect_timeout(&to, Duration::from_secs(5)).ok()?);
    let (family, any) = match to {
        SocketAddr::V4(_) => (AddressFamily::INET, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        SocketAddr::V6(_) => (AddressFamily::INET6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
    };
    let span = RESERVED.end - RESERVED.start;
    let first = (getrandom::u32().unwrap_or(0) % u32::from(span)) as u16;
    for n in 0..20 {
        let port = RESERVED.start + (first + n * 7) % span;
        let socket = rustix::net::socket(family, SocketType::STREAM, None).ok()?;
        if rustix::net::bind(&socket, &SocketAddr::new(any, port)).is_ok()
            && rustix::net::connect(&socket, &to).is_ok()
        {
            return Some(TcpStream::from(socket));
        }
    }
    None
}
