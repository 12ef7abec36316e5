//! Which protocols are served. One that is not served has no program, no port and no registration.

use landfast_nfs::v4::VERSION;
use landfast_nfs::{mount, nfsacl, nlm, nsm, v3};
use landfast_rpc::conn::Program;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// NFSv3, with MOUNT and the ACL protocol.
    V3,
    V4(u32),
    /// NLM and NSM, the lock manager and the status monitor of NFSv3.
    Locks,
    /// NLM and NSM also by datagram.
    Datagrams,
}

/// The names that an administrator uses.
const NAMES: [(&str, Protocol); 6] = [
    ("3", Protocol::V3),
    ("4.0", Protocol::V4(0)),
    ("4.1", Protocol::V4(1)),
    ("4.2", Protocol::V4(2)),
    ("nlm", Protocol::Locks),
    ("udp", Protocol::Datagrams),
];

/// NLM and NSM, the lock manager and the status monitor of NFSv3.
pub(crate) const LOCK_PROGRAMS: &[Program] = &[
    Program { number: nlm::PROGRAM, low: nlm::VERSION, high: nlm::VERSION },
    Program { number: nsm::PROGRAM, low: nsm::VERSION, high: nsm::VERSION },
];

/// Which protocols are served; by default all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocols {
    v3: bool,
    minors: [bool; 3],
    locks: bool,
    datagrams: bool,
}

impl Default for Protocols {
    fn default() -> Self {
        Protocols { v3: true, minors: [true; 3], locks: true, datagrams: true }
    }
}

impl Protocols {
    /// Reads a list of names. The error says what is wrong and what to do.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Protocols, String> {
        let mut found = Protocols { v3: false, minors: [false; 3], locks: false, datagrams: false };
        for name in names {
            let known = NAMES.iter().find(|(n, _)| *n == name.trim()).map(|(_, p)| *p);
            match known {
                Some(Protocol::V3) => found.v3 = true,
                Some(Protocol::V4(minor)) => {
                    if let Some(m) = found.minors.get_mut(minor as usize) {
                        *m = true;
                    }
                }
                Some(Protocol::Locks) => found.locks = true,
                Some(Protocol::Datagrams) => found.datagrams = true,
                None => {
                    let all: Vec<_> = NAMES.iter().map(|(n, _)| *n).collect();
                    return Err(format!("there is no protocol \"{name}\"; there are: {}", all.join(", ")));
                }
            }
        }
        if !found.v3 && !found.minors.contains(&true) {
            return Err("name at least one version of NFS: 3, 4.0, 4.1 or 4.2".into());
        }
        if found.locks && !found.v3 {
            return Err("nlm has the locks of version 3: add 3, or leave nlm out".into());
        }
        if found.datagrams && !found.locks {
            return Err("udp carries nlm and nothing else: add nlm, or leave udp out".into());
        }
        Ok(found)
    }

    pub fn v3(&self) -> bool {
        self.v3
    }

    pub fn minor(&self, minor: u32) -> bool {
        self.minors.get(minor as usize).is_some_and(|m| *m)
    }

    pub fn locks(&self) -> bool {
        self.locks
    }

    pub fn datagrams(&self) -> bool {
        self.datagrams
    }

    /// The programs served by TCP, with their versions.
    pub(crate) fn programs(&self) -> Vec<Program> {
        let mut all = Vec::new();
        let any_v4 = self.minors.contains(&true);
        let versions = match (self.v3, any_v4) {
            (true, true) => (v3::VERSION, VERSION),
            (true, false) => (v3::VERSION, v3::VERSION),
            (false, _) => (VERSION, VERSION),
        };
        all.push(Program { number: landfast_nfs::PROGRAM, low: versions.0, high: versions.1 });
        if self.v3 {
            all.push(Program { number: nfsacl::PROGRAM, low: nfsacl::VERSION, high: nfsacl::VERSION });
            all.push(Program { number: mount::PROGRAM, low: mount::VERSION, high: mount::VERSION });
        }
        if self.locks {
            all.extend_from_slice(LOCK_PROGRAMS);
        }
        all
    }

    pub(crate) fn by_datagram(&self) -> &'static [Program] {
        if self.datagrams { LOCK_PROGRAMS } else { &[] }
    }
}

impl std::fmt::Display for Protocols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let served = NAMES.iter().filter(|(_, p)| match p {
            Protocol::V3 => self.v3,
            Protocol::V4(minor) => self.minor(*minor),
            Protocol::Locks => self.locks,
            Protocol::Datagrams => self.datagrams,
        });
        f.write_str(&served.map(|(n, _)| *n).collect::<Vec<_>>().join(","))
    }
}

impl std::str::FromStr for Protocols {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Protocols::parse(text.split(','))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> (Vec<(u32, u32, u32)>, usize) {
        let p: Protocols = text.parse().expect(text);
        assert_eq!(p.to_string(), text);
        (p.programs().iter().map(|p| (p.number, p.low, p.high)).collect(), p.by_datagram().len())
    }

    #[test]
    fn each_can_be_turned_off() {
        let (acl, mnt) = ((100_227, 3, 3), (100_005, 3, 3));
        assert_eq!(numbers("4.2"), (vec![(100_003, 4, 4)], 0));
        assert_eq!(numbers("3"), (vec![(100_003, 3, 3), acl, mnt], 0));
        let locks = [(100_021, 4, 4), (100_024, 1, 1)];
        assert_eq!(numbers("3,4.1,nlm"), ([vec![(100_003, 3, 4), acl, mnt], locks.to_vec()].concat(), 0));
        assert_eq!(numbers("3,4.0,4.1,4.2,nlm,udp").1, 2);
        assert_eq!(Protocols::default().to_string(), "3,4.0,4.1,4.2,nlm,udp");
        let p: Protocols = "4.2".parse().expect("one");
        assert!(p.minor(2) && !p.minor(0) && !p.minor(1) && !p.minor(3));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (text, why) in [
            ("4", "no protocol \"4\""),
            ("", "no protocol \"\""),
            ("nlm,4.2", "add 3"),
            ("3,udp", "add nlm"),
            ("nlm", "at least one version"),
        ] {
            let e = text.parse::<Protocols>().expect_err(text);
            assert!(e.contains(why), "{text}: {e}");
        }
    }
}
