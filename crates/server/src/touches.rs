//! What is being done to files right now: a delegation must not be given while somebody else is at work on the file, since that one has
//! already been told that no delegation is in its way.
//!
//! Who does something enters the file here first, then looks for delegations. Who gives a delegation enters it into the state first, then
//! looks here. So one of the two sees the other, and the one who gives takes it back.

use crate::fnv;
use crate::limits::TOUCH_GROUPS;
use crate::state::delegations::Touch;
use landfast_volume::Kind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Whether this concerns delegations of such objects. Others may look at a delegated directory.
pub(crate) fn can_be_delegated(kind: Kind, touch: Touch) -> bool {
    match kind {
        Kind::File => true,
        Kind::Dir => touch == Touch::Changes,
        _ => false,
    }
}

/// All that is under way. Files are told apart by groups only.
#[derive(Debug)]
pub(crate) struct Touches {
    /// Delegations that are live.
    live: AtomicUsize,
    /// Goes up when some have ended.
    ends: AtomicU64,
    groups: Vec<AtomicU32>,
}

/// Something that is being done to a file, until this is dropped.
#[derive(Debug)]
pub(crate) struct Touching {
    all: Arc<Touches>,
    group: usize,
}

impl Touches {
    pub(crate) fn new() -> Arc<Touches> {
        // One more for operations on names.
        let groups = (0..=TOUCH_GROUPS).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Touches { live: AtomicUsize::new(0), ends: AtomicU64::new(0), groups })
    }

    fn group(file: &[u8]) -> usize {
        fnv::add(fnv::BEGIN, file) as usize % TOUCH_GROUPS
    }

    pub(crate) fn begin(self: &Arc<Touches>, file: &[u8]) -> Touching {
        self.begin_in(Touches::group(file))
    }

    /// Announces an operation on a name, whose file is not known. Where there are delegations it is looked up; while there is none, any file is
    /// at work.
    pub(crate) fn begin_names(self: &Arc<Touches>) -> Touching {
        self.begin_in(TOUCH_GROUPS)
    }

    fn begin_in(self: &Arc<Touches>, group: usize) -> Touching {
        if let Some(count) = self.groups.get(group) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        Touching { all: self.clone(), group }
    }

    /// Whether there is any delegation. Asked after [`Touches::begin`].
    pub(crate) fn any_delegation(&self) -> bool {
        self.live.load(Ordering::SeqCst) > 0
    }

    /// Sets how many delegations are live. Called by who has the state.
    pub(crate) fn set_delegations(&self, live: usize) {
        if self.live.load(Ordering::Relaxed) != live {
            self.live.store(live, Ordering::SeqCst);
        }
    }

    /// Goes up when delegations have ended. What was read before that may be older than what their holders had sent; so who reads first
    /// and looks for delegations then, as a listing does, reads again.
    pub(crate) fn ends(&self) -> u64 {
        self.ends.load(Ordering::SeqCst)
    }

    /// Delegations have ended. Called by who has the state, before [`Touches::set_delegations`].
    pub(crate) fn some_ended(&self) {
        self.ends.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether others than `own` are at work on the file. Asked after [`Touches::set_delegations`].
    pub(crate) fn others_touch(&self, file: &[u8], own: &[Touching]) -> bool {
        [Touches::group(file), TOUCH_GROUPS].into_iter().any(|group| {
            let own = own.iter().filter(|t| t.group == group).count();
            self.groups.get(group).is_some_and(|count| count.load(Ordering::SeqCst) as usize > own)
        })
    }
}

impl Drop for Touching {
    fn drop(&mut self) {
        if let Some(count) = self.all.groups.get(self.group) {
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_seen_until_they_have_ended() {
        let all = Touches::new();
        let own = [all.begin(b"file"), all.begin(b"file")];
        assert!(!all.others_touch(b"file", &own) && all.others_touch(b"file", &own[..1]));
        let other = all.begin(b"file");
        assert!(all.others_touch(b"file", &own));
        drop(other);
        assert!(!all.others_touch(b"file", &own));
        let names = all.begin_names();
        assert!(all.others_touch(b"file", &own) && all.others_touch(b"another", &own));
        drop(names);
        drop(own);
        assert!(!all.others_touch(b"file", &[]));
    }
}
