//! The one directory in which a run of the lab has all of its own. A signal ends the run and leaves none of it behind.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

/// How often it is tried again to remove what others still write to.
const REMOVALS: usize = 100;

/// The directory; removed when dropped.
pub struct Scratch {
    _dir: TempDir,
    ended: Arc<AtomicBool>,
}

impl Scratch {
    /// All temporary directories of this process are in it from now on. To be called before the run enters a mount namespace of its
    /// own: what that mounts is not seen here, and nothing in it is removed.
    ///
    /// # Errors
    /// When it cannot be made, or signals cannot be waited for.
    pub fn new() -> io::Result<Scratch> {
        let dir = tempfile::Builder::new().prefix("landfast-").tempdir()?;
        // Only the first one of a process; there is one run.
        let _ = tempfile::env::override_temp_dir(dir.path());
        let ended = Arc::new(AtomicBool::new(false));
        remove_on_signals(dir.path(), ended.clone())?;
        Ok(Scratch { _dir: dir, ended })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The process ends in a moment, with the status of an interruption.
        while self.ended.load(Ordering::Acquire) {
            std::thread::park();
        }
    }
}

fn remove_on_signals(dir: &Path, ended: Arc<AtomicBool>) -> io::Result<()> {
    let dir = dir.to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate, mut hangup) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        ended.store(true, Ordering::Release);
        let removed = (0..REMOVALS).any(|_| std::fs::remove_dir_all(&dir).is_ok() || !dir.exists());
        match removed {
            true => eprintln!("landfast: interrupted: nothing of the run is left"),
            false => eprintln!("landfast: interrupted: {} could not be removed", dir.display()),
        }
        // The lab's processes end with the threads that started them.
        std::process::exit(130);
    })?;
    Ok(())
}
