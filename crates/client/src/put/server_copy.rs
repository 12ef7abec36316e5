//! Files that the server copies itself, one at a time: large ones, and those that could not share a COMPOUND.

use std::sync::Arc;

use landfast_nfs::v4::flags::OPEN4_SHARE_ACCESS_READ;

use super::existing::Existing;
use super::pieces;
use super::plan::{Leftover, SlowDone, SlowTask};
use super::report::{Cause, MemberError};
use super::stepwise::{self, WriteMode};
use super::trouble::Trouble;
use crate::fs::StepError;
use crate::fs::open_file::{self, OpenFile};
use crate::fs::server_copy::{self, CopyMethod, Original, Stable};
use crate::resume::Part;
use crate::session::Session;

impl Stable for Option<Part> {
    fn from(&self) -> u64 {
        self.as_ref().map_or(0, Part::from)
    }

    fn note(&mut self, fh: &[u8], upto: u64) {
        if let Some(part) = self {
            part.stable(fh, upto, None);
        }
    }
}

pub(super) async fn extract<P>(
    session: &Session,
    task: &SlowTask<P>,
    original: &Original,
    existing: Existing,
    part: &mut Option<Part>,
) -> Result<SlowDone, Trouble> {
    match &task.leftover {
        Leftover::Nothing => {}
        Leftover::Incomplete(fh, attrs) => {
            stepwise::set_last(session, fh, attrs).await?;
            return Ok(SlowDone::Done);
        }
        Leftover::Opened(fh, stateid) => open_file::close(session, fh, *stateid).await,
    }
    // Open the source before the destination is changed.
    let source = match original.way() {
        CopyMethod::Read => None,
        CopyMethod::Clone | CopyMethod::Copy => match open_source(session, task.id.0, original).await {
            Ok(source) => Some(source),
            Err(e) => {
                if matches!(task.leftover, Leftover::Opened(..)) {
                    stepwise::remove(session, &task.dir, &task.name).await?;
                }
                return Err(e);
            }
        },
    };
    let done = beside(session, task, (original, source.as_ref()), existing, part).await;
    if let Some(source) = source {
        open_file::close(session, &source.fh, source.stateid()).await;
    }
    done
}

async fn beside<P>(
    session: &Session,
    task: &SlowTask<P>,
    (original, source): (&Original, Option<&OpenFile>),
    existing: Existing,
    part: &mut Option<Part>,
) -> Result<SlowDone, Trouble> {
    let unfinished = (part.as_ref(), original.size);
    let Some((file, write_mode)) = pieces::open_part(session, task, existing, unfinished).await? else {
        return Ok(SlowDone::Skipped);
    };
    let file = Arc::new(file);
    let done = match server_copy::fill(session, &file, source, original, part).await {
        Ok(()) => stepwise::finish(session, &file, task, None).await,
        Err(e) => Err(e.into()),
    };
    pieces::close(session, &file).await;
    if let Err(Trouble::Refused(why)) = &done
        && matches!(why.cause, Cause::Uncloned)
        && write_mode != WriteMode::Overwrite
    {
        // Remove the file that was made for the copy, as GNU cp does.
        stepwise::remove(session, &task.dir, &task.name).await?;
    }
    done.map(|()| SlowDone::Done)
}

async fn open_source(session: &Session, number: u32, original: &Original) -> Result<OpenFile, Trouble> {
    match open_file::open_as(session, original.fh.clone(), OPEN4_SHARE_ACCESS_READ, u64::from(number)).await {
        Err(StepError::Op(e)) => Err(Trouble::Refused(MemberError {
            status: Some(e.status()),
            ..MemberError::new(Cause::Unopened, e.to_string())
        })),
        other => Ok(other?),
    }
}
