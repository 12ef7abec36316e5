//! `--resume`: the client dies, and the same command goes on.

use super::copying::{local, picture};
use super::gate::{Gate, NOTED_WITHIN};
use super::trees::shell_in;
use super::*;
use std::collections::BTreeSet;
use std::io::Write;
use std::ops::Range;
use std::process::Child;
use std::time::{Duration, Instant};
use tar::EntryType;

/// Files in each directory of the tree that is made.
const FILES: usize = 100;
/// Directories of one that takes some time.
const DIRS: usize = 16;

/// Bytes between a client and the server: far fewer than all of such a tree takes.
const SOME: usize = 64 << 10;

/// What is in a tree that is no directory: files, beside each directory's hard link and symbolic link, and the large one.
const fn objects(dirs: usize) -> u64 {
    (dirs * (FILES + 2) + 1) as u64
}

/// A tree `name` as an archive. Its directories may not be written to.
fn archived(name: &str, dirs: usize) -> Vec<u8> {
    let mut all = tar::Builder::new(Vec::new());
    let mut add = |path: String, kind: EntryType, mode: u32, link: &str, data: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(1_000_000_000 + data.len() as u64);
        header.set_size(data.len() as u64);
        if link.is_empty() {
            all.append_data(&mut header, path, data).expect("memory");
        } else {
            all.append_link(&mut header, path, link).expect("memory");
        }
    };
    add(name.to_owned(), EntryType::Directory, 0o555, "", b"");
    for d in 0..dirs {
        let sub = format!("{name}/d{d}");
        add(sub.clone(), EntryType::Directory, 0o555, "", b"");
        add(format!("{sub}/e"), EntryType::Directory, 0o2500, "", b"");
        for f in 0..FILES {
            let mode = [0o644, 0o4751, 0o400][f % 3];
            let data = format!("{name} {d} {f}\n");
            add(format!("{sub}/e/f{f}"), EntryType::Regular, mode, "", data.as_bytes());
        }
        add(format!("{sub}/h"), EntryType::Link, 0o644, &format!("{sub}/e/f3"), b"");
        add(format!("{sub}/s"), EntryType::Symlink, 0o777, "e/f4", b"");
    }
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    add(format!("{name}/large"), EntryType::Regular, 0o640, "", &large);
    all.into_inner().expect("memory")
}

/// The same as a file in `dir`.
fn tree(dir: &Path, name: &str, dirs: usize) -> PathBuf {
    let archive = dir.join(format!("{name}.tar"));
    fs::write(&archive, archived(name, dirs)).expect("an archive");
    archive
}

/// A command on its way.
struct Running {
    child: Child,
    journal: PathBuf,
}

impl Running {
    fn start(args: &[&str], journal: &Path, stdin: Stdio) -> Running {
        let mut command = landfast();
        command.args(args).args(["--resume", path(journal)]).stdin(stdin);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("landfast starts");
        Running { child, journal: journal.to_owned() }
    }

    /// Waits until the journal tells of so much ([`noted`]).
    fn until(&mut self, much: u64, gate: Option<&Gate>) {
        let begun = Instant::now();
        let mut busy = begun;
        loop {
            if !self.rests() {
                busy = Instant::now();
            }
            let now = noted(&self.journal);
            if now >= much {
                return;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "the journal has {now} and does not grow to {much}"
            );
            if let Some(status) = self.child.try_wait().expect("a child") {
                let mut errors = String::new();
                let mut stderr = self.child.stderr.take().expect("a pipe");
                std::io::Read::read_to_string(&mut stderr, &mut errors).expect("words");
                panic!("it has ended with {status} and {now} in its journal: {errors}");
            }
            if let Some(gate) = gate
                && busy.elapsed() > NOTED_WITHIN
            {
                gate.allow_more_if_used_up(SOME);
            }
            // Not to take the time of those who work.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether all of its threads wait for something that is neither a processor nor a disk.
    fn rests(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten().flatten();
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok()).all(|stat| {
            // Behind its name, which may have anything in it.
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
        })
    }

    /// Kills it when the journal tells of so much.
    fn kill_at(mut self, much: u64, gate: Option<&Gate>) {
        self.until(much, gate);
        self.child.kill().expect("it is there");
        self.child.wait().expect("it ends");
    }
}

/// Of how many objects a journal tells that they are done or gone, and operands that their removal was begun; directories,
/// among members those of [`archived`], are left out.
fn noted(journal: &Path) -> u64 {
    let text = fs::read_to_string(journal).unwrap_or_default();
    // The last one may be on its way.
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let records = whole.map(|line| {
        let json = line.splitn(4, ' ').nth(3).unwrap_or_default();
        serde_json::from_str::<serde_json::Value>(json).expect("a record")
    });
    let file = |number: &u64| *number > 0 && !(1..=2).contains(&(number % (FILES as u64 + 4)));
    let (mut others, mut objects, mut dirs) = (0, BTreeSet::new(), BTreeSet::new());
    for record in records {
        let done = &record["done"];
        let words = |what: &str| -> Vec<String> {
            done[what].as_str().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
        };
        let range = |r: &serde_json::Value| r[0].as_u64().unwrap_or(0)..r[1].as_u64().unwrap_or(0);
        let members = done["members"].as_array().into_iter().flatten().flat_map(range);
        let begun = done["begun"].as_array().map_or(0, Vec::len);
        others += (members.filter(file).count() + begun) as u64 + done["removed"].as_u64().unwrap_or(0);
        objects.extend(words("objects").iter().filter_map(|pair| Some(pair.split_once('.')?.0.to_owned())));
        dirs.extend(words("made").into_iter().chain(words("met")));
    }
    others + objects.difference(&dirs).count() as u64
}

/// What a command with a journal says.
fn goes_on(args: &[&str], journal: &Path) -> Said {
    said(landfast().args(args).args(["--resume", path(journal)]))
}

/// The report of `untar --json`.
fn report(said: &Said) -> serde_json::Value {
    serde_json::from_str(&said.text()).unwrap_or_else(|e| panic!("{e}: {said:?}"))
}

/// The archive is what is at `url`.
#[track_caller]
fn is_there(archive: &Path, url: &str) {
    let end = said(landfast().args(["diff-tree", path(archive), url]));
    assert_eq!((end.code, end.text().as_str(), end.errors().as_str()), (Some(0), "", ""));
}

/// Members that are no directories.
fn extracted(report: &serde_json::Value) -> u64 {
    ["files", "symlinks", "hard_links"].iter().map(|what| report[what].as_u64().expect("a number")).sum()
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_archive_goes_on_after_each_of_several_kills() {
    let rig = Rig::new();
    let local = local(&rig);
    let plain = tree(&local, "t", DIRS);
    shell_in(&local, "gzip -1k t.tar");
    rig.shell("mkdir plain gz");
    let gate = Gate::new(rig.server.address());
    for (name, archive, version) in [("plain", plain.clone(), "4.2"), ("gz", local.join("t.tar.gz"), "3")] {
        let (url, journal) = (gate.url(&rig.url(name, version)), local.join(format!("{name}.journal")));
        let args = ["untar", path(&archive), &url];
        // The second one while it looks at what is there, the third when it has gone on.
        for more in [1, 0, 1] {
            gate.allow(SOME);
            Running::start(&args, &journal, Stdio::null()).kill_at(noted(&journal) + more, Some(&gate));
        }
        gate.allow(usize::MAX);
        let end = goes_on(&["untar", "--json", path(&archive), &url], &journal);
        assert_eq!(end.code, Some(0), "{end:?}");
        let report = report(&end);
        let resumed = report["resumed"].as_u64().expect("a number");
        assert!(resumed > 0, "{report}");
        assert_eq!(extracted(&report) + resumed, objects(DIRS), "{report}");
        is_there(&archive, &url);
        let again = goes_on(&args, &journal);
        assert_eq!(again.code, Some(0), "{again:?}");
        assert!(again.text().starts_with("nothing to do: "), "{again:?}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_is_done_is_not_sent_again_and_what_is_lost_is() {
    let rig = Rig::new();
    let local = local(&rig);
    let archive = tree(&local, "t", 12);
    // Somebody who is not root: directories that may not be written to have to be opened again before they are filled.
    rig.shell("mkdir own; chown 1000:1000 own");
    let url = rig.url("own", "4.2");
    let own = format!("{url}&uid=1000&gid=1000");
    let journal = local.join("j");
    let args = ["untar", "--json", "-p", path(&archive), &own];
    let is_there = || {
        let end = said(landfast().args(["diff-tree", "--ignore=owner,group", path(&archive), &url]));
        assert_eq!((end.code, end.text().as_str(), end.errors().as_str()), (Some(0), "", ""));
    };
    let end = goes_on(&args, &journal);
    assert_eq!(end.code, Some(0), "{end:?}");
    let whole = report(&end);
    // All but the end of the journal.
    let text = fs::read_to_string(&journal).expect("a journal");
    let unfinished = &text[..text.trim_end().rfind('\n').expect("lines") + 1];
    fs::write(&journal, unfinished).expect("a journal");
    let again = report(&goes_on(&args, &journal));
    assert_eq!((extracted(&again), again["resumed"].as_u64()), (0, Some(objects(12))), "{again}");
    assert_eq!((again["files"].as_u64(), again["bytes"].as_u64()), (Some(0), Some(0)), "{again}");
    let rpcs = |report: &serde_json::Value| report["rpcs"].as_u64().expect("a number");
    assert!(rpcs(&again) < rpcs(&whole), "{} RPCs, and {}", rpcs(&whole), rpcs(&again));
    is_there();
    // What somebody has removed, or emptied, since then is not there any more, whatever the journal says.
    fs::write(&journal, unfinished).expect("a journal");
    let gone = ["t/d0/e/f0", "t/d1/s", "t/d2/h", "t/d3", "t/large"]
        .map(|name| rig.url(&format!("own/{name}"), "4.2"));
    let removed = said(landfast().args(["rm", "-rf"]).args(&gone));
    assert_eq!(removed.code, Some(0), "{removed:?}");
    let empty = local.join("empty");
    fs::write(&empty, "").expect("a file");
    let emptied = said(landfast().args(["cp", path(&empty), &rig.url("own/t/d4/e/f0", "4.2")]));
    assert_eq!(emptied.code, Some(0), "{emptied:?}");
    let third = report(&goes_on(&args, &journal));
    // A hard link follows the file that it is to only if that is made anew: here f3 of d3 is.
    assert_eq!(extracted(&third), 5 + FILES as u64 + 2, "{third}");
    is_there();
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_server_restarts_between_and_loses_nothing() {
    let mut rig = Rig::new();
    let local = local(&rig);
    let archive = tree(&local, "t", DIRS);
    let gate = Gate::new(rig.server.address());
    let (url, journal) = (gate.url(&rig.url("", "4.0")), local.join("j"));
    let args = ["untar", path(&archive), &url];
    gate.allow(SOME);
    Running::start(&args, &journal, Stdio::null()).kill_at(1, Some(&gate));
    gate.allow(usize::MAX);
    let (volume, log) = (rig.at(""), rig.dir.path().join("log"));
    rig.server.again(&volume, &log);
    let end = goes_on(&["untar", "--json", path(&archive), &url], &journal);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(report(&end)["resumed"].as_u64() > Some(0), "{end:?}");
    is_there(&archive, &url);
}

/// Puts so many bytes of the archive into a command, which then waits for more.
fn feed(running: &mut Running, archive: &[u8], bytes: Range<usize>) {
    let stdin = running.child.stdin.as_mut().expect("a pipe");
    stdin.write_all(&archive[bytes]).expect("it reads");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_stream_goes_on_when_the_same_bytes_come_and_no_other() {
    let rig = Rig::new();
    let local = local(&rig);
    let (archive, other) = (tree(&local, "t", 12), tree(&local, "u", 1));
    let bytes = fs::read(&archive).expect("an archive");
    let (url, journal) = (rig.url("", "4.2"), local.join("j"));
    let args = ["untar", "-", &url];
    let mut first = Running::start(&args, &journal, Stdio::piped());
    // At least two batches.
    feed(&mut first, &bytes, 0..bytes.len() / 12);
    first.until(1, None);
    feed(&mut first, &bytes, bytes.len() / 12..bytes.len() / 6);
    first.kill_at(noted(&journal) + 1, None);
    let with = |archive: &Path| {
        let file = fs::File::open(archive).expect("an archive");
        let mut command = landfast();
        command.args(["untar", "--json", "-", &url, "--resume", path(&journal)]).stdin(file);
        let end = command.output().expect("it runs");
        Said { out: end.stdout, err: end.stderr, code: end.status.code() }
    };
    // Another archive; one that is another one later on, in what was done; one that is too short.
    let later = local.join("later.tar");
    let mut changed = bytes.clone();
    // The data of some file, so that the archive is a whole one.
    let at = 16 << 10;
    let header = bytes[..at].windows(8).rposition(|w| w == b"ustar\x0000").expect("a header") - 257;
    let data = (header..).step_by(512).find(|at| bytes[*at..].starts_with(b"t ")).expect("data");
    changed[data + 2] ^= 1;
    fs::write(&later, &changed).expect("an archive");
    let short = local.join("short.tar");
    fs::write(&short, [&bytes[..1024], &[0; 1024]].concat()).expect("an archive");
    let mut before = None;
    for wrong in [&other, &later, &short, &other] {
        let end = with(wrong);
        assert_eq!(end.code, Some(2), "{}: {end:?}", wrong.display());
        assert!(end.errors().contains("not the archive that the journal is of"), "{end:?}");
        // What was on its way to the server when the first client died may have come there until now.
        let now = picture(&rig.at(""), true);
        assert!(!rig.at("u").exists() && *before.get_or_insert(now.clone()) == now, "{}", wrong.display());
    }
    let mut second = Running::start(&args, &journal, Stdio::piped());
    let had = noted(&journal);
    feed(&mut second, &bytes, 0..bytes.len() / 4);
    second.kill_at(had + 1, None);
    let end = with(&archive);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(report(&end)["resumed"].as_u64() > Some(0), "{end:?}");
    is_there(&archive, &url);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_torn_journal_is_gone_on_with_and_a_damaged_or_wrong_one_refused() {
    let rig = Rig::new();
    let local = local(&rig);
    shell_in(
        &local,
        "mkdir -p t/d; for f in $(seq 30); do echo $f > t/d/$f; done; tar -cf t.tar t; tar -cf u.tar t/d",
    );
    let (archive, journal) = (local.join("t.tar"), local.join("j"));
    let url = rig.url("", "4.2");
    let args = ["untar", "--json", path(&archive), &url];
    assert_eq!(goes_on(&args, &journal).code, Some(0));
    let whole = fs::read(&journal).expect("a journal");
    let end = whole[..whole.len() - 1].iter().rposition(|b| *b == b'\n').expect("lines") + 1;
    let first = whole.iter().position(|b| *b == b'\n').expect("a line") + 1;
    // Cut in the end, in what was done, and just behind the first line. At each byte: the journal's own test.
    for cut in [whole.len() - 1, end + 1, end, end - 1, (first + end) / 2, first + 1, first] {
        fs::write(&journal, &whole[..cut]).expect("a journal");
        let said = goes_on(&args, &journal);
        assert_eq!(said.code, Some(0), "{cut}: {said:?}");
        let report = report(&said);
        assert_eq!(extracted(&report) + report["resumed"].as_u64().expect("a number"), 30, "{cut}: {report}");
        is_there(&archive, &url);
    }
    let refused = |bytes: &[u8], args: &[&str], words: &str| {
        fs::write(&journal, bytes).expect("a journal");
        let said = goes_on(args, &journal);
        assert_eq!((said.code, said.text().as_str()), (Some(2), ""), "{words}: {said:?}");
        assert!(said.errors().contains(words), "{words}: {said:?}");
        assert_eq!(fs::read(&journal).expect("a journal"), bytes, "it is left as it was");
    };
    for at in [first + 30, (first + end) / 2, end - 3] {
        let mut flipped = whole.clone();
        flipped[at] ^= 4;
        // A slow run notes what it has done in several lines.
        let line = 1 + whole[..at].iter().filter(|b| **b == b'\n').count();
        refused(&flipped, &args, &format!("is damaged at line {line}"));
    }
    refused(b"a letter to my mother\n", &args, "is no journal of --resume");
    refused(&whole, &["untar", path(&local.join("u.tar")), &url], "its archive was");
    refused(&whole, &["untar", path(&archive), &rig.url("elsewhere", "4.2")], "its destination was");
    refused(&whole, &["untar", "--strip-components=1", path(&archive), &url], "its options was");
    refused(
        &whole,
        &["untar", "--keep-old-files", path(&archive), &url],
        "cannot be used with --keep-old-files",
    );
    shell_in(&local, "touch -d 2001-01-01 t.tar");
    refused(&whole, &args, "its archive's time was");
    let said = goes_on(&["rm", &url], &journal);
    assert!(said.code == Some(1) && said.errors().contains("that was `landfast untar`"), "{said:?}");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_interrupted_untar_ends_in_order_and_goes_on() {
    let rig = Rig::new();
    let local = local(&rig);
    let archive = tree(&local, "t", 12);
    let bytes = fs::read(&archive).expect("an archive");
    let (url, journal) = (rig.url("", "4.2"), local.join("j"));
    let mut first = Running::start(&["untar", "-", &url], &journal, Stdio::piped());
    // Some hundred small files.
    feed(&mut first, &bytes, 0..bytes.len() / 6);
    first.until(1, None);
    let pid = rustix::process::Pid::from_child(&first.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is there");
    // Its input does not end.
    let _stdin = first.child.stdin.take();
    let end = first.child.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&end.stderr);
    assert_eq!(end.status.code(), Some(130), "{errors}");
    assert!(errors.contains("interrupted: the rest of the archive was not started"), "{errors}");
    // All that is there is in the journal: nothing of it is made again.
    let made = names(&rig.at("t"))
        .iter()
        .filter(|n| !rig.at("t").join(n).symlink_metadata().expect("there").is_dir())
        .count();
    let file = fs::File::open(&archive).expect("an archive");
    let mut command = landfast();
    command.args(["untar", "--json", "-", &url, "--resume", path(&journal)]).stdin(file);
    let end = command.output().expect("it runs");
    let said = Said { out: end.stdout, err: end.stderr, code: end.status.code() };
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(report(&said)["resumed"].as_u64(), Some(made as u64), "{said:?}");
    is_there(&archive, &url);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn copies_go_on_in_each_direction() {
    let rig = Rig::new();
    // Not on the disk that the server has.
    let elsewhere = Path::new("/dev/shm");
    let elsewhere = if elsewhere.is_dir() { elsewhere } else { Path::new("/var/tmp") };
    let dir = tempfile::Builder::new().prefix("landfast-tools-").tempdir_in(elsewhere).expect("a directory");
    let local = dir.path().to_owned();
    tree(&local, "t", DIRS);
    shell_in(&local, "tar -xpf t.tar");
    // After a large file what is on this machine is synced, and noted.
    let archive = local.join("t.tar");
    rig.shell(&format!(
        "tar -xpf {}; truncate -s 70M t/a; touch -d 2001-09-09T01:46:40Z t; mv t from",
        path(&archive)
    ));
    let source = local.join("t");
    let gate = Gate::new(rig.server.address());
    let [from, out, across] = ["from", "out", "across"].map(|name| gate.url(&rig.url(name, "4.2")));
    for (name, source, dest, version) in [
        ("out", path(&source).to_owned(), out, "4.2"),
        ("back", from.clone(), path(&local.join("back")).to_owned(), "4.2"),
        ("across", from.clone(), across, "4.2"),
    ] {
        let journal = local.join(format!("{name}.journal"));
        // The destination does not exist: it becomes the copy itself, also when it is there the second time.
        let args = ["cp", "-a", &source, &dest];
        // What is copied to this machine is noted when it was synced: behind the large file.
        gate.allow(if name == "back" { 70 << 20 } else { SOME });
        Running::start(&args, &journal, Stdio::null()).kill_at(1, Some(&gate));
        if name != "back" {
            gate.allow(SOME);
            Running::start(&args, &journal, Stdio::null()).kill_at(noted(&journal) + 1, Some(&gate));
        }
        gate.allow(usize::MAX);
        let end = goes_on(&["cp", "-a", "--json", &source, &dest], &journal);
        assert_eq!(end.code, Some(0), "{name}: {end:?}");
        let summary = end.summary();
        let resumed = summary["resumed"].as_u64().expect("a number");
        let copied = end.text().lines().filter(|line| line.contains("\"copied\":true")).count() as u64;
        assert!(resumed > 0, "{name}: {summary}");
        // Directories that were made before are met.
        let (files, dirs) = (objects(DIRS) + u64::from(name == "back"), 1 + 2 * DIRS as u64);
        assert!((files..=files + dirs).contains(&(copied + resumed)), "{name}: {summary}");
        let made = if name == "back" { local.join(name) } else { rig.at(name) };
        if name == "back" {
            fs::remove_file(made.join("a")).expect("a file");
            let removed = said(landfast().args(["rm", &rig.url("from/a", "4.2")]));
            assert_eq!(removed.code, Some(0), "{removed:?}");
        }
        let (ours, wanted) = (picture(&made, true), picture(&local.join("t"), true));
        let differ = ours.lines().zip(wanted.lines()).find(|(a, b)| a != b);
        assert!(ours == wanted, "{name} {version}: {differ:?}");
        let again = goes_on(&args, &journal);
        assert_eq!(again.code, Some(0), "{again:?}");
        assert!(again.errors().starts_with("cp: nothing to do: "), "{again:?}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_copy_goes_on_with_what_has_changed_since() {
    let rig = Rig::new();
    let local = local(&rig);
    shell_in(
        &local,
        "mkdir -p t/d t/closed u/t/d; for f in $(seq 30); do echo $f > t/d/$f; done; ln t/d/1 t/link; echo x > t/closed/x; \
         chmod 0500 t/closed; echo other > u/t/d/7; touch -d 2001-01-01 t/d/* t/closed t/d",
    );
    let (journal, dest) = (local.join("j"), rig.url("", "4.2"));
    let (t, u) = (local.join("t"), local.join("u/t"));
    let args = ["cp", "-r", "--preserve=links,timestamps", "--json", path(&t), path(&u), &dest];
    // The second source has a file of the same name: that is refused, as by GNU's, so that the job is never whole.
    let first = goes_on(&args, &journal);
    assert!(first.code == Some(1) && first.errors().contains("will not overwrite just-created"), "{first:?}");
    let again = goes_on(&args, &journal);
    assert!(again.code == Some(1) && again.errors().contains("will not overwrite just-created"), "{again:?}");
    assert_eq!(again.summary()["resumed"], 32, "{again:?}");
    assert!(!again.text().contains("\"copied\":true"), "{again:?}");
    assert_eq!(fs::read(rig.at("t/d/7")).expect("a file"), b"7\n");
    // A changed source is copied again, with the link to it; one that is gone at the destination, too.
    shell_in(&local, "echo longer > t/d/1; echo new > t/d/31; echo 9 > t/d/8; touch -d 2001-01-01 t/d/8");
    let removed = said(landfast().args(["rm", &rig.url("t/d/2", "4.2")]));
    assert_eq!(removed.code, Some(0), "{removed:?}");
    let third = goes_on(&args, &journal);
    let copied = third.text().lines().filter(|line| line.contains("\"copied\":true")).count();
    assert_eq!((third.summary()["resumed"].as_u64(), copied), (Some(29), 4), "{third:?}");
    let meta = |name: &str| fs::symlink_metadata(rig.at(name)).expect("it is there");
    use std::os::unix::fs::MetadataExt;
    assert_eq!((meta("t/link").ino(), meta("t/link").size()), (meta("t/d/1").ino(), 7));
    assert_eq!(meta("t/closed").mode() & 0o777, 0o500);
    // What keeps existing files does not know its own.
    for keep in ["-n", "-u", "-i"] {
        let refused = goes_on(&["cp", keep, path(&t), &dest], &local.join("none"));
        assert!(
            refused.code == Some(1) && refused.errors().contains("cannot be used with -n, -u or -i"),
            "{refused:?}"
        );
        assert!(!local.join("none").exists());
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_removal_goes_on_and_takes_nothing_that_came_later() {
    let rig = Rig::new();
    let local = local(&rig);
    rig.shell("mkdir kept; for t in a b; do mkdir $t; cd $t; for d in $(seq 60); do mkdir d$d; (cd d$d; touch $(seq 150)); done; cd ..; done");
    let journal = local.join("j");
    let gate = Gate::new(rig.server.address());
    let [a, b, no, last] = ["a", "b", "nothing", "a"].map(|name| gate.url(&rig.url(name, "4.2")));
    let args = ["rm", "-r", "--json", &a, &b];
    // When its intention is on the disk, and twice when it has got further. How far is not asked: on a busy machine the journal
    // grows in large steps, and the next one may be the last.
    for _ in 0..3 {
        gate.allow(SOME);
        Running::start(&args, &journal, Stdio::null()).kill_at(noted(&journal) + 1, Some(&gate));
    }
    gate.allow(usize::MAX);
    let end = goes_on(&args, &journal);
    // On a busy machine the last step before the kill may have been all of the rest.
    let nothing_left = end.errors().contains("nothing to do") && end.errors().lines().count() == 1;
    assert!(end.code == Some(0) && (end.errors().is_empty() || nothing_left), "{end:?}");
    let (removed, resumed) = (end.summary()["removed"].as_u64(), end.summary()["resumed"].as_u64());
    let all = 2 * (1 + 60 + 60 * 150);
    assert!(resumed > Some(0) && removed.zip(resumed).is_some_and(|(a, b)| a + b <= all), "{end:?}");
    assert!(!rig.at("a").exists() && !rig.at("b").exists() && rig.at("kept").exists());
    let again = goes_on(&args, &journal);
    assert!(again.code == Some(0) && again.errors().contains("nothing to do"), "{again:?}");

    // What never was is an error each time; what was removed is none, and one of its name that came later stays.
    let make = said(landfast().args(["mkdir", &a, &b]));
    assert_eq!(make.code, Some(0), "{make:?}");
    let journal = local.join("k");
    let args = ["rm", "-r", &a, &no];
    let missing =
        format!("rm: cannot remove '{}': No such file or directory\n", no.trim_end_matches("?version=4.2"));
    for _ in 0..2 {
        let end = goes_on(&args, &journal);
        assert_eq!((end.code, end.errors()), (Some(1), missing.clone()));
    }
    let make = said(landfast().args(["mkdir", &last]));
    assert_eq!(make.code, Some(0), "{make:?}");
    let end = goes_on(&args, &journal);
    assert_eq!((end.code, end.errors()), (Some(1), missing.clone()));
    assert!(rig.at("a").exists());
    // The same when it had been begun only: the lines behind say that it was done.
    let text = fs::read_to_string(&journal).expect("a journal");
    let begun: String = text.split_inclusive('\n').take(2).collect();
    assert!(begun.contains("begun") && !begun.contains("gone"), "{begun}");
    fs::write(&journal, begun).expect("a journal");
    let end = goes_on(&args, &journal);
    assert!(
        end.code == Some(1) && end.errors().contains("it is another object than the one whose removal began"),
        "{end:?}"
    );
    assert!(rig.at("a").exists());
}
