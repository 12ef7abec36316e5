//! The scratch directory of a lab run. A signal ends the run and removes the directory.

use crate::signals::{INTERRUPTED, on_signals};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

/// How often to retry the removal while other processes still write to it.
const REMOVALS: usize = 100;

pub struct Scratch {
    _dir: TempDir,
    ended: Arc<AtomicBool>,
}

impl Scratch {
    /// From now on all temporary directories of this process are in it. Call this before the run enters its own mount
    /// namespace: mounts made there are not visible here, so that nothing in them is removed.
    pub fn new() -> Result<Scratch, String> {
        let made = tempfile::Builder::new().prefix("landfast-").tempdir();
        let dir = made.map_err(|e| format!("cannot make a scratch directory: {e}"))?;
        // Only the first override in a process works, and there is only one run.
        let _ = tempfile::env::override_temp_dir(dir.path());
        let ended = Arc::new(AtomicBool::new(false));
        remove_on_signals(dir.path(), ended.clone())?;
        Ok(Scratch { _dir: dir, ended })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The process is about to exit with the status of an interruption.
        while self.ended.load(Ordering::Acquire) {
            std::thread::park();
        }
    }
}

fn remove_on_signals(dir: &Path, ended: Arc<AtomicBool>) -> Result<(), String> {
    let dir = dir.to_owned();
    on_signals(move || {
        ended.store(true, Ordering::Release);
        let removed = (0..REMOVALS).any(|_| std::fs::remove_dir_all(&dir).is_ok() || !dir.exists());
        match removed {
            true => eprintln!("landfast: interrupted: all files of the run were removed"),
            false => eprintln!("landfast: interrupted: {} could not be removed", dir.display()),
        }
        // The lab's processes end with the threads that started them.
        std::process::exit(INTERRUPTED);
    })
}
