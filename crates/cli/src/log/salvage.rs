//! `landfast log salvage`: writes what can be read from any log as plain files, with a report.

use super::args::LogSalvageArgs;
use crate::exit::{Exit, failed, ok_or_print};
use crate::units::show_count;
use bytes::Bytes;
use landfast_volume::Kind;
use landfast_volume::salvage::{Object, Salvage, Step, salvage};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, Timespec, Timestamps, XattrFlags};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The file in the result's directory that says what is complete.
const REPORT: &str = "REPORT";

/// Ranges of a file that are listed in its line of the report.
const RANGES_TOLD: usize = 8;

/// Exit status 0: everything in the log was extracted. 1: the log is damaged in places, or something could not be made
/// here. 2: nothing could be done.
pub fn run(args: &LogSalvageArgs) -> Exit {
    // The log is read first, so that a mistyped name leaves nothing behind.
    let Some(found) = ok_or_print(salvage(&args.path)) else { return Exit::Failed };
    let at = |e: io::Error| format!("{}: {e}", args.to.display());
    if let Err(e) = fresh(&args.to) {
        return failed(at(e));
    }
    match write(&args.to, &found) {
        Ok(failed) => {
            println!(
                "{}: {} objects of {} records; {} could not be made here; {} says what is whole",
                args.to.display(),
                show_count(found.objects.len() as u64),
                show_count(found.records),
                show_count(failed),
                args.to.join(REPORT).display()
            );
            let harmed = found.damaged + found.gaps + found.unread + failed > 0 || !found.has_superblock;
            if harmed { Exit::Partly } else { Exit::Done }
        }
        Err(e) => failed(at(e)),
    }
}

fn fresh(to: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(to) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => match fs::read_dir(to)?.next() {
            None => Ok(()),
            Some(_) => Err(io::Error::new(
                ErrorKind::DirectoryNotEmpty,
                "the directory is not empty; name a new one",
            )),
        },
        made => made,
    }
}

/// Writes everything. Returns how many objects could not be made as they should be.
fn write(to: &Path, found: &Salvage) -> io::Result<u64> {
    let mut report = BufWriter::new(File::create_new(to.join(REPORT))?);
    head(&mut report, found)?;
    let mut failed = 0;
    let mut wrong: Vec<Vec<String>> = Vec::with_capacity(found.objects.len());
    for (_, object) in &found.objects {
        let mut problems = Vec::new();
        make(to, object, &mut problems);
        wrong.push(problems);
    }
    // Directories last: entries change their times, and their modes may forbid entries.
    for ((_, object), problems) in found.objects.iter().zip(&mut wrong).rev() {
        if object.kind() == Kind::Dir
            && let Some(path) = object.paths.first()
        {
            dress(&joined(to, path), object, problems);
        }
    }
    for ((_, object), problems) in found.objects.iter().zip(&wrong) {
        failed += u64::from(!problems.is_empty());
        line(&mut report, object, problems)?;
    }
    report.flush()?;
    Ok(failed)
}

fn head(report: &mut impl Write, found: &Salvage) -> io::Result<()> {
    writeln!(
        report,
        "# {} objects from {} records in {} batches; {} more that the log says were removed",
        found.objects.len(),
        found.records,
        found.batches,
        found.removed
    )?;
    let said = [
        (
            found.gaps,
            "places where batches are missing: what came before one may not be as it was in the end",
        ),
        (found.damaged, "damaged batches or blocks"),
        (found.unread, "records that this program cannot read"),
        (found.foreign, "batches of another log that was on the device before, left out"),
    ];
    for (count, what) in said.iter().filter(|(count, _)| *count > 0) {
        writeln!(report, "# {count} {what}")?;
    }
    if !found.has_superblock {
        writeln!(report, "# no superblock is whole")?;
    }
    writeln!(report, "# directory-N, object-N: inode N, of which the log does not say where it was")
}

fn line(report: &mut impl Write, object: &Object, problems: &[String]) -> io::Result<()> {
    let missing = object.missing();
    let state = if missing.is_empty() && problems.is_empty() { "whole  " } else { "partial" };
    let kind = match object.kind() {
        Kind::File => "file",
        Kind::Dir => "directory",
        Kind::Symlink => "link",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharDev => "character device",
        Kind::BlockDev => "block device",
    };
    let shown = |path: &Vec<Bytes>| {
        let parts: Vec<String> =
            path.iter().map(|part| String::from_utf8_lossy(part).escape_debug().to_string()).collect();
        parts.join("/")
    };
    let paths: Vec<String> = object.paths.iter().map(shown).collect();
    write!(report, "{state} {kind}")?;
    if let Some(owned) = &object.owned {
        write!(report, " {:04o} {}:{}", owned.mode, owned.uid, owned.gid)?;
    }
    if object.kind() == Kind::File {
        let (ranges, size) = object.known();
        write!(report, " {size} bytes")?;
        if !missing.is_empty() {
            let told: Vec<String> =
                ranges.iter().take(RANGES_TOLD).map(|r| format!("{}-{}", r.start, r.end)).collect();
            let more = if ranges.len() > RANGES_TOLD { ", and more" } else { "" };
            write!(
                report,
                " (known: {}{more})",
                if told.is_empty() { "none".to_owned() } else { told.join(", ") }
            )?;
        }
    }
    write!(report, " {}", paths.join(" = "))?;
    let said: Vec<&str> = missing.iter().copied().chain(problems.iter().map(String::as_str)).collect();
    if !said.is_empty() {
        write!(report, ": {}", said.join("; "))?;
    }
    writeln!(report)
}

fn joined(to: &Path, path: &[Bytes]) -> PathBuf {
    // Components have no slash and are not dots ([`landfast_volume::salvage`]).
    to.join(path.iter().map(|part| OsStr::from_bytes(part)).collect::<PathBuf>())
}

fn make(to: &Path, object: &Object, problems: &mut Vec<String>) {
    let Some((first, others)) = object.paths.split_first() else { return };
    let path = joined(to, first);
    if let Err(e) = make_one(&path, object) {
        problems.push(format!("not made here: {e}"));
        return;
    }
    if object.kind() != Kind::Dir {
        dress(&path, object, problems);
    }
    for other in others {
        if let Err(e) = fs::hard_link(&path, joined(to, other)) {
            problems.push(format!("one more name was not made here: {e}"));
        }
    }
}

fn make_one(path: &Path, object: &Object) -> io::Result<()> {
    let birth = object.birth.as_ref();
    let node = |kind, dev| Ok(rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), dev)?);
    let dev = birth.map_or(0, |birth| rustix::fs::makedev(birth.rdev.0, birth.rdev.1));
    match object.kind() {
        Kind::Dir => fs::DirBuilder::new().mode(0o700).create(path),
        Kind::Symlink => {
            let target = birth.map(|birth| birth.target.clone()).unwrap_or_default();
            std::os::unix::fs::symlink(OsStr::from_bytes(&target), path)
        }
        Kind::Fifo => node(FileType::Fifo, 0),
        Kind::Socket => node(FileType::Socket, 0),
        Kind::CharDev => node(FileType::CharacterDevice, dev),
        Kind::BlockDev => node(FileType::BlockDevice, dev),
        Kind::File => {
            let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            for step in &object.steps {
                match step {
                    Step::Write(offset, bytes) => file.write_all_at(bytes, *offset)?,
                    Step::Size(size) => file.set_len(*size)?,
                    Step::Zero(offset, len) => {
                        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                        if rustix::fs::fallocate(&file, flags, *offset, *len).is_err() {
                            zero(&file, *offset, *len)?;
                        }
                    }
                }
            }
            Ok(())
        }
    }
}

/// Writes zeros, if the filesystem cannot make holes.
fn zero(file: &File, offset: u64, len: u64) -> io::Result<()> {
    const PIECE: usize = 64 << 10;
    let end = offset.saturating_add(len).min(file.metadata()?.len());
    let mut at = offset;
    while at < end {
        let piece = (end - at).min(PIECE as u64);
        file.write_all_at(&[0; PIECE][..piece as usize], at)?;
        at += piece;
    }
    Ok(())
}

/// Sets owner, extended attributes, mode and times, as far as that is possible here.
fn dress(path: &Path, object: &Object, problems: &mut Vec<String>) {
    let mut tried = |what: &str, done: io::Result<()>| {
        if let Err(e) = done {
            problems.push(format!("{what} not set here: {e}"));
        }
    };
    if let Some(owned) = &object.owned {
        tried("owner", std::os::unix::fs::lchown(path, Some(owned.uid), Some(owned.gid)));
    }
    for (name, value) in &object.xattrs {
        // The server's own attributes mean nothing elsewhere.
        if !name.starts_with(b"trusted.landfast.") {
            let set = rustix::fs::lsetxattr(path, &name[..], value, XattrFlags::empty());
            tried(
                &format!("extended attribute {}", String::from_utf8_lossy(name).escape_debug()),
                set.map_err(Into::into),
            );
        }
    }
    let Some(owned) = &object.owned else { return };
    if object.kind() != Kind::Symlink {
        tried("mode", fs::set_permissions(path, fs::Permissions::from_mode(owned.mode)));
    }
    let spec = |t: landfast_volume::Timestamp| Timespec { tv_sec: t.secs, tv_nsec: t.nanos.into() };
    let times = Timestamps { last_access: spec(owned.atime), last_modification: spec(owned.mtime) };
    let set = rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
    tried("times", set.map_err(Into::into));
}
