//! `untar` against Landfast's server, compared with what GNU tar extracts.

mod common;

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::proxy::Proxy;
use common::{Rig, archive, member, shell, tree};
use landfast_client::archive::{ArchiveError, ArchiveReader, Filter};
use landfast_client::cred::Identity;
use landfast_client::put::{
    self, DataError, Existing, FatalError, Members, PutOptions, Report, Silent, Source, SourceItem, Tuning,
};
use landfast_client::untar::{Archive, run, run_as};
use landfast_client::{NfsUrl, SessionLimits, SessionOptions};
use landfast_nfs::v4::OpNum;
use tokio::sync::watch;

/// Makes a tree with one of each in `dir/t`, and archives of it.
const TREE: &str = r#"
    mkdir -p t/sub/deep/er t/locked t/empty t/many
    printf 'hello\n' > t/small; chmod 4751 t/small
    : > t/none
    head -c 300000 /dev/urandom > t/sub/one-piece
    head -c 5000000 /dev/urandom > t/sub/pieces
    head -c 20000000 /dev/urandom > t/sub/groups
    truncate -s 9000000 t/sparse; printf data | dd of=t/sparse bs=1 seek=4000000 conv=notrunc status=none
    truncate -s 100000 t/hole
    ln -s ../small t/sub/up; ln -s /etc/passwd t/abs; ln -s nowhere t/dangling
    ln t/small t/sub/hard; ln t/sub/pieces t/a-hard
    mkfifo t/sub/fifo; mknod t/null c 1 3; mknod t/loop b 7 200
    printf x > t/locked/f; chmod 555 t/locked; chmod 2775 t/sub/deep; chmod 1777 t/empty
    chown 1234:5678 t/sub/one-piece t/sub/deep; chown -h 77:88 t/abs
    long=$(printf 'n%.0s' $(seq 200)); printf long > t/sub/deep/$long
    for i in $(seq 300); do printf "$i" > t/many/f$i; done
    touch -d '2001-02-03 04:05:06.123456789' t/small t/sub/fifo t/empty t/locked
    touch -h -d '1965-01-01' t/dangling; touch -d '2030-01-01' t/sub/deep/er
    tar --format=gnu -S -cf gnu.tar t; tar --format=posix -S -cf pax.tar t; tar --format=posix -czf plain.tar.gz t
"#;

fn extract_locally(work: &Path, name: &str, options: &str) -> std::path::PathBuf {
    let to = work.join(format!("local-{name}"));
    fs::create_dir(&to).unwrap();
    shell(work, &format!("tar -xpf {name} {options} -C {}", to.display()));
    to
}

/// Directories, symbolic links, hard links, devices and FIFOs.
fn of_each_kind(report: &Report) -> (u64, u64, u64, u64) {
    let counts = &report.counts;
    (counts.dirs, counts.symlinks, counts.hard_links, counts.specials)
}

fn assert_same(left: &Path, right: &Path) {
    let (l, r) = (tree(left), tree(right));
    for (path, line) in &l {
        assert_eq!(Some(line), r.get(path), "{path}");
    }
    assert_eq!(l.len(), r.len(), "{:?}", r.keys().filter(|k| !l.contains_key(*k)).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn one_of_each_as_gnu_tar_has_it() {
    for name in ["gnu.tar", "pax.tar", "plain.tar.gz"] {
        let rig = Rig::new().await;
        let work = rig.work();
        shell(&work, TREE);
        let local = extract_locally(&work, name, "");
        let report = rig.untar_all(&work.join(name)).await;
        assert_same(&local, &rig.dest());
        assert_eq!(of_each_kind(&report), (7, 3, 2, 3));
        // A second time, over what is there.
        let again = rig.untar_all(&work.join(name)).await;
        assert_same(&local, &rig.dest());
        assert_eq!(again.counts.files, report.counts.files);
        rig.stop().await;
    }
}

/// Hundreds of directories, visited again and again, with hard links into each other, times, and names that come twice: where
/// nearly nothing is remembered in memory the result is the same.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn what_is_remembered_in_a_temporary_file_counts_as_well() {
    const MANY: &str = "mkdir t && cd t
        for i in $(seq 200); do mkdir -p d$i/in; echo $i >d$i/f; echo in $i >d$i/in/f; done
        for i in $(seq 2 200); do ln d1/f d$i/link; ln d$i/in/f d$((i - 1))/in/below; done
        tar cf ../many.tar . && echo new >d7/f && touch -d @1000000000 d7 d9/in && chmod 750 d9
        for i in $(seq 1 3 200); do tar rf ../many.tar ./d$i ./d$((201 - i))/in/f; done
        rm -r d50 && ln -s d51 d60/s && tar rf ../many.tar ./d60/s && rm d60/s && mkdir d60/s && tar rf ../many.tar ./d60/s";
    let rig = Rig::new().await;
    let work = rig.work();
    shell(&work, MANY);
    let tar = work.join("many.tar");
    rig.untar_all(&tar).await;
    let want = tree(&rig.dest());
    shell(&rig.dest(), "find . -mindepth 1 -delete");
    let tuning = Tuning { keys_in_memory: 7, dirs_in_memory: 3, ..Tuning::default() };
    let options = PutOptions { tuning, ..PutOptions::default() };
    // The second time over what is there.
    for version in ["4.2", "3"] {
        let report = rig.untar_over(version, &tar, options.clone()).await.unwrap();
        assert!(report.complete(), "{version}: {:?} {:?}", report.stopped, &report.failed);
        for (path, line) in &tree(&rig.dest()) {
            assert_eq!(Some(line), want.get(path), "{version}: {path}");
        }
        assert_eq!(tree(&rig.dest()).len(), want.len());
        // Here a symbolic link would have to replace a directory.
        fs::remove_dir_all(rig.dest().join("d60")).unwrap();
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn one_of_each_over_versions_without_sessions() {
    for version in ["4.0", "3"] {
        let rig = Rig::new().await;
        let work = rig.work();
        // Version 3 knows no time before 1970.
        let tree = if version == "3" { TREE.replace("1965-01-01", "1971-01-01") } else { TREE.to_owned() };
        shell(&work, &tree);
        let local = extract_locally(&work, "gnu.tar", "");
        for _ in 0..2 {
            let report = rig.untar_over(version, &work.join("gnu.tar"), PutOptions::default()).await.unwrap();
            assert!(report.complete(), "{version}: {:?} {:?}", report.stopped, &report.failed);
            assert_same(&local, &rig.dest());
            assert_eq!(of_each_kind(&report), (7, 3, 2, 3));
        }
        rig.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_time_that_version_3_cannot_say_is_a_failure_of_its_member() {
    let rig = Rig::new().await;
    let work = rig.work();
    shell(&work, "mkdir t; touch -d 1965-01-01 t/old; touch t/new; tar -cf a.tar t");
    let report = rig.untar_over("3", &work.join("a.tar"), PutOptions::default()).await.unwrap();
    let failed: Vec<_> = report.failed.iter().map(|f| f.path.as_str()).collect();
    assert_eq!(failed, ["t/old"], "{:?}", report.failed);
    assert!(rig.dest().join("t/new").exists());
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn files_that_are_there_already() {
    let rig = Rig::new().await;
    let work = rig.work();
    shell(
        &work,
        "mkdir t; printf new > t/a; printf new > t/b; mkdir t/d; ln -s x t/l; tar --format=posix -cf a.tar t",
    );
    let dest = rig.dest();
    shell(&dest, "mkdir -p t/b; printf 'older and longer' > t/a; ln t/a other; ln -s /etc/passwd t/l");
    let keep = PutOptions { existing: Existing::Keep, ..PutOptions::default() };
    let report = rig.untar(&work.join("a.tar"), keep).await.unwrap();
    let failed: Vec<_> = report.failed.iter().map(|f| (f.path.as_str(), f.why.as_str())).collect();
    assert_eq!(failed.len(), 3, "{failed:?}");
    assert!(failed.contains(&("t/a", "File exists")) && failed.contains(&("t/l", "File exists")));
    assert!(failed.contains(&("t/b", "a directory is in the way")));
    assert_eq!(fs::read(dest.join("t/a")).unwrap(), b"older and longer");

    let inode = fs::metadata(dest.join("t/a")).unwrap().ino();
    let over = PutOptions { existing: Existing::Overwrite, ..PutOptions::default() };
    let report = rig.untar(&work.join("a.tar"), over).await.unwrap();
    assert_eq!(report.failures, 1, "{:?}", report.failed);
    assert_eq!(fs::metadata(dest.join("t/a")).unwrap().ino(), inode);
    assert_eq!(fs::read(dest.join("other")).unwrap(), b"new");
    assert_eq!(fs::read_link(dest.join("t/l")).unwrap(), Path::new("x"));

    shell(&dest, "rmdir t/b; ln -sf /etc/passwd t/b");
    rig.untar_all(&work.join("a.tar")).await;
    assert_ne!(fs::metadata(dest.join("t/a")).unwrap().ino(), inode);
    assert!(fs::symlink_metadata(dest.join("t/b")).unwrap().is_file());
    assert_same(&work.join("t"), &dest.join("t"));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn no_member_gets_out() {
    let rig = Rig::new().await;
    let (work, dest) = (rig.work(), rig.dest());
    let outside = rig.dir.path().join("data/outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    symlink(&outside, dest.join("found")).unwrap();
    let out = outside.display().to_string();
    let tar = work.join("evil.tar");
    archive(
        &tar,
        &[
            member("good", b'0', "", b"good"),
            member("../up", b'0', "", b"x"),
            member("a/../../up", b'0', "", b"x"),
            member(&format!("{out}/abs"), b'0', "", b"x"),
            member("made", b'2', &out, b""),
            member("made/in", b'0', "", b"x"),
            member("made/dir/", b'5', "", b""),
            member("found/in", b'0', "", b"x"),
            member("rel", b'2', "../outside", b""),
            member("rel/in", b'0', "", b"x"),
            member("hard-abs", b'1', &format!("{out}/secret"), b""),
            member("hard-up", b'1', "../outside/secret", b""),
            member("hard-through", b'1', "made/secret", b""),
            member("hard-nothing", b'1', "not-there", b""),
            member("self", b'1', "self", b""),
            member("last", b'0', "", b"last"),
        ],
    );
    let report = rig.untar(&tar, PutOptions::default()).await.unwrap();
    let mut failed: Vec<_> = report.failed.iter().map(|f| f.path.clone()).collect();
    failed.sort();
    let mut expected = vec![
        "../up".to_owned(),
        "a/../../up".into(),
        format!("{out}/abs"),
        "made/in".into(),
        "made/dir/".into(),
        "found/in".into(),
        "rel/in".into(),
        "hard-abs".into(),
        "hard-up".into(),
        "hard-through".into(),
        "hard-nothing".into(),
        "self".into(),
    ];
    expected.sort();
    assert_eq!(failed, expected, "{:?}", report.failed);
    assert_eq!(report.counts.files, 2);
    assert!(!report.complete() && report.stopped.is_none());
    assert_eq!(tree(&outside).len(), 1);
    assert!(!rig.dir.path().join("data/up").exists());
    assert_eq!(fs::metadata(outside.join("secret")).unwrap().nlink(), 1);
    // A member that names the link itself takes its place, as with GNU tar.
    archive(&tar, &[member("found/", b'5', "", b""), member("found/in", b'0', "", b"x")]);
    rig.untar_all(&tar).await;
    assert!(fs::symlink_metadata(dest.join("found")).unwrap().is_dir());
    assert_eq!(tree(&outside).len(), 1);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn duplicates_keep_their_order() {
    let rig = Rig::new().await;
    let tar = rig.work().join("d.tar");
    let mut members = Vec::new();
    for i in 0..40 {
        members.push(member("same", b'0', "", format!("{i}").as_bytes()));
        members.push(member(&format!("link{i}"), b'1', "same", b""));
    }
    members.push(member("same", b'2', "end", b""));
    archive(&tar, &members);
    rig.untar_all(&tar).await;
    for i in 0..40 {
        assert_eq!(fs::read_to_string(rig.dest().join(format!("link{i}"))).unwrap(), i.to_string());
    }
    assert_eq!(fs::read_link(rig.dest().join("same")).unwrap(), Path::new("end"));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn stripping_and_excluding_as_gnu_tar() {
    let rig = Rig::new().await;
    let work = rig.work();
    shell(
        &work,
        "mkdir -p t/a/b t/c; printf 1 > t/a/x.o; printf 2 > t/a/b/y; printf 3 > t/c/z; ln t/c/z t/a/hard; tar --format=posix -cf a.tar t",
    );
    let local = extract_locally(&work, "a.tar", "--strip-components=1 --exclude='*.o' --exclude=b");
    let filter = Filter::new(1, &["*.o".into(), "b".into()]);
    let archive = Archive::file(work.join("a.tar")).filtered(filter);
    let report = rig.untar_from("4.2", archive, PutOptions::default()).await.unwrap();
    assert!(report.complete(), "{:?}", report.failed);
    assert_eq!(report.skipped, 4);
    assert_same(&local, &rig.dest());
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_caller_who_is_not_root() {
    let rig = Rig::new().await;
    let (work, dest) = (rig.work(), rig.dest());
    shell(
        &work,
        "mkdir t; printf x > t/f; chmod 6777 t/f; chown 5:6 t/f; chmod 777 t; touch -d @1000000000 t/f t; tar --format=posix -cf a.tar t",
    );
    std::os::unix::fs::chown(&dest, Some(4321), Some(4322)).unwrap();
    let identity = Identity { uid: 4321, gid: 4322, groups: vec![4322], host: b"test".to_vec() };
    let url: NfsUrl = format!("nfs://{}/dest", rig.addr()).parse().unwrap();
    let session = || SessionOptions { identity: identity.clone(), ..SessionOptions::for_url(&url) };
    let source = || Archive::file(work.join("a.tar"));
    let options = PutOptions { umask: 0o027, ..PutOptions::default() };
    let report = run_as(options, session(), source(), &url, Arc::new(Silent)).await.unwrap();
    assert!(report.complete(), "{:?}", report.failed);
    let m = fs::metadata(dest.join("t/f")).unwrap();
    assert_eq!((m.uid(), m.gid(), m.mode() & 0o7777, m.mtime()), (4321, 4322, 0o750, 1_000_000_000));
    assert_eq!(fs::metadata(dest.join("t")).unwrap().mode() & 0o7777, 0o750);
    // Owners that may not be set: extracted, and said so.
    let options = PutOptions { same_owner: Some(true), touch: true, ..PutOptions::default() };
    let report = run_as(options, session(), source(), &url, Arc::new(Silent)).await.unwrap();
    assert_eq!(fs::read(dest.join("t/f")).unwrap(), b"x");
    let mut failed: Vec<_> = report.failed.iter().map(|f| f.path.as_str()).collect();
    failed.sort_unstable();
    assert_eq!(failed, ["t/", "t/f"], "{:?}", report.failed);
    // Where it may not write, nothing is done, and it ends.
    std::os::unix::fs::chown(&dest, Some(0), Some(0)).unwrap();
    fs::remove_dir_all(dest.join("t")).unwrap();
    let report = run_as(PutOptions::default(), session(), source(), &url, Arc::new(Silent)).await.unwrap();
    assert_eq!((report.failures, report.counts.files), (2, 0), "{:?}", report.failed);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn what_ends_before_it_begins_or_in_the_middle() {
    let rig = Rig::new().await;
    let work = rig.work();
    shell(
        &work,
        "mkdir t; for i in $(seq 50); do printf $i > t/f$i; done; head -c 3000000 /dev/zero > t/z; tar --format=posix -cf a.tar t",
    );
    let whole = fs::read(work.join("a.tar")).unwrap();
    fs::write(work.join("cut.tar"), &whole[..whole.len() - 1_000_000]).unwrap();
    let report = rig.untar(&work.join("cut.tar"), PutOptions::default()).await.unwrap();
    assert!(report.stopped.as_ref().is_some_and(|s| s.contains("cut off")), "{:?}", report.stopped);
    assert!(report.failed.iter().any(|f| f.path == "t/z"), "{:?}", report.failed);
    fs::write(work.join("no.tar"), "this is no archive").unwrap();
    let none = rig.untar(&work.join("no.tar"), PutOptions::default()).await;
    assert!(matches!(none, Err(FatalError::Archive { .. })));
    let none = rig.untar(&work.join("absent.tar"), PutOptions::default()).await;
    assert!(matches!(none, Err(FatalError::Archive { .. })));
    fs::write(rig.dest().join("file"), "").unwrap();
    type Expected = fn(&FatalError) -> bool;
    let rows: [(String, Expected); 3] = [
        (format!("nfs://{}/nowhere/at/all", rig.addr()), |e| matches!(e, FatalError::Destination { .. })),
        (format!("nfs://{}/dest/file", rig.addr()), |e| matches!(e, FatalError::NotDirectory { .. })),
        ("nfs://127.0.0.1:1/".to_owned(), |e| matches!(e, FatalError::Session(_))),
    ];
    for (url, expected) in rows {
        let source = Archive::file(work.join("a.tar"));
        let none = run(PutOptions::default(), source, &url.parse().unwrap(), Arc::new(Silent)).await;
        assert!(expected(&none.unwrap_err()), "{url}");
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_tenth_of_an_rpc_per_file() {
    let rig = Rig::new().await;
    let work = rig.work();
    shell(
        &work,
        "for d in $(seq 64); do mkdir -p t/d$d; for f in $(seq 32); do head -c 4096 /dev/urandom > t/d$d/f$f; done; done; tar --format=posix -cf a.tar t",
    );
    let report = rig.untar_all(&work.join("a.tar")).await;
    assert_eq!(report.counts.files, 2048);
    assert!(report.rpcs_per_file <= 0.1, "{}", report.rpcs_per_file);
    let again = rig.untar_all(&work.join("a.tar")).await;
    assert!(again.rpcs_per_file <= 0.1, "over existing files: {}", again.rpcs_per_file);
    assert_same(&work.join("t"), &rig.dest().join("t"));
    rig.stop().await;
}

/// The limits that the Linux server grants: 50 operations, 1 MiB, small replies kept, few slots.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_server_that_grants_little() {
    let rig = Rig::new().await;
    let work = rig.work();
    shell(
        &work,
        "for d in $(seq 10); do mkdir -p t/d$d; for f in $(seq 50); do head -c 4096 /dev/urandom > t/d$d/f$f; done; done; head -c 3000000 /dev/urandom > t/large; tar --format=posix -cf a.tar t",
    );
    let url: NfsUrl = format!("nfs://{}/dest?version=4.1", rig.addr()).parse().unwrap();
    let mut session = SessionOptions::for_url(&url);
    session.ask =
        SessionLimits { request: 1 << 20, response: 1 << 20, response_cached: 2048, ops: 50, slots: 4 };
    session.connections = 3;
    let source = Archive::file(work.join("a.tar"));
    let report = run_as(PutOptions::default(), session, source, &url, Arc::new(Silent)).await.unwrap();
    assert!(report.complete(), "{:?}", report.failed);
    assert!(report.rpcs_per_file < 0.25, "{}", report.rpcs_per_file);
    assert_same(&work.join("t"), &rig.dest().join("t"));
    rig.stop().await;
}

/// An archive that says when it has been read.
struct Told(ArchiveReader<fs::File>, watch::Sender<bool>);

impl Members for Told {
    fn next_member(&mut self) -> Result<Option<SourceItem>, ArchiveError> {
        let next = Members::next_member(&mut self.0);
        if !matches!(next, Ok(Some(_))) {
            self.1.send_replace(true);
        }
        next
    }

    fn data(&mut self, max: usize) -> Result<Bytes, DataError> {
        Members::data(&mut self.0, max)
    }
}

/// Extracts `a.tar`, all of which has been read when the server's first answer comes.
async fn read_before_the_session(rig: &Rig, dest: &str) -> Report {
    let proxy = Proxy::holding(rig.addr()).await;
    proxy.hold_after(0);
    let (told, mut read) = watch::channel(false);
    let archive = Told(ArchiveReader::new(fs::File::open(rig.work().join("a.tar")).unwrap()), told);
    let url: NfsUrl = format!("nfs://{}/{dest}", proxy.addr).parse().unwrap();
    let source = Source::members(Box::new(archive));
    let untar =
        tokio::spawn(async move { put::run(PutOptions::default(), source, &url, Arc::new(Silent)).await });
    proxy.held().await;
    read.wait_for(|read| *read).await.unwrap();
    proxy.pass();
    untar.await.unwrap().unwrap()
}

/// An archive that is read while the server answers for the first time: directories are made by the session's first request,
/// and have their last attributes with the files.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn nothing_but_files_takes_rpcs_of_its_own() {
    let rig = Rig::new().await;
    let work = rig.work();
    shell(
        &work,
        "for d in $(seq 40); do mkdir -p t/d$d/e; for f in $(seq 64); do echo $f > t/d$d/e/f$f; done; done; \
         chmod 750 t/d7; touch -d '2001-02-03' t t/d*; tar --format=posix -cf a.tar t",
    );
    // What is not sent before the first answer is planned a little at a time, and may not know yet what fills a directory.
    let report = untar_with_replies_held(&rig, 40 * 64, true).await;
    assert!(report.complete(), "{:?} {:?}", report.stopped, &report.failed);
    assert_eq!((report.counts.files, report.counts.dirs), (40 * 64, 1 + 40 * 2));
    // Three for the session, and two for its end.
    assert_eq!(report.rpcs, 3 + 40 + 2);
    assert_same(&work.join("t"), &rig.dest().join("t"));
    rig.stop().await;
}

/// What is made with the session, where things are in the way of it.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn directories_made_ahead_meet_what_is_there() {
    let rig = Rig::new().await;
    let work = rig.work();
    // `a/x` is named behind what is in it, `b` is first a file, `d` comes twice.
    shell(
        &work,
        "mkdir -p t/a/x t/b t/c t/d; echo 1 > t/a/x/f; echo 2 > t/b/f; echo 3 > t/c/f; echo 4 > file; touch -d '2001-02-03' t/*; cd t; \
         tar --format=posix -cf ../a.tar --no-recursion a/x/f a/x a d c/f c d; \
         mkdir ../u; cp ../file ../u/b; tar --format=posix -rf ../a.tar -C ../u b; tar --format=posix -rf ../a.tar -C ../t b",
    );
    for (i, there) in
        ["true", "mkdir -p a/x; echo old > a/x/f", "echo file > c", "ln -s /etc d"].iter().enumerate()
    {
        let dest = rig.dest().join(format!("to{i}"));
        let local = work.join(format!("to{i}"));
        for to in [&dest, &local] {
            fs::create_dir(to).unwrap();
            shell(to, there);
        }
        let status =
            Command::new("tar").args(["-xpf", "a.tar", "-C"]).arg(&local).current_dir(&work).output();
        let report = read_before_the_session(&rig, &format!("dest/to{i}")).await;
        assert_eq!(report.complete(), status.unwrap().status.success(), "{there}: {:?}", report.failed);
        assert_same(&local, &dest);
    }
    rig.stop().await;
}

const SMALL_TREE: &str = "
    for d in $(seq 30); do mkdir -p t/d$d; for f in $(seq 10); do printf \"$d $f\" > t/d$d/f$f; done; done
    chmod 2751 t/d3; chmod 555 t/d4; touch -d 2002-02-02 t t/d*; tar --format=posix -cf a.tar t";

/// An archive, and who hears when nobody reads it any more.
struct ReadWhole(fs::File, #[expect(dead_code, reason = "it goes with it")] tokio::sync::oneshot::Sender<()>);

impl Read for ReadWhole {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buf)
    }
}

/// Runs `untar` with all replies held back from the session's first request on, until so many files were made; then they are
/// passed on, or lost.
async fn untar_with_replies_held(rig: &Rig, files: u64, passes: bool) -> Report {
    let opens = || rig.running.as_ref().unwrap().stats().op(OpNum::OPEN);
    let (proxy, before) = (Proxy::holding(rig.addr()).await, opens());
    let (tell, told) = tokio::sync::oneshot::channel();
    let source = Archive::reader(ReadWhole(fs::File::open(rig.work().join("a.tar")).unwrap(), tell));
    let url: NfsUrl = format!("nfs://{}/dest", proxy.addr).parse().unwrap();
    proxy.hold_after(0);
    let untar = tokio::spawn(async move { run(PutOptions::default(), source, &url, Arc::new(Silent)).await });
    proxy.held().await;
    assert!(told.await.is_err());
    // The reply to CREATE_SESSION has less, the next one has more.
    proxy.pass_until(1024);
    proxy.held().await;
    let start = Instant::now();
    while opens() < before + files {
        assert!(start.elapsed() < Duration::from_secs(60) && !untar.is_finished(), "{} files", opens());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    if passes {
        proxy.pass()
    } else {
        proxy.lose()
    }
    untar.await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn files_go_behind_their_directories_before_these_are_answered() {
    for passes in [true, false] {
        let rig = Rig::new().await;
        shell(&rig.work(), SMALL_TREE);
        let local = extract_locally(&rig.work(), "a.tar", "");
        let report = untar_with_replies_held(&rig, 300, passes).await;
        assert!(report.complete(), "{:?} {:?}", report.stopped, report.failed);
        assert_same(&local, &rig.dest());
        assert_eq!((report.counts.files, report.counts.dirs), (300, 31));
        // Each once, whatever was sent again.
        assert_eq!(rig.running.as_ref().unwrap().stats().op(OpNum::OPEN), 300);
        rig.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn nothing_goes_into_directories_that_were_there() {
    for there in
        ["mkdir -p t/d30", "mkdir -p t other; ln -s ../other t/d30", "mkdir -p t; printf old > t/d30"]
    {
        let rig = Rig::new().await;
        shell(&rig.work(), SMALL_TREE);
        let local = extract_locally(&rig.work(), "a.tar", "");
        shell(&rig.dest(), there);
        let report = untar_with_replies_held(&rig, 0, true).await;
        assert!(report.complete(), "{there}: {:?} {:?}", report.stopped, report.failed);
        assert_eq!(fs::read_dir(rig.dest()).unwrap().count(), if there.contains("other") { 2 } else { 1 });
        if there.contains("other") {
            assert_eq!(fs::read_dir(rig.dest().join("other")).unwrap().count(), 0);
            fs::remove_dir(rig.dest().join("other")).unwrap();
        }
        assert_same(&local, &rig.dest());
        assert_eq!((report.counts.files, rig.running.as_ref().unwrap().stats().op(OpNum::OPEN)), (300, 300));
        rig.stop().await;
    }
}
