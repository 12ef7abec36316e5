//! `landfast mount` in a process of its own, as a user runs it.

use crate::child::{Child, Output, Role};
use crate::error::{Context, Error, Result};
use crate::limits::READY_WAIT;
use crate::mounts;
use std::path::{Path, PathBuf};
use std::process::Command;

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
        std::fs::create_dir_all(at).context(|| format!("create {}", at.display()))?;
        let text = at.to_string_lossy().into_owned();
        let mut args = vec!["mount".to_owned(), "--foreground".to_owned(), url.to_owned(), text];
        if !options.is_empty() {
            args.extend(["-o".to_owned(), options.to_owned()]);
        }
        let child = Child::start("mount", Role::Run(args), Output::Keep)?;
        let mut mount = FuseMount { child, at: at.to_owned(), mounted: false };
        // The one line that says what it promises.
        if let Err(e) = mount.child.wait_line(READY_WAIT, |_| true) {
            return Err(Error::Unable(format!("{e}: {}", mount.child.last_words())));
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

impl Drop for FuseMount {
    fn drop(&mut self) {
        // The directory below can be removed then. Whoever is in it gets an error.
        if std::mem::take(&mut self.mounted) {
            let _ = mounts::unmount_lazily(&self.at);
        }
        self.child.kill();
    }
}
