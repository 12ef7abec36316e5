//! Every command on servers that answer what they may and nobody likes to hear.

mod lost;
mod owners;
pub mod server;

use super::copying::{local, picture};
use super::*;
use landfast_nfs::v4::{ArgOp, CompoundArgs, CompoundRes, NfsStat, OpNum, ResBody};
use landfast_xdr::Bytes;
use server::{Act, Mood, Moody, Old};
use std::collections::{BTreeMap, BTreeSet};

/// The same numbers each time.
struct Dice(u64);

impl Dice {
    /// One time in so many.
    fn one_in(&mut self, many: u64) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.is_multiple_of(many)
    }
}

/// Operations of these fail one time in so many.
struct Sometimes {
    dice: Dice,
    many: u64,
    ops: &'static [&'static [OpNum]],
    status: NfsStat,
}

impl Mood for Sometimes {
    fn act(&mut self, call: &CompoundArgs) -> Act {
        let at = call
            .ops
            .iter()
            .position(|op| self.ops.iter().any(|ops| ops.contains(&op.op())) && self.dice.one_in(self.many));
        at.map_or(Act::Pass, |at| Act::Fail(at, self.status))
    }
}

fn sometimes(status: NfsStat, many: u64, ops: &'static [&'static [OpNum]]) -> Box<dyn Mood> {
    Box::new(Sometimes { dice: Dice(0x9e37_79b9_7f4a_7c15), many, ops, status })
}

/// Anything that a closure says.
struct Says<F>(F);

impl<F: FnMut(&CompoundArgs) -> Act + Send> Mood for Says<F> {
    fn act(&mut self, call: &CompoundArgs) -> Act {
        (self.0)(call)
    }
}

fn says(act: impl FnMut(&CompoundArgs) -> Act + Send + 'static) -> Box<dyn Mood> {
    Box::new(Says(act))
}

/// So many operations are taken, the next one has this status.
fn at_most(ops: usize, status: NfsStat) -> Box<dyn Mood> {
    says(move |call| if call.ops.len() > ops { Act::Fail(ops, status) } else { Act::Pass })
}

/// More operations, or bytes of data, than it takes are refused whole.
fn refuses(too_much: impl Fn(&CompoundArgs) -> bool + Send + 'static, status: NfsStat) -> Box<dyn Mood> {
    says(move |call| if too_much(call) { Act::Fail(0, status) } else { Act::Pass })
}

/// Each read and write is of half of what was asked for.
fn halves() -> Box<dyn Mood> {
    says(|call| {
        let mut ops = call.ops.clone();
        for op in &mut ops {
            match op {
                ArgOp::Read(read) if read.count > 1 => read.count /= 2,
                ArgOp::Write(write) if write.data.len() > 1 => write.data.truncate(write.data.len() / 2),
                _ => {}
            }
        }
        if ops == call.ops { Act::Pass } else { Act::Instead(ops) }
    })
}

/// What was written and not committed was lost so many times.
struct Forgets(u32);

impl Mood for Forgets {
    fn reply(&mut self, reply: &mut CompoundRes) {
        for result in &mut reply.results {
            if let (ResBody::Commit(verifier), 1..) = (&mut result.body, self.0) {
                verifier[0] ^= 0xff;
                self.0 -= 1;
            }
        }
    }
}

/// Operations that change something.
const CHANGING: &[OpNum] = &[
    OpNum::OPEN,
    OpNum::CREATE,
    OpNum::WRITE,
    OpNum::COMMIT,
    OpNum::SETATTR,
    OpNum::LINK,
    OpNum::RENAME,
    OpNum::REMOVE,
    OpNum::COPY,
    OpNum::CLONE,
];
/// And others that work goes by.
const READING: &[OpNum] = &[
    OpNum::READ,
    OpNum::READDIR,
    OpNum::GETATTR,
    OpNum::LOOKUP,
    OpNum::PUTFH,
    OpNum::READLINK,
    OpNum::CLOSE,
];
const CHANGES: &[&[OpNum]] = &[CHANGING];
const WORK: &[&[OpNum]] = &[CHANGING, READING];

/// A tree of names of which none is part of another.
const TREE: &str = "mkdir -p t; cd t; for d in 1 2 3 4 5 6; do mkdir -p d$d/e$d; \
     for f in $(seq 101 125); do head -c $((f * d * 37 % 21000)) /dev/urandom > d$d/e$d/file$d-$f; done; \
     ln -s e$d/file$d-101 d$d/sym-$d; ln d$d/e$d/file$d-102 d$d/hard-$d; done; \
     head -c 3000000 /dev/urandom > large-1; chmod 0500 d3/e3; find . -depth -exec touch -hd 2001-09-09T01:46:40Z {} +";

/// All files hold something else, and are no names of one file.
const OLDER: &str = "for f in $(find . -type f -o -type l); do rm $f; echo older $f > $f; done";

/// What files hold and where symbolic links lead, by their names.
type Contents = BTreeMap<PathBuf, Vec<u8>>;

fn contents(dir: &Path) -> Contents {
    let held = |name: PathBuf| {
        let at = dir.join(&name);
        let data = match at.symlink_metadata().ok()?.file_type() {
            kind if kind.is_symlink() => {
                fs::read_link(&at).expect("a link").into_os_string().into_encoded_bytes()
            }
            kind if kind.is_file() => fs::read(&at).expect("a file"),
            _ => return None,
        };
        Some((name, data))
    };
    if !dir.exists() { Contents::new() } else { names(dir).into_iter().filter_map(held).collect() }
}

/// Whether a message is about this very name: not about one that only begins or ends like it, nor about what is in it.
fn is_about(words: &str, name: &str) -> bool {
    words.match_indices(name).any(|(at, _)| {
        let before = words[..at].chars().next_back();
        let behind = &words[at + name.len()..];
        // Archives have the names of directories with a slash.
        let behind = behind.strip_prefix('/').unwrap_or(behind).chars().next();
        matches!(before, None | Some('/' | ' ' | '\'')) && matches!(behind, Some(':' | '\''))
    })
}

/// With `-v`: what a command left undone was named by it, and what it did is right. `before`: what was there.
#[track_caller]
fn judge(what: &str, end: &Said, must: bool, [wanted, is]: [&Path; 2], before: &Contents) {
    let words = end.errors();
    if must || end.code == Some(0) {
        assert_eq!(end.code, Some(0), "{what}: {words}");
        let (is, wanted) = (picture(is, true), picture(wanted, true));
        let differ = is.lines().zip(wanted.lines()).find(|(a, b)| a != b);
        assert!(is == wanted, "{what}: {differ:?}\n{words}");
        return;
    }
    assert!(!words.is_empty(), "{what} says nothing and ends with {:?}", end.code);
    // What was not begun is as it was, and one line is about all of it.
    let rest = end.code == Some(NOTHING_DONE) || REST.iter().any(|line| words.contains(line));
    let there = contents(is);
    for (name, data) in contents(wanted) {
        let now = there.get(&name);
        let named = name.ancestors().map(path).filter(|n| !n.is_empty()).any(|n| is_about(&words, n));
        let right = now == Some(&data) || named || rest && now == before.get(&name);
        let length = |data: Option<&Vec<u8>>| data.map(Vec::len);
        assert!(
            right,
            "{what}: {} is not right and was not named: it has {:?} bytes, had {:?} and should have {}\n{words}",
            name.display(),
            length(now),
            length(before.get(&name)),
            data.len()
        );
    }
}

/// What commands say when they do nothing more.
const REST: [&str; 3] = [
    "the rest of the archive was not extracted: ",
    "the rest was not copied: ",
    "sync-tree: .: there is no space left on the server",
];
/// The exit status of commands that have done nothing.
const NOTHING_DONE: i32 = 2;

/// Every command, with the server in this mood; `must`: each one succeeds.
fn every_command(version: &str, must: bool, mood: impl Fn() -> Box<dyn Mood>) {
    let rig = Rig::new();
    let local = local(&rig);
    let script = format!("{TREE}\ncd ..; tar -cf t.tar t");
    super::trees::shell_in(&local, &script);
    let server = rig.server.address().to_owned();
    let moody = Moody::new(&server, mood());
    let url = |name: &str| rig.url(name, version).replacen(&server, &moody.addr, 1);
    let source = local.join("t");
    let run = |args: &[&str]| {
        moody.becomes(mood());
        said(landfast().args(args))
    };
    // What writes.
    rig.shell("mkdir a b c d");
    let none = Contents::new();
    let end = run(&["untar", "-vp", path(&local.join("t.tar")), &url("a")]);
    judge("untar", &end, must, [&source, &rig.at("a/t")], &none);
    // Over an older tree.
    rig.shell(&format!("mkdir older; cp -a {} older; cd older/t; {OLDER}", path(&source)));
    let before = contents(&rig.at("older/t"));
    let end = run(&["untar", "-vp", path(&local.join("t.tar")), &url("older")]);
    judge("untar over an older tree", &end, must, [&source, &rig.at("older/t")], &before);
    let end = run(&["cp", "-av", path(&source), &url("b")]);
    judge("cp to it", &end, must, [&source, &rig.at("b/t")], &none);
    rig.shell(&format!("cp -a {} d", path(&source)));
    let end = run(&["cp", "-av", &url("d/t"), &url("c")]);
    judge("cp on it", &end, must, [&source, &rig.at("c/t")], &none);
    let back = local.join("back");
    fs::create_dir(&back).expect("a directory");
    let end = run(&["cp", "-av", &url("d/t"), path(&back)]);
    judge("cp from it", &end, must, [&source, &back.join("t")], &none);
    rig.shell(
        "rm -rf c/t; cp -a d/t c; cd c/t; rm -r d1; echo other > d2/e2/file2-101; mkdir new; touch new/more",
    );
    let before = contents(&rig.at("c/t"));
    let end = run(&["sync-tree", "-v", "--delete", path(&source), &url("c/t")]);
    judge("sync-tree", &end, must, [&source, &rig.at("c/t")], &before);
    // What reads says the same as without a mood, or that something is missing.
    let reads: &[&[&str]] =
        &[&["ls", "-lR"], &["du", "-a"], &["find", "-type", "f"], &["stat", "-c", "%n %s"], &["tar", "-cC"]];
    for words in reads {
        let whole = |base: &str| match words {
            ["find", rest @ ..] => [&["find", base], rest].concat().iter().map(|w| (*w).to_owned()).collect(),
            ["tar", ..] => ["tar", "-c", "-C", base, "t"].map(str::to_owned).to_vec(),
            _ => [words, &[base][..]].concat().iter().map(|w| (*w).to_owned()).collect::<Vec<_>>(),
        };
        let place = if words[0] == "tar" { "d" } else { "d/t" };
        let direct = said(landfast().args(whole(&rig.url(place, version))));
        moody.becomes(mood());
        let end = said(landfast().args(whole(&url(place))));
        let out = replaced(&end.out, &moody.addr, &server);
        assert!(!must || end.code == Some(0), "{words:?}: {}", end.errors());
        assert!(end.code != Some(0) || out == direct.out, "{words:?} says other things\n{}", end.errors());
        assert!(end.code == Some(0) || !end.err.is_empty(), "{words:?} does not say why it fails");
    }
    let end = run(&["cat", &url("d/t/large-1")]);
    assert!(!must || end.code == Some(0), "cat: {}", end.errors());
    assert!(end.code != Some(0) || end.out == fs::read(source.join("large-1")).expect("a file"), "cat");
    let end = run(&["diff-tree", path(&source), &url("d/t")]);
    assert!(end.code == Some(0) || !must && end.code == Some(2), "diff-tree: {end:?}");
    // What removes.
    let end = run(&["mkdir", "-p", &url("x/y/z")]);
    assert!(if end.code == Some(0) { rig.at("x/y/z").is_dir() } else { !must }, "mkdir: {end:?}");
    let end = run(&["find", &url("c"), "-name", "file*", "-delete", "-printf", "%f\\n"]);
    let left: Vec<PathBuf> =
        names(&rig.at("c")).into_iter().filter(|name| path(name).contains("/file")).collect();
    assert!(end.code == Some(0) || !must && !end.err.is_empty(), "find -delete: {end:?}");
    assert!(end.code != Some(0) || left.is_empty(), "find -delete: {left:?}");
    let said: BTreeSet<String> = end.text().lines().map(str::to_owned).collect();
    for name in left {
        // It, or a directory that it is in, which could not be listed.
        let mut above = name.ancestors().map(|n| format!("/c/{}'", path(n)).replace("/'", "'"));
        let named = above.any(|n| end.errors().contains(&n));
        let own = name.file_name().and_then(OsStr::to_str).expect("a name");
        assert!(named && !said.contains(own), "find -delete: {}: {end:?}", name.display());
    }
    let before: BTreeSet<PathBuf> = names(&rig.at("d")).into_iter().collect();
    let end = run(&["rm", "-r", &url("d")]);
    match end.code {
        Some(0) => assert!(!rig.at("d").exists(), "rm: {end:?}"),
        _ => {
            assert!(!must && !end.err.is_empty(), "rm: {end:?}");
            let left = names(&rig.at("d"));
            assert!(left.iter().all(|name| before.contains(name)));
            // All that is left is named, or is in a directory that is.
            for name in left {
                let named = name.ancestors().any(|n| end.errors().contains(path(n)) && n != Path::new(""));
                let holds = end.errors().contains(path(&name));
                assert!(named || holds || rig.at("d").join(&name).is_dir(), "{}: {end:?}", name.display());
            }
        }
    }
}

/// Versions with these moods.
const WITH: [&str; 2] = ["4.2", "4.0"];

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_is_to_be_tried_again_is() {
    for version in WITH {
        every_command(version, true, || sometimes(NfsStat::NFS4ERR_DELAY, 120, WORK));
        every_command(version, true, || sometimes(NfsStat::NFS4ERR_GRACE, 20, &[&[OpNum::OPEN]]));
    }
    every_command("4.1", true, || sometimes(NfsStat::NFS4ERR_DELAY, 10, &[&[OpNum::SEQUENCE]]));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn fewer_operations_than_were_promised() {
    for version in WITH {
        every_command(version, true, || at_most(9, NfsStat::NFS4ERR_RESOURCE));
    }
    every_command("4.2", true, || refuses(|call| call.ops.len() > 12, NfsStat::NFS4ERR_TOO_MANY_OPS));
}

/// Nothing has told the client before that it is too many.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn fewer_operations_than_the_attributes_of_all_directories_take() {
    let rig = Rig::new();
    let local = local(&rig);
    super::trees::shell_in(&local, TREE);
    let source = local.join("t");
    for version in WITH {
        rig.shell(&format!(
            "rm -rf c; mkdir c; cp -a {} c; find c/t -type d -exec touch -d 2010-01-01 {{}} +",
            path(&source)
        ));
        let server = rig.server.address().to_owned();
        let moody = Moody::new(&server, at_most(9, NfsStat::NFS4ERR_RESOURCE));
        let to = rig.url("c/t", version).replacen(&server, &moody.addr, 1);
        let end = said(landfast().args(["sync-tree", path(&source), &to]));
        judge(&format!("sync-tree, {version}"), &end, true, [&source, &rig.at("c/t")], &Contents::new());
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn replies_that_are_too_big() {
    every_command("4.2", true, || {
        says(|call| {
            let mut bytes = 0;
            let at = call.ops.iter().position(|op| {
                bytes += match op {
                    ArgOp::Read(read) => read.count,
                    ArgOp::Readdir(readdir) => readdir.maxcount,
                    _ => 100,
                };
                bytes > 48 << 10
            });
            at.map_or(Act::Pass, |at| Act::Fail(at, NfsStat::NFS4ERR_REP_TOO_BIG))
        })
    });
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn sessions_that_are_forgotten() {
    for version in ["4.2", "4.1"] {
        every_command(version, true, || {
            let mut dice = Dice(4711);
            says(move |call| match &call.ops[0] {
                ArgOp::Sequence(sequence) if dice.one_in(15) => Act::Lose(sequence.sessionid),
                _ => Act::Pass,
            })
        });
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn connections_that_end_in_the_middle_of_a_reply() {
    for version in WITH {
        every_command(version, true, || {
            let mut dice = Dice(77);
            says(move |_| if dice.one_in(15) { Act::Cut } else { Act::Pass })
        });
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn reads_and_writes_of_half_of_it() {
    for version in WITH {
        every_command(version, true, halves);
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_was_not_committed_is_forgotten() {
    for version in WITH {
        every_command(version, true, || Box::new(Forgets(3)));
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn errors_are_told_of_each_object() {
    for version in WITH {
        for status in [NfsStat::NFS4ERR_IO, NfsStat::NFS4ERR_NOSPC, NfsStat::NFS4ERR_DQUOT] {
            every_command(version, false, || sometimes(status, 60, CHANGES));
        }
        for status in [NfsStat::NFS4ERR_STALE, NfsStat::NFS4ERR_SERVERFAULT, NfsStat::NFS4ERR_ACCESS] {
            every_command(version, false, || sometimes(status, 100, WORK));
        }
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_server_that_is_full_from_some_moment_on() {
    for version in WITH {
        every_command(version, false, || {
            let mut left = 200usize;
            says(move |call| {
                let at = call.ops.iter().position(|op| {
                    let takes = matches!(op, ArgOp::Open(_) | ArgOp::Create(_) | ArgOp::Write(_));
                    left = left.saturating_sub(usize::from(takes));
                    takes && left == 0
                });
                at.map_or(Act::Pass, |at| Act::Fail(at, NfsStat::NFS4ERR_NOSPC))
            })
        });
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn requests_that_are_too_long_are_told_or_made_shorter() {
    every_command("4.2", false, || {
        let long = |call: &CompoundArgs| {
            let data = |op: &ArgOp| if let ArgOp::Write(write) = op { write.data.len() } else { 0 };
            call.ops.iter().map(data).sum::<usize>() > 100 << 10
        };
        refuses(long, NfsStat::NFS4ERR_REQ_TOO_BIG)
    });
}

/// Calls of version 3, one time in so many.
struct OfOld {
    dice: Dice,
    many: u64,
    what: fn() -> Old,
    procedures: &'static [u32],
}

impl Mood for OfOld {
    fn procedure(&mut self, procedure: u32, _: Bytes) -> Old {
        let is = self.procedures.contains(&procedure) && self.dice.one_in(self.many);
        if is { (self.what)() } else { Old::Pass }
    }
}

fn of_old(many: u64, procedures: &'static [u32], what: fn() -> Old) -> Box<dyn Mood> {
    Box::new(OfOld { dice: Dice(0x2545_f491_4f6c_dd1d), many, what, procedures })
}

/// GETATTR, SETATTR, LOOKUP, READLINK, READ, WRITE, CREATE, MKDIR, SYMLINK, REMOVE, RMDIR, RENAME, LINK, READDIRPLUS, COMMIT.
const OLD_WORK: &[u32] = &[1, 2, 3, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 17, 21];
/// Those of them that change something.
const OLD_CHANGES: &[u32] = &[2, 7, 8, 9, 10, 12, 13, 14, 15, 21];

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn version_3_is_tried_again() {
    // JUKEBOX.
    every_command("3", true, || of_old(60, OLD_WORK, || Old::Fail(10_008)));
    every_command("3", true, || of_old(60, OLD_WORK, || Old::Cut));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn errors_of_version_3_are_told_of_each_object() {
    // IO, NOSPC, DQUOT.
    every_command("3", false, || of_old(60, OLD_CHANGES, || Old::Fail(5)));
    every_command("3", false, || of_old(60, OLD_CHANGES, || Old::Fail(28)));
    every_command("3", false, || of_old(60, OLD_CHANGES, || Old::Fail(69)));
    // STALE, ACCES, SERVERFAULT.
    every_command("3", false, || of_old(80, OLD_WORK, || Old::Fail(70)));
    every_command("3", false, || of_old(80, OLD_WORK, || Old::Fail(13)));
    every_command("3", false, || of_old(80, OLD_WORK, || Old::Fail(10_006)));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_answer_that_never_comes_is_asked_for_again() {
    let rig = Rig::new();
    let local = local(&rig);
    super::trees::shell_in(&local, &format!("{TREE}\ncd ..; tar -cf t.tar t"));
    let server = rig.server.address().to_owned();
    let mut calls = 0;
    let moody = Moody::new(
        &server,
        says(move |call| {
            calls += usize::from(call.ops.iter().any(|op| matches!(op, ArgOp::Open(_))));
            if calls == 2 { Act::Hang } else { Act::Pass }
        }),
    );
    let url = rig.url("", "4.2").replacen(&server, &moody.addr, 1);
    let end = said(landfast().args(["untar", "-p", path(&local.join("t.tar")), &url]));
    judge("untar", &end, true, [&local.join("t"), &rig.at("t")], &Contents::new());
}
