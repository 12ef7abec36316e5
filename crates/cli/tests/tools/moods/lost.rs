//! Requests whose reply is lost, that stop half way, or that are refused for their length.

use super::says;
use super::server::{Act, Mood, Moody, Old};
use crate::copying::local;
use crate::trees::shell_in;
use crate::{Rig, landfast, path, said};
use landfast_client::resume::Summary;
use landfast_nfs::v3::proc::{READ, REMOVE, WRITE};
use landfast_nfs::v4::args::{CreateType, OpenHow};
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{ArgOp, CompoundArgs, NfsStat};
use landfast_xdr::Bytes;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A URL at a server with this mood.
fn moody(rig: &Rig, name: &str, version: &str, mood: Box<dyn Mood>) -> String {
    let server = rig.server.address();
    rig.url(name, version).replacen(server, &Moody::new(server, mood).addr, 1)
}

fn makes_a_file(op: &ArgOp) -> bool {
    matches!(op, ArgOp::Open(open) if matches!(open.openhow, OpenHow::Create(_)))
}

/// Version 4.0: an OPEN is executed, its reply is lost, and it is executed again, as by Linux's server for an owner that it does not
/// know yet (RFC 7530 section 16.18.5). Version 4.2: DELAY comes behind an OPEN that was executed.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_file_that_the_same_request_made_does_not_stay_in_place_of_the_copy() {
    let rig = Rig::new();
    let local = local(&rig);
    shell_in(&local, "head -c 1000000 /dev/urandom > large");
    for (version, option) in [("4.0", "-n"), ("4.0", "-u"), ("4.2", "-n"), ("4.2", "-u")] {
        rig.shell("rm -rf to; mkdir to");
        let times = Arc::new(AtomicU32::new(0));
        let counted = times.clone();
        let mood = says(move |call| {
            let Some(at) = call.ops.iter().position(makes_a_file) else { return Act::Pass };
            match (version, counted.fetch_add(1, Ordering::SeqCst)) {
                ("4.0", 0) => Act::Cut,
                ("4.0", 1) => Act::Fail(at, NfsStat::NFS4ERR_EXIST),
                ("4.2", 0) => Act::Fail(at + 1, NfsStat::NFS4ERR_DELAY),
                _ => Act::Pass,
            }
        });
        let (from, to) = (local.join("large"), rig.at("to/large"));
        let end = said(landfast().args(["cp", option, path(&from), &moody(&rig, "to", version, mood)]));
        assert!(times.load(Ordering::SeqCst) > 1, "{version} {option}: {end:?}");
        assert_eq!(end.code, Some(0), "{version} {option}: {end:?}");
        let same = fs::read(&from).expect("a file") == fs::read(&to).expect("a file");
        assert!(same, "{version} {option}: {} bytes", to.metadata().expect("a file").len());
    }
}

/// The server restarts between a MKDIR and its reply, and has forgotten the session.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_directory_whose_reply_was_lost_gets_its_mode() {
    let rig = Rig::new();
    let local = local(&rig);
    shell_in(&local, "mkdir -p t/sub; echo 1 > t/sub/f; chmod 0555 t/sub");
    // The first MKDIR of the name, or also the one that is sent when its outcome is unknown.
    for (stage, lost) in [("packed", 1), ("by itself", 2)] {
        // What is there before the command begins keeps the first request from making all.
        rig.shell("rm -rf to; mkdir -p to/t");
        let (mut seen, mut refuses) = (HashSet::new(), lost == 2);
        let mood = says(move |call| {
            let ArgOp::Sequence(sequence) = &call.ops[0] else { return Act::Pass };
            let first = call.ops.iter().position(|op| matches!(op, ArgOp::Create(_)));
            let Some(at) = first else { return Act::Pass };
            if !matches!(&call.ops[at], ArgOp::Create(c) if c.kind == CreateType::Dir && c.name == "sub") {
                return Act::Pass;
            }
            if std::mem::take(&mut refuses) {
                return Act::Fail(at, NfsStat::NFS4ERR_SERVERFAULT);
            }
            let sent = (sequence.sessionid, sequence.slotid, sequence.sequenceid);
            match seen.len() {
                0 => {
                    seen.insert(sent);
                    Act::Cut
                }
                _ if seen.contains(&sent) => Act::Lose(sequence.sessionid),
                _ => Act::Pass,
            }
        });
        let to = moody(&rig, "to", "4.2", mood);
        let end = said(
            Command::new("sh")
                .args(["-c", "umask 022; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_landfast"), "cp", "-r"])
                .args([path(&local.join("t")), &to]),
        );
        assert_eq!((end.code, end.errors().as_str()), (Some(0), ""), "{stage}: {end:?}");
        let mode = fs::metadata(rig.at("to/t/sub")).expect("a directory").permissions().mode();
        assert_eq!(mode & 0o7777, 0o555, "{stage}");
        assert_eq!(fs::read(rig.at("to/t/sub/f")).expect("a file"), b"1\n", "{stage}");
    }
}

/// As nfs-ganesha, which decodes no more operations than this.
const DECODED_MAX: usize = 1024;

/// What keeps a client from sending before it has planned much.
const FAR: Duration = Duration::from_millis(50);

/// 2,000 directories, eight deep.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn more_operations_than_are_decoded_are_sent_in_shorter_requests() {
    let rig = Rig::new();
    let local = local(&rig);
    shell_in(
        &local,
        "for a in $(seq 250); do echo t/$a/b/c/d/e/f/g/h; done | xargs mkdir -p; tar -cf t.tar t",
    );
    let garbage = Arc::new(AtomicU32::new(0));
    let counted = garbage.clone();
    let mood = says(move |call| {
        if matches!(call.ops[0], ArgOp::CreateSession(_)) {
            thread::sleep(FAR);
        }
        if call.ops.len() > DECODED_MAX {
            counted.fetch_add(1, Ordering::SeqCst);
            return Act::Garbage;
        }
        Act::Pass
    });
    rig.shell("mkdir to to/t");
    let to = moody(&rig, "to", "4.2", mood);
    let end = said(landfast().args(["untar", path(&local.join("t.tar")), &to]));
    assert_eq!((end.code, end.errors().as_str()), (Some(0), ""), "{end:?}");
    assert_eq!(crate::names(&rig.at("to/t")), crate::names(&local.join("t")));
    assert!(garbage.load(Ordering::SeqCst) > 0, "nothing was too long");
}

/// As Linux's server: set-ID bits that come together with an owner are not set, and that is no error.
fn masks_set_id() -> Box<dyn Mood> {
    says(|call| {
        let mut ops = call.ops.clone();
        for op in &mut ops {
            let ArgOp::Setattr(set) = op else { continue };
            let mut values = AttrValues::from_fattr(&set.attrs).expect("our client's attributes");
            if values.owner.is_some() || values.owner_group.is_some() {
                values.mode = values.mode.map(|mode| mode & !0o6000);
            }
            set.attrs = values.to_fattr(&AttrValues::KNOWN);
        }
        if ops == call.ops { Act::Pass } else { Act::Instead(ops) }
    })
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn set_id_bits_are_set_after_the_owner() {
    let rig = Rig::new();
    let local = local(&rig);
    shell_in(
        &local,
        "mkdir t; cd t; for f in mode owner both; do echo $f > $f; done; chown 7:8 owner both; chmod 4755 mode owner both; touch -d 2001-01-01 *",
    );
    rig.shell(&format!(
        "cp -a {} there; cd there; chmod 755 mode both; chown 0:0 owner both; chmod 4755 owner; touch -d 2001-01-01 *",
        path(&local.join("t"))
    ));
    let to = moody(&rig, "there", "4.2", masks_set_id());
    for set in [3, 0] {
        let end = said(landfast().args(["sync-tree", "--json", path(&local.join("t")), &to]));
        assert_eq!((end.code, end.errors().as_str()), (Some(0), ""), "{end:?}");
        let files = end.text().lines().filter(|line| line.contains("\"action\":\"set\"")).count();
        assert_eq!(files, set, "{end:?}");
        for (name, owner) in [("mode", 0), ("owner", 7), ("both", 7)] {
            let meta = fs::metadata(rig.at("there").join(name)).expect("a file");
            assert_eq!((meta.mode() & 0o7777, meta.uid()), (0o4755, owner), "{name}");
        }
    }
}

/// A file that ends before the size that it was listed with: one of sysfs. The first run never comes to its end.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn sync_tree_that_is_ended_leaves_nothing_that_passes_for_a_file_it_could_not_read() {
    let rig = Rig::new();
    let local = local(&rig);
    shell_in(
        &local,
        "mkdir t; cd t; touch a-bad; echo good > b-good; head -c 1000000 /dev/urandom > c-large",
    );
    rig.shell("mkdir to");
    let hangs = says(|call| {
        let large = |op: &ArgOp| makes_a_file(op) && format!("{op:?}").contains("c-large");
        if call.ops.iter().any(large) { Act::Hang } else { Act::Pass }
    });
    let (first, second) = (moody(&rig, "to", "4.2", hangs), moody(&rig, "to", "4.2", says(|_| Act::Pass)));
    let script = "mount --bind /sys/kernel/uevent_seqnum \"$2/a-bad\" || exit 9
        \"$1\" sync-tree --timeout 2s \"$2\" \"$3\"; echo first: $?
        \"$1\" sync-tree \"$2\" \"$4\"; echo second: $?";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_landfast"), path(&local.join("t"))]);
    let end = said(command.args([&first, &second]));
    if end.code == Some(9) || end.code.is_none() {
        println!("skipped: needs bind mounts: {end:?}");
        return;
    }
    assert!(end.text().contains("first: 1\n") && end.text().contains("second: 1\n"), "{end:?}");
    let named = end.errors().matches("sync-tree: a-bad: it became shorter while it was read").count();
    assert_eq!(named, 2, "{end:?}");
    assert!(!rig.at("to/a-bad").exists(), "{end:?}");
    assert_eq!(fs::read(rig.at("to/b-good")).expect("a file"), b"good\n", "{end:?}");
    let large = |dir: &std::path::Path| fs::read(dir.join("c-large")).expect("a file");
    assert!(large(&rig.at("to")) == large(&local.join("t")));
}

/// Nothing was removed.
const NEVER: u64 = u64::MAX;

/// `a`, `b` as a hard link to it, and another `a` of the same size. If the journal did not have the link when the server replaced `a`,
/// the next run would make it again, to what has replaced it.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_link_is_in_the_journal_before_its_target_is_replaced() {
    let rig = Rig::new();
    let local = local(&rig);
    shell_in(
        &local,
        "echo one > a; ln a b; tar -cf t.tar a b; rm a b; echo two > a; tar -rf t.tar a; echo three > c; tar -rf t.tar c",
    );
    for version in ["4.2", "3"] {
        rig.shell("rm -rf to; mkdir to");
        let journal = local.join(format!("journal{version}"));
        let (noted, seen) = (journal.clone(), Arc::new(AtomicU64::new(NEVER)));
        let least = seen.clone();
        let look = move || {
            let summary = Summary::of(&fs::read(&noted).expect("a journal")).expect("a journal");
            least.fetch_min(summary.done, Ordering::SeqCst);
        };
        let to = moody(&rig, "to", version, Box::new(OnRemove(look)));
        let resume = ["--resume", path(&journal)];
        let end = said(landfast().arg("untar").args(resume).args([path(&local.join("t.tar")), &to]));
        assert_eq!((end.code, end.errors().as_str()), (Some(0), ""), "{version}: {end:?}");
        let done = seen.load(Ordering::SeqCst);
        assert!((2..NEVER).contains(&done), "{version}: {done} were in the journal");
        for (name, data) in [("a", "two\n"), ("b", "one\n"), ("c", "three\n")] {
            assert_eq!(fs::read_to_string(rig.at("to").join(name)).expect("a file"), data, "{version}");
        }
    }
}

/// Does this before each REMOVE.
struct OnRemove<F>(F);

impl<F: FnMut() + Send> Mood for OnRemove<F> {
    fn act(&mut self, call: &CompoundArgs) -> Act {
        if call.ops.iter().any(|op| matches!(op, ArgOp::Remove(_))) {
            (self.0)();
        }
        Act::Pass
    }

    fn procedure(&mut self, procedure: u32, _: Bytes) -> Old {
        if procedure == REMOVE {
            (self.0)();
        }
        Old::Pass
    }
}

/// Each OPEN that makes a file is executed and its reply is lost with the session, for so many requests. The directory may not be listed,
/// so the client does not know that the name is there.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_old_file_that_must_stay_stays_when_the_reply_is_lost() {
    let rig = Rig::new();
    let local = local(&rig);
    for (what, size, lost) in [("small", 100, 2), ("large", 1_000_000, 1)] {
        shell_in(&local, &format!("head -c {size} /dev/urandom > f; tar -cf {what}.tar f"));
        rig.shell("rm -rf to; mkdir to; echo old > to/f; chown -R 1234:1234 to; chmod 0300 to; chmod 755 .. ../local");
        let mut seen = HashSet::new();
        let mood = says(move |call| {
            let ArgOp::Sequence(sequence) = &call.ops[0] else { return Act::Pass };
            let sent = (sequence.sessionid, sequence.slotid, sequence.sequenceid);
            match call.ops.iter().any(makes_a_file) {
                true if seen.contains(&sent) => Act::Lose(sequence.sessionid),
                true if seen.len() < lost => {
                    seen.insert(sent);
                    Act::Cut
                }
                _ => Act::Pass,
            }
        });
        let to = moody(&rig, "to", "4.2", mood);
        let mut command = landfast();
        command.args(["untar", "--keep-old-files", path(&local.join(format!("{what}.tar"))), &to]);
        let end = said(command.uid(1234).gid(1234));
        assert_eq!(end.code, Some(1), "{what}: {end:?}");
        assert!(end.errors().contains("f: the outcome is unknown"), "{what}: {end:?}");
        assert_eq!(fs::read(rig.at("to/f")).expect("a file"), b"old\n", "{what}: {end:?}");
    }
}

/// The data of `a`.
const DATA: &[u8] = b"the data of a and b";

/// Every read fails, or every WRITE of this data, while it is set.
struct Fails {
    reads: bool,
    on: Arc<AtomicBool>,
}

impl Mood for Fails {
    fn act(&mut self, call: &CompoundArgs) -> Act {
        let fails = |op: &ArgOp| match op {
            ArgOp::Read(_) => self.reads,
            ArgOp::Write(write) => !self.reads && write.data == DATA,
            _ => false,
        };
        let at = call.ops.iter().position(fails).filter(|_| self.on.load(Ordering::SeqCst));
        at.map_or(Act::Pass, |at| Act::Fail(at, NfsStat::NFS4ERR_IO))
    }

    fn procedure(&mut self, procedure: u32, arguments: Bytes) -> Old {
        let fails = match self.reads {
            true => procedure == READ,
            false => procedure == WRITE && arguments.windows(DATA.len()).any(|part| part == DATA),
        };
        // IO.
        if fails && self.on.load(Ordering::SeqCst) { Old::Fail(5) } else { Old::Pass }
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn no_hard_link_is_made_to_a_file_that_failed() {
    let rig = Rig::new();
    let local = local(&rig);
    shell_in(
        &local,
        "mkdir t; cd t; printf 'the data of a and b' > a; ln a b; echo c > c; cd ..; tar --sort=name -cf t.tar t",
    );
    for version in ["4.2", "3"] {
        for command in ["cp", "untar"] {
            let what = format!("{command}, {version}");
            rig.shell("rm -rf to; mkdir to");
            let on = Arc::new(AtomicBool::new(true));
            let to = moody(&rig, "to", version, Box::new(Fails { reads: false, on: on.clone() }));
            let journal = local.join(format!("{command}{version}"));
            let (tree, archive) = (local.join("t"), local.join("t.tar"));
            let run = || {
                let args = match command {
                    "cp" => ["cp", "-a", "--resume", path(&journal), path(&tree), &to],
                    _ => ["untar", "-p", "--resume", path(&journal), path(&archive), &to],
                };
                said(landfast().args(args))
            };
            let end = run();
            assert_eq!(end.code, Some(1), "{what}: {end:?}");
            assert!(end.errors().contains("t/b"), "{what}: {end:?}");
            assert!(!rig.at("to/t/b").exists(), "{what}: {end:?}");
            assert_eq!(fs::read(rig.at("to/t/c")).expect("a file"), b"c\n", "{what}");
            on.store(false, Ordering::SeqCst);
            for second in [true, false] {
                let end = run();
                assert_eq!(end.code, Some(0), "{what}: {end:?}");
                // The third one has nothing to do and says so.
                assert!(!second || end.errors().is_empty(), "{what}: {end:?}");
                for name in ["a", "b"] {
                    assert_eq!(fs::read(rig.at("to/t").join(name)).expect("a file"), DATA, "{what}: {name}");
                }
            }
        }
    }
}

/// Nor to an older file of its name, where the source could not be read.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn no_hard_link_is_made_to_an_older_file_in_place_of_one_that_cannot_be_read() {
    let rig = Rig::new();
    let local = local(&rig);
    rig.shell("mkdir t; cd t; printf 'the data of a and b' > a; ln a b");
    for version in ["4.2", "3"] {
        let on = Arc::new(AtomicBool::new(true));
        let from = moody(&rig, "t", version, Box::new(Fails { reads: true, on }));
        // With another version than the source's, the server is not asked to copy.
        let other = if version == "4.2" { "4.1" } else { version };
        for command in ["cp", "sync-tree"] {
            let name = format!("{command}-{version}");
            let (here, there) = (local.join(&name), rig.at(&name));
            for (dest, at) in [(path(&here).to_owned(), &here), (rig.url(&name, other), &there)] {
                let what = format!("{command} {dest}");
                let older = "mkdir t; for f in a b t/a t/b; do echo older $f > $f; done";
                fs::create_dir(at).expect("a directory");
                shell_in(at, older);
                let args = match command {
                    "cp" => ["cp", "-a", &from, &dest],
                    _ => ["sync-tree", "-v", &from, &dest],
                };
                let end = said(landfast().args(args));
                assert_eq!(end.code, Some(1), "{what}: {end:?}");
                let names = if command == "cp" { ["t/a", "t/b"] } else { ["a", "b"] };
                for name in names {
                    let data = fs::read_to_string(at.join(name));
                    let same = data.as_ref().is_ok_and(|data| *data == format!("older {name}\n"));
                    assert!(same, "{what}: {name}: {data:?} {end:?}");
                }
            }
        }
    }
}

/// A directory is made all the same; a file is not, whatever its size.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn extended_attributes_that_cannot_be_read_are_told() {
    let rig = Rig::new();
    let local = local(&rig);
    rig.shell("mkdir -p t/sub; head -c 1000000 /dev/urandom > t/large; echo small > t/small");
    let fails = says(|call| {
        let at = call.ops.iter().position(|op| matches!(op, ArgOp::Listxattrs(_)));
        at.map_or(Act::Pass, |at| Act::Fail(at, NfsStat::NFS4ERR_IO))
    });
    let from = moody(&rig, "t", "4.2", fails);
    let end = said(landfast().args(["cp", "-a", &from, path(&local)]));
    assert_eq!(end.code, Some(1), "{end:?}");
    for name in ["t", "t/sub"] {
        let line =
            format!("cp: cannot read the extended attributes of '{}", from.split('?').next().expect("a URL"));
        let line = line + &name[1..] + "': ";
        assert!(end.errors().contains(&line), "{line} {end:?}");
        assert!(local.join(name).is_dir(), "{end:?}");
    }
    for name in ["t/large", "t/small"] {
        assert!(end.errors().contains(&format!("{}' for reading", &name[1..])), "{name}: {end:?}");
        assert!(!local.join(name).exists(), "{name}: {end:?}");
    }
}
