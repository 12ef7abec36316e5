//! `tar xf` of archives, one after another, and the record of what it did: it says each member's name before it extracts it.

use super::history::{HEADER_BYTES, How, Id, Kind, Naming, text};
use super::record::Record;
use crate::error::{Context, Error, Result};
use landfast_verify::rng::Rng;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

const DIRS: u64 = 5;
const FILES: u64 = 120;
const FILE_BYTES: u64 = 8 << 10;

/// A member, in the archive's order.
struct Member {
    path: String,
    dir: Id,
    object: Id,
    /// A file's only version.
    version: Option<usize>,
}

/// Extracts archives in the existing, empty directory `at`, which is `top` in the record, until it is told to stop, or `tar` fails.
/// The archives are made in `scratch`.
pub fn run(record: &Arc<Record>, at: &Path, top: Id, scratch: &Path, seed: u64) {
    let mut rng = Rng::new(seed);
    for n in 0.. {
        if record.is_over() {
            return;
        }
        if let Err(e) = one(record, (at, top), &scratch.join(format!("{seed}-{n}.tar")), n, &mut rng) {
            return record.failed(&e.to_string());
        }
    }
}

fn one(record: &Arc<Record>, (at, top): (&Path, Id), archive: &Path, n: u64, rng: &mut Rng) -> Result<()> {
    let what = || format!("write {}", archive.display());
    let out = BufWriter::new(File::create(archive).context(what)?);
    let members = make(record, top, n, rng, out).context(what)?;
    // It may do things before what it says of them is read here.
    let steps: Vec<usize> = record.with(|h, now| {
        let begin = |m: &Member| {
            let name = m.path.rsplit('/').next().unwrap_or_default().to_owned();
            h.begin(m.dir, Naming::Add { name, object: m.object }, m.object, now)
        };
        members.iter().map(begin).collect()
    });
    let run = || "run `tar`".to_owned();
    // In one stream: after an error it goes on with the next member, whose name then does not say that the one before is done.
    let (says, writer) = std::io::pipe().context(run)?;
    let mut tar = {
        let mut tar = Command::new("tar");
        tar.arg("-xvf").arg(archive).arg("-C").arg(at).env("LC_ALL", "C").stdin(Stdio::null());
        tar.stdout(writer.try_clone().context(run)?).stderr(writer);
        // The ends of the pipe that the command has go here.
        tar.spawn().context(run)?
    };
    for (told, line) in BufReader::new(says).lines().enumerate() {
        let Ok(line) = line else { break };
        if members.get(told).is_none_or(|m| m.path != line.trim_end_matches('/')) {
            end(&mut tar);
            return Err(Error::Protocol(line));
        }
        // The one before is done.
        if let Some(before) = told.checked_sub(1) {
            done(record, &members[before], steps[before]);
        }
        if record.is_over() {
            end(&mut tar);
            return Ok(());
        }
    }
    let status = tar.wait().context(run)?;
    std::fs::remove_file(archive).context(what)?;
    if !status.success() {
        return Err(Error::Protocol(format!("tar: {status}")));
    }
    if let (Some(member), Some(step)) = (members.last(), steps.last()) {
        done(record, member, *step);
    }
    // As GNU `sync DIR`.
    if rng.chance(300) {
        let tree: PathBuf = at.join(&members[0].path);
        let object = members[0].object;
        let synced = File::open(&tree).and_then(|dir| dir.sync_all());
        synced.context(|| format!("fsync {}", tree.display()))?;
        let waits = record.waits();
        record.synced(|h| if waits { h.stable_names(object) } else { h.stable_below(object) });
    }
    Ok(())
}

fn end(tar: &mut Child) {
    // It may wait for the server; then its end waits, too.
    let _ = tar.kill();
    let _ = tar.wait();
}

fn done(record: &Record, member: &Member, step: usize) {
    record.with(|h, now| {
        if let Some(version) = member.version {
            h.written(member.object, version, now);
        }
    });
    record.named(member.dir, step);
    record.closed(member.object);
    record.counted();
}

/// Writes an archive whose members are objects of the record.
fn make(record: &Record, top: Id, n: u64, rng: &mut Rng, out: impl Write) -> std::io::Result<Vec<Member>> {
    let mut archive = tar::Builder::new(out);
    let mut members: Vec<Member> = Vec::new();
    let mut dirs: HashMap<u64, (Id, String)> = HashMap::new();
    let tree = format!("tree{n:04}");
    let mut header = tar::Header::new_gnu();
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1_500_000_000);
    let mut dir = |archive: &mut tar::Builder<_>, above: Id, path: &str| -> std::io::Result<Id> {
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(0o755);
        header.set_size(0);
        archive.append_data(&mut header, format!("{path}/"), std::io::empty())?;
        let object = record.with(|h, _| h.add(Kind::Dir));
        members.push(Member { path: path.to_owned(), dir: above, object, version: None });
        Ok(object)
    };
    let object = dir(&mut archive, top, &tree)?;
    for d in 0..DIRS {
        let path = format!("{tree}/d{d}");
        dirs.insert(d, (dir(&mut archive, object, &path)?, path));
    }
    for f in 0..FILES {
        let Some((above, path)) = dirs.get(&(f * DIRS / FILES)) else { continue };
        let path = format!("{path}/f{f:04}");
        if rng.chance(50) {
            let object = record.with(|h, _| h.add(Kind::Symlink));
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            archive.append_link(&mut header, &path, text(object))?;
            members.push(Member { path, dir: *above, object, version: None });
            continue;
        }
        let bytes = HEADER_BYTES + rng.below(FILE_BYTES) as usize;
        let (object, version, data) = record.with(|h, _| {
            let object = h.add(Kind::File);
            let version = h.write(object, How::Fresh, bytes);
            let data = h.get(object).map(|node| node.written(object, version)).unwrap_or_default();
            (object, version, data)
        });
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(data.len() as u64);
        archive.append_data(&mut header, &path, data.as_slice())?;
        members.push(Member { path, dir: *above, object, version: Some(version) });
    }
    archive.into_inner()?.flush()?;
    Ok(members)
}
