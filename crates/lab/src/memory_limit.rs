//! A limit on the memory that some processes may have together, with the file pages that they use: a memory cgroup, of either version.

use crate::error::{Context, Error, Result};
use std::path::{Path, PathBuf};

/// Where the hierarchy of memory cgroups is mounted.
const AT: [(&str, Version); 2] = [("/sys/fs/cgroup/memory", Version::One), ("/sys/fs/cgroup", Version::Two)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A memory cgroup. Dropping it removes it; its processes must have ended.
#[derive(Debug)]
pub struct MemoryLimit {
    dir: PathBuf,
    version: Version,
}

impl MemoryLimit {
    /// A group of nobody, which may have so many bytes.
    /// Errors: [`Error::Unable`] where the system has no memory cgroups, or gives none.
    pub fn new(bytes: u64) -> Result<MemoryLimit> {
        for (at, version) in AT {
            let dir = Path::new(at).join(format!("landfast-{}", std::process::id()));
            let limit = match version {
                Version::One => "memory.limit_in_bytes",
                Version::Two => "memory.max",
            };
            if std::fs::create_dir(&dir).is_err() {
                continue;
            }
            let made = MemoryLimit { dir, version };
            if std::fs::write(made.dir.join(limit), bytes.to_string()).is_ok() {
                return Ok(made);
            }
        }
        let places = AT.map(|(at, _)| at).join(" and ");
        Err(Error::Unable(format!(
            "no memory cgroup can be made in {places} (root, and the memory controller)"
        )))
    }

    /// Takes a process in, with what it gets and starts from now on.
    pub fn take(&self, pid: u32) -> Result<()> {
        let file = self.dir.join("cgroup.procs");
        std::fs::write(&file, pid.to_string()).context(|| file.display().to_string())
    }

    /// How often somebody wanted more than the limit, and how many processes were killed for it.
    pub fn refusals(&self) -> Result<(u64, u64)> {
        let file = |name: &str| {
            let file = self.dir.join(name);
            std::fs::read_to_string(&file).context(|| file.display().to_string())
        };
        match self.version {
            Version::One => {
                let refused = file("memory.failcnt")?.trim().parse().unwrap_or(0);
                Ok((refused, value(&file("memory.oom_control")?, "oom_kill")))
            }
            Version::Two => {
                let events = file("memory.events")?;
                Ok((value(&events, "max"), value(&events, "oom_kill")))
            }
        }
    }
}

impl std::fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.version {
            Version::One => "version 1",
            Version::Two => "version 2",
        })
    }
}

/// The number behind a word at the beginning of a line.
fn value(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_whole_names() {
        let one = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n";
        assert_eq!(value(one, "oom_kill"), 2);
        let two = "low 0\nhigh 0\nmax 41\noom 1\noom_kill 3\noom_group_kill 0\n";
        assert_eq!((value(two, "max"), value(two, "oom_kill"), value(two, "none")), (41, 3, 0));
    }
}
