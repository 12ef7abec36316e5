//! Prints what operations cost on this machine, as processor time of the process: `cargo run --release -p
//! landfast-volume --example cost -- DIR LOG [FILES]`. DIR must exist; a directory in it is made and removed.

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use landfast_volume::{
    CreateHow, Cred, Durability, Error, NoteKeeper, OpenMode, OpenOptions, SetAttrs, Stable, TimeSet,
    Timestamp, Volume,
};

struct NoNotes;

impl NoteKeeper for NoNotes {
    fn snapshot(&self) -> Box<dyn landfast_volume::Snapshot> {
        Box::new(Vec::new())
    }
}

fn cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Runs `op`, which does `items` things, for each number, and prints processor and real time for one thing.
fn measure(
    what: &str,
    count: u64,
    items: u64,
    mut op: impl FnMut(u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let (begun, used) = (Instant::now(), cpu());
    for n in 0..count {
        op(n)?;
    }
    let each = |d: Duration| d.as_secs_f64() * 1e6 / (count * items) as f64;
    println!("{what:<44} {:>7.1} us processor {:>7.1} us real", each(cpu() - used), each(begun.elapsed()));
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(dir), Some(log)) = (args.next(), args.next()) else {
        return Err("usage: cost DIR LOG [FILES]".into());
    };
    let place = PathBuf::from(&dir);
    let files: u64 = args.next().map_or(Ok(20_000), |n| n.parse())?;
    let (volume, _) = Volume::open(OpenOptions { log_size: 512 << 20, ..OpenOptions::with_log(dir, &log) })?;
    assert_eq!(volume.durability(), Durability::Log);
    volume.start(Arc::new(NoNotes))?;
    let local = place.join("local");
    local_create(&local, files)?;
    // On a thread of its own, as that one ends up acting as somebody else.
    let done = std::thread::scope(|s| s.spawn(|| run(&volume, files)).join()).map_err(|_| "panic")?;
    local_remove(&local, files)?;
    if let Err(e) = done {
        return Err(format!("{e}: {:?}", volume.failed()).into());
    }
    println!("{:#?}", volume.stats());
    let status = std::fs::read_to_string("/proc/self/status")?;
    println!("{}", status.lines().filter(|l| l.starts_with("VmHWM")).collect::<String>());
    volume.shutdown()?;
    Ok(())
}

/// The same system calls on the filesystem itself, for comparison.
fn local_create(dir: &Path, files: u64) -> Result<(), Error> {
    std::fs::create_dir(dir).map_err(io)?;
    let data = [7u8; 4096];
    measure("local create+write+chmod+utimes+stat+close", files, 1, |n| {
        let file = File::create_new(dir.join(format!("file-{n}"))).map_err(io)?;
        file.write_all_at(&data, 0).map_err(io)?;
        file.set_permissions(Permissions::from_mode(0o640)).map_err(io)?;
        file.set_modified(SystemTime::UNIX_EPOCH).map_err(io)?;
        file.metadata().map(drop).map_err(io)
    })
}

fn local_remove(dir: &Path, files: u64) -> Result<(), Error> {
    measure("local unlink", files, 1, |n| std::fs::remove_file(dir.join(format!("file-{n}"))).map_err(io))?;
    std::fs::remove_dir(dir).map_err(io)
}

fn io(e: std::io::Error) -> Error {
    eprintln!("local: {e}");
    Error::Io
}

fn run(v: &Volume, files: u64) -> Result<(), Error> {
    let root = Cred::root();
    let user = Cred { uid: 1000, gid: 1000, groups: Arc::from([1000]) };
    let data = Bytes::from(vec![7u8; 4096]);
    let mode = |mode| SetAttrs { mode: Some(mode), ..SetAttrs::default() };
    let mut tx = v.tx();
    let top = v.mkdir(&mut tx, &root, &v.root(), b"cost", mode(0o777))?.node;
    tx.finish().wait_blocking()?;
    let small = |cred: &Cred, dir: &landfast_volume::Node, n: u64, batch: u64| -> Result<(), Error> {
        let mut tx = v.tx();
        for i in 0..batch {
            let name = format!("file-{}", n * batch + i);
            let how = CreateHow::Guarded(mode(0o644));
            let made = v.create(&mut tx, cred, dir, name.as_bytes(), how, OpenMode::BOTH)?;
            v.write(&mut tx, &made.file, 0, data.clone(), Stable::FileSync)?;
            let mtime = Some(TimeSet::At(Timestamp { secs: 1_000_000_000, nanos: 0 }));
            v.setattr(&mut tx, cred, &made.node, Some(&made.file), SetAttrs { mtime, ..mode(0o640) })?;
            v.getattr(&made.node)?;
        }
        tx.finish().wait_blocking()
    };
    // All that is made comes first: ext4 makes files slowly for seconds after many were removed.
    let mut dirs = Vec::new();
    for (who, cred) in [("root", &root), ("a user", &user)] {
        let mut tx = v.tx();
        let dir = v.mkdir(&mut tx, cred, &top, who.as_bytes(), mode(0o755))?.node;
        let one = v.mkdir(&mut tx, cred, &dir, b"one", mode(0o755))?.node;
        tx.finish().wait_blocking()?;
        let what = format!("64 x create+write+setattr+getattr, {who}");
        measure(&what, files / 64, 64, |n| small(cred, &dir, n, 64))?;
        measure(&format!("the same one at a time, {who}"), files / 16, 1, |n| small(cred, &one, n, 1))?;
        dirs.push((who, cred, dir, one));
    }
    for (who, cred, dir, one) in dirs {
        measure(&format!("lookup, {who}"), files / 64 * 64, 1, |n| {
            v.lookup(cred, &dir, format!("file-{n}").as_bytes()).map(drop)
        })?;
        measure(&format!("resolve+getattr, {who}"), files, 1, |_| {
            v.resolve(&dir.fh()).and_then(|n| v.getattr(&n)).map(drop)
        })?;
        measure(&format!("64 x remove, {who}"), files / 64, 64, |n| {
            let mut tx = v.tx();
            for i in n * 64..(n + 1) * 64 {
                v.remove(&mut tx, cred, &dir, format!("file-{i}").as_bytes())?;
            }
            tx.finish().wait_blocking()
        })?;
        let mut tx = v.tx();
        for n in 0..files / 16 {
            v.remove(&mut tx, cred, &one, format!("file-{n}").as_bytes())?;
            tx.split();
        }
        v.remove(&mut tx, cred, &dir, b"one")?;
        v.remove(&mut tx, cred, &top, who.as_bytes())?;
        tx.finish().wait_blocking()?;
    }
    let mut tx = v.tx();
    v.remove(&mut tx, &root, &v.root(), b"cost")?;
    tx.finish().wait_blocking()
}
