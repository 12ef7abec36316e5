//! The configuration file from outside: check, exports, serve, SIGHUP.

mod common;

use common::*;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};

fn text(dir: &Path, exports: &[&str]) -> String {
    let mut text = "listen = \"127.0.0.1:0\"\n".to_owned();
    for name in exports {
        std::fs::create_dir_all(dir.join(name)).expect("the directory");
        text += &only(dir, name);
    }
    text
}

/// One export.
fn only(dir: &Path, name: &str) -> String {
    format!(
        "[[export]]\npath = \"{}\"\nname = \"/{name}\"\ndurability = \"sync\"\n\
         clients = [{{ from = \"10.0.0.0/8\", options = [\"rw\"] }}, {{ from = \"*\" }}]\n",
        dir.join(name).display()
    )
}

/// A server as this file says.
fn hear(file: &Path, more: &[&str]) -> Hearing {
    let mut child = landfast()
        .args(["serve", "--config", path(file)])
        .args(more)
        .stderr(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .expect("landfast starts");
    let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    Hearing { child, stderr }
}

#[test]
fn check_names_each_mistake_with_its_place() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let file = dir.path().join("landfast.toml");
    std::fs::write(&file, text(dir.path(), &["a", "b"])).expect("written");
    let good = run(&["check", path(&file)]);
    assert_eq!((good.status.code(), stderr(&good)), (Some(0), String::new()));

    std::fs::write(&file, "lease = 5\n[[export]]\npath = \"/no such directory\"\ndurability = \"sync\"\n")
        .expect("written");
    let bad = run(&["check", path(&file)]);
    assert_eq!(bad.status.code(), Some(1));
    let words = stderr(&bad);
    assert_eq!(words.lines().count(), 2, "{words}");
    assert!(words.contains("landfast.toml:1:9: lease") && words.contains("landfast.toml:2:1: "), "{words}");

    std::fs::remove_dir(dir.path().join("b")).expect("empty");
    std::fs::write(
        &file,
        text(dir.path(), &["a"]) + &text(dir.path(), &["b"]).replace("listen = \"127.0.0.1:0\"\n", ""),
    )
    .expect("written");
    std::fs::remove_dir(dir.path().join("b")).expect("empty");
    let gone = run(&["check", path(&file)]);
    assert_eq!(gone.status.code(), Some(1));
    one_line_with(&stderr(&gone), &["landfast.toml:7:1", "is no directory"]);
    assert_eq!(run(&["check", "/no/such/file"]).status.code(), Some(1));
}

#[test]
fn exports_are_listed_for_people_and_programs() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let file = dir.path().join("landfast.toml");
    std::fs::write(&file, text(dir.path(), &["a", "b"])).expect("written");
    let table = stdout(&run(&["exports", "--config", path(&file)]));
    for part in ["/a", "/b", "sync", "10.0.0.0/8", "rw,root_squash,secure", "ro,root_squash,secure"] {
        assert!(table.contains(part), "no {part} in:\n{table}");
    }
    let json = stdout(&run(&["exports", "--config", path(&file), "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json[1]["name"], "/b");
    assert_eq!(json[0]["clients"][0]["from"][0], "10.0.0.0/8");
    assert_eq!(json[0]["clients"][1]["read_only"], true);
    assert_eq!(run(&["exports", "--config", "/no/such/file"]).status.code(), Some(2));
}

#[test]
fn what_is_set_in_the_file_is_not_taken_from_the_command_line() {
    let out = run(&["serve", "--config", "/no/such/file", "--rpcbind", "require"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(stderr(&out).contains("--rpcbind"), "{}", stderr(&out));
}

/// The most usual file: nothing is said but who may use it, so `secure` holds.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn exports_with_all_defaults_serve_root_and_say_whom_they_refuse() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let file = dir.path().join("landfast.toml");
    std::fs::write(&file, text(dir.path(), &["a", "b"])).expect("written");
    std::fs::write(dir.path().join("a/file"), "content").expect("written");
    let serving = Serving::configured(&file);
    // From a port below 1024, which root has.
    for version in ["", "?version=4.0", "?version=3"] {
        let listed = run(&["ls", &format!("{}a{version}", serving.url)]);
        assert_eq!(
            (listed.status.code(), stdout(&listed)),
            (Some(0), "file\n".into()),
            "{}",
            stderr(&listed)
        );
    }
    // From another one: COMPOUND without operations. Said once, however often it is tried.
    let call = |prog: u32, vers: u32, proc: u32, args: &[u8]| {
        let words = [7, 0, 2, prog, vers, proc, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
        let record = [&words[..], args].concat();
        [&(0x8000_0000 | record.len() as u32).to_be_bytes()[..], &record].concat()
    };
    for _ in 0..3 {
        let mut stream = std::net::TcpStream::connect(serving.address()).expect("connected");
        assert!(stream.local_addr().expect("an address").port() >= 1024);
        stream.write_all(&call(100_003, 4, 1, &[0; 12])).expect("sent");
        let mut reply = [0; 24];
        stream.read_exact(&mut reply).expect("a reply");
        // MSG_DENIED, AUTH_ERROR, AUTH_TOOWEAK.
        assert_eq!(reply[12..24], [1, 1, 5].map(u32::to_be_bytes).concat());
    }
    let (code, words) = serving.end(Signal::TERM);
    assert_eq!(code, Some(0), "{words}");
    let refused: Vec<_> = words.lines().filter(|l| l.contains("is refused")).collect();
    assert_eq!(refused.len(), 1, "{words}");
    one_line_with(refused[0], &["127.0.0.1 is refused everything", "calls from port", "add \"insecure\""]);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_stop_message_counts_requests_of_version_3() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let serving = Serving::with(dir.path(), &["--durability", "sync"]);
    let listed = run(&["ls", &format!("{}?version=3", serving.url)]);
    assert_eq!(listed.status.code(), Some(0), "{}", stderr(&listed));
    let (code, words) = serving.end(Signal::TERM);
    let stopped = words.lines().find(|l| l.contains("stopped cleanly")).unwrap_or_else(|| panic!("{words}"));
    assert!(code == Some(0) && !stopped.contains("after 0 requests"), "{stopped}");
}

struct Hearing {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Hearing {
    /// The next line that has this in it.
    fn until(&mut self, part: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            let n = self.stderr.read_line(&mut line).expect("its standard error");
            assert!(n > 0, "it ended without '{part}': {all}");
            if line.contains(part) {
                return line;
            }
            all += &line;
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn sighup_reads_the_file_again_and_a_bad_one_changes_nothing() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let file = dir.path().join("landfast.toml");
    std::fs::write(&file, text(dir.path(), &["a", "b"])).expect("written");
    let mut server = hear(&file, &[]);
    server.until("/a at nfs://127.0.0.1:");
    server.until("/b at nfs://127.0.0.1:");

    std::fs::write(&file, text(dir.path(), &["a"]).replace("clients", "client")).expect("written");
    server.signal(Signal::HUP);
    let said = server.until("nothing has changed");
    assert!(said.contains("landfast.toml:"), "{said}");

    let new = text(dir.path(), &["a", "c"]).replace("127.0.0.1:0", "127.0.0.1:1");
    std::fs::write(&file, new).expect("written");
    server.signal(Signal::HUP);
    server.until("/c is served now");
    server.until("/b is served no more");
    server.until("listen has changed in the file: it needs a restart");
    server.signal(Signal::TERM);
    server.until("stopped cleanly");
    assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn one_export_that_cannot_be_opened_does_not_keep_the_others_down() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let file = dir.path().join("landfast.toml");
    std::fs::write(&file, text(dir.path(), &["a", "b"])).expect("written");
    let (there, away) = (dir.path().join("b"), dir.path().join("away"));
    std::fs::rename(&there, &away).expect("taken away");
    let serve = || hear(&file, &[]);
    let mut server = serve();
    let said = server.until("is NOT SERVED");
    assert!(said.contains("/b") && said.contains("ERROR"), "{said}");
    server.until("/a at nfs://127.0.0.1:");
    server.signal(Signal::HUP);
    server.until("/b still cannot be served");
    std::fs::rename(&away, &there).expect("put back");
    server.signal(Signal::HUP);
    server.until("/b is served now");
    server.signal(Signal::TERM);
    server.until("stopped cleanly");
    assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
    // Nor does one whose directory cannot even be looked at, at the start or later.
    std::fs::rename(&there, &away).expect("taken away");
    symlink(&there, &there).expect("a link to itself");
    let checked = run(&["check", path(&file)]);
    assert!(stderr(&checked).contains("symbolic links"), "{}", stderr(&checked));
    let mut server = serve();
    let said = server.until("is NOT SERVED");
    assert!(said.contains("/b") && said.contains("symbolic links"), "{said}");
    server.until("/a at nfs://127.0.0.1:");
    std::fs::write(&file, text(dir.path(), &["a", "c"]) + &only(dir.path(), "b")).expect("written");
    server.signal(Signal::HUP);
    server.until("/c is served now");
    server.until("/b still cannot be served");
    std::fs::remove_file(&there).expect("removed");
    std::fs::rename(&away, &there).expect("put back");
    server.signal(Signal::HUP);
    server.until("/b is served now");
    // While it is served its disk fails.
    std::fs::rename(&there, &away).expect("taken away");
    symlink(&there, &there).expect("a link to itself");
    std::fs::write(&file, text(dir.path(), &["a", "c", "d"]) + &only(dir.path(), "b")).expect("written");
    server.signal(Signal::HUP);
    server.until("/d is served now");
    server.signal(Signal::TERM);
    server.until("stopped cleanly");
    assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
    // Nothing at all to serve is no server.
    std::fs::remove_file(&there).expect("removed");
    std::fs::rename(&away, &there).expect("put back");
    std::fs::write(&file, text(dir.path(), &["a", "b"])).expect("written");
    for name in ["a", "b"] {
        std::fs::remove_dir_all(dir.path().join(name)).expect("removed");
    }
    let mut server = serve();
    server.until("/b");
    assert_eq!(server.child.wait().expect("it ends").code(), Some(2));
}

/// Each flush takes so long that the new export is not served before the server is told to stop.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_server_that_is_told_to_stop_does_not_wait_for_a_reload() {
    for signal in [Signal::TERM, Signal::INT] {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let file = dir.path().join("landfast.toml");
        let logged = |names: &[&str]| {
            let log = |name: &str| {
                let log = dir.path().join(format!("{name}.log"));
                let log = format!("log = {{ path = \"{}\", size = \"16M\" }}", path(&log));
                only(dir.path(), name).replace("durability = \"sync\"", &log)
            };
            let exports: Vec<_> = names.iter().map(|name| log(name)).collect();
            std::fs::write(&file, text(dir.path(), &[]) + &exports.concat()).expect("written");
        };
        std::fs::create_dir(dir.path().join("a")).expect("the directory");
        std::fs::create_dir(dir.path().join("b")).expect("the directory");
        logged(&["a"]);
        let mut server = hear(&file, &["--inject-volume-flush", "3s"]);
        server.until("/a at nfs://127.0.0.1:");
        logged(&["a", "b"]);
        server.signal(Signal::HUP);
        server.until("made a new volume in ");
        server.signal(signal);
        let mut said = String::new();
        server.stderr.read_to_string(&mut said).expect("its standard error");
        assert!(said.contains("stopped cleanly") && !said.contains("is served now"), "{signal:?}: {said}");
        assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
        // Both are as they should be.
        let mut server = hear(&file, &[]);
        server.until("/b at nfs://127.0.0.1:");
        server.signal(Signal::TERM);
        server.until("stopped cleanly");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_export_whose_disk_is_not_mounted_is_not_served_if_the_file_says_so() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let file = dir.path().join("landfast.toml");
    let mounted = |name: &str, at: &str| only(dir.path(), name) + &format!("mountpoint = {at}\n");
    for name in ["a", "b", "c"] {
        std::fs::create_dir(dir.path().join(name)).expect("the directory");
    }
    let exports = [only(dir.path(), "a"), mounted("b", "true"), mounted("c", "\"/proc\"")].concat();
    std::fs::write(&file, text(dir.path(), &[]) + &exports).expect("written");
    let mut server = hear(&file, &[]);
    let said = server.until("made a new volume in ");
    assert!(said.contains("/a; if a disk should be mounted there"), "{said}");
    server.until("made a new volume in ");
    let said = server.until("is NOT SERVED");
    assert!(said.contains("nothing is mounted on") && said.contains("/b"), "{said}");
    server.until("/a at nfs://127.0.0.1:");
    server.until("/c at nfs://127.0.0.1:");
    assert!(!dir.path().join("b/.landfast").exists(), "nothing was made there");
    server.signal(Signal::TERM);
    server.until("stopped cleanly");
}
