//! Attributes of an object, and changes of them, folded.

use bytes::Bytes;
use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};
use landfast_nfs::v4::{Fattr, FileType, Fsid, NfsTime, SetTime};

/// What is asked for each object.
pub const ASKED: Bitmap = landfast_client::ops::STAT;

/// Attributes of an object. What the server did not give is zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attrs {
    pub kind: FileType,
    /// Permission bits, 0 to 0o7777.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Bytes of data.
    pub size: u64,
    /// Bytes of storage.
    pub used: u64,
    /// The server's number for the object, unique in its filesystem.
    pub fileid: u64,
    pub fsid: Fsid,
    /// Major and minor number of a device.
    pub rdev: (u32, u32),
    pub atime: NfsTime,
    pub mtime: NfsTime,
    pub ctime: NfsTime,
    /// Differs whenever the object was changed.
    pub change: u64,
}

impl Attrs {
    /// The attributes as the server gave them; `owner` maps owners and groups to numbers. `None`: it gave no type.
    pub fn of(values: &AttrValues, owner: impl Fn(Option<&Bytes>, bool) -> u32) -> Option<Attrs> {
        Some(Attrs {
            kind: values.kind?,
            mode: values.mode.unwrap_or_default() & 0o7777,
            links: values.numlinks.unwrap_or(1),
            uid: owner(values.owner.as_ref(), false),
            gid: owner(values.owner_group.as_ref(), true),
            size: values.size.unwrap_or_default(),
            used: values.space_used.unwrap_or_default(),
            fileid: values.fileid.unwrap_or_default(),
            fsid: values.fsid.unwrap_or_default(),
            rdev: values.rawdev.map(|d| (d.major, d.minor)).unwrap_or_default(),
            atime: values.time_access.unwrap_or_default(),
            mtime: values.time_modify.unwrap_or_default(),
            ctime: values.time_metadata.unwrap_or_default(),
            change: values.change.unwrap_or_default(),
        })
    }

    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Dir
    }

    /// As the object is after `set`, whose times "now" are `now`.
    pub fn set(&mut self, set: &Set, now: NfsTime) {
        let time = |t: SetTime| match t {
            SetTime::ServerTime => now,
            SetTime::ClientTime(t) => t,
        };
        if set.uid.is_some() || set.gid.is_some() {
            // chown(2): the set-user-ID bit goes, and the set-group-ID bit of what a group may execute.
            self.mode = without_privileges(self.mode);
        }
        self.mode = set.mode.unwrap_or(self.mode);
        self.uid = set.uid.unwrap_or(self.uid);
        self.gid = set.gid.unwrap_or(self.gid);
        if let Some(size) = set.size {
            (self.size, self.mtime) = (size, now);
        }
        self.atime = set.atime.map_or(self.atime, time);
        self.mtime = set.mtime.map_or(self.mtime, time);
        self.ctime = now;
    }
}

/// The mode of a file that was written, truncated or given away by somebody without privileges (chown(2), write(2)).
pub fn without_privileges(mode: u32) -> u32 {
    let group = if mode & 0o010 != 0 { 0o2000 } else { 0 };
    mode & !(0o4000 | group)
}

/// Attributes to set. Times are the server's "now" or a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Set {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
}

impl Set {
    pub fn is_empty(&self) -> bool {
        *self == Set::default()
    }

    /// Whether others may do more or less with the object afterwards.
    pub fn changes_rights(&self) -> bool {
        self.mode.is_some() || self.uid.is_some() || self.gid.is_some()
    }

    /// Folds a later change into this one: what one SETATTR must say for the same result.
    pub fn then(&mut self, later: &Set) {
        if later.uid.is_some() || later.gid.is_some() {
            self.mode = self.mode.map(without_privileges);
        }
        self.mode = later.mode.or(self.mode);
        self.uid = later.uid.or(self.uid);
        self.gid = later.gid.or(self.gid);
        if later.size.is_some() {
            // It moves the time of the last change of data, unless it says another.
            (self.size, self.mtime) = (later.size, None);
        }
        self.atime = later.atime.or(self.atime);
        self.mtime = later.mtime.or(self.mtime);
    }

    /// Data was written behind it: a time that was set does not hold any more.
    pub fn written(&mut self) {
        self.mtime = None;
    }

    /// The SETATTRs that do it, in their order. Owner and group come first: servers take set-user-ID bits away that come with them.
    pub fn wire(&self) -> Vec<Fattr> {
        let number = |id: u32| Bytes::from(id.to_string());
        let owners = AttrValues {
            owner: self.uid.map(number),
            owner_group: self.gid.map(number),
            size: self.size,
            ..AttrValues::default()
        };
        let rest = AttrValues {
            mode: self.mode,
            time_access_set: self.atime,
            time_modify_set: self.mtime,
            ..AttrValues::default()
        };
        let special = self.mode.is_some_and(|m| m & 0o6000 != 0);
        let apart = special && (self.uid.is_some() || self.gid.is_some());
        let all = |v: &AttrValues| v.to_fattr(&AttrValues::KNOWN);
        let parts = match apart {
            true => vec![all(&owners), all(&rest)],
            false => vec![all(&AttrValues {
                mode: rest.mode,
                time_access_set: rest.time_access_set,
                time_modify_set: rest.time_modify_set,
                ..owners
            })],
        };
        parts.into_iter().filter(|f| !f.mask.is_empty()).collect()
    }
}

/// The mask of a directory's state: enough to see whether it has changed.
pub const CHANGE: Bitmap = Bitmap::of(&[number::CHANGE]);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set() -> impl Strategy<Value = Set> {
        let time = || {
            proptest::option::of(
                (0..9i64).prop_map(|seconds| SetTime::ClientTime(NfsTime { seconds, nseconds: 0 })),
            )
        };
        let id = || proptest::option::of(0..3u32);
        (proptest::option::of(0..0o10000u32), id(), id(), proptest::option::of(0..9u64), time(), time())
            .prop_map(|(mode, uid, gid, size, atime, mtime)| Set { mode, uid, gid, size, atime, mtime })
    }

    fn file() -> Attrs {
        Attrs::of(&AttrValues { kind: Some(FileType::Reg), ..AttrValues::default() }, |_, _| 7).unwrap()
    }

    proptest! {
        #[test]
        fn folded_changes_do_what_the_changes_do_one_after_another(sets in proptest::collection::vec(set(), 1..6)) {
            let now = NfsTime { seconds: 99, nseconds: 0 };
            let (mut one_by_one, mut folded, mut all) = (file(), file(), Set::default());
            // The mode that the file was made with rides with the first.
            all.mode = Some(folded.mode);
            for set in &sets {
                one_by_one.set(set, now);
                all.then(set);
            }
            folded.set(&all, now);
            prop_assert_eq!(&folded, &one_by_one);
        }

        #[test]
        fn a_set_user_id_bit_is_never_sent_with_an_owner(set in set()) {
            for part in set.wire() {
                let values = AttrValues::from_fattr(&part).unwrap();
                let special = values.mode.is_some_and(|m| m & 0o6000 != 0);
                prop_assert!(!special || values.owner.is_none() && values.owner_group.is_none());
            }
        }
    }

    #[test]
    fn giving_a_file_away_takes_its_privileges() {
        assert_eq!(without_privileges(0o6755), 0o755);
        assert_eq!(without_privileges(0o2644), 0o2644); // mandatory locking, not execution
        let mut f = file();
        f.mode = 0o4755;
        f.set(&Set { uid: Some(1), ..Set::default() }, NfsTime::default());
        assert_eq!(f.mode, 0o755);
    }
}
