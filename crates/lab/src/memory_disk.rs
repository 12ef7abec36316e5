//! A filesystem in memory: for experiments in which nothing is to wait for a disk.

use crate::error::{Context, Result};
use crate::loopdev::LoopDevice;
use crate::mounts::{Filesystem, Mount};
use crate::served::{Durability, ServeOptions, Served};
use std::path::{Path, PathBuf};

/// Size of the image of the filesystem: a sparse file.
const IMAGE_BYTES: u64 = 8 << 30;

/// A filesystem whose image lies in a tmpfs, with an empty directory `export` in it. Dropping it takes all of it away.
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
    /// Makes an ext4. Call it on a thread of [`crate::namespace::run_private`].
    pub fn new() -> Result<Self> {
        MemoryDisk::of(Filesystem::Ext4)
    }

    /// Makes a filesystem of this kind. XFS makes inodes as they are needed: it has room for millions of files and takes no memory for
    /// those that are not there.
    pub fn of(filesystem: Filesystem) -> Result<Self> {
        MemoryDisk::sized(filesystem, IMAGE_BYTES)
    }

    /// The same with so many bytes, of which memory is taken for those that are written.
    pub fn sized(filesystem: Filesystem, bytes: u64) -> Result<Self> {
        crate::rig::possible()?;
        let dir = tempfile::Builder::new()
            .prefix("landfast-memory-")
            .tempdir()
            .context(|| "make a temporary directory".to_owned())?;
        let memory = Mount::tmpfs(&dir.path().join("memory"))?;
        let image = memory.path().join("image");
        let made = std::fs::File::create(&image).and_then(|f| f.set_len(bytes));
        made.context(|| format!("make {}", image.display()))?;
        let device = LoopDevice::attach(&image)?;
        filesystem.make(device.path())?;
        // Not on a directory of the tmpfs: if the run is ended from outside, the kernel lets the tmpfs go with all that is mounted in it,
        // once its last user has gone. That would be the filesystem, whose image lies in it: both would stay for ever.
        let mount = Mount::new(device.path(), &dir.path().join("fs"), filesystem)?;
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

    /// Gives the memory of what was removed from the filesystem back.
    pub fn trim(&self) -> Result<()> {
        crate::mounts::syncfs(self.filesystem())?;
        let mut command = std::process::Command::new("fstrim");
        crate::mounts::run(command.arg(self.filesystem()), "util-linux").map(drop)
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
