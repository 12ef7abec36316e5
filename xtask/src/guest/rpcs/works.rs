//! The works, step by step, and the count of their RPCs.

use std::time::Instant;

use super::kit::{Kit, Size};
use super::{Case, Parts, Row, Session};
use crate::guest::client::Client;
use crate::guest::mountstats::{Counts, of_all_mounts};
use crate::guest::setup::MOUNTPOINT;

const STEP: &str = include_str!("../../../guest/rpcs/step.sh");
const NPM: &str = include_str!("../../../guest/rpcs/npm.sh");

/// Whose RPCs are bounded, and whose tree `list` goes over.
pub const TAR: &str = "tar";
pub const TAR_STEP: &str = "tar xf";
pub const LIST: &str = "list";

/// The step that ends each work.
pub const END: &str = "umount";

/// The work that extracts one file a directory.
const FEW: &str = "tar, few files";

/// How much a step goes over.
#[derive(Clone, Copy)]
enum Over {
    /// The tree.
    Many,
    /// Its directories, with one file each.
    Few,
    /// What it prints as its last line: files, directories.
    Printed,
    /// So many files, and directories.
    Known(u64, u64),
}

/// A command of a work.
pub struct Step {
    name: &'static str,
    script: &'static str,
    over: Over,
}

/// What is done on one mount.
pub struct Work {
    /// What `--only` calls it.
    pub name: &'static str,
    /// How it is called in the tables.
    title: &'static str,
    /// Whose directory it is done in: its own, or that of another work.
    place: &'static str,
    /// Done before on another mount, so that this one knows nothing of it.
    before: &'static str,
    steps: &'static [Step],
}

/// In this order: `list` goes over what `tar` has made.
pub const WORKS: &[Work] = &[
    Work {
        name: TAR,
        title: TAR,
        place: TAR,
        before: "",
        steps: &[
            Step { name: TAR_STEP, script: "tar xf /kit/many.tar", over: Over::Many },
            Step { name: "ls -lR by who wrote it", script: "ls -lR tree >/dev/null", over: Over::Many },
        ],
    },
    Work {
        name: TAR,
        title: FEW,
        place: "few",
        before: "",
        steps: &[Step { name: TAR_STEP, script: "tar xf /kit/few.tar", over: Over::Few }],
    },
    Work {
        name: LIST,
        title: LIST,
        place: TAR,
        before: "",
        steps: &[
            Step { name: "ls -lR, cold", script: "ls -lR tree >/dev/null", over: Over::Many },
            Step { name: "ls -lR, warm", script: "ls -lR tree >/dev/null", over: Over::Many },
            // Linux asks for a directory's delegation with the look at it after the one that its ACCESS was for.
            Step { name: "ls -lR, once more", script: "ls -lR tree >/dev/null", over: Over::Many },
        ],
    },
    Work {
        name: "git",
        title: "git",
        place: "git",
        before: "",
        steps: &[
            Step {
                name: "git clone",
                script: "git clone -q --no-local /kit/repository clone",
                over: Over::Many,
            },
            Step {
                name: "git status",
                script: "[ -z \"$(git -C clone status --porcelain)\" ]",
                over: Over::Many,
            },
        ],
    },
    Work {
        name: "npm",
        title: "npm",
        place: "npm",
        before: "",
        steps: &[Step { name: "npm install", script: NPM, over: Over::Printed }],
    },
    Work {
        name: "make",
        title: "make",
        place: "make",
        before: "cp -r /kit/project project",
        // 49 sources, each with an object and a list of what it depends on; 6 libraries, the program.
        steps: &[
            Step { name: "make", script: "make -s -C project", over: Over::Known(49, 7) },
            Step { name: "make, nothing to do", script: "make -q -C project", over: Over::Known(49, 7) },
        ],
    },
    Work {
        name: "rsync",
        title: "rsync",
        place: "rsync",
        before: "",
        steps: &[
            Step { name: "rsync -a", script: "rsync -a /kit/tree .", over: Over::Many },
            Step { name: "rsync -a, nothing to do", script: "rsync -a /kit/tree .", over: Over::Many },
        ],
    },
];

impl Session<'_> {
    /// Does a work on a mount of its own, and counts.
    pub fn work(&mut self, case: Case, work: &Work) -> Result<Vec<Row>, String> {
        let dir = Session::directory(case, work.place);
        let client = &mut *self.client;
        let (vers, id) = (Some(case.vers), case.user.id());
        client.run(vers, &format!("mount_export\nmkdir -p $MNT/{dir}\nchown {id}:{id} $MNT/{dir}"))?;
        if !work.before.is_empty() {
            step(client, case, &dir, work.before)?;
        }
        client.run(vers, "umount $MNT\nmount_export")?;
        let mut rows = Vec::new();
        let mut add = |step, size: Size, seconds, counts: Counts| {
            rows.push(Row {
                case,
                work: work.title,
                step,
                files: size.files,
                directories: size.directories,
                seconds,
                rpcs: counts.total(),
                operations: counts.0,
            });
        };
        for what in work.steps {
            let before = mounted(client)?;
            let start = Instant::now();
            let said = step(client, case, &dir, what.script)
                .map_err(|why| format!("{case}: {}: {why}", what.name))?;
            let seconds = start.elapsed().as_secs_f64();
            let counts =
                Counts::parse(&mounted(client)?, MOUNTPOINT)?.since(&Counts::parse(&before, MOUNTPOINT)?);
            add(what.name, size(self.kit, what.over, &said)?, seconds, counts);
        }
        // The names of the operations, for the counters that have none.
        let names = mounted(client)?;
        let start = Instant::now();
        let said = client.run(vers, "cat /proc/net/rpc/nfs\necho @\numount $MNT\ncat /proc/net/rpc/nfs")?;
        let (before, after) = said.split_once("@\n").ok_or("no counters")?;
        let counts = |text| of_all_mounts(text, &names, MOUNTPOINT);
        let counts = counts(after)?.since(&counts(before)?);
        add(END, Size { files: 0, directories: 0 }, start.elapsed().as_secs_f64(), counts);
        Ok(rows)
    }
}

/// Runs a script as the user in a directory of the mount, until all that it wrote is at the server.
pub fn step(client: &mut Client, case: Case, dir: &str, script: &str) -> Result<String, String> {
    let as_user = format!("RUN_AS={} DIR={dir}\n{STEP}", case.user.id());
    client.run_with(Some(case.vers), &as_user, script.as_bytes())
}

fn mounted(client: &mut Client) -> Result<String, String> {
    client.run(None, "cat /proc/self/mountstats")
}

fn size(kit: &Kit, over: Over, said: &str) -> Result<Size, String> {
    match over {
        Over::Many => Ok(kit.many),
        Over::Few => Ok(kit.few),
        Over::Known(files, directories) => Ok(Size { files, directories }),
        Over::Printed => {
            let numbers = said.trim().rsplit('\n').next().and_then(|line| line.split_once(' '));
            let numbers = numbers.and_then(|(files, directories)| {
                Some(Size { files: files.parse().ok()?, directories: directories.trim().parse().ok()? })
            });
            numbers.ok_or(format!("no numbers of files and directories: {said}"))
        }
    }
}

/// What of tar's RPCs belongs to files, and what to directories: both archives have the same directories.
pub fn parts(rows: &[Row]) -> Vec<Parts> {
    let extractions = |title| rows.iter().filter(move |row| (row.work, row.step) == (title, TAR_STEP));
    let part = |many: &Row| {
        let few = extractions(FEW).find(|few| few.case == many.case)?;
        let more = many.files.checked_sub(few.files).filter(|more| *more > 0)?;
        let per_file = (many.rpcs as f64 - few.rpcs as f64) / more as f64;
        let rest = few.rpcs as f64 - per_file * few.files as f64;
        Some(Parts { case: many.case, per_file, per_directory: rest / few.directories as f64 })
    };
    extractions(TAR).filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::recipe::Vers;
    use crate::guest::rpcs::{User, Who};

    #[test]
    fn files_and_directories_have_their_parts() {
        let case = Case { vers: Vers::V4_2, server: Who::Landfast, user: User::Root };
        let row = |work, files, rpcs| Row {
            case,
            work,
            step: TAR_STEP,
            files,
            directories: 11,
            seconds: 1.0,
            rpcs,
            operations: Default::default(),
        };
        // Six a file, seven a directory, eleven once.
        let rows = [row(TAR, 500, 3000 + 77 + 11), row(FEW, 10, 60 + 77 + 11)];
        let parts = parts(&rows);
        assert_eq!(parts.len(), 1);
        assert_eq!((parts[0].per_file, parts[0].per_directory), (6.0, 8.0));
        assert!(super::parts(&rows[..1]).is_empty());
    }
}
