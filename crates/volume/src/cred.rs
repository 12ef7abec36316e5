//! The calling thread's rights: filesystem user, group and supplementary groups, per thread and cached.
//!
//! A thread that runs operations is prepared once: it gets its own umask (0) and gives up `CAP_SYS_RESOURCE`, which
//! would let clients use the filesystem's root reserve and exceed quotas; only recovery has it ([`beyond_quotas`]). When the filesystem user changes away from
//! root, the kernel drops the thread's file capabilities; when it changes back, the kernel restores them
//! (capabilities(7)). So the kernel's own checks apply to every call.
//!
//! A switch between a caller and the superuser changes only the user: the superuser needs no group, so the caller's
//! groups stay.
//!
//! Invariant: the cached identity is the thread's identity. Nothing else in the process may change it on such threads.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use crate::error::Error;
use crate::kernel;
use crate::types::Cred;

thread_local! {
    static NOW: RefCell<Option<Cred>> = const { RefCell::new(None) };
}

/// The capabilities that a volume needs; without them it refuses to open.
pub(crate) const NEEDED: &[(CapabilitySet, &str)] = &[
    (CapabilitySet::CHOWN, "CAP_CHOWN"),
    (CapabilitySet::DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
    (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
    (CapabilitySet::FOWNER, "CAP_FOWNER"),
    (CapabilitySet::FSETID, "CAP_FSETID"),
    (CapabilitySet::MKNOD, "CAP_MKNOD"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN"),
];

/// The same as one list, for the message.
pub(crate) const NEEDED_NAMES: &str = "CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID, \
                                       CAP_MKNOD, CAP_SETGID, CAP_SETUID and CAP_SYS_ADMIN";

/// Which of [`NEEDED`] the process lacks; empty if it may serve. The user id must be 0, too: only then do
/// capabilities follow the filesystem user.
pub(crate) fn missing() -> Result<Vec<&'static str>, Errno> {
    let effective = kernel::capabilities(None)?.effective;
    let mut missing: Vec<&str> =
        NEEDED.iter().filter(|(cap, _)| !effective.contains(*cap)).map(|(_, name)| *name).collect();
    if !kernel::geteuid().is_root() {
        missing.push("user id 0");
    }
    Ok(missing)
}

/// Makes the calling thread act as `cred` from here on. Costs nothing if it already does.
pub(crate) fn assume(cred: &Cred) -> Result<(), Error> {
    // The system calls below take -1 as "leave unchanged": such a caller would keep the previous one's rights.
    if cred.uid == u32::MAX || cred.gid == u32::MAX {
        return Err(Error::Perm);
    }
    NOW.with_borrow_mut(|now| {
        if now.as_ref() == Some(cred) {
            return Ok(());
        }
        // If one of these calls fails, the cache must not claim the previous identity.
        let (same_group, same_groups) = match now.take() {
            Some(now) => (now.gid == cred.gid, now.groups == cred.groups),
            None => {
                prepare()?;
                (false, false)
            }
        };
        if !same_groups {
            kernel::set_groups(&cred.groups)?;
        }
        if !same_group {
            kernel::set_fs_gid(cred.gid)?;
        }
        kernel::set_fs_uid(cred.uid)?;
        *now = Some(cred.clone());
        Ok(())
    })
}

/// Makes the calling thread act with the superuser's rights; its groups stay.
pub(crate) fn assume_root() -> Result<(), Error> {
    NOW.with_borrow_mut(|now| {
        let (gid, groups) = match now.take() {
            Some(cred) if cred.uid == 0 => {
                *now = Some(cred);
                return Ok(());
            }
            Some(cred) => (cred.gid, cred.groups),
            None => {
                prepare()?;
                let none: Arc<[u32]> = Arc::from([]);
                kernel::set_groups(&none)?;
                kernel::set_fs_gid(0)?;
                (0, none)
            }
        };
        kernel::set_fs_uid(0)?;
        *now = Some(Cred { uid: 0, gid, groups });
        Ok(())
    })
}

#[cfg(test)]
pub(crate) fn forget() {
    NOW.take();
}

/// Only prepares the thread; for a volume that acts as the process's own user.
pub(crate) fn prepare_once() -> Result<(), Error> {
    thread_local! {
        static DONE: Cell<bool> = const { Cell::new(false) };
    }
    if !DONE.get() {
        prepare()?;
        DONE.set(true);
    }
    Ok(())
}

/// While it lives, the calling thread and those that it starts may exceed quotas, if the process may.
pub(crate) struct BeyondQuotas {
    raised: bool,
    /// It is about this thread.
    _thread: PhantomData<*const ()>,
}

/// For recovery: what it makes again was within all quotas when it was promised, but what was removed before may still be there.
pub(crate) fn beyond_quotas() -> BeyondQuotas {
    BeyondQuotas { raised: set_beyond_quotas(true).unwrap_or(false), _thread: PhantomData }
}

impl Drop for BeyondQuotas {
    fn drop(&mut self) {
        if self.raised && set_beyond_quotas(false).is_err() {
            // Then this thread serves nobody unless it can be prepared again.
            NOW.take();
        }
    }
}

/// Returns whether it has changed the thread's capabilities.
fn set_beyond_quotas(beyond: bool) -> Result<bool, Errno> {
    let mut sets = kernel::capabilities(None)?;
    if sets.effective.contains(CapabilitySet::SYS_RESOURCE) == beyond
        || beyond && !sets.permitted.contains(CapabilitySet::SYS_RESOURCE)
    {
        return Ok(false);
    }
    sets.effective.set(CapabilitySet::SYS_RESOURCE, beyond);
    kernel::set_capabilities(None, sets)?;
    Ok(true)
}

fn prepare() -> Result<(), Errno> {
    kernel::unshare_fs()?;
    kernel::umask(rustix::fs::Mode::empty());
    set_beyond_quotas(false)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(not(root), ignore = "needs root")]
    fn only_while_it_is_said_may_a_thread_exceed_quotas() {
        let may = || kernel::capabilities(None).unwrap().effective.contains(CapabilitySet::SYS_RESOURCE);
        if !kernel::capabilities(None).unwrap().permitted.contains(CapabilitySet::SYS_RESOURCE) {
            println!("skipped: needs CAP_SYS_RESOURCE");
            return;
        }
        let checks = std::thread::spawn(move || {
            assume_root().unwrap();
            assert!(!may());
            let beyond = beyond_quotas();
            assert!(may());
            let helper = std::thread::spawn(move || {
                let helps = may();
                // Then it serves clients.
                assume(&Cred { uid: 1001, gid: 1002, groups: Arc::from([]) }).unwrap();
                (helps, may())
            });
            assert_eq!(helper.join().unwrap(), (true, false));
            drop(beyond);
            assert!(!may());
        });
        checks.join().unwrap();
    }

    #[test]
    #[cfg_attr(not(root), ignore = "needs root")]
    fn the_thread_is_who_it_was_told_to_be() {
        if !kernel::geteuid().is_root() {
            println!("skipped: needs root");
            return;
        }
        // On a thread of its own, since the test harness's thread must not change.
        let checks = std::thread::spawn(|| {
            let user = Cred { uid: 1001, gid: 1002, groups: Arc::from([7, 8]) };
            assume(&user).unwrap();
            assert_eq!(kernel::fs_ids(), (1001, 1002));
            let path = std::env::temp_dir().join(format!("landfast-cred-{}", std::process::id()));
            let made = std::fs::write(&path, b"x").map(|()| {
                use std::os::unix::fs::MetadataExt;
                let meta = std::fs::metadata(&path).unwrap();
                (meta.uid(), meta.gid())
            });
            assert_eq!(made.unwrap(), (1001, 1002));
            let effective = || kernel::capabilities(None).unwrap().effective;
            assert!(!effective().contains(CapabilitySet::DAC_OVERRIDE));
            assume_root().unwrap();
            assert_eq!(kernel::fs_ids(), (0, 1002));
            assert!(effective().contains(CapabilitySet::DAC_OVERRIDE));
            assert!(!effective().contains(CapabilitySet::SYS_RESOURCE), "reserves and quotas hold for all");
            std::fs::remove_file(&path).unwrap();
            // As a caller, the superuser has his own groups.
            assume(&Cred::root()).unwrap();
            assert_eq!(kernel::fs_ids(), (0, 0));
            assume(&Cred { uid: 1001, gid: 5, groups: Arc::from([]) }).unwrap();
            assert_eq!(kernel::fs_ids(), (1001, 5));
            let refused = Cred { uid: u32::MAX, ..Cred::root() };
            assert_eq!(assume(&refused), Err(Error::Perm));
            assert_eq!(kernel::fs_ids(), (1001, 5), "not what an earlier caller left");
        });
        checks.join().unwrap();
    }
}
