//! ONC RPC, and as much of NFS as an attacker needs. Written from the RFCs and without the project's own crates,
//! because a test cannot show a mistake that both ends share.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

/// Program numbers of NFS (RFC 7531, RFC 1813), MOUNT (RFC 1813 appendix I) and NLM (the Open Group's XNFS).
pub const NFS: u32 = 100_003;
pub const MOUNT: u32 = 100_005;
pub const NLM: u32 = 100_021;

/// A reply that takes longer is a failure.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Encodes XDR (RFC 4506).
#[derive(Clone, Debug, Default)]
pub struct Xdr(pub Vec<u8>);

impl Xdr {
    pub fn u32(mut self, value: u32) -> Xdr {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Xdr {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Bytes of a length that both sides know.
    pub fn fixed(mut self, bytes: &[u8]) -> Xdr {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Bytes after their length.
    pub fn opaque(self, bytes: &[u8]) -> Xdr {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX)).fixed(bytes)
    }

    pub fn then(mut self, other: &Xdr) -> Xdr {
        self.0.extend_from_slice(&other.0);
        self
    }
}

/// Decodes XDR. Errors say what was missing.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// `length` bytes, and their padding to a multiple of four.
    pub fn fixed(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (bytes, _) = self.0.split_at_checked(length).ok_or("a reply that ends early")?;
        self.0 = self.0.get(length.next_multiple_of(4)..).ok_or("a reply that ends early")?;
        Ok(bytes)
    }

    pub fn u32(&mut self) -> Result<u32, String> {
        let bytes = self.fixed(4)?.try_into().map_err(|_| "a reply that ends early")?;
        Ok(u32::from_be_bytes(bytes))
    }

    pub fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    pub fn opaque(&mut self) -> Result<&'a [u8], String> {
        let length = self.u32()?;
        self.fixed(length as usize)
    }
}

/// User and group of AUTH_SYS, as the caller claims.
pub type User = (u32, u32);

pub const ROOT: User = (0, 0);

/// A call message (RFC 5531 section 9) without record mark.
pub fn call(xid: u32, program: u32, version: u32, procedure: u32, user: Option<User>, args: &Xdr) -> Vec<u8> {
    let head = Xdr::default().u32(xid).u32(0).u32(2).u32(program).u32(version).u32(procedure);
    let head = match user {
        Some((uid, gid)) => {
            let body = Xdr::default().u32(0).opaque(b"attacker").u32(uid).u32(gid).u32(0);
            head.u32(1).opaque(&body.0)
        }
        None => head.u32(0).u32(0),
    };
    head.u32(0).u32(0).then(args).0
}

/// The results of the call `xid`. Fails if it was not executed.
pub fn results(reply: &[u8], xid: u32) -> Result<&[u8], String> {
    let mut reader = Reader(reply);
    if reader.u32()? != xid || reader.u32()? != 1 {
        return Err("not the reply to this call".to_owned());
    }
    if reader.u32()? != 0 {
        return Err("the call was denied".to_owned());
    }
    let _flavor = reader.u32()?;
    reader.opaque()?;
    match reader.u32()? {
        0 => Ok(reader.0),
        status => Err(format!("the call was not executed: accept_stat {status}")),
    }
}

/// A record of one fragment.
pub fn record(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(0) | 1 << 31;
    [&length.to_be_bytes(), message].concat()
}

/// A connection from a chosen address.
pub struct Link {
    /// The socket, for anything that is not a call.
    pub stream: TcpStream,
    xid: u32,
}

impl Link {
    /// Connects from this address; all of 127.0.0.0/8 is local.
    pub fn open(from: Ipv4Addr, to: SocketAddr) -> io::Result<Link> {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&socket, &SocketAddrV4::new(from, 0))?;
        connect(&socket, &to)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Link { stream, xid: std::process::id() })
    }

    /// Sends a call and returns its results.
    pub fn call(
        &mut self,
        (program, version, procedure): (u32, u32, u32),
        user: Option<User>,
        args: &Xdr,
    ) -> Result<Vec<u8>, String> {
        self.xid = self.xid.wrapping_add(1);
        let message = call(self.xid, program, version, procedure, user, args);
        self.stream.write_all(&record(&message)).map_err(|e| format!("sending a call: {e}"))?;
        let reply = self.receive()?;
        results(&reply, self.xid).map(<[u8]>::to_vec)
    }

    /// Sends a call without waiting for the reply.
    pub fn send(&mut self, (program, version, procedure): (u32, u32, u32), args: &Xdr) -> io::Result<()> {
        self.xid = self.xid.wrapping_add(1);
        let message = call(self.xid, program, version, procedure, Some(ROOT), args);
        self.stream.write_all(&record(&message))
    }

    pub fn receive(&mut self) -> Result<Vec<u8>, String> {
        let mut whole = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark).map_err(|e| format!("waiting for a reply: {e}"))?;
            let mark = u32::from_be_bytes(mark);
            let begin = whole.len();
            whole.resize(begin + (mark & !(1 << 31)) as usize, 0);
            let fragment = whole.get_mut(begin..).unwrap_or_default();
            self.stream.read_exact(fragment).map_err(|e| format!("waiting for a reply: {e}"))?;
            if mark >> 31 == 1 {
                return Ok(whole);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_the_form_of_rfc_5531_and_a_reply_is_read() {
        let bytes = call(7, NFS, 3, 0, None, &Xdr::default());
        let words: Vec<u32> =
            bytes.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words, [7, 0, 2, NFS, 3, 0, 0, 0, 0, 0]);
        let reply = Xdr::default().u32(7).u32(1).u32(0).u32(0).u32(0).u32(0).opaque(b"abcde").0;
        assert_eq!(Reader(results(&reply, 7).unwrap()).opaque().unwrap(), b"abcde");
        assert!(results(&reply, 8).is_err());
        assert!(results(&reply[..20], 7).is_err());
    }
}
