//! Tests whether a thread that switches to another user loses the superuser's rights. All access checks of a server depend on
//! that, and a process can be started so that its threads keep them (securebits, capabilities(7)).

use rustix::fs::{MemfdFlags, Mode};
use rustix::io::Errno;
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet};

use super::real::{access, capabilities, fchmod, set_fs_gid, set_fs_uid, set_groups};

/// What the kernel takes from a thread whose filesystem user ceases to be 0.
const RIGHTS: [(CapabilitySet, &str); 8] = [
    (CapabilitySet::CHOWN, "CAP_CHOWN"),
    (CapabilitySet::DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
    (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
    (CapabilitySet::FOWNER, "CAP_FOWNER"),
    (CapabilitySet::FSETID, "CAP_FSETID"),
    (CapabilitySet::LINUX_IMMUTABLE, "CAP_LINUX_IMMUTABLE"),
    (CapabilitySet::MAC_OVERRIDE, "CAP_MAC_OVERRIDE"),
    (CapabilitySet::MKNOD, "CAP_MKNOD"),
];

/// The users to try: a user namespace may know only some of them.
const USERS: [u32; 3] = [65534, 1, 1000];

/// Why users are not protected from each other here, in words, with what to do.
pub(crate) type Fault = String;

/// Switches to another user on a new thread, and does what must fail then.
pub(crate) fn try_switch() -> Result<(), Fault> {
    let thread = std::thread::Builder::new().name("switch".to_owned()).spawn(trial);
    let thread = thread.map_err(|e| format!("a thread to try it on cannot be started: {e}"))?;
    thread.join().unwrap_or_else(|_| Err("the trial of it has failed".to_owned()))
}

fn trial() -> Result<(), Fault> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |e: Errno| format!("trying it has failed: {what}: {e}")
    };
    // A file of the superuser without any permissions.
    let file = rustix::fs::memfd_create("landfast", MemfdFlags::CLOEXEC).map_err(failed("a file"))?;
    fchmod(&file, Mode::empty()).map_err(failed("its mode"))?;
    let before = capabilities(None).map_err(failed("capabilities"))?.effective;
    set_groups(&[]).map_err(failed("no groups"))?;
    let user = USERS.into_iter().find(|user| set_fs_uid(*user).is_ok() && set_fs_gid(*user).is_ok());
    let Some(user) = user else {
        return Err(format!(
            "none of the users {USERS:?} can be become: this user namespace does not know them; give it a range of users \
             (uid_map, gid_map) that has them"
        ));
    };
    let during = capabilities(None).map_err(failed("capabilities"))?.effective;
    let mut kept: Vec<&str> =
        RIGHTS.iter().filter(|(right, _)| during.contains(*right)).map(|(_, name)| *name).collect();
    if access(&file, libc::R_OK | libc::W_OK).map_err(failed("a look at the file"))? {
        kept.push("opening root's files");
    }
    if fchmod(&file, Mode::RWXU).is_ok() {
        kept.push("changing root's files' modes");
    }
    set_fs_uid(0).map_err(failed("back to user 0"))?;
    let after = capabilities(None).map_err(failed("capabilities"))?.effective;
    if !kept.is_empty() {
        return Err(format!("as user {user} it keeps root's rights ({}), {}", kept.join(", "), cause()));
    }
    if let Some((_, lost)) =
        RIGHTS.iter().find(|(right, _)| before.contains(*right) && !after.contains(*right))
    {
        return Err(format!("back as user 0 it has lost {lost}, {}", cause()));
    }
    Ok(())
}

fn cause() -> &'static str {
    let bits = rustix::thread::capabilities_secure_bits();
    match bits.is_ok_and(|bits| bits.contains(CapabilitiesSecureBits::NO_SETUID_FIXUP)) {
        true => {
            "because the process was started with the securebit no_setuid_fixup: start it without (systemd: no \
             no-setuid-fixup in SecureBits=; setpriv: --securebits=-no_setuid_fixup)"
        }
        false => {
            "and no securebit is the reason: start it as plain root, without whatever gives it capabilities in another way"
        }
    }
}
