//! Two mounts of one server: what was closed at one is seen at the next open at the other (close-to-open consistency).

mod common;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};

use common::{Rig, VERSIONS, can_mount};

#[test]
fn what_was_closed_elsewhere_is_seen_at_the_next_open() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        eprintln!("version {version}");
        let rig = Rig::new();
        let (one, two) = (rig.mount_with(version, "actimeo=0"), rig.mount(version));
        for round in 0..20 {
            let text = format!("round {round} {}", "x".repeat(round * 1000));
            fs::write(one.join("f"), &text).unwrap();
            assert_eq!(fs::read_to_string(two.join("f")).unwrap(), text);
            let back = format!("back {round}");
            // The same length: only the change attribute tells.
            let mut f = OpenOptions::new().write(true).open(two.join("f")).unwrap();
            f.write_all(back.as_bytes()).unwrap();
            drop(f);
            assert!(fs::read_to_string(one.join("f")).unwrap().starts_with(&back));
        }
    }
}

/// A reply to a change of ours shows the change attribute behind somebody else's change, too.
#[test]
fn a_change_of_attributes_makes_no_old_data_new() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let rig = Rig::new();
        let (one, two) = (rig.mount(version), rig.mount(version));
        for (what, name) in [("fchmod", "f"), ("link", "g")] {
            fs::write(two.join(name), "old text").unwrap();
            assert_eq!(fs::read_to_string(one.join(name)).unwrap(), "old text");
            let f = File::open(one.join(name)).unwrap();
            fs::write(two.join(name), "new text").unwrap();
            match what {
                "fchmod" => f.set_permissions(Permissions::from_mode(0o600)).unwrap(),
                _ => fs::hard_link(one.join(name), one.join("second")).unwrap(),
            }
            drop(f);
            assert_eq!(fs::read_to_string(one.join(name)).unwrap(), "new text", "{version}, {what}");
        }
    }
}

#[test]
fn a_file_that_was_replaced_elsewhere_is_the_new_one_at_the_next_open() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    let (one, two) = (rig.mount("4.2"), rig.mount("4.2"));
    fs::write(one.join("f"), "old").unwrap();
    assert_eq!(fs::read_to_string(two.join("f")).unwrap(), "old");
    let mut kept = File::open(two.join("f")).unwrap();
    for round in 0..10 {
        fs::write(one.join("new"), format!("new {round}")).unwrap();
        fs::rename(one.join("new"), one.join("f")).unwrap();
        assert_eq!(fs::read_to_string(two.join("f")).unwrap(), format!("new {round}"));
    }
    let mut text = String::new();
    // The old one has lost its name on the server: as with NFS everywhere, its reader may be told so.
    match kept.read_to_string(&mut text) {
        Ok(_) => assert_eq!(text, "old"),
        Err(e) => assert_eq!(e.raw_os_error(), Some(libc::ESTALE)),
    }
}

#[test]
fn writers_of_different_parts_of_a_file_see_each_others_data_after_their_closes() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    let (one, two) = (rig.mount("4.2"), rig.mount("4.2"));
    fs::write(one.join("f"), vec![b'0'; 3 * 4096]).unwrap();
    assert_eq!(fs::read(one.join("f")).unwrap().len(), fs::read(two.join("f")).unwrap().len());
    let a = OpenOptions::new().read(true).write(true).open(one.join("f")).unwrap();
    let b = OpenOptions::new().write(true).open(two.join("f")).unwrap();
    a.write_all_at(&[b'a'; 4096], 0).unwrap();
    b.write_all_at(&[b'b'; 4096], 8192).unwrap();
    drop(b);
    drop(a);
    let whole = [[b'a'; 4096], [b'0'; 4096], [b'b'; 4096]].concat();
    assert!(fs::read(one.join("f")).unwrap() == whole, "the first writer sees an old part");
    assert!(fs::read(two.join("f")).unwrap() == whole, "the second writer sees an old part");
}

/// Waits for what another client has closed, which may take as long as attributes are kept.
fn until(what: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !what() {
        assert!(begin.elapsed().as_secs() < 20);
        std::thread::yield_now();
    }
}

#[test]
fn a_file_that_stays_open_shows_what_is_appended_elsewhere() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        eprintln!("version {version}");
        let rig = Rig::new();
        let (one, two) = (rig.mount(version), rig.mount_with(version, "actimeo=0"));
        // One comes with its open; of one the last page is read, which has zeros behind the end.
        for size in [100, 150_001] {
            let mut all = vec![b'a'; size];
            fs::write(one.join("f"), &all).unwrap();
            until(|| fs::metadata(two.join("f")).is_ok_and(|m| m.len() == size as u64));
            let mut kept = File::open(two.join("f")).unwrap();
            let mut seen = Vec::new();
            kept.read_to_end(&mut seen).unwrap();
            assert!(seen == all);
            for more in [&b"one"[..], b"two"] {
                all.extend_from_slice(more);
                OpenOptions::new().append(true).open(one.join("f")).unwrap().write_all(more).unwrap();
                until(|| kept.metadata().unwrap().len() == all.len() as u64);
                let mut text = [0; 3];
                kept.read_exact_at(&mut text, all.len() as u64 - 3).unwrap();
                assert_eq!(text, more, "of {size} bytes");
            }
            kept.read_to_end(&mut seen).unwrap();
            assert!(seen == all);
        }
    }
}

#[test]
fn an_older_open_gives_a_newer_one_no_old_data() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        eprintln!("version {version}");
        let rig = Rig::new();
        let (one, two) = (rig.mount(version), rig.mount(version));
        fs::write(one.join("f"), "old").unwrap();
        assert_eq!(fs::metadata(two.join("f")).unwrap().len(), 3);
        // Its data comes with it.
        let kept = File::open(two.join("f")).unwrap();
        fs::write(one.join("f"), "new").unwrap();
        let fresh = File::open(two.join("f")).unwrap();
        for f in [kept, fresh] {
            let mut text = [0; 3];
            f.read_exact_at(&mut text, 0).unwrap();
            assert_eq!(&text, b"new");
        }
    }
}

#[test]
fn a_held_file_is_seen_elsewhere_when_it_is_closed_and_at_the_latest_after_its_time() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    let (one, two) = (rig.mount("4.2"), rig.mount_with("4.2", "actimeo=0"));
    let mut f = File::create_new(one.join("f")).unwrap();
    f.write_all(b"text").unwrap();
    // Nobody closes it.
    let begin = std::time::Instant::now();
    while !two.join("f").exists() {
        assert!(begin.elapsed().as_secs() < 20);
        std::thread::yield_now();
    }
    assert_eq!(fs::read_to_string(two.join("f")).unwrap(), "text");
    f.write_all(b" more").unwrap();
    drop(f);
    assert_eq!(fs::read_to_string(two.join("f")).unwrap(), "text more");
}

#[test]
fn of_two_who_make_one_file_exclusively_one_is_told_so_at_its_close() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    let (one, two) = (rig.mount_with("4.2", "hold=30"), rig.mount("4.2"));
    let mut f = File::create_new(one.join("f")).unwrap();
    f.write_all(b"held").unwrap();
    fs::write(two.join("f"), "first").unwrap();
    assert_eq!(f.sync_all().unwrap_err().raw_os_error(), Some(libc::EEXIST));
    // Told once; and it never becomes a success.
    assert!(f.write_all(b"more").is_err());
    drop(f);
    assert_eq!(fs::read_to_string(one.join("f")).unwrap(), "first");
    let lost = landfast_mount::control::sync(one.path()).unwrap();
    assert!(lost.len() == 1 && lost[0].starts_with("f: the file could not be made: File exists"), "{lost:?}");
    assert!(landfast_mount::control::sync(one.path()).unwrap().is_empty());
}

#[test]
fn who_opens_without_o_excl_gets_the_file_that_somebody_else_has_made_meanwhile() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    let (one, two) = (rig.mount_with("4.2", "hold=30"), rig.mount("4.2"));
    let mut f = OpenOptions::new().write(true).create(true).truncate(false).open(one.join("f")).unwrap();
    f.write_all(b"AB").unwrap();
    fs::write(two.join("f"), "abcd").unwrap();
    f.sync_all().unwrap();
    drop(f);
    assert_eq!(fs::read_to_string(two.join("f")).unwrap(), "ABcd");
    let mut f = OpenOptions::new().create(true).append(true).open(one.join("log")).unwrap();
    f.write_all(b"EF").unwrap();
    fs::write(two.join("log"), "abcd").unwrap();
    f.sync_all().unwrap();
    f.write_all(b"GH").unwrap();
    drop(f);
    assert_eq!(fs::read_to_string(two.join("log")).unwrap(), "abcdEFGH");
    assert_eq!(fs::read_to_string(one.join("log")).unwrap(), "abcdEFGH");
    let mut f = OpenOptions::new().write(true).create(true).truncate(false).open(one.join("link")).unwrap();
    f.write_all(b"AB").unwrap();
    std::os::unix::fs::symlink("log", two.join("link")).unwrap();
    assert_eq!(f.sync_all().unwrap_err().raw_os_error(), Some(libc::EEXIST));
    drop(f);
    assert_eq!(fs::read_to_string(two.join("log")).unwrap(), "abcdEFGH");
    let mut f = File::create(one.join("g")).unwrap();
    f.write_all(b"AB").unwrap();
    fs::write(two.join("g"), "abcd").unwrap();
    drop(f);
    assert_eq!(fs::read_to_string(two.join("g")).unwrap(), "AB");
}

#[test]
fn a_rename_that_fails_leaves_its_open_target() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new();
    let (one, two) = (rig.mount_with("4.2", "actimeo=60"), rig.mount("4.2"));
    fs::write(one.join("from"), "new").unwrap();
    fs::write(one.join("to"), "old").unwrap();
    let reader = fs::File::open(one.join("to")).unwrap();
    fs::metadata(one.join("from")).unwrap();
    fs::remove_file(two.join("from")).unwrap();
    // This mount believes that it is still there, and so the request gets as far as the server.
    assert_eq!(fs::rename(one.join("from"), one.join("to")).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    drop(reader);
    assert_eq!(one.unmount(), Vec::<String>::new());
    let names: Vec<_> = fs::read_dir(rig.dest()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["to"]);
    assert_eq!(fs::read_to_string(rig.dest().join("to")).unwrap(), "old");
}
