//! What a terminal gets to see of names that were made to move its cursor: nothing that it would obey. What a pipe gets: the names.

mod common;

use common::{Serving, landfast, path, stderr, stdout};
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// A sequence that begins with ESC, one that begins with the single character CSI, a bell and an erased beginning, a line of its own.
const NAMES: [&[u8]; 4] = [b"a\x1b[31mb", b"c\xc2\x9b2Jd", b"e\x07\rf\x7f\x9b", b"g\nroot ALL"];

/// The same as `find` shows them on a terminal.
const MARKED: [&str; 4] = ["a?[31mb", "c?2Jd", "e??f??", "g?root ALL"];

/// Runs the command with a terminal as its input, output and errors, and gives all that the terminal got.
fn on_a_terminal(args: &[&OsStr]) -> Vec<u8> {
    on_a_terminal_of(None, args)
}

/// The same with one that has so many columns.
fn on_a_terminal_of(columns: Option<usize>, args: &[&OsStr]) -> Vec<u8> {
    // As a shell takes it: each in single quotes, which none of the names has in it.
    let mut command = columns.map(|n| format!("stty rows 24 cols {n} && ").into_bytes()).unwrap_or_default();
    command.extend([b"'", env!("CARGO_BIN_EXE_landfast").as_bytes(), b"'"].concat());
    for arg in args {
        command.extend([b" '", arg.as_bytes(), b"'"].concat());
    }
    let out = Command::new("script")
        .args(["--quiet", "--return", "--command"])
        .arg(OsStr::from_bytes(&command))
        .arg("/dev/null")
        .env("LC_ALL", "C.UTF-8")
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::null())
        .output()
        .expect("script runs");
    out.stdout
}

fn in_a_pipe(args: &[&OsStr]) -> Output {
    landfast().args(args).stdin(Stdio::null()).output().expect("landfast runs")
}

/// What a terminal would obey, of all that it got. Ends of lines come with a return, names of `-print0` end in NUL, a progress bar
/// clears its line, and `^D` may be echoed when input ends.
fn obeyed(said: &[u8]) -> Vec<u8> {
    let mut bad = Vec::new();
    for chunk in said.utf8_chunks() {
        let text = chunk.valid().replace("\r\n", "\n").replace("\r\u{1b}[2K", "").replace("^D\u{8}\u{8}", "");
        let controls = text.chars().filter(|c| c.is_control() && !matches!(c, '\n' | '\t' | '\0'));
        bad.extend(controls.collect::<String>().bytes());
        bad.extend(chunk.invalid());
    }
    bad
}

fn served(dir: &Path) -> Serving {
    let volume = dir.join("volume");
    fs::create_dir_all(volume.join("tree")).expect("a directory");
    for name in NAMES {
        fs::write(volume.join("tree").join(OsStr::from_bytes(name)), b"content").expect("a file");
        let link = [b"to-", name].concat();
        std::os::unix::fs::symlink(
            OsStr::from_bytes(name),
            volume.join("tree").join(OsStr::from_bytes(&link)),
        )
        .expect("a link");
    }
    Serving::with(&volume, &["--durability", "sync"])
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn names_do_not_command_a_terminal() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let server = served(dir.path());
    let tree = format!("{}tree", server.url);
    let archive = dir.path().join("archive.tar");
    let made = Command::new("tar")
        .args(["-cf", path(&archive), "-C", path(&dir.path().join("volume")), "tree"])
        .status()
        .expect("tar");
    assert!(made.success());
    let (to, local) = (format!("{}to", server.url), dir.path().join("local"));
    assert!(in_a_pipe(&[OsStr::new("mkdir"), OsStr::new(&to)]).status.success());
    let (tree, to, archive, local) = (tree.as_str(), to.as_str(), path(&archive), path(&local));
    let copy = format!("{to}/copy");
    for (args, shown) in [
        (&["find", tree][..], true),
        (&["find", tree, "-ls"], false),
        (&["find", tree, "-printf", "%f %p %l %P %h\\n"], true),
        (&["find", tree, "-print0"], false),
        (&["find", tree, "--json"], false),
        (&["ls", tree], false),
        (&["ls", "-l", tree], false),
        (&["ls", "-lN", tree], true),
        (&["ls", "-lb", tree], false),
        (&["ls", "--json", tree], false),
        (&["du", "-a", tree], false),
        (&["untar", "-v", archive, to], false),
        // Each member fails, with its name.
        (&["untar", "-v", "--keep-old-files", archive, to], false),
        (&["cp", "-rv", tree, &copy], false),
        (&["cp", "-rv", tree, local], false),
        (&["sync-tree", "-v", tree, &format!("{to}/synced")], false),
        (&["diff-tree", tree, to], false),
        (&["tar", "-cvf", "/dev/null", "-C", &server.url, "tree"], false),
        (&["rm", "-rv", &copy], false),
    ] {
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        let said = on_a_terminal(&args);
        let text = String::from_utf8_lossy(&said);
        assert_eq!(obeyed(&said).escape_ascii().to_string(), "", "{args:?}: {text}");
        assert!(text.contains("[31mb") || text.lines().count() < 3, "{args:?}: {text}");
        if shown {
            for name in MARKED {
                assert!(text.contains(name), "{args:?}: no {name} in {text}");
            }
        }
    }
    // A name in an operand, and in the complaint about it.
    for name in NAMES {
        let url = [tree.as_bytes(), b"/none-", name].concat();
        for tool in ["ls", "cat", "stat", "du", "find", "rm"] {
            let args = [OsStr::new(tool), OsStr::from_bytes(&url)];
            assert_eq!(obeyed(&on_a_terminal(&args)).escape_ascii().to_string(), "", "{tool}");
            let piped = in_a_pipe(&args);
            assert!(!piped.status.success());
            assert_eq!(obeyed(&piped.stderr).escape_ascii().to_string(), "", "{tool}");
            // What is no UTF-8 cannot be typed, and gets a usage.
            let lines = if std::str::from_utf8(name).is_ok() { 1 } else { 5 };
            assert_eq!(stderr(&piped).lines().count(), lines, "{tool}: {}", stderr(&piped));
        }
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_pipe_gets_the_names_as_they_are() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let server = served(dir.path());
    let tree = format!("{}tree", server.url);
    let found = in_a_pipe(&["find", &tree, "-type", "f"].map(OsStr::new)).stdout;
    let listed = in_a_pipe(&["ls", "-U", &tree].map(OsStr::new)).stdout;
    for name in NAMES {
        let line = [b"/", name, b"\n"].concat();
        assert!(found.windows(line.len()).any(|w| w == line), "{}", name.escape_ascii());
        let line = [name, b"\n"].concat();
        assert!(listed.windows(line.len()).any(|w| w == line), "{}", name.escape_ascii());
    }
    // A file is what it is, wherever it goes.
    let url = [tree.as_bytes(), b"/", NAMES[0]].concat();
    assert_eq!(stdout(&in_a_pipe(&[OsStr::new("cat"), OsStr::from_bytes(&url)])), "content");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_listing_has_the_width_of_the_terminal() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let volume = dir.path().join("volume");
    fs::create_dir(&volume).expect("a directory");
    (0..60).for_each(|n| fs::write(volume.join(format!("name-{n:02}")), "").expect("a file"));
    let server = Serving::with(&volume, &["--durability", "sync"]);
    for columns in [200, 60] {
        let said = on_a_terminal_of(Some(columns), &["ls", &server.url].map(OsStr::new));
        let said = String::from_utf8_lossy(&said).replace("\r\n", "\n").replace("^D\u{8}\u{8}", "");
        let wanted = in_a_pipe(&["ls", "-C", "-w", &columns.to_string(), &server.url].map(OsStr::new));
        assert_eq!(said, stdout(&wanted), "{columns}");
        let widest = said.lines().map(str::len).max().unwrap_or_default();
        assert!(widest <= columns && widest + 30 > columns, "{widest} of {columns}");
    }
}

/// What a terminal shows in a line, of text that goes back to its beginning and clears it.
fn shown(said: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(said).into_owned();
    let pieces = text.split(['\r', '\n']);
    pieces.map(|piece| piece.replace("\u{1b}[2K", "").replace("\u{1b}[K", "")).collect()
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_bar_fits_a_terminal() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let (volume, tree) = (dir.path().join("volume"), dir.path().join("tree"));
    fs::create_dir(&volume).expect("a directory");
    fs::create_dir(&tree).expect("a directory");
    (0..2_000).for_each(|n| fs::write(tree.join(format!("f{n}")), [b'x'; 2_000]).expect("a file"));
    let archive = dir.path().join("a.tar");
    let made = Command::new("tar").args(["-cf", path(&archive), "-C", path(dir.path()), "tree"]).status();
    assert!(made.expect("tar").success());
    let server = Serving::with(&volume, &["--durability", "sync", "--inject-volume-flush", "5ms"]);
    for columns in [80, 60] {
        let said = on_a_terminal_of(Some(columns), &["untar", path(&archive), &server.url].map(OsStr::new));
        let lines = shown(&said);
        let bars: Vec<&String> = lines.iter().filter(|line| line.contains('%')).collect();
        assert!(bars.iter().any(|line| line.contains("left") && line.contains("/s")), "{lines:?}");
        assert!(bars.iter().all(|line| line.chars().count() <= columns), "{bars:?}");
    }
}

/// A way to a server that is far off: each piece that comes from the server arrives this much later. The address.
fn far_off(server: &str, later: Duration) -> String {
    let server = server.to_owned();
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) =
                (client.expect("a connection"), TcpStream::connect(&server).expect("a server"));
            let (mut from, mut to) =
                (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
            thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
            thread::spawn(move || {
                let mut piece = vec![0; 64 << 10];
                while let Ok(n @ 1..) = server.read(&mut piece) {
                    thread::sleep(later);
                    if client.write_all(&piece[..n]).is_err() {
                        break;
                    }
                }
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

/// What of the lines that a terminal got was drawn by a counter of this, without what became of it.
fn counted(said: &[u8], what: &str) -> Vec<String> {
    let word = format!(" {what}, ");
    shown(said).into_iter().filter(|line| line.contains(&word) && line.trim_end().ends_with("/s")).collect()
}

/// What is left on a terminal: of each line what was written since it was cleared last.
fn left(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said).replace("\r\n", "\n").replace("^D\u{8}\u{8}", "");
    let last = |line: &str| {
        line.rsplit('\r').next().unwrap_or_default().replace("\u{1b}[2K", "").replace("\u{1b}[K", "")
    };
    text.split('\n').map(last).collect::<Vec<_>>().join("\n")
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn who_waits_sees_how_far_it_is() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let (volume, local) = (dir.path().join("volume"), dir.path().join("local"));
    // One directory in another: each costs a round trip at least, after the one that it is in.
    for top in [volume.join("tree"), volume.join("gone"), volume.join("spare"), local.clone()] {
        let mut deep = top;
        for n in 0..12 {
            deep.push(format!("directory-with-a-long-name-{n}"));
            fs::create_dir_all(&deep).expect("a directory");
            (0..20).for_each(|n| fs::write(deep.join(format!("f{n}")), b"content").expect("a file"));
        }
    }
    fs::create_dir(volume.join("to")).expect("a directory");
    let server = Serving::with(&volume, &["--durability", "sync"]);
    let near = server.url.clone();
    let far = format!("nfs://{}/", far_off(server.address(), Duration::from_millis(100)));
    let archive = dir.path().join("made.tar");
    let (tree, local) = (format!("{far}tree"), path(&local));
    let find = ["find", &tree, "-name", "f1*"];
    for (args, what, lines) in [
        (
            &find[..],
            "listed",
            Some(["find", &format!("{near}tree"), "-name", "f1*"].map(str::to_owned).to_vec()),
        ),
        (&["du", &tree], "listed", Some(["du", &format!("{near}tree")].map(str::to_owned).to_vec())),
        (
            &["ls", "-1R", &tree],
            "listed",
            Some(["ls", "-1R", &format!("{near}tree")].map(str::to_owned).to_vec()),
        ),
        (&["diff-tree", &tree, local], "listed", None),
        (&["tar", "-cf", path(&archive), "-C", &far, "tree"], "archived", None),
        (&["rm", "-r", &format!("{far}gone")], "removed", None),
        (&["sync-tree", local, &format!("{far}to")], "synchronised", None),
        (&["sync-tree", &tree, &format!("{}/new", dir.path().display())], "listed", None),
    ] {
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        let said = on_a_terminal_of(Some(80), &args);
        let bars = counted(&said, what);
        assert!(!bars.is_empty(), "{args:?}: {}", said.escape_ascii());
        assert!(bars.iter().all(|line| line.chars().count() <= 80), "{args:?}: {bars:?}");
        // Nothing of it is left, and nothing of the output is torn.
        let left = left(&said);
        assert!(!left.contains("/s"), "{args:?}: {left}");
        if let Some(near) = lines {
            let near: Vec<&OsStr> = near.iter().map(OsStr::new).collect();
            let wanted =
                stdout(&in_a_pipe(&near)).replace(server.address(), &far["nfs://".len()..far.len() - 1]);
            assert_eq!(left, wanted, "{args:?}");
        }
    }
    // Where standard error is no terminal there is nothing, nor where a pipe takes the lines, which may be a pager's.
    for args in [&find[..], &["rm", "-r", &format!("{far}spare")]] {
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        assert_eq!(stderr(&in_a_pipe(&args)), "", "{args:?}");
    }
    let piped = [env!("CARGO_BIN_EXE_landfast"), " find ", &tree, " -name f1* | cat"].concat();
    let mut shell = Command::new("script");
    shell
        .args(["--quiet", "--return", "--command", &piped, "/dev/null"])
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::null());
    let said = shell.output().expect("script runs").stdout;
    assert_eq!(counted(&said, "listed"), Vec::<String>::new());
    assert!(left(&said).contains("/f19\n"));
}
