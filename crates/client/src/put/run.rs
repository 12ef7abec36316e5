//! An extraction from its beginning to its end.

use std::sync::Arc;
use std::time::Instant;

use landfast_nfs::v4::FileHandle;

use super::capacity::enough;
use super::early_results::EarlyResults;
use super::engine::extract;
use super::input::Input;
use super::options::PutOptions;
use super::report::{FatalError, Progress, Report, finished};
use super::source::Source;
use super::start::start;
use crate::here::Here;
use crate::session::{Session, SessionOptions};
use crate::url::NfsUrl;

/// Puts the members of `source` into the directory that `url` names.
///
/// Returns when each member is durable or has failed. The report lists failed members. Needs a Tokio runtime with time and
/// I/O.
///
/// # Errors
/// [`FatalError`] when nothing was extracted: the archive, the server or the destination is missing.
pub async fn run(
    options: PutOptions,
    source: impl Into<Source>,
    url: &NfsUrl,
    progress: Arc<dyn Progress>,
) -> Result<Report, FatalError> {
    let mut session_options = SessionOptions::for_url(url);
    session_options.connections = url.nconnect.unwrap_or(options.tuning.connections).max(1);
    run_as(options, session_options, source, url, progress).await
}

/// As [`run`], with other session options.
pub async fn run_as(
    options: PutOptions,
    session_options: SessionOptions,
    source: impl Into<Source>,
    url: &NfsUrl,
    progress: Arc<dyn Progress>,
) -> Result<Report, FatalError> {
    let started = start(options, session_options, source.into(), &url.path, progress).await?;
    let (session, at) = (started.session().clone(), started.at);
    let done = started.go_on().await;
    session.clone().destroy().await;
    done.map(|mut report| {
        report.measure(at, &session.stats());
        report
    })
}

/// As [`run`], over an existing session, into the directory `root`. The report counts all RPCs of the session.
pub fn run_in(
    options: PutOptions,
    session: &Session,
    root: FileHandle,
    source: Source,
    progress: Arc<dyn Progress>,
) -> Here<'_, Result<Report, FatalError>> {
    Box::pin(put(options, session, root, source, progress))
}

async fn put(
    options: PutOptions,
    session: &Session,
    root: FileHandle,
    source: Source,
    progress: Arc<dyn Progress>,
) -> Result<Report, FatalError> {
    enough(session)?;
    let input = Input::of(&options, source, &*progress).await?;
    let start = Instant::now();
    let (mut report, fatal) =
        extract(session, root, EarlyResults::default(), &options, input, progress).await;
    report.measure(start, &session.stats());
    finished(report, fatal)
}
