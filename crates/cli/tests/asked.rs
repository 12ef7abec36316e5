//! What users ask for that there is not, in words that help; what Ctrl-C leaves behind, and says; the README's own commands.

mod common;

use common::{Serving, landfast, one_line_with, path, run, stderr, stdout};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

#[test]
fn a_bound_on_what_does_not_exist() {
    let o = run(&["trace", "--fail-if", "WRIT.p99>1us", "/no/such.pcap"]);
    assert_eq!(o.status.code(), Some(2));
    for part in ["'WRIT'", "WRITE", "GETATTR", "CB_RECALL", "OPEN"] {
        assert!(stderr(&o).contains(part), "{part}: {}", stderr(&o));
    }
    // Those that there are lead to the file.
    for known in ["WRITE.p99>1us", "cb_recall.calls>1", "Open.avg>1ms", "MNT.max>1s"] {
        let o = run(&["trace", "--fail-if", known, "/no/such.pcap"]);
        assert!(stderr(&o).contains("/no/such.pcap"), "{known}: {}", stderr(&o));
    }
}

#[test]
fn a_log_of_a_size_that_is_none() {
    for args in [
        &["log", "create", "/no/such/log", "--size", "10"][..],
        &["serve", "/no/such", "--log", "/no/such/log", "--log-size", "10"],
    ] {
        let o = run(args);
        assert_eq!(o.status.code(), Some(2));
        for part in ["10 B is too small for a log", "256.0 KiB", "256M"] {
            assert!(stderr(&o).contains(part), "{args:?}: {}", stderr(&o));
        }
    }
}

#[test]
fn tar_does_not_extract() {
    for args in [
        &["tar", "-x", "-f", "a.tar"][..],
        &["tar", "xf", "a.tar"],
        &["tar", "--extract"],
        &["tar", "-xvf", "a"],
    ] {
        let o = run(args);
        assert_eq!(o.status.code(), Some(2), "{args:?}");
        one_line_with(&stderr(&o), &["tar: ", "landfast untar ARCHIVE nfs://"]);
    }
    one_line_with(&stderr(&run(&["tar", "tf", "a.tar"])), &["lists"]);
}

/// `--debug` twice: each request, with what came back.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn requests_are_shown_when_asked_for() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let volume = dir.path().join("volume");
    fs::create_dir(&volume).expect("a directory");
    let server = Serving::start(&volume, &dir.path().join("log"));
    for (version, lines) in [
        ("4.2", &["COMPOUND 4.2 EXCHANGE_ID, ", "COMPOUND 4.2 SEQUENCE ", " READDIR", ": NFS4_OK, "][..]),
        ("4.0", &["COMPOUND 4.0 ", " READDIR", ": NFS4_OK, "]),
        ("3", &["MOUNT 3 procedure 1, ", "NFS 3 READDIR", ": NFS3_OK, "]),
    ] {
        let at = if version == "3" { path(&volume).trim_start_matches('/') } else { "" };
        let url = format!("{}{at}?version={version}", server.url);
        let o = run(&["--debug", "--debug", "ls", &url]);
        assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
        for line in lines {
            assert!(stderr(&o).contains(line), "no '{line}' in: {}", stderr(&o));
        }
        assert_eq!(stderr(&run(&["ls", &url])), "", "nothing is said unless it is asked for");
    }
}

/// What is no text is shown as far as it is.
#[test]
fn words_that_are_no_text() {
    use std::os::unix::ffi::OsStrExt;
    let o = landfast().arg(std::ffi::OsStr::from_bytes(b"no-\xff-command")).output().expect("landfast runs");
    assert_eq!(o.status.code(), Some(2));
    assert!(!stderr(&o).contains("panicked"), "{}", stderr(&o));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn each_export_has_its_own_url() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let mut text = "listen = [\"127.0.0.1:0\"]\n".to_owned();
    for name in ["one", "two"] {
        let at = dir.path().join(name);
        fs::create_dir(&at).expect("a directory");
        fs::write(at.join(format!("in-{name}")), "").expect("a file");
        text.push_str(&format!(
            "[[export]]\npath = \"{}\"\nname = \"/named/{name}\"\ndurability = \"sync\"\n\
             clients = [{{ from = \"127.0.0.1\", options = [\"insecure\"] }}]\n",
            path(&at)
        ));
    }
    let file = dir.path().join("exports.toml");
    fs::write(&file, text).expect("a file");
    let mut server = Serving::configured(&file);
    let said = [server.words.clone(), server.next_line()].concat();
    for name in ["one", "two"] {
        let line =
            said.lines().find(|line| line.contains(&format!("serving {}/{name} at ", path(dir.path()))));
        let url = line.and_then(|line| line.split(" at ").nth(1)?.split(' ').next()).expect("a line");
        let listed = run(&["ls", url]);
        assert_eq!(stdout(&listed), format!("in-{name}\n"), "{url}: {}", stderr(&listed));
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it is there");
}

/// Looks again and again, until it is so.
fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn nothing_is_left_of_an_interrupted_run_of_the_lab() {
    for (args, ends) in [(&["demo"][..], Signal::INT), (&["lab", "run", "client-rpcs"], Signal::TERM)] {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let mut run = landfast()
            .args(args)
            .env("TMPDIR", dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("landfast starts");
        let within = |dir: &Path| fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
        // Its directory, and something in it.
        until(|| {
            let own = fs::read_dir(dir.path()).expect("a directory").next();
            assert!(run.try_wait().expect("its status").is_none(), "{args:?} has ended");
            own.is_some_and(|own| within(&own.expect("an entry").path()))
        });
        signal(&run, ends);
        let o = run.wait_with_output().expect("it ends");
        assert_eq!(o.status.code(), Some(130), "{args:?}: {}", stderr(&o));
        assert!(stderr(&o).contains("interrupted"), "{args:?}: {}", stderr(&o));
        assert!(!within(dir.path()), "{args:?}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_interrupted_sync_tree_says_what_it_did() {
    const FILES: usize = 12_000;
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let (volume, source) = (dir.path().join("volume"), dir.path().join("source"));
    fs::create_dir(&volume).expect("a directory");
    fs::create_dir(&source).expect("a directory");
    // More than may be in flight at a time.
    for i in 0..FILES {
        fs::write(source.join(format!("f{i:05}")), [b'x'; 100]).expect("a file");
    }
    // Slow enough to be met in the middle, and quick enough that no COMPOUND takes so long that the server seems not to respond.
    let server = Serving::with(&volume, &["--durability", "sync", "--inject-volume-flush", "2ms"]);
    let mut sync = landfast()
        .args(["sync-tree", "-v", path(&source), &format!("{}to", server.url)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("landfast starts");
    let to = volume.join("to");
    until(|| {
        assert!(sync.try_wait().expect("its status").is_none(), "it has ended");
        fs::read_dir(&to).is_ok_and(|entries| entries.count() > 50)
    });
    signal(&sync, Signal::INT);
    let o = sync.wait_with_output().expect("it ends");
    assert_eq!(o.status.code(), Some(130), "{}", stderr(&o));
    // Another thread may say meanwhile what is waited for; of all else this is the last line.
    let said = stderr(&o);
    let last =
        said.lines().rfind(|line| !line.contains("waiting for requests in flight")).unwrap_or_default();
    for part in ["sync-tree: interrupted: ", " synchronised; the rest was not started"] {
        assert!(last.contains(part), "{said}");
    }
    let sent = stdout(&o).lines().filter(|line| line.starts_with("send f")).count();
    let there = fs::read_dir(&to).expect("it is there").count();
    assert!(sent > 0 && sent < FILES && sent <= there, "{sent} of {there}: {}", stderr(&o));
    assert!(stdout(&o).lines().last().is_some_and(|line| line.starts_with("sent: ")), "{}", stdout(&o));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_destination_that_is_not_there() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let volume = dir.path().join("volume");
    fs::create_dir(&volume).expect("a directory");
    fs::write(dir.path().join("f"), "x").expect("a file");
    let archive = dir.path().join("a.tar");
    let made = Command::new("tar").args(["-cf", path(&archive), "-C", path(dir.path()), "f"]).status();
    assert!(made.expect("tar").success());
    let server = Serving::start(&volume, &dir.path().join("log"));
    for version in ["4.2", "4.1", "4.0", "3"] {
        let at = if version == "3" { path(&volume).trim_start_matches('/') } else { "" };
        let url = format!("{}{at}/to{version}/deep?version={version}", server.url);
        let o = run(&["untar", path(&archive), &url]);
        assert_eq!(o.status.code(), Some(2));
        one_line_with(&stderr(&o), &["no such directory", "--mkdir", "landfast mkdir -p "]);
        // Also when it is there already.
        for _ in 0..2 {
            let o = run(&["untar", "--mkdir", path(&archive), &url]);
            assert!(o.status.success(), "{version}: {}", stderr(&o));
        }
        assert_eq!(fs::read(volume.join(format!("to{version}/deep/f"))).expect("it is there"), b"x");
    }
    let file = format!("{}to4.2/deep/f", server.url);
    let o = run(&["untar", "--mkdir", path(&archive), &file]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["File exists"]);
}

/// The first block of commands of a document under this heading.
fn block(document: &str, heading: &str) -> Vec<String> {
    let (_, below) = document.split_once(&format!("\n## {heading}")).expect("the heading");
    let (_, block) = below.split_once("```sh\n").expect("a block");
    let (block, _) = block.split_once("```").expect("its end");
    block.lines().map(|line| line.split('#').next().unwrap_or_default().trim().to_owned()).collect()
}

/// The README's commands, in a directory where there is nothing but the archive: each as it stands there, with a directory, a log and
/// a server of this machine.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_commands_of_the_readme() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let at = path(dir.path());
    fs::create_dir(dir.path().join("data")).expect("a directory");
    let mounted = dir.path().join("mnt");
    fs::create_dir(&mounted).expect("a directory");
    let landfast_there = |line: &str, server: &str| {
        let line =
            line.replace("/srv/data", &format!("{at}/data")).replace("/dev/nvme0n1p3", &format!("{at}/log"));
        let line = line.replace("192.168.7.0/24", "127.0.0.1").replace(" /mnt", &format!(" {at}/mnt"));
        let line = line.replace("/local/journal", &format!("{at}/journal")).replace("nfs://server/", server);
        let mut command = Command::new("bash");
        command.args(["-ec", &line.replacen("landfast", env!("CARGO_BIN_EXE_landfast"), 1)]);
        command.current_dir(dir.path()).stdin(Stdio::null());
        command
    };
    let made = Command::new("bash")
        .args(["-ec", "mkdir linux; echo x > linux/Makefile; tar -cJf linux.tar.xz linux"])
        .current_dir(dir.path())
        .status();
    assert!(made.expect("a shell").success());

    let main = block(include_str!("../../../README.md"), "The main job");
    let serve = main.iter().find(|line| line.starts_with("landfast serve")).expect("a server");
    let serve = format!("exec {serve} --log-size 32M --listen 127.0.0.1:0");
    let mut server = landfast_there(&serve, "").stderr(Stdio::piped()).spawn().expect("a shell");
    let mut words = BufReader::new(server.stderr.take().expect("a pipe"));
    let url = loop {
        let mut line = String::new();
        assert!(words.read_line(&mut line).expect("its words") > 0, "{serve}: it ended");
        if let Some((_, rest)) = line.split_once("nfs://") {
            break format!("nfs://{}/", rest.split('/').next().unwrap_or_default());
        }
    };
    let verify = block(include_str!("../../../docs/durability.md"), "Checking it: `landfast verify`");
    let lines = main
        .iter()
        .chain(&verify)
        .filter(|line| line.starts_with("landfast") && !line.starts_with("landfast serve"));
    let mut ran = 0;
    let mut failed = String::new();
    for line in lines {
        // Where the README has a directory of a server, and the time that is enough to see that it works.
        let line =
            if line.contains("verify write") { format!("{line} --operations 20") } else { line.clone() };
        if !line.starts_with("landfast untar") {
            fs::create_dir_all(dir.path().join("data/dir")).expect("a directory");
        }
        let o = landfast_there(&line, &url).output().expect("a shell");
        if !o.status.success() {
            failed.push_str(&format!("{line}: {}\n", stderr(&o)));
        }
        if line.starts_with("landfast mount") {
            assert!(mounted.join("src/linux/Makefile").is_file(), "{line}");
            assert!(run(&["umount", path(&mounted)]).status.success());
        }
        ran += 1;
    }
    signal(&server, Signal::TERM);
    let ended = server.wait().expect("it ends");
    assert_eq!(failed, "");
    assert!(ran == 7 && ended.success(), "{ran} commands; {ended}");
    assert!(dir.path().join("data/src/linux/Makefile").is_file());
}
