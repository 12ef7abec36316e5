//! A filesystem in memory: for experiments in which nothing is to wait for a disk.

use crate::error::{Context, Result};
use crate::loopdev::LoopDevice;
use crate::mounts::{Filesystem, Mount};
use crate::served::{Durability, ServeOptions, Served};
use std::path::{Path, PathBuf};

/// Size of the image of the filesystem: a sparse file.
const IMAGE_BYTES: u64 = 8 << 30;

/// An ext4 whose image lies in a tmpfs, with an empty directory `export` in it. Dropping it takes all of it away.
#[derive(Debug)]
pub struct MemoryDisk {
    // The order of the fields is the order in which they go.
    mount: Mount,
    _device: LoopDevice,
    memory: Mount,
    _dir: tempfile::TempDir,
    export: PathBuf,
}

impl MemoryDisk {
    /// Makes it. Call it on a thread of [`crate::namespace::run_private`].
    pub fn new() -> Result<Self> {
        crate::rig::possible()?;
        let dir = tempfile::Builder::new()
            .prefix("landfast-memory-")
            .tempdir()
            .context(|| "make a temporary directory".to_owned())?;
        let memory = Mount::tmpfs(&dir.path().join("memory"))?;
        let image = memory.path().join("image");
        let made = std::fs::File::create(&image).and_then(|f| f.set_len(IMAGE_BYTES));
        made.context(|| format!("make {}", image.display()))?;
        let device = LoopDevice::attach(&image)?;
        Filesystem::Ext4.make(device.path())?;
        let mount = Mount::new(device.path(), &memory.path().join("fs"), Filesystem::Ext4)?;
        let export = mount.path().join("export");
        std::fs::create_dir(&export).context(|| format!("create {}", export.display()))?;
        Ok(MemoryDisk { mount, _device: device, memory, _dir: dir, export })
    }

    pub fn export(&self) -> &Path {
        &self.export
    }

    /// A server of the directory, with a log of this size in memory.
    pub fn serve(&self, log_bytes: u64) -> Result<Served> {
        let log = self.scratch().join("log");
        let options = ServeOptions::new(self.export(), Some(&log), Durability::Log);
        Served::start(&ServeOptions { log_bytes: Some(log_bytes), ..options })
    }

    /// Where other files of the filesystem may be: beside the directory.
    pub fn filesystem(&self) -> &Path {
        self.mount.path()
    }

    /// A directory in memory for logs and other files of the run.
    pub fn scratch(&self) -> &Path {
        self.memory.path()
    }
}
