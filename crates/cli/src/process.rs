//! What this process inherited.

/// The umask. `/proc` tells it without a change of it; the system call umask(2) cannot read it without setting it for a moment.
pub fn umask() -> u32 {
    let status = procfs::process::Process::myself().and_then(|own| own.status());
    status.ok().and_then(|status| status.umask).unwrap_or(0o022)
}
