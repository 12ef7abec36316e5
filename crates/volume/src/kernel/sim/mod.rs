//! A simulated kernel in memory, one per thread, that loses power on demand.
//!
//! It is as hostile as the allowed filesystems may be, but no worse (`docs/internals/simulation.md`):
//!
//! - Metadata: each call that changes metadata adds one entry to a journal. A power cut keeps the entries up to some point
//!   at or after the last flush. A flush of a file flushes every entry before it.
//! - Data: each block of a file remembers what was written to it since its last flush. A power cut leaves any of that, the
//!   old contents, or a mixture. A file that grew may be shorter, down to the size that was flushed or set.
//! - Identities: inode numbers are reused ([`Flavour`]).
//! - After a failed flush the lost data counts as clean.
//! - The kernel writes data back by itself and may fail. `writeback.rs` says who learns of it and who does not.
//! - The journal may fail for good, even in the middle of an unrelated flush. Then nothing can be changed any more, and a
//!   later flush may find nothing to do and succeed.
//!
//! All calls are counted. At a chosen count the power goes ([`Kernel::cut_at`]) or the call fails ([`Kernel::faults`]). After
//! a power cut every call fails until [`Kernel::reboot`], so the running code ends without effect.

mod calls;
mod disk;
mod files;
mod meta;
mod stranger;
mod writeback;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::fs::FileType;
use rustix::io::Errno;

pub use disk::{LogDisk, LogLoss};
pub use files::{BLOCK, Extent};
pub use meta::{Entry, Meta, Serial};

use crate::record::ObjId;
use crate::types::Kind;

type Result<T> = std::result::Result<T, Errno>;

/// The only path: the volume's directory.
pub const DIR: &str = "/simulated/volume";

pub const LOG: &str = "/simulated.log";

pub const MOUNT: u64 = 7;

/// The root directory of the filesystem, which is the volume's root.
pub const ROOT: Serial = 1;

/// Granularity of the times that the filesystem sets, as with a kernel of 250 Hz.
const TICK_NS: u64 = 4_000_000;

thread_local! {
    static KERNEL: RefCell<Option<Kernel>> = const { RefCell::new(None) };
    static ACTIVE: Cell<bool> = const { Cell::new(false) };
}

pub fn active() -> bool {
    ACTIVE.get()
}

pub fn install(kernel: Option<Kernel>) {
    ACTIVE.set(kernel.is_some());
    let before = KERNEL.with_borrow_mut(|k| std::mem::replace(k, kernel));
    drop(before);
    crate::cred::forget();
}

pub fn with<T>(f: impl FnOnce(&mut Kernel) -> T) -> T {
    KERNEL.with_borrow_mut(|k| match k {
        Some(kernel) => f(kernel),
        None => unreachable!("this thread has no simulated kernel"),
    })
}

/// A descriptor of the simulated kernel; closed when dropped.
#[derive(Debug)]
pub struct Descriptor {
    number: u32,
    boot: u32,
}

impl Descriptor {
    pub fn new(number: u32) -> Descriptor {
        Descriptor { number, boot: with(|k| k.boot) }
    }

    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let _ = KERNEL.try_with(|k| {
            if let Ok(mut k) = k.try_borrow_mut()
                && let Some(k) = &mut *k
                && k.boot == self.boot
            {
                k.close(self.number);
            }
        });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// The lowest free inode number, with a random generation; a flush of a file flushes the whole journal.
    Ext4,
    /// As ext4, but a flush of a file flushes only up to the file's own last entry.
    Xfs,
    /// Inode numbers ascend, but after a crash go on from what is on disk. The generation is the transaction's number, which
    /// repeats, too. A power cut leaves whole transactions.
    Btrfs,
}

#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        // Neighbouring seeds must not give similar numbers.
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Rng((z ^ (z >> 31)) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number less than `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { (self.next() >> 11) % n }
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

/// What kind of call it is, which determines the errors that it may give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Look,
    /// Changes metadata or data in memory.
    Change,
    Flush,
    Log,
}

#[derive(Debug)]
pub(super) struct Open {
    serial: Serial,
    read: bool,
    write: bool,
    position: u64,
    /// Write-back errors that this descriptor has reported: of the file, and of the filesystem.
    file_errors: u32,
    errors: u32,
}

#[derive(Debug)]
pub struct Listed {
    pub name: CString,
    pub ino: u64,
    pub kind: Kind,
    /// The position after this entry.
    pub position: u64,
}

pub struct Seen {
    pub meta: Rc<Meta>,
}

pub enum What<'a> {
    Dir,
    Symlink(&'a [u8]),
    /// Any other object, also an empty file.
    Special(FileType, (u32, u32)),
}

#[derive(Clone, Debug)]
pub enum DataEvent {
    Write(u64, Rc<[u8]>),
    Size(u64),
    Zero(u64, u64),
}

type Change = Vec<(Serial, Rc<Meta>)>;

pub struct Kernel {
    pub flavour: Flavour,
    pub rng: Rng,
    pub blocks: u64,
    /// Names that differ only in case are the same (ext4's casefold, XFS's `ascii-ci`).
    pub folds_case: bool,
    blocks_used: u64,
    live: Vec<Option<Rc<Meta>>>,
    by_ino: HashMap<u64, Serial>,
    opens: Vec<u32>,
    base: Vec<Option<Rc<Meta>>>,
    journal: Vec<Change>,
    /// Positions in the journal at which btrfs may stop.
    commits: Vec<usize>,
    extents: Vec<Extent>,
    touched: Vec<Serial>,
    fds: Vec<Option<Open>>,
    fds_free: Vec<u32>,
    boot: u32,
    /// The kernel tells one mount from another (Linux 6.8 and later).
    pub tells_mounts: bool,
    mounts: u64,
    next_ino: u64,
    transid: u32,
    user: u32,
    group: u32,
    groups: Vec<u32>,
    umask: u32,
    /// The thread has CAP_SYS_RESOURCE in effect, as each process has at first.
    pub beyond_quotas: bool,
    /// Changes that were made so.
    pub changes_beyond_quotas: u64,
    now_ns: u64,
    wall_offset_ns: i64,
    began: Instant,
    /// The file at the log's path, or the one last there before it was lost.
    pub log: Vec<u8>,
    log_number: u64,
    /// How this process lost its log, if it did.
    pub log_loss: Option<LogLoss>,
    /// The file that is to replace the lost log.
    new_log: Vec<u8>,
    pub no_new_log: bool,
    calls: u64,
    pub called: Option<Vec<&'static str>>,
    cut_at: Option<u64>,
    down: bool,
    /// Numbers of the calls that fail, in descending order.
    faults: Vec<u64>,
    /// The journal fails just before the flush with this number from here on (1: the next).
    lose_journal_in: Option<u64>,
    /// Calls that have failed by injection.
    pub struck: Vec<(u64, Class, Errno)>,
    /// A flush or a write of the log has failed.
    pub flush_failed: bool,
    /// Data could not be written back, and perhaps nobody knows.
    pub lost_quietly: bool,
    /// Files that have shown older contents since then.
    pub reverted: HashSet<Serial>,
    file_errors: HashMap<Serial, writeback::Errors>,
    errors: writeback::Errors,
    /// The journal has failed: unflushed changes are lost, and nothing can be changed any more.
    journal_lost: bool,
    /// Metadata changes so far.
    pos: u64,
    /// All metadata changes since [`Kernel::begin_history`], by position.
    pub history: Vec<(u64, Serial, Rc<Meta>)>,
    /// All data changes since then.
    pub data: Vec<(u64, Serial, DataEvent)>,
    /// The filesystem at that time.
    pub history_base: Vec<Option<Rc<Meta>>>,
    /// The last call before power went, for messages.
    pub cut_in: &'static str,
}

impl Kernel {
    /// An empty filesystem of `blocks` blocks, and a log device of `log_bytes` bytes.
    pub fn new(flavour: Flavour, seed: u64, blocks: u64, log_bytes: usize) -> Kernel {
        let mut k = Kernel {
            flavour,
            rng: Rng::new(seed),
            blocks,
            folds_case: false,
            blocks_used: 0,
            live: vec![None],
            by_ino: HashMap::new(),
            opens: vec![0],
            base: Vec::new(),
            journal: Vec::new(),
            commits: Vec::new(),
            extents: vec![Extent::default()],
            touched: Vec::new(),
            fds: Vec::new(),
            fds_free: Vec::new(),
            boot: 1,
            tells_mounts: true,
            mounts: 1,
            next_ino: 256,
            transid: 7,
            user: 0,
            group: 0,
            groups: Vec::new(),
            umask: 0,
            beyond_quotas: true,
            changes_beyond_quotas: 0,
            now_ns: 1_700_000_000_000_000_000,
            wall_offset_ns: 0,
            began: Instant::now(),
            log: vec![0; log_bytes],
            log_number: 0,
            log_loss: None,
            new_log: Vec::new(),
            no_new_log: false,
            calls: 0,
            called: None,
            cut_at: None,
            down: false,
            faults: Vec::new(),
            lose_journal_in: None,
            struck: Vec::new(),
            flush_failed: false,
            lost_quietly: false,
            reverted: HashSet::new(),
            file_errors: HashMap::new(),
            errors: writeback::Errors::default(),
            journal_lost: false,
            pos: 0,
            history: Vec::new(),
            data: Vec::new(),
            history_base: Vec::new(),
            cut_in: "",
        };
        let root = k.new_inode(Kind::Dir, 0o755);
        debug_assert_eq!(root, ROOT);
        let meta = k.edit(ROOT);
        meta.nlink = 2;
        meta.parent = ROOT;
        k.changed();
        k.flush_everything();
        k
    }

    fn enter(&mut self, call: &'static str, class: Class) -> Result<()> {
        if self.down {
            return Err(Errno::IO);
        }
        self.calls += 1;
        self.changes_beyond_quotas += u64::from(self.beyond_quotas && class == Class::Change);
        if let Some(called) = &mut self.called {
            called.push(call);
        }
        self.now_ns += 1_000 + self.rng.below(60_000);
        if self.cut_at == Some(self.calls) {
            self.down = true;
            self.cut_in = call;
            return Err(Errno::IO);
        }
        let struck = self.faults.last() == Some(&self.calls);
        if struck {
            self.faults.pop();
            self.journal_lost |= matches!(class, Class::Change | Class::Flush) && self.rng.one_in(3);
        }
        if let Some(flushes) = self.lose_journal_in.as_mut().filter(|_| class == Class::Flush) {
            *flushes -= 1;
            if *flushes == 0 {
                self.lose_journal_in = None;
                self.journal_lost = true;
            }
        }
        let errno = match class {
            Class::Change | Class::Flush if self.journal_lost => Errno::ROFS,
            _ if !struck => return Ok(()),
            Class::Look | Class::Flush | Class::Log => Errno::IO,
            Class::Change => *self.rng.pick(&[Errno::NOSPC, Errno::DQUOT, Errno::IO]),
        };
        self.struck.push((self.calls, class, errno));
        self.flush_failed |= matches!(class, Class::Flush | Class::Log);
        // The failed journal has nothing left to flush.
        if class == Class::Flush && self.journal_lost && self.rng.one_in(2) { Ok(()) } else { Err(errno) }
    }

    /// True when the page cache shows data that is not on disk and never will be.
    pub fn must_reboot(&self) -> bool {
        self.down || self.flush_failed || self.journal_lost || self.lost_quietly
    }

    /// An identity that no other mount has, if the kernel tells mounts apart.
    pub fn mount_identity(&self) -> Option<Vec<u8>> {
        self.tells_mounts.then(|| self.mounts.to_le_bytes().to_vec())
    }

    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Cuts power in the `n`th call from here on, counted from 1.
    pub fn cut_at(&mut self, n: Option<u64>) {
        self.cut_at = n.map(|n| self.calls + n);
    }

    pub fn faults(&mut self, mut calls: Vec<u64>) {
        calls.sort_unstable_by(|a, b| b.cmp(a));
        calls.dedup();
        self.faults = calls.into_iter().map(|n| self.calls + n.max(1)).collect();
    }

    /// Makes the journal fail just before the `n`th flush from here on, counted from 1.
    pub fn lose_journal_in(&mut self, n: Option<u64>) {
        self.lose_journal_in = n;
    }

    pub fn is_down(&self) -> bool {
        self.down
    }

    pub fn cut(&mut self) {
        if !self.down {
            self.down = true;
            self.cut_in = "between calls";
        }
    }

    /// Metadata changes so far.
    pub fn position(&self) -> u64 {
        self.pos
    }

    /// The system's wall clock, nanoseconds since 1970.
    pub fn wall_clock_ns(&mut self) -> u64 {
        self.now_ns += 50;
        self.now_ns.saturating_add_signed(self.wall_offset_ns)
    }

    pub fn instant(&mut self) -> Instant {
        self.began + Duration::from_nanos(self.now_ns - 1_700_000_000_000_000_000)
    }

    pub fn wait(&mut self, ns: u64) {
        self.now_ns += ns;
    }

    pub fn set_clock(&mut self, by_ns: i64) {
        self.wall_offset_ns += by_ns;
    }

    pub fn fill_random(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let random = self.rng.next().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }

    /// The time that the filesystem puts into an inode.
    fn tick(&self) -> i64 {
        let now = self.now_ns.saturating_add_signed(self.wall_offset_ns);
        (now - now % TICK_NS) as i64
    }

    /// An object, for the current call to change.
    fn edit(&mut self, serial: Serial) -> &mut Meta {
        if !self.touched.contains(&serial) {
            self.touched.push(serial);
        }
        match &mut self.live[serial as usize] {
            Some(meta) => Rc::make_mut(meta),
            None => unreachable!("an object that is there"),
        }
    }

    fn meta(&self, serial: Serial) -> &Rc<Meta> {
        match &self.live[serial as usize] {
            Some(meta) => meta,
            None => unreachable!("an object that is there"),
        }
    }

    pub fn peek(&self, serial: Serial) -> Option<&Rc<Meta>> {
        self.live.get(serial as usize)?.as_ref()
    }

    /// The metadata position after the last change of an object since `before`, if the log has an operation that changed it
    /// then. The log never mentions an object that had lost its last name before.
    pub fn logged_change(&self, serial: Serial, before: u64) -> Option<u64> {
        let mut since = self.history.iter().rev().take_while(|(at, ..)| *at > before);
        let last = since.find(|(_, changed, _)| *changed == serial)?;
        let earlier = self.history.iter().rev().find(|(at, changed, _)| *at <= before && *changed == serial);
        let was =
            earlier.map(|(_, _, meta)| meta).or_else(|| self.history_base.get(serial as usize)?.as_ref());
        was.is_none_or(|meta| meta.nlink > 0).then_some(last.0)
    }

    pub fn serial_of(&self, id: &ObjId) -> Option<Serial> {
        let (ino, generation) = calls::numbers(&id.kh).ok()?;
        let serial = self.by_ino.get(&ino).copied()?;
        let meta = self.meta(serial);
        (meta.generation == generation && meta.btime == id.btime_ns).then_some(serial)
    }

    /// Ends a call that changed metadata: adds one entry to the journal.
    fn changed(&mut self) {
        self.pos += 1;
        let touched = std::mem::take(&mut self.touched);
        let change: Change = touched.iter().map(|s| (*s, self.meta(*s).clone())).collect();
        self.history.extend(change.iter().map(|(s, m)| (self.pos, *s, m.clone())));
        self.journal.push(change);
        for serial in touched {
            self.reap(serial);
        }
        // The filesystem commits whenever it likes; only btrfs shows it.
        if self.flavour == Flavour::Btrfs && self.rng.one_in(12) {
            self.btrfs_commit();
        }
    }

    fn btrfs_commit(&mut self) {
        self.transid += 1;
        self.commits.push(self.journal.len());
    }

    /// Removes an object that has neither names nor users.
    fn reap(&mut self, serial: Serial) {
        if let Some(meta) = self.peek(serial)
            && meta.nlink == 0
            && self.opens[serial as usize] == 0
        {
            let meta = meta.clone();
            self.blocks_used -= meta.blocks();
            self.by_ino.remove(&meta.ino);
            self.file_errors.remove(&serial);
            self.live[serial as usize] = None;
        }
    }

    /// Makes the journal durable up to an entry.
    fn advance_base(&mut self, entries: usize) {
        for change in self.journal.drain(..entries) {
            for (serial, meta) in change {
                let at = serial as usize;
                if self.base.len() <= at {
                    self.base.resize(at + 1, None);
                }
                self.base[at] = Some(meta);
            }
        }
        self.commits.retain_mut(|at| {
            *at = at.saturating_sub(entries);
            *at > 0
        });
    }

    fn flush_everything(&mut self) {
        for serial in 1..self.live.len() {
            self.flush_data(serial as Serial, true);
        }
        if self.flavour == Flavour::Btrfs {
            self.btrfs_commit();
        }
        self.journal.clear();
        self.commits.clear();
        self.base.clone_from(&self.live);
    }

    /// From here on keeps all changes for the oracle.
    pub fn begin_history(&mut self) {
        self.history.clear();
        self.data.clear();
        self.history_base.clone_from(&self.live);
    }

    pub fn snapshot(&self) -> Vec<Option<Rc<Meta>>> {
        let named = |slot: &Option<Rc<Meta>>| slot.clone().filter(|m| m.nlink > 0);
        self.live.iter().map(named).collect()
    }

    /// Restores power: only what the disk holds is left. Returns the metadata position of that state.
    pub fn reboot(&mut self) -> u64 {
        let first = self.pos - self.journal.len() as u64;
        let kept = self.surviving();
        let mut state = std::mem::take(&mut self.base);
        for change in self.journal.drain(..kept) {
            for (serial, meta) in change {
                let at = serial as usize;
                if state.len() <= at {
                    state.resize(at + 1, None);
                }
                state[at] = Some(meta);
            }
        }
        if self.flavour == Flavour::Btrfs {
            // The lost transaction's number is used again.
            let lost = self.commits.iter().filter(|at| **at > kept).count() as u32;
            self.transid -= lost;
        }
        self.journal.clear();
        self.commits.clear();
        self.mounts += 1;
        self.journal_lost = false;
        self.lost_quietly = false;
        self.reverted.clear();
        self.file_errors.clear();
        self.errors = writeback::Errors::default();
        self.by_ino.clear();
        self.blocks_used = 0;
        self.next_ino = 256;
        let mut extents = vec![Extent::default()];
        for (serial, slot) in state.iter_mut().enumerate() {
            let Some(meta) = slot.take().filter(|m| m.nlink > 0) else { continue };
            let meta = self.settle(meta, &mut extents);
            self.by_ino.insert(meta.ino, serial as Serial);
            self.blocks_used += meta.blocks();
            self.next_ino = self.next_ino.max(meta.ino + 1);
            *slot = Some(Rc::new(meta));
        }
        self.extents = extents;
        state.resize(self.live.len(), None);
        self.live = state;
        self.opens.iter_mut().for_each(|n| *n = 0);
        self.touched.clear();
        self.base.clone_from(&self.live);
        // Longer than any clock's granularity.
        self.now_ns += 2_000_000_000 + self.rng.below(3_000_000_000);
        self.new_process();
        first + kept as u64
    }

    /// How many entries of the journal survive a power cut.
    fn surviving(&mut self) -> usize {
        let all = self.journal.len();
        if self.flavour == Flavour::Btrfs {
            let places = self.commits.len() as u64 + 1;
            return match self.rng.below(places) {
                0 => 0,
                n => self.commits[n as usize - 1],
            };
        }
        match self.rng.below(6) {
            0 => 0,
            1 => all,
            // Often the last few entries are what matters.
            2 | 3 => all - self.rng.below(12.min(all as u64 + 1)) as usize,
            _ => self.rng.below(all as u64 + 1) as usize,
        }
    }

    /// Ends the process without a power cut: closes its descriptors and keeps everything else.
    pub fn restart_process(&mut self) {
        for n in 0..self.fds.len() as u32 {
            self.close(n);
        }
        self.now_ns += 500_000_000;
        self.new_process();
    }

    /// The state of a new process: no descriptors, root's rights, no faults scheduled.
    fn new_process(&mut self) {
        self.fds.clear();
        self.fds_free.clear();
        self.boot += 1;
        (self.user, self.group, self.umask) = (0, 0, 0);
        self.beyond_quotas = true;
        self.groups.clear();
        self.down = false;
        self.cut_at = None;
        self.faults.clear();
        self.lose_journal_in = None;
        self.flush_failed = false;
        crate::cred::forget();
    }

    /// Suspends scheduled power cuts and errors. Pass the result to [`Kernel::resume_troubles`].
    pub fn hold_troubles(&mut self) -> (Option<u64>, Vec<u64>) {
        let calls = self.calls;
        let left = |n: u64| n.saturating_sub(calls).max(1);
        (self.cut_at.take().map(left), std::mem::take(&mut self.faults).into_iter().map(left).collect())
    }

    pub fn resume_troubles(&mut self, (cut_at, faults): (Option<u64>, Vec<u64>)) {
        self.cut_at(cut_at);
        self.faults(faults);
    }
}
