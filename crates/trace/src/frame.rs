//! Extracts from a frame what matters: a segment of a TCP stream, or a datagram. No I/O.

use crate::source::Frame;
use etherparse::{EtherType, LaxIpPayloadSlice, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    pub from: SocketAddr,
    pub to: SocketAddr,
    /// The captured part of the payload.
    pub payload: &'a [u8],
    /// Bytes of payload after it that were on the wire but not captured.
    pub missing: u32,
    /// `None`: a UDP datagram.
    pub tcp: Option<Tcp>,
}

/// The fields of a TCP header that matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tcp {
    /// Sequence number of the first byte of payload, or of SYN.
    pub seq: u32,
    /// Sequence number of the next byte expected from the other end.
    pub ack: Option<u32>,
    /// Start of a connection.
    pub syn: bool,
    /// IP identification. 0: none that means anything.
    pub packet: u16,
    /// It has SACK blocks: segments arrived after a missing one (RFC 2018).
    pub sack: bool,
}

/// A fragment of a UDP datagram in IPv4.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fragment<'a> {
    pub from: Ipv4Addr,
    pub to: Ipv4Addr,
    /// IP identification, common to all fragments of a datagram.
    pub number: u16,
    /// Offset in the datagram, counted from its UDP header.
    pub offset: u32,
    /// More fragments follow.
    pub more: bool,
    /// The captured part of it.
    pub payload: &'a [u8],
    /// Its length on the wire.
    pub len: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Passed {
    /// Neither TCP nor UDP over IP.
    Other,
    /// A fragment of an IP packet with others missing, or not UDP in IPv4.
    Fragment,
    /// Truncated before the end of its TCP or UDP header.
    Short,
    /// Its headers are contradictory.
    Malformed,
    Link,
}

impl Passed {
    pub fn words(self) -> &'static str {
        match self {
            Passed::Other => "neither TCP nor UDP",
            Passed::Fragment => "fragments of IP packets",
            Passed::Short => "cut before the end of the TCP header",
            Passed::Malformed => "malformed headers",
            Passed::Link => "of a link layer that is not supported",
        }
    }
}

/// Link layers as numbered by libpcap's registry.
mod link {
    pub const NULL: i32 = 0;
    pub const ETHERNET: i32 = 1;
    pub const RAW_BSD: i32 = 12;
    pub const RAW_OPENBSD: i32 = 14;
    pub const RAW: i32 = 101;
    pub const LOOP: i32 = 108;
    pub const LINUX_SLL: i32 = 113;
    pub const IPV4: i32 = 228;
    pub const IPV6: i32 = 229;
    pub const LINUX_SLL2: i32 = 276;
}

/// Parses a frame. The error says why it was skipped.
pub fn packet<'a>(frame: &Frame<'a>) -> Result<Packet<'a>, Passed> {
    if frame.link == link::ETHERNET
        && let Some(packet) = usual(frame)
    {
        return Ok(packet);
    }
    sliced(frame, TUNNELS_MAX)
}

/// At most this many nested tunnels are unpacked.
const TUNNELS_MAX: u8 = 2;

/// UDP port of VXLAN (RFC 7348 section 5).
const VXLAN_PORT: u16 = 4789;

/// Protocols in GRE (RFC 2784, RFC 2890) by number: IP, Ethernet, and traffic mirrored by switches (ERSPAN,
/// draft-foschiano-erspan-03).
mod gre {
    pub const IPV4: u16 = 0x0800;
    pub const IPV6: u16 = 0x86dd;
    pub const ETHERNET: u16 = 0x6558;
    pub const ERSPAN: u16 = 0x88be;
    pub const ERSPAN_3: u16 = 0x22eb;
    pub const IP_PROTOCOL: u8 = 47;
}

/// The packet inside a VXLAN, GRE or ERSPAN tunnel. `None`: no tunnel, or one that cannot be read.
fn tunnelled<'a>(frame: &Frame<'a>, packet: &LaxSlicedPacket<'a>, tunnels: u8) -> Option<Packet<'a>> {
    let tunnels = tunnels.checked_sub(1)?;
    let (link, data) = match (&packet.transport, &packet.net) {
        (Some(TransportSlice::Udp(udp)), _) if udp.destination_port() == VXLAN_PORT => {
            let payload = udp.payload();
            // The flag that says the VXLAN network identifier is valid.
            if payload.first()? & 8 == 0 {
                return None;
            }
            (link::ETHERNET, payload.get(8..)?)
        }
        (_, Some(LaxNetSlice::Ipv4(ip))) => in_gre(ip.payload())?,
        (_, Some(LaxNetSlice::Ipv6(ip))) => in_gre(ip.payload())?,
        _ => return None,
    };
    let cut = frame.wire_len.saturating_sub(u32::try_from(frame.data.len()).unwrap_or(u32::MAX));
    let wire_len = u32::try_from(data.len()).ok()?.saturating_add(cut);
    let inner = Frame { ns: frame.ns, link, data, wire_len };
    if link == link::ETHERNET
        && let Some(packet) = usual(&inner)
    {
        return Some(packet);
    }
    sliced(&inner, tunnels).ok()
}

fn in_gre<'a>(payload: &LaxIpPayloadSlice<'a>) -> Option<(i32, &'a [u8])> {
    if payload.ip_number.0 != gre::IP_PROTOCOL || payload.fragmented {
        return None;
    }
    let data = payload.payload;
    let word = |at: usize| data.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let (flags, protocol) = (word(0)?, word(2)?);
    if flags & 7 != 0 {
        return None;
    }
    // Optional fields: checksum, key, sequence number.
    let optional = [0x8000, 0x2000, 0x1000].into_iter().filter(|bit| flags & bit != 0).count();
    let begin = 4 + 4 * optional;
    let inner = |skip: usize| data.get(begin + skip..);
    Some(match protocol {
        gre::IPV4 | gre::IPV6 => (link::RAW, inner(0)?),
        gre::ETHERNET => (link::ETHERNET, inner(0)?),
        // ERSPAN type I has no header of its own and no sequence number. Type III may have an optional part.
        gre::ERSPAN if flags & 0x1000 == 0 => (link::ETHERNET, inner(0)?),
        gre::ERSPAN => (link::ETHERNET, inner(8)?),
        gre::ERSPAN_3 => {
            let more = if inner(11)?.first()? & 1 != 0 { 8 } else { 0 };
            (link::ETHERNET, inner(12 + more)?)
        }
        _ => return None,
    })
}

/// Fast path for the most common frame: TCP in a whole IPv4 packet on Ethernet. `None`: another kind of frame, or
/// something unusual in it.
fn usual<'a>(frame: &Frame<'a>) -> Option<Packet<'a>> {
    let data = frame.data;
    let word = |at: usize| data.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let long = |at: usize| data.get(at..at + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
    const IP: usize = 14;
    // Version 4 without options, not a fragment, TCP.
    if word(12)? != 0x0800 || data.get(IP)? != &0x45 || word(IP + 6)? & 0x3fff != 0 || data.get(IP + 9)? != &6
    {
        return None;
    }
    let end = IP + usize::from(word(IP + 2)?);
    let tcp = IP + 20;
    let from_there = usize::from(data.get(tcp + 12)? >> 4) * 4;
    let begin = tcp + from_there;
    if from_there < 20 || begin > end || begin > data.len() {
        return None;
    }
    let have = end.min(data.len());
    let address = |at: usize| long(at).map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
    let flags = *data.get(tcp + 13)?;
    Some(Packet {
        from: SocketAddr::new(address(IP + 12)?, word(tcp)?),
        to: SocketAddr::new(address(IP + 16)?, word(tcp + 2)?),
        payload: data.get(begin..have)?,
        missing: u32::try_from(end - have).ok()?,
        tcp: Some(Tcp {
            seq: long(tcp + 4)?,
            ack: if flags & 0x10 != 0 { Some(long(tcp + 8)?) } else { None },
            syn: flags & 2 != 0,
            packet: word(IP + 4)?,
            sack: flags & 2 == 0 && has_sack(data.get(tcp + 20..begin)?),
        }),
    })
}

/// Whether the TCP options contain SACK blocks.
fn has_sack(mut options: &[u8]) -> bool {
    // The common case: timestamps alone.
    if options.len() == 12 && options.starts_with(&[1, 1, 8, 10]) {
        return false;
    }
    while let [kind, rest @ ..] = options {
        options = match (kind, rest) {
            (0, _) => return false,
            (1, _) => rest,
            (5, _) => return true,
            (_, [length, ..]) if *length >= 2 => rest.get(usize::from(*length) - 1..).unwrap_or_default(),
            _ => return false,
        };
    }
    false
}

/// Parses link layer, network and transport.
fn slice<'a>(frame: &Frame<'a>) -> Result<LaxSlicedPacket<'a>, Passed> {
    let data = frame.data;
    let typed = |header: usize, at: usize| {
        let number = data.get(at..at + 2).ok_or(Passed::Short)?;
        let rest = data.get(header..).ok_or(Passed::Short)?;
        let number = EtherType(u16::from_be_bytes([number[0], number[1]]));
        Ok(LaxSlicedPacket::from_ether_type(number, rest))
    };
    Ok(match frame.link {
        link::ETHERNET => LaxSlicedPacket::from_ethernet(data).map_err(|_| Passed::Short)?,
        link::LINUX_SLL => typed(16, 14)?,
        link::LINUX_SLL2 => typed(20, 0)?,
        link::RAW | link::RAW_BSD | link::RAW_OPENBSD | link::IPV4 | link::IPV6 => ip(data)?,
        link::NULL | link::LOOP => ip(data.get(4..).ok_or(Passed::Short)?)?,
        _ => return Err(Passed::Link),
    })
}

fn sliced<'a>(frame: &Frame<'a>, tunnels: u8) -> Result<Packet<'a>, Passed> {
    let data = frame.data;
    let packet = slice(frame)?;
    if !matches!(packet.transport, Some(TransportSlice::Tcp(_)))
        && let Some(inner) = tunnelled(frame, &packet, tunnels)
    {
        return Ok(inner);
    }
    // A frame that the network card segments later has no lengths of its own. The capture knows its length.
    let cut = frame.wire_len.saturating_sub(u32::try_from(data.len()).unwrap_or(u32::MAX));
    let (from, to, ip_payload, missing) = match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let (header, payload) = (ip.header(), ip.payload());
            let auth = ip.extensions().auth.as_ref().map_or(0, |a| a.slice().len());
            let have = header.slice().len() + auth + payload.payload.len();
            let missing = match header.total_len() {
                0 => cut,
                len => u32::from(len).saturating_sub(u32::try_from(have).unwrap_or(u32::MAX)),
            };
            (IpAddr::V4(header.source_addr()), IpAddr::V4(header.destination_addr()), payload, missing)
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let (header, payload) = (ip.header(), ip.payload());
            let have = ip.extensions().slice().len() + payload.payload.len();
            let missing = match header.payload_length() {
                0 => cut,
                len => u32::from(len).saturating_sub(u32::try_from(have).unwrap_or(u32::MAX)),
            };
            (IpAddr::V6(header.source_addr()), IpAddr::V6(header.destination_addr()), payload, missing)
        }
        Some(LaxNetSlice::Arp(_)) => return Err(Passed::Other),
        None if packet.stop_err.is_some() => return Err(Passed::Malformed),
        None => return Err(Passed::Other),
    };
    if ip_payload.fragmented {
        return Err(Passed::Fragment);
    }
    match packet.transport {
        Some(TransportSlice::Tcp(tcp)) => Ok(Packet {
            from: SocketAddr::new(from, tcp.source_port()),
            to: SocketAddr::new(to, tcp.destination_port()),
            payload: tcp.payload(),
            missing,
            tcp: Some(Tcp {
                seq: tcp.sequence_number(),
                ack: tcp.ack().then(|| tcp.acknowledgment_number()),
                syn: tcp.syn(),
                sack: !tcp.syn() && has_sack(tcp.options()),
                packet: match &packet.net {
                    Some(LaxNetSlice::Ipv4(ip)) => ip.header().identification(),
                    _ => 0,
                },
            }),
        }),
        Some(TransportSlice::Udp(udp)) => Ok(Packet {
            from: SocketAddr::new(from, udp.source_port()),
            to: SocketAddr::new(to, udp.destination_port()),
            payload: udp.payload(),
            missing,
            tcp: None,
        }),
        Some(_) => Err(Passed::Other),
        None if packet.stop_err.is_some() && missing > 0 => Err(Passed::Short),
        None if packet.stop_err.is_some() => Err(Passed::Malformed),
        None => Err(Passed::Other),
    }
}

pub(crate) fn fragment<'a>(frame: &Frame<'a>) -> Option<Fragment<'a>> {
    let Some(LaxNetSlice::Ipv4(ip)) = slice(frame).ok()?.net else { return None };
    let (header, payload) = (ip.header(), ip.payload());
    if !payload.fragmented || payload.ip_number.0 != UDP {
        return None;
    }
    let len = usize::from(header.total_len()).checked_sub(header.slice().len())?;
    Some(Fragment {
        from: header.source_addr(),
        to: header.destination_addr(),
        number: header.identification(),
        offset: u32::from(header.fragments_offset().value()) * 8,
        more: header.more_fragments(),
        payload: payload.payload.get(..len).unwrap_or(payload.payload),
        len: u32::try_from(len).ok().filter(|len| *len > 0)?,
    })
}

const UDP: u8 = 17;

fn ip(data: &[u8]) -> Result<LaxSlicedPacket<'_>, Passed> {
    LaxSlicedPacket::from_ip(data).map_err(|_| Passed::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        /// For any damage to a frame: both parsers read it alike, or only the complete one reads it.
        #[test]
        fn the_usual_frame_is_read_as_any_other(
            payload in proptest::collection::vec(any::<u8>(), 0..40),
            options in 0usize..4,
            flags: u8,
            changes in proptest::collection::vec((0usize..70, any::<u8>()), 0..3),
            cut in 0usize..120,
            padding in 0usize..10,
        ) {
            let mut data = vec![2; 12];
            data.extend([8, 0, 0x45, 0]);
            data.extend(u16::try_from(40 + options * 4 + payload.len()).unwrap().to_be_bytes());
            data.extend([0, 9, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
            data.extend([3, 1, 8, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0x50 + 16 * u8::try_from(options).unwrap(), flags, 1, 0, 0, 0, 0, 0]);
            data.extend(vec![1; options * 4]);
            data.extend(&payload);
            data.extend(vec![0; padding]);
            let wire_len = u32::try_from(data.len()).unwrap();
            for (at, byte) in changes {
                if let Some(b) = data.get_mut(at) {
                    *b = byte;
                }
            }
            data.truncate(cut.max(20));
            let frame = Frame { ns: 0, link: link::ETHERNET, data: &data, wire_len };
            if let Some(packet) = usual(&frame) {
                prop_assert_eq!(sliced(&frame, 0), Ok(packet));
            }
        }
    }

    fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![0x45, 0];
        out.extend(u16::try_from(20 + payload.len()).unwrap().to_be_bytes());
        out.extend([0, 9, 0, 0, 64, protocol, 0, 0, 192, 168, 0, 1, 192, 168, 0, 2]);
        out.extend(payload);
        out
    }

    #[test]
    fn what_is_in_a_tunnel_is_read_as_if_it_were_in_none() {
        let mut plain = vec![2; 12];
        plain.extend([8, 0, 0x45, 0, 0, 44, 0, 9, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
        plain.extend([3, 1, 8, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x18, 1, 0, 0, 0, 0, 0, 9, 9, 9, 9]);
        let read = |data: &[u8]| {
            let frame =
                Frame { ns: 0, link: link::ETHERNET, data, wire_len: u32::try_from(data.len()).unwrap() };
            packet(&frame).map(|p| (p.from, p.to, p.payload.to_vec(), p.missing, p.tcp))
        };
        let expected = read(&plain);
        assert!(expected.is_ok());
        let ethernet = |packet: Vec<u8>| [&[4; 12][..], &[8, 0], &packet].concat();
        let gre = |header: &[u8], inner: &[u8]| ethernet(ipv4(47, &[header, inner].concat()));
        let udp = |inner: &[u8]| {
            let length = u16::try_from(8 + inner.len()).unwrap().to_be_bytes();
            ethernet(ipv4(17, &[&[0xc0, 0, 0x12, 0xb5][..], &length, &[0, 0], inner].concat()))
        };
        let vxlan = |inner: &[u8]| udp(&[&[8, 0, 0, 0, 0, 0, 7, 0][..], inner].concat());
        let erspan_3 = [&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1][..], &[0x20; 11], &[1], &[0; 8]].concat();
        for tunnel in [
            vxlan(&plain),
            gre(&[0, 0, 0x65, 0x58], &plain),
            gre(&[0xb0, 0, 8, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3], &plain[14..]),
            gre(&[0, 0, 0x88, 0xbe], &plain),
            gre(&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 0, 0, 0, 0, 0, 0, 0], &plain),
            gre(&erspan_3, &plain),
            gre(&[0, 0, 0x65, 0x58], &vxlan(&plain)),
        ] {
            assert_eq!(read(&tunnel), expected);
            // Truncated anywhere, it still gets an answer.
            (0..tunnel.len()).for_each(|len| _ = read(&tunnel[..len]));
        }
    }

    #[test]
    fn selective_acknowledgements_are_found_among_options() {
        let timestamps = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        assert!(!has_sack(&timestamps) && !has_sack(&[]) && !has_sack(&[8]) && !has_sack(&[8, 0, 5]));
        assert!(has_sack(&[&timestamps[..], &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]].concat()));
    }

    #[test]
    fn what_is_usual_is_read_so() {
        let mut data = vec![2; 12];
        data.extend([8, 0, 0x45, 0, 0, 44, 0, 9, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
        data.extend([3, 1, 8, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x18, 1, 0, 0, 0, 0, 0, 9, 9, 9, 9]);
        let frame = Frame { ns: 0, link: link::ETHERNET, data: &data, wire_len: 58 };
        let packet = usual(&frame).expect("a usual one");
        assert_eq!((packet.payload, packet.missing), (&[9; 4][..], 0));
        let cut = Frame { data: &data[..56], ..frame };
        assert_eq!(usual(&cut).map(|p| (p.payload.len(), p.missing)), Some((2, 2)));
    }
}
