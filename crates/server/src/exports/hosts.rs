//! How a rule names clients, and which names an address has.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// The clients that a rule is about, as written in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientSpec {
    Anyone,
    Net {
        /// All bits behind the prefix are zero.
        addr: IpAddr,
        bits: u8,
    },
    /// A host name, in lower case: the addresses that it resolves to.
    Host(String),
    /// A pattern of host names, in lower case; `*` and `?` do not match a dot. An address matches by a name that resolves back to it.
    Pattern(String),
    Netgroup(String),
}

impl ClientSpec {
    pub fn address(addr: IpAddr) -> ClientSpec {
        let addr = addr.to_canonical();
        ClientSpec::Net { addr, bits: width(addr) }
    }

    /// Reads `*`, `@netgroup`, an address, a network, a host name or a pattern of host names.
    pub fn parse(text: &str) -> Result<ClientSpec, String> {
        if text == "*" {
            return Ok(ClientSpec::Anyone);
        }
        if let Some(group) = text.strip_prefix('@') {
            return match group {
                "" => Err("a netgroup has a name after the @".into()),
                g if g.contains('\0') => Err("a netgroup's name contains no zero byte".into()),
                g => Ok(ClientSpec::Netgroup(g.to_owned())),
            };
        }
        if let Some((addr, bits)) = text.split_once('/') {
            let addr: IpAddr =
                addr.parse().map_err(|_| format!("\"{addr}\" before the / is no IPv4 or IPv6 address"))?;
            let bits: u8 = bits
                .parse()
                .ok()
                .filter(|b| *b <= width(addr))
                .ok_or_else(|| format!("after the / comes a number of bits, 0 to {}", width(addr)))?;
            let net = mask(addr, bits);
            if net != addr {
                return Err(format!("{addr} has bits beyond the first {bits}: the network is {net}/{bits}"));
            }
            return Ok(ClientSpec::Net { addr: net, bits });
        }
        if let Ok(addr) = text.parse() {
            return Ok(ClientSpec::address(addr));
        }
        let name = text.trim_end_matches('.').to_ascii_lowercase();
        let wild = name.contains(['*', '?']);
        let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c) || (wild && "*?".contains(c));
        // "*." would look like "*", which means anyone.
        let bad = name.is_empty() || name == "*" || name.len() > 253 || name.contains("..");
        if bad || !name.chars().all(good) {
            return Err(format!(
                "\"{text}\" is no address, network (10.0.0.0/8), host name, pattern (*.example.org), @netgroup or *"
            ));
        }
        if name.chars().all(|c| c.is_ascii_digit() || c == '.') {
            return Err(format!("\"{text}\" is no IPv4 address: that has four numbers from 0 to 255"));
        }
        Ok(if wild { ClientSpec::Pattern(name) } else { ClientSpec::Host(name) })
    }

    pub(super) fn needs_names(&self) -> bool {
        matches!(self, ClientSpec::Host(_) | ClientSpec::Pattern(_) | ClientSpec::Netgroup(_))
    }

    /// Whether this address matches; `None` if that depends on names that are not known yet. What was not asked when the
    /// names were looked up, since other rules counted then, is not known either.
    pub fn matches(&self, addr: IpAddr, names: Option<&Names>) -> Option<bool> {
        match self {
            ClientSpec::Anyone => Some(true),
            ClientSpec::Net { addr: net, bits } => {
                Some(net.is_ipv4() == addr.is_ipv4() && mask(addr, *bits) == *net)
            }
            ClientSpec::Host(name) => names.and_then(|n| {
                if n.hosts.contains(name) || n.names.contains(name) { Some(true) } else { n.denies(self) }
            }),
            ClientSpec::Pattern(p) => {
                names.map(|n| n.names.iter().any(|name| glob(p.as_bytes(), name.as_bytes())))
            }
            ClientSpec::Netgroup(g) => {
                names.and_then(|n| if n.netgroups.contains(g) { Some(true) } else { n.denies(self) })
            }
        }
    }
}

impl std::fmt::Display for ClientSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClientSpec::Anyone => f.write_str("*"),
            ClientSpec::Net { addr, bits } if *bits == width(*addr) => write!(f, "{addr}"),
            ClientSpec::Net { addr, bits } => write!(f, "{addr}/{bits}"),
            ClientSpec::Host(name) | ClientSpec::Pattern(name) => f.write_str(name),
            ClientSpec::Netgroup(name) => write!(f, "@{name}"),
        }
    }
}

fn width(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

/// An address with all bits behind the prefix zero.
fn mask(addr: IpAddr, bits: u8) -> IpAddr {
    match addr {
        IpAddr::V4(a) => {
            let keep = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            IpAddr::V4((a.to_bits() & keep).into())
        }
        IpAddr::V6(a) => {
            let keep = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            IpAddr::V6((a.to_bits() & keep).into())
        }
    }
}

/// `*` stands for any characters, `?` for one; neither for a dot. Linear in the pattern for each character.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                back = Some((p, n));
                p += 1;
                continue;
            }
            Some(c) if *c == name[n] || (*c == b'?' && name[n] != b'.') => {
                (p, n) = (p + 1, n + 1);
                continue;
            }
            _ => {}
        }
        match back {
            Some((star, at)) if name[at] != b'.' => {
                back = Some((star, at + 1));
                (p, n) = (star + 1, at + 1);
            }
            _ => return false,
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// The hosts, patterns and netgroups that the rules of all exports name.
pub type Asked = BTreeSet<ClientSpec>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Its names that resolve back to it, in lower case.
    pub names: Vec<String>,
    /// The host names in the rules that resolve to it.
    pub hosts: Vec<String>,
    /// The netgroups in the rules that it belongs to.
    pub netgroups: Vec<String>,
    /// What was asked about it.
    pub asked: Arc<Asked>,
}

impl Names {
    /// For what it was not found to be: whether that was asked at all.
    fn denies(&self, from: &ClientSpec) -> Option<bool> {
        self.asked.contains(from).then_some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn from(text: &str) -> ClientSpec {
        ClientSpec::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn is(text: &str, addr: &str) -> bool {
        from(text).matches(addr.parse().expect("an address"), None).expect("no names needed")
    }

    #[test]
    fn addresses_and_networks() {
        assert!(is("*", "10.1.2.3") && is("*", "2001:db8::1"));
        assert!(is("10.1.2.3", "10.1.2.3") && !is("10.1.2.3", "10.1.2.4"));
        assert!(is("10.0.0.0/8", "10.255.0.1") && !is("10.0.0.0/8", "11.0.0.1"));
        assert!(is("0.0.0.0/0", "1.2.3.4") && !is("0.0.0.0/0", "::1"), "IPv4 only");
        assert!(is("2001:db8::/32", "2001:db8:ffff::1") && !is("2001:db8::/32", "2001:db9::1"));
        assert!(is("::/0", "::1") && !is("::/0", "1.2.3.4"));
        assert_eq!(from("::ffff:10.0.0.1"), from("10.0.0.1"));
    }

    #[test]
    fn what_is_no_client() {
        for bad in [
            "",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "x/8",
            "10.0.0",
            "256.1.1.1",
            "a b",
            "@",
            "a..b",
            "*.",
            "::1/129",
        ] {
            assert!(ClientSpec::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(
            ClientSpec::parse("10.0.0.1/8"),
            Err("10.0.0.1 has bits beyond the first 8: the network is 10.0.0.0/8".to_owned())
        );
    }

    #[test]
    fn patterns_do_not_cross_dots() {
        let yes = |p: &str, n: &str| assert!(glob(p.as_bytes(), n.as_bytes()), "{p} {n}");
        let no = |p: &str, n: &str| assert!(!glob(p.as_bytes(), n.as_bytes()), "{p} {n}");
        yes("*.example.org", "a.example.org");
        no("*.example.org", "a.b.example.org");
        no("*.example.org", "example.org");
        yes("web?.example.org", "web1.example.org");
        no("web?.example.org", "web.example.org");
        yes("a*b*c", "aXXbYYbc");
        no("a*b*c", "aXXb.Ybc");
        yes("*.*.org", "a.b.org");
        no("*", "a.b");
    }

    proptest! {
        #[test]
        fn a_network_holds_what_shares_its_bits(a: u32, b: u32, bits in 0u8..=32) {
            let net = ClientSpec::Net { addr: mask(IpAddr::V4(a.into()), bits), bits };
            let same = (0..bits).all(|i| (a >> (31 - i)) & 1 == (b >> (31 - i)) & 1);
            prop_assert_eq!(net.matches(IpAddr::V4(b.into()), None), Some(same));
            prop_assert_eq!(ClientSpec::parse(&net.to_string()), Ok(net));
        }

        #[test]
        fn the_same_for_ipv6(a: u128, flip in 0u8..128, bits in 0u8..=128) {
            let net = ClientSpec::Net { addr: mask(IpAddr::V6(a.into()), bits), bits };
            let b = a ^ (1 << (127 - flip));
            prop_assert_eq!(net.matches(IpAddr::V6(b.into()), None), Some(flip >= bits));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            if let Ok(f) = ClientSpec::parse(&text) {
                prop_assert_eq!(ClientSpec::parse(&f.to_string()), Ok(f));
            }
        }

        #[test]
        fn patterns_as_by_definition(p in "[a.*?]{0,8}", n in "[a.b]{0,8}") {
            fn slow(p: &[u8], n: &[u8]) -> bool {
                match (p.split_first(), n.split_first()) {
                    (None, None) => true,
                    (Some((b'*', rest)), _) => {
                        let most = n.iter().position(|c| *c == b'.').unwrap_or(n.len());
                        (0..=most).any(|k| slow(rest, &n[k..]))
                    }
                    (Some((b'?', pr)), Some((c, nr))) => *c != b'.' && slow(pr, nr),
                    (Some((pc, pr)), Some((nc, nr))) => pc == nc && slow(pr, nr),
                    _ => false,
                }
            }
            prop_assert_eq!(glob(p.as_bytes(), n.as_bytes()), slow(p.as_bytes(), n.as_bytes()));
        }
    }
}
