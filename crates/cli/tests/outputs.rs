//! No command panics, whatever its standard output is: closed, full, or slow and shared with somebody who made it non-blocking. A closed
//! one ends it quietly with the status of SIGPIPE, a full one with one line and a status of failure, and a slow one gets all of it.

mod common;

use common::{Serving, landfast, path, stderr};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const V3: &str = include_str!("../../trace/tests/mountstats/v3.txt");

/// What a shell would end with after SIGPIPE.
const ENDED_BY_PIPE: i32 = 141;

/// Each command, the exit status that it has when its output is full, and whether it says anything on standard output. `@` is
/// the number of its run: each works on something of its own.
fn commands(at: &str, url: &str) -> Vec<(String, i32)> {
    let mut all: Vec<(String, i32)> = [
        "--help",
        "--version",
        "serve --help",
        "lab run --list",
        "lab faults --list",
        "log create AT/new@ --size 16M",
        "log info AT/old.log",
        "log info AT/old.log --json",
        "log check AT/old.log",
        "log dump AT/old.log",
        "log dump AT/old.log --json",
        "log resize AT/resized@ --size 32M",
        "log salvage AT/old.log --to AT/saved@",
        "exports --config AT/exports.toml",
        "exports --config AT/exports.toml --json",
        "check AT/exports.toml",
        "untar AT/a.tar URLuntarred@",
        "untar -v AT/a.tar URLuntarred@",
        "untar --json AT/a.tar URLuntarred@",
        "verify write URL --journal AT/journal@ --operations 20",
        "verify check URL --journal AT/written",
        "verify check URL --journal AT/written --json",
        "trace --mountstats AT/mountstats",
        "trace --mountstats AT/mountstats --json",
        "probe URL --seconds 0.2",
        "probe URL --seconds 0.2 --json",
        "predict --rtt 1ms --persistence 4ms --files 1000",
        "predict --rtt 1ms --persistence 4ms --files 1000 --json",
    ]
    .map(|command| (command.to_owned(), 2))
    .into();
    for (command, full) in [
        ("ls -R URLmany", 2),
        ("ls --json URLmany", 2),
        ("stat URLmany/f1", 1),
        ("du -a URLmany", 1),
        ("find URLmany", 1),
        ("find URLmany -printf %p\\n", 1),
        ("cat URLlarge", 1),
        ("cp -rv URLmany AT/copy@", 1),
        ("cp -rv URLmany URLcopy@", 1),
        ("rm -rv URLremoved@", 1),
        ("rm -r --json URLalso-removed@", 1),
        ("mkdir -v URLmade@", 1),
        ("tar -c -C URL many", 2),
        ("tar -c -v -f AT/archive@ -C URL many", 2),
        ("diff-tree URLmany URLsource", 2),
        ("sync-tree -v URLmany AT/synced@", 2),
        ("sync-tree -n URLmany AT/not-there", 2),
    ] {
        all.push((command.to_owned(), full));
        // Whoever asks what it can do.
        all.push((format!("{} --help", command.split(' ').next().unwrap_or_default()), 2));
    }
    all.iter_mut().for_each(|(command, _)| *command = command.replace("AT", at).replace("URL", url));
    all
}

/// The command for its run of this number.
fn the(command: &str, run: usize) -> Command {
    let mut process = landfast();
    process.args(command.split(' ').map(|word| word.replace('@', &run.to_string()))).stdin(Stdio::null());
    process
}

fn quiet(command: &str, o: &Output) {
    let said = stderr(o);
    assert!(!said.contains("panicked") && !said.contains("roken pipe"), "{command}: {said}");
}

/// A pipe whose writing end does not block and holds little.
fn slow() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    rustix::fs::fcntl_setfl(writer.as_fd(), rustix::fs::OFlags::NONBLOCK).expect("it does not block");
    (reader, writer)
}

/// All that it says to a reader that takes it in small pieces.
fn to_a_slow_reader(command: &str, run: usize) -> (Vec<u8>, Output) {
    let (mut reader, writer) = slow();
    let child = the(command, run).stdout(writer).stderr(Stdio::piped()).spawn().expect("landfast starts");
    let taken = std::thread::spawn(move || {
        let (mut all, mut piece) = (Vec::new(), [0; 512]);
        while let Ok(n @ 1..) = reader.read(&mut piece) {
            all.extend_from_slice(&piece[..n]);
        }
        all
    });
    let o = child.wait_with_output().expect("it ends");
    (taken.join().expect("the reader"), o)
}

fn shell(script: &str, dir: &Path) {
    let done = Command::new("bash").args(["-ec", script]).current_dir(dir).status().expect("a shell");
    assert!(done.success(), "{script}");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn no_command_panics_whatever_its_output_is() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let at = path(dir.path());
    shell(
        "mkdir -p volume/many exported
        for i in $(seq 500); do echo $i > volume/many/f$i; done
        tar -cf a.tar -C volume many
        mkdir volume/source
        head -c 1000000 /dev/zero > volume/large
        for i in 0 1 2 3; do
            mkdir volume/untarred$i
            cp -r volume/many volume/removed$i
            cp -r volume/many volume/also-removed$i
        done",
        dir.path(),
    );
    let exports = format!(
        "[[export]]\npath = \"{at}/exported\"\nname = \"/e\"\ndurability = \"sync\"\nclients = [{{ from = \"127.0.0.1\" }}]\n"
    );
    fs::write(dir.path().join("exports.toml"), exports).expect("a file");
    fs::write(dir.path().join("mountstats"), V3).expect("a file");
    for i in 0..4 {
        let made = the(&format!("log create {at}/resized@ --size 16M"), i).output().expect("landfast runs");
        assert!(made.status.success(), "{}", stderr(&made));
    }
    // A log of a server that was killed has something in it.
    let (volume, log) = (dir.path().join("volume"), dir.path().join("log"));
    let server = Serving::start(&volume, &log);
    let made =
        the(&format!("cp -r {at}/volume/many {}logged", server.url), 0).output().expect("landfast runs");
    assert!(made.status.success(), "{}", stderr(&made));
    drop(server);
    fs::copy(&log, dir.path().join("old.log")).expect("a copy");
    let server = Serving::start(&volume, &log);
    let write =
        the(&format!("verify write {} --journal {at}/written --operations 20", server.url), 0).output();
    assert!(write.expect("landfast runs").status.success());

    for (command, full) in commands(at, &server.url) {
        let plain = the(&command, 0).output().expect("landfast runs");
        quiet(&command, &plain);
        let (plainly, says) = (plain.status.code(), !plain.stdout.is_empty());
        assert!(matches!(plainly, Some(0 | 1)), "{command}: {plainly:?} {}", stderr(&plain));

        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let o = the(&command, 1).stdout(writer).stderr(Stdio::piped()).output().expect("landfast runs");
        quiet(&command, &o);
        // What failed anyway may say so.
        let wanted = if says && plainly == Some(0) {
            vec![Some(ENDED_BY_PIPE)]
        } else {
            vec![plainly, Some(ENDED_BY_PIPE)]
        };
        assert!(wanted.contains(&o.status.code()), "{command} | true: {:?}, {}", o.status.code(), stderr(&o));

        let device = File::options().write(true).open("/dev/full").expect("/dev/full");
        let o = the(&command, 2).stdout(device).stderr(Stdio::piped()).output().expect("landfast runs");
        quiet(&command, &o);
        if says {
            assert_eq!(o.status.code(), Some(full), "{command} > /dev/full: {}", stderr(&o));
            assert_eq!(stderr(&o).matches("No space left on device").count(), 1, "{command}: {}", stderr(&o));
            assert!(!stderr(&o).contains("os error"), "{command}: {}", stderr(&o));
        }

        let (taken, o) = to_a_slow_reader(&command, 3);
        quiet(&command, &o);
        assert_eq!(o.status.code(), plainly, "{command}, slowly: {}", stderr(&o));
        // What is measured is another time another.
        let lines = |bytes: &[u8]| bytes.iter().filter(|b| **b == b'\n').count();
        assert!(
            command.starts_with("probe") || lines(&taken) == lines(&plain.stdout),
            "{command}, slowly: {} of {} lines",
            lines(&taken),
            lines(&plain.stdout)
        );
    }
    // What changes something has done all of it, whoever reads.
    for i in 0..4 {
        let files =
            |name: &str| fs::read_dir(dir.path().join(format!("{name}{i}"))).map_or(0, Iterator::count);
        assert_eq!(files("copy"), 500, "copy {i}");
        assert_eq!(files("synced"), 500, "synced {i}");
        assert_eq!(files("volume/copy"), 500, "copy {i} there");
        assert_eq!(files("volume/untarred"), 1, "untarred {i}");
        assert!(!volume.join(format!("removed{i}")).exists(), "removed {i}");
    }
}

/// `serve 2>&1 | head -1`: it serves on.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_server_whose_messages_nobody_reads_serves_on() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let volume = dir.path().join("volume");
    fs::create_dir(&volume).expect("a directory");
    let mut server = landfast()
        .args([
            "--debug",
            "--debug",
            "--debug",
            "serve",
            path(&volume),
            "--durability",
            "sync",
            "--listen",
            "127.0.0.1:0",
        ])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("landfast starts");
    let mut words = std::io::BufReader::new(server.stderr.take().expect("a pipe"));
    let url = loop {
        let mut line = String::new();
        assert!(std::io::BufRead::read_line(&mut words, &mut line).expect("its words") > 0, "it ended");
        if let Some((_, rest)) = line.split_once("nfs://") {
            break format!("nfs://{}/", rest.split('/').next().unwrap_or_default());
        }
    };
    drop(words);
    let made: Vec<Output> = (0..8)
        .map(|n| landfast().args(["mkdir", &format!("{url}d{n}")]).output().expect("landfast runs"))
        .collect();
    let pid = rustix::process::Pid::from_child(&server);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    let ended = server.wait().expect("it ends");
    for (n, o) in made.iter().enumerate() {
        assert!(o.status.success() && volume.join(format!("d{n}")).is_dir(), "{}", stderr(o));
    }
    assert_eq!(ended.code(), Some(0));
}
