//! RPCs over a blocking socket: one after another, or several under way.

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
        let xid = self.submit(to, args)?;
        loop {
            match self.next_reply()? {
                (to_xid, outcome) if to_xid == xid => return results(to, outcome),
                _ => {}
            }
        }
    }

    /// Sends a call and does not wait: its transaction id, for [`Wire::next_reply`].
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn submit(&mut self, to: Procedure, args: &impl Encode) -> Result<u32> {
        let cred = self.cred.clone();
        self.send(to, cred, args).map_err(|why| self.gone(why))
    }

    /// Waits for the reply to any of the calls that were sent: to which, and what came of it.
    ///
    /// # Errors
    /// [`Error::Gone`] without one.
    pub fn next_reply(&mut self) -> Result<(u32, Outcome)> {
        self.receive().map_err(|why| self.gone(why))
    }

    /// Whether the server would go on in TLS: it says so in its reply to a NULL with the flavour AUTH_TLS (RFC 9289 section 4.1).
    /// It expects a handshake then, so the connection is of no more use.
    ///
    /// # Errors
    /// [`Error::Gone`] without an answer.
    pub fn offers_tls(mut self, to: Procedure) -> Result<bool> {
        const AUTH_TLS: u32 = 7;
        const MARK: &[u8] = b"STARTTLS";
        let ask = OpaqueAuth { flavor: AUTH_TLS, body: Bytes::new() };
        let xid = self.send(Procedure { proc: 0, ..to }, ask, &()).map_err(|why| self.gone(why))?;
        let record = self.record().map_err(|why| self.gone(why))?;
        // The reply's verifier, which says it, is nowhere else of interest.
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
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn local_ip(&self) -> Result<IpAddr> {
        let addr = self.stream.local_addr().map_err(|why| self.gone(why))?;
        Ok(addr.ip().to_canonical())
    }

    fn gone(&self, why: io::Error) -> Error {
        Error::Gone { server: self.server.clone(), why }
    }

    fn send(&mut self, to: Procedure, cred: OpaqueAuth, args: &impl Encode) -> io::Result<u32> {
        self.xid = self.xid.wrapping_add(1);
        let Procedure { prog, vers, proc } = to;
        let call = RawCall { xid: self.xid, prog, vers, proc, cred, verf: OpaqueAuth::NONE };
        let mut out = BytesMut::with_capacity(1024);
        out.extend_from_slice(&[0; HEADER_LEN]);
        call.encode(&mut out);
        args.encode(&mut out);
        let header = last_fragment_header(out.len() - HEADER_LEN);
        out[..HEADER_LEN].copy_from_slice(&header);
        self.stream.write_all(&out)?;
        Ok(self.xid)
    }

    fn receive(&mut self) -> io::Result<(u32, Outcome)> {
        loop {
            // What is no reply is a callback that nobody asked for.
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
///
/// # Errors
/// [`Error::Refused`].
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
