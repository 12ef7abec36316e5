//! Memory that was needed for a while goes back to the system.
//!
//! Replies may take hundreds of megabytes while clients ask for much (`limits.reply_bytes`). When they have been sent and freed, glibc
//! keeps most of it for the threads that allocated it: its arenas give back what is free at their end only. So now and then, when
//! much more is resident than after the last time and little of it is in use for requests, all that is free is given back. That
//! takes a few milliseconds for each hundred megabytes, on a thread that nobody waits for.

use crate::limits;
use crate::serve::Load;
use crate::sys;
use std::time::Duration;

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(2);

/// Looks now and then, and never ends.
pub(crate) async fn give_back(load: Load) {
    let mut every = tokio::time::interval(LOOK);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut settled = sys::resident_bytes().unwrap_or(u64::MAX);
    loop {
        every.tick().await;
        let Some(resident) = sys::resident_bytes() else { return };
        let now = load();
        let in_use = (now.bytes as u64).saturating_add(now.reply_bytes as u64);
        settled = settled.min(resident);
        if resident.saturating_sub(settled).saturating_sub(in_use) < limits::MEMORY_KEPT_BYTES {
            continue;
        }
        // Should it panic, the next look tries again.
        let _ = tokio::task::spawn_blocking(sys::give_back_memory).await;
        settled = sys::resident_bytes().unwrap_or(u64::MAX);
    }
}
