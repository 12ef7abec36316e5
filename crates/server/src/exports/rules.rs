//! Who may use an export, and as whom: the rules of one export, as pure values.
//!
//! The first rule that a client's address matches counts, in the order of the file; when none does, the export is not
//! there for that client. A rule by name (a host, a pattern, a netgroup) cannot be judged before the address's names are
//! known: then the answer is to ask again, and never a later rule.

use super::{Access, Caller, Refused};
use crate::admission::Admission;
use landfast_rpc::{AuthStat, Credential};
use landfast_volume::Cred;
use std::net::IpAddr;
use std::sync::Arc;

/// The user and group of a caller that does not say who it is.
pub const NOBODY: u32 = 65534;
/// Connections from lower ports come from a client's superuser.
pub(crate) const PRIVILEGED_PORTS: u16 = 1024;

/// Which clients a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// All.
    Anyone,
    /// Addresses whose first bits are these.
    Net {
        /// The network, all other bits zero.
        addr: IpAddr,
        /// How many bits count.
        bits: u8,
    },
    /// The addresses of a host name, in lower case.
    Host(String),
    /// Addresses with a name, checked both ways, that matches: `*` and `?` stand for any characters but a dot. In lower
    /// case.
    Pattern(String),
    /// Hosts of a netgroup.
    Netgroup(String),
}

impl From {
    /// One address.
    #[must_use]
    pub fn address(addr: IpAddr) -> From {
        let addr = addr.to_canonical();
        From::Net { addr, bits: width(addr) }
    }

    /// Reads `*`, `@netgroup`, an address, a network, a host name or a pattern of host names.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<From, String> {
        if text == "*" {
            return Ok(From::Anyone);
        }
        if let Some(group) = text.strip_prefix('@') {
            return match group {
                "" => Err("a netgroup has a name after the @".into()),
                g if g.contains('\0') => Err("a netgroup's name contains no zero byte".into()),
                g => Ok(From::Netgroup(g.to_owned())),
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
            return Ok(From::Net { addr: net, bits });
        }
        if let Ok(addr) = text.parse() {
            return Ok(From::address(addr));
        }
        let name = text.trim_end_matches('.').to_ascii_lowercase();
        let wild = name.contains(['*', '?']);
        let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c) || (wild && "*?".contains(c));
        if name.is_empty() || name.len() > 253 || !name.chars().all(good) || name.contains("..") {
            return Err(format!(
                "\"{text}\" is no address, network (10.0.0.0/8), host name, pattern (*.example.org), @netgroup or *"
            ));
        }
        if name.chars().all(|c| c.is_ascii_digit() || c == '.') {
            return Err(format!("\"{text}\" is no IPv4 address: that has four numbers from 0 to 255"));
        }
        Ok(if wild { From::Pattern(name) } else { From::Host(name) })
    }

    fn needs_names(&self) -> bool {
        matches!(self, From::Host(_) | From::Pattern(_) | From::Netgroup(_))
    }

    /// Whether it is about this address; `None` when that depends on names that are not known.
    #[must_use]
    pub fn matches(&self, addr: IpAddr, names: Option<&Names>) -> Option<bool> {
        match self {
            From::Anyone => Some(true),
            From::Net { addr: net, bits } => {
                Some(net.is_ipv4() == addr.is_ipv4() && mask(addr, *bits) == *net)
            }
            From::Host(name) => names.map(|n| n.hosts.contains(name) || n.names.contains(name)),
            From::Pattern(p) => names.map(|n| n.names.iter().any(|name| glob(p.as_bytes(), name.as_bytes()))),
            From::Netgroup(g) => names.map(|n| n.netgroups.contains(g)),
        }
    }
}

impl std::fmt::Display for From {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            From::Anyone => f.write_str("*"),
            From::Net { addr, bits } if *bits == width(*addr) => write!(f, "{addr}"),
            From::Net { addr, bits } => write!(f, "{addr}/{bits}"),
            From::Host(name) | From::Pattern(name) => f.write_str(name),
            From::Netgroup(name) => write!(f, "@{name}"),
        }
    }
}

fn width(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

/// An address with only its first bits.
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

/// What an address is called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Its names that lead back to it, in lower case.
    pub names: Vec<String>,
    /// Of the rules' host names those that lead to it.
    pub hosts: Vec<String>,
    /// Of the rules' netgroups those that it belongs to.
    pub netgroups: Vec<String>,
}

/// Which callers act as somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Squash {
    /// None.
    Nobody,
    /// The superuser, and the superuser's group.
    Root,
    /// All.
    All,
}

/// What clients get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Which.
    pub from: Vec<From>,
    /// They may change nothing.
    pub read_only: bool,
    /// Who of them acts as the anonymous user.
    pub squash: Squash,
    /// That user.
    pub anonuid: u32,
    /// That user's group.
    pub anongid: u32,
    /// AUTH_SYS is taken.
    pub sys: bool,
    /// AUTH_NONE is taken; such a caller is the anonymous user.
    pub none: bool,
    /// Only from ports below 1024.
    pub secure: bool,
}

impl Rule {
    /// What a client gets of whom nothing else is said.
    #[must_use]
    pub fn new(from: Vec<From>) -> Rule {
        Rule {
            from,
            read_only: true,
            squash: Squash::Root,
            anonuid: NOBODY,
            anongid: NOBODY,
            sys: true,
            none: false,
            secure: true,
        }
    }

    /// Everything: for a server without a file.
    #[must_use]
    pub fn open(from: Vec<From>) -> Rule {
        Rule { read_only: false, squash: Squash::Nobody, none: true, secure: false, ..Rule::new(from) }
    }

    fn cred(&self, caller: &Caller, managed: bool) -> Result<Cred, Refused> {
        let anonymous = || Cred { uid: self.anonuid, gid: self.anongid, groups: Arc::from([]) };
        let Credential::Sys(a) = &caller.credential else { return Ok(anonymous()) };
        if self.squash == Squash::All || (self.squash == Squash::Root && a.uid == 0) {
            return Ok(anonymous());
        }
        let groups: Arc<[u32]> = if managed {
            caller.groups.clone().ok_or(Refused::NotYet)?
        } else {
            Arc::from(a.gids.as_slice())
        };
        if self.squash == Squash::Nobody {
            return Ok(Cred { uid: a.uid, gid: a.gid, groups });
        }
        let squashed = |gid: u32| if gid == 0 { self.anongid } else { gid };
        let groups = if groups.contains(&0) { groups.iter().map(|g| squashed(*g)).collect() } else { groups };
        Ok(Cred { uid: a.uid, gid: squashed(a.gid), groups })
    }
}

/// The rules of an export, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules(pub Vec<Rule>);

/// Which rule an address gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<'r> {
    /// This one.
    Rule(&'r Rule),
    /// None.
    None,
    /// The address's names decide.
    NeedsNames,
}

impl Rules {
    /// The rule for an address.
    #[must_use]
    pub fn find(&self, addr: IpAddr, names: Option<&Names>) -> Found<'_> {
        for rule in &self.0 {
            let mut unknown = false;
            for from in &rule.from {
                match from.matches(addr, names) {
                    Some(true) => return Found::Rule(rule),
                    Some(false) => {}
                    None => unknown = true,
                }
            }
            if unknown {
                return Found::NeedsNames;
            }
        }
        Found::None
    }

    /// Whether an address that calls from this port is served at all, as whomever.
    pub(crate) fn admits(&self, addr: IpAddr, port: u16, names: Option<&Names>) -> Admission {
        match self.find(addr, names) {
            Found::Rule(rule) if rule.secure && port >= PRIVILEGED_PORTS => {
                Admission::Refused(AuthStat::TOOWEAK)
            }
            Found::Rule(_) => Admission::Taken,
            Found::None => Admission::Refused(AuthStat::BADCRED),
            Found::NeedsNames => Admission::NotYet,
        }
    }

    /// Of the clients that the rule of this address speaks of, those that it is.
    #[must_use]
    pub fn those_that_are(&self, addr: IpAddr, names: Option<&Names>) -> Vec<&From> {
        let Found::Rule(rule) = self.find(addr, names) else { return Vec::new() };
        rule.from.iter().filter(|from| from.matches(addr, names) == Some(true)).collect()
    }

    /// The host names and netgroups that rules speak of.
    pub fn named(&self) -> impl Iterator<Item = &From> {
        self.0.iter().flat_map(|r| &r.from).filter(|f| f.needs_names())
    }

    /// What a caller may do. `managed`: the groups that were looked up count, not those that it brings.
    ///
    /// # Errors
    /// Nothing; or not with this credential; or it is not known yet.
    pub(crate) fn access(&self, caller: &Caller, managed: bool) -> Result<Access, Refused> {
        let rule = match self.find(caller.addr, caller.names.as_deref()) {
            Found::Rule(rule) => rule,
            Found::None => return Err(Refused::Access),
            Found::NeedsNames => return Err(Refused::NotYet),
        };
        if rule.secure && caller.port >= PRIVILEGED_PORTS {
            return Err(Refused::Access);
        }
        let taken = match caller.credential {
            Credential::None => rule.none,
            Credential::Sys(_) => rule.sys,
        };
        if !taken {
            return Err(Refused::Flavor);
        }
        Ok(Access { read_only: rule.read_only, cred: rule.cred(caller, managed)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfast_rpc::AuthSys;
    use proptest::prelude::*;

    fn from(text: &str) -> From {
        From::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn caller(addr: &str, uid: u32, gid: u32, gids: &[u32]) -> Caller {
        let sys = AuthSys { uid, gid, gids: gids.to_vec(), ..AuthSys::default() };
        Caller {
            addr: addr.parse().expect("an address"),
            port: 700,
            credential: Credential::Sys(Arc::new(sys)),
            names: None,
            groups: None,
        }
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
            "::1/129",
        ] {
            assert!(From::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(
            From::parse("10.0.0.1/8"),
            Err("10.0.0.1 has bits beyond the first 8: the network is 10.0.0.0/8".to_owned())
        );
    }

    #[test]
    fn names_are_not_judged_before_they_are_known() {
        let rules = Rules(vec![
            Rule::new(vec![from("10.0.0.1")]),
            Rule { read_only: true, ..Rule::open(vec![from("*.Example.org")]) },
            Rule::open(vec![from("*")]),
        ]);
        let find = |addr: &str, names: Option<&Names>| match rules.find(addr.parse().expect("one"), names) {
            Found::Rule(r) => rules.0.iter().position(|x| x == r),
            Found::None => None,
            Found::NeedsNames => Some(99),
        };
        assert_eq!(find("10.0.0.1", None), Some(0), "the rule before needs no name");
        assert_eq!(find("10.0.0.2", None), Some(99), "not the third, although that is for all");
        let known = Names { names: vec!["a.example.org".into()], ..Names::default() };
        assert_eq!(find("10.0.0.2", Some(&known)), Some(1));
        assert_eq!(find("10.0.0.2", Some(&Names::default())), Some(2));
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

    #[test]
    fn squashing() {
        let rule =
            |squash| Rules(vec![Rule { squash, anonuid: 7, anongid: 8, ..Rule::new(vec![From::Anyone]) }]);
        let cred = |squash, uid, gid, gids: &[u32]| {
            let c = rule(squash).access(&caller("10.0.0.1", uid, gid, gids), false).expect("access").cred;
            (c.uid, c.gid, c.groups.to_vec())
        };
        assert_eq!(cred(Squash::Nobody, 0, 0, &[0, 5]), (0, 0, vec![0, 5]));
        assert_eq!(cred(Squash::Root, 0, 5, &[6]), (7, 8, vec![]));
        assert_eq!(cred(Squash::Root, 1000, 0, &[0, 6]), (1000, 8, vec![8, 6]));
        assert_eq!(cred(Squash::Root, 1000, 5, &[6]), (1000, 5, vec![6]));
        assert_eq!(cred(Squash::All, 1000, 5, &[6]), (7, 8, vec![]));
    }

    #[test]
    fn ports_and_flavors() {
        let rules = Rules(vec![Rule::new(vec![From::Anyone])]);
        let mut c = caller("10.0.0.1", 1, 1, &[]);
        assert!(rules.access(&c, false).expect("access").read_only, "ro is the default");
        c.port = 1024;
        assert_eq!(rules.access(&c, false), Err(Refused::Access));
        c.port = 1023;
        c.credential = Credential::None;
        assert_eq!(rules.access(&c, false), Err(Refused::Flavor));
        let anonymous = Rules(vec![Rule { none: true, ..Rule::new(vec![From::Anyone]) }]);
        assert_eq!(anonymous.access(&c, false).map(|a| a.cred.uid), Ok(NOBODY));
        assert_eq!(Rules::default().access(&c, false), Err(Refused::Access), "no rule, no access");
    }

    #[test]
    fn groups_that_are_looked_up_take_the_place_of_those_in_the_request() {
        let rules = Rules(vec![Rule::new(vec![From::Anyone])]);
        let mut c = caller("10.0.0.1", 1000, 1000, &[5]);
        assert_eq!(rules.access(&c, true), Err(Refused::NotYet));
        c.groups = Some((0..20).collect());
        let cred = rules.access(&c, true).expect("access").cred;
        assert_eq!(
            cred.groups.iter().copied().collect::<Vec<_>>(),
            [[NOBODY].as_slice(), &(1..20).collect::<Vec<_>>()].concat()
        );
        assert_eq!(rules.access(&c, false).expect("access").cred.groups[..], [5]);
        // Nobody has no groups to look up.
        let root = caller("10.0.0.1", 0, 0, &[5]);
        assert_eq!(rules.access(&root, true).map(|a| a.cred.uid), Ok(NOBODY));
    }

    proptest! {
        #[test]
        fn a_network_holds_what_shares_its_bits(a: u32, b: u32, bits in 0u8..=32) {
            let net = From::Net { addr: mask(IpAddr::V4(a.into()), bits), bits };
            let same = (0..bits).all(|i| (a >> (31 - i)) & 1 == (b >> (31 - i)) & 1);
            prop_assert_eq!(net.matches(IpAddr::V4(b.into()), None), Some(same));
            prop_assert_eq!(From::parse(&net.to_string()), Ok(net));
        }

        #[test]
        fn the_same_for_ipv6(a: u128, flip in 0u8..128, bits in 0u8..=128) {
            let net = From::Net { addr: mask(IpAddr::V6(a.into()), bits), bits };
            let b = a ^ (1 << (127 - flip));
            prop_assert_eq!(net.matches(IpAddr::V6(b.into()), None), Some(flip >= bits));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            if let Ok(f) = From::parse(&text) {
                prop_assert_eq!(From::parse(&f.to_string()), Ok(f));
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
