//! Where a log stands, as one value from the command line to the device.

use std::path::{Path, PathBuf};

/// Where a log stands. Each kind of device is a variant; `open.rs` says how each is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogPlace {
    /// A regular file (created if it is not there) or a block device.
    File(PathBuf),
    /// Two files or block devices that hold the same: a write is done when both have it.
    Mirror([PathBuf; 2]),
}

impl LogPlace {
    /// The place that `--log PATH` and `--log-mirror PATH` name, and `path` and `mirror` in a configuration file.
    pub fn new(path: impl Into<PathBuf>, mirror: Option<PathBuf>) -> LogPlace {
        match mirror {
            None => LogPlace::File(path.into()),
            Some(mirror) => LogPlace::Mirror([path.into(), mirror]),
        }
    }

    /// Every file and block device that the log occupies.
    pub fn paths(&self) -> &[PathBuf] {
        match self {
            LogPlace::File(path) => std::slice::from_ref(path),
            LogPlace::Mirror(paths) => paths,
        }
    }

    /// The path by which messages and the volume's own file name the log: its first.
    pub fn first_path(&self) -> &Path {
        self.paths().first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// A mirror of a path with itself protects nothing: each user of this type refuses it.
    pub fn is_mirror_of_itself(&self) -> bool {
        matches!(self, LogPlace::Mirror([first, second]) if first == second)
    }
}

impl<P: AsRef<Path> + ?Sized> From<&P> for LogPlace {
    fn from(path: &P) -> LogPlace {
        LogPlace::File(path.as_ref().to_owned())
    }
}

impl From<PathBuf> for LogPlace {
    fn from(path: PathBuf) -> LogPlace {
        LogPlace::File(path)
    }
}
