//! The caller of a COMPOUND, where that is not the session's own identity. It belongs to the task that executes the COMPOUND, with all
//! that the COMPOUND becomes in versions 3 and 4.0. What the session does for itself is done under its own identity.

use std::future::Future;

use landfast_rpc::OpaqueAuth;

tokio::task_local! {
    static CALLER: OpaqueAuth;
}

/// Runs `work` for `caller`; `None`: for the session itself.
pub(crate) async fn under<T>(caller: Option<OpaqueAuth>, work: impl Future<Output = T>) -> T {
    match caller {
        Some(caller) => CALLER.scope(caller, work).await,
        None => work.await,
    }
}

/// The caller for whom this task works.
pub(crate) fn current() -> Option<OpaqueAuth> {
    CALLER.try_with(OpaqueAuth::clone).ok()
}
