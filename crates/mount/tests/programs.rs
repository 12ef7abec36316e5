//! Programs as people use them, on a mount of each version: what they leave is what they leave on a local disk.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{At, Rig, VERSIONS, can_mount, has, shell};

/// A tree with what trees have: directories in directories, empty and large files, links, modes, old times.
fn source(rig: &Rig) -> std::path::PathBuf {
    let work = rig.work();
    shell(
        &work,
        "mkdir -p src/a/b/c src/empty
         for f in $(seq 60); do echo file $f >src/a/b/f$f; done
         : >src/a/nothing
         head -c 3000000 /dev/urandom >src/a/large
         truncate -s 10M src/a/hole; echo end >>src/a/hole
         ln -s b/f1 src/a/link; ln -s /nowhere src/dangling
         ln src/a/b/f2 src/a/b/c/hard
         chmod 400 src/a/b/f3; chmod 4755 src/a/b/f4; chmod 2711 src/a/b
         mkfifo src/fifo
         touch -d 2001-02-03T04:05:06.789 src/a/b/f5 src/empty
         chown 1234:4321 src/a/b/f6
         # Not of this second: rsync takes times of one second for the same.
         find src ! -type f -exec touch -h -d 2002-03-04T05:06:07.89 {} +",
    );
    work.join("src")
}

/// Everything of a tree but its access times and changes, a line an object.
fn listing(dir: &Path) -> String {
    shell(
        dir,
        "find . -printf '%p %y %m %U:%G %s %T@ %l %n\\n' | sed -E 's/^(\\S+ d \\S+ \\S+) \\S+ (.*) \\S+$/\\1 \\2/' | sort; find . -type f | sort | xargs md5sum",
    )
}

fn everywhere(program: &str, test: impl Fn(&Rig, &At)) {
    if !can_mount() || !has(program) {
        return;
    }
    for version in VERSIONS {
        eprintln!("version {version}");
        let rig = Rig::new();
        let at = rig.mount(version);
        test(&rig, &at);
        assert_eq!(at.unmount(), Vec::<String>::new());
    }
    eprintln!("close=local");
    let rig = Rig::delegating();
    let at = rig.mount_local("close=local,flush_age=0.05");
    test(&rig, &at);
    assert_eq!(at.unmount(), Vec::<String>::new());
}

#[test]
fn tar_leaves_the_same_tree_and_reads_it_back() {
    everywhere("tar", |rig, at| {
        let src = source(rig);
        let tar = rig.work().join("a.tar");
        shell(&rig.work(), "tar --format=pax -cf a.tar src");
        shell(at.path(), &format!("tar xpf {}", tar.display()));
        assert_eq!(listing(&at.join("src")), listing(&src));
        at.sync();
        assert_eq!(listing(&rig.dest().join("src")), listing(&src));
        shell(at.path(), "tar --format=pax -cf again.tar src; mkdir again; tar xpf again.tar -C again");
        assert_eq!(listing(&at.join("again/src")), listing(&src));
    });
}

#[test]
fn cp_mv_and_rm_do_what_they_do_on_a_local_disk() {
    everywhere("cp", |rig, at| {
        let src = source(rig);
        shell(
            at.path(),
            &format!(
                "cp -a {} one; cp -a one two; mv two three; diff -r one three 2>&1 | grep -v fifo || true",
                src.display()
            ),
        );
        assert_eq!(listing(&at.join("three")), listing(&src));
        shell(at.path(), "mkdir in; mv three in/; rm -rf one");
        at.sync();
        assert_eq!(listing(&rig.dest().join("in/three")), listing(&src));
        shell(at.path(), "rm -rf in");
        at.sync();
        assert_eq!(fs::read_dir(rig.dest()).unwrap().count(), 0);
    });
}

#[test]
fn rsync_finds_nothing_to_do_the_second_time() {
    everywhere("rsync", |rig, at| {
        let src = source(rig);
        shell(at.path(), &format!("rsync -aH {}/ copy/", src.display()));
        assert_eq!(listing(&at.join("copy")), listing(&src));
        let again = shell(at.path(), &format!("rsync -aHi {}/ copy/", src.display()));
        assert_eq!(again, "");
    });
}

#[test]
fn git_clones_commits_and_is_clean() {
    everywhere("git", |rig, at| {
        let work = rig.work();
        let git = "git -c user.name=a -c user.email=a@b -c init.defaultBranch=main -c safe.directory='*'";
        shell(
            &work,
            &format!(
                "mkdir o; cd o; {git} init -q; for d in 1 2 3; do mkdir $d; for f in $(seq 30); do echo $d $f >$d/$f; done; done; {git} add .; {git} commit -qm one"
            ),
        );
        shell(
            at.path(),
            &format!(
                "{git} clone -q {}/o c; cd c; {git} status --porcelain >../status; test ! -s ../status",
                work.display()
            ),
        );
        shell(
            &at.join("c"),
            &format!(
                "echo new >1/new; echo changed >2/5; rm 3/7; {git} add -A; {git} commit -qm two; {git} checkout -q HEAD~1; {git} checkout -q main; {git} gc -q; {git} fsck --strict"
            ),
        );
        let status = shell(&at.join("c"), &format!("{git} status --porcelain"));
        assert_eq!(status, "");
        at.sync();
        assert_eq!(fs::read_to_string(rig.dest().join("c/2/5")).unwrap(), "changed\n");
    });
}

#[test]
fn a_tree_grows_and_goes_while_others_look_at_it() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    let (one, two) = (rig.mount("4.2"), rig.mount("4.2"));
    let mut looking = Command::new("sh")
        .args([
            "-c",
            "while ls -lR . >/dev/null 2>&1; [ ! -e stop ]; do find . -type f -size 0 -name 'f*'; done",
        ])
        .current_dir(two.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    shell(
        &rig.work(),
        "for d in $(seq 10); do mkdir d$d; for f in $(seq 30); do echo $d $f >d$d/f$f; done; done; tar cf ../a.tar d*",
    );
    let tar = rig.dir.path().join("a.tar");
    shell(one.path(), &format!("tar xf {}; rm -rf d1 d2; touch stop", tar.display()));
    let out = std::io::read_to_string(looking.stdout.take().unwrap()).unwrap();
    looking.wait().unwrap();
    // A COMPOUND is not atomic: a file may be seen between its OPEN and its WRITE. It does not stay so.
    for seen in out.lines().filter(|path| rig.dest().join(path).exists()) {
        assert!(fs::metadata(two.join(seen)).unwrap().len() > 0, "{seen} is without its content");
    }
}
