//! What a server does not start with: users that keep root's rights, its own files in an export, a network that nobody let in.

mod common;

use common::{Serving, landfast, one_line_with, path, run, stderr};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The first line of a server that was started so, which is then ended.
fn first_line(command: &mut Command) -> String {
    let child = command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn();
    let mut child = child.expect("it starts");
    let mut line = String::new();
    let read = BufReader::new(child.stderr.take().expect("a pipe")).read_line(&mut line);
    let _ = child.kill();
    let _ = child.wait();
    read.expect("its standard error");
    line
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn securebits_that_make_every_user_root_are_refused() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let with = |options: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(options).arg(env!("CARGO_BIN_EXE_landfast")).args([
            "serve",
            path(dir.path()),
            "--durability",
            "sync",
            "--listen",
            "127.0.0.1:0",
        ]);
        first_line(&mut command)
    };
    for bits in ["+no_setuid_fixup", "+no_setuid_fixup,+no_setuid_fixup_locked"] {
        let line = with(&["--securebits", bits]);
        one_line_with(
            &line,
            &["keeps root's rights", "CAP_DAC_OVERRIDE", "no_setuid_fixup", "--securebits="],
        );
        assert!(!dir.path().join(".landfast").exists(), "a refusal leaves no trace");
    }
    // Root without a right of its own: what it has comes by the set that an exec keeps, and a switch takes it all the same.
    let rights =
        "+chown,+dac_override,+dac_read_search,+fowner,+fsetid,+mknod,+setgid,+setuid,+sys_admin,+setpcap";
    let ambient =
        with(&["--inh-caps", rights, "--ambient-caps", rights, "--securebits", "+noroot,+noroot_locked"]);
    assert!(ambient.contains("exports "), "{ambient}");
    let keeping = with(&["--securebits", "+keep_caps_locked"]);
    assert!(keeping.contains("exports "), "{keeping}");
}

/// Two exports and where their logs are.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        for name in ["a", "b", "logs"] {
            fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        Place { dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file that exports `a`, with its log at this place, and `b` if it is wanted.
    fn file(&self, name: &str, log: &Path, b: bool) -> PathBuf {
        let file = self.at(name);
        fs::write(&file, self.text(log, b)).expect("written");
        file
    }

    fn text(&self, log: &Path, b: bool) -> String {
        let mut text = format!(
            "listen = \"127.0.0.1:0\"\n[[export]]\npath = \"{}\"\nlog = {{ path = \"{}\", size = \"16M\" }}\nclients = [{{ from = \"*\" }}]\n",
            self.at("a").display(),
            log.display()
        );
        if b {
            text += &format!(
                "[[export]]\npath = \"{}\"\nlog = {{ path = \"{}\", size = \"16M\" }}\nclients = [{{ from = \"*\" }}]\n",
                self.at("b").display(),
                self.at("logs/b").display()
            );
        }
        text
    }
}

/// A mount that ends with the test.
struct Bind(PathBuf);

impl Bind {
    fn new(from: &Path, at: PathBuf) -> Bind {
        let mounted = Command::new("mount").arg("--bind").arg(from).arg(&at).status().expect("mount");
        assert!(mounted.success());
        Bind(at)
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_log_in_another_export_is_refused_at_the_start_and_by_check() {
    let place = Place::new();
    std::os::unix::fs::symlink(place.at("b"), place.at("link")).expect("a link");
    fs::create_dir(place.at("bound")).expect("a directory");
    fs::create_dir(place.at("b/deep")).expect("a directory");
    let _bound = Bind::new(&place.at("b/deep"), place.at("bound"));
    for log in ["b/log", "link/log", "bound/log", "a/log"] {
        let file = place.file("landfast.toml", &place.at(log), true);
        for args in [&["check", path(&file)][..], &["serve", "--config", path(&file)]] {
            let o = run(args);
            assert_ne!(o.status.code(), Some(0), "{args:?}");
            let export = if log.starts_with('a') { place.at("a") } else { place.at("b") };
            one_line_with(
                &stderr(&o),
                &[
                    "landfast.toml:2:1",
                    "the log of",
                    path(&place.at(log)),
                    "the export",
                    path(&export),
                    "no export is",
                ],
            );
        }
        assert!(!place.at("b/log").exists() && !place.at("b/deep/log").exists(), "a refusal leaves no trace");
    }
    // By the command line, too.
    let o = run(&[
        "serve",
        path(&place.at("b")),
        "--log",
        path(&place.at("bound/log")),
        "--listen",
        "127.0.0.1:0",
    ]);
    one_line_with(&stderr(&o), &["may not lie inside the exported directory", "clients could read"]);
    // Another name of a log that is outside may be inside: nobody can say.
    fs::write(place.at("logs/a"), b"").expect("a file");
    fs::hard_link(place.at("logs/a"), place.at("logs/again")).expect("a link");
    let o = run(&["check", path(&place.file("landfast.toml", &place.at("logs/a"), true))]);
    assert!(stderr(&o).contains("several names"), "{}", stderr(&o));
    fs::remove_file(place.at("logs/again")).expect("there");
    fs::remove_file(place.at("logs/a")).expect("there");
    let good = run(&["check", path(&place.file("landfast.toml", &place.at("logs/a"), true))]);
    assert_eq!((good.status.code(), stderr(&good)), (Some(0), String::new()));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_configuration_file_in_an_export_is_refused() {
    let place = Place::new();
    let file = place.file("b/landfast.toml", &place.at("logs/a"), true);
    for args in [&["check", path(&file)][..], &["serve", "--config", path(&file)]] {
        let o = run(args);
        one_line_with(
            &stderr(&o),
            &["the configuration file", path(&file), "the export", path(&place.at("b"))],
        );
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_export_around_a_log_is_refused_at_a_reload() {
    let place = Place::new();
    // The log of `a` lies where `b` will be exported.
    let file = place.file("landfast.toml", &place.at("b/log"), false);
    let mut server = Serving::configured(&file);
    fs::write(&file, place.text(&place.at("b/log"), true)).expect("written");
    server.signal(Signal::HUP);
    let said = server.until("nothing has changed");
    assert!(said.contains("the log of") && said.contains(path(&place.at("b/log"))), "{said}");
    // The file names another log for `a` meanwhile, and the one in use lies there all the same.
    fs::write(&file, place.text(&place.at("logs/a"), true)).expect("written");
    server.signal(Signal::HUP);
    let said = server.until("nothing has changed");
    assert!(said.contains("the log of") && said.contains(path(&place.at("b/log"))), "{said}");
    assert_eq!(server.end(Signal::TERM).0, Some(0));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_network_is_let_in_by_name_and_the_first_line_says_who_may_do_what() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let serve = ["serve", path(dir.path()), "--durability", "sync"];
    let o = run(&[&serve[..], &["--listen", "0.0.0.0:0"]].concat());
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["0.0.0.0:0", "--allow 192.168.7.0/24", "--squash root", "would be root"]);
    assert!(!dir.path().join(".landfast").exists(), "a refusal leaves no trace");
    let first = |options: &[&str]| first_line(landfast().args(serve).args(options));
    let local = first(&["--listen", "127.0.0.1:0"]);
    assert!(local.contains("to 127.0.0.1, this machine only: root is root"), "{local}");
    let named = first(&["--listen", "127.0.0.1:0", "--allow", "192.0.2.0/24"]);
    assert!(named.contains("to 192.0.2.0/24: root is root"), "{named}");
    let squashed = first(&["--listen", "127.0.0.1:0", "--squash", "root"]);
    assert!(squashed.contains("root is nobody"), "{squashed}");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_squashed_root_may_not_what_root_may() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    fs::write(dir.path().join("secret"), b"secret").expect("a file");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(dir.path().join("secret"), private).expect("its mode");
    for (squash, reads) in [("none", true), ("root", false), ("all", false)] {
        let server = Serving::with(dir.path(), &["--durability", "sync", "--squash", squash]);
        let o = run(&["cat", &format!("{}secret", server.url)]);
        assert_eq!(o.status.success(), reads, "{squash}: {}", stderr(&o));
        assert_eq!(server.end(Signal::TERM).0, Some(0));
    }
}
