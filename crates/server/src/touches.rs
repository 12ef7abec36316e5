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

/// Whether there are delegations of such objects.
pub(crate) fn can_be_delegated(kind: Kind) -> bool {
    matches!(kind, Kind::File | Kind::Dir)
}

/// All that is under way. Files are told apart by groups only.
#[derive(Debug)]
pub(crate) struct Touches {
    /// Delegations that are live.
    live: AtomicUsize,
    /// Of these, those of directories for writing.
    whole_directories: AtomicUsize,
    /// Goes up when some have ended.
    ends: AtomicU64,
    /// Goes up when some were given.
    given: AtomicU64,
    /// Clients that had delegations and are gone, and the log may not know it.
    holders_gone: AtomicUsize,
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
        // As many for looks into directories.
        let groups = (0..2 * TOUCH_GROUPS).map(|_| AtomicU32::new(0)).collect();
        let (live, whole_directories) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (ends, given) = (AtomicU64::new(0), AtomicU64::new(0));
        let holders_gone = AtomicUsize::new(0);
        Arc::new(Touches { live, whole_directories, ends, given, holders_gone, groups })
    }

    fn group(file: &[u8]) -> usize {
        fnv::add(fnv::BEGIN, file) as usize % TOUCH_GROUPS
    }

    pub(crate) fn begin(self: &Arc<Touches>, file: &[u8]) -> Touching {
        self.begin_in(Touches::group(file))
    }

    /// Announces that this is done to a file or directory. Who only looks into a directory is in a group of its own: that concerns only those for writing.
    pub(crate) fn begin_as(self: &Arc<Touches>, kind: Kind, touch: Touch, file: &[u8]) -> Touching {
        match (kind, touch) {
            (Kind::Dir, Touch::Looks | Touch::Reads) => self.begin_in(TOUCH_GROUPS + Touches::group(file)),
            _ => self.begin(file),
        }
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

    /// Whether there is any delegation that may be in the way of this, or that has ended in a way that the log may not know
    /// ([`crate::state::removals`]). Others may look at a directory that is delegated for reading.
    pub(crate) fn any_in_the_way(&self, kind: Kind, touch: Touch) -> bool {
        let live = match (kind, touch) {
            (Kind::Dir, Touch::Looks | Touch::Reads) => self.whole_directories.load(Ordering::SeqCst) > 0,
            _ => self.any_delegation(),
        };
        live || self.any_holder_gone()
    }

    /// Whether clients with delegations are gone, and the log may not know it. Asked after the delegations that are live.
    pub(crate) fn any_holder_gone(&self) -> bool {
        self.holders_gone.load(Ordering::SeqCst) > 0
    }

    /// Sets how many clients with delegations are gone without the log knowing it. Called by who has the state, before [`Touches::set_delegations`].
    pub(crate) fn set_holders_gone(&self, gone: usize) {
        if self.holders_gone.load(Ordering::Relaxed) != gone {
            self.holders_gone.store(gone, Ordering::SeqCst);
        }
    }

    /// Sets how many delegations are live, and how many of these are of directories for writing. Called by who has the state.
    pub(crate) fn set_delegations(&self, live: usize, whole_directories: usize) {
        for (known, now) in [(&self.live, live), (&self.whole_directories, whole_directories)] {
            let before = known.load(Ordering::Relaxed);
            if before != now {
                known.store(now, Ordering::SeqCst);
            }
            if before < now {
                self.given.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Goes up when delegations were given. So who has looked for some before he reads knows afterwards whether there may be others.
    pub(crate) fn given(&self) -> u64 {
        self.given.load(Ordering::SeqCst)
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
        self.others_are_in(Touches::group(file), own)
    }

    /// Whether others than `own` look into the directory or are at work on it.
    pub(crate) fn others_look(&self, dir: &[u8], own: &[Touching]) -> bool {
        self.others_are_in(TOUCH_GROUPS + Touches::group(dir), own) || self.others_touch(dir, own)
    }

    fn others_are_in(&self, group: usize, own: &[Touching]) -> bool {
        let own = own.iter().filter(|t| t.group == group).count();
        self.groups.get(group).is_some_and(|count| count.load(Ordering::SeqCst) as usize > own)
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
        drop(own);
        assert!(!all.others_touch(b"file", &[]));
    }

    #[test]
    fn who_looks_into_a_directory_is_seen_by_who_wants_it_for_writing() {
        let all = Touches::new();
        let look = all.begin_as(Kind::Dir, Touch::Looks, b"dir");
        assert!(!all.others_touch(b"dir", &[]) && all.others_look(b"dir", &[]));
        assert!(!all.others_look(b"dir", std::slice::from_ref(&look)));
        drop(look);
        let change = all.begin_as(Kind::Dir, Touch::Changes, b"dir");
        assert!(all.others_touch(b"dir", &[]) && all.others_look(b"dir", &[]));
        drop(change);
        let file = all.begin_as(Kind::File, Touch::Looks, b"file");
        assert!(all.others_touch(b"file", &[]));
        drop(file);
        assert!(!all.others_look(b"dir", &[]));
    }

    #[test]
    fn who_looks_into_a_directory_is_concerned_by_those_for_writing_only() {
        let all = Touches::new();
        let concerns = |kind, touch| all.any_in_the_way(kind, touch);
        assert!(!concerns(Kind::Dir, Touch::Changes) && !concerns(Kind::Dir, Touch::Looks));
        all.set_delegations(1, 0);
        assert!(concerns(Kind::Dir, Touch::Changes) && concerns(Kind::File, Touch::Looks));
        assert!(!concerns(Kind::Dir, Touch::Looks) && !concerns(Kind::Dir, Touch::Reads));
        all.set_delegations(1, 1);
        assert!(concerns(Kind::Dir, Touch::Looks) && concerns(Kind::Dir, Touch::Reads));
        all.set_holders_gone(1);
        all.set_delegations(0, 0);
        assert!(concerns(Kind::Dir, Touch::Changes) && concerns(Kind::Dir, Touch::Looks));
        all.set_holders_gone(0);
        assert!(!concerns(Kind::Dir, Touch::Changes));
    }
}
