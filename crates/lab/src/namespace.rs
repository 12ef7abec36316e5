//! A private mount namespace for a whole run of the lab.
//!
//! All that a run mounts is seen only by the thread that runs it and by the threads and processes
//! it starts. When they have gone, however they went, so have the mounts.

use crate::error::{Context, Result};
use crate::sys;
use rustix::mount::MountPropagationFlags;

/// Runs `work` on a thread of its own in a private mount namespace; in the common one, with a
/// warning, where the machine does not allow that.
/// Errors: When the thread cannot be started.
///
/// # Panics
/// When `work` panics, with its panic.
pub fn run_private<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let body = || {
            if let Err(e) = enter() {
                tracing::warn!("no private mount namespace: {e}");
            }
            work()
        };
        let thread = std::thread::Builder::new().name("lab".into());
        let running = thread.spawn_scoped(scope, body).context(|| "start a thread".to_owned())?;
        match running.join() {
            Ok(done) => Ok(done),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn enter() -> Result<()> {
    sys::unshare_mounts().context(|| "unshare".to_owned())?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).context(|| "make mounts private".to_owned())
}
