//! `--resume JOURNAL`: what `untar`, `cp` and `rm` have in common of it.

use crate::process::umask;
use crate::units::show_count;
use landfast_client::NfsUrl;
use landfast_client::resume::{Job, JournalFile, JournalStart, Resume, ResumeError};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// What a journal has to say at the beginning.
pub enum Start {
    /// No journal was asked for.
    Without,
    /// Begin, or go on.
    With(Arc<Resume>),
    /// So many objects were done, and nothing is left.
    Finished(u64),
}

/// Begins `job` in the journal, if there is one, or goes on with it. `facts` are kept of a job that begins.
///
/// # Errors
/// That of the journal.
pub fn begin(
    journal: Option<JournalFile>,
    job: Job,
    facts: BTreeMap<String, String>,
) -> Result<Start, ResumeError> {
    let Some(journal) = journal else { return Ok(Start::Without) };
    Ok(match journal.begin(job, facts)? {
        JournalStart::Go(resume) => Start::With(resume),
        JournalStart::Finished { done, .. } => Start::Finished(done),
    })
}

impl Start {
    /// The journal that is written.
    pub fn journal(&self) -> Option<Arc<Resume>> {
        match self {
            Start::With(resume) => Some(resume.clone()),
            Start::Without | Start::Finished(_) => None,
        }
    }
}

/// What is said when nothing is left to do.
pub fn finished(path: &Path, done: u64) -> String {
    format!("nothing is left to do: {} says that all of it is done ({})", path.display(), show_count(done))
}

/// A job of this command by this user.
pub fn job(command: &str) -> Job {
    let user = landfast_client::cred::Identity::of_process().uid;
    Job::new(command).about("user", user.to_string())
}

/// The same of one that makes files.
pub fn making_job(command: &str) -> Job {
    job(command).about("umask", format!("{:04o}", umask()))
}

/// A directory or file of a server, however its URL was typed. By which version it is reached makes no difference.
pub fn there(url: &NfsUrl) -> String {
    let path: String = url.path.iter().map(|name| format!("/{}", name.escape_ascii())).collect();
    let ids = [("uid", url.uid), ("gid", url.gid)].into_iter();
    let ids: String = ids.filter_map(|(name, id)| id.map(|id| format!(" {name}={id}"))).collect();
    format!("nfs://{}:{}{path}{ids}", url.host, url.port)
}

/// A path of this machine, however it was typed.
pub fn here(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.as_os_str().as_bytes().escape_ascii().to_string()
}

/// An operand that may be either.
pub fn either(text: &str) -> String {
    match text.parse::<NfsUrl>() {
        Ok(url) => there(&url),
        Err(_) => here(Path::new(text)),
    }
}
