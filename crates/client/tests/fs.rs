//! Vectored calls over paths, against Landfast's server.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;

use common::{Rig, shell};
use landfast_client::copy::{RemoteOptions, RemoteStart, RemoteTrees};
use landfast_client::fs::{
    AsNamed, Failure, ItemError, NewFile, Nfs, Outcome, Reflink, ServerCopies, ToRemove, WalkOptions,
};
use landfast_client::limits;
use landfast_client::put::{self, Existing, Members, Over, PutOptions, Source, SourceItem};
use landfast_client::session::SessionStats;
use landfast_client::{NfsUrl, Session, SessionLimits, SessionOptions};
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{NfsStat, NfsTime, SetTime};

const VERSIONS: [&str; 4] = ["4.2", "4.1", "4.0", "3"];

async fn connect(rig: &Rig, version: &str) -> Nfs {
    let url = format!("nfs://{}{}?version={version}", rig.addr(), rig.top(version));
    Nfs::connect(&url.parse().unwrap()).await.unwrap()
}

/// A session with so many operations in a COMPOUND.
async fn narrow(rig: &Rig, ops: u32) -> Nfs {
    let url: NfsUrl = format!("nfs://{}/dest", rig.addr()).parse().unwrap();
    let options = SessionOptions::for_url(&url);
    let ask = SessionLimits { ops, response_cached: 2048, ..options.ask };
    let session = Session::connect(SessionOptions { ask, ..options }).await.unwrap();
    Nfs::with(session, &url.path).await.unwrap()
}

/// Tests that run in each version, each on a server of its own.
macro_rules! in_each_version {
    ($(async fn $name:ident($rig:ident, $nfs:ident, $version:ident) $body:block)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        #[cfg_attr(not(root), ignore = "needs root")]
        async fn $name() {
            for $version in VERSIONS {
                let $rig = Rig::new().await;
                let $nfs = connect(&$rig, $version).await;
                $body
                $rig.stop().await;
            }
        }
    )*};
}

/// What all gave, if all were done.
fn done<T: std::fmt::Debug>(outcomes: Vec<Outcome<T>>) -> Vec<T> {
    outcomes.into_iter().map(|o| o.into_result().unwrap()).collect()
}

fn status<T: std::fmt::Debug>(outcome: Outcome<T>) -> NfsStat {
    outcome.into_result().unwrap_err().status().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_nested_path_of_any_depth_costs_one_request_the_first_time() {
    let rig = Rig::new().await;
    for (ops, depths) in [(2048, [1, 8, 32, 500]), (50, [1, 8, 32, 36])] {
        let nfs = narrow(&rig, ops).await;
        for depth in depths {
            let dir: Vec<String> = (0..depth).map(|n| format!("{ops}-{depth}-{n}")).collect();
            let dir = dir.join("/");
            let made = fs::create_dir_all(rig.dest().join(&dir));
            // A path that is longer than one system call takes; NFS has no such limit.
            if made.is_err() {
                nfs.mkdirs([dir.as_str()], 0o755).await.remove(0).into_result().unwrap();
            }
            let write = nfs.write_files([NewFile::new(format!("{dir}/f"), dir.clone())]).await.remove(0);
            write.into_result().unwrap();
            // Another client, which does not know the directory.
            let other = narrow(&rig, ops).await;
            let before = other.stats().rpcs;
            let read = other.read_files([format!("{dir}/f")]).await.remove(0);
            assert_eq!(read.into_result().unwrap(), dir.as_bytes());
            assert_eq!(other.stats().rpcs - before, 1, "{ops} operations, depth {depth}");
        }
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn files_are_written_read_listed_and_removed_in_few_requests() {
    let rig = Rig::new().await;
    for (ops, most) in [(200, [0, 40, 25, 5, 20, 20]), (50, [0, 90, 90, 5, 25, 40])] {
        let nfs = narrow(&rig, ops).await;
        let dirs: Vec<String> = (0..10).map(|n| format!("t{ops}/d{n}")).collect();
        done(nfs.mkdirs(&dirs, 0o750).await);
        let names: Vec<String> = (0..1000).map(|n| format!("t{ops}/d{}/f{n}", n / 100)).collect();
        let files =
            names.iter().map(|name| NewFile { mode: 0o600, ..NewFile::new(name.clone(), name.clone()) });
        done(nfs.write_files(files).await);
        let mut before = nfs.stats().rpcs;
        let mut count = |nfs: &Nfs| {
            let now = nfs.stats().rpcs;
            now - std::mem::replace(&mut before, now)
        };
        let mut spent = vec![0];
        for (name, data) in names.iter().zip(nfs.read_files(&names).await) {
            assert_eq!(data.into_result().unwrap(), name.as_bytes());
        }
        spent.push(count(&nfs));
        for (name, object) in names.iter().zip(nfs.getattrs(&names).await) {
            let attrs = object.into_result().unwrap().attrs;
            assert_eq!((attrs.size, attrs.mode), (Some(name.len() as u64), Some(0o600)));
        }
        spent.push(count(&nfs));
        let mut seen = BTreeMap::new();
        nfs.walk([format!("t{ops}")], WalkOptions::default(), |listing| {
            seen.insert(listing.path, listing.entries.into_result().unwrap().len());
        })
        .await;
        assert_eq!((seen.len(), seen.values().sum::<usize>()), (11, 1010));
        spent.push(count(&nfs));
        done(nfs.remove(&names).await);
        spent.push(count(&nfs));
        // The same tree again, removed whole.
        shell(
            &rig.dest(),
            &format!("cp -a t{ops} w{ops}; for d in w{ops}/*; do (cd $d; touch $(seq 100)); done"),
        );
        let ends = nfs.getattrs(["", &format!("w{ops}")]).await;
        let [top, own] =
            ends.try_into().map(|e: [_; 2]| e.map(|o: Outcome<_>| o.into_result().unwrap().fh)).unwrap();
        let name = format!("w{ops}").into_bytes();
        let tree = ToRemove {
            path: name.clone(),
            parent: top,
            name,
            dir: Some(own),
            is_dir: true,
            first_page: None,
        };
        let mut removed = 0;
        nfs.remove_trees([tree], |removal| {
            removal.outcome.into_result().unwrap();
            removed += 1;
        })
        .await;
        assert_eq!(removed, 1011);
        assert!(!rig.dest().join(format!("w{ops}")).exists());
        spent.push(count(&nfs));
        println!("{ops} operations: requests {spent:?}");
        assert!(spent.iter().zip(most).all(|(n, most)| *n <= most), "{ops}: {spent:?}");
        for dir in &dirs {
            assert_eq!(fs::read_dir(rig.dest().join(dir)).unwrap().count(), 0);
            assert_eq!(fs::metadata(rig.dest().join(dir)).unwrap().permissions().mode() & 0o7777, 0o750);
        }
    }
    rig.stop().await;
}

in_each_version! {
    async fn each_item_has_its_own_outcome(rig, nfs, _version) {
        shell(&rig.dest(), "mkdir d; echo a > d/a; ln -s loop loop; ln -s nowhere broken; mkdir -p x/y");
        let paths =
            ["d/a", "d/none", "none/a", "d/a/b", "loop", "broken", "d/../d/./a", "../../dest/d/a", "", "x/y"];
        let found: Vec<_> =
            nfs.getattrs_followed(paths).await.into_iter().map(Outcome::into_result).collect();
        let sizes: Vec<_> = found.iter().map(|o| o.as_ref().ok().and_then(|o| o.attrs.size)).collect();
        assert_eq!((sizes[0], sizes[6], sizes[7]), (Some(2), Some(2), Some(2)), "{found:?}");
        let failed = |n: usize| found[n].as_ref().err().and_then(ItemError::status);
        assert_eq!(failed(1), Some(NfsStat::NFS4ERR_NOENT));
        assert_eq!(failed(2), Some(NfsStat::NFS4ERR_NOENT));
        assert_eq!(failed(3), Some(NfsStat::NFS4ERR_NOTDIR));
        assert_eq!(found[4].as_ref().err(), Some(&ItemError::Failed(Failure::Loop)));
        assert_eq!(failed(5), Some(NfsStat::NFS4ERR_NOENT));
        assert!(found[8].is_ok() && found[9].is_ok(), "{found:?}");
        let links = nfs.getattrs(["loop", "broken"]).await;
        assert!(links.into_iter().all(|o| o.into_result().is_ok()));
        let removed = nfs.remove(["d/none", "x/y", "", "d"]).await;
        let removed: Vec<_> = removed.into_iter().map(Outcome::into_result).collect();
        assert_eq!(removed[0].as_ref().unwrap_err().status(), Some(NfsStat::NFS4ERR_NOENT));
        assert_eq!(removed[2].as_ref().unwrap_err(), &ItemError::Failed(Failure::Root));
        assert_eq!(removed[3].as_ref().unwrap_err().status(), Some(NfsStat::NFS4ERR_NOTEMPTY));
        assert!(removed[1].is_ok(), "{removed:?}");
    }

    async fn symbolic_links_anywhere_are_followed_by_whatever_comes_behind_them(rig, nfs, _version) {
        shell(
            &rig.dest(),
            "mkdir -p real/sub other; echo x > real/sub/f; ln -s real one; ln -s one two; ln -s /real/sub real/abs; ln -s ../real/sub other/up; ln -s ../two/sub/f other/file",
        );
        let paths = ["two/sub/f", "one/abs/f", "other/up/f", "other/up/../sub/f", "other/file"];
        for (path, read) in paths.iter().zip(nfs.read_files(paths).await) {
            assert_eq!(read.into_result().unwrap(), &b"x\n"[..], "{path}");
        }
        let files = ["two/new", "other/up/new"].map(|p| NewFile::new(p, "new"));
        done(nfs.write_files(files).await);
        assert_eq!(fs::read(rig.dest().join("real/new")).unwrap(), b"new");
        assert_eq!(fs::read(rig.dest().join("real/sub/new")).unwrap(), b"new");
        // A file is written through a link, and made where a broken link leads.
        symlink("real/made", rig.dest().join("to-be")).unwrap();
        let through = [NewFile::new("other/file", "y"), NewFile::new("to-be", "made")];
        done(nfs.write_files(through).await);
        assert_eq!(fs::read(rig.dest().join("real/sub/f")).unwrap(), b"y");
        assert_eq!(fs::read(rig.dest().join("real/made")).unwrap(), b"made");
        done(nfs.rename([("two/new", "other/up/moved"), ("one/sub/new", "real/new2")]).await);
        assert!(rig.dest().join("real/sub/moved").exists() && rig.dest().join("real/new2").exists());
        done(nfs.mkdirs(["two/a/b/c", "one/a/x"], 0o755).await);
        assert!(rig.dest().join("real/a/b/c").is_dir() && rig.dest().join("real/a/x").is_dir());
        assert_eq!(status(nfs.mkdirs(["real/sub/f/x"], 0o755).await.remove(0)), NfsStat::NFS4ERR_EXIST);
    }

    async fn names_links_attributes(rig, nfs, _version) {
        shell(&rig.dest(), "mkdir -p a/b c; echo 1 > a/1; echo 2 > a/2");
        done(nfs.rename([("a/1", "c/one"), ("a/b", "c/b")]).await);
        done(nfs.link([("c/one", "a/again"), ("a/2", "c/b/two")]).await);
        done(nfs.symlinks([("c/link", "one".into())]).await);
        let time = NfsTime { seconds: 1_000_000_000, nseconds: 7 };
        let set = AttrValues {
            mode: Some(0o640),
            time_modify_set: Some(SetTime::ClientTime(time)),
            ..AttrValues::default()
        };
        done(nfs.setattrs([("c/one", set)]).await);
        let meta = fs::metadata(rig.dest().join("a/again")).unwrap();
        assert_eq!(
            (meta.mode() & 0o7777, meta.mtime(), meta.mtime_nsec(), meta.nlink()),
            (0o640, 1_000_000_000, 7, 2)
        );
        assert_eq!(nfs.readlinks(["c/link"]).await.remove(0).into_result().unwrap(), &b"one"[..]);
        assert_eq!(fs::read(rig.dest().join("c/b/two")).unwrap(), b"2\n");
        assert_eq!(status(nfs.rename([("none", "c/x")]).await.remove(0)), NfsStat::NFS4ERR_NOENT);
        assert_eq!(status(nfs.link([("none", "c/x")]).await.remove(0)), NfsStat::NFS4ERR_NOENT);
        assert_eq!(status(nfs.mkdir(["c"], 0o755).await.remove(0)), NfsStat::NFS4ERR_EXIST);
    }

    async fn large_files_and_files_with_times_are_stable_and_whole(rig, nfs, _version) {
        let large: Vec<u8> =
            (0..9_000_000u32).flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 16).to_le_bytes()).collect();
        let time = NfsTime { seconds: 5, nseconds: 6 };
        let finish = AttrValues { time_modify_set: Some(SetTime::ClientTime(time)), ..AttrValues::default() };
        let files = [
            NewFile { finish: finish.clone(), ..NewFile::new("large", large.clone()) },
            NewFile { finish, ..NewFile::new("small", "s") },
            NewFile::new("empty", ""),
        ];
        done(nfs.write_files(files).await);
        assert!(fs::read(rig.dest().join("large")).unwrap() == large);
        for name in ["large", "small"] {
            let meta = fs::metadata(rig.dest().join(name)).unwrap();
            assert_eq!((meta.mtime(), meta.mtime_nsec()), (5, 6), "{name}");
        }
        let read = nfs.read_files(["large", "empty"]).await;
        let read = done(read);
        assert!(read[0] == large && read[1].is_empty());
        let part = nfs.read([("large", 35_999_990, 100), ("large", 5, 3)]).await;
        let part = done(part);
        assert_eq!((&part[0][..], &part[1][..]), (&large[35_999_990..], &large[5..8]));
        // Shorter contents over longer ones; an exclusive one over anything is refused.
        let over = nfs.write_files([NewFile::new("large", "short")]).await;
        assert!(matches!(over[0], Outcome::Committed(_)));
        assert_eq!(fs::read(rig.dest().join("large")).unwrap(), b"short");
        let exclusive = NewFile { exclusive: true, ..NewFile::new("small", "x") };
        assert_eq!(status(nfs.write_files([exclusive]).await.remove(0)), NfsStat::NFS4ERR_EXIST);
    }

    async fn files_are_copied_by_the_server_where_it_can_and_nothing_is_lost_of_those_that_it_refuses(rig, nfs, version) {
        shell(
            &rig.dest(),
            "umask 022; mkdir in out; for n in $(seq 100); do head -c 30000 /dev/urandom > in/$n; done; head -c 9000000 /dev/urandom > in/large; \
             : > in/empty; ln -s large in/link; ln in/large out/same; ln in/7 out/seven; chmod 640 in/1; head -c 50000 /dev/zero > out/3; chmod 600 out/3",
        );
        let before = fs::read(rig.dest().join("in/large")).unwrap();
        let names: Vec<String> =
            (1..=100).map(|n| n.to_string()).chain(["large".into(), "empty".into()]).collect();
        let stats = nfs.stats();
        let copied = nfs.copy(names.iter().map(|n| (format!("in/{n}"), format!("out/{n}")))).await;
        let moved =
            nfs.stats().bytes_sent - stats.bytes_sent + nfs.stats().bytes_received - stats.bytes_received;
        for (name, outcome) in names.iter().zip(copied) {
            let (from, to) = (rig.dest().join("in").join(name), rig.dest().join("out").join(name));
            let data = fs::read(&from).unwrap();
            assert_eq!(outcome, Outcome::Committed(data.len() as u64), "{version} {name}");
            assert!(data == fs::read(&to).unwrap(), "{version} {name}");
        }
        let mode = |name: &str| fs::metadata(rig.dest().join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("out/1"), mode("out/2"), mode("out/3")), (0o640, 0o644, 0o600));
        match version {
            "4.2" => assert!(moved < 300_000, "{moved} bytes"),
            _ => assert!(moved > 24_000_000, "{moved} bytes"),
        }
        let odd = [
            ("in/link", "out/through"),
            ("in", "out/dir"),
            ("in/none", "out/none"),
            ("in/large", "in/large"),
            ("in/large", "out/same"),
            ("in/7", "out/seven"),
            ("in/1", "none/1"),
        ];
        let found = nfs.copy(odd).await;
        assert_eq!(found[0], Outcome::Committed(9_000_000), "{version}");
        assert!(fs::read(rig.dest().join("out/through")).unwrap() == before);
        let said: Vec<_> = found.into_iter().skip(1).map(status).collect();
        let (inval, noent) = (NfsStat::NFS4ERR_INVAL, NfsStat::NFS4ERR_NOENT);
        assert_eq!(said, [NfsStat::NFS4ERR_ISDIR, noent, inval, inval, inval, noent], "{version}");
        assert!(fs::read(rig.dest().join("in/large")).unwrap() == before, "{version}");
        assert!(!rig.dest().join("out/none").exists() && !rig.dest().join("out/dir").exists());
    }
}

/// Where COPYs and CLONEs get a COMMIT, and no COMPOUND several READs: on servers that are not known to be Landfast.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_stranger_copies_its_files_and_what_may_not_be_read_leaves_nothing() {
    let rig = Rig::new().await;
    shell(
        &rig.dest(),
        "umask 022; mkdir in in/sub made out; for n in $(seq 80); do head -c 20000 /dev/urandom > in/sub/$n; done; head -c 9000000 /dev/urandom > in/large; \
         : > in/empty; chown -R 1000:1000 .; echo hidden > in/secret; echo hidden > in/sub/50; chmod 600 in/secret in/sub/50; chown 0:0 in/secret in/sub/50",
    );
    let proxy = common::proxy::Proxy::renaming(rig.addr()).await;
    let url = format!("nfs://{}/dest?version=4.2&uid=1000&gid=1000", proxy.addr);
    let nfs = Nfs::connect(&url.parse().unwrap()).await.unwrap();
    let copies = ServerCopies::of(nfs.session(), Reflink::Auto).await.unwrap();
    let top = nfs.getattrs(["in", "made"]).await.into_iter().map(|o| o.into_result().unwrap());
    let [from, to] = <[_; 2]>::try_from(top.collect::<Vec<_>>()).ok().unwrap();
    let start = RemoteStart::of(from, b"t".to_vec());
    let options = RemoteOptions { copies, ..RemoteOptions::default() };
    let trees = RemoteTrees::new(&nfs, vec![start], options, Box::new(AsNamed));
    let how = PutOptions { existing: Existing::Look(Over::default()), ..PutOptions::default() };
    let before = nfs.stats();
    let source = Source::members(Box::new(trees));
    let report = put::run_in(how, nfs.session(), to.fh, source, Arc::new(put::Silent)).await.unwrap();
    let mut failed: Vec<&str> = report.failed.iter().map(|f| &f.path[..]).collect();
    failed.sort_unstable();
    assert_eq!((failed, report.counts.files), (vec!["t/secret", "t/sub/50"], 81), "{report:?}");
    let moved = |before: &SessionStats| {
        let now = nfs.stats();
        now.bytes_sent + now.bytes_received - before.bytes_sent - before.bytes_received
    };
    assert!(moved(&before) < 300_000, "{} bytes", moved(&before));
    let at = |name: &str| rig.dest().join(name);
    assert!(!at("made/t/secret").exists() && !at("made/t/sub/50").exists());
    fs::remove_file(at("in/secret")).unwrap();
    fs::remove_file(at("in/sub/50")).unwrap();
    shell(&rig.dest(), "diff -r in made/t");
    let before = nfs.stats();
    let names = ["large", "sub/1", "sub/2", "empty"];
    let copied = nfs.copy(names.map(|n| (format!("in/{n}"), format!("out/{}", n.replace('/', "-"))))).await;
    assert_eq!(done(copied), [9_000_000, 20_000, 20_000, 0]);
    assert!(moved(&before) < 30_000, "{} bytes", moved(&before));
    shell(&rig.dest(), "cmp in/large out/large; cmp in/sub/1 out/sub-1; cmp in/sub/2 out/sub-2");
    rig.stop().await;
}

/// A tree of more objects than wait for their turn: all of them come, each directory before what is in it.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_tree_that_is_listed_faster_than_it_is_taken() {
    let rig = Rig::new().await;
    let (dirs, each) = (10, limits::WALKED_AHEAD_MAX / 5);
    for d in 0..dirs {
        let dir = rig.dest().join(format!("d{d}"));
        fs::create_dir(&dir).unwrap();
        (0..each).for_each(|f| drop(fs::File::create(dir.join(f.to_string())).unwrap()));
    }
    let nfs = connect(&rig, "4.2").await;
    let top = nfs.getattrs([""]).await.remove(0).into_result().unwrap();
    let start = RemoteStart::of(top, b"t".to_vec());
    let mut trees = RemoteTrees::new(&nfs, vec![start], RemoteOptions::default(), Box::new(AsNamed));
    let paths = tokio::task::spawn_blocking(move || {
        let mut paths = Vec::new();
        while let Some(SourceItem::Member(member)) = trees.next_member().unwrap() {
            paths.push(String::from_utf8(member.path).unwrap());
        }
        paths
    });
    let paths = paths.await.unwrap();
    assert_eq!(paths.len(), 1 + dirs * (1 + each));
    let mut seen = std::collections::HashSet::new();
    for path in &paths {
        let above = path.trim_end_matches('/').rsplit_once('/').map(|(above, _)| above.to_owned());
        assert!(above.is_none_or(|above| seen.contains(&above)), "{path}");
        assert!(seen.insert(path.trim_end_matches('/').to_owned()), "{path} twice");
    }
    nfs.disconnect().await;
    rig.stop().await;
}
