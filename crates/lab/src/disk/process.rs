//! An emulated disk in a process of its own, started and controlled by the lab.

use super::DiskOptions;
use super::ctl::{self, DiskStats};
use crate::child::{self, Child, Role};
use crate::error::{Context, Result};
use std::path::{Path, PathBuf};

/// A running emulated disk. Dropping it unmounts it and ends its process.
#[derive(Debug)]
pub struct DiskProcess {
    at: PathBuf,
    child: Child,
}

impl DiskProcess {
    /// Starts a disk and waits until it is mounted.
    /// Errors: When the process cannot be started or fails, with what it said.
    pub fn start(mut options: DiskOptions) -> Result<Self> {
        options.apart = true;
        std::fs::create_dir_all(&options.mountpoint)
            .context(|| format!("create {}", options.mountpoint.display()))?;
        let at = options.mountpoint.clone();
        ctl::parse(&options.settings)?;
        let mut child = Child::start("disk", Role::Disk(options), child::Output::Inherit)?;
        child.wait_ready()?;
        Ok(DiskProcess { at, child })
    }

    /// The file that behaves like a block device.
    pub fn image(&self) -> PathBuf {
        self.at.join("disk.img")
    }

    /// The mount with `disk.img`, `stats` and `ctl`.
    pub fn mountpoint(&self) -> &Path {
        &self.at
    }

    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    pub fn stats(&self) -> Result<DiskStats> {
        let path = self.at.join("stats");
        let text = std::fs::read_to_string(&path).context(|| format!("read {}", path.display()))?;
        Ok(DiskStats::parse(&text))
    }

    pub fn control(&self, words: &str) -> Result<()> {
        ctl::parse(words)?;
        let path = self.at.join("ctl");
        std::fs::write(&path, words).context(|| format!("write {words:?} to {}", path.display()))
    }

    pub fn cut(&self) -> Result<()> {
        self.control("cut")
    }

    pub fn power_on(&self) -> Result<()> {
        self.control("on")
    }
}

impl Drop for DiskProcess {
    fn drop(&mut self) {
        // When something still holds the mount it goes lazily, with errors for who holds it.
        if crate::mounts::unmount(&self.at).is_err() {
            let _ = crate::mounts::unmount_lazily(&self.at);
        }
        self.child.stop();
        let _ = std::fs::remove_dir(&self.at);
    }
}
