//! Captures of work with a server: what passed over one connection, written down, and made into the frames of as many
//! clients as are wanted.
//!
//! The bytes, and when they passed, are those of a real client and a real server. The frames are what a capture at the client's
//! Ethernet would have: segments of 1,448 bytes, an acknowledgement for every other one.

use crate::error::{Context, Error, Result};
use parking_lot::Mutex;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// Bytes that passed in one direction at a time.
#[derive(Debug, Clone)]
pub struct Passed {
    /// Nanoseconds on the monotonic clock.
    pub ns: u64,
    /// From the client to the server.
    pub up: bool,
    pub bytes: Vec<u8>,
}

/// A relay for one connection that writes down what passes.
pub struct Tap {
    addr: SocketAddr,
    relay: std::thread::JoinHandle<io::Result<Vec<Passed>>>,
}

impl Tap {
    /// In front of `server`.
    pub fn start(server: SocketAddr) -> Result<Tap> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context(|| "open a local port".into())?;
        let addr = listener.local_addr().context(|| "local port".into())?;
        let relay = std::thread::spawn(move || relay(listener, server));
        Ok(Tap { addr, relay })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What passed, when the client has closed its connection.
    pub fn finish(self) -> Result<Vec<Passed>> {
        let passed = self.relay.join().map_err(|_| Error::Protocol("the relay has failed".into()))?;
        passed.context(|| "relay a connection".to_owned())
    }
}

fn relay(listener: TcpListener, server: SocketAddr) -> io::Result<Vec<Passed>> {
    let (client, _) = listener.accept()?;
    // A second connection is refused, and does not wait for ever.
    drop(listener);
    let server = TcpStream::connect(server)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let all = Arc::new(Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let up = scope.spawn(|| copy(&client, &server, true, &all));
        copy(&server, &client, false, &all)?;
        up.join().unwrap_or_else(|_| Err(io::Error::other("a thread has failed")))
    })?;
    Ok(std::mem::take(&mut *all.lock()))
}

fn copy(mut from: &TcpStream, mut to: &TcpStream, up: bool, all: &Mutex<Vec<Passed>>) -> io::Result<()> {
    let mut buf = vec![0; 1 << 20];
    loop {
        let n = match from.read(&mut buf) {
            Err(e) if is_gone(&e) => 0,
            read => read?,
        };
        if n == 0 {
            // The other end may have closed as well.
            let _ = to.shutdown(Shutdown::Write);
            return Ok(());
        }
        // Before it is passed on: what answers it comes later.
        all.lock().push(Passed { ns: crate::clock::now_ns(), up, bytes: buf[..n].to_vec() });
        match to.write_all(&buf[..n]) {
            Err(e) if is_gone(&e) => return Ok(()),
            wrote => wrote?,
        }
    }
}

/// The other end has closed its connection without reading what was still sent to it: an end like any other.
fn is_gone(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Bytes of payload in a segment.
const SEGMENT: usize = 1448;

/// Nanoseconds that a segment takes at ten gigabits a second.
const SEGMENT_NS: u64 = 1_200;

/// Ethernet, IPv4, TCP with timestamps.
const HEADERS: usize = 14 + 20 + 32;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
const PORTS: (u16, u16) = (777, 2049);

/// A frame of one client, whose address is still to be filled in.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Nanoseconds since the first.
    pub ns: u64,
    up: bool,
    data: Vec<u8>,
}

/// The frames of a connection over which this passed.
pub fn frames(passed: &[Passed]) -> Vec<Frame> {
    let begun = passed.first().map_or(0, |p| p.ns);
    let mut out = Frames { out: Vec::new(), seq: [0x1000_0000, 0x2000_0000] };
    const SYN: u8 = 2;
    const ACK: u8 = 0x10;
    const PUSH: u8 = 8;
    for (ns, up, flags) in [(0, true, SYN), (20_000, false, SYN | ACK)] {
        out.put(ns, up, flags, &[]);
        out.seq[usize::from(up)] += 1;
    }
    out.put(21_000, true, ACK, &[]);
    for piece in passed {
        // The handshake came before.
        let mut ns = piece.ns - begun + 50_000;
        for (n, segment) in piece.bytes.chunks(SEGMENT).enumerate() {
            ns = ns.max(out.last_ns() + 100);
            let last = (n + 1) * SEGMENT >= piece.bytes.len();
            out.put(ns, piece.up, if last { ACK | PUSH } else { ACK }, segment);
            if n % 2 == 1 {
                out.put(ns + SEGMENT_NS / 2, !piece.up, ACK, &[]);
            }
            ns += SEGMENT_NS;
        }
    }
    out.out
}

struct Frames {
    out: Vec<Frame>,
    /// The next numbers: the server's, the client's.
    seq: [u32; 2],
}

impl Frames {
    fn last_ns(&self) -> u64 {
        self.out.last().map_or(0, |f| f.ns)
    }

    fn put(&mut self, ns: u64, up: bool, flags: u8, payload: &[u8]) {
        let mut data = Vec::with_capacity(HEADERS + payload.len());
        let (from, to) = if up { PORTS } else { (PORTS.1, PORTS.0) };
        let macs = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
        let [from_mac, to_mac] = if up { macs } else { [macs[1], macs[0]] };
        data.extend([to_mac, from_mac].concat());
        data.extend([8, 0, 0x45, 0]);
        data.extend(((HEADERS - 14 + payload.len()) as u16).to_be_bytes());
        data.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        let server = SERVER.octets();
        data.extend(if up { [[0; 4], server] } else { [server, [0; 4]] }.concat());
        data.extend([from.to_be_bytes(), to.to_be_bytes()].concat());
        let (seq, ack) = (self.seq[usize::from(up)], self.seq[usize::from(!up)]);
        data.extend(seq.to_be_bytes());
        data.extend(if flags & 0x10 == 0 { 0 } else { ack }.to_be_bytes());
        data.extend([0x80, flags, 0xff, 0xff, 0, 0, 0, 0, 1, 1, 8, 10]);
        let ms = (ns / 1_000_000) as u32;
        data.extend([ms.to_be_bytes(), ms.to_be_bytes()].concat());
        data.extend(payload);
        self.seq[usize::from(up)] = seq.wrapping_add(payload.len() as u32);
        self.out.push(Frame { ns, up, data });
    }
}

impl Frame {
    /// The frame of this client, with its checksums.
    fn of(&self, client: Ipv4Addr, out: &mut Vec<u8>) {
        out.clear();
        out.extend(&self.data);
        let at = if self.up { 26 } else { 30 };
        out[at..at + 4].copy_from_slice(&client.octets());
        let sum = !folded(words(&out[14..34]));
        out[24..26].copy_from_slice(&sum.to_be_bytes());
        let tcp = (out.len() - 34) as u64;
        let sum = !folded(words(&out[26..34]) + 6 + tcp + words(&out[34..]));
        out[50..52].copy_from_slice(&sum.to_be_bytes());
    }
}

/// The sum of RFC 1071.
fn words(bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    bytes.chunks(2).map(word).sum()
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// Clients whose frames come by turns.
const AT_A_TIME: u64 = 25;

/// Writes a capture in which `clients` clients do the same, some at a time.
pub fn write(frames: &[Frame], clients: u64, to: &mut dyn Write) -> io::Result<()> {
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 0x4_0000, 1] {
        to.write_all(&word.to_le_bytes())?;
    }
    let takes = frames.last().map_or(0, |f| f.ns) + 1_000_000;
    let mut data = Vec::new();
    let mut from = 0;
    while from < clients {
        let some = from..clients.min(from + AT_A_TIME);
        for frame in frames {
            for client in some.clone() {
                frame.of(Ipv4Addr::from_bits(0x0a00_0001 + client as u32), &mut data);
                let ns = 1_700_000_000_000_000_000 + from / AT_A_TIME * takes + frame.ns + client - from;
                let len = data.len() as u32;
                let head = [(ns / 1_000_000_000) as u32, (ns % 1_000_000_000) as u32, len, len];
                to.write_all(&head.map(u32::to_le_bytes).concat())?;
                to.write_all(&data)?;
            }
        }
        from = some.end;
    }
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_hold_what_passed_and_their_checksums_are_right() {
        let passed = [
            Passed { ns: 10, up: true, bytes: (0..4000u32).map(|n| n as u8).collect() },
            Passed { ns: 500_000, up: false, bytes: vec![7; 99] },
        ];
        let frames = frames(&passed);
        assert!(frames.is_sorted_by_key(|f| f.ns));
        for (up, bytes) in [(true, &passed[0].bytes), (false, &passed[1].bytes)] {
            let sent: Vec<u8> =
                frames.iter().filter(|f| f.up == up).flat_map(|f| &f.data[HEADERS..]).copied().collect();
            assert_eq!(sent, *bytes);
        }
        let mut data = Vec::new();
        for frame in &frames {
            frame.of(Ipv4Addr::new(10, 1, 2, 3), &mut data);
            // A sum over what includes its own checksum is all ones.
            assert_eq!(folded(words(&data[14..34])), 0xffff);
            assert_eq!(
                folded(words(&data[26..34]) + 6 + (data.len() as u64 - 34) + words(&data[34..])),
                0xffff
            );
        }
    }

    #[test]
    fn a_client_that_goes_without_its_last_reply_is_no_failure() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let tap = Tap::start(server.local_addr().unwrap()).unwrap();
        let mut client = TcpStream::connect(tap.addr()).unwrap();
        client.write_all(b"call").unwrap();
        let (mut at_server, _) = server.accept().unwrap();
        at_server.read_exact(&mut [0; 4]).unwrap();
        drop(client);
        assert_eq!(at_server.read(&mut [0; 1]).unwrap(), 0, "the end is passed on");
        // The first of these makes the client's host send a reset; one of the later ones fails.
        while at_server.write_all(&[7; 1 << 16]).is_ok() {}
        let passed = tap.finish().unwrap();
        assert_eq!((passed[0].up, &passed[0].bytes[..]), (true, &b"call"[..]));
    }

    #[test]
    fn a_capture_of_many_clients_is_in_order() {
        let frames = frames(&[Passed { ns: 1, up: true, bytes: vec![1; 3000] }]);
        let mut out = Vec::new();
        write(&frames, AT_A_TIME + 2, &mut out).expect("memory");
        let (mut at, mut last, mut seen) = (24, 0, 0);
        while at < out.len() {
            let word = |i: usize| u32::from_le_bytes(out[at + i..at + i + 4].try_into().expect("four bytes"));
            let ns = u64::from(word(0)) * 1_000_000_000 + u64::from(word(4));
            assert!(ns >= last);
            (last, seen) = (ns, seen + 1);
            at += 16 + word(8) as usize;
        }
        assert_eq!((at, seen), (out.len(), frames.len() * (AT_A_TIME as usize + 2)));
    }
}
