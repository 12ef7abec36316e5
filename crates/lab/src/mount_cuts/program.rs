//! A program that works on a mount, and the record of what it did. The record is in this process, so it outlives the mount.

use super::history::{HEADER_BYTES, History, How, Id, Kind, Moving, Naming, text};
use super::record::Record;
use crate::sys::close;
use landfast_verify::rng::Rng;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Directories in which it works at a time; the others stay as they are.
const DIRS_AT_WORK: usize = 6;

/// Names of a directory, beyond which it makes another one.
const NAMES_MAX: usize = 40;

/// Longest file that most are, in bytes.
const FILE_BYTES: u64 = 12 << 10;

/// A long one: more than a mount makes together with its name.
const LONG_FILE_BYTES: u64 = 1500 << 10;

/// One that is written in several pieces and then committed: so many bytes, and up to so many more.
const COMMITTED_FILE_BYTES: (u64, u64) = (2200 << 10, 1000 << 10);

/// Longest pause between two calls.
const PAUSE: Duration = Duration::from_millis(8);

/// Modes that files get.
const MODES: [u32; 4] = [0o600, 0o640, 0o644, 0o755];

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Everything.
    All,
    /// What a mount does without its server where a directory is its own.
    Alone,
    /// Everything, in directories that others look into.
    Seen,
}

#[derive(Debug, Clone)]
struct Place {
    dir: Id,
    name: String,
}

/// A file that stays open while the program goes on.
struct Kept {
    file: File,
    object: Id,
    version: usize,
    /// Its name, if that is known to be there only when it is closed: directory and step.
    naming: Option<(Id, usize)>,
    /// What is to be written.
    left: Vec<u8>,
    /// So many calls until then.
    calls: u64,
}

pub struct Program {
    record: Arc<Record>,
    /// A new file's name is known to be there only when it is closed: the mount waits, or others look into the same directories.
    names_late: bool,
    /// The top directory, on the mount.
    at: PathBuf,
    top: Id,
    rng: Rng,
    manner: Manner,
    /// Directories, but for the top.
    dirs: HashMap<Id, Place>,
    /// The newest are the last.
    at_work: Vec<Id>,
    files: Vec<(Id, Place)>,
    kept: Option<Kept>,
    names: u64,
}

impl Program {
    /// A program that works in the existing, empty directory `at`, which is `top` in the record.
    pub fn new(record: Arc<Record>, at: &Path, top: Id, seed: u64, manner: Manner) -> Program {
        Program {
            names_late: record.waits() || manner == Manner::Seen,
            record,
            at: at.to_owned(),
            top,
            rng: Rng::new(seed),
            manner,
            dirs: HashMap::new(),
            at_work: vec![top],
            files: Vec::new(),
            kept: None,
            names: 0,
        }
    }

    /// Works until it is told to stop, or a call fails.
    pub fn run(mut self) {
        let done = self.work();
        if let Err(e) = done {
            self.record.failed(&format!("{}: {e}", self.at.display()));
        }
    }

    fn work(&mut self) -> io::Result<()> {
        while !self.record.is_over() {
            self.one()?;
            if let Some(kept) = &mut self.kept {
                kept.calls = kept.calls.saturating_sub(1);
            }
            if self.kept.as_ref().is_some_and(|kept| kept.calls == 0) {
                self.close_kept()?;
            }
            self.record.counted();
            let pause = self.rng.below(PAUSE.as_micros() as u64);
            std::thread::sleep(Duration::from_micros(pause));
        }
        match self.record.closes_at_end() {
            true => self.close_kept(),
            false => Ok(()),
        }
    }

    fn one(&mut self) -> io::Result<()> {
        let dir = self.dir();
        let alone = self.manner == Manner::Alone;
        match self.rng.below(100) {
            0..8 => self.mkdir(dir),
            8..36 => self.create(dir),
            36..48 => self.save(dir),
            48..58 => self.rename(),
            58..68 => self.unlink(),
            68..72 => self.symlink(dir),
            72..78 => self.chmod(),
            78..84 => self.fsync_file(),
            84..86 => self.fsync_dir(dir),
            86..88 => self.rmdir(),
            88..92 if !alone => self.append(),
            92..94 if !alone => self.overwrite(),
            94..97 if !alone => self.move_away(),
            97..98 if !alone => self.link(),
            98..100 => self.keep_open(dir),
            _ => self.create(dir),
        }
    }

    fn path(&self, dir: Id) -> PathBuf {
        let mut names = Vec::new();
        let mut dir = dir;
        while let Some(place) = self.dirs.get(&dir) {
            names.push(&place.name);
            dir = place.dir;
        }
        names.iter().rev().fold(self.at.clone(), |path, name| path.join(name))
    }

    fn join(&self, place: &Place) -> PathBuf {
        self.path(place.dir).join(&place.name)
    }

    /// A directory to work in.
    fn dir(&mut self) -> Id {
        let n = self.rng.below(self.at_work.len() as u64) as usize;
        self.at_work.get(n).copied().unwrap_or(self.top)
    }

    fn new_name(&mut self, kind: char) -> String {
        self.names += 1;
        format!("{kind}{:06}", self.names)
    }

    /// A file that is not open.
    fn file(&mut self) -> Option<usize> {
        let n = self.rng.below(self.files.len() as u64) as usize;
        let (object, _) = self.files.get(n)?;
        let open = self.kept.as_ref().is_some_and(|kept| kept.object == *object);
        (!open).then_some(n)
    }

    fn bytes(&mut self) -> usize {
        let most = match self.rng.below(100) {
            0..6 => return 0,
            6..8 => LONG_FILE_BYTES,
            // Each close waits for them.
            8..12 if self.record.waits() => {
                return (COMMITTED_FILE_BYTES.0 + self.rng.below(COMMITTED_FILE_BYTES.1)) as usize;
            }
            8..40 => 200,
            _ => FILE_BYTES,
        };
        1 + self.rng.below(most) as usize
    }

    /// Does a call that changes names, between its beginning and its end in the record.
    fn naming<T>(
        &self,
        (dir, object): (Id, Id),
        what: Naming,
        call: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let step = self.record.with(|h, now| h.begin(dir, what, object, now));
        let done = call()?;
        self.record.named(dir, step);
        Ok(done)
    }

    fn mkdir(&mut self, dir: Id) -> io::Result<()> {
        let object = self.new_dir(dir)?;
        self.at_work.push(object);
        if self.at_work.len() > DIRS_AT_WORK {
            self.at_work.remove(0);
        }
        Ok(())
    }

    fn new_dir(&mut self, dir: Id) -> io::Result<Id> {
        let name = self.new_name('d');
        let object = self.record.with(|h, _| h.add(Kind::Dir));
        let path = self.path(dir).join(&name);
        self.naming((dir, object), Naming::Add { name: name.clone(), object }, || fs::create_dir(&path))?;
        self.dirs.insert(object, Place { dir, name });
        Ok(object)
    }

    /// Opens a new file, and notes its name, if that does not come with the close.
    fn open_new(&mut self, dir: Id, name: &str) -> io::Result<(File, Id, usize)> {
        let path = self.path(dir).join(name);
        let object = self.record.with(|h, _| h.add(Kind::File));
        let what = Naming::Add { name: name.to_owned(), object };
        let step = self.record.with(|h, now| {
            h.chmod(object, 0o644);
            h.begin(dir, what, object, now)
        });
        let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
        if !self.names_late {
            self.record.named(dir, step);
        }
        self.record.with(|h, now| h.chmod_done(object, now));
        Ok((file, object, step))
    }

    /// Writes a version in some pieces and leaves the file open.
    fn write(&mut self, file: &mut File, object: Id, how: How) -> io::Result<usize> {
        let bytes = self.bytes();
        let (version, data) = self.version(object, how, bytes);
        let pieces = 1 + self.rng.below(3) as usize;
        for piece in data.chunks(data.len().div_ceil(pieces).max(1)) {
            file.write_all(piece)?;
        }
        Ok(version)
    }

    fn version(&self, object: Id, how: How, bytes: usize) -> (usize, Vec<u8>) {
        self.record.with(|h, _| {
            let version = h.write(object, how, bytes);
            (version, h.get(object).map(|node| node.written(object, version)).unwrap_or_default())
        })
    }

    /// Makes a file, with its content and perhaps its mode, and closes it.
    fn make(&mut self, dir: Id, name: &str) -> io::Result<Id> {
        let (mut file, object, step) = self.open_new(dir, name)?;
        let version = self.write(&mut file, object, How::Fresh)?;
        if self.rng.chance(400) {
            let mode = MODES[self.rng.below(MODES.len() as u64) as usize];
            self.record.with(|h, _| h.chmod(object, mode));
            file.set_permissions(Permissions::from_mode(mode))?;
            self.record.with(|h, now| h.chmod_done(object, now));
        }
        let synced = self.rng.chance(60);
        if synced {
            file.sync_all()?;
        }
        close(file)?;
        if self.names_late {
            self.record.named(dir, step);
        }
        self.record.with(|h, now| h.written(object, version, now));
        if synced {
            self.record.synced(|h| h.stable(object));
        }
        self.record.closed(object);
        Ok(object)
    }

    fn create(&mut self, dir: Id) -> io::Result<()> {
        let full = self.files.iter().filter(|(_, place)| place.dir == dir).count() >= NAMES_MAX;
        if full {
            return self.mkdir(self.top);
        }
        let name = self.new_name('f');
        let object = self.make(dir, &name)?;
        self.files.push((object, Place { dir, name }));
        Ok(())
    }

    /// A file that is held open while the program does other things.
    fn keep_open(&mut self, dir: Id) -> io::Result<()> {
        if self.kept.is_some() {
            return self.create(dir);
        }
        // A name that comes late comes some time before the close. Nothing else happens in this directory until then.
        let dir = if self.names_late { self.new_dir(dir)? } else { dir };
        let name = self.new_name('o');
        let (mut file, object, step) = self.open_new(dir, &name)?;
        let mut naming = Some((dir, step)).filter(|_| self.names_late);
        let bytes = 2 + self.rng.below(FILE_BYTES) as usize;
        let (version, mut data) = self.version(object, How::Fresh, bytes);
        let left = data.split_off(bytes / 2);
        file.write_all(&data)?;
        if self.rng.chance(400) {
            file.sync_all()?;
            if let Some((dir, step)) = naming.take() {
                self.record.named(dir, step);
            }
            self.record.synced(|h| h.stable_part(object, version, data.len()));
        }
        let calls = 5 + self.rng.below(200);
        self.kept = Some(Kept { file, object, version, naming, left, calls });
        self.files.push((object, Place { dir, name }));
        Ok(())
    }

    fn close_kept(&mut self) -> io::Result<()> {
        let Some(mut kept) = self.kept.take() else { return Ok(()) };
        kept.file.write_all(&kept.left)?;
        close(kept.file)?;
        if let Some((dir, step)) = kept.naming {
            self.record.named(dir, step);
        }
        self.record.with(|h, now| h.written(kept.object, kept.version, now));
        self.record.closed(kept.object);
        Ok(())
    }

    /// As editors do: a new file is written beside the old one, perhaps synced, and takes its name.
    fn save(&mut self, dir: Id) -> io::Result<()> {
        let Some(n) = self.file().filter(|_| self.rng.chance(800)) else { return self.create(dir) };
        let (_, place) = self.files[n].clone();
        let temporary = self.new_name('t');
        let object = self.make(place.dir, &temporary)?;
        let (from, to) = (self.path(place.dir).join(&temporary), self.join(&place));
        let what = Naming::Rename { from: temporary, to: place.name.clone() };
        self.naming((place.dir, object), what, || fs::rename(&from, &to))?;
        self.files[n] = (object, place);
        Ok(())
    }

    fn rename(&mut self) -> io::Result<()> {
        let Some(n) = self.file() else { return Ok(()) };
        let (object, place) = self.files[n].clone();
        let to = self.new_name('r');
        let (old, new) = (self.join(&place), self.path(place.dir).join(&to));
        let what = Naming::Rename { from: place.name.clone(), to: to.clone() };
        self.naming((place.dir, object), what, || fs::rename(&old, &new))?;
        self.files[n].1.name = to;
        Ok(())
    }

    /// A rename into another directory: the server does it, and has heard of all before in both.
    fn move_away(&mut self) -> io::Result<()> {
        let Some(n) = self.file() else { return Ok(()) };
        let (object, place) = self.files[n].clone();
        let to = self.dir();
        if to == place.dir {
            return Ok(());
        }
        let name = self.new_name('m');
        let (old, new) = (self.join(&place), self.path(to).join(&name));
        let steps = self.record.with(|h, now| {
            h.moving = Some(Moving { object, from: place.dir, to });
            let gone = h.begin(place.dir, Naming::Remove { name: place.name.clone() }, object, now);
            (gone, h.begin(to, Naming::Add { name: name.clone(), object }, object, now))
        });
        fs::rename(&old, &new)?;
        self.record.synced(|h| h.moving = None);
        self.record.named(place.dir, steps.0);
        self.record.named(to, steps.1);
        self.record.with(|h, _| {
            h.stable_names(place.dir);
            h.stable_names(to);
        });
        self.files[n].1 = Place { dir: to, name };
        Ok(())
    }

    /// A second name, which the server makes.
    fn link(&mut self) -> io::Result<()> {
        let Some(n) = self.file() else { return Ok(()) };
        let (object, place) = self.files[n].clone();
        let name = self.new_name('l');
        let (old, new) = (self.join(&place), self.path(place.dir).join(&name));
        let what = Naming::Add { name: name.clone(), object };
        self.naming((place.dir, object), what, || fs::hard_link(&old, &new))?;
        self.record.synced(|h| h.stable_names(place.dir));
        // From here on nothing is done to it: it has two names.
        self.files.swap_remove(n);
        Ok(())
    }

    fn unlink(&mut self) -> io::Result<()> {
        let Some(n) = self.file() else { return Ok(()) };
        let (object, place) = self.files.swap_remove(n);
        let path = self.join(&place);
        self.naming((place.dir, object), Naming::Remove { name: place.name }, || fs::remove_file(&path))
    }

    /// Removes an empty directory.
    fn rmdir(&mut self) -> io::Result<()> {
        let is_empty =
            |id: &Id| self.record.with(|h, _| h.get(*id).is_some_and(|node| node.names().is_empty()));
        let Some(id) = self.at_work.iter().copied().find(|id| *id != self.top && is_empty(id)) else {
            return Ok(());
        };
        let path = self.path(id);
        let Some(place) = self.dirs.remove(&id) else { return Ok(()) };
        self.at_work.retain(|dir| *dir != id);
        self.naming((place.dir, id), Naming::Remove { name: place.name }, || fs::remove_dir(&path))
    }

    fn symlink(&mut self, dir: Id) -> io::Result<()> {
        let name = self.new_name('s');
        let object = self.record.with(|h, _| h.add(Kind::Symlink));
        let path = self.path(dir).join(&name);
        self.naming((dir, object), Naming::Add { name, object }, || symlink(text(object), &path))
    }

    fn chmod(&mut self) -> io::Result<()> {
        let Some(n) = self.file() else { return Ok(()) };
        let (object, place) = self.files[n].clone();
        let mode = MODES[self.rng.below(MODES.len() as u64) as usize];
        self.record.with(|h, _| h.chmod(object, mode));
        fs::set_permissions(self.join(&place), Permissions::from_mode(mode))?;
        self.record.with(|h, now| h.chmod_done(object, now));
        self.record.closed(object);
        Ok(())
    }

    fn fsync_file(&mut self) -> io::Result<()> {
        let Some(n) = self.file() else { return Ok(()) };
        let (object, place) = self.files[n].clone();
        OpenOptions::new().write(true).open(self.join(&place))?.sync_all()?;
        self.record.synced(|h| h.stable(object));
        Ok(())
    }

    fn fsync_dir(&mut self, dir: Id) -> io::Result<()> {
        File::open(self.path(dir))?.sync_all()?;
        let waits = self.record.waits();
        self.record.synced(|h: &mut History| match waits {
            // Of a mount that waits it is the names.
            true => h.stable_names(dir),
            false => h.stable_below(dir),
        });
        Ok(())
    }

    fn append(&mut self) -> io::Result<()> {
        let Some(n) = self.file() else { return Ok(()) };
        let (object, place) = self.files[n].clone();
        let bytes = self.record.with(|h, _| h.get(object).map_or(0, |node| node.bytes()));
        if bytes < HEADER_BYTES {
            // Nobody would know whose file it is.
            return self.overwrite_one(object, &place);
        }
        let mut file = OpenOptions::new().append(true).open(self.join(&place))?;
        let version = self.write(&mut file, object, How::Appended)?;
        close(file)?;
        self.record.with(|h, now| h.written(object, version, now));
        self.record.closed(object);
        Ok(())
    }

    fn overwrite(&mut self) -> io::Result<()> {
        let Some(n) = self.file() else { return Ok(()) };
        let (object, place) = self.files[n].clone();
        self.overwrite_one(object, &place)
    }

    fn overwrite_one(&mut self, object: Id, place: &Place) -> io::Result<()> {
        let bytes = self.bytes();
        let (version, data) = self.version(object, How::Fresh, bytes);
        let mut file = OpenOptions::new().write(true).truncate(true).open(self.join(place))?;
        file.write_all(&data)?;
        close(file)?;
        self.record.with(|h, now| h.written(object, version, now));
        self.record.closed(object);
        Ok(())
    }
}
