//! `--resume JOURNAL`: shared by `untar`, `cp` and `rm`.

use crate::process::umask;
use crate::units::show_count;
use landfast_client::NfsUrl;
use landfast_client::resume::{Job, JournalFile, JournalStart, Resume, ResumeError};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

pub enum Start {
    Without,
    With(Arc<Resume>),
    /// An earlier run has completed the job, with this many objects.
    Finished(u64),
}

/// Begins `job` in the journal, or continues it. `facts` are stored when the job begins.
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
    pub fn journal(&self) -> Option<Arc<Resume>> {
        match self {
            Start::With(resume) => Some(resume.clone()),
            Start::Without | Start::Finished(_) => None,
        }
    }
}

/// The message for a job that is complete.
pub fn finished(path: &Path, done: u64) -> String {
    format!(
        "nothing to do: according to {} everything is done ({} objects)",
        path.display(),
        show_count(done)
    )
}

/// A job of this command by this user.
pub fn job(command: &str) -> Job {
    let user = landfast_client::cred::Identity::of_process().uid;
    Job::new(command).about("user", user.to_string())
}

/// The same for a command that makes files, which depend on the umask.
pub fn file_job(command: &str) -> Job {
    job(command).about("umask", format!("{:04o}", umask()))
}

/// A file on a server, however its URL was typed. The version by which it is reached makes no difference.
pub fn url_key(url: &NfsUrl) -> String {
    let path: String = url.path.iter().map(|name| format!("/{}", name.escape_ascii())).collect();
    let ids = [("uid", url.uid), ("gid", url.gid)].into_iter();
    let ids: String = ids.filter_map(|(name, id)| id.map(|id| format!(" {name}={id}"))).collect();
    format!("nfs://{}:{}{path}{ids}", url.host, url.port)
}

/// A path of this machine, however it was typed.
pub fn path_key(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.as_os_str().as_bytes().escape_ascii().to_string()
}

/// An operand that is a URL or a path.
pub fn operand_key(text: &str) -> String {
    match text.parse::<NfsUrl>() {
        Ok(url) => url_key(&url),
        Err(_) => path_key(Path::new(text)),
    }
}
