//! The one file of known differences: which test case does not pass where, and why.
//!
//! A place is a server and, except for the guest's local disk, an NFS version. The entries for the local disk and for
//! the kernel's server are the baseline. An entry that names only `landfast` is a difference from Linux. The file is
//! exact in both directions: it is an error if a case fails without an entry, and if a case with an entry passes.

use std::path::Path;

use serde::Deserialize;

use super::outcome::{Outcomes, Verdict};

/// Where the file is, below the workspace's root.
pub const FILE: &str = "docs/suites/differences.toml";

/// One run of a suite, as the file's entries speak of it.
#[derive(Clone, Debug)]
pub struct Place {
    pub suite: &'static str,
    /// `local`, `kernel`, `ganesha` or `landfast`.
    pub server: String,
    /// `linux` or `mount`.
    pub client: &'static str,
    /// The NFS version; none on the local disk.
    pub vers: Option<String>,
    /// The guest's kernel: `6.1` or `6.12`.
    pub kernel: String,
    /// Which delegations the server gives: `off`, `read`, `write` or `times`.
    pub delegations: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    suite: String,
    /// A test case's name; a `*` at its end stands for anything.
    test: String,
    verdict: Verdict,
    /// Places: `local`, `kernel`, `ganesha`, `landfast`, or one of the latter with a version: `landfast 4.1`.
    on: Vec<String>,
    /// Whose client it is seen with: Linux's, if nothing is said.
    #[serde(default = "linux")]
    clients: Vec<String>,
    /// The guest's kernels; all, if there are none.
    #[serde(default)]
    kernels: Vec<String>,
    /// Which delegations the server gives; whichever, if nothing is said.
    #[serde(default)]
    delegations: Vec<String>,
    reason: String,
}

fn linux() -> Vec<String> {
    vec!["linux".to_owned()]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Differences {
    #[serde(default)]
    difference: Vec<Difference>,
}

impl Differences {
    /// Reads the file of the workspace.
    pub fn load(workspace: &Path) -> Result<Differences, String> {
        let path = workspace.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Differences::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
    }

    fn parse(text: &str) -> Result<Differences, String> {
        let read: Differences = toml::from_str(text).map_err(|e| e.to_string())?;
        for entry in &read.difference {
            let wrong = |what: &str| Err(format!("{} {}: {what}", entry.suite, entry.test));
            if entry.reason.trim().is_empty() {
                return wrong("has no reason");
            }
            if entry.verdict == Verdict::Passed {
                return wrong("to pass is no difference");
            }
            if entry.on.is_empty() {
                return wrong("is nowhere");
            }
            let known = |on: &String| {
                ["local", "kernel", "ganesha", "landfast"].contains(&on.split(' ').next().unwrap_or(""))
            };
            if let Some(on) = entry.on.iter().find(|on| !known(on)) {
                return wrong(&format!("no place is called {on:?}"));
            }
            if let Some(client) =
                entry.clients.iter().find(|client| !["linux", "mount"].contains(&client.as_str()))
            {
                return wrong(&format!("no client is called {client:?}"));
            }
        }
        Ok(read)
    }

    /// What is wrong with these outcomes, one line each: differences without an entry, and entries without a
    /// difference. With `all` a case that is named and did not run is wrong too.
    pub fn judge(&self, place: &Place, outcomes: &Outcomes, all: bool) -> Vec<String> {
        let here: Vec<&Difference> = self.difference.iter().filter(|entry| entry.is_at(place)).collect();
        let mut wrong = Vec::new();
        for (name, outcome) in outcomes {
            let known = here.iter().any(|entry| entry.covers(name) && entry.verdict == outcome.verdict);
            if outcome.verdict != Verdict::Passed && !known {
                wrong.push(format!(
                    "{name}: {}, and {FILE} does not say why: {}",
                    outcome.verdict.word(),
                    outcome.said.replace('\n', " / ")
                ));
            }
        }
        for entry in here {
            let mut covered = outcomes.iter().filter(|(name, _)| entry.covers(name)).peekable();
            if covered.peek().is_none() && !all {
                continue;
            }
            if !covered.any(|(_, outcome)| outcome.verdict == entry.verdict) {
                wrong.push(format!(
                    "{}: is in {FILE} as {}, which it is not any more",
                    entry.test,
                    entry.verdict.word()
                ));
            }
        }
        wrong
    }
}

impl Difference {
    fn is_at(&self, place: &Place) -> bool {
        let here = |on: &String| match on.split_once(' ') {
            Some((server, vers)) => server == place.server && place.vers.as_deref() == Some(vers),
            None => *on == place.server,
        };
        self.suite == place.suite
            && self.on.iter().any(here)
            && self.clients.iter().any(|client| client == place.client)
            && (self.kernels.is_empty() || self.kernels.contains(&place.kernel))
            && (self.delegations.is_empty() || self.delegations.contains(&place.delegations))
    }

    fn covers(&self, name: &str) -> bool {
        match self.test.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == self.test,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::parse;
    use super::*;

    const TEXT: &str = r#"
        [[difference]]
        suite = "pjdfstest"
        test = "open::*"
        verdict = "skipped"
        on = ["local", "kernel", "landfast"]
        reason = "not on Linux"

        [[difference]]
        suite = "pjdfstest"
        test = "chmod::two"
        verdict = "failed"
        on = ["landfast 4.1"]
        kernels = ["6.1"]
        reason = "so it is"
    "#;

    fn place(server: &'static str, vers: &str) -> Place {
        Place {
            suite: "pjdfstest",
            server: server.to_owned(),
            client: "linux",
            vers: Some(vers.to_owned()),
            kernel: "6.1".to_owned(),
            delegations: "off".to_owned(),
        }
    }

    #[test]
    fn the_workspaces_file_can_be_read() {
        assert!(Differences::load(&crate::proc::workspace()).is_ok());
    }

    #[test]
    fn what_is_explained_and_occurs_is_right() {
        let differences = Differences::parse(TEXT).unwrap();
        let found = parse("chmod::one ok\nchmod::two FAILED\nopen::a skipped\nopen::b ok\n");
        assert_eq!(differences.judge(&place("landfast", "4.1"), &found, true), Vec::<String>::new());
    }

    #[test]
    fn what_is_not_explained_for_this_place_is_wrong() {
        let differences = Differences::parse(TEXT).unwrap();
        let found = parse("chmod::two FAILED\n\tleft: 1\nopen::a skipped\n");
        for place in [place("landfast", "4.2"), place("kernel", "4.1"), place("local", "")] {
            let wrong = differences.judge(&place, &found, true);
            assert!(
                matches!(&wrong[..], [line] if line.contains("chmod::two: failed") && line.contains("left"))
            );
        }
        let newer = Place { kernel: "6.12".to_owned(), ..place("landfast", "4.1") };
        assert_eq!(differences.judge(&newer, &found, true).len(), 1);
        // With delegations it fails as it does without.
        let delegated = Place { delegations: "times".to_owned(), ..place("landfast", "4.1") };
        assert_eq!(differences.judge(&delegated, &found, true), Vec::<String>::new());
        let only = TEXT.replace("kernels = [\"6.1\"]", "delegations = [\"times\"]");
        let only = Differences::parse(&only).unwrap();
        assert_eq!(only.judge(&delegated, &found, true), Vec::<String>::new());
        assert_eq!(only.judge(&place("landfast", "4.1"), &found, true).len(), 1);
        // An entry speaks of Linux's client, unless it says otherwise.
        let mounted = Place { client: "mount", ..place("landfast", "4.1") };
        assert_eq!(differences.judge(&mounted, &found, true).len(), 2);
        let only = TEXT.replace("kernels = [\"6.1\"]", "clients = [\"mount\"]");
        let only = Differences::parse(&only).unwrap();
        assert_eq!(only.judge(&mounted, &found, true).len(), 1);
        assert_eq!(only.judge(&place("landfast", "4.1"), &found, true).len(), 1);
        // Skipped is not failed.
        let other = parse("chmod::two skipped\nopen::a skipped\n");
        assert_eq!(differences.judge(&place("landfast", "4.1"), &other, true).len(), 2);
    }

    #[test]
    fn what_is_explained_and_does_not_occur_is_wrong() {
        let differences = Differences::parse(TEXT).unwrap();
        let passes = parse("chmod::two ok\nopen::a skipped\n");
        let wrong = differences.judge(&place("landfast", "4.1"), &passes, true);
        assert!(matches!(&wrong[..], [line] if line.contains("not any more")));
        let absent = parse("open::a skipped\n");
        assert_eq!(differences.judge(&place("landfast", "4.1"), &absent, true).len(), 1);
        // A selection does not speak of the others.
        assert_eq!(differences.judge(&place("landfast", "4.1"), &absent, false).len(), 0);
    }

    #[test]
    fn an_entry_needs_a_reason_and_a_place() {
        assert!(Differences::parse(&TEXT.replace("so it is", " ")).is_err());
        assert!(Differences::parse(&TEXT.replace("landfast 4.1", "elsewhere")).is_err());
        assert!(Differences::parse(&TEXT.replace("kernels", "kernel")).is_err());
    }
}
