//! Work that waits for the server, and what its answer gives to the kernel.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use fuser::Request;

use super::files::Opened;
use super::shared::Shared;
use super::xattrs::Answer;
use super::{Mount, callers, dirs, files, locks};
use crate::core::Ino;
use crate::core::attrs::Attrs;
use crate::errno::Errno;
use crate::remote::Room;
use crate::tasks::Work;

impl Mount {
    /// Does something that waits for the server, and answers. A caller who is killed meanwhile gets EINTR, so that it can end; the work
    /// goes on, and what comes of it is given back.
    pub(super) fn run<T, F, A>(&self, req: &Request, work: F, answer: A)
    where
        T: Given,
        F: Future<Output = Result<T, Errno>> + Send + 'static,
        A: FnOnce(Result<T, Errno>) + Send + 'static,
    {
        let (shared, pid) = (self.shared.clone(), req.pid());
        self.spawn(answered(shared, pid, Box::pin(work), Box::new(answer)));
    }
}

/// One for each type of answer, whatever work it comes from.
async fn answered<T: Given>(
    shared: Arc<Shared>,
    pid: u32,
    work: Work<Result<T, Errno>>,
    answer: Box<dyn FnOnce(Result<T, Errno>) + Send>,
) {
    let mut work = tokio::spawn(work);
    let killed = tokio::select! {
        biased;
        done = &mut work => {
            answer(done.unwrap_or(Err(Errno::IO)));
            return;
        }
        () = callers::killed(pid) => answer,
    };
    killed(Err(Errno(libc::EINTR)));
    if let Ok(Ok(given)) = work.await {
        given.give_back(&shared);
    }
}

/// What an answer gives to the kernel, which gives it back one day.
pub(super) trait Given: Send + 'static {
    /// The kernel did not get it.
    fn give_back(self, _: &Arc<Shared>)
    where
        Self: Sized,
    {
    }
}

impl Given for () {}
impl Given for Attrs {}
impl Given for usize {}
impl Given for Bytes {}
impl Given for Room {}
impl Given for u64 {}
impl Given for Vec<dirs::Item> {}
impl Given for Option<locks::Wanted> {}

/// Errors that nobody has heard of stand for whoever asks next.
impl Given for Answer {
    fn give_back(self, shared: &Arc<Shared>) {
        self.failures.into_iter().for_each(|failures| shared.give_failures_back(failures));
    }
}

impl Given for Option<(Ino, Attrs)> {
    fn give_back(self, shared: &Arc<Shared>) {
        if let Some((ino, _)) = self {
            shared.tree().forget(ino, 1);
        }
    }
}

impl Given for Opened {
    fn give_back(self, shared: &Arc<Shared>) {
        files::give_back(shared, self.number);
    }
}

impl Given for (Attrs, Ino, Opened) {
    fn give_back(self, shared: &Arc<Shared>) {
        self.2.give_back(shared);
        shared.tree().forget(self.1, 1);
    }
}
