//! `landfast mount` in a process of its own, as a user runs it.

use crate::child::{Child, Output, Role};
use crate::error::{Context, Error, Result};
use crate::limits::{READY_POLL, READY_WAIT};
use crate::mounts;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A mount. Dropping it ends its process, whatever that has not written yet.
#[derive(Debug)]
pub struct FuseMount {
    child: Child,
    at: PathBuf,
    mounted: bool,
}

impl FuseMount {
    /// Mounts `url` at `at`, which is made when it is missing, with these options (`-o`). Call it on a thread of
    /// [`crate::namespace::run_private`].
    /// Errors: It does not mount: with what it said.
    pub fn start(url: &str, at: &Path, options: &str) -> Result<Self> {
        Self::start_with(url, at, options, &[])
    }

    /// As [`FuseMount::start`], with these variables in the environment of its process.
    pub fn start_with(url: &str, at: &Path, options: &str, envs: &[(String, String)]) -> Result<Self> {
        std::fs::create_dir_all(at).context(|| format!("create {}", at.display()))?;
        let text = at.to_string_lossy().into_owned();
        let mut args = vec!["mount".to_owned(), "--foreground".to_owned(), url.to_owned(), text];
        if !options.is_empty() {
            args.extend(["-o".to_owned(), options.to_owned()]);
        }
        let child = Child::start_with("mount", Role::Run(args), Output::Keep, envs)?;
        let mut mount = FuseMount { child, at: at.to_owned(), mounted: false };
        // The one line that says what it promises.
        if let Err(e) = mount.child.wait_line(READY_WAIT, |_| true) {
            return Err(Error::Protocol(format!("{e}: {}", mount.child.last_words())));
        }
        mount.mounted = true;
        Ok(mount)
    }

    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Makes all that was written stable on the server: `landfast sync`.
    /// Errors: Something is lost.
    pub fn sync(&self) -> Result<()> {
        self.command("sync").map(drop)
    }

    /// The same. Returns the lines that tell what is lost.
    /// Errors: It has not ended after `patience`, or there is no mount.
    pub fn told(&self, patience: Duration) -> Result<Vec<String>> {
        let words = || "run `landfast sync`".to_owned();
        let mut said = tempfile::tempfile().context(words)?;
        let mut sync = Command::new(crate::machine::exe()?);
        sync.arg("sync").arg(&self.at).stdin(Stdio::null()).stdout(Stdio::null());
        let mut sync = sync.stderr(said.try_clone().context(words)?).spawn().context(words)?;
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = sync.try_wait().context(words)? {
                break status;
            }
            if begin.elapsed() > patience {
                // It waits for the mount, which ends when that does.
                let _ = sync.kill();
                let what = format!("`landfast sync` has not ended after {} s", patience.as_secs());
                return Err(Error::Protocol(what));
            }
            std::thread::sleep(READY_POLL);
        };
        let mut text = String::new();
        said.rewind().and_then(|()| said.read_to_string(&mut text)).context(words)?;
        match status.code() {
            Some(0 | 1) => Ok(text.lines().map(str::to_owned).collect()),
            _ => Err(Error::Protocol(format!("`landfast sync`: {status}: {}", text.trim()))),
        }
    }

    /// `kill -9` of its process. What programs do there fails from now on.
    pub fn kill(&self) {
        self.child.signal(rustix::process::Signal::KILL);
        self.child.wait_stopped(READY_WAIT);
    }

    /// Ends it although programs wait for it and nothing else would end them: what is under way fails.
    pub fn abort(&self) -> Result<()> {
        let info =
            std::fs::read_to_string("/proc/thread-self/mountinfo").context(|| "mountinfo".to_owned())?;
        let number =
            connection_of(&info, &self.at).ok_or_else(|| Error::Unable("the mount is gone".into()))?;
        let control = tempfile::tempdir().context(|| "a temporary directory".to_owned())?;
        let _mounted = mounts::Mount::fuse_control(control.path())?;
        let file = control.path().join(number).join("abort");
        std::fs::write(&file, "1").context(|| file.display().to_string())
    }

    /// What stands on a line of `landfast status`.
    pub fn status(&self, line: &str) -> Result<String> {
        let status = self.command("status")?;
        let value = status.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(": "));
        let none = || Error::Protocol(format!("no `{line}` in the mount's status: {status}"));
        value.map(str::to_owned).ok_or_else(none)
    }

    /// The figure there.
    pub fn state(&self, line: &str) -> Result<u64> {
        let value = self.status(line)?;
        value.parse().map_err(|_| Error::Protocol(format!("{line}: {value}")))
    }

    /// Requests that it has sent.
    pub fn rpcs(&self) -> Result<u64> {
        self.state("rpcs")
    }

    fn command(&self, name: &str) -> Result<String> {
        let mut command = Command::new(crate::machine::exe()?);
        let out = mounts::run(command.arg(name).arg(&self.at), "landfast")?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    /// The process that serves it.
    pub fn process(&self) -> &Child {
        &self.child
    }

    /// Makes everything stable and unmounts: `landfast umount`.
    /// Errors: Something is lost, or the mount is in use.
    pub fn stop(mut self) -> Result<()> {
        self.command("umount")?;
        self.mounted = false;
        match self.child.wait_or_kill() {
            Some(status) if status.success() => Ok(()),
            status => {
                let what = format!("ended with {status:?}: {}", self.child.last_words());
                Err(Error::Child { role: "mount", what })
            }
        }
    }
}

/// The number of the connection that serves the mount at `at`: its device's minor number, in `mountinfo`.
fn connection_of(mountinfo: &str, at: &Path) -> Option<String> {
    let at = at.to_str()?;
    let fields = mountinfo.lines().rev().map(|line| line.split(' ').collect::<Vec<_>>());
    let device = fields.into_iter().find(|fields| fields.get(4) == Some(&at))?.get(2)?.to_string();
    device.strip_prefix("0:").map(str::to_owned)
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        // The directory below can be removed then. Whoever is in it gets an error.
        if std::mem::take(&mut self.mounted) {
            let _ = mounts::unmount_lazily(&self.at);
        }
        self.child.kill();
    }
}
