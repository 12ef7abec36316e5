//! Making, removing, renaming and linking: what changes a directory's entries.
//!
//! A reply that is lost for good (the server has lost its reply cache, too) leaves it in doubt whether the change was made:
//!
//! | action | what is done |
//! |---|---|
//! | MKDIR and the like | sent again; EXIST is unknown, but for a symbolic link with the same text, or where a directory may be there already |
//! | REMOVE | sent again; a name that is not there is removed |
//! | LINK | sent again; EXIST is looked at: the same object is linked |
//! | RENAME | unknown: a second time could move what was put in the place of the first |

use bytes::Bytes;
use landfast_nfs::v4::args::{CreateArgs, CreateType, RenameArgs};
use landfast_nfs::v4::attr::{Bitmap, number};
use landfast_nfs::v4::{ArgOp, Fattr, FileHandle, FileType, NfsStat, OpNum};

use super::action::{Action, AfterLostReply, Answer, Budget, Wants};
use super::together::together;
use crate::compound::{OpError, Results, values};

/// CREATE and GETFH: makes anything but a regular file.
#[derive(Debug)]
pub(super) struct Make {
    pub(super) kind: CreateType,
    pub(super) attrs: Fattr,
    /// An existing directory counts as made (`mkdir -p`).
    pub(super) or_exists: bool,
    /// The name exists: the next round finds out what it is.
    pub(super) exists: bool,
    /// A reply was lost.
    pub(super) lost: bool,
}

together!(Make);

impl Action for Make {
    /// The new object; `None`: it existed.
    type Out = Option<FileHandle>;

    fn wants(&self) -> Wants {
        Wants::Parent
    }

    fn ops(&mut self, name: Option<&Bytes>, _: &Budget, out: &mut Vec<ArgOp>) {
        let name = name.cloned().unwrap_or_default();
        if self.exists {
            out.extend([ArgOp::Lookup(name), ArgOp::Getattr(Bitmap::of(&[number::TYPE]))]);
            if matches!(self.kind, CreateType::Lnk(_)) {
                out.push(ArgOp::Readlink);
            }
            return;
        }
        out.push(ArgOp::Create(CreateArgs { kind: self.kind.clone(), name, attrs: self.attrs.clone() }));
        // RFC 8881 section 2.10.6.4: GETFH follows directly on what changes the filehandle for good.
        out.push(ArgOp::Getfh);
    }

    fn changes(&self) -> bool {
        !self.exists
    }

    fn answer(&mut self, results: &mut Results) -> Result<Answer<Self::Out>, OpError> {
        if self.exists {
            let there = OpError::Failed { op: OpNum::CREATE, status: NfsStat::NFS4ERR_EXIST };
            results.take(OpNum::LOOKUP)?;
            let kind = values(&results.getattr()?)?.kind;
            if let CreateType::Lnk(text) = &self.kind {
                return match kind {
                    Some(FileType::Lnk) if results.readlink()? == *text => Ok(Answer::Done(None)),
                    _ => Err(there),
                };
            }
            return match kind {
                Some(FileType::Dir) => Ok(Answer::Done(None)),
                Some(FileType::Lnk) => Ok(Answer::Follow),
                _ => Err(there),
            };
        }
        match results.take(OpNum::CREATE) {
            Ok(_) => Ok(Answer::Done(Some(results.getfh()?))),
            Err(OpError::Failed { status: NfsStat::NFS4ERR_EXIST, .. }) if self.or_exists => {
                self.exists = true;
                Ok(Answer::More)
            }
            Err(e @ OpError::Failed { status: NfsStat::NFS4ERR_EXIST, .. }) if self.lost => match self.kind {
                CreateType::Lnk(_) => {
                    self.exists = true;
                    Ok(Answer::More)
                }
                _ => Ok(Answer::Unknown(e)),
            },
            Err(e) => Err(e),
        }
    }

    fn lost(&mut self) -> AfterLostReply {
        self.lost = true;
        AfterLostReply::Again
    }
}

#[derive(Debug)]
pub(super) struct Remove {
    /// A missing name counts as removed (`rm -f`).
    pub(super) or_missing: bool,
    /// A reply was lost.
    pub(super) lost: bool,
}

together!(Remove);

impl Action for Remove {
    /// Whether it existed.
    type Out = bool;

    fn wants(&self) -> Wants {
        Wants::Parent
    }

    fn ops(&mut self, name: Option<&Bytes>, _: &Budget, out: &mut Vec<ArgOp>) {
        out.push(ArgOp::Remove(name.cloned().unwrap_or_default()));
    }

    fn stays(&self) -> bool {
        true
    }

    fn changes(&self) -> bool {
        true
    }

    fn answer(&mut self, results: &mut Results) -> Result<Answer<bool>, OpError> {
        match results.take(OpNum::REMOVE) {
            Ok(_) => Ok(Answer::Done(true)),
            Err(OpError::Failed { status: NfsStat::NFS4ERR_NOENT, .. }) if self.or_missing || self.lost => {
                Ok(Answer::Done(self.lost))
            }
            Err(e) => Err(e),
        }
    }

    fn lost(&mut self) -> AfterLostReply {
        self.lost = true;
        AfterLostReply::Again
    }
}

/// REMOVE of a name in a directory whose handle is known. Otherwise as [`Remove`].
#[derive(Debug)]
pub(super) struct Unlink {
    pub(super) name: Bytes,
}

impl Action for Unlink {
    /// Whether it existed.
    type Out = bool;

    fn wants(&self) -> Wants {
        Wants::Object { follow: false }
    }

    fn ops(&mut self, _: Option<&Bytes>, room: &Budget, out: &mut Vec<ArgOp>) {
        Remove { or_missing: true, lost: false }.ops(Some(&self.name), room, out);
    }

    fn stays(&self) -> bool {
        true
    }

    fn changes(&self) -> bool {
        true
    }

    fn answer(&mut self, results: &mut Results) -> Result<Answer<bool>, OpError> {
        Remove { or_missing: true, lost: false }.answer(results)
    }

    fn lost(&mut self) -> AfterLostReply {
        AfterLostReply::Again
    }
}

/// RENAME from the saved directory.
#[derive(Debug)]
pub(super) struct Rename {
    pub(super) from: Bytes,
}

together!(Rename);

impl Action for Rename {
    type Out = ();

    fn wants(&self) -> Wants {
        Wants::Parent
    }

    fn ops(&mut self, name: Option<&Bytes>, _: &Budget, out: &mut Vec<ArgOp>) {
        let newname = name.cloned().unwrap_or_default();
        out.push(ArgOp::Rename(RenameArgs { oldname: self.from.clone(), newname }));
    }

    fn stays(&self) -> bool {
        true
    }

    fn changes(&self) -> bool {
        true
    }

    fn answer(&mut self, results: &mut Results) -> Result<Answer<()>, OpError> {
        results.take(OpNum::RENAME)?;
        Ok(Answer::Done(()))
    }
}

/// LINK to the saved object.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// A reply was lost.
    lost: bool,
    /// The name exists: the next round finds out whether it is that object's.
    exists: bool,
}

together!(Link);

impl Action for Link {
    type Out = ();

    fn wants(&self) -> Wants {
        Wants::Parent
    }

    fn ops(&mut self, name: Option<&Bytes>, _: &Budget, out: &mut Vec<ArgOp>) {
        let name = name.cloned().unwrap_or_default();
        match self.exists {
            false => out.push(ArgOp::Link(name)),
            true => out.extend([ArgOp::Lookup(name), ArgOp::Getfh, ArgOp::Restorefh, ArgOp::Getfh]),
        }
    }

    fn stays(&self) -> bool {
        !self.exists
    }

    fn changes(&self) -> bool {
        !self.exists
    }

    fn answer(&mut self, results: &mut Results) -> Result<Answer<()>, OpError> {
        if self.exists {
            results.take(OpNum::LOOKUP)?;
            let there = results.getfh()?;
            results.take(OpNum::RESTOREFH)?;
            return match results.getfh()? == there {
                true => Ok(Answer::Done(())),
                false => Err(OpError::Failed { op: OpNum::LINK, status: NfsStat::NFS4ERR_EXIST }),
            };
        }
        match results.take(OpNum::LINK) {
            Err(OpError::Failed { status: NfsStat::NFS4ERR_EXIST, .. }) if self.lost => {
                self.exists = true;
                Ok(Answer::More)
            }
            other => other.map(|_| Answer::Done(())),
        }
    }

    fn lost(&mut self) -> AfterLostReply {
        self.lost = true;
        AfterLostReply::Again
    }
}
