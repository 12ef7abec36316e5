//! Whether two volumes have objects in common: then two logs would tell of one object, and recovery could not know which
//! is right.

use crate::error::Error;
use crate::inside::is_below;
use crate::volume::Volume;

impl Volume {
    /// Whether the directory of `other` is that of this volume or lies below it, on the same filesystem. Also when it was
    /// reached by another mount: what counts is the filesystem's own tree.
    pub fn contains(&self, other: &Volume) -> Result<bool, Error> {
        self.assume_root()?;
        Ok(is_below(&self.0.mount, &other.0.mount)?)
    }

    /// Whether the state directory of `other` lies in this volume's directory: then this one's clients would see it, since only the
    /// one of its own is hidden from them.
    pub fn shows_state_of(&self, other: &Volume) -> Result<bool, Error> {
        self.assume_root()?;
        Ok(is_below(&self.0.mount, &other.0.state_dir)?)
    }
}
