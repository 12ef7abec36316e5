//! What is agreed with the kernel when the mount begins.

use fuser::{InitFlags, KernelConfig};

use crate::limits;
use crate::options::Options;

/// Asks the kernel for what this mount needs.
pub(super) fn ask(config: &mut KernelConfig, options: &Options) {
    // A kernel that lacks one of them works without it.
    for wanted in [
        InitFlags::FUSE_ASYNC_READ,
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_READDIRPLUS_AUTO,
        InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        InitFlags::FUSE_EXPLICIT_INVAL_DATA,
        InitFlags::FUSE_MAX_PAGES,
        InitFlags::FUSE_BIG_WRITES,
        InitFlags::FUSE_ASYNC_DIO,
    ] {
        let _ = config.add_capabilities(wanted);
    }
    if !options.local_locks {
        let _ = config.add_capabilities(InitFlags::FUSE_POSIX_LOCKS);
        let _ = config.add_capabilities(InitFlags::FUSE_FLOCK_LOCKS);
    }
    let _ = config.set_max_write(limits::KERNEL_WRITE_BYTES);
    if let Err(most) = config.set_max_readahead(limits::KERNEL_WRITE_BYTES) {
        let _ = config.set_max_readahead(most);
    }
    let _ = config.set_max_background(limits::KERNEL_BACKGROUND);
    let _ = config.set_congestion_threshold(limits::KERNEL_BACKGROUND);
}
