//! A tree of small files: extracted, listed, added up and removed, on a mount by GNU's tools, and by Landfast's commands.

use std::fs;
use std::path::{Path, PathBuf};

use super::measure::{self, Took};
use super::{Row, Side, Speed, Subject};
use crate::guest::archive;
use crate::guest::client::Whose;
use crate::guest::recipe::Vers;
use crate::guest::tree;
use crate::proc::{command, run};

const COMPARE: &str = include_str!("../../../guest/speed/compare.sh");

const FILE_BYTES: u64 = 4096;

const PER_DIR: u64 = 64;

/// Nobody's in particular, so that owners have to be set.
const OWNER: &str = "1000";

/// Long before the run, so that times have to be set.
const MTIME: &str = "@1700000000";

/// RPCs that a mount takes for each file at least, and so much of waiting for them is spent on an extraction at most.
const RPCS_EXPECTED: f64 = 7.0;
const WAITED_MAX_S: f64 = 45.0;

const FILES_MIN: u64 = 64;

/// What is done, in this order; whether it changes something on the server.
const WORKS: [(&str, bool); 4] = [("tar -x", true), ("ls -lR", false), ("du -s", false), ("rm -r", true)];

/// How many files there are at this round trip: fewer, by halves, where the kernel's client would wait too long.
pub fn files_at(files: u64, round_trip_ms: f64) -> u64 {
    let waits = |files: u64| files as f64 * RPCS_EXPECTED * round_trip_ms / 1000.0 > WAITED_MAX_S;
    std::iter::successors(Some(files), |files| (*files > FILES_MIN).then_some((files / 2).max(FILES_MIN)))
        .find(|files| !waits(*files))
        .unwrap_or(files.min(FILES_MIN))
}

/// The archives of so many files, in `dir`, each by the name that [`archive_name`] gives it.
pub fn make_archives(dir: &Path, counts: &[u64]) -> Result<Vec<PathBuf>, String> {
    let tree = dir.join("tree");
    let most = counts.iter().copied().max().unwrap_or(0);
    let mut random = fs::File::open("/dev/urandom").map_err(|e| format!("/dev/urandom: {e}"))?;
    let mut make = |n: u64| -> std::io::Result<()> {
        let at = tree.join(format!("dir{:04}", n / PER_DIR));
        fs::create_dir_all(&at)?;
        let mut file = fs::File::create(at.join(format!("file{n:06}")))?;
        std::io::copy(&mut std::io::Read::take(&mut random, FILE_BYTES), &mut file).map(drop)
    };
    (0..most).try_for_each(&mut make).map_err(|e| format!("{}: {e}", tree.display()))?;
    let whole = dir.join("tree.tar");
    let (owner, group) = (format!("--owner={OWNER}"), format!("--group={OWNER}"));
    run(command("tar", ["--sort=name", "--mtime", MTIME, &owner, &group, "-cf"])
        .arg(&whole)
        .arg("-C")
        .arg(dir)
        .arg("tree"))?;
    let cut = |files: &u64| -> Result<PathBuf, String> {
        let name = dir.join(archive_name(*files));
        let part = archive::first_files(&whole, Some(*files))?;
        fs::rename(&part, &name).map_err(|e| format!("{}: {e}", name.display()))?;
        let reference = reference(dir, *files);
        fs::create_dir(&reference).map_err(|e| format!("{}: {e}", reference.display()))?;
        run(command("tar", ["-p", "-xf"]).arg(&name).arg("-C").arg(&reference))?;
        Ok(name)
    };
    counts.iter().map(cut).collect()
}

fn archive_name(files: u64) -> String {
    format!("tree-{files}.tar")
}

/// Where the archive is extracted on this machine.
fn reference(dir: &Path, files: u64) -> PathBuf {
    dir.join(format!("reference-tree-{files}"))
}

/// All works at one round trip: each side in a directory of its own, one after another.
pub fn run_at(speed: &mut Speed<'_>, round_trip_ms: f64) -> Result<(), String> {
    let files = files_at(speed.files, round_trip_ms);
    for side in speed.sides_and_mounts() {
        speed.hear(&format!("{files} files, {side}"));
        // Neither clock runs yet.
        let dir = format!("tree-of-{}", side.word());
        let url = speed.url();
        speed.client.run(None, &format!("/root/landfast mkdir -p {url}/{dir}"))?;
        for (work, writes) in WORKS {
            let took = match side {
                Side::Landfast => by_landfast(speed, work, &dir, files)?,
                Side::Linux(vers) => by_kernel(speed, vers, (work, writes), &dir, files)?,
                Side::Mount(vers) => {
                    speed.client.whose = Whose::Mount;
                    let took = by_kernel(speed, vers, (work, writes), &dir, files);
                    speed.client.whose = Whose::Linux;
                    took?
                }
            };
            match (work, side) {
                ("tar -x", _) => same(speed, &dir, files)?,
                ("du -s", Side::Linux(_) | Side::Mount(_)) => drop(speed.client.run(None, COMPARE)?),
                ("rm -r", _) => gone(speed, &dir)?,
                _ => {}
            }
            speed.rows.push(Row {
                subject: Subject::Files,
                work: work.to_owned(),
                round_trip_ms,
                client: side.to_string(),
                objects: files,
                seconds: took.seconds,
                rpcs: took.rpcs as f64,
                operations: took.operations.0,
            });
        }
    }
    Ok(())
}

fn by_kernel(
    speed: &mut Speed<'_>,
    vers: Vers,
    (work, writes): (&str, bool),
    dir: &str,
    files: u64,
) -> Result<Took, String> {
    let script = match work {
        "tar -x" => format!("tar -C {dir} -xf /root/{}", archive_name(files)),
        "ls -lR" => format!("cd {dir}; ls -lR tree >/run/list-kernel"),
        "du -s" => format!("cd {dir}; du -s tree >/run/usage-kernel"),
        _ => format!("rm -r {dir}/tree"),
    };
    measure::by_kernel(speed.client, vers, writes, &script)
}

fn by_landfast(speed: &mut Speed<'_>, work: &str, dir: &str, files: u64) -> Result<Took, String> {
    let at = format!("$URL/{dir}");
    let script = match work {
        "tar -x" => {
            format!("/root/landfast untar --json --same-owner -p /root/{} {at} >&2", archive_name(files))
        }
        "ls -lR" => format!("/root/landfast ls -lR --rpc-counts {at}/tree >/run/list-landfast"),
        "du -s" => format!("/root/landfast du -s --rpc-counts {at}/tree >/run/usage-landfast"),
        _ => format!("/root/landfast rm -r --rpc-counts {at}/tree"),
    };
    measure::by_landfast(speed.client, &script)
}

/// What is on the server's disk is what the archive has.
fn same(speed: &mut Speed<'_>, dir: &str, files: u64) -> Result<(), String> {
    let Some(volume) = &speed.volume else {
        let reference = format!("/root/reference-tree-{files}");
        return speed.client.run(None, &format!("same_tree {reference} /srv/export/{dir}")).map(drop);
    };
    let found = tree::compare(&reference(&speed.dir, files), &volume.join(dir))?;
    match (found.files == files, found.differing) {
        (true, 0) => Ok(()),
        _ => Err(format!("{dir}: {} files, differences: {}", found.files, found.differences.join("; "))),
    }
}

/// Nothing is left in it.
fn gone(speed: &mut Speed<'_>, dir: &str) -> Result<(), String> {
    let Some(volume) = &speed.volume else {
        return speed.client.run(None, &format!("rmdir /srv/export/{dir}")).map(drop);
    };
    let at = volume.join(dir);
    match fs::read_dir(&at).map(Iterator::count) {
        Ok(0) => Ok(()),
        Ok(left) => Err(format!("{}: {left} entries are left", at.display())),
        Err(e) => Err(format!("{}: {e}", at.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_fewer_files_where_each_waits_longer() {
        assert_eq!([0.1, 1.0, 10.0, 50.0].map(|ms| files_at(4096, ms)), [4096, 4096, 512, 128]);
        assert_eq!(files_at(1000, 1000.0), FILES_MIN);
        assert_eq!(files_at(10, 1000.0), 10, "never more than asked for");
    }
}
