//! Files that are written unstably by version 3 and by version 4 without an open, and one block of each cannot be written back.
//! Somebody else is told of it, when the server has closed the files. Their COMMITs may not succeed under the verifier of the WRITE
//! all the same (RFC 1813 section 3.3.21, RFC 8881 section 18.3).

use crate::error::{Context, Error, Result};
use crate::mounts::{Filesystem, syncfs};
use crate::powercut::peer::Peer;
use crate::rig::Rig;
use crate::serial::Action;
use landfast_verify::rng::Rng;
use landfast_xdr::Bytes;
use procfs::process::{FDPermissions, FDTarget, Process};
use rustix::fs::{Advice, fadvise, fdatasync};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// More than a filesystem keeps inside an inode.
const FILE_BYTES: usize = 64 << 10;
/// The smallest block of the filesystems: ext4's on a small disk.
const BLOCK_BYTES: usize = 1024;

/// One for each peer.
const NAMES: [&str; 2] = ["unwritten0", "unwritten1"];

/// The kernel may write everything back before it is to fail, for a checkpoint.
const TRIES: usize = 20;

/// The server closes what was accessed without an open in half a second.
const CLOSED_MAX: Duration = Duration::from_secs(20);

/// There is no event for what is waited for with this.
const POLL: Duration = Duration::from_millis(5);

/// Contents of the `n`th file of a directory: nothing else on the disk looks like them.
fn contents(dir: &str, n: usize) -> Bytes {
    let of_dir = dir.bytes().fold(0, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut data = vec![0; FILE_BYTES];
    Rng::new(of_dir.wrapping_mul(NAMES.len() as u64).wrapping_add(n as u64)).fill(&mut data);
    data.into()
}

fn path(dir: &str, n: usize) -> Vec<u8> {
    format!("{dir}/{}", NAMES[n]).into_bytes()
}

fn local(rig: &Rig, dir: &str, n: usize) -> PathBuf {
    rig.export().join(dir).join(NAMES[n])
}

/// Makes the files, in this directory.
pub(crate) fn prepare(peer: &mut Peer, rig: &Rig, dir: &str) -> Result<()> {
    for n in 0..NAMES.len() {
        peer.act(&Action::Create { path: path(dir, n), mode: 0o644 })?;
        if rig.filesystem() == Filesystem::Btrfs {
            stay_in_place(&local(rig, dir, n))?;
        }
        peer.act(&Action::Write { path: path(dir, n), offset: 0, data: contents(dir, n), stable: true })?;
        peer.act(&Action::Close { path: path(dir, n) })?;
    }
    Ok(())
}

/// btrfs writes to another place each time, unless told otherwise while the file is empty.
fn stay_in_place(file: &Path) -> Result<()> {
    let run = || Command::new("chattr").arg("+C").arg(file).output();
    let ran = run().context(|| "run chattr".to_owned())?;
    match ran.status.success() {
        true => Ok(()),
        false => Err(Error::Unable(format!("chattr +C: {}", String::from_utf8_lossy(&ran.stderr)))),
    }
}

/// What of the files is neither as [`prepare`] has written it nor as [`strike`] has.
pub(crate) fn strange(rig: &Rig, dir: &str) -> Vec<String> {
    let read = |n| std::fs::read(local(rig, dir, n)).map_err(|e| e.to_string());
    let judge = |n: usize| match read(n) {
        Err(e) => Some(format!("{}: {e}", NAMES[n])),
        Ok(found) => {
            let may_be = |(was, is): (&u8, &u8)| was == is || !was == *is;
            let same = found.len() == FILE_BYTES && contents(dir, n).iter().zip(&found).all(may_be);
            (!same).then(|| format!("{}: has what nobody has written", NAMES[n]))
        }
    };
    (0..NAMES.len()).filter_map(judge).collect()
}

/// What the server does wrong. `peers`: one for each file; nobody else is at work. `other`: a file that a client commits in between.
pub(crate) fn strike(
    rig: &Rig,
    server: u32,
    peers: &mut [Peer; 2],
    dir: &str,
    other: &[u8],
) -> Result<Vec<String>> {
    syncfs(&rig.export())?;
    let mut places = Vec::new();
    for n in 0..NAMES.len() {
        let at = rig.find_data(&contents(dir, n)[..BLOCK_BYTES])?;
        places.push(at.ok_or_else(|| Error::Unable("a file that was synced is not on the disk".into()))?);
    }
    let wrote = lose(rig, server, peers, dir, &places)?;
    let mut wrong = Vec::new();
    for (n, peer) in peers.iter_mut().enumerate() {
        // Of this one nothing was lost; it may be refused only if the server has noticed already.
        let _ = peer.act(&Action::Commit { path: other.to_vec() });
        match peer.act(&Action::Commit { path: path(dir, n) }) {
            Ok(done) if done.verifier == wrote[n] => {
                wrong.push(format!(
                    "COMMIT of {}, which is lost, succeeds under the verifier of its WRITE",
                    NAMES[n]
                ));
            }
            Ok(_) | Err(Error::Nfs { .. }) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(wrong)
}

/// Writes the files; they cannot be written back, which somebody else is told; the kernel forgets them. Gives the verifiers.
fn lose(
    rig: &Rig,
    server: u32,
    peers: &mut [Peer; 2],
    dir: &str,
    places: &[u64],
) -> Result<[Option<[u8; 8]>; 2]> {
    for _ in 0..TRIES {
        let mut wrote = [None; 2];
        for (n, peer) in peers.iter_mut().enumerate() {
            let data: Bytes = contents(dir, n).iter().map(|byte| !byte).collect::<Vec<u8>>().into();
            let done = peer.act(&Action::Write { path: path(dir, n), offset: 0, data, stable: false })?;
            wrote[n] = done.verifier;
        }
        for n in 0..NAMES.len() {
            wait_closed(server, &local(rig, dir, n))?;
        }
        for at in places {
            rig.control_data(&format!("fail=write:from={at}:to={}", at + BLOCK_BYTES as u64))?;
        }
        let mut lost = 0;
        for n in 0..NAMES.len() {
            let file = local(rig, dir, n);
            let stranger = File::open(&file).context(|| format!("open {}", file.display()))?;
            lost += usize::from(fdatasync(&stranger).is_err());
            fadvise(&stranger, 0, None, Advice::DontNeed).context(|| "fadvise".to_owned())?;
        }
        rig.control_data("mend")?;
        if lost == NAMES.len() {
            return Ok(wrote);
        }
    }
    Err(Error::Unable(format!("data was written back before it could fail, {TRIES} times")))
}

/// Waits until a process has a file open for writing no longer.
fn wait_closed(process: u32, file: &Path) -> Result<()> {
    let begun = Instant::now();
    let is_open = || {
        let found = is_open_for_writing(process, file).map_err(std::io::Error::other);
        found.context(|| format!("look at the files of process {process}"))
    };
    while is_open()? {
        if begun.elapsed() > CLOSED_MAX {
            return Err(Error::Unable(format!("the server keeps {} open", file.display())));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

fn is_open_for_writing(process: u32, file: &Path) -> procfs::ProcResult<bool> {
    let open = Process::new(process.cast_signed())?.fd()?;
    // A file that is closed between two looks is an error of its own, and does not count.
    Ok(open.flatten().any(|fd| {
        fd.mode().contains(FDPermissions::WRITE) && matches!(&fd.target, FDTarget::Path(path) if path == file)
    }))
}
