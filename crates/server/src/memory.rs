//! Returns memory to the system that was needed only for a while.
//!
//! Replies may take hundreds of megabytes while clients ask for much (`limits.reply_bytes`). After they are freed,
//! glibc keeps most of it for the threads that allocated it: its arenas return only what is free at their end, and here
//! not even that until it is much ([`sys::keep_freed_memory`]). So when
//! much more is resident than after the last time, and requests use little of it, all free memory is returned. That
//! takes a few milliseconds for each hundred megabytes, on a thread that nobody waits for.

use crate::limits;
use crate::sys;
use std::sync::Arc;
use std::time::Duration;

/// Returns what the connections hold.
pub(crate) type Load = Arc<dyn Fn() -> landfast_rpc::Load + Send + Sync>;

const LOOK: Duration = Duration::from_secs(2);

/// Looks now and then, and never ends.
pub(crate) async fn give_back(load: Load) {
    let mut every = tokio::time::interval(LOOK);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut idle = Idle { least: u64::MAX };
    loop {
        every.tick().await;
        let Some(resident) = sys::resident_bytes() else { return };
        let before = in_use(&load);
        if !idle.is_much(resident, before) {
            continue;
        }
        // Should it panic, the next look tries again.
        let _ = tokio::task::spawn_blocking(sys::give_back_memory).await;
        idle.given_back(sys::resident_bytes().unwrap_or(u64::MAX), before.max(in_use(&load)));
    }
}

fn in_use(load: &Load) -> u64 {
    let now = load();
    (now.bytes as u64).saturating_add(now.reply_bytes as u64)
}

/// What is resident and not in use for requests: how much that was at the least since memory was given back.
struct Idle {
    least: u64,
}

impl Idle {
    /// So much more of what is resident is idle that it is worth while to give it back.
    fn is_much(&mut self, resident: u64, in_use: u64) -> bool {
        let idle = resident.saturating_sub(in_use);
        self.least = self.least.min(idle);
        idle - self.least >= limits::MEMORY_KEPT_BYTES
    }

    /// All that was free has been given back. `in_use` is the most that was in use meanwhile: a reply that is freed after its arena was
    /// looked through is resident yet and goes back the next time, so it must not count as what stays.
    fn given_back(&mut self, resident: u64, in_use: u64) {
        self.least = resident.saturating_sub(in_use);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Memory was given back while replies waited that nobody read; when they are gone, theirs goes back, too.
    #[test]
    fn what_was_in_use_when_memory_was_given_back_goes_back_later() {
        let mut idle = Idle { least: u64::MAX };
        assert!(!idle.is_much(50 * MIB, 0), "the start");
        assert!(!idle.is_much(400 * MIB, 340 * MIB), "what is in use is needed");
        assert!(idle.is_much(500 * MIB, 340 * MIB));
        idle.given_back(390 * MIB, 340 * MIB);
        assert!(!idle.is_much(390 * MIB, 340 * MIB));
        assert!(idle.is_much(374 * MIB, 0), "the replies are gone");
        idle.given_back(60 * MIB, 0);
        assert!(!idle.is_much(60 * MIB, 0) && !idle.is_much(100 * MIB, 0));
    }

    /// What cannot be given back is not tried again and again.
    #[test]
    fn what_stays_resident_is_let_be() {
        let mut idle = Idle { least: 50 * MIB };
        assert!(idle.is_much(300 * MIB, 0));
        idle.given_back(300 * MIB, 0);
        assert!(!idle.is_much(300 * MIB, 0));
    }
}
