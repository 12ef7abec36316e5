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

    /// Makes one call of NFS version 4 and returns its results.
    pub fn call(&mut self, proc: u32, args: &impl Encode) -> io::Result<Bytes> {
        self.send(proc, args)?;
        self.receive()
    }

    fn send(&mut self, proc: u32, args: &impl Encode) -> io::Result<()> {
        self.xid = self.xid.wrapping_add(1);
        let call = RawCall {
            xid: self.xid,
            prog: landfast_nfs::PROGRAM,
            vers: landfast_nfs::v4::VERSION,
            proc,
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
