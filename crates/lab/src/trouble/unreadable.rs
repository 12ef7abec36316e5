//! A file whose first block cannot be read from the disk, and which nobody has in memory: its READ fails, nothing else does, and
//! when the disk can be read again so can the file.

use super::probe::DIR;
use crate::error::{Context, Error, Result};
use crate::powercut::peer::Peer;
use crate::rig::Rig;
use crate::serial::Action;
use landfast_nfs::v4::NfsStat;
use landfast_verify::rng::Rng;
use landfast_xdr::Bytes;

const NAME: &str = "unreadable";
/// More than a filesystem keeps inside an inode.
const FILE_BYTES: usize = 64 << 10;
/// The smallest block of the filesystems: ext4's on a small disk.
const BLOCK_BYTES: usize = 1024;

/// The file's contents: nothing else on the disk looks like them.
fn contents() -> Bytes {
    let mut data = vec![0; FILE_BYTES];
    Rng::new(FILE_BYTES as u64).fill(&mut data);
    data.into()
}

fn path() -> Vec<u8> {
    format!("{DIR}/{NAME}").into_bytes()
}

pub(super) fn prepare(peer: &mut Peer) -> Result<()> {
    peer.act(&Action::Create { path: path(), mode: 0o644 })?;
    peer.act(&Action::Write { path: path(), offset: 0, data: contents(), stable: true })?;
    Ok(())
}

/// From here on its first block cannot be read.
pub(super) fn strike(rig: &Rig) -> Result<()> {
    let export = rig.export();
    crate::mounts::syncfs(&export)?;
    let at = rig.find_data(&contents()[..BLOCK_BYTES])?;
    let at = at.ok_or_else(|| Error::Unable("a file that was synced is not on the disk".into()))?;
    rig.control_data(&format!("fail=read:from={at}:to={}", at + BLOCK_BYTES as u64))?;
    let file = export.join(DIR).join(NAME);
    let forget = || -> std::io::Result<()> {
        let file = std::fs::File::open(&file)?;
        Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
    };
    forget().context(|| file.display().to_string())
}

/// What is wrong while it cannot be read.
pub(super) fn refused(peer: &mut Peer) -> Option<String> {
    match read(peer) {
        Err(Error::Nfs { status: NfsStat::NFS4ERR_IO, .. }) => None,
        Err(e) => Some(format!("READ of what cannot be read is refused with {e}, not NFS4ERR_IO")),
        Ok(_) => Some("READ of what cannot be read succeeds".to_owned()),
    }
}

/// What is wrong when it can be read again.
pub(super) fn readable(peer: &mut Peer) -> Option<String> {
    match read(peer) {
        Ok(data) if data == contents()[..BLOCK_BYTES] => None,
        Ok(data) => Some(format!("what can be read again has other contents ({} bytes)", data.len())),
        Err(e) => Some(format!("what can be read again is not: {e}")),
    }
}

fn read(peer: &mut Peer) -> Result<Bytes> {
    let fh = peer.handle(&path())?;
    peer.read(&fh, 0, BLOCK_BYTES as u32)
}
