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
use crate::state::notes::LogId;
use crate::unlinked;
use landfast_volume::{OpenError, Overlap, RecoveryReport, THIS_PROCESS, Volume};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const DRAIN: Duration = Duration::from_secs(10);
const DRAIN_LOOK: Duration = Duration::from_millis(5);

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
    #[error("{}: {err}", path.display())]
    Look { path: PathBuf, err: landfast_volume::Error },
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

/// Makes an export table; an error if its volumes cannot be served side by side.
pub(crate) fn table(
    served: Vec<Served>,
    unavailable: Vec<Unavailable>,
    server: [u8; 16],
    former: Vec<u32>,
) -> Result<Exports, ReloadError> {
    if let Some(why) = own_files::exposed_of(&served) {
        return Err(ReloadError::Exposed(why));
    }
    let volumes: Vec<_> = served.iter().map(|e| &e.volume).collect();
    let path = |n: usize| served[n].path.clone();
    match Volume::overlap(&volumes).map_err(|(n, err)| ReloadError::Look { path: path(n), err })? {
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

impl Running {
    /// Puts `config` into force without losing a connection. `old` is the configuration in force, `open` opens a
    /// volume. After an error nothing has changed.
    pub async fn reload(
        &self,
        old: &Config,
        config: &Config,
        open: impl Fn(&ExportConfig) -> Result<(Volume, RecoveryReport), OpenError>,
    ) -> Result<Reloaded, ReloadError> {
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
        let exports = config.exports.iter().map(|e| e.path.as_path());
        let own: Vec<_> = config.exports.iter().flat_map(own_files::of_export).collect();
        if let Some(why) = own_files::exposed(exports, &own) {
            return Err(ReloadError::Exposed(why));
        }
        let mut served = Vec::with_capacity(config.exports.len());
        let mut unavailable = Vec::new();
        let mut new = Vec::new();
        for e in &config.exports {
            if let Some(old) = before.iter().find(|old| old.path == e.path) {
                served.push(kept(old, e, &mut done.needs_restart));
                continue;
            }
            if self.sh.persist && e.log.is_none() {
                let what =
                    format!("{} has no log, and sessions were promised to survive a crash", e.path.display());
                return Err(ReloadError::Restart(what));
            }
            let (volume, recovery) = match open(e) {
                Ok(opened) => opened,
                // It could not be served before either, so this is no reason to refuse the rest.
                Err(err) if !is_overlap(&err) && before.down().any(|d| d.of.path == e.path) => {
                    done.unavailable.push((e.path.clone(), err.to_string()));
                    unavailable.push(e.unavailable(&err));
                    continue;
                }
                Err(err) => return Err(refused(&e.path, err)),
            };
            new.push(volume.clone());
            done.added.push(e.path.clone());
            served.push(e.served(volume, recovery));
        }
        if served.is_empty() && !unavailable.is_empty() {
            return Err(ReloadError::Clash("no export could be served".into()));
        }
        unavailable.iter().for_each(say_unavailable);
        let after = table(served, unavailable, self.sh.server, before.numbers())?;
        // Before the new ones have notes that no other log has.
        let mut all_logs = before.logs();
        all_logs.extend(new.iter().filter(|volume| volume.keeps_notes()).map(Volume::id));
        if new.iter().any(Volume::keeps_notes) {
            self.sh.note_logs(&before, all_logs.clone()).await;
        }
        for volume in &new {
            volume.start(self.sh.keeper(volume)).map_err(|err| ReloadError::Open {
                path: after
                    .iter()
                    .find(|e| e.id() == volume.id())
                    .map(|e| e.path.clone())
                    .unwrap_or_default(),
                err,
            })?;
        }
        let gone: Vec<Arc<Export>> =
            before.iter().filter(|e| !after.iter().any(|a| a.id() == e.id())).cloned().collect();
        self.sh.replace_exports(after);
        new.iter().for_each(|volume| unlinked::take_over(&self.sh, volume));
        drop(before);
        for export in gone {
            done.removed.push(export.path.clone());
            if let Err(why) = self.retire(export).await {
                done.not_clean.push(why);
            }
        }
        if !done.removed.is_empty() {
            self.go_without_the_others(all_logs).await;
        }
        Ok(done)
    }

    /// Has the logs that are left know all that stood in those of removed exports: these may be gone at the next start.
    async fn go_without_the_others(&self, all_logs: Vec<LogId>) {
        let exports = self.sh.exports();
        // A log that has something new gets a snapshot of the whole state at a checkpoint.
        self.sh.note_logs(&exports, all_logs).await;
        let volumes: Vec<_> = exports.iter().map(|e| e.volume.clone()).collect();
        let checkpoints = move || parallel::each(&volumes, limits::EXPORTS_AT_ONCE, Volume::checkpoint);
        // If one fails, its export fails with it, which says so.
        let _ = tokio::task::spawn_blocking(checkpoints).await;
        self.sh.note_logs(&exports, exports.logs()).await;
    }

    /// Stops the volume of an export that is no longer in the table.
    async fn retire(&self, export: Arc<Export>) -> Result<(), String> {
        let number = export.number().to_be_bytes();
        let drained = tokio::time::timeout(DRAIN, async {
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
        let volume = export.volume.clone();
        let stopped = tokio::task::spawn_blocking(move || volume.shutdown()).await;
        match stopped {
            Ok(Ok(_)) if drained.is_ok() => Ok(()),
            Ok(Ok(_)) => Err(format!("{path}: requests were still under way")),
            Ok(Err(e)) => Err(format!("{path}: {}", export.volume.failed().unwrap_or_else(|| e.to_string()))),
            Err(_) => Err(format!("{path}: stopping it failed")),
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

    pub fn unavailable(&self, err: &OpenError) -> Unavailable {
        Unavailable {
            path: self.path.clone(),
            name: self.name.clone(),
            rules: self.rules.clone(),
            manage_gids: self.manage_gids,
            why: err.to_string(),
        }
    }
}

/// Whether the root is a different directory before and after.
fn is_root_moved(before: &Exports, config: &Config) -> bool {
    let root = config.exports.iter().find(|e| e.name.parent().is_none());
    before.root().zip(root).is_some_and(|(old, new)| old.path != new.path)
}
