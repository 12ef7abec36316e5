//! The archive that is extracted, before and while it is read.

use super::options::PutOptions;
use super::report::{FatalError, Progress};
use super::source::{self, Event, Reading, Source};

pub(super) enum Input {
    Reading(Reading),
    /// Not opened yet: the destination is examined first, for the results of an earlier run.
    Unopened(Source),
}

impl Input {
    pub(super) async fn of(
        options: &PutOptions,
        source: Source,
        progress: &dyn Progress,
    ) -> Result<Input, FatalError> {
        match options.resume.as_ref().is_some_and(|resume| resume.has_earlier_run()) {
            true => Ok(Input::Unopened(source)),
            false => Ok(Input::Reading(begin(options, source, progress).await?)),
        }
    }
}

/// Starts reading.
pub(super) async fn begin(
    options: &PutOptions,
    source: Source,
    progress: &dyn Progress,
) -> Result<Reading, FatalError> {
    let name = source.name();
    let mut reading = source::start(source, &options.tuning, options.resume.clone())
        .map_err(|e| FatalError::Reader(e.to_string()))?;
    match reading.events.recv().await {
        Some(Event::Opened(size)) => {
            progress.opened(size);
            Ok(reading)
        }
        Some(Event::End(Some(source))) => Err(FatalError::Archive { name, source }),
        _ => Err(FatalError::Reader(name)),
    }
}
