//! What happens to existing names. No I/O.

use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};
use landfast_nfs::v4::{Fattr, FileType, Fsid, NfsStat, NfsTime, OpNum};

use super::report::{Cause, MemberError};
use crate::compound::fattr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// Unlink it and create a new file, as GNU tar does by default.
    #[default]
    Replace,
    /// Write into the existing file (`--overwrite`).
    Overwrite,
    /// Leave it and report the member as failed (`--keep-old-files`).
    Keep,
    /// Look at the existing object and decide, as GNU cp does.
    Look(Over),
}

/// When GNU cp copies over an existing file, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Over {
    pub when: When,
    /// Give them the source's mode. Otherwise they keep their own.
    pub set_mode: bool,
    /// Replace a file that has other names, so that those keep the old data (`--preserve=links`).
    pub split_links: bool,
    /// Replace a file that may not be opened (`--force`).
    pub force: bool,
    /// Replace all of them (`--remove-destination`).
    pub remove: bool,
}

/// Which existing files are copied over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum When {
    #[default]
    Always,
    /// None (`--no-clobber`).
    Never,
    /// Files that are older than the source (`--update`).
    Older,
    /// Only for members that come as [`super::SourceItem::Agreed`]. For other members an existing object is a failure
    /// (`--interactive`).
    Agreed,
}

/// The existing object of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExistingObject {
    pub(crate) kind: FileType,
    pub(crate) links: u32,
    pub(crate) modified: NfsTime,
    /// The filesystem and the file number, if the server gave them.
    pub(crate) id: Option<(Fsid, u64)>,
}

/// The attributes that [`ExistingObject::of`] needs.
pub(super) const EXISTING_ATTRS: Bitmap = Bitmap::of(&[
    number::TYPE,
    number::FSID,
    number::FILEHANDLE,
    number::FILEID,
    number::NUMLINKS,
    number::TIME_MODIFY,
]);

/// The attributes that a listing of the destination asks for.
pub(super) fn listed_attrs(existing: Existing) -> Bitmap {
    const WANTED: Bitmap = Bitmap::of(&[number::TYPE, number::FILEHANDLE]);
    if matches!(existing, Existing::Look(_)) { EXISTING_ATTRS } else { WANTED }
}

impl ExistingObject {
    /// `None`: the server did not give all attributes.
    pub(super) fn of(attrs: &AttrValues) -> Option<ExistingObject> {
        let id = attrs.fsid.zip(attrs.fileid);
        Some(ExistingObject { kind: attrs.kind?, links: attrs.numlinks?, modified: attrs.time_modify?, id })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewKind {
    Dir,
    File,
    Other,
}

/// What to do about the existing object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Remove it and make the new one.
    Replace,
    /// Write the new data into it. For a directory: use it.
    Into,
    /// It stays, and that is not a failure.
    Skip,
    /// It stays, and that is a failure.
    Refuse(MemberError),
}

impl Over {
    /// `modified`: when the source was; `agreed`: see [`When::Agreed`].
    pub(crate) fn judge(
        &self,
        new: NewKind,
        modified: NfsTime,
        agreed: bool,
        found: &ExistingObject,
    ) -> Verdict {
        let is_dir = found.kind == FileType::Dir;
        match (new, self.when) {
            (NewKind::Dir, _) if is_dir => return Verdict::Into,
            (NewKind::Dir, _) => {
                return Verdict::Refuse(MemberError::new(Cause::NoDirInTheWay, "no directory is in the way"));
            }
            (_, When::Never) => return Verdict::Skip,
            (_, When::Older) if found.modified >= modified => return Verdict::Skip,
            (_, When::Agreed) if !agreed => {
                let cause = Cause::Refused(OpNum::OPEN, NfsStat::NFS4ERR_EXIST);
                return Verdict::Refuse(MemberError::new(
                    cause,
                    "something has come to have its name meanwhile",
                ));
            }
            _ if is_dir => {
                return Verdict::Refuse(MemberError::new(Cause::DirInTheWay, "a directory is in the way"));
            }
            _ => {}
        }
        let into = new == NewKind::File
            && found.kind == FileType::Reg
            && !self.remove
            && !(self.split_links && found.links > 1);
        if into { Verdict::Into } else { Verdict::Replace }
    }

    /// Of these attributes of a new object those that an existing one gets, too.
    pub(super) fn for_existing(&self, attrs: &Fattr) -> Fattr {
        if self.set_mode || !attrs.mask.has(number::MODE) {
            return attrs.clone();
        }
        let values = AttrValues::from_fattr(attrs).unwrap_or_default();
        fattr(&AttrValues { mode: None, ..values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_gnu_cp() {
        let time = |seconds| NfsTime { seconds, nseconds: 0 };
        let found = |kind, links, at| ExistingObject { kind, links, modified: time(at), id: None };
        let over = Over::default();
        let file = found(FileType::Reg, 1, 10);
        assert_eq!(over.judge(NewKind::File, time(5), false, &file), Verdict::Into);
        assert_eq!(over.judge(NewKind::Other, time(5), false, &file), Verdict::Replace);
        assert_eq!(over.judge(NewKind::File, time(5), false, &found(FileType::Lnk, 1, 10)), Verdict::Replace);
        let refused = |verdict| match verdict {
            Verdict::Refuse(why) => why.cause,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(over.judge(NewKind::Dir, time(5), false, &file)), Cause::NoDirInTheWay);
        assert_eq!(
            refused(over.judge(NewKind::File, time(5), false, &found(FileType::Dir, 2, 1))),
            Cause::DirInTheWay
        );
        assert_eq!(over.judge(NewKind::Dir, time(5), false, &found(FileType::Dir, 2, 10)), Verdict::Into);
        let update = Over { when: When::Older, ..over };
        assert_eq!(update.judge(NewKind::File, time(10), false, &file), Verdict::Skip);
        assert_eq!(update.judge(NewKind::File, time(11), false, &file), Verdict::Into);
        assert_eq!(
            Over { when: When::Never, ..over }.judge(NewKind::File, time(99), false, &file),
            Verdict::Skip
        );
        let asks = Over { when: When::Agreed, ..over };
        assert_eq!(asks.judge(NewKind::File, time(5), true, &file), Verdict::Into);
        let exists = Cause::Refused(OpNum::OPEN, NfsStat::NFS4ERR_EXIST);
        assert_eq!(refused(asks.judge(NewKind::File, time(5), false, &file)), exists);
        let linked = found(FileType::Reg, 2, 10);
        assert_eq!(over.judge(NewKind::File, time(5), false, &linked), Verdict::Into);
        assert_eq!(
            Over { split_links: true, ..over }.judge(NewKind::File, time(5), false, &linked),
            Verdict::Replace
        );
        assert_eq!(
            Over { remove: true, ..over }.judge(NewKind::File, time(5), false, &file),
            Verdict::Replace
        );
    }
}
