//! Attributes, access rights and targets of symbolic links; setting attributes.

use bytes::Bytes;
use landfast_nfs::v4::args::SetattrArgs;
use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};
use landfast_nfs::v4::{ArgOp, Fattr, FileHandle, FileType, OpNum, ResBody, Stateid};

use super::action::{Action, AfterLostReply, Answer, Budget, Wants};
use super::together::together;
use crate::compound::{OpError, Results, fattr, values};

#[derive(Debug)]
pub(super) struct Getattrs {
    pub(super) mask: Bitmap,
    pub(super) follow: bool,
}

together!(Getattrs);

impl Action for Getattrs {
    type Out = (FileHandle, AttrValues);

    fn wants(&self) -> Wants {
        Wants::Object { follow: self.follow }
    }

    fn ops(&mut self, _: Option<&Bytes>, _: &Budget, out: &mut Vec<ArgOp>) {
        out.extend([ArgOp::Getfh, ArgOp::Getattr(self.mask)]);
    }

    fn changes(&self) -> bool {
        false
    }

    fn answer(&mut self, results: &mut Results) -> Result<Answer<Self::Out>, OpError> {
        let fh = results.getfh()?;
        let attrs = values(&results.getattr()?)?;
        if self.follow && attrs.kind == Some(FileType::Lnk) {
            return Ok(Answer::Follow);
        }
        Ok(Answer::Done((fh, attrs)))
    }
}

/// Owner and group, and the other attributes. They are set one after the other, because a change of owner clears set-ID bits, with
/// Linux also those that the same SETATTR sets. A part without attributes is left out.
pub(crate) fn owner_first(attrs: &Fattr) -> impl Iterator<Item = Fattr> {
    let all = AttrValues::from_fattr(attrs).unwrap_or_default();
    let owner = all.to_fattr(&Bitmap::of(&[number::OWNER, number::OWNER_GROUP]));
    let rest = fattr(&AttrValues { owner: None, owner_group: None, ..all });
    [owner, rest].into_iter().filter(|attrs| !attrs.mask.is_empty())
}

/// SETATTR, of the owner first. Doing it twice does no harm.
#[derive(Debug)]
pub(super) struct Setattrs {
    parts: Vec<Fattr>,
}

impl Setattrs {
    pub(super) fn new(attrs: &AttrValues) -> Setattrs {
        Setattrs { parts: owner_first(&fattr(attrs)).collect() }
    }
}

together!(Setattrs);

impl Action for Setattrs {
    type Out = ();

    fn wants(&self) -> Wants {
        Wants::Object { follow: false }
    }

    fn ops(&mut self, _: Option<&Bytes>, _: &Budget, out: &mut Vec<ArgOp>) {
        let set = |attrs: &Fattr| SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: attrs.clone() };
        out.extend(self.parts.iter().map(|attrs| ArgOp::Setattr(set(attrs))));
    }

    fn changes(&self) -> bool {
        true
    }

    fn answer(&mut self, results: &mut Results) -> Result<Answer<()>, OpError> {
        for _ in &self.parts {
            results.take(OpNum::SETATTR)?;
        }
        Ok(Answer::Done(()))
    }

    fn lost(&mut self) -> AfterLostReply {
        AfterLostReply::Again
    }
}

#[derive(Debug)]
pub(super) struct Readlink;

together!(Readlink);

impl Action for Readlink {
    type Out = Bytes;

    fn wants(&self) -> Wants {
        Wants::Object { follow: false }
    }

    fn ops(&mut self, _: Option<&Bytes>, _: &Budget, out: &mut Vec<ArgOp>) {
        out.push(ArgOp::Readlink);
    }

    fn changes(&self) -> bool {
        false
    }

    fn answer(&mut self, results: &mut Results) -> Result<Answer<Bytes>, OpError> {
        Ok(Answer::Done(results.readlink()?))
    }
}

#[derive(Debug)]
pub(super) struct Access {
    pub(super) rights: u32,
}

together!(Access);

impl Action for Access {
    type Out = u32;

    fn wants(&self) -> Wants {
        Wants::Object { follow: false }
    }

    fn ops(&mut self, _: Option<&Bytes>, _: &Budget, out: &mut Vec<ArgOp>) {
        out.push(ArgOp::Access(self.rights));
    }

    fn changes(&self) -> bool {
        false
    }

    fn answer(&mut self, results: &mut Results) -> Result<Answer<u32>, OpError> {
        match results.take(OpNum::ACCESS)? {
            ResBody::Access(res) => Ok(Answer::Done(res.access & self.rights)),
            _ => Err(OpError::Missing { op: OpNum::ACCESS }),
        }
    }
}
