//! Programs on the volume that run on the server: nobody can open them for writing.

mod common;

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::image::{Image, Kernel};
use common::*;
use landfast_volume::*;

const PROGRAM: &str = "/bin/sleep";

/// The copy of a program, running until it is dropped.
struct Running(Child);

impl Running {
    fn of(path: &Path) -> Running {
        let child = Running::start(path);
        let writable = std::fs::File::options().write(true).open(path);
        assert_eq!(writable.expect_err("it runs").kind(), ErrorKind::ExecutableFileBusy);
        Running(child)
    }

    /// A child that another test starts at this moment may have the copy open for writing until it runs its own program.
    fn start(path: &Path) -> Child {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match Command::new(path).arg("600").stdin(Stdio::null()).spawn() {
                Err(e) if e.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < deadline => {
                    std::thread::yield_now();
                }
                started => return started.expect("it runs"),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run<T>(volume: &Volume, op: impl FnOnce(&mut Tx) -> Result<T, Error>) -> T {
    let mut tx = volume.tx();
    let done = op(&mut tx).expect("done");
    tx.finish().wait_blocking().expect("stable");
    done
}

/// Puts a program there, as a client does.
fn put(volume: &Volume, bytes: &Bytes) {
    let how = CreateHow::Guarded(mode(0o755));
    let made = run(volume, |tx| volume.create(tx, &root(), &volume.root(), b"program", how, OpenMode::BOTH));
    for at in (0..bytes.len()).step_by(64 << 10) {
        let piece = bytes.slice(at..bytes.len().min(at + (64 << 10)));
        run(volume, |tx| volume.write(tx, &made.file, at as u64, piece, Stable::FileSync));
    }
}

fn program() -> Bytes {
    std::fs::read(PROGRAM).expect("a program").into()
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_volume_comes_back_while_a_program_on_it_runs() {
    if !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    put(&rig.volume, &program());
    let path = rig.dir().join("program");
    let running = Running::of(&path);
    let rig = rig.crash();
    assert!(rig.report.records > 0);
    drop(running);
    assert_eq!(std::fs::read(&path).expect("a file"), program());
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_program_that_runs_can_be_committed() {
    for durability in [Durability::Log, Durability::Sync] {
        if durability == Durability::Log && !tempdir_suits() {
            continue;
        }
        let rig = Rig::new(durability);
        std::fs::copy(PROGRAM, rig.dir().join("program")).expect("a copy");
        let _running = Running::of(&rig.dir().join("program"));
        let node = rig.lookup(&root(), &rig.volume.root(), "program").expect("it is there");
        assert_eq!(rig.run(|tx| rig.volume.commit(tx, &node, 0, 0)), Ok(()));
    }
}

/// After a power cut somebody starts a program before the server: fine if the disk has all of it.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_program_that_runs_is_compared_with_the_log() {
    for (kernel, changed) in
        [(Kernel::Ext4, false), (Kernel::Ext4, true), (Kernel::Xfs, false), (Kernel::Xfs, true)]
    {
        let Some(mut image) = Image::new(kernel) else { return };
        let dir = image.path().join("dir");
        std::fs::create_dir(&dir).expect("a directory");
        let options =
            || OpenOptions { log_size: 16 << 20, ..OpenOptions::with_log(&dir, image.beside().join("log")) };
        let options = options();
        let (volume, _) = open(options.clone());
        if changed {
            let mut bytes = program().to_vec();
            bytes.extend_from_slice(b"old");
            put(&volume, &bytes.into());
            volume.checkpoint().expect("a checkpoint");
            let node = volume.lookup(&root(), &volume.root(), b"program").expect("it is there");
            let file = volume.open_file(&root(), &node, OpenMode::BOTH).expect("open");
            let at = program().len() as u64;
            run(&volume, |tx| volume.write(tx, &file, at, Bytes::from_static(b"new"), Stable::FileSync));
        } else {
            put(&volume, &program());
            // Everything is on the disk, also what the log still has.
            std::fs::File::open(&dir).and_then(|dir| Ok(rustix::fs::syncfs(dir)?)).expect("syncfs");
        }
        image.power_off();
        drop(volume);
        image.power_on();
        let path = dir.join("program");
        let running = Running::of(&path);
        if changed {
            let refused = loop {
                match Volume::open(options.clone()) {
                    // The one before has not let go of it yet.
                    Err(OpenError::DirInUse { .. } | OpenError::Log(_)) => std::thread::yield_now(),
                    opened => break opened.expect_err("the log has newer contents").to_string(),
                }
            };
            assert!(refused.contains("program that runs"), "{refused}");
            drop(running);
        }
        let (volume, report) = open(options);
        assert!(report.records > 0);
        let bytes = std::fs::read(&path).expect("a file");
        assert_eq!(bytes.ends_with(b"new"), changed);
        volume.shutdown().expect("stopped");
    }
}

/// A server that was merely killed writes again what its log holds. What an administrator has given a program since stays.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_program_keeps_its_capabilities() {
    if !tempdir_suits() {
        return;
    }
    let rig = Rig::log();
    put(&rig.volume, &program());
    let path = rig.dir().join("program");
    // Version 2; CAP_NET_RAW permitted and effective.
    let mut capabilities = [0u8; 20];
    capabilities[..8].copy_from_slice(&[1, 0, 0, 2, 0, 0x20, 0, 0]);
    rustix::fs::setxattr(&path, "security.capability", &capabilities, rustix::fs::XattrFlags::empty())
        .expect("set");
    let rig = rig.crash();
    assert!(rig.report.records > 0);
    let mut found = [0u8; 64];
    let len = rustix::fs::getxattr(&path, "security.capability", &mut found[..]).expect("it is there");
    assert_eq!(found[..len], capabilities);
}
