//! A log on two devices, as its operator sees it.

mod common;

use common::{Serving, emulates_disks, one_line_with, path, run, stderr};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory to serve, the two halves of its log, and archives of one file each.
struct Place {
    dir: tempfile::TempDir,
    landed: usize,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("volume")).expect("a directory");
        Place { dir, landed: 0 }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn serve(&self) -> Serving {
        let (a, b) = (self.at("a"), self.at("b"));
        Serving::with(&self.at("volume"), &["--log", path(&a), "--log-mirror", path(&b), "--log-size", "16M"])
    }

    /// One more file, acknowledged; then the server is killed.
    fn land_and_kill(&mut self, server: Serving) {
        self.landed += 1;
        let name = format!("file{}", self.landed);
        fs::write(self.at(&name), &name).expect("a file");
        let tar = self.at("one.tar");
        let made = std::process::Command::new("tar")
            .args(["-cf", path(&tar), "-C", path(self.dir.path()), &name])
            .status();
        assert!(made.expect("tar").success());
        let o = run(&["untar", path(&tar), &server.url]);
        assert!(o.status.success(), "{}", stderr(&o));
        server.end(Signal::KILL);
    }

    fn has_all(&self) {
        for n in 1..=self.landed {
            let name = format!("file{n}");
            assert_eq!(fs::read_to_string(self.at("volume").join(&name)).expect("there"), name);
        }
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn either_half_may_be_lost_and_is_made_a_copy_again() {
    let mut place = Place::new();
    let server = place.serve();
    assert!(server.words.contains("log mirror of file "), "{}", server.words);
    place.land_and_kill(server);
    for lost in ["b", "a"] {
        fs::rename(place.at(lost), place.at("away")).expect("moved");
        let mut server = place.serve();
        place.has_all();
        let warned = server.next_line();
        assert!(warned.contains("one half") && warned.contains(path(&place.at(lost))), "{warned}");
        place.land_and_kill(server);

        // The half that was away comes back alone: it is not taken for the log.
        let left = place.at(if lost == "a" { "b" } else { "a" });
        fs::rename(&left, place.at("kept")).expect("moved");
        fs::rename(place.at("away"), place.at(lost)).expect("moved");
        let (volume, old) = (place.at("volume"), place.at(lost));
        let o = run(&["serve", path(&volume), "--log", path(&old), "--listen", "127.0.0.1:0"]);
        assert_eq!(o.status.code(), Some(2));
        one_line_with(stderr(&o).lines().last().unwrap_or_default(), &["older copy of the log"]);

        // With the other one beside it, it is written anew.
        fs::rename(place.at("kept"), &left).expect("moved");
        let server = place.serve();
        assert!(
            server.words.contains("is older than") && server.words.contains(path(&old)),
            "{}",
            server.words
        );
        place.has_all();
        place.land_and_kill(server);
    }
    // An empty file in the place of one is filled.
    fs::write(place.at("a"), []).expect("emptied");
    let server = place.serve();
    assert!(server.words.contains("it is made a copy of"), "{}", server.words);
    place.land_and_kill(server);
    fs::remove_file(place.at("b")).expect("removed");
    place.land_and_kill(place.serve());
    place.has_all();
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_mirror_of_itself_is_none() {
    let place = Place::new();
    let (volume, a) = (place.at("volume"), place.at("a"));
    let same =
        ["serve", path(&volume), "--log", path(&a), "--log-mirror", path(&a), "--listen", "127.0.0.1:0"];
    let o = run(&same);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["its own mirror"]);
    assert!(!Path::new(&a).exists());
}

fn system(program: &str, args: &[&str]) -> String {
    let done = Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(done.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

const LOG_BYTES: u64 = 20 << 20;

/// A log device that can lose what it holds and take no more.
struct Breakable {
    at: PathBuf,
    device: String,
}

impl Breakable {
    fn new(at: PathBuf) -> Breakable {
        fs::create_dir(&at).expect("a directory");
        system("mount", &["-t", "tmpfs", "-o", "size=24m", "tmpfs", path(&at)]);
        let image = at.join("image");
        fs::File::create(&image).and_then(|file| file.set_len(LOG_BYTES)).expect("an image");
        let device = system("losetup", &["-f", "--show", path(&image)]);
        Breakable { at, device }
    }

    /// What lies behind its superblocks is gone, and what takes its room leaves none.
    fn fail(&self) {
        let (from, bytes) = ("65536", (LOG_BYTES - 65_536).to_string());
        system("fallocate", &["-p", "-o", from, "-l", &bytes, path(&self.at.join("image"))]);
        // Ends with the error that it is after.
        let _ = fs::write(self.at.join("fill"), vec![1; 2 * LOG_BYTES as usize]);
    }

    /// A new, empty one in its place.
    fn replace(&self) {
        fs::remove_file(self.at.join("fill")).expect("removed");
        let device = fs::OpenOptions::new().write(true).open(&self.device).expect("the device");
        std::os::unix::fs::FileExt::write_all_at(&device, &vec![0; LOG_BYTES as usize], 0).expect("zeroed");
    }
}

impl Drop for Breakable {
    fn drop(&mut self) {
        // As far as it came.
        for (program, what) in [("losetup", "-d"), ("umount", "-l")] {
            let what = [what, if program == "losetup" { &self.device } else { path(&self.at) }];
            let _ = Command::new(program).args(what).status();
        }
    }
}

/// What docs/faults.md says of one export of several, done while the server runs.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn one_export_that_fails_is_taken_out_mended_and_put_back() {
    if !emulates_disks() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    let log = Breakable::new(at("device"));
    let export = |name: &str, log: &str| {
        let dir = at(name);
        let _ = fs::create_dir(&dir);
        format!(
            "[[export]]\npath = \"{}\"\nname = \"/{name}\"\nlog = {{ path = \"{log}\", size = \"16M\" }}\n\
             clients = [{{ from = \"*\", options = [\"rw\", \"no_root_squash\", \"insecure\"] }}]\n",
            path(&dir)
        )
    };
    let (a, b) = (export("a", &log.device), export("b", path(&at("b.log"))));
    let listen = "listen = [\"127.0.0.1:0\"]\n";
    let configure = |exports: &[&String]| {
        let text: String = exports.iter().map(|e| e.as_str()).collect();
        fs::write(at("file"), format!("{listen}{text}")).expect("written");
    };
    fs::write(at("content"), vec![7; 100_000]).expect("a file");
    system("tar", &["-cf", path(&at("tar")), "-C", path(dir.path()), "content"]);
    configure(&[&a, &b]);
    let mut server = Serving::configured(&at("file"));
    let url = server.url.clone();
    let put = |export: &str, name: &str| {
        let to = format!("{url}{export}/{name}");
        run(&["mkdir", &to]).status.success() && run(&["untar", path(&at("tar")), &to]).status.success()
    };
    assert!(put("a", "1") && put("b", "1"));

    log.fail();
    let failed = (0..200).any(|n| !put("a", &format!("x{n}")));
    assert!(failed, "a log that cannot be written to acknowledges nothing");
    assert!(put("b", "2"), "the other export goes on");
    server.until("/a has FAILED");

    configure(&[&b]);
    server.signal(Signal::HUP);
    server.until("/a is served no more");
    let words = server.until("not stopped cleanly");
    // A write fails, or a look at the log finds that one did not arrive.
    assert!(words.contains("/a: log") || words.contains("/a: the log"), "{words}");
    assert!(put("b", "3"));

    // As it is it cannot be recovered: that is said, and the other goes on.
    configure(&[&a, &b]);
    server.signal(Signal::HUP);
    server.until("nothing has changed");
    assert!(put("b", "4"));

    // Its log is given up, as docs/internals/recovery.md says.
    log.replace();
    fs::rename(at("a").join(".landfast"), at("aside")).expect("moved");
    rustix::fs::removexattr(at("a"), "trusted.landfast.tag").expect("removed");
    server.signal(Signal::HUP);
    server.until("/a is served now");
    assert!(put("a", "5") && put("b", "5"));
    let (code, words) = server.end(Signal::TERM);
    assert_eq!(code, Some(0), "{words}");
    assert!(at("a/5/content").exists() && at("b/5/content").exists());
}
