//! Loop devices: a block device on a file of an emulated disk.
//!
//! Always with direct I/O (the emulated disk must see each write and flush as it comes), and
//! always set to clear itself at its last close, so that a lab that was killed leaves none behind.

use crate::error::{Context, Error, Result};
use crate::limits::LOOP_TRIES;
use crate::sys;
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const LOOP_MAJOR: u32 = 7;

/// A loop device. Dropping it takes it off its file.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    device: File,
}

impl LoopDevice {
    /// Puts a free loop device on `image`.
    /// Errors: Not root, no loop devices in this kernel or container, or `image` cannot do direct I/O.
    pub fn attach(image: &Path) -> Result<Self> {
        let backing = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(image)
            .context(|| format!("open {} for direct I/O", image.display()))?;
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/loop-control")
            .context(|| "open /dev/loop-control".to_owned())?;
        for _ in 0..LOOP_TRIES {
            let number = sys::loop_free(&control).context(|| "find a free loop device".to_owned())?;
            let path = node(number)?;
            let device = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .context(|| format!("open {}", path.display()))?;
            match sys::loop_configure(&device, backing.as_raw_fd()) {
                Ok(()) => return Ok(LoopDevice { path, device }),
                // Somebody was quicker: ask for another one.
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {}
                Err(source) => {
                    let what = format!("put {} on {}", path.display(), image.display());
                    return Err(Error::Io { what, source });
                }
            }
        }
        Err(Error::Unable("other processes take every loop device first".into()))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // Cleared now, or by the kernel when a mount that still uses it goes.
        let _ = sys::loop_clear(&self.device);
    }
}

/// The device node of a loop device; made when the kernel has the device and /dev has no node for
/// it (a container without devtmpfs).
fn node(number: u32) -> Result<PathBuf> {
    let path = PathBuf::from(format!("/dev/loop{number}"));
    if !path.exists() {
        let dev = rustix::fs::makedev(LOOP_MAJOR, number);
        let mode = Mode::RUSR | Mode::WUSR;
        match rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::BlockDevice, mode, dev) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(e).context(|| format!("make {}", path.display())),
        }
    }
    Ok(path)
}
