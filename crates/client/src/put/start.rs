//! An extraction that begins together with its session. The session's first request (or one request of an existing session) looks the
//! destination up and makes the directories that are certain to be needed. Files follow before its reply.
//!
//! Each of the three earns one round trip, whatever the size of the tree (`landfast lab run early-requests`): the lookup with
//! the session ([`Early::Destination`]), directories in that request (`early_dirs`), and files before its reply (`early_files`).
//! Together, against a session first, then the lookup, then directories, then files:
//!
//! | files | 1 ms | 10 ms | 50 ms |
//! |--:|--:|--:|--:|
//! | 100 | 1.4 times as fast | 1.9 | 2.0 |
//! | 4,096 | within noise | 1.3 | 1.6 |
//! | 32,768 | within noise | within noise | 1.03 |

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};
use landfast_nfs::v4::{ArgOp, CompoundRes, FileHandle, FileType, NfsTime, OpNum, ResBody, ResOp};
use tokio::time::timeout_at;

use super::attrs::AttrRules;
use super::capacity::{capacity, enough, window};
use super::early_dirs::EarlyDirs;
use super::early_files::EarlyFiles;
use super::early_results::EarlyResults;
use super::early_send;
use super::engine::extract;
use super::existing::{Existing, When, listed_attrs};
use super::input::Input;
use super::options::{Early, PutOptions, Xattrs};
use super::report::{FatalError, Progress, Report, finished};
use super::source::Source;
use super::stop::unless_stopped;
use crate::here::Here;
use crate::limits;
use crate::ops;
use crate::session::{FirstRequest, Session, SessionError, SessionLimits, SessionOptions, Trailing};
use crate::url::Version;

/// A session, and an extraction that began together with it.
pub struct Started {
    session: Session,
    options: PutOptions,
    input: Input,
    first: EarlyResults,
    destination: Result<FileHandle, FatalError>,
    progress: Arc<dyn Progress>,
    pub(super) at: Instant,
}

/// Makes a session and begins to put the members of `source` into the directory `path` of its server. If `path` cannot be resolved,
/// [`Started::destination`] is the error: nothing was extracted, and the session can be used for something else.
///
/// # Errors
/// [`FatalError`] when there is no archive or no session.
pub async fn start(
    options: PutOptions,
    session_options: SessionOptions,
    source: Source,
    path: &[Vec<u8>],
    progress: Arc<dyn Progress>,
) -> Result<Started, FatalError> {
    start_with(options, SessionSource::New(Box::new(session_options)), source, path, progress).await
}

/// The same over an existing session, which stays when this fails.
pub async fn start_in(
    options: PutOptions,
    session: &Session,
    source: Source,
    path: &[Vec<u8>],
    progress: Arc<dyn Progress>,
) -> Result<Started, FatalError> {
    start_with(options, SessionSource::Existing(session.clone()), source, path, progress).await
}

enum SessionSource {
    New(Box<SessionOptions>),
    Existing(Session),
}

fn start_with(
    options: PutOptions,
    session_from: SessionSource,
    source: Source,
    path: &[Vec<u8>],
    progress: Arc<dyn Progress>,
) -> Here<'_, Result<Started, FatalError>> {
    Box::pin(begin(options, session_from, source, path, progress))
}

async fn begin(
    options: PutOptions,
    session_from: SessionSource,
    source: Source,
    path: &[Vec<u8>],
    progress: Arc<dyn Progress>,
) -> Result<Started, FatalError> {
    let mut stop = options.stop.clone();
    let uid = match &session_from {
        SessionSource::New(options) => options.identity.uid,
        SessionSource::Existing(session) => session.options().identity.uid,
    };
    let is_new = matches!(session_from, SessionSource::New(_));
    let mut input = unless_stopped(&mut stop, Input::of(&options, source, &*progress)).await?;
    let at = Instant::now();
    let early = options.tuning.early;
    let mut asks = if early >= Early::Destination { ops::resolving(path) } else { Vec::new() };
    if !asks.is_empty() {
        if options.xattrs != Xattrs::No {
            asks.push(ArgOp::Getattr(Bitmap::of(&[number::XATTR_SUPPORT])));
        }
        asks.push(ops::listing(listed_attrs(options.existing)));
    }
    let mut results = EarlyResults::default();
    let mut early_dirs = EarlyDirs::default();
    let accessed = a_time()?;
    let mut rules = AttrRules::new(&options, uid == 0);
    if let (SessionSource::Existing(session), Input::Reading(reading)) = (&session_from, &mut input) {
        // What is read in the time of one round trip need not wait for two later on.
        let until = Instant::now() + session.response_time().min(limits::READ_FIRST_MAX);
        while results.events.len() < limits::MEMBERS_AHEAD
            && let Ok(Some(event)) = timeout_at(until.into(), reading.events.recv()).await
        {
            results.events.push(event);
        }
    }
    let mut trailing = |room: &SessionLimits, pipelined: bool| {
        let Input::Reading(reading) = &mut input else { return None };
        reading.take_ready(&mut results.events);
        let (dirs, body, ops) =
            EarlyDirs::of(&results.events, &mut rules, room, pipelined.then_some(accessed))?;
        early_dirs = dirs;
        Some((body, ops))
    };
    // What was not there before could not be told from what was, if the reply is lost.
    let makes = options.existing != Existing::Keep && early >= Early::Directories;
    let trailing = makes.then_some(&mut trailing as &mut Trailing<'_>);
    let first = FirstRequest { queries: &asks, trailing, connect_all: true };
    let connecting = async {
        Ok(match session_from {
            SessionSource::New(options) => Session::connect_with_reply(*options, first).await?,
            SessionSource::Existing(session) => {
                let reply = session.first_request(first).await;
                (session, reply)
            }
        })
    };
    let (session, mut reply) = unless_stopped(&mut stop, connecting).await?;
    let replaces = match options.existing {
        Existing::Look(over) => over.when == When::Always,
        _ => true,
    } && early >= Early::Files;
    let mut answer = match &mut input {
        Input::Reading(reading) if reply.is_pending() && replaces && enough(&session).is_ok() => {
            let mut early_files =
                EarlyFiles::new(&early_dirs, path, accessed, capacity(&session, &options.tuning));
            // The first request has a slot of its own.
            let slots = (session.limits().slots as usize).saturating_sub(1);
            let window = window(&session, &options.tuning).min(slots);
            let from = (reading, &mut results.events);
            let sending =
                early_send::send(&session, &mut early_files, &mut rules, from, window, &mut reply, &mut stop);
            let (sent, answer) = sending.await;
            (results.sent, results.number) = (sent, early_files.number);
            answer
        }
        _ => unless_stopped(&mut stop, async { Ok(reply.wait().await) }).await?,
    };
    let dirs = early_dirs.dirs.len();
    if let Some(reply) = &mut answer {
        let made = reply.results.split_off(reply.results.len().min(asks.len()));
        results.dirs = early_dirs.made(made);
        results.entries = ops::listed(reply);
        if options.xattrs != Xattrs::No {
            results.has_xattrs = told_of_xattrs(&session, &reply.results);
        }
    }
    if results.dirs.len() < dirs {
        // None of it was executed, unless nobody knows: then what is there is replaced.
        for sent in results.sent.drain(..) {
            let _ = sent.reply.await;
        }
    }
    let destination = match unless_stopped(&mut stop, open_destination(&session, path, answer)).await {
        Err(e @ (FatalError::Stopped | FatalError::Session(_))) => {
            if is_new {
                session.destroy().await;
            }
            return Err(e);
        }
        found => found,
    };
    Ok(Started { session, options, input, first: results, destination, progress, at })
}

impl Started {
    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The destination's handle.
    pub fn destination(&self) -> Result<&FileHandle, &FatalError> {
        self.destination.as_ref()
    }

    /// Extracts the rest; see [`super::run`]. The session stays.
    ///
    /// # Errors
    /// [`FatalError`] when nothing was extracted.
    pub fn go_on(self) -> Here<'static, Result<Report, FatalError>> {
        Box::pin(self.finish())
    }

    async fn finish(self) -> Result<Report, FatalError> {
        let Started { session, options, input, first, destination, progress, at } = self;
        let (mut report, fatal) = match destination {
            Err(e) => (Report::default(), Some(e)),
            Ok(root) => extract(&session, root, first, &options, input, progress).await,
        };
        report.measure(at, &session.stats());
        finished(report, fatal)
    }
}

/// Whether a destination that could be listed has extended attributes: what was asked before its listing.
fn told_of_xattrs(session: &Session, results: &[ResOp]) -> Option<bool> {
    let [.., asked, listing] = results else { return None };
    match &asked.body {
        _ if session.version() != Version::V42 => Some(false),
        ResBody::Getattr(attrs) if listing.op == OpNum::READDIR && listing.status.is_ok() => {
            Some(AttrValues::from_fattr(attrs).ok()?.xattr_support == Some(true))
        }
        _ => None,
    }
}

/// About now, at a random nanosecond, so that nothing else has this access time.
fn a_time() -> Result<NfsTime, FatalError> {
    let random = getrandom::u32().map_err(|e| SessionError::Unknown(format!("no random numbers: {e}")))?;
    let seconds = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs() as i64);
    Ok(NfsTime { seconds, nseconds: random % 1_000_000_000 })
}

/// The destination's handle.
async fn open_destination(
    session: &Session,
    path: &[Vec<u8>],
    answer: Option<CompoundRes>,
) -> Result<FileHandle, FatalError> {
    let server = session.server().to_owned();
    let shown = path.iter().map(|c| format!("/{}", c.escape_ascii())).collect::<String>();
    let shown = if shown.is_empty() { "/".to_owned() } else { shown };
    enough(session)?;
    match ops::resolve_from(session, path, answer).await {
        Ok((fh, attrs)) if attrs.kind == Some(FileType::Dir) => Ok(fh),
        Ok(_) => Err(FatalError::NotDirectory { server, path: shown }),
        Err(source) => Err(FatalError::Destination { server, path: shown, source }),
    }
}
