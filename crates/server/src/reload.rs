//! Reload: replaces the export table while the server runs.
//!
//! A new configuration takes effect as a whole or not at all. Everything that can fail (opening volumes, names,
//! overlaps) happens before the table is replaced. A volume in both tables is not touched. A volume only in the old
//! table is stopped when the last request that began with that table has ended.

use crate::config::{Config, ExportConfig};
use crate::exports::unavailable::Unavailable;
use crate::exports::{Export, Exports, Served, TableError};
use crate::limits;
use crate::own_files;
use crate::parallel;
use crate::running::Running;
use crate::shared::Shared;
use crate::state::notes::LogId;
use crate::unlinked;
use landfast_volume::log::capacity;
use landfast_volume::{OpenError, Overlap, RecoveryReport, THIS_PROCESS, Volume};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

const DRAIN: Duration = Duration::from_secs(10);
const DRAIN_LOOK: Duration = Duration::from_millis(5);
/// How long a reload waits for a log or a disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a reload failed. The old export table stays in force.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error("{}: {err}", path.display())]
    Open { path: PathBuf, err: OpenError },
    #[error(
        "{} lies within the export {} on the same filesystem, and each object belongs to one log: export one of them \
         only, or put one on a filesystem of its own",
        inner.display(), outer.display()
    )]
    Within { inner: PathBuf, outer: PathBuf },
    /// Files that only the server may see lie in an export; the text names them.
    #[error("{0}")]
    Exposed(String),
    #[error("{0}")]
    Clash(String),
    #[error("{0}: that needs a restart")]
    Restart(String),
    /// What clients may hold, which stands in each log, is more than fits into this one.
    #[error(
        "{}: its log has {} MiB, and clients may hold more than fits there, since the server started {}: make it larger (landfast log \
         resize), or restart the server",
        path.display(), bytes >> 20,
        started.map_or_else(|| "without a log".to_owned(), |least| format!("with logs of at least {} MiB", least >> 20))
    )]
    SmallLog {
        path: PathBuf,
        bytes: u64,
        /// Bytes of the smallest log at the start.
        started: Option<u64>,
    },
    #[error("the logs did not take within {} s what has to stand there before there is another log; try again", PATIENCE.as_secs())]
    LogsBusy,
    #[error("{}: {err}", path.display())]
    Look { path: PathBuf, err: landfast_volume::Error },
}

impl ReloadError {
    /// Why an export cannot be served, where messages name it anyway.
    fn why(&self) -> String {
        match self {
            ReloadError::Open { err, .. } => err.to_string(),
            other => other.to_string(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Directories that are newly served.
    pub added: Vec<PathBuf>,
    /// Directories that are no longer served.
    pub removed: Vec<PathBuf>,
    /// Changes in the file that take effect only after a restart.
    pub needs_restart: Vec<String>,
    /// Directories that cannot be served now, with the reason. Their clients wait.
    pub unavailable: Vec<(PathBuf, String)>,
    /// Volumes that did not stop cleanly, with the reason. Their next start recovers.
    pub not_clean: Vec<String>,
}

/// Why a volume was not opened. An overlap with another export of this server is reported as [`table`] reports it.
fn refused(path: &std::path::Path, err: OpenError) -> ReloadError {
    match err {
        OpenError::Within { dir, outer, holder: Some(holder) } if holder == THIS_PROCESS => {
            ReloadError::Within { inner: dir, outer }
        }
        OpenError::Around { dir, inner: Some(inner), holder } if holder == THIS_PROCESS => {
            ReloadError::Within { inner, outer: dir }
        }
        err => ReloadError::Open { path: path.to_owned(), err },
    }
}

/// Whether a volume was not opened because another export of this server has its directory. That is a mistake in the
/// configuration, which no repair of the volume can fix.
pub fn is_overlap(err: &OpenError) -> bool {
    match err {
        OpenError::Within { holder, .. } => holder.as_deref() == Some(THIS_PROCESS),
        OpenError::Around { holder, .. } => holder == THIS_PROCESS,
        _ => false,
    }
}

/// Logs that an export is not served.
pub(crate) fn say_unavailable(export: &Unavailable) {
    tracing::error!(
        "{} is NOT SERVED: {}. The other exports are; whoever uses this one waits until it has been mended and the \
         configuration is read again (SIGHUP)",
        export.path.display(),
        export.why
    );
}

/// Makes an export table, to replace `before`; an error if its volumes cannot be served side by side.
pub(crate) fn table(
    served: Vec<Served>,
    unavailable: Vec<Unavailable>,
    server: [u8; 16],
    before: Option<&Exports>,
) -> Result<Exports, ReloadError> {
    // One that is served already may have a disk that has failed since.
    let looked_at = |n: usize| before.is_some_and(|b| b.iter().any(|e| e.id() == served[n].volume.id()));
    let path = |n: usize| served[n].path.clone();
    let own_files::Looked { exposed, unseen } = own_files::look_at_open(&served);
    if let Some((_, why)) = exposed.into_iter().next() {
        return Err(ReloadError::Exposed(why));
    }
    // Nobody knows whether a new log lies in one that cannot be looked at.
    let new_log = (0..served.len()).any(|n| !looked_at(n) && served[n].volume.log_place().is_some());
    if let Some((n, err)) = unseen.into_iter().find(|(n, _)| new_log || !looked_at(*n)) {
        return Err(ReloadError::Open { path: path(n), err });
    }
    let volumes: Vec<_> = served.iter().map(|e| &e.volume).collect();
    let overlap = Volume::overlap(&volumes, looked_at);
    match overlap.map_err(|(n, err)| ReloadError::Look { path: path(n), err })? {
        Some(Overlap::Within { inner, outer }) => {
            return Err(ReloadError::Within { inner: path(inner), outer: path(outer) });
        }
        Some(Overlap::ShowsState { of, by }) => {
            return Err(ReloadError::Exposed(own_files::state_shown(&path(of), &path(by))));
        }
        None => {}
    }
    if let Some((a, b)) = Volume::on_one_filesystem(&volumes) {
        tracing::warn!(
            "{} and {} are on one filesystem: make no hard link from one to the other, and move no file that is in use, since each \
             log knows only what was done through its own export (docs/exports.md)",
            path(a).display(),
            path(b).display()
        );
    }
    let former = before.map(Exports::numbers).unwrap_or_default();
    Exports::new(served, unavailable, server, former).map_err(|e| match e {
        TableError::Names => {
            ReloadError::Clash("two exports have one name, or one lies below the other".into())
        }
        TableError::Number(a, b) => ReloadError::Clash(format!(
            "{} and {} have the same number by chance: move {0}/.landfast away to give it another",
            a.display(),
            b.display()
        )),
    })
}

/// An export that stays, with its new configuration. Adds to `needs_restart` what a reload cannot change.
fn kept(old: &Export, new: &ExportConfig, needs_restart: &mut Vec<String>) -> Served {
    let path = new.path.display();
    if old.volume.durability() != new.durability {
        needs_restart.push(format!("the durability of {path}"));
    }
    if old.volume.log_place() != new.log.as_ref() {
        needs_restart.push(format!("the log of {path}"));
    }
    // Another log takes effect at a restart.
    new.served(old.volume.clone(), RecoveryReport::default())
}

/// Starts volumes that have been opened. Returns those that did not start, by their numbers, and why.
pub(crate) fn start_volumes(sh: &Shared, volumes: &[Volume]) -> Vec<(usize, OpenError)> {
    let started = parallel::each(volumes, limits::EXPORTS_AT_ONCE, |volume| volume.start(sh.keeper(volume)));
    started.into_iter().enumerate().filter_map(|(n, started)| started.err().map(|err| (n, err))).collect()
}

impl Running {
    /// Puts `config` into force without losing a connection. `old` is the configuration in force, `open` opens a
    /// volume. After an error nothing has changed.
    ///
    /// It may be dropped while it waits. Then the server is to be stopped.
    pub async fn reload(
        &self,
        old: &Config,
        config: &Config,
        open: impl Fn(&ExportConfig) -> Result<(Volume, RecoveryReport), OpenError> + Send + Sync + 'static,
    ) -> Result<Reloaded, ReloadError> {
        let open = Arc::new(open);
        let before = self.sh.exports();
        let mut done = Reloaded::default();
        for (what, same) in [
            ("listen", old.listen == config.listen),
            ("lease", old.lease_seconds == config.lease_seconds),
            ("limits", (old.limits, old.workers) == (config.limits, config.workers)),
            ("metrics", old.metrics == config.metrics),
            ("protocols", old.protocols == config.protocols),
            ("rpcbind", old.rpcbind == config.rpcbind),
        ] {
            if !same {
                done.needs_restart.push(what.to_owned());
            }
        }
        let is_root = |e: &ExportConfig| e.name.parent().is_none();
        if config.exports.iter().any(is_root) != before.root().is_some() {
            return Err(ReloadError::Restart("an export becomes or ceases to be the root /".into()));
        }
        if is_root_moved(&before, config) {
            return Err(ReloadError::Restart("another export becomes the root /".into()));
        }
        // Checked before `open` makes a log there.
        let exports = config.exports.clone();
        let looked = spawn_blocking(move || own_files::look(&exports)).await;
        let own_files::Looked { exposed, mut unseen } = looked
            .map_err(|panic| ReloadError::Clash(format!("the exports cannot be looked at: {panic}")))?;
        if let Some((_, why)) = exposed.into_iter().next() {
            return Err(ReloadError::Exposed(why));
        }
        let mut served = Vec::with_capacity(config.exports.len());
        let mut unavailable = Vec::new();
        let mut new = Vec::new();
        // What could not be served before either is no reason to refuse the rest.
        let was_down = |path: &Path| before.down().any(|d| d.of.path == path);
        for (n, e) in config.exports.iter().enumerate() {
            if let Some(old) = before.iter().find(|old| old.path == e.path) {
                served.push(kept(old, e, &mut done.needs_restart));
                continue;
            }
            if self.sh.persist && e.log.is_none() {
                let what =
                    format!("{} has no log, and sessions were promised to survive a crash", e.path.display());
                return Err(ReloadError::Restart(what));
            }
            let opened = match unseen.remove(&n) {
                Some(err) => Err(err),
                None => {
                    let (open, e) = (open.clone(), e.clone());
                    let opened = spawn_blocking(move || open(&e)).await;
                    opened.unwrap_or_else(|panic| Err(OpenError::Failed(panic.to_string())))
                }
            };
            let overlaps = opened.as_ref().is_err_and(is_overlap);
            let opened = opened.map_err(|err| refused(&e.path, err)).and_then(|(volume, recovery)| {
                self.holds_all(&e.path, &volume)?;
                Ok((volume, recovery))
            });
            match opened {
                Ok((volume, recovery)) => {
                    new.push((e, volume.clone()));
                    served.push(e.served(volume, recovery));
                }
                Err(err) if !overlaps && was_down(&e.path) => unavailable.push(e.unavailable(&err.why())),
                Err(err) => return Err(err),
            }
        }
        if served.is_empty() && !unavailable.is_empty() {
            return Err(ReloadError::Clash("no export could be served".into()));
        }
        let table = |served: &[Served], unavailable: &[Unavailable]| {
            table(served.to_vec(), unavailable.to_vec(), self.sh.server, Some(&before))
        };
        let mut after = table(&served, &unavailable)?;
        let with_new = |new: &[(&ExportConfig, Volume)]| {
            let new = new.iter().filter(|(_, volume)| volume.keeps_notes()).map(|(_, volume)| volume.id());
            before.logs().into_iter().chain(new).collect::<Vec<_>>()
        };
        // Before the new ones have notes that no other log has.
        if new.iter().any(|(_, volume)| volume.keeps_notes()) {
            let logs = with_new(&new);
            if timeout(PATIENCE, self.sh.note_logs(&before, logs)).await.is_err() {
                return Err(self.gives_up(&before, ReloadError::LogsBusy).await);
            }
        }
        let (sh, volumes) =
            (self.sh.clone(), new.iter().map(|(_, volume)| volume.clone()).collect::<Vec<_>>());
        let failed = match spawn_blocking(move || start_volumes(&sh, &volumes)).await {
            Ok(failed) => failed,
            Err(panic) => {
                let err = ReloadError::Clash(format!("starting an export: {panic}"));
                return Err(self.gives_up(&before, err).await);
            }
        };
        let some_failed = !failed.is_empty();
        for (n, err) in failed {
            let (e, volume) = &new[n];
            if !was_down(&e.path) {
                return Err(self.gives_up(&before, ReloadError::Open { path: e.path.clone(), err }).await);
            }
            unavailable.push(e.unavailable(&err));
            served.retain(|s| s.volume.id() != volume.id());
        }
        if some_failed {
            after = match table(&served, &unavailable) {
                Ok(after) => after,
                Err(err) => return Err(self.gives_up(&before, err).await),
            };
        }
        new.retain(|(_, volume)| after.iter().any(|e| e.id() == volume.id()));
        unavailable.iter().for_each(say_unavailable);
        done.unavailable = unavailable.into_iter().map(|u| (u.path, u.why)).collect();
        done.added = new.iter().map(|(e, _)| e.path.clone()).collect();
        let gone: Vec<Arc<Export>> =
            before.iter().filter(|e| !after.iter().any(|a| a.id() == e.id())).cloned().collect();
        let all_logs = with_new(&new);
        gone.iter().for_each(|export| self.retiring.put(export.volume.clone()));
        self.sh.replace_exports(after);
        new.iter().for_each(|(_, volume)| unlinked::take_over(&self.sh, volume));
        drop(before);
        let removed = !gone.is_empty();
        for export in gone {
            done.removed.push(export.path.clone());
            if let Err(why) = self.retire(export).await {
                done.not_clean.push(why);
            }
        }
        if removed {
            done.not_clean.extend(self.go_without_the_others(all_logs).await.err());
        } else if some_failed {
            let exports = self.sh.exports();
            // If it takes longer, notes count as being in more logs than they are, which costs no more than a reclaim.
            let _ = timeout(PATIENCE, self.sh.note_logs(&exports, exports.logs())).await;
        }
        Ok(done)
    }

    /// An error if the log of a new export has no room for what clients may hold: each log holds all of it.
    fn holds_all(&self, path: &Path, volume: &Volume) -> Result<(), ReloadError> {
        let bounds = self.sh.state().bounds;
        match volume.stats().log.map(|log| log.capacity) {
            Some(bytes) if !bounds.fit(bytes) => {
                Err(ReloadError::SmallLog { path: path.to_owned(), bytes, started: bounds.log_bytes })
            }
            _ => Ok(()),
        }
    }

    /// The exports stay as they are, and so do the logs that notes may be in.
    async fn gives_up(&self, before: &Exports, err: ReloadError) -> ReloadError {
        let _ = timeout(PATIENCE, self.sh.note_logs(before, before.logs())).await;
        err
    }

    /// Has the logs that are left know all that stood in those of removed exports: these may be gone at the next start.
    /// An error says that they may not know all.
    async fn go_without_the_others(&self, all_logs: Vec<LogId>) -> Result<(), String> {
        let exports = self.sh.exports();
        let known = timeout(PATIENCE, async {
            // A log that has something new gets a snapshot of the whole state at a checkpoint.
            self.sh.note_logs(&exports, all_logs).await;
            let volumes: Vec<_> = exports.iter().map(|e| e.volume.clone()).collect();
            let checkpoints = move || parallel::each(&volumes, limits::EXPORTS_AT_ONCE, Volume::checkpoint);
            // If one fails, its export fails with it, which says so.
            let _ = spawn_blocking(checkpoints).await;
            self.sh.note_logs(&exports, exports.logs()).await;
        });
        known.await.map_err(|_| {
            format!(
                "the logs that are left have not taken within {} s what stood in the others: after a crash clients may have to reclaim",
                PATIENCE.as_secs()
            )
        })
    }

    /// Stops the volume of an export that is no longer in the table.
    async fn retire(&self, export: Arc<Export>) -> Result<(), String> {
        let number = export.number().to_be_bytes();
        let drained = timeout(DRAIN, async {
            while Arc::strong_count(&export) > 1 {
                tokio::time::sleep(DRAIN_LOOK).await;
            }
        })
        .await;
        // Dropped after the state lock is released.
        let (files, notes) = self.sh.state().remove_files(|key| key.get(3..7) == Some(&number[..]));
        drop(files);
        // Before the export may come back, and somebody changes what holders of delegations believe to be theirs. A failure has been reported.
        let _ = self.sh.write_down(notes).await;
        let path = export.path.display().to_string();
        let (retiring, id) = (self.retiring.clone(), export.id());
        let stopping = spawn_blocking(move || {
            let _stopping = retiring.stopping.blocking_lock();
            retiring.take(&id).map_or(Ok(()), |volume| volume.shutdown().map(drop))
        });
        match timeout(PATIENCE, stopping).await {
            Ok(Ok(Ok(()))) if drained.is_ok() => Ok(()),
            Ok(Ok(Ok(()))) => Err(format!("{path}: requests were still under way")),
            Ok(Ok(Err(e))) => {
                Err(format!("{path}: {}", export.volume.failed().unwrap_or_else(|| e.to_string())))
            }
            Ok(Err(_)) => Err(format!("{path}: stopping it failed")),
            Err(_) => Err(format!("{path}: stopping it takes longer than {} s", PATIENCE.as_secs())),
        }
    }
}

impl ExportConfig {
    /// The export with its opened volume; `recovery` is what opening it found.
    pub fn served(&self, volume: Volume, recovery: RecoveryReport) -> Served {
        Served {
            volume,
            recovery,
            path: self.path.clone(),
            name: self.name.clone(),
            rules: self.rules.clone(),
            manage_gids: self.manage_gids,
            features: self.features,
        }
    }

    pub fn unavailable(&self, why: &dyn Display) -> Unavailable {
        Unavailable {
            path: self.path.clone(),
            name: self.name.clone(),
            rules: self.rules.clone(),
            manage_gids: self.manage_gids,
            log_bytes: self.log.as_ref().map(|log| capacity(log, self.log_size)),
            why: why.to_string(),
        }
    }
}

/// Whether the root is a different directory before and after.
fn is_root_moved(before: &Exports, config: &Config) -> bool {
    let root = config.exports.iter().find(|e| e.name.parent().is_none());
    before.root().zip(root).is_some_and(|(old, new)| old.path != new.path)
}
