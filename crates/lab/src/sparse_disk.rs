//! A filesystem on a sparse file of this machine's own disk: for trees that are too large for memory.

use crate::error::{Context, Result};
use crate::loopdev::LoopDevice;
use crate::mounts::{Filesystem, Mount};
use std::path::Path;

/// The least size of an image, in bytes.
const IMAGE_BYTES_MIN: u64 = 4 << 30;

/// An XFS, which makes inodes as they are needed. Dropping it takes it away.
#[derive(Debug)]
pub struct SparseDisk {
    // The order of the fields is the order in which they go.
    mount: Mount,
    _device: LoopDevice,
}

impl SparseDisk {
    /// Makes one of so many bytes at least; its image lies in `dir`. Call it on a thread of [`crate::namespace::run_private`].
    pub fn new(dir: &Path, bytes: u64) -> Result<Self> {
        let image = dir.join("image");
        let made = std::fs::File::create(&image).and_then(|file| file.set_len(bytes.max(IMAGE_BYTES_MIN)));
        made.context(|| format!("make {}", image.display()))?;
        let device = LoopDevice::attach(&image)?;
        Filesystem::Xfs.make(device.path())?;
        let mount = Mount::new(device.path(), &dir.join("fs"), Filesystem::Xfs)?;
        Ok(SparseDisk { mount, _device: device })
    }

    pub fn path(&self) -> &Path {
        self.mount.path()
    }
}
