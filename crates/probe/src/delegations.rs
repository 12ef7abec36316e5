//! Asks a server for delegations and interprets its answers.

use bytes::Bytes;
use landfast_nfs::v4::args::{
    CreateArgs, CreateType, GetDirDelegationArgs, OpenArgs, OpenClaim, OpenHow, owner,
};
use landfast_nfs::v4::res::{GetDirDelegationRes, OpenDelegation, OpenRes};
use landfast_nfs::v4::{ArgOp, AttrValues, Bitmap, CompoundRes, FileHandle, ResBody, Stateid, flags};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Delegation {
    pub offered: bool,
    /// If not offered: the reason, if known.
    pub why: Option<String>,
}

impl Delegation {
    pub(crate) fn none(why: String) -> Delegation {
        Delegation { offered: false, why: Some(why) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Delegations {
    /// For a file opened for reading.
    pub read: Delegation,
    /// For a file opened for writing.
    pub write: Delegation,
    /// One to write with which the client sets the file's times by itself (RFC 9754 section 5).
    pub times: Delegation,
    /// One in the place of an open, so that there is nothing to close (RFC 9754 section 4).
    pub in_place_of_open: Delegation,
    /// For a directory (RFC 8881 section 18.39).
    pub directory: Delegation,
    /// For a new directory, to write in it: an extension (`docs/internals/write-directory-delegations.md`).
    pub write_directory: Delegation,
}

impl Delegations {
    /// The result if the server was not asked.
    pub fn not_asked(why: &str) -> Delegations {
        let none = Delegation::none(why.to_owned());
        Delegations::simple(none.clone(), none, why)
    }

    /// Those of a version that has no others. `why`: what to say of the others.
    pub(crate) fn simple(read: Delegation, write: Delegation, why: &str) -> Delegations {
        let none = Delegation::none(why.to_owned());
        let [times, in_place_of_open, directory] = [(); 3].map(|()| none.clone());
        Delegations { read, write, times, in_place_of_open, directory, write_directory: none }
    }
}

/// Opens the file `name` for this client's owner. `seqid` and client ID are 0 on a session.
pub(crate) fn open_ops(
    dir: &FileHandle,
    name: &str,
    share_access: u32,
    (clientid, seqid): (u64, u32),
) -> Vec<ArgOp> {
    let args = OpenArgs {
        seqid,
        share_access,
        share_deny: flags::OPEN4_SHARE_DENY_NONE,
        owner: owner(clientid, b"delegation"),
        openhow: OpenHow::NoCreate,
        claim: OpenClaim::Null(Bytes::copy_from_slice(name.as_bytes())),
    };
    vec![ArgOp::Putfh(dir.clone()), ArgOp::Open(args), ArgOp::Getfh]
}

/// The open of [`open_ops`] and the file's handle. The error is what to report if it failed.
pub(crate) fn opened(reply: CompoundRes) -> std::result::Result<(OpenRes, FileHandle), Delegation> {
    let (mut opened, mut fh) = (None, None);
    for result in reply.results {
        match result.body {
            ResBody::Open(open) => opened = Some(open),
            ResBody::Getfh(handle) => fh = Some(handle),
            _ => {}
        }
    }
    opened.zip(fh).ok_or_else(|| Delegation::none(format!("OPEN: {}", reply.status)))
}

/// Whether an open that asked for delegated times was given them.
pub(crate) fn with_times(open: &OpenRes) -> Delegation {
    let given = matches!(open.delegation, OpenDelegation::ReadAttrs(_) | OpenDelegation::WriteAttrs(_));
    Delegation { offered: given, why: None }
}

/// Whether an open that asked for a delegation in its place was given no stateid of its own.
pub(crate) fn in_place_of_open(open: &OpenRes) -> Delegation {
    Delegation { offered: open.rflags & flags::OPEN4_RESULT_NO_OPEN_STATEID != 0, why: None }
}

fn ask(notifications: Bitmap) -> ArgOp {
    ArgOp::GetDirDelegation(GetDirDelegationArgs::new(notifications))
}

/// Asks for a delegation of a directory without notifications, as Linux does.
pub(crate) fn directory_ops(dir: &FileHandle) -> Vec<ArgOp> {
    vec![ArgOp::Putfh(dir.clone()), ask(Bitmap::default())]
}

/// Makes a directory in this one, and asks for one of it to write in it.
pub(crate) fn write_directory_ops(dir: &FileHandle, name: &str) -> Vec<ArgOp> {
    let attrs = AttrValues { mode: Some(0o700), ..AttrValues::default() }.to_fattr(&AttrValues::KNOWN);
    let name = Bytes::copy_from_slice(name.as_bytes());
    vec![
        ArgOp::Putfh(dir.clone()),
        ArgOp::Create(CreateArgs { kind: CreateType::Dir, name, attrs }),
        ask(Bitmap::of(&[flags::NOTIFY4_WRITE_DELEGATION])),
        ArgOp::DelegReturn(Stateid::CURRENT),
    ]
}

/// Interprets the reply to [`write_directory_ops`].
pub(crate) fn of_write_directory(reply: CompoundRes) -> Delegation {
    for result in reply.results {
        match result.body {
            ResBody::GetDirDelegation(GetDirDelegationRes::Given(given)) => {
                return match given.notifications.has(flags::NOTIFY4_WRITE_DELEGATION) {
                    true => Delegation { offered: true, why: None },
                    false => Delegation::none("one for reading was given".to_owned()),
                };
            }
            ResBody::GetDirDelegation(GetDirDelegationRes::Unavailable(_)) => {
                return Delegation::none("the server says: not now".to_owned());
            }
            _ => {}
        }
    }
    Delegation::none(format!("GET_DIR_DELEGATION: {}", reply.status))
}

/// Interprets the reply to [`directory_ops`]. The call that returns the delegation is added to `back`.
pub(crate) fn of_directory(reply: CompoundRes, back: &mut Vec<ArgOp>) -> Delegation {
    for result in reply.results {
        match result.body {
            ResBody::GetDirDelegation(GetDirDelegationRes::Given(given)) => {
                back.push(ArgOp::DelegReturn(given.stateid));
                return Delegation { offered: true, why: None };
            }
            ResBody::GetDirDelegation(GetDirDelegationRes::Unavailable(_)) => {
                return Delegation::none("the server says: not now".to_owned());
            }
            _ => {}
        }
    }
    Delegation::none(format!("GET_DIR_DELEGATION: {}", reply.status))
}

/// Interprets the delegation given to an open with this access. The call that returns it is added to `back`.
pub(crate) fn given(given: &OpenDelegation, share_access: u32, back: &mut Vec<ArgOp>) -> Delegation {
    let offered = Delegation { offered: true, why: None };
    match given {
        OpenDelegation::Read(given) | OpenDelegation::ReadAttrs(given) => {
            back.push(ArgOp::DelegReturn(given.stateid));
            match share_access & flags::OPEN4_SHARE_ACCESS_WRITE {
                0 => offered,
                _ => Delegation::none("one for reading was given".to_owned()),
            }
        }
        OpenDelegation::Write(given) | OpenDelegation::WriteAttrs(given) => {
            back.push(ArgOp::DelegReturn(given.stateid));
            offered
        }
        OpenDelegation::NoneExt(why) => Delegation::none(because(why.why)),
        OpenDelegation::None => Delegation { offered: false, why: None },
    }
}

/// `why_no_delegation4` (RFC 8881 section 18.16.2).
fn because(why: u32) -> String {
    match why {
        0 => "the server says: not wanted".to_owned(),
        1 => "the server says: others use the file".to_owned(),
        2 => "the server says: no resources for it".to_owned(),
        3 => "the server says: not for files of this kind".to_owned(),
        4 => "the server says: none for writing to files of this kind".to_owned(),
        n => format!("the server's reason is number {n}"),
    }
}
