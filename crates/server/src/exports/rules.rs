//! Who may use an export, and as which user: the rules of one export, as pure values.
//!
//! The first rule that matches the client's address counts, in the order of the file. If none matches, the export does
//! not exist for that client. A rule by name (a host, a pattern, a netgroup) cannot be judged before the address's
//! names are known. Then the answer is to ask again, never a later rule.

use super::caller::{Access, Admission, Caller, Refused};
pub use super::hosts::{ClientSpec, Names};
use landfast_rpc::{AuthStat, Credential};
use landfast_volume::Cred;
use std::net::IpAddr;
use std::sync::Arc;

/// The user and group of an unidentified caller.
pub const NOBODY: u32 = 65534;
/// On a client, only the superuser can use lower ports.
pub(crate) const PRIVILEGED_PORTS: u16 = 1024;

/// Which callers act as the anonymous user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Squash {
    Nobody,
    Root,
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub from: Vec<ClientSpec>,
    pub read_only: bool,
    pub squash: Squash,
    pub anonuid: u32,
    pub anongid: u32,
    pub sys: bool,
    /// Allows AUTH_NONE; such a caller is the anonymous user.
    pub none: bool,
    pub secure: bool,
}

impl Rule {
    /// The defaults for these clients.
    pub fn new(from: Vec<ClientSpec>) -> Rule {
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

    /// Allows everything; for a server without a configuration file.
    pub fn open(from: Vec<ClientSpec>) -> Rule {
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

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules(pub Vec<Rule>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<'r> {
    Rule(&'r Rule),
    None,
    NeedsNames,
}

impl Rules {
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

    /// Whether an address is served at all from this port, as whatever user.
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
    pub fn matching_clients(&self, addr: IpAddr, names: Option<&Names>) -> Vec<&ClientSpec> {
        let Found::Rule(rule) = self.find(addr, names) else { return Vec::new() };
        rule.from.iter().filter(|from| from.matches(addr, names) == Some(true)).collect()
    }

    pub fn named(&self) -> impl Iterator<Item = &ClientSpec> {
        self.0.iter().flat_map(|r| &r.from).filter(|f| f.needs_names())
    }

    /// What a caller may do. `managed`: the groups that were looked up count, not those that it brings.
    /// Errors: Nothing; or not with this credential; or it is not known yet.
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

    fn from(text: &str) -> ClientSpec {
        ClientSpec::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
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
    fn squashing() {
        let rule = |squash| {
            Rules(vec![Rule { squash, anonuid: 7, anongid: 8, ..Rule::new(vec![ClientSpec::Anyone]) }])
        };
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
        let rules = Rules(vec![Rule::new(vec![ClientSpec::Anyone])]);
        let mut c = caller("10.0.0.1", 1, 1, &[]);
        assert!(rules.access(&c, false).expect("access").read_only, "ro is the default");
        c.port = 1024;
        assert_eq!(rules.access(&c, false), Err(Refused::Access));
        c.port = 1023;
        c.credential = Credential::None;
        assert_eq!(rules.access(&c, false), Err(Refused::Flavor));
        let anonymous = Rules(vec![Rule { none: true, ..Rule::new(vec![ClientSpec::Anyone]) }]);
        assert_eq!(anonymous.access(&c, false).map(|a| a.cred.uid), Ok(NOBODY));
        assert_eq!(Rules::default().access(&c, false), Err(Refused::Access), "no rule, no access");
    }

    #[test]
    fn groups_that_are_looked_up_take_the_place_of_those_in_the_request() {
        let rules = Rules(vec![Rule::new(vec![ClientSpec::Anyone])]);
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
}
