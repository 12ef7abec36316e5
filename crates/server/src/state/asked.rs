//! What the holder of a write delegation says of its file (RFC 8881 section 10.4.3, RFC 9754 section 5): what follows from it, and what others are
//! told. Whom to ask, and when: `looking.rs`.
//!
//! A holder may have written what the server does not have yet. It says so by a change attribute that differs from the one that it saw when it
//! was given the delegation, or by another size. Then the server changes the file's times, so that its change attribute grows, and tells others a
//! change attribute *less* than the new one. So whatever becomes of the holder's data, whoever looks later sees a greater one. The times that a
//! holder answers for are set in the file as if it had sent them. All this is done before anybody is told, and durable before they are answered. So of what others were told, only a size is
//! nowhere but at its holder.
//!
//! Invariant: whatever is told, in this way or by the file alone, the change attribute does not repeat for other values.

use landfast_nfs::v4::attr::number::{CHANGE, SIZE, TIME_DELEG_ACCESS, TIME_DELEG_MODIFY};
use landfast_nfs::v4::{AttrValues, Bitmap, Fattr, NfsTime};
use landfast_volume::{Attrs, SetAttrs, TimeSet, Timestamp};

/// The file as it was when its delegation was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsGiven {
    /// Its change attribute.
    pub change: u64,
    /// Whoever opened it may set its times to any other than now: its owner or root.
    pub by_owner: bool,
}

/// What the holder of a delegation is asked, and has said.
#[derive(Debug, Clone, Default)]
pub struct Asking {
    /// Unknown: the holder is not asked.
    pub(super) given: Option<AsGiven>,
    /// A question waits to be sent.
    pub(super) queued: bool,
    /// The number of the question that is under way.
    pub(super) under_way: Option<u64>,
    /// How often it was asked.
    pub(super) times: u32,
    /// What came of the last one that was answered, by its number.
    pub(super) told: Option<Box<(u64, Told)>>,
}

impl Asking {
    pub fn new(given: Option<AsGiven>) -> Asking {
        Asking { given, ..Asking::default() }
    }

    /// What came of a question that was sent after this many.
    pub(super) fn since(&self, since: u64) -> Option<Told> {
        self.told.as_ref().filter(|told| told.0 > since).map(|told| told.1)
    }
}

/// What is asked of a holder, who may answer for the file's times.
pub fn wanted(times: bool) -> Bitmap {
    let all = Bitmap::of(&[CHANGE, SIZE]);
    if times { all.or(&Bitmap::of(&[TIME_DELEG_ACCESS, TIME_DELEG_MODIFY])) } else { all }
}

/// The times that are set of those that a holder sends, none later than `now`. `chosen`: whoever sends them may set them to any other than now; of
/// others they say that they have read or written. A time in the past is taken as it is: an application has chosen it
/// (docs/protocol.md says where this differs from RFC 9754).
pub fn times_of_holder(
    atime: Option<TimeSet>,
    mtime: Option<TimeSet>,
    is: &Attrs,
    now: Timestamp,
    chosen: bool,
) -> SetAttrs {
    let key = |t: &Timestamp| (t.secs, t.nanos);
    // Linux sends both times with each return, whether they have changed or not.
    let take = |sent: Option<TimeSet>, is: Timestamp| {
        let sent = sent.map(|time| match time {
            TimeSet::At(at) if key(&at) > key(&now) => TimeSet::Now,
            time => time,
        });
        sent.filter(|time| *time != TimeSet::At(is)).map(|time| if chosen { time } else { TimeSet::Now })
    };
    let mtime = take(mtime, is.mtime);
    // A new access time must not advance the change time (RFC 9754 section 8.2), which a file system advances with each time that
    // it is told. So the access time of a holder that has read is the one that the file system keeps.
    let is_earlier = |time: &TimeSet| matches!(time, TimeSet::At(at) if key(at) < key(&is.atime));
    let atime = take(atime, is.atime).filter(|time| mtime.is_some() || is_earlier(time));
    SetAttrs { atime, mtime, ..SetAttrs::default() }
}

/// Whether a file that had the change attribute `sent_at` when its holder was asked may have been given a time since. What has only been written has the
/// same modify and change time.
pub fn was_given_a_time(sent_at: u64, is: &Attrs) -> bool {
    is.change != sent_at && is.mtime != is.ctime
}

/// What a holder says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    change: u64,
    size: u64,
    /// Access and modify time.
    times: Option<(Timestamp, Timestamp)>,
}

impl Answer {
    /// `None`: it is not what was asked for, or can be said of no file.
    pub fn of(said: &Fattr, times: bool) -> Option<Answer> {
        if !wanted(times).minus(&said.mask).is_empty() {
            return None;
        }
        let said = AttrValues::from_fattr(said).ok()?;
        let time = |t: NfsTime| {
            (t.nseconds < 1_000_000_000).then_some(Timestamp { secs: t.seconds, nanos: t.nseconds })
        };
        let times = match (times, said.time_deleg_access, said.time_deleg_modify) {
            (false, ..) => None,
            (true, Some(access), Some(modify)) => Some((time(access)?, time(modify)?)),
            (true, ..) => return None,
        };
        let size = said.size.filter(|size| i64::try_from(*size).is_ok())?;
        Some(Answer { change: said.change?, size, times })
    }

    /// What has to be set in the file before anybody is told, and whether the holder has something that the server does not have. `is`: the file on
    /// the server.
    pub fn follows(&self, given: AsGiven, is: &Attrs, now: Timestamp) -> (SetAttrs, bool) {
        // A holder that has asked the server since names what it was told then; but one more than at the grant is what holders say whose data the
        // server does not have.
        let as_here = self.change == is.change && given.change.checked_add(1) != Some(self.change);
        let ahead = (self.change != given.change && !as_here) || self.size != is.size;
        let times = self.times.filter(|_| given.by_owner);
        let mut set = match times {
            Some((atime, mtime)) => {
                times_of_holder(Some(TimeSet::At(atime)), Some(TimeSet::At(mtime)), is, now, true)
            }
            None => SetAttrs::default(),
        };
        if ahead && set.mtime.is_none() {
            // The one that it has already: it is set for the change attribute's sake.
            set.mtime = Some(if times.is_some() { TimeSet::At(is.mtime) } else { TimeSet::Now });
        }
        (set, ahead)
    }
}

/// Attributes of a file that others are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    size: u64,
    change: u64,
    atime: Timestamp,
    mtime: Timestamp,
    ctime: Timestamp,
}

impl Told {
    /// The file as it is on the server.
    pub fn of(is: &Attrs) -> Told {
        Told { size: is.size, change: is.change, atime: is.atime, mtime: is.mtime, ctime: is.ctime }
    }

    /// The file with what its holder has; `before` and `after` what had to be set was. `None`: the change attribute has not grown far enough to leave a
    /// number for this.
    pub fn ahead(answer: &Answer, before: u64, after: &Attrs) -> Option<Told> {
        let change = after.change.checked_sub(1).filter(|change| *change > before)?;
        Some(Told { size: answer.size, change, ..Told::of(after) })
    }

    /// Puts these values in the place of those on the server, which may have been looked up earlier or later.
    pub fn show_in(&self, attrs: &mut Attrs) {
        attrs.size = self.size;
        attrs.change = self.change;
        (attrs.atime, attrs.mtime, attrs.ctime) = (self.atime, self.mtime, self.ctime);
    }
}
