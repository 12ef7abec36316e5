//! What the works are made of: archives of small files with old times and various modes, and a repository of the same tree.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::proc::{command, run};

/// Whose the archive's files are; also the ordinary user. Root has to set it.
pub const OWNER: u32 = 1000;

/// Files of a directory, at most.
pub const PER_DIRECTORY: u64 = 50;

/// Files of the archive whose attributes are looked at: each mode twice. A client of version 3 waits five seconds for each delegation
/// that the kernel's server calls back.
const LOOKED_AT: u64 = 8;

const FILE_BYTES: usize = 1536;

/// 2001-02-03 04:05:06: times before the extraction are what a server may refuse.
const FIRST_TIME_S: u64 = 981_173_106;

/// What the usual umask leaves as it is, so that an ordinary user's files have these modes too. All give the group something: root's tar sets
/// the mode of such a file after its owner, while a file without has its mode from the start.
const MODES: [u32; 4] = [0o644, 0o755, 0o640, 0o754];

/// How much there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub files: u64,
    /// With the top one.
    pub directories: u64,
}

pub struct Kit {
    dir: PathBuf,
    /// The tree.
    pub many: Size,
    /// The same directories with one file each.
    pub few: Size,
}

impl Kit {
    /// Makes all of it in `dir`.
    pub fn make(dir: &Path, files: u64) -> Result<Kit, String> {
        let many = Size { files, directories: files.div_ceil(PER_DIRECTORY) + 1 };
        let few = Size { files: many.directories - 1, directories: many.directories };
        let looked_at = Size { files: LOOKED_AT, directories: LOOKED_AT.div_ceil(PER_DIRECTORY) + 1 };
        let disk = dir.join("kit");
        fs::create_dir(&disk).map_err(|e| format!("{}: {e}", disk.display()))?;
        for (name, size) in [("many", many), ("few", few), ("looked-at", looked_at)] {
            let at = dir.join(name);
            make_tree(&at.join("tree"), size, Some(OWNER)).map_err(|e| format!("{}: {e}", at.display()))?;
            let mut tar = command("tar", ["--sort=name", "-cf"]);
            run(tar.arg(disk.join(format!("{name}.tar"))).arg("-C").arg(&at).arg("tree"))?;
        }
        repository(&dir.join("many/tree"), &disk.join("repository"))?;
        run(command("tar", ["-cf"]).arg(dir.join("kit.tar")).arg("-C").arg(&disk).arg("."))?;
        Ok(Kit { dir: dir.to_owned(), many, few })
    }

    /// The client's disk: a tar file.
    pub fn disk(&self) -> PathBuf {
        self.dir.join("kit.tar")
    }

    /// What an archive (`many`, `looked-at`) was made from.
    pub fn source(&self, archive: &str) -> PathBuf {
        self.dir.join(archive)
    }
}

/// Files in directories, as evenly as it goes; theirs whose number is given, if one is.
pub fn make_tree(top: &Path, size: Size, owner: Option<u32>) -> io::Result<()> {
    let time = |number: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(FIRST_TIME_S + number);
    let per_directory = size.files.div_ceil(size.directories - 1);
    let mut made = vec![top.to_owned()];
    for number in 0..size.files {
        let directory = top.join(format!("dir{:04}", number / per_directory));
        if made.last() != Some(&directory) {
            fs::create_dir_all(&directory)?;
            made.push(directory.clone());
        }
        let path = directory.join(format!("file{number:06}.c"));
        let line = format!("/* This is a line of the file with the number {number}. */\n");
        fs::write(&path, line.repeat(FILE_BYTES / line.len()))?;
        let mode = MODES[usize::try_from(number).unwrap_or(0) % MODES.len()];
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        std::os::unix::fs::chown(&path, owner, owner)?;
        fs::File::open(&path)?.set_modified(time(number))?;
    }
    for (number, directory) in (0..).zip(&made) {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
        std::os::unix::fs::chown(directory, owner, owner)?;
        fs::File::open(directory)?.set_modified(time(number * PER_DIRECTORY))?;
    }
    Ok(())
}

/// A bare repository with the tree as its one commit, packed, as a server has it.
fn repository(tree: &Path, bare: &Path) -> Result<(), String> {
    run(command("git", ["init", "-q", "--bare"]).arg(bare))?;
    let git = |args: &[&str]| {
        let who = ["-c", "safe.directory=*", "-c", "user.name=kit", "-c", "user.email=kit@localhost"];
        let mut git = command("git", who);
        git.env("GIT_DIR", bare).env("GIT_WORK_TREE", tree).current_dir(tree);
        run(git.args(args))
    };
    git(&["add", "."])?;
    git(&["commit", "-q", "-m", "one"])?;
    git(&["gc", "-q"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_the_files_and_directories_that_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("tree");
        make_tree(&top, Size { files: 120, directories: 4 }, None).unwrap();
        let directories: Vec<_> = fs::read_dir(&top).unwrap().map(|entry| entry.unwrap().path()).collect();
        let files = directories.iter().map(|directory| fs::read_dir(directory).unwrap().count());
        assert_eq!((directories.len(), files.sum::<usize>()), (3, 120));
        let file = fs::metadata(top.join("dir0001/file000041.c")).unwrap();
        assert_eq!(file.permissions().mode() & 0o7777, 0o755);
        assert_eq!(file.modified().unwrap(), SystemTime::UNIX_EPOCH + Duration::from_secs(FIRST_TIME_S + 41));
    }
}
