//! An open file: held back or on the server, its data on its way, its errors.

use bytes::Bytes;
use landfast_nfs::v4::NfsTime;

use super::attrs::{Attrs, Set, without_privileges};
use super::content::Content;
use super::{Ino, Time};
use crate::errno::Errno;
use crate::limits::{DIRTY_FILE_BYTES_MAX, HELD_BYTES_MAX, LOCAL_FILE_BYTES_MAX, PIECE_BYTES};

/// A new file that the server does not know yet. It is made, written, given its attributes and closed in one COMPOUND.
#[derive(Debug, Clone)]
pub struct Held {
    /// The directory that it goes into, and its name there.
    pub dir: Ino,
    pub name: Bytes,
    /// The permission bits that it is made with.
    pub mode: u32,
    /// The program asked for a new file (`O_EXCL`).
    pub exclusive: bool,
    /// An existing file of this name is to be emptied (`O_TRUNC`).
    pub truncate: bool,
    /// What is written goes behind what an existing file of this name has (`O_APPEND`).
    pub append: bool,
    pub since: Time,
    /// What SETATTR has to say behind the data.
    pub set: Set,
    /// It is on its way: nothing more can be folded into it.
    pub sent: bool,
    /// It is made with its directory's changes, in their order ([`super::pending`]), and programs need not wait for that.
    pub local: bool,
}

impl Held {
    /// Data that it may have.
    fn bytes_max(&self) -> u64 {
        if self.local { LOCAL_FILE_BYTES_MAX } else { HELD_BYTES_MAX }
    }
}

/// Errors of a file. Each open reports an error once, as the kernel's `errseq_t` does.
#[derive(Debug, Default)]
pub struct Errors {
    last: Option<Errno>,
    count: u64,
}

impl Errors {
    pub fn add(&mut self, e: Errno) {
        self.last = Some(e);
        self.count += 1;
    }

    /// What an open that begins now has seen.
    pub fn seen(&self) -> u64 {
        self.count
    }

    /// The error since `seen`, once.
    pub fn report(&self, seen: &mut u64) -> Result<(), Errno> {
        if *seen == self.count {
            return Ok(());
        }
        *seen = self.count;
        Err(self.last.unwrap_or(Errno::IO))
    }
}

/// What a write asks for before it may be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing.
    Done,
    /// Nothing, but writing should begin.
    Write,
    /// Nothing, but the file should be made on the server: it is too large to be held.
    Make,
    /// Room: this file has too much data on its way.
    Wait,
}

/// An open file.
#[derive(Debug, Default)]
pub struct File {
    pub held: Option<Held>,
    pub content: Content,
    pub errors: Errors,
    /// Attributes that its creation has not set, and when data was written last before it was sent. They come before later data.
    pub left: Option<(Set, Option<NfsTime>)>,
    /// Data of it is lost, and why.
    pub lost: Option<Errno>,
    /// When data was written here that the server does not have yet.
    pub written: Option<NfsTime>,
    /// Open file descriptions that have it.
    pub opens: u32,
    /// Those of them that have begun to end. Of two that end together the second one is the last.
    pub ending: u32,
    /// It could not be made on the server: nothing can be done with it any more.
    pub dead: Option<Errno>,
    /// Changes whenever data is written or cut off here.
    pub generation: u64,
    /// Bytes of `content` that are counted in the mount's total.
    pub charged: u64,
    /// Where it is while it is open and has no name of its own any more.
    pub removed_as: Option<(Ino, Bytes)>,
}

impl File {
    /// Takes `data` at `offset`; `kill`: the writer has no right to privileges of the file.
    pub fn write(&mut self, offset: u64, data: &[u8], kill: bool, attrs: &mut Attrs, now: NfsTime) {
        self.content.write(offset, data);
        self.generation += 1;
        self.written = Some(now);
        // One that is made with its directory's changes may have to be made once more.
        if let Some(held) = self.held.as_mut().filter(|held| !held.sent || held.local) {
            held.set.written();
            if kill {
                attrs.mode = without_privileges(attrs.mode);
                held.mode = without_privileges(held.mode);
                held.set.mode = held.set.mode.map(without_privileges);
            }
            attrs.size = attrs.size.max(offset + data.len() as u64);
            (attrs.mtime, attrs.ctime) = (now, now);
        }
    }

    /// Whether the server has all of it.
    pub fn is_finished(&self) -> bool {
        self.held.is_none() && self.content.is_empty() && self.left.is_none()
    }

    /// Whether it is made with its directory's changes.
    pub fn is_local(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.local)
    }

    /// What must be done because of what was written.
    pub fn next(&self) -> Next {
        match &self.held {
            _ if self.content.bytes() > DIRTY_FILE_BYTES_MAX => Next::Wait,
            Some(held) if self.content.bytes() > held.bytes_max() && !held.sent => Next::Make,
            Some(_) => Next::Done,
            None if self.content.waiting_bytes() >= PIECE_BYTES as u64 => Next::Write,
            None => Next::Done,
        }
    }

    /// Folds a change of attributes into a held file. Returns `false` if it is not held.
    pub fn set(&mut self, set: &Set, attrs: &mut Attrs, now: NfsTime) -> bool {
        let Some(held) = self.held.as_mut().filter(|held| !held.sent) else { return false };
        if let Some(size) = set.size {
            self.content.truncate(size);
            self.generation += 1;
        }
        held.set.then(set);
        attrs.set(set, now);
        // What the data itself makes of the size needs no SETATTR.
        if held.set.size == Some(self.content.end()) && attrs.size == self.content.end() {
            held.set.size = None;
        }
        true
    }

    /// The SETATTR of a held file that is sent now.
    pub fn set_at_close(&self, attrs: &Attrs) -> Set {
        let Some(held) = &self.held else { return Set::default() };
        let size = (attrs.size > self.content.end()).then_some(attrs.size);
        Set { size, ..held.set }
    }

    /// The attributes as the programs of this machine see them.
    pub fn view(&self, mut attrs: Attrs) -> Attrs {
        attrs.size = attrs.size.max(self.content.end());
        if self.removed_as.is_some() {
            // The name that keeps it until its close is nobody's.
            attrs.links = attrs.links.saturating_sub(1);
        }
        if let (Some(now), None) = (self.written, &self.held) {
            (attrs.mtime, attrs.ctime) = (attrs.mtime.max(now), attrs.ctime.max(now));
        }
        attrs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfast_nfs::v4::attr::AttrValues;
    use landfast_nfs::v4::{FileType, SetTime};
    use proptest::prelude::*;

    fn now() -> NfsTime {
        NfsTime { seconds: 50, nseconds: 0 }
    }

    fn held() -> (File, Attrs) {
        let values = AttrValues { kind: Some(FileType::Reg), mode: Some(0o600), ..AttrValues::default() };
        let held = Held {
            dir: 1,
            name: Bytes::from_static(b"f"),
            mode: 0o600,
            exclusive: true,
            truncate: false,
            append: false,
            since: Time::ZERO,
            set: Set::default(),
            sent: false,
            local: false,
        };
        let mut attrs = Attrs::of(&values, |_, _| 0).unwrap();
        attrs.mtime = now();
        (File { held: Some(held), ..File::default() }, attrs)
    }

    #[derive(Debug, Clone)]
    enum Op {
        Write(u64, Vec<u8>),
        Set(Set),
    }

    fn op() -> impl Strategy<Value = Op> {
        let set = (
            proptest::option::of(0..0o1000u32),
            proptest::option::of(0..40u64),
            proptest::option::of(1..9i64),
        );
        prop_oneof![
            (0..30u64, proptest::collection::vec(1u8.., 1..9)).prop_map(|(at, d)| Op::Write(at, d)),
            set.prop_map(|(mode, size, mtime)| {
                let mtime = mtime.map(|seconds| SetTime::ClientTime(NfsTime { seconds, nseconds: 0 }));
                Op::Set(Set { mode, size, mtime, ..Set::default() })
            }),
        ]
    }

    proptest! {
        /// The server executes the create, the WRITEs and the SETATTR; the outcome is that of the program's calls.
        #[test]
        fn one_compound_leaves_the_file_as_the_calls_one_by_one(ops in proptest::collection::vec(op(), 0..12)) {
            let (mut file, mut attrs) = held();
            let (mut data, mut mode, mut mtime) = (Vec::new(), 0o600, now());
            for op in ops {
                match op {
                    Op::Write(at, d) => {
                        let end = at as usize + d.len();
                        data.resize(data.len().max(end), 0);
                        data[at as usize..end].copy_from_slice(&d);
                        mtime = now();
                        file.write(at, &d, false, &mut attrs, now());
                    }
                    Op::Set(set) => {
                        if let Some(size) = set.size {
                            data.resize(size as usize, 0);
                            mtime = now();
                        }
                        mode = set.mode.unwrap_or(mode);
                        if let Some(SetTime::ClientTime(t)) = set.mtime {
                            mtime = t;
                        }
                        prop_assert!(file.set(&set, &mut attrs, now()));
                    }
                }
                prop_assert_eq!((attrs.size, attrs.mode, attrs.mtime), (data.len() as u64, mode, mtime));
            }
            let mut server = vec![0; file.content.end() as usize];
            file.content.read_over(0, &mut server);
            let set = file.set_at_close(&attrs);
            server.resize(set.size.map_or(server.len(), |s| s as usize), 0);
            prop_assert_eq!(server, data);
            prop_assert_eq!(set.mode.unwrap_or(0o600), mode);
            let told = match set.mtime { Some(SetTime::ClientTime(t)) => t, _ => now() };
            prop_assert_eq!(told, mtime);
        }
    }

    #[test]
    fn each_open_hears_of_an_error_once() {
        let mut errors = Errors::default();
        let (mut one, mut two) = (errors.seen(), errors.seen());
        errors.add(Errno(libc::ENOSPC));
        assert_eq!(errors.report(&mut one), Err(Errno(libc::ENOSPC)));
        assert_eq!(errors.report(&mut one), Ok(()));
        assert_eq!(errors.report(&mut two), Err(Errno(libc::ENOSPC)));
        let mut later = errors.seen();
        assert_eq!(errors.report(&mut later), Ok(()));
    }

    #[test]
    fn a_write_without_privileges_takes_those_of_the_file() {
        let (mut file, mut attrs) = held();
        file.set(&Set { mode: Some(0o4755), ..Set::default() }, &mut attrs, now());
        file.write(0, b"x", true, &mut attrs, now());
        assert_eq!((attrs.mode, file.set_at_close(&attrs).mode), (0o755, Some(0o755)));
    }

    #[test]
    fn what_is_written_while_a_creation_is_under_way_is_in_the_next_one() {
        let (mut file, mut attrs) = held();
        file.held.as_mut().unwrap().local = true;
        file.set(&Set { mode: Some(0o4755), ..Set::default() }, &mut attrs, now());
        file.write(0, b"begin", false, &mut attrs, now());
        file.held.as_mut().unwrap().sent = true;
        let (number, at, data) = file.content.take().unwrap();
        let later = NfsTime { seconds: 60, nseconds: 0 };
        file.write(5, b", end", true, &mut attrs, later);
        // An earlier change has failed: it waits again.
        file.content.failed(number);
        file.content.again(at, &data);
        file.held.as_mut().unwrap().sent = false;
        assert_eq!((file.content.end(), attrs.size, attrs.mtime), (10, 10, later));
        let set = file.set_at_close(&attrs);
        assert_eq!((set.size, set.mode), (None, Some(0o755)));
        // A size that is behind the data by mistake never cuts it off.
        attrs.size = 5;
        assert_eq!(file.set_at_close(&attrs).size, None);
    }

    #[test]
    fn a_file_that_grows_is_not_held_for_long() {
        let (mut file, mut attrs) = held();
        file.write(0, &vec![1; HELD_BYTES_MAX as usize], false, &mut attrs, now());
        assert_eq!(file.next(), Next::Done);
        file.write(HELD_BYTES_MAX, b"x", false, &mut attrs, now());
        assert_eq!(file.next(), Next::Make);
        file.held = None;
        assert_eq!(file.next(), Next::Done);
        file.write(0, &vec![1; DIRTY_FILE_BYTES_MAX as usize + 1], false, &mut attrs, now());
        assert_eq!(file.next(), Next::Wait);
    }
}
