//! Captures made by hand: RPC messages, TCP segments, frames.

use landfast_rpc::message::{AcceptStat, OpaqueAuth, encode_accepted};
use landfast_rpc::record::last_fragment_header;
use landfast_trace::source::Frame;
use landfast_trace::table::Table;
use landfast_trace::trace::{Call, Ends, Observer, Reply, Shortest, Totals, Trace};
use landfast_xdr::{BytesMut, Encode};

/// A frame that was captured.
#[derive(Debug, Clone)]
pub struct Captured {
    pub ns: i64,
    pub data: Vec<u8>,
    pub wire_len: u32,
}

impl Captured {
    pub fn frame(&self, link: i32) -> Frame<'_> {
        Frame { ns: self.ns, link, data: &self.data, wire_len: self.wire_len }
    }
}

/// A pcap file of Ethernet frames, with nanoseconds.
pub fn pcap(frames: &[Captured]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_3c4du32, 0x0004_0002, 0, 0, 65535, 1] {
        out.extend(word.to_le_bytes());
    }
    for f in frames {
        let len = f.data.len() as u32;
        for word in [(f.ns / 1_000_000_000) as u32, (f.ns % 1_000_000_000) as u32, len, f.wire_len] {
            out.extend(word.to_le_bytes());
        }
        out.extend(&f.data);
    }
    out
}

/// A call with the body `body`, as a record.
pub fn call(xid: u32, program: u32, version: u32, procedure: u32, body: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    for word in [xid, 0, 2, program, version, procedure] {
        word.encode(&mut out);
    }
    OpaqueAuth { flavor: 1, body: vec![0; 32].into() }.encode(&mut out);
    OpaqueAuth::NONE.encode(&mut out);
    out.extend_from_slice(body);
    record(&out)
}

/// A reply with the body `body`, as a record.
pub fn reply(xid: u32, body: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode_accepted(xid, AcceptStat::Success, &mut out);
    out.extend_from_slice(body);
    record(&out)
}

fn record(message: &[u8]) -> Vec<u8> {
    [&last_fragment_header(message.len())[..], message].concat()
}

/// A connection that is written down, frame by frame.
#[derive(Clone)]
pub struct Wire {
    pub frames: Vec<Captured>,
    pub now: i64,
    pub ports: (u16, u16),
    /// The client's address and the server's.
    pub addrs: ([u8; 4], [u8; 4]),
    /// The next numbers: the client's and the server's.
    pub seq: (u32, u32),
    /// Bytes of payload in a segment.
    pub segment: usize,
    /// Nanoseconds between segments.
    pub gap: i64,
    /// The numbers of the packets before: the client's and the server's.
    pub packets: (u16, u16),
    /// Whether segments say what their sender has.
    pub acks: bool,
    /// What the client has heard of the server, if that is not all, and the server of the client.
    pub heard: [Option<u32>; 2],
}

impl Wire {
    pub fn new(client_port: u16) -> Self {
        Wire {
            frames: Vec::new(),
            now: 1_000_000_000_000,
            ports: (client_port, 2049),
            addrs: ([10, 0, 0, 2], [10, 0, 0, 1]),
            seq: (u32::MAX - 3000, 7),
            segment: 1448,
            gap: 1000,
            packets: (0, 0),
            acks: false,
            heard: [None; 2],
        }
    }

    pub fn open(&mut self) {
        for up in [true, false] {
            self.frame(up, 2, &[]);
            *self.next(up) = self.next(up).wrapping_add(1);
        }
    }

    fn next(&mut self, up: bool) -> &mut u32 {
        if up { &mut self.seq.0 } else { &mut self.seq.1 }
    }

    /// Sends bytes, from the client if `up`; the times of the first and the last segment.
    pub fn send(&mut self, up: bool, bytes: &[u8]) -> (i64, i64) {
        let first = self.now + self.gap;
        for piece in bytes.chunks(self.segment) {
            self.frame(up, 0x18, piece);
            *self.next(up) = self.next(up).wrapping_add(u32::try_from(piece.len()).expect("a segment"));
        }
        (first, self.now)
    }

    /// A packet that is lost before it comes by: only its number shows.
    pub fn missed(&mut self, up: bool) {
        let packet = if up { &mut self.packets.0 } else { &mut self.packets.1 };
        *packet = packet.wrapping_add(1);
    }

    /// A segment that only says what it has.
    pub fn ack(&mut self, up: bool) {
        self.frame(up, 0x10, &[]);
    }

    /// A pause.
    pub fn wait(&mut self, ns: i64) {
        self.now += ns;
    }

    fn frame(&mut self, up: bool, flags: u8, payload: &[u8]) {
        self.now += self.gap;
        let seq = *self.next(up);
        let ack = match self.heard[usize::from(!up)] {
            Some(heard) => heard,
            None if self.acks => *self.next(!up),
            None => 0,
        };
        self.missed(up);
        let number = if up { self.packets.0 } else { self.packets.1 };
        let packet = ipv4(up, number, self.addrs, &acked(tcp(up, self.ports, seq, flags, payload), ack));
        let mut data = vec![2; 12];
        data.extend_from_slice(&[8, 0]);
        data.extend_from_slice(&packet);
        let wire_len = u32::try_from(data.len()).expect("a frame");
        self.frames.push(Captured { ns: self.now, data, wire_len });
    }
}

/// The header of TCP and its payload.
pub fn tcp(up: bool, ports: (u16, u16), seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let (from, to) = if up { ports } else { (ports.1, ports.0) };
    let mut out = [from.to_be_bytes(), to.to_be_bytes()].concat();
    out.extend_from_slice(&seq.to_be_bytes());
    out.extend_from_slice(&[0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    out.extend_from_slice(payload);
    out
}

fn acked(mut tcp: Vec<u8>, ack: u32) -> Vec<u8> {
    tcp[8..12].copy_from_slice(&ack.to_be_bytes());
    tcp
}

fn ipv4(up: bool, number: u16, (client, server): ([u8; 4], [u8; 4]), tcp: &[u8]) -> Vec<u8> {
    let mut out = vec![0x45, 0];
    out.extend_from_slice(&u16::try_from(20 + tcp.len()).expect("a packet").to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&[0, 0, 64, 6, 0, 0]);
    out.extend_from_slice(if up { &client } else { &server });
    out.extend_from_slice(if up { &server } else { &client });
    out.extend_from_slice(tcp);
    out
}

/// Everything that was found.
#[derive(Default)]
pub struct Seen {
    pub table: Table,
    pub calls: Vec<Call>,
    pub answered: Vec<(Call, Reply)>,
    pub lines: Vec<String>,
}

impl Observer for Seen {
    fn stall(&mut self, _: Ends, _: i64, _: i64) {}
    fn path(&mut self, _: Ends, _: [Option<Shortest>; 2]) {}
    fn wants_detail(&self) -> bool {
        true
    }
    fn call(&mut self, ends: Ends, call: &Call) {
        self.lines.push(landfast_trace::listing::call(1_000_000_000_000, ends, call));
        self.calls.push(call.clone());
    }
    fn reply(&mut self, ends: Ends, call: &Call, reply: &Reply) {
        self.lines.push(landfast_trace::listing::reply(1_000_000_000_000, ends, call, reply));
        self.table.add(call, reply);
        self.answered.push((call.clone(), reply.clone()));
    }
}

pub fn look<'a>(frames: impl IntoIterator<Item = &'a Captured>) -> (Totals, Seen) {
    look_at(1, frames)
}

pub fn look_at<'a>(link: i32, frames: impl IntoIterator<Item = &'a Captured>) -> (Totals, Seen) {
    let mut trace = Trace::new(Seen::default());
    for captured in frames {
        trace.frame(&captured.frame(link));
    }
    trace.finish()
}

/// A datagram on Ethernet, in fragments of so many bytes of its IP packet's payload.
pub fn fragments(up: bool, number: u16, ns: i64, payload: &[u8], each: usize) -> Vec<Captured> {
    let (client, server) = ([10, 0, 0, 2], [10, 0, 0, 1]);
    let ports = if up { [700u16, 2049] } else { [2049, 700] };
    let len = u16::try_from(8 + payload.len()).expect("a datagram");
    let mut udp: Vec<u8> = ports.iter().flat_map(|p| p.to_be_bytes()).collect();
    udp.extend(len.to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    let last = (udp.len() - 1) / each;
    let frame = |(n, part): (usize, &[u8])| {
        let more = if n < last { 0x2000 } else { 0 };
        let mut data = [&[2; 12][..], &[8, 0, 0x45, 0]].concat();
        data.extend(u16::try_from(20 + part.len()).expect("a packet").to_be_bytes());
        data.extend(number.to_be_bytes());
        data.extend((u16::try_from(n * each / 8).expect("an offset") | more).to_be_bytes());
        data.extend([64, 17, 0, 0]);
        data.extend(if up { [client, server] } else { [server, client] }.concat());
        data.extend(part);
        // As short frames are on Ethernet.
        data.resize(data.len().max(60), 0);
        let wire_len = u32::try_from(data.len()).expect("a frame");
        Captured { ns: ns + i64::try_from(n).expect("few"), data, wire_len }
    };
    udp.chunks(each).enumerate().map(frame).collect()
}
