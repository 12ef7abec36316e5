//! The request to stop ([`super::PutOptions::stop`]).

use tokio::sync::watch;

use super::report::FatalError;

/// Waits for the request to stop.
pub(super) async fn stopped(stop: &mut Option<watch::Receiver<bool>>) {
    if let Some(stop) = stop
        && stop.wait_for(|stop| *stop).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Runs `work`, but drops it when the request to stop comes.
pub(super) async fn unless_stopped<T>(
    stop: &mut Option<watch::Receiver<bool>>,
    work: impl Future<Output = Result<T, FatalError>>,
) -> Result<T, FatalError> {
    tokio::select! {
        () = stopped(stop) => Err(FatalError::Stopped),
        done = work => done,
    }
}
