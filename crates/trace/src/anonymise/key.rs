//! Hashes names and numbers with a key. Equal input gives equal output of the same length, different input gives
//! different output.

use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Kind of input, so that the same bytes have different hashes as different kinds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Realm {
    Name = 1,
    Handle,
    Number,
    Address,
    Mac,
}

#[derive(Clone)]
pub(super) struct Key(SipHasher24);

/// Names shorter than this are permuted, so that no two become equal. Longer ones are hashed.
const PERMUTED_MAX: usize = 10;

impl Key {
    pub fn new(key: &[u8; 16]) -> Self {
        Key(SipHasher24::new_with_key(key))
    }

    fn hash(&self, realm: Realm, parts: &[&[u8]]) -> u64 {
        let mut hasher = self.0;
        hasher.write_u8(realm as u8);
        for part in parts {
            hasher.write_u64(part.len() as u64);
            hasher.write(part);
        }
        hasher.finish()
    }

    /// A name. Letters, digits and `._-` map to such characters, everything else to other characters.
    pub fn name(&self, name: &[u8], out: &mut [u8]) {
        if name.len() < PERMUTED_MAX {
            out.copy_from_slice(name);
            self.permute(Realm::Name, out, alphabet);
            return;
        }
        let seed = self.hash(Realm::Name, &[name]);
        for (n, (byte, out)) in (0u64..).zip(name.iter().zip(out)) {
            let letters = alphabet(*byte);
            let random = self.hash(Realm::Name, &[&seed.to_le_bytes(), &n.to_le_bytes()]);
            *out = letters[(random % letters.len() as u64) as usize];
        }
    }

    pub fn opaque(&self, bytes: &[u8], out: &mut [u8]) {
        if bytes.len() < PERMUTED_MAX {
            out.copy_from_slice(bytes);
            self.permute(Realm::Handle, out, |_| &ALL);
            return;
        }
        let seed = self.hash(Realm::Handle, &[bytes]);
        for (n, out) in (0u64..).zip(out.chunks_mut(8)) {
            let random = self.hash(Realm::Handle, &[&seed.to_le_bytes(), &n.to_le_bytes()]);
            out.copy_from_slice(&random.to_le_bytes()[..out.len()]);
        }
    }

    /// Shifts each byte within its alphabet by an amount that depends on all others. Several rounds make each byte
    /// depend on each other.
    fn permute(&self, realm: Realm, bytes: &mut [u8], alphabet: fn(u8) -> &'static [u8]) {
        for round in 0..4u8 {
            for at in 0..bytes.len() {
                let (before, rest) = bytes.split_at(at);
                let by = self.hash(realm, &[&[round, bytes.len() as u8, at as u8], before, &rest[1..]]);
                let letters = alphabet(rest[0]);
                let place = letters.iter().position(|b| *b == rest[0]).unwrap_or(0) as u64;
                bytes[at] = letters[((place + by % letters.len() as u64) % letters.len() as u64) as usize];
            }
        }
    }

    /// A user or group id. Root's stays.
    pub fn id(&self, id: u32) -> u32 {
        if id == 0 { 0 } else { self.feistel(Realm::Number, u64::from(id), 16) as u32 }
    }

    /// A permutation of numbers with `2 * half` bits.
    fn feistel(&self, realm: Realm, number: u64, half: u32) -> u64 {
        let mask = u64::MAX >> (64 - half);
        let (mut left, mut right) = (number >> half, number & mask);
        for round in 0..8u8 {
            let mixed = left ^ (self.hash(realm, &[&[round], &right.to_le_bytes()]) & mask);
            (left, right) = (right, mixed);
        }
        (left << half) | right
    }

    /// An IP address. Addresses that are not those of a single host, and loopback addresses, stay.
    pub fn address(&self, addr: IpAddr) -> IpAddr {
        if stays(addr) {
            return addr;
        }
        let mut out = self.permuted(addr);
        // If the result is an address that stays, it is permuted again, so that no two become equal.
        while stays(out) {
            out = self.permuted(out);
        }
        out
    }

    fn permuted(&self, addr: IpAddr) -> IpAddr {
        match addr {
            IpAddr::V4(addr) => {
                let bits = self.feistel(Realm::Address, u64::from(addr.to_bits()), 16);
                IpAddr::V4(Ipv4Addr::from_bits(bits as u32))
            }
            IpAddr::V6(addr) => {
                let bits = addr.to_bits();
                let (mut left, mut right) = ((bits >> 64) as u64, bits as u64);
                for round in 0..8u8 {
                    let mixed = left ^ self.hash(Realm::Address, &[&[round], &right.to_le_bytes()]);
                    (left, right) = (right, mixed);
                }
                IpAddr::V6(Ipv6Addr::from_bits(u128::from(left) << 64 | u128::from(right)))
            }
        }
    }

    /// An Ethernet address becomes a locally administered one. Group addresses become broadcast.
    pub fn mac(&self, mac: &mut [u8]) {
        if mac.first().is_some_and(|first| first & 1 == 1) {
            mac.fill(0xff);
        } else if mac.iter().any(|byte| *byte != 0) {
            let hash = self.hash(Realm::Mac, &[mac]).to_le_bytes();
            mac.iter_mut().zip(hash).for_each(|(byte, hash)| *byte = hash);
            if let Some(first) = mac.first_mut() {
                *first = (*first & 0xfc) | 2;
            }
        }
    }
}

fn stays(addr: IpAddr) -> bool {
    let broadcast = matches!(addr, IpAddr::V4(addr) if addr.is_broadcast());
    addr.is_loopback() || addr.is_unspecified() || addr.is_multicast() || broadcast
}

const LETTERS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz-.";

const ALL: [u8; 256] = {
    let mut all = [0; 256];
    let mut n = 0;
    while n < 256 {
        all[n] = n as u8;
        n += 1;
    }
    all
};

/// Characters that are not letters of the alphabet and have no meaning in a path.
const OTHERS: [u8; 256 - 2 - LETTERS.len()] = {
    let mut others = [0; 256 - 2 - LETTERS.len()];
    let (mut n, mut found) = (1, 0);
    while n < 256 {
        let mut letter = n == b'/' as usize;
        let mut i = 0;
        while i < LETTERS.len() {
            letter |= LETTERS[i] as usize == n;
            i += 1;
        }
        if !letter {
            others[found] = n as u8;
            found += 1;
        }
        n += 1;
    }
    others
};

fn alphabet(byte: u8) -> &'static [u8] {
    match byte {
        0 => &[0],
        b'/' => b"/",
        b if LETTERS.contains(&b) => LETTERS,
        _ => &OTHERS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn name(key: &Key, name: &[u8]) -> Vec<u8> {
        let mut out = vec![0; name.len()];
        key.name(name, &mut out);
        out
    }

    #[test]
    fn different_names_stay_different_and_the_same_the_same() {
        let key = Key::new(&[7; 16]);
        let all: HashSet<Vec<u8>> = (0..=u16::MAX).map(|n| name(&key, &n.to_be_bytes())).collect();
        assert_eq!(all.len(), 1 << 16);
        let names: Vec<String> = (0..5000).map(|n| format!("file{n:06}.txt")).collect();
        let all: HashSet<Vec<u8>> = names.iter().map(|n| name(&key, n.as_bytes())).collect();
        assert_eq!(all.len(), names.len());
        for text in names.iter().map(String::as_str).chain(["a", "passwd", ".", "x y\u{e4}"]) {
            let hashed = name(&key, text.as_bytes());
            assert_eq!(hashed.len(), text.len());
            assert_eq!(hashed, name(&key, text.as_bytes()));
            assert!(text.len() < 3 || hashed != text.as_bytes(), "{text}");
            assert!(text.len() < 4 || hashed != name(&Key::new(&[8; 16]), text.as_bytes()), "{text}");
            assert!(!hashed.contains(&0) && !hashed.contains(&b'/'));
        }
        assert_eq!(name(&key, b"a/b")[1], b'/');
    }

    #[test]
    fn addresses_and_numbers_are_permuted() {
        let key = Key::new(&[7; 16]);
        let all: HashSet<u32> = (0..100_000).map(|id| key.id(id)).collect();
        assert_eq!((all.len(), key.id(0)), (100_000, 0));
        let address = |text: &str| key.address(text.parse().expect(text)).to_string();
        for own in ["127.0.0.1", "::1", "0.0.0.0", "224.0.0.1", "ff02::1", "255.255.255.255"] {
            assert_eq!(address(own), own);
        }
        for other in ["10.0.0.1", "fe80::1", "192.168.0.7"] {
            assert_ne!(address(other), other);
        }
        assert_ne!(address("10.0.0.1"), address("10.0.0.2"));
        let mut mac = [0, 1, 2, 3, 4, 5];
        key.mac(&mut mac);
        assert_eq!((mac[0] & 3, mac == [0, 1, 2, 3, 4, 5]), (2, false));
        let mut all = [0xff; 6];
        key.mac(&mut all);
        assert_eq!(all, [0xff; 6]);
    }
}
