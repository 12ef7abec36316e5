//! What is done on a mount and beside it: commands as people type them, and what must be there afterwards.

use super::kit::{Counts, Kit};
use super::programs::{quoted, shell};
use crate::error::{Error, Result};
use std::path::Path;

/// A work. Each is done in the same directory, in the order of [`ALL`].
pub(super) struct Work {
    pub(super) name: &'static str,
    /// Programs that it needs besides a shell.
    pub(super) needs: &'static [&'static str],
    /// Other works that come before it.
    pub(super) after: &'static [&'static str],
    /// What is done before the clock starts.
    prepare: &'static str,
    script: &'static str,
    /// Whether it begins with nothing in memory.
    pub(super) cold: bool,
    /// Files, sources or rows that figures are divided by.
    pub(super) objects: fn(&Counts) -> u64,
    /// RPCs on a mount of version 4, at most: for each of these, and besides. Over a long network there are more: what memory has is older
    /// when it is needed.
    rpcs_max: (f64, f64),
    check: Check,
}

enum Check {
    /// The directory has what the archive has, attributes and all.
    Archive(&'static str),
    /// The script says nothing. `$DIR` is the work's directory, `$REAL` the same on the server's disk.
    Script(&'static str),
}

pub(super) const ALL: [Work; 9] = [
    Work {
        name: "tar xf",
        needs: &["tar"],
        after: &[],
        prepare: "mkdir untarred",
        script: "tar -xpf \"$KIT/archive.tar\" -C untarred",
        cold: false,
        objects: |c| c.files,
        rpcs_max: (1.1, 20.0),
        check: Check::Archive("untarred"),
    },
    Work {
        name: "ls -lR",
        needs: &[],
        after: &["tar xf"],
        prepare: ":",
        script: "ls -lR untarred >\"$OUT/listing\"",
        cold: true,
        objects: |c| c.files,
        rpcs_max: (0.05, 20.0),
        check: Check::Script("cd \"$REAL\"; ls -lR untarred | diff - \"$OUT/listing\""),
    },
    Work {
        name: "cp -r",
        needs: &[],
        after: &["tar xf"],
        prepare: ":",
        script: "cp -r untarred/tree copied",
        cold: false,
        objects: |c| c.files,
        rpcs_max: (3.5, 20.0),
        check: Check::Script("diff -r \"$KIT/extracted/tree\" \"$REAL/copied\""),
    },
    Work {
        name: "rsync -a",
        needs: &["rsync"],
        after: &[],
        prepare: ":",
        script: "rsync -a \"$KIT/extracted/\" synced",
        cold: false,
        objects: |c| c.files,
        rpcs_max: (8.0, 40.0),
        check: Check::Archive("synced"),
    },
    Work {
        name: "rm -rf",
        needs: &[],
        after: &["cp -r"],
        prepare: ":",
        script: "rm -rf copied",
        cold: false,
        objects: |c| c.files,
        rpcs_max: (2.1, 20.0),
        check: Check::Script("find \"$REAL\" -name copied"),
    },
    Work {
        name: "git clone",
        needs: &["git"],
        after: &[],
        prepare: ":",
        script: "git clone -q \"file://$KIT/repository.git\" cloned",
        cold: false,
        objects: |c| c.files,
        rpcs_max: (4.0, 150.0),
        check: Check::Script(
            "diff -r \"$KIT/extracted/tree\" \"$REAL/cloned/tree\"
             git -c safe.directory='*' -C \"$REAL/cloned\" fsck --full --strict --no-dangling 2>&1",
        ),
    },
    Work {
        name: "install packages",
        needs: &["xargs"],
        after: &[],
        prepare: ":",
        // As npm does: several packages at a time.
        script: "mkdir node_modules
                 ls \"$KIT/packages\" | xargs -P 8 -I {} cp -r \"$KIT/packages/{}\" \"node_modules/{}\"",
        cold: false,
        objects: Counts::package_files,
        rpcs_max: (2.5, 20.0),
        check: Check::Script("diff -r \"$KIT/packages\" \"$REAL/node_modules\""),
    },
    Work {
        name: "make",
        needs: &["make", "cc"],
        after: &[],
        prepare: "cp -r \"$KIT/project\" project",
        script: "make -s -j2 -C project",
        cold: false,
        objects: |c| c.sources,
        rpcs_max: (16.0, 40.0),
        check: Check::Script(
            "diff -r \"$KIT/built\" \"$REAL/project\"
             [ $(\"$REAL/project/program\") = $(\"$KIT/built/program\") ] || echo the program prints something else",
        ),
    },
    Work {
        name: "sqlite inserts",
        needs: &["sqlite3"],
        after: &[],
        prepare: ":",
        script: "sqlite3 rows.db <\"$KIT/inserts.sql\"",
        cold: false,
        objects: |c| c.inserts,
        rpcs_max: (25.0, 40.0),
        check: Check::Script(
            "sqlite3 -readonly \"$REAL/rows.db\" 'pragma integrity_check; select count(*), sum(n) from t' >\"$OUT/rows\"
             n=$(grep -c '^insert' \"$KIT/inserts.sql\")
             printf 'ok\\n%s|%s\\n' $n $((n * (n + 1) / 2)) | diff - \"$OUT/rows\"",
        ),
    },
];

impl Work {
    /// RPCs on a mount of version 4, at most.
    pub(super) fn rpcs_max(&self, counts: &Counts) -> f64 {
        self.rpcs_max.0 * (self.objects)(counts) as f64 + self.rpcs_max.1
    }

    pub(super) fn prepare(&self, kit: &Kit, dir: &Path) -> Result<()> {
        shell(kit.path(), dir, self.prepare).map(drop)
    }

    pub(super) fn run(&self, kit: &Kit, dir: &Path) -> Result<()> {
        shell(kit.path(), dir, self.script).map(drop)
    }

    /// What is not as it should be, in words. `real`: the directory of the work on the disk itself.
    pub(super) fn wrong(&self, kit: &Kit, real: &Path) -> Result<Option<String>> {
        let said = match self.check {
            Check::Archive(below) => {
                let found = crate::verify::compare(kit.archive()?, &real.join(below))?;
                found.shown.join("; ")
            }
            // `diff` that finds something ends with 1.
            Check::Script(script) => {
                let script = format!("REAL={}; {{ {script}\n}} 2>&1 || true", quoted(real));
                shell(kit.path(), kit.path(), &script)?
            }
        };
        let first: Vec<&str> = said.trim().lines().take(5).collect();
        Ok((!first.is_empty()).then(|| format!("{}: {}", self.name, first.join("; "))))
    }
}

/// The works that are wanted and possible, and what is said of those that are not. Nothing wanted: all.
pub(super) fn chosen(
    wanted: &[String],
    has: impl Fn(&str) -> bool,
) -> Result<(Vec<&'static Work>, Vec<String>)> {
    if let Some(unknown) = wanted.iter().find(|w| !ALL.iter().any(|work| work.is_called(w))) {
        let names: Vec<&str> = ALL.iter().map(|w| w.name).collect();
        return Err(Error::Unable(format!("no work `{unknown}`: there are {}", names.join(", "))));
    }
    let is_wanted = |work: &Work| wanted.is_empty() || wanted.iter().any(|w| work.is_called(w));
    // What others build on is done as well.
    let needed = |work: &Work| {
        is_wanted(work) || ALL.iter().any(|other| is_wanted(other) && other.is_after(work.name))
    };
    let (mut works, mut notes) = (Vec::new(), Vec::new());
    for work in ALL.iter().filter(|work| needed(work)) {
        match work.needs.iter().find(|program| !has(program)) {
            None => works.push(work),
            Some(program) => notes.push(format!("`{}` is left out: {program} is not installed", work.name)),
        }
    }
    Ok((works, notes))
}

impl Work {
    /// Its name, or the first word of it.
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name.split(' ').next() == Some(name)
    }

    /// Whether `name` comes before it, directly or not.
    fn is_after(&self, name: &str) -> bool {
        self.after
            .iter()
            .any(|before| *before == name || ALL.iter().any(|w| w.name == *before && w.is_after(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::programs::has;
    use super::*;

    fn names(wanted: &[&str], missing: &str) -> Vec<&'static str> {
        let wanted: Vec<String> = wanted.iter().map(|w| (*w).to_owned()).collect();
        let (works, notes) = chosen(&wanted, |program| program != missing).unwrap();
        assert_eq!(notes.len(), usize::from(!missing.is_empty()));
        works.iter().map(|w| w.name).collect()
    }

    #[test]
    fn a_work_brings_those_that_it_builds_on() {
        assert_eq!(names(&["rm"], ""), ["tar xf", "cp -r", "rm -rf"]);
        assert_eq!(names(&["sqlite inserts"], ""), ["sqlite inserts"]);
        assert_eq!(names(&[], "").len(), ALL.len());
        assert_eq!(names(&[], "rsync").len(), ALL.len() - 1);
        assert!(chosen(&["npm".to_owned()], |_| true).is_err());
    }

    #[test]
    fn every_work_leaves_what_its_check_wants_and_the_check_finds_what_is_wrong() {
        let kit = Kit::make(Counts::of(8), has).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (works, _) = chosen(&[], has).unwrap();
        for work in works {
            // As anybody but root `tar` does not keep owners.
            if matches!(work.check, Check::Archive(_)) && !rustix::process::geteuid().is_root() {
                return;
            }
            let before = work.wrong(&kit, dir.path());
            if work.name != "rm -rf" {
                assert!(!matches!(before, Ok(None)), "{}: nothing is done yet", work.name);
            }
            work.prepare(&kit, dir.path()).unwrap();
            work.run(&kit, dir.path()).unwrap();
            assert_eq!(work.wrong(&kit, dir.path()).unwrap(), None);
        }
    }
}
