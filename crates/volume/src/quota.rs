//! What a user's quota leaves (quotactl(2), `Q_GETQUOTA`). Pure, but for the one look.

use crate::error::Error;
use crate::kernel;
use crate::volume::Volume;

/// A unit of the limits on space, bytes (`QIF_DQBLKSIZE`).
const BLOCK: u64 = 1024;

/// A user's limits and what he uses, as the kernel tells. A limit of 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// In units of [`BLOCK`].
    pub blocks_hard: u64,
    pub blocks_soft: u64,
    /// In bytes; with space that is promised to data on its way to the disk.
    pub bytes: u64,
    pub files_hard: u64,
    pub files_soft: u64,
    pub files: u64,
    /// When the soft limits become hard ones, seconds since 1970; 0: they are not exceeded.
    pub blocks_until: u64,
    pub files_until: u64,
}

/// What is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaLeft {
    pub bytes: u64,
    pub files: u64,
}

/// What limits leave of a thing. A soft limit counts once its time is over.
fn left(hard: u64, soft: u64, used: u64, until: u64, now: u64) -> u64 {
    let over = soft > 0 && used > soft && until > 0 && until <= now;
    match hard {
        _ if over => 0,
        0 => u64::MAX,
        hard => hard.saturating_sub(used),
    }
}

impl Quota {
    /// What it leaves at `now`, seconds since 1970.
    pub fn left(&self, now: u64) -> QuotaLeft {
        let bytes = |blocks: u64| blocks.saturating_mul(BLOCK);
        let (hard, soft) = (bytes(self.blocks_hard), bytes(self.blocks_soft));
        QuotaLeft {
            bytes: left(hard, soft, self.bytes, self.blocks_until, now),
            files: left(self.files_hard, self.files_soft, self.files, self.files_until, now),
        }
    }
}

impl Volume {
    /// What the quota of a user leaves him, `now` in seconds since 1970. `None`: the filesystem has no quotas for users.
    ///
    /// # Errors
    /// `Io` and the like: the filesystem cannot say.
    pub fn quota_left(&self, uid: u32, now: u64) -> Result<Option<QuotaLeft>, Error> {
        Ok(kernel::quota(&self.0.mount, uid)?.map(|quota| quota.left(now)))
    }

    /// The device of the filesystem, major and minor: volumes on one filesystem share its space.
    pub fn device(&self) -> (u32, u32) {
        self.0.device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_limits_leave() {
        let none = Quota { bytes: 1 << 40, files: 9, ..Quota::default() };
        assert_eq!(none.left(5), QuotaLeft { bytes: u64::MAX, files: u64::MAX });
        let hard = Quota { blocks_hard: 10, bytes: 4096, files_hard: 3, files: 5, ..Quota::default() };
        assert_eq!(hard.left(5), QuotaLeft { bytes: 6144, files: 0 });
        let soft = Quota { blocks_soft: 4, bytes: 4097, blocks_until: 7, ..hard };
        assert_eq!((soft.left(6).bytes, soft.left(7).bytes), (6143, 0));
        let soft = Quota { bytes: 4096, ..soft };
        assert_eq!(soft.left(7).bytes, 6144, "the soft limit is not exceeded");
    }
}
