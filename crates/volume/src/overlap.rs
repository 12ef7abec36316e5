//! Whether two volumes have objects in common. Then two logs would record one object, and recovery could not know which is
//! right.

use crate::error::Error;
use crate::inside::is_below;
use crate::volume::Volume;

impl Volume {
    /// Whether the directory of `other` is that of this volume or lies below it on the same filesystem. The filesystem's own
    /// tree counts, through whichever mount the directory was reached.
    pub fn contains(&self, other: &Volume) -> Result<bool, Error> {
        self.assume_root()?;
        Ok(is_below(&self.0.mount, &other.0.mount)?)
    }

    /// Whether the state directory of `other` lies in this volume's directory. Then this volume's clients would see it, since only
    /// this volume's own is hidden from them.
    pub fn shows_state_of(&self, other: &Volume) -> Result<bool, Error> {
        self.assume_root()?;
        Ok(is_below(&self.0.mount, &other.0.state_dir)?)
    }
}
