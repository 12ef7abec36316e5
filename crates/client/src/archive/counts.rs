//! Counts members by kind.

use serde::Serialize;

use super::Kind;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Regular files.
    pub files: u64,
    pub dirs: u64,
    pub symlinks: u64,
    /// Hard links.
    pub hard_links: u64,
    /// Devices, FIFOs and sockets.
    pub specials: u64,
}

impl Counts {
    #[must_use]
    pub fn all(&self) -> u64 {
        self.dirs + self.without_dirs()
    }

    #[must_use]
    pub fn without_dirs(&self) -> u64 {
        self.files + self.symlinks + self.hard_links + self.specials
    }

    pub(crate) fn add(&mut self, kind: Kind) {
        *match kind {
            Kind::File => &mut self.files,
            Kind::Dir => &mut self.dirs,
            Kind::Symlink => &mut self.symlinks,
            Kind::HardLink => &mut self.hard_links,
            Kind::Char | Kind::Block | Kind::Fifo | Kind::Socket => &mut self.specials,
        } += 1;
    }
}
