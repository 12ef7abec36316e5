//! Each call, on a mount of each version.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};

use common::{Rig, VERSIONS, can_mount, shell};

fn each_version(test: impl Fn(&Rig, &common::At, &str)) {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        eprintln!("version {version}");
        let rig = Rig::new();
        let at = rig.mount(version);
        test(&rig, &at, version);
        assert_eq!(at.unmount(), Vec::<String>::new());
    }
}

#[test]
fn what_is_closed_is_on_the_server_with_its_attributes() {
    each_version(|rig, at, _| {
        let mut f = File::create_new(at.join("f")).unwrap();
        f.write_all(b"hello").unwrap();
        f.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
        f.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000)).unwrap();
        assert_eq!(f.metadata().unwrap().len(), 5);
        drop(f);
        assert_eq!(fs::read(rig.dest().join("f")).unwrap(), b"hello");
        let m = fs::metadata(rig.dest().join("f")).unwrap();
        assert_eq!((m.mode() & 0o7777, m.mtime()), (0o640, 1_000_000));
        let seen = fs::metadata(at.join("f")).unwrap();
        assert_eq!((seen.mode() & 0o7777, seen.mtime(), seen.len()), (0o640, 1_000_000, 5));
        assert_eq!(fs::read(at.join("f")).unwrap(), b"hello");
    });
}

#[test]
fn names_are_made_found_listed_renamed_and_removed() {
    each_version(|rig, at, _| {
        fs::create_dir(at.join("d")).unwrap();
        fs::write(at.join("d/a"), "1").unwrap();
        symlink("a", at.join("d/link")).unwrap();
        fs::hard_link(at.join("d/a"), at.join("d/b")).unwrap();
        assert_eq!(fs::metadata(at.join("d/b")).unwrap().nlink(), 2);
        assert_eq!(fs::read_to_string(at.join("d/link")).unwrap(), "1");
        shell(at.path(), "mkfifo d/fifo; mknod d/null c 1 3");
        let list = || {
            let mut names: Vec<_> =
                fs::read_dir(at.join("d")).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(list(), ["a", "b", "fifo", "link", "null"]);
        fs::rename(at.join("d/a"), at.join("d/c")).unwrap();
        assert!(!at.join("d/a").exists() && at.join("d/c").exists());
        fs::write(at.join("d/over"), "2").unwrap();
        fs::rename(at.join("d/over"), at.join("d/c")).unwrap();
        assert_eq!(fs::read_to_string(at.join("d/c")).unwrap(), "2");
        assert_eq!(fs::metadata(at.join("d/b")).unwrap().nlink(), 1);
        assert_eq!(fs::remove_dir(at.join("d")).unwrap_err().raw_os_error(), Some(libc::ENOTEMPTY));
        fs::create_dir(at.join("e")).unwrap();
        fs::rename(at.join("d/c"), at.join("e/c")).unwrap();
        assert_eq!(fs::read_to_string(rig.dest().join("e/c")).unwrap(), "2");
        fs::remove_dir_all(at.join("d")).unwrap();
        fs::remove_dir_all(at.join("e")).unwrap();
        assert_eq!(fs::read_dir(rig.dest()).unwrap().count(), 0);
        assert_eq!(fs::metadata(at.join("d")).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    });
}

#[test]
fn a_file_is_written_at_any_place_and_read_back_before_and_after_its_close() {
    each_version(|rig, at, _| {
        let open = || {
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(at.join("f")).unwrap()
        };
        let mut f = open();
        f.write_all_at(b"end", 5_000_000).unwrap();
        f.write_all(b"begin").unwrap();
        let mut text = [0; 8];
        f.read_exact_at(&mut text, 4_999_995).unwrap();
        assert_eq!(&text, b"\0\0\0\0\0end");
        f.set_len(4_999_999).unwrap();
        assert_eq!(f.metadata().unwrap().len(), 4_999_999);
        f.seek(SeekFrom::Start(0)).unwrap();
        let mut all = Vec::new();
        f.read_to_end(&mut all).unwrap();
        assert!(all.len() == 4_999_999 && all.starts_with(b"begin\0") && all[5..].iter().all(|b| *b == 0));
        drop(f);
        assert_eq!(fs::read(rig.dest().join("f")).unwrap(), all);
        let f = open();
        f.write_all_at(&[7; 3_000_000], 1_000_000).unwrap();
        all[1_000_000..4_000_000].fill(7);
        f.sync_all().unwrap();
        assert_eq!(fs::read(rig.dest().join("f")).unwrap(), all);
        f.write_all_at(b"x", 0).unwrap();
        all[0] = b'x';
        drop(f);
        assert_eq!(fs::read(rig.dest().join("f")).unwrap(), all);
        assert_eq!(fs::read(at.join("f")).unwrap(), all);
    });
}

#[test]
fn a_file_that_is_removed_while_it_is_open_stays_until_its_close() {
    each_version(|rig, at, _| {
        for held in [true, false] {
            let mut options = OpenOptions::new();
            let mut f = options.read(true).write(true).create_new(true).open(at.join("f")).unwrap();
            f.write_all(b"first").unwrap();
            if !held {
                f.sync_all().unwrap();
            }
            fs::remove_file(at.join("f")).unwrap();
            assert!(!at.join("f").exists());
            assert_eq!(f.metadata().unwrap().nlink(), 0);
            f.write_all(b" second").unwrap();
            f.sync_all().unwrap();
            let mut text = String::new();
            f.seek(SeekFrom::Start(0)).unwrap();
            f.read_to_string(&mut text).unwrap();
            assert_eq!(text, "first second");
            drop(f);
            // The kernel tells the last close afterwards, and waits for nobody.
            let begin = std::time::Instant::now();
            while fs::read_dir(rig.dest()).unwrap().count() > 0 {
                assert!(begin.elapsed().as_secs() < 20, "{:?}", fs::read_dir(rig.dest()).unwrap().next());
                std::thread::yield_now();
            }
        }
    });
}

/// The kernel does not tell each last close: it drops what it has not told when a mount ends.
#[test]
fn a_file_that_was_removed_while_it_was_open_ends_with_the_mount() {
    if !can_mount() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can end a mount that is in use");
        return;
    }
    for version in VERSIONS {
        eprintln!("version {version}");
        let rig = Rig::new();
        let at = rig.mount(version);
        let mut f = File::create_new(at.join("f")).unwrap();
        f.write_all(b"text").unwrap();
        f.sync_all().unwrap();
        fs::remove_file(at.join("f")).unwrap();
        assert_eq!(fs::read_dir(rig.dest()).unwrap().count(), 1);
        // It is in use, so it stays, but the kernel asks nothing any more.
        rustix::mount::unmount(at.path(), rustix::mount::UnmountFlags::FORCE).unwrap_err();
        drop(f);
        assert_eq!(at.unmount(), Vec::<String>::new());
        assert_eq!(fs::read_dir(rig.dest()).unwrap().count(), 0);
    }
}

#[test]
fn a_file_that_was_just_closed_is_removed_at_once() {
    each_version(|_, at, version| {
        let dir = at.join("d");
        for n in 0..20 {
            fs::create_dir(&dir).unwrap();
            let f = fs::File::create(dir.join("f")).unwrap();
            // The end of such a lock is told to the server after the close.
            if version.starts_with("4.1") || version.starts_with("4.2") {
                rustix::fs::flock(&f, rustix::fs::FlockOperation::LockExclusive).unwrap();
            }
            drop(f);
            fs::remove_file(dir.join("f")).unwrap();
            fs::remove_dir(&dir).unwrap_or_else(|e| panic!("{version}, {n}: {e}"));
        }
    });
}

#[test]
fn appended_data_follows_what_is_there() {
    each_version(|rig, at, _| {
        fs::write(at.join("f"), "one").unwrap();
        let mut f = OpenOptions::new().append(true).open(at.join("f")).unwrap();
        f.write_all(b" two").unwrap();
        f.write_all(b" three").unwrap();
        drop(f);
        assert_eq!(fs::read_to_string(rig.dest().join("f")).unwrap(), "one two three");
    });
}

#[test]
fn direct_writes_are_on_the_server_when_they_return() {
    each_version(|rig, at, _| {
        fs::write(at.join("f"), [1; 8192]).unwrap();
        let f = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(at.join("f")).unwrap();
        // Memory that O_DIRECT accepts.
        let data = vec![2u8; 3 * 4096];
        let from = data.as_ptr().align_offset(4096);
        f.write_all_at(&data[from..from + 4096], 4096).unwrap();
        assert_eq!(fs::read(rig.dest().join("f")).unwrap(), [[1u8; 4096], [2u8; 4096]].concat());
    });
}

#[test]
fn extended_attributes_of_users_are_kept_in_version_4_2() {
    each_version(|_, at, version| {
        fs::write(at.join("f"), "").unwrap();
        let path = at.join("f");
        let set = rustix::fs::setxattr(&path, "user.a", b"value", rustix::fs::XattrFlags::CREATE);
        if version != "4.2" {
            assert_eq!(set, Err(rustix::io::Errno::OPNOTSUPP));
            return;
        }
        set.unwrap();
        let again = rustix::fs::setxattr(&path, "user.a", b"other", rustix::fs::XattrFlags::CREATE);
        assert_eq!(again, Err(rustix::io::Errno::EXIST));
        let mut value = [0; 64];
        let len = rustix::fs::getxattr(&path, "user.a", &mut value[..]).unwrap();
        assert_eq!(&value[..len], b"value");
        let len = rustix::fs::listxattr(&path, &mut value[..]).unwrap();
        assert_eq!(&value[..len], b"user.a\0");
        rustix::fs::removexattr(&path, "user.a").unwrap();
        assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut value[..]), Err(rustix::io::Errno::NODATA));
        let other = rustix::fs::setxattr(&path, "trusted.a", b"", rustix::fs::XattrFlags::empty());
        assert_eq!(other, Err(rustix::io::Errno::OPNOTSUPP));
    });
}

#[test]
fn the_filesystem_has_a_size() {
    each_version(|_, at, version| {
        let s = rustix::fs::statvfs(at.path()).unwrap();
        assert!(s.f_blocks > 0 && s.f_bavail <= s.f_blocks, "{version}: {} of {}", s.f_bavail, s.f_blocks);
        assert_eq!(s.f_namemax, 255);
    });
}

#[test]
fn a_directory_that_may_be_searched_and_not_read_has_its_names() {
    if !can_mount() || !common::has("setpriv") {
        return;
    }
    let rig = Rig::new();
    let at = rig.mount_with("4.2", "allow_other");
    fs::set_permissions(at.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(rig.dest().join("d")).unwrap();
    fs::write(rig.dest().join("d/there"), "text").unwrap();
    fs::set_permissions(rig.dest().join("d"), fs::Permissions::from_mode(0o733)).unwrap();
    let script = "echo new >d/f; cat d/f d/there >/dev/null; ! ls d 2>/dev/null";
    shell(at.path(), &format!("setpriv --reuid 1000 --regid 1000 --clear-groups sh -ec '{script}'"));
}

/// A script that runs in the mount and is spoken to.
fn python(at: &common::At, script: &str) -> std::process::Child {
    std::process::Command::new("python3")
        .args(["-c", script])
        .current_dir(at.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap()
}

/// The kernel keeps what a mapping has changed until somebody asks for it.
#[test]
fn what_a_mapping_has_changed_is_on_the_server_after_sync() {
    if !can_mount() || !common::has("python3") {
        return;
    }
    each_version(|rig, at, version| {
        fs::write(at.join("f"), "before").unwrap();
        let script = "import mmap, os, sys\n\
            f = os.open('f', os.O_RDWR)\n\
            m = mmap.mmap(f, 6)\n\
            m[0:6] = b'mapped'\n\
            print('changed', flush=True)\n\
            sys.stdin.read()\n\
            os._exit(0)";
        let mut python = python(at, script);
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(python.stdout.take().unwrap()), &mut line)
            .unwrap();
        assert_eq!(line, "changed\n");
        assert_eq!(landfast_mount::control::sync(at.path()).unwrap(), Vec::<String>::new());
        assert_eq!(fs::read_to_string(rig.dest().join("f")).unwrap(), "mapped", "{version}");
        drop(python.stdin.take());
        python.wait().unwrap();
    });
}

/// A program that has not heard of an earlier error writes through its mapping all the same.
#[test]
fn a_mapping_is_written_after_an_error_that_nobody_has_heard_of() {
    if !can_mount() || !common::has("python3") || !common::has("chattr") {
        return;
    }
    let rig = Rig::new();
    let at = rig.mount("4.2");
    let there = rig.dest().join("f");
    fs::write(&there, "before").unwrap();
    let script = "import mmap, os, sys\n\
        f = os.open('f', os.O_RDWR)\n\
        m = mmap.mmap(f, 6)\n\
        print(m[0:6].decode(), flush=True)\n\
        sys.stdin.readline()\n\
        os.pwrite(f, b'w', 0)\n\
        print('written', flush=True)\n\
        sys.stdin.readline()\n\
        m[0:6] = b'mapped'\n\
        print('changed', flush=True)\n\
        sys.stdin.readline()\n\
        os._exit(0)";
    let mut python = python(&at, script);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(python.stdout.take().unwrap()));
    let mut said = || lines.next().unwrap().unwrap();
    let chattr = |how: &str| {
        assert!(std::process::Command::new("chattr").arg(how).arg(&there).status().unwrap().success());
    };
    let mut go = python.stdin.take().unwrap();
    let mut next = || std::io::Write::write_all(&mut go, b"\n").unwrap();
    assert_eq!(said(), "before");
    chattr("+i");
    next();
    assert_eq!(said(), "written");
    let lost = landfast_mount::control::sync(at.path()).unwrap();
    chattr("-i");
    assert!(lost.iter().any(|line| line.starts_with("dest/f: ") || line.starts_with("f: ")), "{lost:?}");
    next();
    assert_eq!(said(), "changed");
    assert_eq!(landfast_mount::control::sync(at.path()).unwrap(), Vec::<String>::new());
    assert_eq!(fs::read_to_string(&there).unwrap(), "mapped");
    next();
    python.wait().unwrap();
}

/// The kernel does not wait for the end of a close.
#[test]
fn a_directory_goes_right_after_the_last_close_of_a_file_removed_in_it() {
    each_version(|rig, at, version| {
        common::go_after_the_last_close(at.path());
        assert_eq!(fs::read_dir(rig.dest()).unwrap().count(), 0, "{version}");
    });
}

/// The same in directories that the mount does not ask the server of.
#[test]
fn an_own_directory_goes_right_after_the_last_close_of_a_file_removed_in_it() {
    if !can_mount() {
        return;
    }
    let rig = Rig::delegating();
    let at = rig.mount_local("close=local,flush_age=30");
    let dir = at.own_dir("own");
    common::go_after_the_last_close(&dir);
    at.sync();
    let there = rig.dest().join(dir.file_name().unwrap());
    assert_eq!(fs::read_dir(there).unwrap().count(), 0);
}
