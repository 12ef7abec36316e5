//! Whose share a request counts against: an address. Of IPv6 the network of 64 bits, which one host has to itself and may
//! take any address of (RFC 4291 section 2.5.4, RFC 8981).

use std::net::{IpAddr, Ipv6Addr};

/// The client that an address stands for.
#[must_use]
pub fn share_of(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)))
        }
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_64_bits_is_one_client() {
        let ip = |s: &str| s.parse::<IpAddr>().expect("an address");
        assert_eq!(share_of(ip("2001:db8:1:2::1")), share_of(ip("2001:db8:1:2:ffff::")));
        assert_ne!(share_of(ip("2001:db8:1:2::1")), share_of(ip("2001:db8:1:3::1")));
        assert_eq!(share_of(ip("::ffff:192.0.2.1")), ip("192.0.2.1"));
        assert_ne!(share_of(ip("192.0.2.1")), share_of(ip("192.0.2.2")));
        assert_ne!(share_of(ip("::1")), share_of(ip("::")));
    }
}
