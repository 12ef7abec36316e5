//! What the works begin with, made once on this machine: an archive and its tree, packages, a repository, sources in C, statements.

use super::programs::shell;
use crate::error::{Context, Result};
use crate::tarball::{Shape, write_random};
use landfast_verify::rng::Rng;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

/// Files of a package, of which every fourth lies in a directory of its own kind.
const PACKAGE_FILES: u64 = 16;

/// A package's files have up to so many bytes.
const PACKAGE_FILE_BYTES: u64 = 3000;

/// How many there are of each thing, from the number of files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    /// Files of the archive, and of the repository.
    pub(super) files: u64,
    pub(super) packages: u64,
    /// Sources in C.
    pub(super) sources: u64,
    /// Rows that are inserted, each in a transaction of its own.
    pub(super) inserts: u64,
}

impl Counts {
    pub(super) fn of(files: u64) -> Counts {
        let files = files.max(1);
        let part = (files / 8).max(4);
        Counts { files, packages: part, sources: part.min(200), inserts: part.min(200) }
    }

    pub(super) fn package_files(&self) -> u64 {
        self.packages * PACKAGE_FILES
    }
}

#[derive(Debug)]
pub(super) struct Kit {
    dir: tempfile::TempDir,
    pub(super) counts: Counts,
}

impl Kit {
    /// `has`: whether a program is installed. What needs one that is not there is left out.
    pub(super) fn make(counts: Counts, has: impl Fn(&str) -> bool) -> Result<Kit> {
        let dir = crate::machine::scratch_dir("landfast-kit-")?;
        let kit = Kit { dir, counts };
        let top = kit.path();
        let what = || format!("make files in {}", top.display());
        let archive = top.join("archive.tar");
        let mut out = BufWriter::new(File::create(&archive).context(what)?);
        let shape = Shape { files: counts.files, ..Shape::default() };
        write_random(shape, &mut out).and_then(|()| out.flush()).context(what)?;
        fs::create_dir(top.join("extracted")).context(what)?;
        crate::measure::local_untar(&archive, &top.join("extracted"))?;
        packages(&top.join("packages"), counts.packages).context(what)?;
        project(&top.join("project"), counts.sources).context(what)?;
        fs::write(top.join("inserts.sql"), inserts(counts.inserts)).context(what)?;
        if has("git") {
            shell(top, top, REPOSITORY)?;
        }
        if has("make") && has("cc") {
            shell(top, top, "cp -r project built; make -s -C built")?;
        }
        Ok(kit)
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn archive(&self) -> Result<BufReader<File>> {
        let archive = self.path().join("archive.tar");
        Ok(BufReader::new(File::open(&archive).context(|| format!("open {}", archive.display()))?))
    }
}

/// A bare repository with one commit of the archive's files.
const REPOSITORY: &str = "git init -q first
cp -r extracted/tree first/tree
git -C first add .
git -C first -c user.name=lab -c user.email=lab@localhost commit -q -m all
git clone -q --bare first repository.git";

fn packages(top: &Path, packages: u64) -> io::Result<()> {
    let mut rng = Rng::new(3);
    for n in 0..packages {
        let dir = top.join(format!("package{n:04}"));
        for below in ["lib", "dist/types"] {
            fs::create_dir_all(dir.join(below))?;
        }
        for file in 0..PACKAGE_FILES {
            let mut data = vec![0; (rng.next_u64() % PACKAGE_FILE_BYTES) as usize];
            rng.fill(&mut data);
            let below = ["", "lib/", "dist/", "dist/types/"][(file % 4) as usize];
            fs::write(dir.join(format!("{below}file{file}.js")), data)?;
        }
    }
    Ok(())
}

/// Sources that each include two headers, and a program of all of them that prints the sum of their numbers.
fn project(top: &Path, sources: u64) -> io::Result<()> {
    fs::create_dir_all(top.join("include"))?;
    let mut all = String::new();
    let mut calls = String::new();
    for n in 0..sources {
        fs::write(top.join(format!("include/part{n}.h")), format!("long part{n}(void);\n"))?;
        let text = format!(
            "#include \"common.h\"\n#include \"part{n}.h\"\nlong part{n}(void) {{ return BASE + {n}; }}\n"
        );
        fs::write(top.join(format!("part{n}.c")), text)?;
        // Writing to a string cannot fail.
        let _ = writeln!(all, "#include \"part{n}.h\"");
        let _ = write!(calls, " + part{n}()");
    }
    fs::write(top.join("include/common.h"), "#define BASE 1000L\n")?;
    fs::write(top.join("include/all.h"), all)?;
    let main = format!(
        "#include <stdio.h>\n#include \"all.h\"\nint main(void) {{ printf(\"%ld\\n\", 0L{calls}); return 0; }}\n"
    );
    fs::write(top.join("main.c"), main)?;
    fs::write(
        top.join("Makefile"),
        "CFLAGS = -Iinclude -O0\nOBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))\nprogram: $(OBJECTS)\n\
         \t$(CC) -o $@ $(OBJECTS)\n%.o: %.c include/common.h\n\t$(CC) $(CFLAGS) -c -o $@ $<\n",
    )
}

fn inserts(count: u64) -> String {
    let mut text = "create table t (n integer primary key, data text);\n".to_owned();
    for n in 1..=count {
        let _ = writeln!(text, "insert into t values ({n}, hex(zeroblob(100)));");
    }
    text
}
