//! Tasks of one type: the runtime's own code for a task is compiled once, and not once for each kind of work.

use std::future::Future;
use std::pin::Pin;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

pub(crate) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Starts a task on the runtime that polls the caller.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    spawn_on(&Handle::current(), work)
}

pub(crate) fn spawn_on(runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    let work: Work<()> = Box::pin(work);
    runtime.spawn(work)
}
