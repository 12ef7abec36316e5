//! Extracts one member in single steps, if it cannot share a COMPOUND. Reasons are existing files, servers that refuse a
//! combination of operations, lost replies, attributes that may not be set, and files in pieces.
//!
//! A step is repeated while the server replies NFS4ERR_DELAY or NFS4ERR_GRACE. If the outcome of a step is unknown, the name
//! is removed and the member starts over. That is safe, because every step makes new objects.

use bytes::Bytes;
use landfast_nfs::v4::args::{CreateArgs, CreateHow, CreateType, OpenHow};
use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};
use landfast_nfs::v4::{ArgOp, Fattr, FileHandle, FileType, NfsStat, OpNum, ResBody, StableHow, Stateid};

use super::attrs::merge;
use super::attrs::without_its_owner;
use super::existing::{EXISTING_ATTRS, Existing, ExistingObject, NewKind, Over, Verdict};
use super::ownership::{self, OWNERSHIP};
use super::pack::{is_dir, set_xattr};
use super::plan::{Leftover, Make, SlowDone, SlowTask};
use super::report::{Cause, MemberError};
use super::spelling;
use super::trouble::Trouble;
use crate::compound::{OpError, Results, fattr, values};
use crate::fs::Xattr;
use crate::fs::open_file::{OpenFile, close, open_args, set, write};
use crate::fs::step::{StepError, ask, look_up, repeat, step};
use crate::limits;
use crate::patience::Patience;
use crate::session::Session;
use crate::url::Version;

/// Extracts one member that is not in pieces.
pub(super) async fn extract<P>(
    session: &Session,
    task: &SlowTask<P>,
    existing: Existing,
) -> Result<SlowDone, Trouble> {
    match &task.leftover {
        Leftover::Nothing => {}
        Leftover::Incomplete(fh, attrs) => {
            set_last(session, fh, attrs).await?;
            return Ok(SlowDone::Done);
        }
        Leftover::Opened(fh, stateid) => close(session, fh, *stateid).await,
    }
    let (mut tries, mut made) = (0, false);
    let mut patience = Patience::new();
    let mut write_mode = match write_mode(session, task, existing).await? {
        Some(write_mode) => write_mode,
        None => return Ok(SlowDone::Skipped),
    };
    loop {
        tries += 1;
        let replace = write_mode == WriteMode::Replace;
        let done = match &task.job.make {
            Make::Dir => dir(session, task, replace, &mut made).await,
            Make::File(data) => whole_file(session, task, data, write_mode, existing).await,
            Make::Other(kind) => other(session, task, kind, replace).await,
            Make::Link(_) => link(session, task, replace).await,
            Make::Pieces(_) | Make::Copy(_) => Err(Trouble::other("a file in pieces")),
        };
        match done {
            Err(Trouble::Step(StepError::Unknown(_)))
                if may_be_older(task, write_mode, existing) && !matches!(task.job.make, Make::Dir) =>
            {
                return Err(Trouble::Refused(MemberError::outcome_unknown()));
            }
            Err(Trouble::Step(StepError::Unknown(_))) if patience.wait().await => {
                tries -= 1;
                if write_mode == WriteMode::New && !matches!(task.job.make, Make::Dir) {
                    spelling::check(session, task).await?;
                    write_mode = WriteMode::Replace;
                }
            }
            Err(e)
                if e.status() == Some(NfsStat::NFS4ERR_EXIST)
                    && existing != Existing::Keep
                    && !task.implied
                    && tries < limits::REPLACE_TRIES =>
            {
                // Check this also when the known object of this name has gone.
                spelling::check(session, task).await?;
                write_mode = match existing {
                    // Somebody else has just made it.
                    Existing::Look(over) => match look(session, task, over).await? {
                        Some(write_mode) => write_mode,
                        None => return Ok(SlowDone::Skipped),
                    },
                    Existing::Overwrite if task.job.new_kind() == NewKind::File => WriteMode::Overwrite,
                    _ => WriteMode::Replace,
                };
            }
            Err(e) if e.status() == Some(NfsStat::NFS4ERR_EXIST) => return Ok(SlowDone::InTheWay),
            other => return other,
        }
    }
}

/// Whether what has the name after a lost reply may be an older object that must stay.
pub(super) fn may_be_older<P>(task: &SlowTask<P>, write_mode: WriteMode, existing: Existing) -> bool {
    existing == Existing::Keep && write_mode == WriteMode::New && !task.names_known
}

/// What to do about the name before a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteMode {
    /// The name does not exist.
    New,
    /// Remove the existing object first.
    Replace,
    /// Truncate and write the existing file.
    Overwrite,
}

/// `None`: the existing object stays, as requested.
pub(super) async fn write_mode<P>(
    session: &Session,
    task: &SlowTask<P>,
    existing: Existing,
) -> Result<Option<WriteMode>, Trouble> {
    if task.replace && !task.exact_spelling {
        spelling::check(session, task).await?;
    }
    Ok(Some(match (existing, task.replace) {
        (Existing::Look(over), false) => return look(session, task, over).await,
        (_, false) => WriteMode::New,
        (Existing::Overwrite, true) if task.job.new_kind() == NewKind::File => WriteMode::Overwrite,
        (_, true) => WriteMode::Replace,
    }))
}

/// The same, after looking up the name.
pub(super) async fn look<P>(
    session: &Session,
    task: &SlowTask<P>,
    over: Over,
) -> Result<Option<WriteMode>, Trouble> {
    let ops = vec![
        ArgOp::Putfh(task.dir.clone()),
        ArgOp::Lookup(task.name.clone()),
        ArgOp::Getattr(EXISTING_ATTRS),
    ];
    let mut results = ask(session, ops).await?;
    match results.skip(&[OpNum::PUTFH, OpNum::LOOKUP]) {
        Err(OpError::Failed { status: NfsStat::NFS4ERR_NOENT, .. }) => return Ok(Some(WriteMode::New)),
        other => other?,
    }
    let Some(found) = ExistingObject::of(&values(&results.getattr()?)?) else {
        return Err(Trouble::other("the server does not say what has its name"));
    };
    if task.job.is_same_file(&found) {
        return Err(Trouble::Refused(MemberError::new(Cause::SameFile, "they are the same file")));
    }
    let write_mode = match over.judge(task.job.new_kind(), task.job.modified, task.job.agreed, &found) {
        Verdict::Replace => WriteMode::Replace,
        Verdict::Into => WriteMode::Overwrite,
        Verdict::Skip => return Ok(None),
        Verdict::Refuse(why) => return Err(Trouble::Refused(why)),
    };
    if found.kind != FileType::Dir && !task.exact_spelling {
        spelling::check(session, task).await?;
    }
    Ok(Some(write_mode))
}

/// Removes a name, unless it is a directory. A missing name is no error.
pub(super) async fn remove(session: &Session, dir: &FileHandle, name: &Bytes) -> Result<(), Trouble> {
    let mut results = step(
        session,
        vec![
            ArgOp::Putfh(dir.clone()),
            ArgOp::Lookup(name.clone()),
            ArgOp::Nverify(is_dir()),
            ArgOp::Putfh(dir.clone()),
            ArgOp::Remove(name.clone()),
        ],
    )
    .await?;
    match results.skip(&[OpNum::PUTFH, OpNum::LOOKUP, OpNum::NVERIFY, OpNum::PUTFH, OpNum::REMOVE]) {
        Err(OpError::Failed { status: NfsStat::NFS4ERR_NOENT, .. }) => Ok(()),
        Err(OpError::Failed { status: NfsStat::NFS4ERR_SAME, .. }) => {
            Err(Trouble::Refused(MemberError::new(Cause::DirInTheWay, "a directory is in the way")))
        }
        other => Ok(other?),
    }
}

/// `made`: the reply to an earlier CREATE of it was lost, so a directory of this name is that one.
async fn dir<P>(
    session: &Session,
    task: &SlowTask<P>,
    replace: bool,
    made: &mut bool,
) -> Result<SlowDone, Trouble> {
    if let Some((fh, attrs)) = look_up(session, &task.dir, &task.name).await? {
        if attrs.kind == Some(FileType::Dir) {
            return Ok(SlowDone::Dir(fh, !*made));
        }
        if !replace {
            return Err(OpError::Failed { op: OpNum::CREATE, status: NfsStat::NFS4ERR_EXIST }.into());
        }
        remove(session, &task.dir, &task.name).await?;
    }
    let created = create(session, task, &CreateType::Dir).await;
    *made |= matches!(created, Err(Trouble::Step(StepError::Unknown(_))));
    Ok(SlowDone::Dir(created?.0, false))
}

/// CREATE; repeated without owner and group if the server refuses those. Returns the attributes that were not set.
async fn create<P>(
    session: &Session,
    task: &SlowTask<P>,
    kind: &CreateType,
) -> Result<(FileHandle, Bitmap), Trouble> {
    let mut attrs = task.job.attrs.create.clone();
    loop {
        let create = CreateArgs { kind: kind.clone(), name: task.name.clone(), attrs: attrs.clone() };
        let mut ops = vec![ArgOp::Putfh(task.dir.clone()), ArgOp::Create(create), ArgOp::Getfh];
        ops.extend(whose(session, &attrs));
        let mut results = step(session, ops).await?;
        results.skip(&[OpNum::PUTFH])?;
        match results.take(OpNum::CREATE) {
            Ok(ResBody::Create(res)) => {
                let missing = task.job.attrs.create.mask.minus(&res.attrset);
                let fh = results.getfh()?;
                return Ok((fh, missing.or(&left_out(&attrs, &mut results))));
            }
            Ok(_) => return Err(OpError::Missing { op: OpNum::CREATE }.into()),
            Err(e) if may_be_owner(e.status()) && has_owner(&attrs) => attrs = without_owner(&attrs),
            Err(e) => return Err(e.into()),
        }
    }
}

async fn other<P>(
    session: &Session,
    task: &SlowTask<P>,
    kind: &CreateType,
    replace: bool,
) -> Result<SlowDone, Trouble> {
    if replace {
        remove(session, &task.dir, &task.name).await?;
    }
    let (fh, missing) = create(session, task, kind).await?;
    let made = OpenFile::new(fh, Stateid::ANONYMOUS, u64::from(task.id.0), missing);
    finish(session, &made, task, None).await?;
    Ok(SlowDone::Done)
}

async fn link<P>(session: &Session, task: &SlowTask<P>, replace: bool) -> Result<SlowDone, Trouble> {
    let Some((target_dir, target)) = &task.target else {
        return Err(Trouble::other("hard link without a target"));
    };
    let mut to_target = vec![ArgOp::Putfh(target_dir.clone())];
    to_target.extend(target.iter().map(|name| ArgOp::Lookup(name.clone())));
    let passed: Vec<OpNum> = to_target.iter().map(ArgOp::op).collect();
    if replace {
        let mut ops = to_target.clone();
        ops.push(ArgOp::Nverify(is_dir()));
        let mut results = step(session, ops).await?;
        results.skip(&passed)?;
        results.skip(&[OpNum::NVERIFY])?;
        remove(session, &task.dir, &task.name).await?;
    }
    let mut ops = to_target;
    ops.extend([ArgOp::Savefh, ArgOp::Putfh(task.dir.clone()), ArgOp::Link(task.name.clone())]);
    let mut results = step(session, ops).await?;
    results.skip(&passed)?;
    results.skip(&[OpNum::SAVEFH, OpNum::PUTFH, OpNum::LINK])?;
    Ok(SlowDone::Done)
}

async fn whole_file<P>(
    session: &Session,
    task: &SlowTask<P>,
    data: &Bytes,
    write_mode: WriteMode,
    existing: Existing,
) -> Result<SlowDone, Trouble> {
    let file = open(session, task, write_mode, existing).await?;
    let written = write(session, &file, 0, data, StableHow::FileSync).await;
    let done = match written {
        Ok(_) => finish(session, &file, task, None).await,
        Err(e) => Err(e.into()),
    };
    close(session, &file.fh, file.stateid()).await;
    done.map(|()| SlowDone::Done)
}

/// Makes the file, or opens and empties the existing one if it is to be overwritten.
pub(super) async fn open<P>(
    session: &Session,
    task: &SlowTask<P>,
    write_mode: WriteMode,
    existing: Existing,
) -> Result<OpenFile, Trouble> {
    let overwrite = write_mode == WriteMode::Overwrite;
    if write_mode == WriteMode::Replace {
        remove(session, &task.dir, &task.name).await?;
    }
    let mut attrs = task.job.attrs.create.clone();
    loop {
        let mut args = open_args(u64::from(task.id.0), &task.name, &attrs);
        if overwrite {
            let empty = fattr(&AttrValues { size: Some(0), ..AttrValues::default() });
            args.openhow = OpenHow::Create(CreateHow::Unchecked(merge(&attrs, &empty)));
        }
        let mut ops = vec![ArgOp::Putfh(task.dir.clone()), ArgOp::Open(args), ArgOp::Getfh];
        ops.extend(whose(session, &attrs));
        let mut results = step(session, ops).await?;
        results.skip(&[OpNum::PUTFH])?;
        match results.open() {
            Ok(res) => {
                let fh = results.getfh()?;
                let left_out = left_out(&attrs, &mut results);
                // On an existing file only the size was set.
                let missing = match overwrite {
                    true => match existing {
                        Existing::Look(over) => over.for_existing(&task.job.attrs.create).mask,
                        _ => task.job.attrs.create.mask,
                    },
                    false => task.job.attrs.create.mask.minus(&res.attrset).or(&left_out),
                };
                return Ok(OpenFile::new(fh, res.stateid, u64::from(task.id.0), missing));
            }
            // Do not write through a symbolic link: replace it.
            Err(e)
                if overwrite
                    && matches!(e.status(), NfsStat::NFS4ERR_SYMLINK | NfsStat::NFS4ERR_WRONG_TYPE) =>
            {
                return Box::pin(open(session, task, WriteMode::Replace, existing)).await;
            }
            // As `cp --force`.
            Err(e)
                if overwrite
                    && matches!(existing, Existing::Look(Over { force: true, .. }))
                    && matches!(e.status(), NfsStat::NFS4ERR_ACCESS | NfsStat::NFS4ERR_PERM) =>
            {
                return Box::pin(open(session, task, WriteMode::Replace, existing)).await;
            }
            Err(e) if may_be_owner(e.status()) && has_owner(&attrs) => attrs = without_owner(&attrs),
            Err(e) => return Err(e.into()),
        }
    }
}

/// For an object that is made with an owner: reads the owner back ([`super::ownership`]).
fn whose(session: &Session, attrs: &Fattr) -> Option<ArgOp> {
    (session.version() != Version::V3 && has_owner(attrs)).then_some(ArgOp::Getattr(OWNERSHIP))
}

/// The attributes that were not set, from the reply to [`whose`]. A failed GETATTR says nothing.
fn left_out(attrs: &Fattr, results: &mut Results) -> Bitmap {
    if !has_owner(attrs) || results.remaining() == 0 {
        return Bitmap::default();
    }
    results.getattr().map(|got| ownership::left_out(attrs, &got)).unwrap_or_default()
}

/// Sets the remaining attributes: those that creation did not set, the size of a sparse file, times, set-ID bits.
pub(super) async fn finish<P>(
    session: &Session,
    file: &OpenFile,
    task: &SlowTask<P>,
    size: Option<u64>,
) -> Result<(), Trouble> {
    let create = AttrValues::from_fattr(&task.job.attrs.create).unwrap_or_default();
    let wanted = create.to_fattr(&file.missing);
    let last = merge(&wanted, &task.job.attrs.finish);
    if let Some(size) = size {
        // In a separate step, because it may change the modification time.
        let only = fattr(&AttrValues { size: Some(size), ..AttrValues::default() });
        set(session, &file.fh, &only).await?;
    }
    set_xattrs(session, &file.fh, &task.job.attrs.xattrs).await?;
    set_last(session, &file.fh, &last).await
}

/// Sets the final attributes of a member. The owner goes first and alone, because it clears set-ID bits, and because the rest is set even if
/// the owner is refused.
pub(super) async fn set_last(session: &Session, fh: &FileHandle, attrs: &Fattr) -> Result<(), Trouble> {
    let unset = |what: &str, e: &OpError| {
        let text = format!("extracted, but its {what} not set: {e}");
        Trouble::Refused(MemberError::new(Cause::Attributes(e.status()), text))
    };
    let mut last = attrs.clone();
    let mut refused = None;
    if has_owner(&last) {
        let ownership = Bitmap::of(&[number::OWNER, number::OWNER_GROUP]);
        let owner = AttrValues::from_fattr(&last).unwrap_or_default().to_fattr(&ownership);
        last = match set(session, fh, &owner).await {
            Ok(()) => without_owner(&last),
            Err(StepError::Op(e)) => {
                refused = Some(unset("owner is", &e));
                without_its_owner(&last)
            }
            Err(e) => return Err(e.into()),
        };
    }
    if !last.mask.is_empty() {
        match set(session, fh, &last).await {
            Err(StepError::Op(e)) => return Err(refused.unwrap_or_else(|| unset("mode or times are", &e))),
            other => other?,
        }
    }
    refused.map_or(Ok(()), Err)
}

/// Creates or replaces extended attributes.
pub(super) async fn set_xattrs(session: &Session, fh: &FileHandle, xattrs: &[Xattr]) -> Result<(), Trouble> {
    for xattr in xattrs {
        let ops = vec![ArgOp::Putfh(fh.clone()), set_xattr(xattr)];
        // Setting the same again does no harm.
        let mut results = repeat(session, ops).await?;
        if let Err(e) = results.skip(&[OpNum::PUTFH, OpNum::SETXATTR]) {
            return Err(Trouble::Refused(no_xattrs(e.status())));
        }
    }
    Ok(())
}

/// The error for extended attributes that could not be set.
pub(super) fn no_xattrs(status: NfsStat) -> MemberError {
    let text = format!("extracted, but its extended attributes are not set: {status}");
    MemberError::new(Cause::Xattrs(status), text)
}

/// Whether setting owner or group may be the reason for this status.
pub(super) fn may_be_owner(status: NfsStat) -> bool {
    matches!(
        status,
        NfsStat::NFS4ERR_PERM
            | NfsStat::NFS4ERR_ACCESS
            | NfsStat::NFS4ERR_INVAL
            | NfsStat::NFS4ERR_BADOWNER
            | NfsStat::NFS4ERR_ATTRNOTSUPP
    )
}

pub(super) fn has_owner(attrs: &Fattr) -> bool {
    attrs.mask.has(number::OWNER) || attrs.mask.has(number::OWNER_GROUP)
}

fn without_owner(attrs: &Fattr) -> Fattr {
    let values = AttrValues::from_fattr(attrs).unwrap_or_default();
    fattr(&AttrValues { owner: None, owner_group: None, ..values })
}
