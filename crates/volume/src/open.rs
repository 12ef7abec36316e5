//! Opening a volume: what is refused and why; the state directory; the log; recovery.
//!
//! The order:
//! 1. everything that can be refused without leaving a trace;
//! 2. the state directory and its lock. It comes before the log, since the log bears the volume's identity. If the log then
//!    refuses, a new state directory is removed again, unless the log may bear the new identity already;
//! 3. the log, and the checks that log and directory belong together;
//! 4. recovery;
//! 5. the volume's own file, so that an interrupted opening counts as not made.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64};

use landfast_intentlog::{Config, Log, LogPlace, OpenError as LogError, Replay};
use parking_lot::{Mutex, RwLock};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, StatxAttributes};
use rustix::io::Errno;
use rustix::process::Resource;

use crate::cache::Cache;
use crate::clock::Clock;
use crate::cred;
use crate::damage::Damage;
use crate::dependencies::OngoingFlushes;
use crate::descriptor_queue::DescriptorQueue;
use crate::error::OpenError;
use crate::faults::{Bug, bug};
use crate::flush;
use crate::flush_check;
use crate::handle::HandleCodec;
use crate::identity::{IDENTITY_FILE, Identity, LogInUse};
use crate::inside;
use crate::kernel::btime_ns;
use crate::kernel::random_u64;
use crate::kernel::{self, OwnedFd};
use crate::limits::{NODE_FDS_DIVISOR, NODE_FDS_MAX, NODES_MAX, RECOVERY_THREADS_MAX, WITNESS_FDS_DIVISOR};
use crate::listing::Listings;
use crate::marker::{MARKER_FILE, Marker};
use crate::nested;
use crate::options::{Durability, OpenOptions};
use crate::orphans::{ORPHANS_DIR, Orphans};
use crate::record::ObjId;
use crate::recover;
use crate::remap::{REMAP_FILE, Remap};
use crate::salvage;
use crate::shared_syncfs::SharedSyncfs;
use crate::state;
use crate::state::STATE_DIR;
use crate::tag;
use crate::types::Cred;
use crate::volume::{RecoveryReport, Volume, VolumeInner};
use crate::witnesses::Witnesses;

/// Holds the mount on which the volume was last served.
const MOUNT_FILE: &str = "mount";

/// Filesystems whose `syncfs` is known to be reliable and to keep metadata in order.
const ALLOWED: &[(u32, &str)] = &[(0xef53, "ext4"), (0x5846_5342, "XFS"), (0x9123_683e, "btrfs")];

/// Only for messages.
const KNOWN: &[(u32, &str)] = &[
    (0x0102_1994, "tmpfs"),
    (0x6573_5546, "FUSE"),
    (0x6969, "NFS"),
    (0x794c_7630, "overlayfs"),
    (0x00c3_6400, "CephFS"),
    (0x2fc1_2fc1, "ZFS"),
    (0xf2f5_2010, "F2FS"),
    (0x4d44, "FAT"),
    (0x2011_bab0, "exFAT"),
    (0x5346_544e, "NTFS"),
];

impl Volume {
    /// Opens a volume: checks the filesystem, locks the state directory, opens the log and recovers what a crash left.
    /// Nothing is served until [`Volume::start`].
    pub fn open(o: OpenOptions) -> Result<(Volume, RecoveryReport), OpenError> {
        let begun = kernel::instant();
        check_options(&o)?;
        check_mounted(&o)?;
        let (dir, mount) = open_dir(&o.dir)?;
        // Before recovery, which flushes what it has written.
        let damage = Damage::watch(&mount);
        check_privileges(&o)?;
        check_filesystem(&o, &dir, &mount)?;
        let below = flush_check::check_mount(&o, &dir)?;
        let (root_id, root_look, mount_id) = look_at_root(&o, &dir, &mount)?;
        for log in o.log.iter().flat_map(LogPlace::paths) {
            check_outside(&dir, log)?;
        }
        let (state_dir, made) = open_state_dir(&dir, &mount)?;
        let unmake = |_: &OpenError| {
            if made {
                unmake_state_dir(&mount, &state_dir);
            }
        };
        let tree_locks = nested::lock(&o, &dir, &mount).inspect_err(unmake)?;
        let identity = check_case(&dir, &mount, &state_dir)
            .and_then(|()| flush_check::check_flush(&o, &dir, &below, &state_dir))
            .and_then(|()| load_identity(&o, &dir, &mount, &state_dir, &root_id));
        let mut identity = identity.inspect_err(unmake)?;
        let opened = match &o.log {
            Some(place) => {
                let opened = open_log(&o, place, &identity).map_err(|e| {
                    if made && place.paths().iter().all(|path| is_untouched(path, &e)) {
                        unmake_state_dir(&mount, &state_dir);
                    }
                    OpenError::Log(e.to_string())
                })?;
                let path = place.first_path();
                Some((std::path::absolute(path).unwrap_or_else(|_| path.to_owned()), opened))
            }
            None => None,
        };
        let replay = opened.as_ref().map(|(_, (_, replay))| replay);
        check_belonging(&o, &dir, (&mount, &state_dir), &identity, replay)?;

        let mut report = RecoveryReport { made, clean: identity.clean, ..RecoveryReport::default() };
        let mut remap = load_remap(&dir, &state_dir, &mut identity)?;
        let (mut log, mut to_enter) = (None, None);
        if let Some((path, (handle, replay))) = opened {
            let in_use = LogInUse { id: replay.log_id, path: path.clone() };
            let marker = open_marker(&dir, &state_dir, is_pending(&replay))?;
            report.clean &= replay.clean || replay.fresh;
            report.bytes = replay.bytes;
            let replay_is_new = replay.fresh;
            let unbroken = is_unbroken(&mount, &state_dir).map_err(|e| state_error(&dir, MOUNT_FILE, e))?;
            let how =
                recover::RecoveryMode { strict: o.strict_recovery, unbroken: unbroken && !o.strict_recovery };
            let recovered = recover_disk(&mount, &state_dir, &mut remap, replay, marker.last(), how, &path)?;
            report.local = recovered.local;
            report.local_more = recovered.local_more;
            marker.raise(recovered.last_seq);
            report.records = recovered.records;
            report.remade = recovered.done.made;
            report.notes = recovered.notes;
            // A log from before a time without a log: its replies belong to calls of that time. Once emptied it is the volume's
            // log again.
            let since = identity.log_in_use.as_ref().is_some_and(|known| known.id == in_use.id);
            if !since && !replay_is_new && !bug(Bug::OldReplyKept) {
                report.notes.clear();
                to_enter = Some(in_use.clone());
            }
            log = Some((handle, marker, in_use));
        }
        let written_ns = state::written_ns(&state_dir, IDENTITY_FILE);
        let mut last_ns = written_ns.map_err(|e| state_error(&dir, IDENTITY_FILE, e))?;
        if let Some((_, marker, _)) = log.as_ref().filter(|_| !report.clean) {
            // That file was written at the start; each change since has left its time at the marker.
            let marked_ns = marker.set_at_ns().map_err(|e| state_error(&dir, MARKER_FILE, e))?;
            last_ns = last_ns.max(marked_ns);
        }
        identity.clock_was_at(last_ns, Volume::now_ns());
        let in_use = log.as_ref().filter(|_| to_enter.is_none()).map(|(_, _, in_use)| in_use.clone());
        identity.begin(report.clean, in_use);
        report.epoch = identity.epoch;
        identity.save(&state_dir).map_err(|e| state_error(&dir, IDENTITY_FILE, e))?;
        if log.is_some()
            && let Some(here) = kernel::mount_identity(&mount)
        {
            state::replace(&state_dir, MOUNT_FILE, &here).map_err(|e| state_error(&dir, MOUNT_FILE, e))?;
        }

        let orphans = if log.is_some() { open_orphans(&o, &dir, &state_dir)? } else { None };
        let volume = Volume(std::sync::Arc::new(VolumeInner {
            mount_id,
            device: (root_look.stx_dev_major, root_look.stx_dev_minor),
            _tree_locks: tree_locks,
            durability: o.durability,
            unprivileged: o.experiment.unprivileged,
            injected_flush: o.experiment.injected_flush,
            flush_whole: log.is_some()
                && kernel::is_btrfs(&mount).map_err(|e| OpenError::io(dir.display().to_string(), e))?,
            one_journal: kernel::has_one_journal(&mount, &dir)
                .map_err(|e| OpenError::io(dir.display().to_string(), e))?,
            codec: HandleCodec::new(identity.key, identity.number()),
            remap: RwLock::new(remap),
            orphans,
            cache: Cache::new(
                NODES_MAX,
                descriptors_max(NODE_FDS_DIVISOR).min(NODE_FDS_MAX),
                o.experiment.unprivileged,
            ),
            listings: Listings::default(),
            root: OnceLock::new(),
            clock: Clock::new(identity.floor_ns),
            volume_id: identity.volume_id,
            durable_seq: AtomicU64::new(log.as_ref().map_or(0, |(_, marker, _)| marker.last())),
            syncing: AtomicU64::new(0),
            log: log.map(|(log, marker, _)| (log, marker)),
            root_tagged: AtomicBool::new(false),
            log_to_enter: Mutex::new(to_enter),
            log_place: o.log.clone(),
            failed: OnceLock::new(),
            flush_failed: AtomicBool::new(false),
            verifier: AtomicU64::new(first_verifier(&identity)),
            fsyncs: AtomicU64::new(0),
            fdatasyncs: AtomicU64::new(0),
            syncfs: AtomicU64::new(0),
            file_opens: AtomicU64::new(0),
            descriptor_queue: DescriptorQueue::default(),
            last_removal: AtomicU64::new(0),
            ongoing_flushes: OngoingFlushes::default(),
            witnesses: Witnesses::new(descriptors_max(WITNESS_FDS_DIVISOR)),
            shared_syncfs: SharedSyncfs::default(),
            damage,
            identity: Mutex::new(identity),
            dir,
            mount,
            state_dir,
        }));
        let root = kernel::handle_of(&volume.0.mount)
            .map_err(crate::Error::from)
            .and_then(|(kh, mount_id)| volume.node_of(kh, mount_id, &root_look))
            .and_then(|root| {
                let own = kernel::open_path(&volume.0.mount, b".")?;
                volume.0.cache.keep_fd(&root, own);
                Ok(root)
            })
            .map_err(|e| OpenError::Failed(e.to_string()))?;
        let _ = volume.0.root.set(root);
        report.seconds = begun.elapsed().as_secs_f64();
        Ok((volume, report))
    }
}

/// Where open files without a name are kept. A volume without room for that is served all the same.
fn open_orphans(o: &OpenOptions, dir: &Path, state_dir: &OwnedFd) -> Result<Option<Orphans>, OpenError> {
    if o.experiment.unprivileged {
        return Ok(None);
    }
    let orphans = Orphans::open(state_dir).map_err(|e| state_error(dir, ORPHANS_DIR, e))?;
    if orphans.is_none() {
        tracing::warn!(
            "{} is full: files that are removed while they are open are not kept over a restart",
            dir.display()
        );
    }
    Ok(orphans)
}

/// A write verifier that no earlier opening had.
fn first_verifier(identity: &Identity) -> u64 {
    if bug(Bug::VerifierKept) { identity.number().into() } else { random_u64() }
}

fn check_options(o: &OpenOptions) -> Result<(), OpenError> {
    match (o.durability, &o.log) {
        (Durability::Log, None) => {
            Err(OpenError::Options("durability log needs a log: name one with --log".into()))
        }
        (Durability::Sync | Durability::Unsafe, Some(_)) => {
            Err(OpenError::Options("a log is used with durability log only: leave one of the two out".into()))
        }
        _ => Ok(()),
    }
}

fn check_mounted(o: &OpenOptions) -> Result<(), OpenError> {
    let Some(at) = &o.mount_point else { return Ok(()) };
    let look = kernel::open(at, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|fd| kernel::look(&fd));
    match look {
        Ok(look) if look.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) => Ok(()),
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => Err(OpenError::NotMounted(at.clone())),
        Err(e) => Err(OpenError::io(at.display().to_string(), e)),
    }
}

fn open_dir(dir: &Path) -> Result<(PathBuf, OwnedFd), OpenError> {
    let resolved = kernel::canonicalize(dir).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => OpenError::Missing(dir.to_owned()),
        std::io::ErrorKind::NotADirectory => OpenError::NotADirectory(dir.to_owned()),
        _ => OpenError::io(dir.display().to_string(), e),
    })?;
    match kernel::open(&resolved, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => Ok((resolved, fd)),
        Err(Errno::NOTDIR) => Err(OpenError::NotADirectory(dir.to_owned())),
        Err(e) => Err(OpenError::io(dir.display().to_string(), e)),
    }
}

fn check_privileges(o: &OpenOptions) -> Result<(), OpenError> {
    if o.experiment.unprivileged {
        return Ok(());
    }
    let missing = cred::missing().map_err(|e| OpenError::io("capabilities", e))?;
    if missing.is_empty() {
        kernel::try_switch().map_err(OpenError::Switch)?;
        return cred::assume(&Cred::root()).map_err(|e| OpenError::Failed(e.to_string()));
    }
    Err(OpenError::Capabilities(cred::NEEDED_NAMES, missing.join(", ")))
}

fn check_filesystem(o: &OpenOptions, dir: &Path, mount: &OwnedFd) -> Result<(), OpenError> {
    if o.durability != Durability::Log || o.experiment.unprivileged {
        return Ok(());
    }
    let magic = kernel::magic(mount).map_err(|e| OpenError::io(dir.display().to_string(), e))?;
    if ALLOWED.iter().any(|(m, _)| *m == magic) {
        return Ok(());
    }
    let fs = KNOWN
        .iter()
        .find(|(m, _)| *m == magic)
        .map_or_else(|| format!("{magic:#x}"), |(_, n)| (*n).to_owned());
    Err(OpenError::Filesystem { dir: dir.to_owned(), fs })
}

fn look_at_root(
    o: &OpenOptions,
    dir: &Path,
    mount: &OwnedFd,
) -> Result<(ObjId, rustix::fs::Statx, u64), OpenError> {
    let lacking = |what| OpenError::Lacking { dir: dir.to_owned(), what };
    let (kh, mount_id) = kernel::handle_of(mount).map_err(|e| match e {
        Errno::OPNOTSUPP | Errno::OVERFLOW => lacking("file handles"),
        e => OpenError::io(dir.display().to_string(), e),
    })?;
    let look = kernel::look(mount).map_err(|e| OpenError::io(dir.display().to_string(), e))?;
    let id = ObjId { kh, btime_ns: btime_ns(&look) };
    if !o.experiment.unprivileged {
        kernel::open_handle(mount, &id.kh).map_err(|_| lacking("file handles that can be opened"))?;
        if id.btime_ns == 0 && o.durability == Durability::Log {
            return Err(lacking("birth times (ext4 needs inodes of 256 bytes, XFS version 5)"));
        }
    }
    Ok((id, look, mount_id))
}

/// Refuses a directory that ignores case. Recovery uses names as clients typed them: two spellings of one would be two names.
fn check_case(dir: &Path, mount: &OwnedFd, state_dir: &OwnedFd) -> Result<(), OpenError> {
    let wrap = |e: Errno| OpenError::io(dir.join(STATE_DIR).display().to_string(), e);
    let other = match kernel::open_path(mount, STATE_DIR.to_ascii_uppercase().as_bytes()) {
        Err(Errno::NOENT) => return Ok(()),
        other => other.map_err(wrap)?,
    };
    let (this, other) = (kernel::look(state_dir).map_err(wrap)?, kernel::look(&other).map_err(wrap)?);
    if this.stx_ino == other.stx_ino { Err(OpenError::FoldsCase(dir.to_owned())) } else { Ok(()) }
}

/// Opens the state directory, making it if necessary, and locks it while the descriptor lives. Also returns whether it was
/// made.
fn open_state_dir(dir: &Path, mount: &OwnedFd) -> Result<(OwnedFd, bool), OpenError> {
    let path = dir.join(STATE_DIR);
    let wrap = |e: Errno| OpenError::io(path.display().to_string(), e);
    let made = match kernel::mkdirat(mount, STATE_DIR, Mode::from_raw_mode(0o700)) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(e) => return Err(wrap(e)),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = kernel::openat(mount, STATE_DIR, flags, Mode::empty()).map_err(wrap)?;
    let stat = kernel::fstat(&fd).map_err(wrap)?;
    if stat.st_uid != kernel::geteuid().as_raw() {
        let why = "it belongs to another user".to_owned();
        return Err(OpenError::State { path, why });
    }
    if stat.st_mode & 0o077 != 0 {
        kernel::fchmod(&fd, Mode::from_raw_mode(0o700)).map_err(wrap)?;
    }
    match kernel::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok((fd, made)),
        Err(Errno::WOULDBLOCK) => {
            Err(OpenError::DirInUse { dir: dir.to_owned(), holder: kernel::lock_holder(&fd) })
        }
        Err(e) => Err(wrap(e)),
    }
}

fn state_error(dir: &Path, file: &str, e: std::io::Error) -> OpenError {
    let path = dir.join(STATE_DIR).join(file);
    match e.kind() {
        std::io::ErrorKind::InvalidData => OpenError::State { path, why: e.to_string() },
        _ => OpenError::io(path.display().to_string(), e),
    }
}

fn load_identity(
    o: &OpenOptions,
    dir: &Path,
    mount: &OwnedFd,
    state_dir: &OwnedFd,
    root: &ObjId,
) -> Result<Identity, OpenError> {
    let wrap = |e| state_error(dir, IDENTITY_FILE, e);
    let mut identity =
        Identity::new(root.clone()).map_err(|e| OpenError::Failed(format!("randomness: {e}")))?;
    match Identity::load(state_dir).map_err(wrap)? {
        Some(known) if known.root == *root => return Ok(known),
        Some(known) if !known.clean => {
            let why =
                "this is a copy of a directory that was not stopped cleanly: acknowledged operations may be \
                       missing in it; stop the original cleanly and copy again"
                    .to_owned();
            return Err(OpenError::WrongVolume { dir: dir.to_owned(), why });
        }
        Some(known) => {
            // A copy is a volume of its own: with the original's key, a handle could lead into the original.
            (identity.epoch, identity.floor_ns) = (known.epoch, known.floor_ns);
        }
        None => {
            let tag = if o.experiment.unprivileged { None } else { read_tag(dir, mount)? };
            if tag.is_some_and(|tag| !tag.clean) {
                let path = dir.join(STATE_DIR).join(IDENTITY_FILE);
                let why = "it is missing, and the directory was not stopped cleanly".to_owned();
                return Err(OpenError::State { path, why });
            }
        }
    }
    Remap::default().save(state_dir).map_err(|e| state_error(dir, REMAP_FILE, e))?;
    identity.has_remap = true;
    // The log will bear the volume's id, so the id and the path to it must be on disk first.
    identity.save(state_dir).map_err(wrap)?;
    flush::file(mount, state_dir).map_err(|e| OpenError::io(dir.display().to_string(), e))?;
    Ok(identity)
}

fn read_tag(dir: &Path, mount: &OwnedFd) -> Result<Option<tag::Tag>, OpenError> {
    tag::read(mount).map_err(|e| OpenError::io(dir.display().to_string(), e))
}

/// Loads the remap table. Without a table that was once written, clients' handles would be stale and recovery would make
/// objects twice.
fn load_remap(dir: &Path, state_dir: &OwnedFd, identity: &mut Identity) -> Result<Remap, OpenError> {
    let wrap = |e| state_error(dir, REMAP_FILE, e);
    match Remap::load(state_dir).map_err(wrap)? {
        Some(remap) => Ok(remap),
        None if identity.has_remap => {
            let path = dir.join(STATE_DIR).join(REMAP_FILE);
            Err(OpenError::State { path, why: "it is missing".to_owned() })
        }
        None => {
            Remap::default().save(state_dir).map_err(wrap)?;
            identity.has_remap = true;
            Ok(Remap::default())
        }
    }
}

/// Opens the marker. Without it nobody knows whether the directory is ahead of the log.
fn open_marker(dir: &Path, state_dir: &OwnedFd, pending: bool) -> Result<Marker, OpenError> {
    let wrap = |e| OpenError::io("transaction marker", e);
    if pending && !Marker::exists(state_dir).map_err(wrap)? {
        let path = dir.join(STATE_DIR).join(MARKER_FILE);
        return Err(OpenError::State { path, why: "it is missing".to_owned() });
    }
    Marker::open(state_dir).map_err(wrap)
}

fn check_outside(dir: &Path, log: &Path) -> Result<(), OpenError> {
    if !kernel::has_tree() {
        return Ok(());
    }
    match inside::lies_inside(dir, log) {
        Ok(None) => Ok(()),
        Ok(Some(how)) => Err(OpenError::LogInside { log: log.to_owned(), dir: dir.to_owned(), how }),
        Err(e) => Err(OpenError::io(format!("whether {} lies inside {}", log.display(), dir.display()), e)),
    }
}

fn open_log(o: &OpenOptions, place: &LogPlace, identity: &Identity) -> Result<(Log, Replay), LogError> {
    let mut config = Config::new(place.clone(), o.log_size, identity.volume_id);
    config.injected_flush = o.experiment.injected_log_flush;
    // Without root nothing is promised of the directory either.
    config.accept_weak = o.accept_weak || o.experiment.unprivileged;
    kernel::open_log(config)
}

/// Whether a refused log certainly does not bear the identity of the volume for which it was opened. After an error of its
/// device that is certain only if the file is empty.
fn is_untouched(path: &Path, refused: &LogError) -> bool {
    !matches!(refused, LogError::Io { .. }) || kernel::is_empty_file(path)
}

fn unmake_state_dir(mount: &OwnedFd, state_dir: &OwnedFd) {
    // The descriptor keeps the lock until it is closed: until then nobody else uses the directory.
    for file in [IDENTITY_FILE, REMAP_FILE] {
        let _ = kernel::unlinkat(state_dir, file, AtFlags::empty());
    }
    let _ = kernel::unlinkat(mount, STATE_DIR, AtFlags::REMOVEDIR);
}

/// Whether the log has records that the directory may lack.
fn is_pending(replay: &Replay) -> bool {
    !replay.clean && !replay.records.is_empty()
}

/// Checks that log and directory belong together: a log is never replayed over another directory, another disk or a restored
/// snapshot, and the records in a log are never abandoned.
fn check_belonging(
    o: &OpenOptions,
    dir: &Path,
    (mount, state_dir): (&OwnedFd, &OwnedFd),
    identity: &Identity,
    replay: Option<&Replay>,
) -> Result<(), OpenError> {
    let wrong = |why: String| Err(OpenError::WrongVolume { dir: dir.to_owned(), why });
    if let Some(log) = identity.log_in_use.as_ref()
        && replay.is_none_or(|r| r.log_id != log.id)
    {
        let path = log.path.display();
        let same =
            o.log.as_ref().is_some_and(|p| std::path::absolute(p.first_path()).is_ok_and(|p| p == log.path));
        match (identity.clean, replay) {
            (false, Some(_)) if same => {
                return wrong(format!(
                    "acknowledged operations are in its log, and what stands at {path} now is another one, or an emptied one; \
                     put the log back (docs/internals/recovery.md says how to give it up)"
                ));
            }
            (false, _) => {
                return wrong(format!(
                    "acknowledged operations are in its log {path}; start once with --log {path} and stop cleanly before \
                     serving it another way (docs/internals/recovery.md says how to give that log up)"
                ));
            }
            // Nor a log that an earlier opening made but did not start.
            (true, Some(replay)) if !replay.fresh && (replay.checkpoint > 0 || is_pending(replay)) => {
                return wrong(format!(
                    "it was last served with the log {path}, not with this one, whose replies to clients are out of date; \
                     give that one, or a new one"
                ));
            }
            (true, _) => {}
        }
    }
    let Some(replay) = replay.filter(|_| !o.experiment.unprivileged) else { return Ok(()) };
    let tag = tag::read_both(mount, state_dir);
    let tag = tag.map_err(|e| OpenError::io(dir.display().to_string(), e))?;
    let log = tag::LogState {
        volume_id: identity.volume_id,
        checkpoint: replay.checkpoint,
        fresh: replay.fresh,
        records: is_pending(replay),
        clean: replay.clean,
    };
    tag::check(tag, log).or_else(|e| wrong(e.to_string()))
}

/// Whether the filesystem has stayed mounted since the volume was last recovered and served. Then only a process has ended, no
/// power was lost, and the kernel has every change, whoever made it.
fn is_unbroken(mount: &OwnedFd, state_dir: &OwnedFd) -> std::io::Result<bool> {
    let Some(here) = kernel::mount_identity(mount) else { return Ok(false) };
    match state::read(state_dir, MOUNT_FILE) {
        Ok(last) => Ok(last == Some(here)),
        // A crash has left it so.
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => Ok(false),
        // If the last mount is unknown, recovery must not undo what somebody has done since.
        Err(e) => Err(e),
    }
}

fn recover_disk(
    mount: &OwnedFd,
    state_dir: &OwnedFd,
    remap: &mut Remap,
    replay: Replay,
    marker: u64,
    how: recover::RecoveryMode,
    log: &Path,
) -> Result<recover::Recovered, OpenError> {
    let threads = kernel::cores().min(RECOVERY_THREADS_MAX);
    let mut disk = recover::Disk::new(mount, state_dir, remap, threads)
        .map_err(|e| OpenError::Recovery(e.to_string()))?;
    let Replay { records, ends, .. } = replay;
    recover::run(&mut disk, records, &ends, marker, how, &|| salvage::places(log))
        .map_err(|e| OpenError::Recovery(e.to_string()))
}

impl Volume {
    /// What [`Volume::id`] would say of the volume at `dir`, where that can be read without opening it.
    pub fn id_at(dir: &Path) -> Option<[u8; 16]> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let state_dir = kernel::open(dir.join(STATE_DIR), flags, Mode::empty()).ok()?;
        Some(Identity::load(&state_dir).ok()??.volume_id)
    }
}

/// Raises the process's limit of descriptors as far as it may, and says how many of them one of `divisor` users may have.
fn descriptors_max(divisor: u64) -> usize {
    let mut limit = kernel::getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
        if kernel::setrlimit(Resource::Nofile, raised).is_ok() {
            limit = kernel::getrlimit(Resource::Nofile);
        }
    }
    usize::try_from(limit.current.unwrap_or(u64::MAX) / divisor).unwrap_or(usize::MAX)
}
