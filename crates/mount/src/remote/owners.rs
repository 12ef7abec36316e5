//! Owners and groups as the server names them (RFC 8881 section 5.9), as numbers of this machine.

use std::collections::HashMap;

use bytes::Bytes;
use nix::errno::Errno;
use nix::unistd::{Group, User};
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

use crate::limits::{OWNER_AGE, OWNER_MISSING_AGE, OWNERS_KNOWN_MAX};

/// The number of an owner whom this machine does not know.
const NOBODY: u32 = 65_534;

/// Looks up the number of a user, or of a group.
type LookUp = dyn Fn(&str, bool) -> Result<Option<u32>, Errno> + Send + Sync;

/// What was found, and until when that holds.
#[derive(Debug, Clone, Copy)]
struct Known {
    number: Option<u32>,
    until: Instant,
}

/// Names that were looked up on this machine.
pub(super) struct Owners {
    known: Mutex<HashMap<(Bytes, bool), Known>>,
    look_up: Box<LookUp>,
}

impl Owners {
    pub(super) fn new() -> Owners {
        Owners::with(Box::new(on_this_machine))
    }

    fn with(look_up: Box<LookUp>) -> Owners {
        Owners { known: Mutex::default(), look_up }
    }

    /// The number of a user, or of a group.
    pub(super) fn number(&self, name: Option<&Bytes>, group: bool) -> u32 {
        let Some(name) = name else { return NOBODY };
        let Ok(text) = std::str::from_utf8(name) else { return NOBODY };
        if let Ok(number) = text.parse() {
            return number;
        }
        let now = Instant::now();
        let before = {
            let mut known = self.known.lock();
            let found = known.get_mut(&(name.clone(), group));
            let before = found.as_deref().copied();
            if let Some(known) = before.filter(|known| now < known.until) {
                return known.number.unwrap_or(NOBODY);
            }
            if let Some(found) = found {
                // Others use it while this request looks: when a directory service hangs, only one request in OWNER_MISSING_AGE waits for it.
                found.until = now + OWNER_MISSING_AGE;
            }
            before
        };
        // `user@domain`: the domain is the server's own; only the name counts here.
        let short = text.split('@').next().unwrap_or_default();
        let found = while_others_go_on(|| (self.look_up)(short, group));
        let (number, age) = match found {
            Ok(Some(number)) => (Some(number), OWNER_AGE),
            Ok(None) => (None, OWNER_MISSING_AGE),
            // Who had a number before still has it.
            Err(_) => (before.and_then(|known| known.number), OWNER_MISSING_AGE),
        };
        let mut known = self.known.lock();
        if known.len() >= OWNERS_KNOWN_MAX {
            known.clear();
        }
        // A copy: a slice of a reply would keep the whole reply in memory.
        known.insert((Bytes::copy_from_slice(name), group), Known { number, until: Instant::now() + age });
        number.unwrap_or(NOBODY)
    }
}

/// A directory service may take long to answer. Meanwhile the runtime has another thread for its other tasks.
fn while_others_go_on<T>(work: impl FnOnce() -> T) -> T {
    let has_threads =
        Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if has_threads { tokio::task::block_in_place(work) } else { work() }
}

fn on_this_machine(name: &str, group: bool) -> Result<Option<u32>, Errno> {
    match group {
        false => Ok(User::from_name(name)?.map(|user| user.uid.as_raw())),
        true => Ok(Group::from_name(name)?.map(|group| group.gid.as_raw())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Weak};
    use std::time::Duration;

    #[test]
    fn numbers_are_numbers_and_names_are_looked_up_here() {
        let owners = Owners::new();
        let number = |text: &'static str| owners.number(Some(&Bytes::from_static(text.as_bytes())), false);
        assert_eq!(number("1000"), 1000);
        assert_eq!(number("root@example.org"), 0);
        assert_eq!(number("nobody knows this one@example.org"), NOBODY);
        assert_eq!(owners.number(None, true), NOBODY);
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_who_could_not_be_looked_up_is_looked_up_again_after_a_while() {
        let answer = Arc::new(Mutex::new((Err(Errno::EIO), 0)));
        let told = answer.clone();
        let owners = Owners::with(Box::new(move |name, _| {
            let mut told = told.lock();
            assert_eq!(name, "alice");
            told.1 += 1;
            told.0
        }));
        let number = || owners.number(Some(&Bytes::from_static(b"alice@example.org")), false);
        let look_ups = || answer.lock().1;
        // An error, and then a directory that does not have her yet.
        for (at, now) in [Err(Errno::EIO), Ok(None)].into_iter().enumerate() {
            answer.lock().0 = now;
            assert_eq!([number(), number()], [NOBODY; 2]);
            assert_eq!(look_ups(), at + 1, "it is not asked each time");
            tokio::time::advance(OWNER_MISSING_AGE).await;
        }
        answer.lock().0 = Ok(Some(7));
        assert_eq!(number(), 7);
        tokio::time::advance(OWNER_AGE - Duration::from_millis(1)).await;
        assert_eq!((number(), look_ups()), (7, 3));
        // Later the directory cannot be asked: she keeps her number, and is looked up again soon.
        answer.lock().0 = Err(Errno::EIO);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!((number(), number(), look_ups()), (7, 7, 4));
        answer.lock().0 = Ok(None);
        tokio::time::advance(OWNER_MISSING_AGE).await;
        assert_eq!((number(), look_ups()), (NOBODY, 5));
    }

    #[tokio::test(start_paused = true)]
    async fn others_go_on_with_the_number_of_before_while_an_owner_is_looked_up_again() {
        let look_ups = AtomicU32::new(0);
        let owners = Arc::new_cyclic(|owners: &Weak<Owners>| {
            let owners = owners.clone();
            Owners::with(Box::new(move |name, _| match look_ups.fetch_add(1, Ordering::Relaxed) {
                0 => Ok(Some(7)),
                // Another request needs her number meanwhile.
                1 => {
                    let other = owners.upgrade().unwrap();
                    assert_eq!(other.number(Some(&Bytes::copy_from_slice(name.as_bytes())), false), 7);
                    Ok(Some(8))
                }
                _ => Ok(None),
            }))
        });
        let number = || owners.number(Some(&Bytes::from_static(b"alice")), false);
        assert_eq!(number(), 7);
        tokio::time::advance(OWNER_AGE).await;
        assert_eq!((number(), number()), (8, 8));
    }

    /// The runtime has one thread, which a look-up must not keep from its other tasks.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_go_on_during_a_look_up() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let receiver = Mutex::new(receiver);
        let owners = Owners::with(Box::new(move |_, _| {
            let other = receiver.lock().recv_timeout(Duration::from_secs(20));
            Ok(other.ok())
        }));
        let looks = tokio::spawn(async move {
            tokio::spawn(async move { sender.send(7) });
            owners.number(Some(&Bytes::from_static(b"alice")), false)
        });
        assert_eq!(looks.await.unwrap(), 7);
    }
}
