//! Anonymises the headers of a frame: hashes addresses, removes options that reveal more than necessary, and clears
//! checksums as if the network card computed them.

use super::key::Key;
use std::net::IpAddr;
use std::ops::Range;

/// Anonymises the headers and zeroes everything after them. The payload of TCP or UDP is filled in later by code that
/// understands it.
pub(super) fn scrub(link: i32, data: &mut [u8], key: &Key) {
    let kept = headers(link, data, key).unwrap_or(0);
    data[kept..].fill(0);
}

/// Anonymises the headers and returns their length.
fn headers(link: i32, data: &mut [u8], key: &Key) -> Option<usize> {
    let (at, version) = match link {
        1 => {
            mac(data, 0..6, key)?;
            mac(data, 6..12, key)?;
            let mut at = 12;
            while matches!(number(data, at)?, 0x8100 | 0x88a8 | 0x9100) {
                at += 4;
            }
            (at + 2, number(data, at)?)
        }
        113 => {
            mac(data, 6..12, key)?;
            data.get_mut(12..14)?.fill(0);
            (16, number(data, 14)?)
        }
        276 => {
            mac(data, 12..18, key)?;
            data.get_mut(18..20)?.fill(0);
            (20, number(data, 0)?)
        }
        12 | 14 | 101 | 228 | 229 => (0, 0),
        0 | 108 => (4, 0),
        _ => return None,
    };
    let rest = data.get_mut(at..)?;
    let ip = match (version, rest.first().map(|b| b >> 4)) {
        (0x0800 | 0, Some(4)) => ipv4(rest, key),
        (0x86dd | 0, Some(6)) => ipv6(rest, key),
        _ => None,
    };
    // Of a packet that is not IP, only the header of the link layer stays.
    let Some((len, protocol)) = ip else { return Some(at) };
    let transport = match protocol {
        Some(6) => tcp(&mut rest[len..]),
        Some(17) => udp(&mut rest[len..]),
        _ => None,
    };
    Some(at + len + transport.unwrap_or(0))
}

fn number(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?))
}

fn mac(data: &mut [u8], at: Range<usize>, key: &Key) -> Option<()> {
    key.mac(data.get_mut(at)?);
    Some(())
}

/// The length of the header and, if it is complete, the protocol after it.
fn ipv4(data: &mut [u8], key: &Key) -> Option<(usize, Option<u8>)> {
    let len = usize::from(data[0] & 15) * 4;
    if len < 20 || data.len() < len {
        return None;
    }
    for at in [12, 16] {
        let old: [u8; 4] = data[at..at + 4].try_into().ok()?;
        if let IpAddr::V4(new) = key.address(old.into()) {
            data[at..at + 4].copy_from_slice(&new.octets());
        }
    }
    // Replaces options by no-operation.
    data[20..len].fill(1);
    data[10..12].fill(0);
    let words = data[..len].chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    data[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let fragment = number(data, 6)?;
    // Only the first fragment of a datagram has its header.
    let headed = fragment & 0x3fff == 0 || fragment & 0x1fff == 0 && data[9] == 17;
    Some((len, headed.then_some(data[9])))
}

fn ipv6(data: &mut [u8], key: &Key) -> Option<(usize, Option<u8>)> {
    if data.len() < 40 {
        return None;
    }
    for at in [8, 24] {
        let old: [u8; 16] = data[at..at + 16].try_into().ok()?;
        if let IpAddr::V6(new) = key.address(old.into()) {
            data[at..at + 16].copy_from_slice(&new.octets());
        }
    }
    let (mut next, mut at) = (data[6], 40);
    // Extension headers: only their lengths stay.
    while matches!(next, 0 | 43 | 60) {
        let head: [u8; 2] = data.get(at..at + 2)?.try_into().ok()?;
        let len = (usize::from(head[1]) + 1) * 8;
        // All zeros means padding, one byte each.
        data.get_mut(at + 2..at + len)?.fill(0);
        (next, at) = (head[0], at + len);
    }
    Some((at, Some(next)))
}

fn tcp(data: &mut [u8]) -> Option<usize> {
    if data.len() < 20 {
        return None;
    }
    let len = usize::from(data[12] >> 4) * 4;
    if len < 20 || data.len() < len {
        // Its options were not captured.
        data[20..].fill(0);
        data[16..20].fill(0);
        return Some(20);
    }
    // Checksum and urgent pointer.
    data[16..20].fill(0);
    let mut at = 20;
    while at < len {
        let option = match data[at] {
            0 => break,
            1 => {
                at += 1;
                continue;
            }
            option => option,
        };
        let Some(size) = data.get(at + 1).map(|n| usize::from(*n)).filter(|n| *n >= 2 && at + n <= len)
        else {
            break;
        };
        match option {
            // Segment size, window scale, SACK.
            2..=5 => {}
            // Timestamps reveal how long a machine has been running.
            8 => data[at + 2..at + size].fill(0),
            _ => data[at..at + size].fill(1),
        }
        at += size;
    }
    data[at..len].fill(0);
    Some(len)
}

fn udp(data: &mut [u8]) -> Option<usize> {
    data.get_mut(6..8)?.fill(0);
    Some(8)
}
