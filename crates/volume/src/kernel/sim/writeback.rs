//! Failed write-back by the kernel, and who learns of it (`errseq_t`, Linux's `lib/errseq.c`).
//!
//! Each file and the whole filesystem have an error number. A descriptor copies both when it is opened; if it later finds
//! another number, it reports an error once. While nobody has been told of the latest error, a newly opened descriptor also
//! counts it as unseen, and further errors merge with it. The kernel forgets a file's number when it evicts the inode, which
//! it may do when nobody has the file open.

use rustix::io::Errno;

use super::meta::Serial;
use super::{Class, Kernel, Result};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Errors {
    number: u32,
    seen: bool,
}

impl Errors {
    pub(super) fn note(&mut self) {
        if self.number == 0 || self.seen {
            *self = Errors { number: self.number + 1, seen: false };
        }
    }

    /// What a descriptor opened now has seen.
    pub(super) fn sample(self) -> u32 {
        if self.seen { self.number } else { 0 }
    }

    /// Whether there is an error to report; marks it as reported.
    fn tell(&mut self, known: &mut u32) -> bool {
        let news = self.number != *known;
        self.seen |= news;
        *known = self.number;
        news
    }
}

impl Kernel {
    pub(super) fn tell_file(&mut self, n: u32) -> Result<()> {
        let open = self.fds.get_mut(n as usize).and_then(Option::as_mut).ok_or(Errno::BADF)?;
        let errors = self.file_errors.get_mut(&open.serial);
        if errors.is_some_and(|errors| errors.tell(&mut open.file_errors)) { self.told() } else { Ok(()) }
    }

    pub(super) fn tell_filesystem(&mut self, n: u32) -> Result<()> {
        let open = self.fds.get_mut(n as usize).and_then(Option::as_mut).ok_or(Errno::BADF)?;
        if self.errors.tell(&mut open.errors) { self.told() } else { Ok(()) }
    }

    /// From here on nothing may be acknowledged.
    fn told(&mut self) -> Result<()> {
        self.struck.push((self.calls(), Class::Flush, Errno::IO));
        self.flush_failed = true;
        Err(Errno::IO)
    }

    pub(super) fn note_error(&mut self, serial: Serial) {
        self.file_errors.entry(serial).or_default().note();
        self.errors.note();
    }

    /// `sync_file_range` that starts nothing and waits for nothing.
    pub fn written_back(&mut self, n: u32) -> Result<()> {
        self.enter("sync_file_range", Class::Look)?;
        let open = self.fds.get(n as usize).and_then(Option::as_ref).ok_or(Errno::BADF)?;
        if !open.read && !open.write {
            return Err(Errno::BADF);
        }
        self.tell_file(n)
    }

    /// The kernel writes a file back and fails. Returns whether there was anything to write.
    pub fn fail_write_back(&mut self, serial: Serial) -> bool {
        let Some(meta) = self.peek(serial).cloned() else { return false };
        let mut lost = false;
        for extent in meta.map.iter().filter(|e| **e != 0) {
            if self.extents[*extent as usize].is_dirty() && !self.rng.one_in(4) {
                self.extents[*extent as usize].lose();
                lost = true;
            }
        }
        if lost {
            self.lost_quietly = true;
            self.note_error(serial);
        }
        lost
    }

    /// The kernel needs memory: it drops the clean data of a file. If nobody has the file open, it drops the inode, too.
    pub fn drop_clean(&mut self, serial: Serial) {
        let Some(meta) = self.peek(serial).cloned() else { return };
        let (mut dropped, mut dirty) = (false, false);
        for extent in meta.map.iter().filter(|e| **e != 0) {
            dropped |= self.extents[*extent as usize].drop_lost();
            dirty |= self.extents[*extent as usize].is_dirty();
        }
        if dropped {
            self.reverted.insert(serial);
        }
        if !dirty && self.opens[serial as usize] == 0 {
            self.file_errors.remove(&serial);
        }
    }

    /// Somebody else flushes a file or the filesystem, and gets the pending errors.
    pub fn told_to_stranger(&mut self, serial: Serial) {
        if let Some(errors) = self.file_errors.get_mut(&serial) {
            errors.seen = true;
        }
        if self.rng.one_in(2) {
            self.errors.seen = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Errors;

    #[test]
    fn each_descriptor_is_told_once_and_a_late_one_only_if_nobody_was() {
        let mut errors = Errors::default();
        let mut early = errors.sample();
        errors.note();
        let mut first_late = errors.sample();
        assert!(errors.tell(&mut first_late), "nobody was told");
        let mut late = errors.sample();
        assert!(!errors.tell(&mut late) && !errors.tell(&mut first_late));
        assert!(errors.tell(&mut early) && !errors.tell(&mut early));
        errors.note();
        assert!(errors.tell(&mut late));
    }
}
