//! Every limit of this crate, in one place.

/// Longest component of a path, bytes (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;

/// Longest target of a symbolic link, bytes (`PATH_MAX` without its NUL).
pub const SYMLINK_BYTES_MAX: usize = 4095;

/// Longest kernel handle that this crate takes, bytes. ext4 uses 8, XFS 8 to 24, btrfs 20 to 40; the kernel's own
/// limit is 128. Small enough that a handle fits a wire filehandle with its frame, and a staging name in hex.
pub const HANDLE_BYTES_MAX: usize = 64;

/// Longest name of an extended attribute, bytes (`XATTR_NAME_MAX`).
pub const XATTR_NAME_BYTES_MAX: usize = 255;

/// Longest value of an extended attribute, bytes (`XATTR_SIZE_MAX`).
pub const XATTR_VALUE_BYTES_MAX: usize = 65536;

/// Numbers of lost inodes that are remembered as taken; the oldest are forgotten beyond. 8 bytes each.
pub const CLAIMS_MAX: usize = 1 << 20;

/// Descriptors that recovery keeps open for objects it comes back to.
pub const DESCRIPTORS_KEPT: usize = 64;

/// Commits that recovery does on btrfs at most, to bring its generation past that of the handles that are known. A
/// crash loses one or two.
pub const BTRFS_COMMITS_MAX: u32 = 64;

/// Largest space reserve for recovery, bytes.
pub const RESERVE_BYTES_MAX: u64 = 256 << 20;

/// The space reserve is this part of the filesystem, if that is less.
pub const RESERVE_PART: u64 = 64;
