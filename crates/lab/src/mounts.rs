//! Filesystems on the lab's disks: made, mounted, checked, unmounted.

use crate::error::{Context, Error, Result};
use rustix::mount::{MountFlags, UnmountFlags};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filesystem {
    Ext4,
    Xfs,
    Btrfs,
}

impl std::str::FromStr for Filesystem {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match s {
            "ext4" => Ok(Filesystem::Ext4),
            "xfs" => Ok(Filesystem::Xfs),
            "btrfs" => Ok(Filesystem::Btrfs),
            _ => Err(Error::UnknownFilesystem(s.to_owned())),
        }
    }
}

impl std::fmt::Display for Filesystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Filesystem {
    pub fn name(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "ext4",
            Filesystem::Xfs => "xfs",
            Filesystem::Btrfs => "btrfs",
        }
    }

    /// Whether its tools are installed.
    /// Errors: [`Error::NoTool`].
    pub fn possible(self) -> Result<()> {
        let tool = format!("mkfs.{}", self.name());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let there = std::env::split_paths(&path).any(|dir| dir.join(&tool).exists());
        if there { Ok(()) } else { Err(Error::NoTool { tool, package: self.package() }) }
    }

    pub(crate) fn package(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "e2fsprogs",
            Filesystem::Xfs => "xfsprogs",
            Filesystem::Btrfs => "btrfs-progs",
        }
    }

    /// Smallest disk that its mkfs takes without complaint, in bytes.
    pub fn size_min(self) -> u64 {
        match self {
            Filesystem::Ext4 => 64 << 20,
            Filesystem::Xfs => 320 << 20,
            Filesystem::Btrfs => 256 << 20,
        }
    }

    /// Makes the filesystem on `device`: complete at once (no lazy initialisation in the
    /// background that would blur counts), without discards.
    pub fn make(self, device: &Path) -> Result<()> {
        let (tool, args): (&str, &[&str]) = match self {
            Filesystem::Ext4 => (
                "mkfs.ext4",
                &["-q", "-F", "-I", "256", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"],
            ),
            // Inodes may take all of it: trees of empty files do.
            Filesystem::Xfs => ("mkfs.xfs", &["-q", "-f", "-K", "-i", "maxpct=100"]),
            Filesystem::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K"]),
        };
        run(Command::new(tool).args(args).arg(device), self.package()).map(drop)
    }

    /// Makes an ext4 on `device` whose journal fills another device.
    ///
    /// # Errors
    /// Another filesystem, or a failure of its tool.
    pub fn make_with_journal(self, device: &Path, journal: &Path) -> Result<()> {
        if self != Filesystem::Ext4 {
            return Err(Error::Unable(format!("{self} has no journal on another disk in this lab")));
        }
        let mut own = Command::new("mkfs.ext4");
        run(own.args(["-q", "-F", "-b", "4096", "-O", "journal_dev"]).arg(journal), self.package())?;
        let mut filesystem = Command::new("mkfs.ext4");
        filesystem.args(["-q", "-F", "-b", "4096", "-I", "256", "-E", "lazy_itable_init=0,nodiscard", "-J"]);
        run(filesystem.arg(format!("device={}", journal.display())).arg(device), self.package()).map(drop)
    }

    /// Repairs a filesystem that does not mount after a power cut, as a boot does; only ext4's tools can do that.
    pub fn repair(self, device: &Path) -> Result<()> {
        match self {
            // A status of 1 says that all was corrected.
            Filesystem::Ext4 => {
                let script = r#"e2fsck -f -y "$0"; test $? -le 1"#;
                run(Command::new("sh").args(["-c", script]).arg(device), self.package()).map(drop)
            }
            Filesystem::Xfs | Filesystem::Btrfs => {
                Err(Error::Unable(format!("{self} on {} does not mount", device.display())))
            }
        }
    }

    /// Checks an unmounted filesystem without changing it; the journal must have been replayed
    /// (mounted and unmounted once) before.
    pub fn check(self, device: &Path) -> Result<()> {
        let (tool, args): (&str, &[&str]) = match self {
            Filesystem::Ext4 => ("e2fsck", &["-f", "-n"]),
            Filesystem::Xfs => ("xfs_repair", &["-n"]),
            Filesystem::Btrfs => ("btrfs", &["check", "--readonly", "--force"]),
        };
        run(Command::new(tool).args(args).arg(device), self.package()).map(drop)
    }
}

/// Runs a tool; its words are in the error when it fails.
pub(crate) fn run(command: &mut Command, package: &'static str) -> Result<Vec<u8>> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    // mkfs and fsck live in sbin, which not every root's PATH has.
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.stdin(std::process::Stdio::null());
    let out = match command.output() {
        Ok(out) => out,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(Error::NoTool { tool, package }),
        Err(source) => return Err(Error::Io { what: format!("run {tool}"), source }),
    };
    if out.status.success() {
        return Ok(out.stdout);
    }
    let args: Vec<_> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
    let mut words = String::from_utf8_lossy(&out.stderr).into_owned();
    words += &String::from_utf8_lossy(&out.stdout);
    words.truncate(words.char_indices().nth(2000).map_or(words.len(), |(i, _)| i));
    Err(Error::Tool {
        command: format!("{tool} {}", args.join(" ")),
        status: out.status.to_string(),
        stderr: words,
    })
}

/// A mounted filesystem. Dropping it unmounts it, lazily when it is still in use.
#[derive(Debug)]
pub struct Mount {
    at: PathBuf,
}

impl Mount {
    /// Mounts `device` on `at`, which is made when it is missing.
    pub fn new(device: &Path, at: &Path, fs: Filesystem) -> Result<Self> {
        Self::with(device, at, fs, "")
    }

    /// The same with options as `mount -o` takes them: `sync`, `dirsync`, and the filesystem's own.
    pub fn with(device: &Path, at: &Path, fs: Filesystem, options: &str) -> Result<Self> {
        std::fs::create_dir_all(at).context(|| format!("create {}", at.display()))?;
        // The flags are those of a plain `mount -o noatime`.
        let mut flags = MountFlags::NOATIME;
        let mut own = Vec::new();
        for option in options.split(',').filter(|o| !o.is_empty()) {
            match option {
                "sync" => flags |= MountFlags::SYNCHRONOUS,
                "dirsync" => flags |= MountFlags::DIRSYNC,
                other => own.push(other),
            }
        }
        let data = std::ffi::CString::new(own.join(","))
            .map_err(|_| Error::Unable(format!("mount options with a NUL: {options:?}")))?;
        rustix::mount::mount(device, at, fs.name(), flags, Some(data.as_c_str()).filter(|d| !d.is_empty()))
            .context(|| format!("mount {} ({fs} {options}) on {}", device.display(), at.display()))?;
        Ok(Mount { at: at.to_owned() })
    }

    /// Mounts an empty tmpfs on `at`, which is made when it is missing.
    pub fn tmpfs(at: &Path) -> Result<Self> {
        std::fs::create_dir_all(at).context(|| format!("create {}", at.display()))?;
        rustix::mount::mount("landfast", at, "tmpfs", MountFlags::empty(), None::<&std::ffi::CStr>)
            .context(|| format!("mount tmpfs on {}", at.display()))?;
        Ok(Mount { at: at.to_owned() })
    }

    /// Mounts the kernel's list of FUSE connections on `at`.
    pub fn fuse_control(at: &Path) -> Result<Self> {
        rustix::mount::mount("landfast", at, "fusectl", MountFlags::empty(), None::<&std::ffi::CStr>)
            .context(|| format!("mount fusectl on {}", at.display()))?;
        Ok(Mount { at: at.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Unmounts it now.
    /// Errors: EBUSY when a file in it is still open; it is then unmounted lazily all the same.
    pub fn unmount(self) -> Result<()> {
        let done = unmount(&self.at);
        if done.is_ok() {
            std::mem::forget(self);
        }
        done
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if unmount(&self.at).is_err() {
            let _ = unmount_lazily(&self.at);
        }
    }
}

/// Unmounts what is mounted on `at`.
/// Errors: EBUSY, EINVAL when nothing is mounted there.
pub fn unmount(at: &Path) -> Result<()> {
    rustix::mount::unmount(at, UnmountFlags::empty()).context(|| format!("unmount {}", at.display()))
}

/// Takes a mount away now and lets it go when its last user does.
/// Errors: EINVAL when nothing is mounted there.
pub fn unmount_lazily(at: &Path) -> Result<()> {
    rustix::mount::unmount(at, UnmountFlags::DETACH).context(|| format!("unmount {}", at.display()))
}

pub fn syncfs(path: &Path) -> Result<()> {
    let dir = std::fs::File::open(path).context(|| format!("open {}", path.display()))?;
    rustix::fs::syncfs(&dir).context(|| format!("syncfs {}", path.display()))
}
