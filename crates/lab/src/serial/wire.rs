//! One RPC after another over a blocking socket: no task, no thread, no queue between the caller
//! and the wire, as little of the client's own time as can be.

use crate::limits::SERIAL_PATIENCE;
use landfast_rpc::message::{Incoming, OpaqueAuth, Outcome, RawCall, parse};
use landfast_rpc::record::{Assembler, HEADER_LEN, last_fragment_header};
use landfast_xdr::{Bytes, BytesMut, Encode};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Bytes that are read from the socket at once.
const READ_BYTES: usize = 64 << 10;

/// A call of the procedure that does nothing, with its header.
pub fn null_call() -> Bytes {
    encoded(1, (landfast_nfs::PROGRAM, landfast_nfs::v4::VERSION), 0, &OpaqueAuth::NONE, &())
}

/// A call with its header.
fn encoded(xid: u32, (prog, vers): (u32, u32), proc: u32, cred: &OpaqueAuth, args: &impl Encode) -> Bytes {
    let call = RawCall { xid, prog, vers, proc, cred: cred.clone(), verf: OpaqueAuth::NONE };
    let mut out = BytesMut::with_capacity(1024);
    out.extend_from_slice(&[0; HEADER_LEN]);
    call.encode(&mut out);
    args.encode(&mut out);
    let header = last_fragment_header(out.len() - HEADER_LEN);
    out[..HEADER_LEN].copy_from_slice(&header);
    out.freeze()
}

/// A connection.
pub struct Wire {
    stream: TcpStream,
    assembler: Assembler,
    buffer: BytesMut,
    cred: OpaqueAuth,
    xid: u32,
}

impl Wire {
    /// Connects.
    pub fn connect(addr: SocketAddr, cred: OpaqueAuth) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, SERIAL_PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SERIAL_PATIENCE))?;
        stream.set_write_timeout(Some(SERIAL_PATIENCE))?;
        let record_max = crate::limits::SERIAL_REPLY_BYTES_MAX;
        Ok(Wire { stream, assembler: Assembler::new(record_max), buffer: BytesMut::new(), cred, xid: 1 })
    }

    /// Another connection of the same caller.
    pub fn again(&self, addr: SocketAddr) -> io::Result<Self> {
        Ok(Wire { xid: self.xid, ..Wire::connect(addr, self.cred.clone())? })
    }

    /// Makes one call of NFS version 4 and returns its results.
    pub fn call(&mut self, proc: u32, args: &impl Encode) -> io::Result<Bytes> {
        let xid = self.xid.wrapping_add(1);
        self.call_as(xid, (landfast_nfs::PROGRAM, landfast_nfs::v4::VERSION), proc, args)
    }

    /// Makes one call with this number of a program and its version, and returns its results.
    pub fn call_as(
        &mut self,
        xid: u32,
        program: (u32, u32),
        proc: u32,
        args: &impl Encode,
    ) -> io::Result<Bytes> {
        self.xid = xid;
        self.send(program, proc, args)?;
        self.receive()
    }

    fn send(&mut self, program: (u32, u32), proc: u32, args: &impl Encode) -> io::Result<()> {
        self.stream.write_all(&encoded(self.xid, program, proc, &self.cred, args))
    }

    fn receive(&mut self) -> io::Result<Bytes> {
        loop {
            let record = self.assembler.next(&mut self.buffer).map_err(io::Error::other)?;
            let Some(record) = record else {
                self.fill()?;
                continue;
            };
            match parse(record).map_err(io::Error::other)? {
                Incoming::Reply { xid, outcome } if xid == self.xid => {
                    return match outcome {
                        Outcome::Accepted(landfast_rpc::AcceptStat::Success, results) => Ok(results),
                        Outcome::Accepted(stat, _) => Err(io::Error::other(stat.to_string())),
                        Outcome::Denied(why) => Err(io::Error::other(why.to_string())),
                    };
                }
                // A reply to a call that timed out, or a callback that was never asked for.
                _ => {}
            }
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let have = self.buffer.len();
        self.buffer.resize(have + READ_BYTES, 0);
        let got = self.stream.read(&mut self.buffer[have..]);
        self.buffer.truncate(have + *got.as_ref().unwrap_or(&0));
        match got {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
            Err(e) => Err(e),
        }
    }
}
