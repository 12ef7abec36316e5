//! RPCs over a blocking socket: one after another, or several in flight.

use crate::error::{Error, Result};
use crate::limits::REPLY_BYTES_MAX;
use landfast_client::cred::Identity;
use landfast_rpc::AcceptStat;
use landfast_rpc::message::{Incoming, OpaqueAuth, Outcome, RawCall, parse};
use landfast_rpc::record::{Assembler, HEADER_LEN, last_fragment_header};
use landfast_xdr::{Bytes, BytesMut, Decode, Encode, Reader};
use rustix::net::{AddressFamily, SocketType};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Bytes that are read from the socket at once.
const READ_BYTES: usize = 64 << 10;

/// Ports that only the superuser may bind and that no well-known service owns. Many servers insist that clients use such a port.
const RESERVED: std::ops::Range<u16> = 700..1000;

/// A procedure of a version of an RPC program.
#[derive(Debug, Clone, Copy)]
pub struct Procedure {
    pub prog: u32,
    pub vers: u32,
    pub proc: u32,
}

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
    /// Connects to the first of `addresses` that answers, as the user of this process; from a reserved port, if this is the
    /// superuser and one is free.
    /// Errors: None does.
    pub fn connect(addresses: &[SocketAddr], patience: Duration) -> Result<Wire> {
        let cred = Identity::of_process().credential().to_opaque();
        let xid = getrandom::u32().unwrap_or(1);
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for addr in addresses {
            let stream = reserved(*addr).map_or_else(|| TcpStream::connect_timeout(addr, patience), Ok);
            match stream.and_then(|stream| Wire::over(stream, *addr, cred.clone(), xid, patience)) {
                Ok(wire) => return Ok(wire),
                Err(e) => last = e,
            }
        }
        let server = addresses.first().map(ToString::to_string).unwrap_or_default();
        Err(Error::Gone { server, why: last })
    }

    /// Connects from any port as the caller of `cred`. The first call has the transaction id `first_xid`.
    pub fn connect_as(
        addr: SocketAddr,
        cred: OpaqueAuth,
        first_xid: u32,
        patience: Duration,
    ) -> Result<Wire> {
        TcpStream::connect_timeout(&addr, patience)
            .and_then(|stream| Wire::over(stream, addr, cred, first_xid.wrapping_sub(1), patience))
            .map_err(|why| Error::Gone { server: addr.to_string(), why })
    }

    /// Connects to where the server is now; caller and transaction ids go on.
    /// Errors: [`Error::Gone`]; the connection stays as it was.
    pub fn reconnect(&mut self, addr: SocketAddr) -> Result<()> {
        *self = Wire::connect_as(addr, self.cred.clone(), self.xid.wrapping_add(1), self.patience)?;
        Ok(())
    }

    /// Uses a connection that is there already. The first call has the transaction id after `xid`.
    ///
    /// # Errors
    /// The socket takes no options.
    pub fn over(
        stream: TcpStream,
        addr: SocketAddr,
        cred: OpaqueAuth,
        xid: u32,
        patience: Duration,
    ) -> io::Result<Wire> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(patience))?;
        let assembler = Assembler::new(REPLY_BYTES_MAX);
        let buffer = BytesMut::new();
        Ok(Wire { server: addr.to_string(), stream, assembler, buffer, cred, xid, patience })
    }

    /// The transaction id of the last call.
    pub fn xid(&self) -> u32 {
        self.xid
    }

    /// Makes one call and returns its results, if the server accepted it.
    /// Errors: [`Error::Gone`] without an answer; [`Error::Refused`] when the RPC itself is refused.
    pub fn call(&mut self, to: Procedure, args: &impl Encode) -> Result<Bytes> {
        let xid = self.submit(to, args)?;
        self.results_of(xid, to)
    }

    /// Makes a call with the transaction id that it had before: the server sees a retransmission.
    pub fn call_again(&mut self, xid: u32, to: Procedure, args: &impl Encode) -> Result<Bytes> {
        let cred = self.cred.clone();
        self.send(xid, to, cred, args).map_err(|why| self.gone(why))?;
        self.results_of(xid, to)
    }

    /// Replies to other calls, which timed out, are passed over.
    fn results_of(&mut self, xid: u32, to: Procedure) -> Result<Bytes> {
        loop {
            match self.next_reply()? {
                (to_xid, outcome) if to_xid == xid => return results(to, outcome),
                _ => {}
            }
        }
    }

    /// Sends a call without waiting. Returns its transaction id, for [`Wire::next_reply`].
    pub fn submit(&mut self, to: Procedure, args: &impl Encode) -> Result<u32> {
        let (xid, cred) = (self.next_xid(), self.cred.clone());
        self.send(xid, to, cred, args).map_err(|why| self.gone(why))?;
        Ok(xid)
    }

    /// Waits for the reply to any of the calls in flight. Returns its transaction id and the outcome.
    /// Errors: [`Error::Gone`] when none comes in time.
    pub fn next_reply(&mut self) -> Result<(u32, Outcome)> {
        self.receive().map_err(|why| self.gone(why))
    }

    /// Whether the server offers TLS: it says so in its reply to a NULL with the flavour AUTH_TLS (RFC 9289 section 4.1).
    /// The server then expects a handshake, so the connection cannot be used any more.
    /// Errors: [`Error::Gone`] without an answer.
    pub fn offers_tls(mut self, to: Procedure) -> Result<bool> {
        const AUTH_TLS: u32 = 7;
        const MARK: &[u8] = b"STARTTLS";
        let ask = OpaqueAuth { flavor: AUTH_TLS, body: Bytes::new() };
        let xid = self.next_xid();
        self.send(xid, Procedure { proc: 0, ..to }, ask, &()).map_err(|why| self.gone(why))?;
        let record = self.record().map_err(|why| self.gone(why))?;
        // The answer is in the reply's verifier, which the general decoder drops.
        let mut r = Reader::new(record);
        let mut head = || -> std::result::Result<_, landfast_xdr::Error> {
            let head = (r.u32()?, r.u32()?, r.u32()?);
            Ok((head, OpaqueAuth::decode(&mut r)?))
        };
        const REPLY: u32 = 1;
        const ACCEPTED: u32 = 0;
        Ok(matches!(head(), Ok((head, verf)) if head == (xid, REPLY, ACCEPTED) && verf.body == MARK))
    }

    /// The address of this machine by which the server knows it.
    pub fn local_ip(&self) -> Result<IpAddr> {
        let addr = self.stream.local_addr().map_err(|why| self.gone(why))?;
        Ok(addr.ip().to_canonical())
    }

    fn gone(&self, why: io::Error) -> Error {
        Error::Gone { server: self.server.clone(), why }
    }

    fn next_xid(&mut self) -> u32 {
        self.xid = self.xid.wrapping_add(1);
        self.xid
    }

    fn send(&mut self, xid: u32, to: Procedure, cred: OpaqueAuth, args: &impl Encode) -> io::Result<()> {
        self.stream.write_all(&encoded(xid, to, cred, args))
    }

    fn receive(&mut self) -> io::Result<(u32, Outcome)> {
        loop {
            // Anything else is a callback that nobody asked for.
            if let Incoming::Reply { xid, outcome } = parse(self.record()?).map_err(io::Error::other)? {
                return Ok((xid, outcome));
            }
        }
    }

    fn record(&mut self) -> io::Result<Bytes> {
        let until = Instant::now() + self.patience;
        loop {
            match self.assembler.next(&mut self.buffer).map_err(io::Error::other)? {
                Some(record) => return Ok(record),
                None => self.fill(until)?,
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

/// The results of a call, if the server accepted it.
pub fn results(to: Procedure, outcome: Outcome) -> Result<Bytes> {
    match outcome {
        Outcome::Accepted(AcceptStat::Success, results) => Ok(results),
        Outcome::Accepted(stat, _) => Err(refused(to, stat.to_string())),
        Outcome::Denied(why) => Err(refused(to, why.to_string())),
    }
}

fn refused(to: Procedure, status: String) -> Error {
    Error::Refused {
        op: format!("program {} version {}", to.prog, to.vers),
        status,
        meaning: crate::error::Meaning::Other,
        code: None,
    }
}

/// A call of NFS version 4's NULL with its record mark, for whoever has a socket of their own.
pub fn null_call() -> Bytes {
    let null = Procedure { prog: landfast_nfs::PROGRAM, vers: landfast_nfs::v4::VERSION, proc: 0 };
    encoded(1, null, OpaqueAuth::NONE, &()).freeze()
}

fn encoded(xid: u32, to: Procedure, cred: OpaqueAuth, args: &impl Encode) -> BytesMut {
    let Procedure { prog, vers, proc } = to;
    let call = RawCall { xid, prog, vers, proc, cred, verf: OpaqueAuth::NONE };
    let mut out = BytesMut::with_capacity(1024);
    out.extend_from_slice(&[0; HEADER_LEN]);
    call.encode(&mut out);
    args.encode(&mut out);
    let header = last_fragment_header(out.len() - HEADER_LEN);
    out[..HEADER_LEN].copy_from_slice(&header);
    out
}

/// A connection from a reserved port; `None` when this is not the superuser, or on any failure.
fn reserved(to: SocketAddr) -> Option<TcpStream> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    // If nobody listens, find it out now and not after twenty ports.
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
