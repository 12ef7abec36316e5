//! How an archive has come out: times, modes, owners, sizes and contents of everything in it, from several places.

use std::collections::BTreeMap;

use serde::Serialize;

use super::served::on_this_machine;
use super::works::{self, step};
use super::{Case, Session};
use crate::guest::recipe::Vers;

/// Prints what everything below `AT` has, for [`compare`].
pub const LOOK: &str = include_str!("../../../guest/rpcs/look.sh");

/// What `--only` calls it.
pub const NAME: &str = "attributes";

/// Mounts what is mounted a second time: version 3 has no delegations, so the server takes this mount for another client. It caches nothing.
const MOUNT_SECOND: &str = "MNT=/mnt/second\nmount_export ,nolock,noac,nosharecache";

/// Differences that are kept as examples.
const EXAMPLES_MAX: usize = 3;

/// What one place shows of an extracted archive.
#[derive(Clone, Debug, Serialize)]
pub struct Look {
    /// Which mount it was extracted on, and by whom.
    #[serde(flatten)]
    pub case: Case,
    /// From where.
    pub place: &'static str,
    /// How it came out.
    #[serde(flatten)]
    pub found: Found,
}

impl Look {
    /// Whether everything is as in the archive.
    pub fn alike(&self) -> bool {
        self.found.differences() == 0
    }
}

/// What differs from the archive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Files and directories of the archive.
    pub objects: u64,
    /// Those that are not there, or of another type, and those that should not be there.
    pub absent: u64,
    /// Other modification times.
    pub times: u64,
    pub modes: u64,
    pub owners: u64,
    /// Other sizes or check sums.
    pub contents: u64,
    /// The first differences.
    pub examples: Vec<String>,
}

impl Found {
    /// Things that are not as in the archive.
    pub fn differences(&self) -> u64 {
        self.absent + self.times + self.modes + self.owners + self.contents
    }
}

/// One line of `look.sh`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Object<'a> {
    kind: &'a str,
    mode: &'a str,
    owner: &'a str,
    time: &'a str,
    /// A file's.
    size: &'a str,
    sum: &'a str,
}

impl Session<'_> {
    /// Extracts an archive and looks at it from another client and then from the server; then at what `tar` has left, which no other
    /// client has seen.
    pub fn attributes(&mut self, case: Case) -> Result<Vec<Look>, String> {
        let here = |archive: &str| on_this_machine(&self.kit.source(archive), LOOK);
        let (wanted, many) = (here("looked-at")?, here("many")?);
        let dir = Session::directory(case, NAME);
        let client = &mut *self.client;
        let (vers, id) = (Some(case.vers), case.user.id());
        client.run(vers, &format!("mount_export\nmkdir -p $MNT/{dir}\nchown {id}:{id} $MNT/{dir}"))?;
        step(client, case, &dir, "tar xf /kit/looked-at.tar")?;
        let mut looks = Vec::new();
        let mut add = |place, wanted: &str, got: &str| {
            let found = compare(wanted, got)?;
            let look = Look { case, place, found };
            eprintln!("{case}: {place}: {}", if look.alike() { "as in the archive" } else { "DIFFERS" });
            looks.push(look);
            Ok::<(), String>(())
        };
        add("the same client", &wanted, &client.run(vers, &format!("AT=$MNT/{dir}\n{LOOK}"))?)?;
        client.run(Some(Vers::V3), MOUNT_SECOND)?;
        // The first look ends with READs, for which a server has to call delegations for writing back.
        for place in ["another client", "another client after it has read"] {
            add(place, &wanted, &client.run(None, &format!("AT=/mnt/second/{dir}\n{LOOK}"))?)?;
        }
        client.run(vers, "umount /mnt/second\numount $MNT")?;
        add("the server after umount", &wanted, &self.served.run(&dir, LOOK)?)?;
        if self.options.wants(works::TAR) {
            let dir = Session::directory(case, works::TAR);
            add("the server after umount, unseen before", &many, &self.served.run(&dir, LOOK)?)?;
        }
        Ok(looks)
    }
}

/// Compares what `look.sh` printed for two trees.
pub fn compare(wanted: &str, got: &str) -> Result<Found, String> {
    let (wanted, got) = (objects(wanted)?, objects(got)?);
    let mut found = Found { objects: wanted.len() as u64, ..Found::default() };
    let mut example = |text: String| {
        if found.examples.len() < EXAMPLES_MAX {
            found.examples.push(text);
        }
    };
    for (path, ours) in &wanted {
        let Some(theirs) = got.get(path).filter(|theirs| theirs.kind == ours.kind) else {
            found.absent += 1;
            example(format!("{path}: is missing, or of another type"));
            continue;
        };
        let parts = [
            (&mut found.times, "time", ours.time, theirs.time),
            (&mut found.modes, "mode", ours.mode, theirs.mode),
            (&mut found.owners, "owner", ours.owner, theirs.owner),
        ];
        for (count, what, wanted, got) in parts {
            if wanted != got {
                *count += 1;
                example(format!("{path}: {what} {got}, should be {wanted}"));
            }
        }
        if (ours.size, ours.sum) != (theirs.size, theirs.sum) {
            found.contents += 1;
            example(format!("{path}: other contents"));
        }
    }
    for path in got.keys().filter(|path| !wanted.contains_key(*path)) {
        found.absent += 1;
        example(format!("{path}: should not be there"));
    }
    Ok(found)
}

fn objects(said: &str) -> Result<BTreeMap<&str, Object<'_>>, String> {
    let (lines, sums) = said.split_once("@sums\n").ok_or(format!("no sums: {said}"))?;
    let mut objects = BTreeMap::new();
    for line in lines.lines() {
        let parts: Vec<&str> = line.split('\t').collect();
        let [path, kind, mode, owner, time, size] = parts[..] else {
            return Err(format!("a look: {line:?}"));
        };
        // A directory has the size that its filesystem gives it.
        let size = if kind == "d" { "" } else { size };
        objects.insert(path, Object { kind, mode, owner, time, size, sum: "" });
    }
    for line in sums.lines().filter(|line| !line.is_empty()) {
        let (sum, path) = line.split_once(" ./").ok_or(format!("a sum: {line:?}"))?;
        objects.get_mut(path).ok_or(format!("a sum of what is not there: {path}"))?.sum = sum;
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "dir\td\t755\t1000:1000\t981173106.0000000000\t4096\n\
                        dir/file\tf\t644\t1000:1000\t981173107.0000000000\t7\n\
                        other\tf\t600\t1000:1000\t981173108.0000000000\t7\n\
                        @sums\n3015617425 7 ./dir/file\n3015617425 7 ./other\n";

    fn after(from: &str, to: &str) -> Found {
        assert!(TREE.contains(from));
        compare(TREE, &TREE.replace(from, to)).unwrap()
    }

    #[test]
    fn each_difference_is_counted_as_what_it_is() {
        let none = Found { objects: 3, ..Found::default() };
        let without = |found: Found| Found { examples: Vec::new(), ..found };
        assert_eq!(compare(TREE, TREE).unwrap(), none);
        assert_eq!(after("4096", "60"), none, "a directory's size is its filesystem's");
        assert_eq!(without(after("107.0", "107.5")), Found { times: 1, ..none.clone() });
        assert_eq!(without(after("d\t755", "d\t775")), Found { modes: 1, ..none.clone() });
        assert_eq!(without(after("644\t1000", "644\t0")), Found { owners: 1, ..none.clone() });
        assert_eq!(without(after("25 7 ./other", "26 7 ./other")), Found { contents: 1, ..none.clone() });
        assert_eq!(without(after("other", "another")), Found { absent: 2, ..none });
        assert_eq!(after("600", "644").examples, ["other: mode 644, should be 600"]);
    }

    #[test]
    fn what_is_no_look_is_an_error() {
        assert!(compare(TREE, "").is_err());
        assert!(compare(TREE, "a\tf\n@sums\n").is_err());
        assert!(compare(TREE, "@sums\n1 2 ./a\n").is_err());
    }
}
