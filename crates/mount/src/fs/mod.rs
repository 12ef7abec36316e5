//! The kernel's requests. What memory can answer is answered at once, by the thread that has read the request; all else becomes a task,
//! so that one that waits for the server holds up no other.
//!
//! | file | subject |
//! |---|---|
//! | `agreed` | what is agreed with the kernel when the mount begins |
//! | `requests` | each of the kernel's requests, and who does it |
//! | `given`, `reply` | work that waits for the server; answers |
//! | `convert` | the kernel's types |
//! | `callers` | who asks |
//! | `ahead` | data that came with an open |
//! | `shared` | what all requests share, and the order of locks |
//! | `hidden` | files that are removed and still open |
//! | `held_locks` | what the server has of a file's locks |
//! | `look` | attributes, asked of the server |
//! | `flush` | sending what is held back |
//! | `local` | changes that are made here, in directories of this mount's own |
//! | `lanes`, `changes` | changes on their way, and waiting for them |
//! | `delegations` | of directories: asked for, recalled, returned |
//! | `flusher` | sending changes |
//! | `ranges` | space, holes, copies by the server |
//! | `conflict` | what somebody else's changes have come before |
//! | `read` | reading, over what is on its way |
//! | `room` | room at the server for what programs are told is done |
//! | `surplus` | having the kernel forget files |
//! | `kernel` | what stands for the kernel in the simulation |
//! | `names`, `files`, `write`, `dirs`, `locks`, `xattrs`, `status` | families of requests |

mod agreed;
mod ahead;
mod callers;
mod changes;
mod conflict;
mod convert;
mod delegations;
mod dirs;
mod files;
mod flush;
mod flusher;
mod given;
mod held_locks;
mod hidden;
#[cfg(test)]
pub(crate) mod kernel;
mod lanes;
mod local;
mod locks;
mod look;
mod names;
mod ranges;
mod read;
mod reply;
mod requests;
mod room;
mod shared;
mod status;
mod surplus;
mod write;
mod xattrs;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use landfast_nfs::v4::FileHandle;
use parking_lot::Mutex;
use tokio::runtime::Handle as Runtime;

use crate::core::attrs::Attrs;
use crate::options::Options;
use crate::remote::Remote;
use crate::tasks;
use shared::Shared;

/// The filesystem. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Mount {
    shared: Arc<Shared>,
    /// Open directories.
    dirs: Arc<Mutex<HashMap<u64, Arc<dirs::DirHandle>>>>,
}

impl Mount {
    /// `root`: the directory on the server that becomes the top. `unique`: a number that no other mount has.
    pub(crate) fn new(
        remote: Remote,
        options: Options,
        runtime: Runtime,
        root: (FileHandle, Attrs),
        unique: u64,
    ) -> Mount {
        let shared = Arc::new(Shared::new(remote, options, runtime, root, unique));
        tasks::spawn_on(&shared.runtime, flush::clean(Arc::downgrade(&shared)));
        tasks::spawn_on(&shared.runtime, surplus::give_back(Arc::downgrade(&shared)));
        shared.runtime.block_on(flusher::start(&shared));
        Mount { shared, dirs: Arc::default() }
    }

    pub(crate) fn set_notifier(&self, notifier: fuser::Notifier) {
        // A second one would be of the same session.
        let _ = self.shared.notifier.set(notifier);
    }

    /// After the kernel's last request: makes everything stable, and closes what is open. A file that was removed while it was open goes.
    pub(crate) async fn end(&self) {
        flush::send_all(&self.shared).await;
        files::release_all(&self.shared).await;
    }

    /// Paths whose data was lost and that nobody has asked for.
    pub(crate) fn failures(&self) -> (Vec<String>, u64) {
        let failures = self.shared.tell_failures();
        (failures.named, failures.more)
    }

    pub(crate) async fn disconnect(&self) {
        delegations::give_all_back(&self.shared).await;
        self.shared.remote.session().clone().destroy().await;
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(&self, work: F) {
        tasks::spawn_on(&self.shared.runtime, work);
    }
}
