//! A log on two devices, as its operator sees it.

mod common;

use common::{Serving, one_line_with, path, root, run, stderr};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};

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
fn either_half_may_be_lost_and_is_made_a_copy_again() {
    if !root() {
        return;
    }
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
fn a_mirror_of_itself_is_none() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (volume, a) = (place.at("volume"), place.at("a"));
    let same =
        ["serve", path(&volume), "--log", path(&a), "--log-mirror", path(&a), "--listen", "127.0.0.1:0"];
    let o = run(&same);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["its own mirror"]);
    assert!(!Path::new(&a).exists());
}
