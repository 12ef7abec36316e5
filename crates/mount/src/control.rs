//! The two ends of a mount: mounting and serving it; flushing and unmounting it from outside.

use std::future::Future;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fuser::{MountOption, SessionACL};
use landfast_client::outage::Watch;
use landfast_client::{NfsUrl, Session, SessionError, SessionOptions, ops};
use tokio::runtime::Runtime;

use crate::asked::{STATUS, SYNC};
use crate::fs::Mount;
use crate::limits::{FOREVER, KERNEL_THREADS, READ_AHEAD_BYTES};
use crate::options::Options;
use crate::remote::Remote;

/// Why there is no mount.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("{url}: {source}")]
    Path { url: String, source: ops::Error },
    #[error("{0}: not a directory on the server")]
    NotADirectory(String),
    #[error("cannot mount on {}: {source}", at.display())]
    Mount { at: PathBuf, source: io::Error },
    #[error("no random numbers: {0}")]
    Random(String),
}

/// A mount that is there, and not served yet.
pub struct Mounted {
    session: fuser::Session<Mount>,
    mount: Mount,
    runtime: Runtime,
    /// What the mount promises, in one line.
    pub promise: String,
}

/// Connects to the server of `url` and mounts its directory at `at`.
///
/// # Errors
/// When the server cannot be reached or refuses, or the kernel does not mount it.
pub fn mount(
    runtime: Runtime,
    url: &NfsUrl,
    source: &str,
    at: &Path,
    options: Options,
    watch: Option<std::sync::Arc<dyn Watch>>,
) -> Result<Mounted, MountError> {
    let mut asked = SessionOptions::for_url(url);
    asked.reconnect_patience = FOREVER;
    asked.watch = watch;
    let (remote, root) = runtime.block_on(async {
        let session = Session::connect(asked).await?;
        let (handle, values) = ops::resolve(&session, &url.path)
            .await
            .map_err(|e| MountError::Path { url: source.to_owned(), source: e })?;
        let remote = Remote::new(session, options.patience());
        let attrs = remote.attrs_of(&values).filter(|a| a.is_dir());
        let attrs = attrs.ok_or_else(|| MountError::NotADirectory(source.to_owned()))?;
        Ok::<_, MountError>((remote, (handle, attrs)))
    })?;
    let promise = promise(&remote, source, at, &options);
    let unique = getrandom::u64().map_err(|e| MountError::Random(e.to_string()))?;
    let config = config(source, &options);
    let mount = Mount::new(remote, options, runtime.handle().clone(), root, unique);
    // Afterwards it could not be resolved: nobody answers yet.
    let at = &at.canonicalize().map_err(|e| MountError::Mount { at: at.to_owned(), source: e })?;
    let session = fuser::Session::new(mount.clone(), at, &config);
    let session = session.map_err(|e| MountError::Mount { at: at.to_owned(), source: e })?;
    mount.set_notifier(session.notifier());
    if let Err(e) = read_ahead(at) {
        // Only root may. The kernel's own window is smaller, no more.
        tracing::debug!("the kernel's readahead stays as it is: {e}");
    }
    Ok(Mounted { session, mount, runtime, promise })
}

/// Has the kernel read ahead as far as a long network needs. Nothing of the mount may be touched yet: nobody answers.
fn read_ahead(at: &Path) -> io::Result<()> {
    let mounts = std::fs::read("/proc/self/mountinfo")?;
    let device = device_of(&mounts, at.as_os_str().as_bytes()).ok_or(io::ErrorKind::NotFound)?;
    std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), (READ_AHEAD_BYTES >> 10).to_string())
}

/// Major and minor number of what was mounted last at `at` (proc_pid_mountinfo(5)).
fn device_of(mountinfo: &[u8], at: &[u8]) -> Option<String> {
    let lines = mountinfo.split(|b| *b == b'\n').rev();
    let found = lines
        .map(|l| l.split(|b| *b == b' ').collect::<Vec<_>>())
        .find(|fields| fields.get(4) == Some(&at))?;
    String::from_utf8(found.get(2)?.to_vec()).ok()
}

fn config(source: &str, options: &Options) -> fuser::Config {
    let mut config = fuser::Config::default();
    config.mount_options = vec![
        MountOption::FSName(source.to_owned()),
        MountOption::Subtype("landfast".into()),
        MountOption::DefaultPermissions,
        if options.read_only { MountOption::RO } else { MountOption::RW },
    ];
    config.mount_options.extend(options.kernel.iter().filter_map(|o| {
        Some(match o.as_str() {
            "suid" => MountOption::Suid,
            "nosuid" => MountOption::NoSuid,
            "dev" => MountOption::Dev,
            "nodev" => MountOption::NoDev,
            "exec" => MountOption::Exec,
            "noexec" => MountOption::NoExec,
            "atime" => MountOption::Atime,
            "noatime" => MountOption::NoAtime,
            "dirsync" => MountOption::DirSync,
            _ => return None,
        })
    }));
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(KERNEL_THREADS);
    config
}

/// Tells the kernel that this process writes pages back (`PR_SET_IO_FLUSHER`, which needs CAP_SYS_RESOURCE): when it asks for memory, it is not
/// made to wait for pages that it has to write itself. For threads that are started afterwards.
pub fn writes_pages_back() {
    if let Err(e) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!("PR_SET_IO_FLUSHER: {e}");
    }
}

fn promise(remote: &Remote, source: &str, at: &Path, options: &Options) -> String {
    let patience = match options.patience() {
        None => "waits for the server for ever".to_owned(),
        Some(t) => format!("gives a request up after {} s", t.as_secs_f64()),
    };
    let stable = match options.local {
        false => "data is stable on the server when close or fsync returns (close=wait)".to_owned(),
        true => format!(
            "close does not wait (close=local): what no fsync, `landfast sync` or `landfast umount` has made stable is lost if this \
             machine or the mount dies within about {} s",
            options.flush_age.as_secs_f64()
        ),
    };
    format!("{source} on {}: NFS {}; {stable}; {patience}", at.display(), remote.version())
}

impl Mounted {
    /// Serves the mount until it is unmounted; then makes everything stable. Returns the paths whose data was lost.
    ///
    /// # Errors
    /// When the kernel's requests cannot be read.
    pub fn serve(self) -> io::Result<Vec<String>> {
        let Mounted { session, mount, runtime, .. } = self;
        let done = session.run();
        let failures = runtime.block_on(async {
            mount.end().await;
            let (mut failures, more) = mount.failures();
            if more > 0 {
                failures.push(format!("and {more} more"));
            }
            mount.disconnect().await;
            failures
        });
        done.map(|()| failures)
    }

    /// Runs a task beside the mount.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }
}

/// Makes everything stable that was written through the mount that has `dir`. Returns what was lost, one line each.
///
/// # Errors
/// `dir` is in no mount of ours, or cannot be reached; the caller is neither root nor who runs the mount.
pub fn sync(dir: &Path) -> io::Result<Vec<String>> {
    Ok(ask(dir, SYNC)?.lines().map(str::to_owned).collect())
}

/// The state of the mount that has `dir`.
///
/// # Errors
/// `dir` is in no mount of ours, or cannot be reached.
pub fn status(dir: &Path) -> io::Result<String> {
    ask(dir, STATUS)
}

fn ask(dir: &Path, what: &str) -> io::Result<String> {
    let mut answer = vec![0; crate::limits::ANSWER_BYTES_MAX];
    match rustix::fs::getxattr(dir, what, &mut answer[..]) {
        Ok(len) => Ok(String::from_utf8_lossy(&answer[..len]).into_owned()),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::NOTSUP) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "not in a filesystem that landfast has mounted"))
        }
        Err(rustix::io::Errno::PERM) => {
            let why = "only root and who runs the mount may ask for that";
            Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
        }
        Err(e) => Err(e.into()),
    }
}

/// Unmounts `dir`. What was lost is told by a [`sync`] before, also if this fails.
///
/// # Errors
/// It is in use, or the caller may not unmount it.
pub fn unmount(dir: &Path) -> io::Result<()> {
    match rustix::mount::unmount(dir, rustix::mount::UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::PERM) => {
            let done = std::process::Command::new("fusermount3").arg("-u").arg("--").arg(dir).output()?;
            match done.status.success() {
                true => Ok(()),
                false => Err(io::Error::other(String::from_utf8_lossy(&done.stderr).trim().to_owned())),
            }
        }
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_at_a_place_counts() {
        let info = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n90 22 0:40 / /mnt rw - fuse a rw\n91 90 0:41 / /mnt rw - fuse b rw\n";
        assert_eq!(device_of(info, b"/mnt"), Some("0:41".to_owned()));
        assert_eq!(device_of(info, b"/other"), None);
    }
}
