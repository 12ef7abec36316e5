//! The client's commands while their server is killed or stopped and started again, at any moment: no error, no file that is not
//! whole; and while it does not answer: that is said, once, and a signal or `--timeout` ends the wait.
//!
//! The long form, with files of up to 100 MiB and 20 restarts under each command in each version:
//! `cargo test -p landfast-cli --test restarts -- --ignored`.

mod common;

use common::{Serving, landfast, path};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const VERSIONS: [&str; 4] = ["4.2", "4.1", "4.0", "3"];
const WHAT: [What; 7] =
    [What::Untar, What::Up, What::Down, What::Beside, What::Tar, What::Sync, What::Remove];

/// What a command may take from a restart on: far less than the grace period of a server (90 s) that waits for nobody.
const STALL_MAX: Duration = Duration::from_secs(40);
/// Between two looks at how far a command is.
const LOOK_EACH: Duration = Duration::from_millis(2);

/// A command on a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// `untar` of it.
    Untar,
    /// `cp -r` to the server.
    Up,
    /// `cp -r` from it.
    Down,
    /// `cp -r` within it.
    Beside,
    /// `tar -c` of what is there.
    Tar,
    /// `sync-tree` to the server.
    Sync,
    /// `rm -r`.
    Remove,
}

/// How much of it.
struct Size {
    small: usize,
    /// Bytes of each large file.
    large: Vec<usize>,
    restarts: usize,
}

/// Numbers that are as good as any others, and are said when a test fails.
struct Dice(u64);

impl Dice {
    fn new() -> Dice {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
        let seed = since.as_nanos() as u64 | 1;
        println!("dice: {seed}");
        Dice(seed)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n.max(1)
    }
}

struct Rig {
    /// Ends before its directory goes.
    server: Serving,
    dir: tempfile::TempDir,
    volume: PathBuf,
    log: PathBuf,
}

impl Rig {
    fn new() -> Rig {
        let dir = tempfile::Builder::new().prefix("landfast-restarts-").tempdir_in("/var/tmp");
        let dir = dir.expect("a directory");
        let at = fs::canonicalize(dir.path()).expect("a path");
        let (volume, log) = (at.join("volume"), at.join("log"));
        fs::create_dir_all(volume.join("d")).expect("a directory");
        let server = Serving::start(&volume, &log);
        Rig { server, dir, volume, log }
    }

    fn local(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn url(&self, name: &str, version: &str) -> String {
        let top = self.server.url.trim_end_matches('/');
        let export = if version == "3" { path(&self.volume) } else { "" };
        format!("{top}{export}/{name}?version={version}")
    }

    /// The same server once more; `kill`: the one before had no time to end.
    fn restart(&mut self, kill: bool) {
        self.server.again_after(if kill { Signal::KILL } else { Signal::TERM }, &self.volume, &self.log);
    }
}

/// A tree of small files in directories, and of large ones.
fn tree(dir: &Path, size: &Size) {
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    let mut data = |len: usize| -> Vec<u8> {
        let mut next = || {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            word
        };
        let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| next().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    };
    for n in 0..size.small {
        let sub = dir.join(format!("s{}", n % 10));
        fs::create_dir_all(&sub).expect("a directory");
        fs::write(sub.join(format!("f{n}")), data(1 + n * 97 % 20_000)).expect("a file");
    }
    for (n, len) in size.large.iter().enumerate() {
        fs::write(dir.join(format!("l{n}")), data(*len)).expect("a file");
    }
}

/// Objects and bytes below a path.
fn amount(at: &Path) -> (u64, u64) {
    let Ok(meta) = fs::symlink_metadata(at) else { return (0, 0) };
    if !meta.is_dir() {
        return (1, meta.len());
    }
    let all = fs::read_dir(at).into_iter().flatten().flatten().map(|entry| amount(&entry.path()));
    all.fold((1, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// The same names with the same bytes.
#[track_caller]
fn assert_same(there: &Path, tree: &Path, what: &str) {
    let names = |dir: &Path| {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap_or_else(|e| panic!("{what}: {}: {e}", dir.display()))
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(there), names(tree), "{what}: {}", there.display());
    for name in names(tree) {
        let (there, one) = (there.join(&name), tree.join(&name));
        if one.is_dir() {
            assert_same(&there, &one, what);
            continue;
        }
        let (got, wanted) = (fs::read(&there).expect("a file"), fs::read(&one).expect("a file"));
        let at = got.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
        let lens = (got.len(), wanted.len());
        assert!(got == wanted, "{what}: {}: other bytes from {at} on, of {lens:?}", there.display());
    }
}

/// One command under restarts; how many there were while it ran.
fn under_restarts(rig: &mut Rig, what: What, version: &str, size: &Size, dice: &mut Dice) -> usize {
    let shown = format!("{what:?} {version}");
    let (tree, archive, out) = (rig.local("tree"), rig.local("tree.tar"), rig.local("out"));
    let (there, beside) = (rig.volume.join("d/tree"), rig.volume.join("d/beside"));
    let _ = (fs::remove_dir_all(&out), fs::remove_dir_all(&beside));
    // Behind the server's back; a moment later it knows.
    let seeds = matches!(what, What::Down | What::Beside | What::Tar | What::Remove);
    if seeds && !there.exists() {
        let url = rig.url("d", version);
        let made = common::run(&["cp", "-r", path(&tree), &url]);
        assert!(made.status.success(), "{}", common::stderr(&made));
    }
    if !seeds {
        let gone = common::run(&["rm", "-rf", &rig.url("d/tree", version)]);
        assert!(gone.status.success(), "{}", common::stderr(&gone));
    }
    let (d, t, b) = (rig.url("d", version), rig.url("d/tree", version), rig.url("d/beside", version));
    let made = rig.local("made.tar");
    let (args, to): (Vec<&str>, &Path) = match what {
        What::Untar => (vec!["untar", path(&archive), &d], &there),
        What::Up => (vec!["cp", "-r", path(&tree), &d], &there),
        What::Down => (vec!["cp", "-r", &t, path(&out)], &out),
        What::Beside => (vec!["cp", "-r", &t, &b], &beside),
        What::Tar => (vec!["tar", "-cf", path(&made), &t], &made),
        What::Sync => (vec!["sync-tree", path(&tree), &t], &there),
        What::Remove => (vec!["rm", "-r", &t], &there),
    };
    let _ = fs::remove_file(&made);
    let (objects, bytes) = amount(&tree);
    let done = || match (what, amount(to)) {
        (What::Remove, (left, _)) => (objects - left.min(objects)) * 1000 / objects,
        (_, (_, there)) => there * 1000 / bytes,
    };
    let mut moments: Vec<u64> = (0..size.restarts).map(|_| dice.below(1000)).collect();
    moments.sort_unstable();
    let mut command = landfast();
    command.args(&args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("landfast starts");
    let mut stderr = child.stderr.take().expect("a pipe");
    let words = std::thread::spawn(move || {
        let mut words = String::new();
        stderr.read_to_string(&mut words).map(|_| words)
    });
    let mut restarts = 0;
    // From the first moment on at which there is something to lose.
    for moment in moments {
        while done() <= moment && child.try_wait().expect("it is there").is_none() {
            std::thread::sleep(LOOK_EACH);
        }
        if child.try_wait().expect("it is there").is_some() {
            break;
        }
        rig.restart(dice.below(3) > 0);
        restarts += 1;
    }
    let begin = Instant::now();
    let status = child.wait().expect("it ends");
    let words = words.join().expect("a thread").expect("its standard error");
    assert!(status.success(), "{shown}: {status:?} after {restarts} restarts: {words}");
    println!("{shown}: {restarts} restarts, {:.2} s from the last one on", begin.elapsed().as_secs_f64());
    assert!(size.restarts > 3 || begin.elapsed() < STALL_MAX, "{shown}: {:?}: {words}", begin.elapsed());
    match what {
        What::Untar | What::Up | What::Sync => assert_same(&there, &tree, &shown),
        What::Down => assert_same(&out, &tree, &shown),
        What::Beside => assert_same(&beside, &tree, &shown),
        What::Tar => {
            let unpacked = rig.local("unpacked");
            let _ = fs::remove_dir_all(&unpacked);
            tar::Archive::new(fs::File::open(&made).expect("an archive"))
                .unpack(&unpacked)
                .expect("an archive");
            // GNU's tar, and so ours, keeps the path that was asked for.
            let at = amount(&unpacked.join("tree")).0.min(1);
            assert_same(
                &if at == 1 { unpacked.join("tree") } else { unpacked.join("d/tree") },
                &tree,
                &shown,
            );
        }
        What::Remove => assert!(!there.exists(), "{shown}"),
    }
    restarts
}

fn all_under_restarts(version: &str, all: &[What], size: &Size) {
    let (mut rig, mut dice) = (Rig::new(), Dice::new());
    let root = rig.local("tree");
    tree(&root, size);
    let mut archive = tar::Builder::new(fs::File::create(rig.local("tree.tar")).expect("a file"));
    archive.append_dir_all("tree", &root).and_then(|()| archive.finish()).expect("an archive");
    let mut restarts = 0;
    for what in all {
        restarts += under_restarts(&mut rig, *what, version, size, &mut dice);
    }
    // How far each command is when it is looked at is not for the test to say.
    assert!(restarts > 0, "all was done before the first of them");
}

/// Files of a byte to some MiB.
fn short() -> Size {
    Size { small: 300, large: vec![300_000, 1 << 20, 3_000_001, 8 << 20, 6_500_000], restarts: 2 }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn version_4_2_survives_restarts() {
    all_under_restarts("4.2", &WHAT, &short());
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn version_4_1_survives_restarts() {
    all_under_restarts("4.1", &[What::Untar, What::Up, What::Down], &short());
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn version_4_0_survives_restarts() {
    all_under_restarts("4.0", &[What::Up, What::Down, What::Untar], &short());
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn version_3_survives_restarts() {
    all_under_restarts("3", &[What::Down, What::Untar, What::Up], &short());
}

#[test]
#[ignore = "takes many minutes"]
fn every_command_in_each_version_survives_many_restarts() {
    let large = [1, 1, 2, 3, 5, 8, 12, 12, 12, 20, 40, 100].map(|mib| (mib << 20) + 77).to_vec();
    for version in VERSIONS {
        all_under_restarts(version, &WHAT, &Size { small: 2000, large: large.clone(), restarts: 20 });
    }
}

/// A command that has begun with the first part of an archive and waits for the rest.
struct Waiting {
    child: Child,
    stderr: BufReader<ChildStderr>,
    rest: Vec<u8>,
}

impl Waiting {
    fn new(rig: &Rig, version: &str, args: &[&str]) -> Waiting {
        let size = Size { small: 200, large: vec![5 << 20], restarts: 0 };
        let root = rig.local("tree");
        if !root.exists() {
            tree(&root, &size);
        }
        let mut archive = tar::Builder::new(Vec::new());
        for n in 0..size.small {
            let name = format!("s{}/f{n}", n % 10);
            archive.append_path_with_name(root.join(&name), format!("tree/{name}")).expect("memory");
        }
        archive.append_path_with_name(root.join("l0"), "tree/l0").expect("memory");
        let mut first = archive.into_inner().expect("memory");
        let rest = first.split_off(1 << 20);
        let url = rig.url("d", version);
        let mut command = landfast();
        command.arg("untar").args(args).args(["-", &url]).stdin(Stdio::piped());
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("landfast starts");
        child.stdin.as_mut().expect("a pipe").write_all(&first).expect("it reads");
        let there = rig.volume.join("d/tree/s9");
        while !there.exists() {
            assert!(child.try_wait().expect("it is there").is_none(), "it ended");
            std::thread::sleep(LOOK_EACH);
        }
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        Waiting { child, stderr, rest }
    }

    /// The rest of the archive comes, whether it is read or not.
    fn go_on(&mut self) {
        let (mut stdin, rest) = (self.child.stdin.take().expect("a pipe"), std::mem::take(&mut self.rest));
        // The command may end before.
        std::thread::spawn(move || drop(stdin.write_all(&rest)));
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).expect("its standard error");
        line.trim_end().to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// What else it says, and how it ends.
    fn end(mut self) -> (ExitStatus, String) {
        let mut words = String::new();
        self.stderr.read_to_string(&mut words).expect("its standard error");
        (self.child.wait().expect("it ends"), words)
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_server_that_stands_still_is_told_once_and_so_is_its_answer() {
    for version in ["4.1", "3"] {
        let rig = Rig::new();
        let name = rig.server.address().to_owned();
        let mut waiting = Waiting::new(&rig, version, &[]);
        rig.server.signal(Signal::STOP);
        let begin = Instant::now();
        waiting.go_on();
        assert_eq!(waiting.line(), format!("landfast: server {name} not responding, still trying"));
        let silent = begin.elapsed();
        assert!(silent >= Duration::from_secs(3) && silent < Duration::from_secs(20), "{silent:?}");
        rig.server.signal(Signal::CONT);
        assert_eq!(waiting.line(), format!("landfast: server {name} OK"));
        let (status, words) = waiting.end();
        assert!(status.success() && words.is_empty(), "{version}: {status:?}: {words}");
        assert_same(&rig.volume.join("d/tree"), &rig.local("tree"), version);
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_signal_ends_a_command_whose_server_is_dead() {
    for (version, signal) in [("4.2", Signal::TERM), ("3", Signal::INT)] {
        let mut rig = Rig::new();
        let mut waiting = Waiting::new(&rig, version, &[]);
        let address = rig.server.address().to_owned();
        rig.server.kill();
        waiting.go_on();
        assert_eq!(waiting.line(), format!("landfast: server {address} not responding, still trying"));
        let begin = Instant::now();
        waiting.signal(signal);
        let (status, words) = waiting.end();
        assert_eq!(status.code(), Some(130), "{words}");
        assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
        let why = format!("interrupted, and server {address} does not respond");
        common::one_line_with(&words, &[&why, "may or may not have been executed"]);
    }
}

/// The first signal says what is waited for, the second one waits for nothing.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_second_signal_ends_a_command_at_once() {
    let rig = Rig::new();
    let mut waiting = Waiting::new(&rig, "4.2", &[]);
    rig.server.signal(Signal::STOP);
    waiting.go_on();
    waiting.signal(Signal::INT);
    assert_eq!(
        waiting.line(),
        "landfast: interrupted: waiting for requests in flight; interrupt again to exit at once"
    );
    waiting.signal(Signal::INT);
    let (status, words) = waiting.end();
    assert_eq!(status.code(), Some(130), "{words}");
    common::one_line_with(&words, &["interrupted again", "may or may not have been executed"]);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_timeout_gives_up_a_server() {
    let mut rig = Rig::new();
    let address = rig.server.address().to_owned();
    let given_up = format!("landfast: server {address} has not replied for 0.5 s: giving up");
    let mut waiting = Waiting::new(&rig, "4.2", &["--timeout", "500ms"]);
    rig.server.signal(Signal::STOP);
    waiting.go_on();
    let (status, words) = waiting.end();
    assert_eq!(status.code(), Some(1), "{words}");
    common::one_line_with(&words, &[&given_up]);
    for version in ["4.2", "4.0", "3"] {
        let url = rig.url("d", version);
        let here = rig.local("here");
        for command in [
            &["ls", "--timeout=500ms", &url][..],
            &["rm", "-r", "--timeout", "500ms", &url],
            &["cp", "-r", "--timeout", "500ms", &url, path(&here)],
            &["find", &url, "--timeout", "500ms", "-name", "x"],
            &["tar", "-c", "--timeout", "500ms", "-f", "-", &url],
        ] {
            let ended = common::run(command);
            assert_eq!(ended.status.code(), Some(1), "{command:?}: {}", common::stderr(&ended));
            common::one_line_with(&common::stderr(&ended), &[&given_up]);
        }
    }
    for command in [&["ls", "--timeout", "0s", "nfs://h/"][..], &["find", "nfs://h/", "--timeout"]] {
        let refused = common::run(command);
        assert!(!refused.status.success() && !common::stderr(&refused).is_empty(), "{command:?}");
    }
    // One that is not there at all is tried no longer than that.
    rig.server.kill();
    let begin = Instant::now();
    let refused = common::run(&["ls", "--timeout", "100ms", &rig.url("d", "4.2")]);
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    common::one_line_with(&common::stderr(&refused), &["cannot connect", "refused"]);
}

/// A command that starts while its server is being started again waits for it, and says so within a second.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_first_connection_that_is_refused_is_tried_again() {
    let mut rig = Rig::new();
    let (here, address) = (rig.local("here"), rig.server.address().to_owned());
    fs::write(&here, "data").expect("a file");
    let url = |version| rig.url("d", version);
    let urls = VERSIONS.map(|version| (version, url(version)));
    for (version, url) in &urls {
        rig.server.kill();
        let copy = rig.url(&format!("d/copy{version}"), version);
        let mut cp = landfast();
        cp.args(["cp", path(&here), &copy]).stderr(Stdio::piped());
        let mut ls = landfast();
        ls.args(["ls", url]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let begin = Instant::now();
        let mut both = [&mut cp, &mut ls].map(|command| command.spawn().expect("landfast starts"));
        let mut says = both.each_mut().map(|one| BufReader::new(one.stderr.take().expect("a pipe")));
        let refuses = format!("landfast: server {address} refuses connections, trying again for 5 s\n");
        for words in &mut says {
            let mut line = String::new();
            words.read_line(&mut line).expect("its standard error");
            assert_eq!(line, refuses, "{version}");
        }
        assert!(begin.elapsed() < Duration::from_secs(1), "{version}: {:?}", begin.elapsed());
        rig.server.resume(&rig.volume, &rig.log);
        for (mut one, mut words) in both.into_iter().zip(says) {
            let mut rest = String::new();
            words.read_to_string(&mut rest).expect("its standard error");
            assert!(one.wait().expect("it ends").success(), "{version}: {rest}");
            assert_eq!(rest, format!("landfast: server {address} OK\n"), "{version}");
        }
        assert_eq!(fs::read(rig.volume.join(format!("d/copy{version}"))).expect("a file"), b"data");
    }
}

/// Where nobody listens that is an error after the limit, which names what was tried; a signal ends it before.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_server_that_is_not_there_is_an_error_soon() {
    let mut rig = Rig::new();
    let (url, address) = (rig.url("d", "4.2"), rig.server.address().to_owned());
    rig.server.kill();
    let begin = Instant::now();
    let refused = common::run(&["ls", &url]);
    let (took, words) = (begin.elapsed(), common::stderr(&refused));
    assert_eq!(refused.status.code(), Some(2), "{words}");
    assert!(took > Duration::from_secs(4) && took < Duration::from_secs(10), "{took:?}");
    let lines: Vec<&str> = words.lines().collect();
    assert_eq!(lines.len(), 2, "{words}");
    assert_eq!(lines[0], format!("landfast: server {address} refuses connections, trying again for 5 s"));
    assert!(lines[1].contains("Connection refused") && lines[1].contains("in each try of "), "{words}");
    for (command, signal) in
        [("ls", Signal::INT), ("find", Signal::TERM), ("rm", Signal::INT), ("du", Signal::TERM)]
    {
        // A shell starts what it runs in the background with SIGINT ignored, and these tests with it.
        let mut child = Command::new("env");
        child.args(["--default-signal=INT", env!("CARGO_BIN_EXE_landfast"), command, &url]);
        let mut child = child.stderr(Stdio::piped()).spawn().expect("landfast starts");
        let mut words = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        words.read_line(&mut line).expect("its standard error");
        assert!(line.contains("refuses connections"), "{command}: {line}");
        let begin = Instant::now();
        kill_process(Pid::from_child(&child), signal).expect("it is there");
        let status = child.wait().expect("it ends");
        assert!(!status.success() && begin.elapsed() < Duration::from_secs(1), "{command}: {status:?}");
    }
}

/// A server that goes down between the first connection and the session is waited for as at any other time: nothing is said of it
/// when it does not last.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_connection_that_ends_while_the_session_is_made_is_no_news() {
    let rig = Rig::new();
    for (version, ends) in [("4.2", 1), ("4.1", 2), ("4.0", 1), ("3", 1)] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (port, server) = (listener.local_addr().expect("an address"), rig.server.address().to_owned());
        std::thread::spawn(move || {
            for (n, from) in listener.incoming().map_while(Result::ok).enumerate() {
                if n < ends {
                    // Whatever it asks first is lost.
                    let _ = (&from).read(&mut [0; 64]);
                    continue;
                }
                let to = TcpStream::connect(&server).expect("the server");
                for (mut from, mut to) in [(&from, &to), (&to, &from)].map(|(a, b)| (again(a), again(b))) {
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(std::net::Shutdown::Write);
                    });
                }
            }
        });
        let url = rig.url("d", version).replace(rig.server.address(), &port.to_string());
        let listed = common::run(&["ls", &url]);
        assert!(listed.status.success(), "{version}: {}", common::stderr(&listed));
        assert_eq!(common::stderr(&listed), "", "{version}");
    }
}

fn again(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a descriptor")
}
