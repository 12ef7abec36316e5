//! The request to stop ([`super::PutOptions::stop`]).

use tokio::sync::watch;

use super::report::FatalError;

/// Ends when it is asked to stop.
pub(super) async fn stopped(stop: &mut Option<watch::Receiver<bool>>) {
    if let Some(stop) = stop
        && stop.wait_for(|stop| *stop).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// What comes before anything is extracted ends when it is asked to stop.
pub(super) async fn unless_stopped<T>(
    stop: &mut Option<watch::Receiver<bool>>,
    work: impl Future<Output = Result<T, FatalError>>,
) -> Result<T, FatalError> {
    tokio::select! {
        () = stopped(stop) => Err(FatalError::Stopped),
        done = work => done,
    }
}
