//! What slows a server down: a disk with chosen latencies under its files, and a processor that it does not get.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::guest::disk::Disk;
use crate::proc::{command, run};

/// Bytes of a volume; the emulated disk takes its memory as it is written.
const VOLUME_BYTES: u64 = 400 << 20;

/// A filesystem on an emulated disk, mounted for the life of the mount namespace.
pub struct Volume {
    /// The disk below.
    pub disk: Disk,
    /// Where it is mounted.
    pub path: PathBuf,
}

impl Volume {
    /// Makes one in `dir`, mounted with these options.
    pub fn new(binary: &Path, dir: &Path, fs_type: &str, options: &str) -> Result<Volume, String> {
        let path = dir.join(fs_type);
        fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let disk = Disk::start(binary, &dir.join(format!("{fs_type}.disk")), VOLUME_BYTES, "flush_us=0")?;
        run(command(&format!("mkfs.{fs_type}"), ["-q"]).arg(disk.image()))?;
        let options = format!("loop{options}");
        run(command("mount", ["-o", &options, "-t", fs_type]).arg(disk.image()).arg(&path))?;
        Ok(Volume { disk, path })
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Before the disk goes; if a server still runs, the namespace's end does it.
        if let Err(why) = run(command("umount", ["--lazy"]).arg(&self.path)) {
            eprintln!("{why}");
        }
    }
}

/// Takes the processor away from a process again and again, until it is dropped.
pub struct Starved {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Starved {
    /// It stands still for this long, then runs for that long.
    pub fn new(process: u32, still: Duration, runs: Duration) -> Option<Starved> {
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw)?;
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let stopped = kill_process(pid, Signal::STOP);
                std::thread::sleep(still);
                if kill_process(pid, Signal::CONT).and(stopped).is_err() {
                    return;
                }
                std::thread::sleep(runs);
            }
        });
        Some(Starved { over, thread: Some(thread) })
    }
}

impl Drop for Starved {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It only sends signals.
            let _ = thread.join();
        }
    }
}
