//! Runs one seed: a volume on a simulated kernel, its clients, power cuts, recoveries, and the oracle that checks it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use landfast_intentlog::Stepper;
use landfast_intentlog::admit::Pressure;
use landfast_intentlog::step::{Did, Step, Wait};
use parking_lot::Mutex;

use super::figures::Figures;
use super::past::Past;
use super::replies::{Replies, note};
use super::strangers::Touched;
use crate::kernel::sim::{self, Flavour, Kernel, LogLoss, Meta, Rng, Serial};
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::options::{Durability, OpenOptions};
use crate::state::STATE_DIR;
use crate::tx::{Receipt, Tx};
use crate::types::{EntryDetail, Kind};
use crate::volume::Volume;
use crate::{Cred, Error};
/// What a client knows of an object.
#[derive(Clone)]
pub(super) struct Told {
    pub(super) fh: Bytes,
    pub(super) fileid: u64,
    pub(super) created_ns: i64,
}

/// A request whose reply waits for the log.
pub(super) struct Waiting {
    pub(super) receipt: Receipt,
    pub(super) client: u8,
    pub(super) n: u32,
    /// The metadata position when it was done. If the request changed nothing: the position of the last change of the
    /// objects that it reported.
    pub(super) position: u64,
    /// The log had reported it durable before the first failed flush.
    pub(super) settled: bool,
    /// The log had reported it durable when the loss of the log became visible.
    pub(super) before_loss: bool,
}

/// A request that has a note.
pub(super) struct Noted {
    pub(super) client: u8,
    pub(super) n: u32,
    pub(super) position: u64,
    /// The number of the transaction of its last change; `None` if it changed nothing that is logged.
    pub(super) seq: Option<u64>,
}

/// A client and its open transaction.
pub(super) struct Client {
    id: u8,
    n: u32,
    tx: Option<Tx>,
    ops_left: u64,
    /// The metadata position of the last change of the objects that its request was told of.
    told: u64,
}

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) seed: u64,
    pub(super) figures: Figures,
    pub(super) volume: Option<Volume>,
    pub(super) stepper: Option<Stepper>,
    pub(super) replies: Arc<Replies>,
    pub(super) clients: Vec<Client>,
    pub(super) dirs: Vec<Node>,
    pub(super) files: Vec<Node>,
    pub(super) others: Vec<Node>,
    pub(super) open: Vec<OpenFile>,
    /// The objects that the current operation names, or finds by its names, if its reply must be durable.
    pub(super) names: Vec<Serial>,
    pub(super) entries: Vec<Serial>,
    /// For each object the metadata position after its last change by a request that was logged.
    pub(super) changed_at: HashMap<Serial, u64>,
    /// Objects and their change attributes as just reported.
    pub(super) saw: Vec<(Node, u64)>,
    pub(super) waiting: Vec<Waiting>,
    pub(super) noted: Vec<Noted>,
    pub(super) acked: BTreeMap<u8, u32>,
    pub(super) acked_position: u64,
    /// For the number of the last transaction: first and last metadata position at which nothing was joined.
    pub(super) bounds: BTreeMap<u64, (u64, u64)>,
    /// The metadata position after the last operation logged under each number.
    pub(super) ends: BTreeMap<u64, u64>,
    pub(super) past: Past,
    pub(super) told: HashMap<Serial, Told>,
    /// Handles whose objects were removed in an earlier life.
    pub(super) gone: Vec<Told>,
    pub(super) changes: HashMap<(Bytes, u64), u64>,
    pub(super) strangers: HashSet<Serial>,
    /// Strangers' objects that have taken a name which clients use.
    pub(super) squatters: Vec<Serial>,
    /// The metadata position before the operation in which the volume failed.
    pub(super) failed_from: Option<u64>,
    pub(super) verifier: [u8; 8],
    pub(super) unclean: bool,
    /// In this life replies are large, nobody asks the log for room, and no checkpoint starts by itself: the log has to make
    /// room for itself.
    pub(super) heedless: bool,
    /// What a stranger has done since the server ended.
    pub(super) touched: Option<Rc<Touched>>,
    /// The process was killed, and the kernel has kept the tree since.
    pub(super) unbroken: bool,
    /// In this life the kernel cannot write all data back.
    pub(super) failing: bool,
    /// In this life somebody takes the log away.
    pub(super) log_thief: bool,
    /// The log's watcher has seen the loss: nothing may be acknowledged before there is a new log.
    pub(super) loss_seen: bool,
    /// The volume is marked as needing no log.
    pub(super) set_aside: bool,
    /// The volume is opened without its log, which was lost in this way.
    pub(super) without: Option<(LogLoss, Vec<u8>)>,
    /// Acknowledged changes are lost, and nobody could have known.
    pub(super) over: bool,
    /// The volume has since been served without its log, so the log's replies are out of date.
    pub(super) notes_are_old: bool,
    /// Data of this file was lost that way: its client may ask to commit it.
    pub(super) suspect: Option<Node>,
    pub(super) history: Vec<String>,
    pub(super) keep_history: bool,
}

/// Runs a seed. An error is the oracle's finding, with the history if wanted.
pub(super) fn run(seed: u64, keep_history: bool) -> Result<Figures, String> {
    let mut rng = Rng::new(seed);
    let flavour = *rng.pick(&[Flavour::Ext4, Flavour::Xfs, Flavour::Btrfs]);
    let blocks = *rng.pick(&[8192, 8192, 8192, 420]);
    let log_bytes = *rng.pick(&[256 << 10, 256 << 10, 512 << 10]);
    let mut kernel = Kernel::new(flavour, rng.next(), blocks, log_bytes);
    kernel.tells_mounts = !rng.one_in(3);
    let past = Past::begin(&mut kernel);
    sim::install(Some(kernel));
    let mut world = World {
        rng,
        seed,
        figures: Figures::default(),
        volume: None,
        stepper: None,
        replies: Arc::default(),
        clients: Vec::new(),
        dirs: Vec::new(),
        files: Vec::new(),
        others: Vec::new(),
        open: Vec::new(),
        names: Vec::new(),
        entries: Vec::new(),
        changed_at: HashMap::new(),
        saw: Vec::new(),
        waiting: Vec::new(),
        noted: Vec::new(),
        acked: BTreeMap::new(),
        acked_position: 0,
        bounds: BTreeMap::new(),
        ends: BTreeMap::new(),
        past,
        told: HashMap::new(),
        gone: Vec::new(),
        changes: HashMap::new(),
        strangers: HashSet::new(),
        squatters: Vec::new(),
        failed_from: None,
        verifier: [0; 8],
        unclean: false,
        heedless: false,
        touched: None,
        unbroken: false,
        failing: false,
        log_thief: false,
        loss_seen: false,
        set_aside: false,
        without: None,
        over: false,
        notes_are_old: false,
        suspect: None,
        history: Vec::new(),
        keep_history,
    };
    world.say(|| format!("{flavour:?}, {blocks} blocks, log of {log_bytes} bytes"));
    let done = world.lives();
    world.figures.calls = sim::with(|k| k.calls());
    world.stop_process();
    let figures = world.figures;
    let mut told = String::new();
    if done.is_err() && keep_history {
        world.history.iter().for_each(|line| _ = writeln!(told, "  {line}"));
    }
    drop(world);
    sim::install(None);
    done.map(|()| figures).map_err(|e| format!("seed {seed}: {e}\n{told}"))
}

impl World {
    pub(super) fn say(&mut self, what: impl FnOnce() -> String) {
        if self.keep_history {
            let (calls, position) = sim::with(|k| (k.calls(), k.position()));
            self.history.push(format!("[{calls} @{position}] {}", what()));
        }
    }

    fn digest(&mut self, what: impl Hash) {
        let mut h = std::hash::DefaultHasher::new();
        (self.figures.digest, what).hash(&mut h);
        self.figures.digest = h.finish();
    }

    pub(super) fn volume(&self) -> Volume {
        match &self.volume {
            Some(volume) => volume.clone(),
            None => unreachable!("the volume is open"),
        }
    }

    fn lives(&mut self) -> Result<(), String> {
        let lives = 1 + self.rng.below(3);
        self.first_opening()?;
        for life in 0..=lives {
            self.serve(life == lives)?;
            let clean = self.volume.is_none();
            self.say(|| if clean { "stopped in order".to_owned() } else { "end of this life".to_owned() });
            self.end_life(clean)?;
            if self.over {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn options() -> OpenOptions {
        OpenOptions { log: Some(sim::LOG.into()), ..OpenOptions::new(sim::DIR, Durability::Log) }
    }

    fn first_opening(&mut self) -> Result<(), String> {
        let (volume, _) = Volume::open(World::options()).map_err(|e| format!("first opening: {e}"))?;
        self.volume = Some(volume);
        self.begin_life(&[])
    }

    /// Starts the log and lets clients in. Returns false when power went or something failed.
    pub(super) fn start(&mut self) -> Result<bool, String> {
        self.replies = Arc::new(Replies(Arc::new(Mutex::new(self.acked.clone()))));
        match self.volume().start_stepped(self.replies.clone()) {
            Ok(stepper) => {
                self.stepper = Some(stepper);
                Ok(true)
            }
            Err(e) => {
                let excused = sim::with(|k| k.is_down() || !k.struck.is_empty());
                self.say(|| format!("start: {e}"));
                if excused { Ok(false) } else { Err(format!("the volume does not start: {e}")) }
            }
        }
    }

    pub(super) fn begin_life(&mut self, pairs: &[(Serial, Serial)]) -> Result<(), String> {
        if self.stepper.is_none() && !self.start()? {
            return Err("the first start failed".to_owned());
        }
        let before = std::mem::take(&mut self.told);
        let now: HashMap<Serial, Serial> = pairs.iter().copied().collect();
        for (serial, told) in before {
            match now.get(&serial) {
                Some(now) => _ = self.told.insert(*now, told),
                None => self.gone.push(told),
            }
        }
        // A stranger's object at a client's name belongs to the clients from here on.
        for stranger in std::mem::take(&mut self.squatters) {
            self.strangers.remove(&stranger);
        }
        self.past = sim::with(Past::begin);
        self.acked_position = self.past.begin;
        self.bounds.clear();
        self.ends.clear();
        self.failed_from = None;
        self.figures.given_up += u64::from(self.without.is_some());
        (self.loss_seen, self.set_aside, self.without) = (false, false, None);
        self.notes_are_old = false;
        self.noted.clear();
        self.waiting.clear();
        let volume = self.volume();
        self.verifier = volume.write_verifier();
        self.dirs = vec![volume.root()];
        (self.files, self.others, self.open) = (Vec::new(), Vec::new(), Vec::new());
        let clients = 1 + self.rng.below(4) as u8;
        self.clients = (0..clients)
            .map(|id| Client {
                id,
                n: self.acked.get(&id).copied().unwrap_or(0),
                tx: None,
                ops_left: 0,
                told: 0,
            })
            .collect();
        self.bound();
        self.look_around();
        Ok(())
    }

    /// Lets clients find the existing objects.
    fn look_around(&mut self) {
        let mut at = 0;
        while let Some(dir) = self.dirs.get(at).cloned() {
            at += 1;
            if let Ok(page) = self.volume().readdir(&Cred::root(), &dir, 0, usize::MAX, EntryDetail::Attrs) {
                for (node, _) in page.entries.into_iter().filter_map(|e| e.object?.ok()) {
                    let ours =
                        sim::with(|k| k.serial_of(&node.0.id)).is_none_or(|s| !self.strangers.contains(&s));
                    if ours {
                        self.know(&node);
                    }
                }
            }
        }
    }

    /// Notes that a client was given this object.
    pub(super) fn know(&mut self, node: &Node) {
        let list = match node.kind() {
            Kind::Dir => &mut self.dirs,
            Kind::File => &mut self.files,
            _ => &mut self.others,
        };
        if !list.contains(node) {
            if list.len() > 24 {
                let at = 1 + self.rng.below(list.len() as u64 - 1) as usize;
                list.swap_remove(at);
            }
            list.push(node.clone());
        }
        if let Some(serial) = sim::with(|k| k.serial_of(&node.0.id)) {
            let created_ns = node.0.created_ns;
            let told = || Told { fh: node.fh(), fileid: node.fileid(), created_ns };
            self.told.entry(serial).or_insert_with(told);
        }
    }

    /// Notes the metadata position if no transaction is joined: a batch may end here.
    fn bound(&mut self) {
        if self.clients.iter().any(|c| c.tx.as_ref().is_some_and(Tx::logs)) {
            return;
        }
        let Some(seq) = self.volume.as_ref().and_then(|v| Some(v.log()?.1.last())) else { return };
        let position = sim::with(|k| k.position());
        self.bounds.entry(seq).or_insert((position, position)).1 = position;
    }

    fn serve(&mut self, last: bool) -> Result<(), String> {
        self.heedless = self.rng.one_in(10);
        self.failing = self.rng.one_in(5);
        self.log_thief = self.rng.one_in(6);
        let no_new_log = self.rng.one_in(5);
        sim::with(|k| k.no_new_log = no_new_log);
        let most = if self.rng.one_in(6) || self.heedless { 160 } else { 50 };
        let ops = 10 + self.rng.below(most);
        // About eight system calls per operation.
        if !last || self.rng.one_in(2) {
            let n = 1 + self.rng.below(ops * 14);
            sim::with(|k| k.cut_at(Some(n)));
        }
        if self.rng.one_in(6) {
            if self.rng.one_in(3) {
                let n = 1 + self.rng.below(4);
                sim::with(|k| k.lose_journal_in(Some(n)));
            } else {
                let faults = (0..1 + self.rng.below(3)).map(|_| 1 + self.rng.below(ops * 12)).collect();
                sim::with(|k| k.faults(faults));
            }
        }
        let eager = *self.rng.pick(&[1u64, 2, 4, 10]);
        for _ in 0..ops {
            if sim::with(|k| k.is_down()) || self.volume().failed().is_some() {
                break;
            }
            if !self.gate_closed() {
                self.turn()?;
            }
            for _ in 0..self.rng.below(eager) {
                self.step()?;
            }
            if self.log_thief {
                self.lose_or_look()?;
            }
            self.acknowledge()?;
        }
        // While a lost log is being replaced, a new transaction would wait.
        if !self.gate_closed() && self.rng.one_in(2) {
            self.finish_all();
            for _ in 0..self.rng.below(12) {
                self.step()?;
                self.acknowledge()?;
            }
        }
        let failed = self.volume().failed().is_some();
        self.figures.failed += u64::from(failed);
        self.figures.faults += sim::with(|k| k.struck.len()) as u64;
        let whole = !sim::with(|k| k.is_down() || k.log_loss.is_some());
        if !failed && whole && !self.gate_closed() && self.rng.one_in(5) {
            self.stop_in_order()?;
        }
        Ok(())
    }

    /// No transaction may begin.
    fn gate_closed(&self) -> bool {
        self.stepper.as_ref().is_some_and(Stepper::gate_closed)
    }

    /// Takes the log away, or lets the log's watcher look.
    fn lose_or_look(&mut self) -> Result<(), String> {
        let lost = sim::with(|k| k.log_loss.is_some());
        if !self.rng.one_in(if lost { 3 } else { 12 }) {
            return Ok(());
        }
        if !lost && self.rng.one_in(2) {
            let loss = *self.rng.pick(&[LogLoss::Away, LogLoss::Removed, LogLoss::Overwritten]);
            sim::with(|k| k.lose_log(loss));
            self.figures.logs_lost += 1;
            (self.loss_seen, self.set_aside) = (false, false);
            self.say(|| format!("the log is lost: {loss:?}"));
            return Ok(());
        }
        for waiting in self.waiting.iter_mut().filter(|_| !self.loss_seen) {
            let ticket = waiting.receipt.ticket();
            waiting.before_loss = ticket.is_none_or(|t| matches!(t.poll_now(), Some(Ok(()))));
        }
        let contents = self.rng.one_in(2);
        let seen = match sim::with(|k| k.log_loss) {
            None => false,
            Some(loss) => contents || loss != LogLoss::Overwritten,
        };
        self.loss_seen |= seen && !sim::with(|k| k.is_down());
        let told = self.stepper.as_ref().and_then(|stepper| stepper.look(contents));
        if let Some(told) = told {
            self.say(|| format!("the watcher: {told}"));
            // Clients in the middle of a request finish it, and the writer advances.
            if !self.gate_closed() && self.rng.one_in(2) {
                self.finish_all();
            }
            for _ in 0..self.rng.below(30) {
                self.step()?;
            }
        }
        Ok(())
    }

    /// One step of the log's threads.
    fn step(&mut self) -> Result<(), String> {
        let Some(stepper) = &mut self.stepper else { return Ok(()) };
        if self.rng.one_in(if self.heedless { 200 } else { 25 }) {
            stepper.ask_checkpoint();
        }
        let step = match self.rng.below(5) {
            0 | 1 if self.heedless && self.rng.below(20) > 0 => Step::Idle,
            0 | 1 => stepper.checkpoint(),
            2 if !self.waiting.is_empty() && self.rng.one_in(3) => {
                let n = self.rng.below(self.waiting.len() as u64) as usize;
                let ticket = self.waiting[n].receipt.ticket();
                match ticket {
                    Some(ticket) => stepper.lead(ticket),
                    None => Step::Idle,
                }
            }
            _ => stepper.write(),
        };
        self.settle();
        if sim::with(|k| k.is_down()) {
            // Replies that the log allowed in this step may have been sent just before power went.
            let allowed =
                |w: &Waiting| w.receipt.ticket().is_some_and(|t| matches!(t.poll_now(), Some(Ok(()))));
            let sent: Vec<Waiting> = self.waiting.extract_if(.., |w| allowed(w)).collect();
            sent.iter().for_each(|waiting| self.is_acknowledged(waiting));
        }
        if let Step::Did(did) = step {
            self.digest(did);
            self.say(|| format!("log: {did:?}"));
            self.figures.checkpoints += u64::from(did == Did::MovedTail);
            self.figures.absorbed += u64::from(did == Did::Absorbed);
            self.set_aside |= did == Did::SetAside;
            if did == Did::LossCut {
                // In one of the next calls, more often than by chance.
                let n = 1 + self.rng.below(60);
                match self.rng.below(6) {
                    0 | 1 => sim::with(|k| k.cut_at(Some(n))),
                    2 => sim::with(|k| k.faults(vec![n])),
                    _ => {}
                }
            }
            if did == Did::Renewed {
                self.figures.renewed += 1;
                (self.loss_seen, self.set_aside) = (false, false);
            }
        }
        Ok(())
    }

    /// Notes which replies the log had allowed before anything failed.
    fn settle(&mut self) {
        if !sim::with(|k| k.flush_failed) {
            for waiting in &mut self.waiting {
                let ticket = waiting.receipt.ticket();
                waiting.settled = ticket.is_none_or(|t| matches!(t.poll_now(), Some(Ok(()))));
            }
        }
    }

    /// Sends the replies that the log allows.
    fn acknowledge(&mut self) -> Result<(), String> {
        let mut at = 0;
        while at < self.waiting.len() {
            // Some wait without having asked for the flush.
            if self.rng.one_in(3) {
                at += 1;
                continue;
            }
            let Some(result) = self.waiting[at].receipt.poll_now() else {
                at += 1;
                continue;
            };
            let done = self.waiting.remove(at);
            if sim::with(|k| k.is_down()) {
                continue;
            }
            match result {
                Ok(()) => {
                    // The reply to a request that changed nothing may still be sent if what it says is durable.
                    if sim::with(|k| k.flush_failed) && !done.settled && done.n > 0 {
                        return Err(format!(
                            "client {} request {} is acknowledged after a flush has failed: {:?}",
                            done.client,
                            done.n,
                            sim::with(|k| k.struck.clone())
                        ));
                    }
                    if self.loss_seen && !done.before_loss && done.receipt.waits() {
                        return Err(format!(
                            "client {} request {} is acknowledged though the log is lost",
                            done.client, done.n
                        ));
                    }
                    self.say(|| format!("acknowledged: client {} request {}", done.client, done.n));
                    self.is_acknowledged(&done);
                }
                Err(e) => self.say(|| format!("client {} request {}: {e}", done.client, done.n)),
            }
        }
        Ok(())
    }

    fn is_acknowledged(&mut self, waiting: &Waiting) {
        self.acked_position = self.acked_position.max(waiting.position);
        match waiting.n {
            0 => self.figures.told += 1,
            n => {
                let acked = self.acked.entry(waiting.client).or_default();
                *acked = n.max(*acked);
                self.figures.acknowledged += 1;
            }
        }
    }

    /// Notes that the current operation names this object.
    pub(super) fn name_object(&mut self, node: &Node) {
        self.names.extend(sim::with(|k| k.serial_of(&node.0.id)));
    }

    /// Notes that the current operation names this entry.
    pub(super) fn name_entry(&mut self, dir: &Node, name: &[u8]) {
        self.name_object(dir);
        let entry =
            sim::with(|k| k.peek(k.serial_of(&dir.0.id)?)?.entries.get(name).map(|entry| entry.serial));
        self.entries.extend(entry);
    }

    /// Ends an operation that began at `before`. Returns the metadata position of the last change of what it names.
    pub(super) fn told(&mut self, before: u64, done: bool) -> u64 {
        let mut names = std::mem::take(&mut self.names);
        names.append(&mut self.entries);
        let mut told = 0;
        for serial in names {
            let changed = sim::with(|k| k.logged_change(serial, before)).filter(|_| done);
            if let Some(position) = changed {
                self.changed_at.insert(serial, position);
            }
            told = told.max(self.changed_at.get(&serial).copied().unwrap_or(0));
        }
        told
    }

    /// Lets one client do something.
    fn turn(&mut self) -> Result<(), String> {
        let n = self.rng.below(self.clients.len() as u64) as usize;
        sim::with(|k| {
            let ns = k.rng.below(3_000_000);
            k.wait(ns);
        });
        if self.rng.one_in(60) {
            let ms = *self.rng.pick(&[700, 1_500, 11_000]);
            sim::with(|k| k.wait(ms * 1_000_000));
            self.volume().close_idle();
        }
        if self.rng.one_in(400) {
            let by = self.rng.below(20_000_000_000) as i64 - 10_000_000_000;
            sim::with(|k| k.set_clock(by));
            self.say(|| format!("the clock is set by {by} ns"));
        }
        if self.rng.one_in(40) {
            self.foreign();
        }
        if self.failing && self.rng.one_in(8) {
            self.fail_write_back();
        }
        let mut client = self.clients.swap_remove(n);
        let result = self.request(&mut client);
        self.clients.push(client);
        let last = self.clients.len() - 1;
        self.clients.swap(n, last);
        self.bound();
        result
    }

    fn request(&mut self, client: &mut Client) -> Result<(), String> {
        let mut tx = match client.tx.take() {
            Some(tx) => tx,
            None => {
                let admitted = self.stepper.as_ref().map(Stepper::admit);
                if !self.heedless && !matches!(admitted, Some(Ok(Pressure::Go | Pressure::Slow(_)))) {
                    return Ok(());
                }
                client.ops_left = if self.rng.one_in(3) { self.rng.below(5) } else { 0 };
                self.volume().tx()
            }
        };
        self.figures.operations += 1;
        let told = self.operate(&mut tx, client.id)?;
        client.told = client.told.max(told);
        if let Some(seq) = tx.seq() {
            self.ends.insert(seq, sim::with(|k| k.position()));
        }
        for (node, change) in std::mem::take(&mut self.saw) {
            self.seen(&node, change)?;
        }
        if client.ops_left > 0 {
            client.ops_left -= 1;
            client.tx = Some(tx);
        } else {
            self.finish(client, tx);
        }
        Ok(())
    }

    fn finish(&mut self, client: &mut Client, mut tx: Tx) {
        let told = std::mem::take(&mut client.told);
        if !tx.modified() {
            let receipt = tx.finish();
            if told > 0 && self.volume().failed().is_none() {
                self.waiting.push(Waiting {
                    receipt,
                    client: client.id,
                    n: 0,
                    position: told,
                    settled: false,
                    before_loss: false,
                });
            }
            self.bound();
            return;
        }
        client.n += 1;
        self.replies.0.lock().insert(client.id, client.n);
        let seq = tx.seq();
        let mut reply = note(client.id, client.n);
        if self.heedless {
            reply.resize(reply.len() + self.rng.below(12 << 10) as usize, 0);
        }
        tx.note(reply);
        let receipt = tx.finish();
        if self.rng.one_in(2) {
            receipt.request();
        }
        let position = sim::with(|k| k.position());
        self.say(|| format!("client {} request {} done", client.id, client.n));
        if self.volume().failed().is_some() {
            return;
        }
        self.noted.push(Noted { client: client.id, n: client.n, position, seq });
        let (client, n) = (client.id, client.n);
        self.waiting.push(Waiting { receipt, client, n, position, settled: false, before_loss: false });
        self.bound();
    }

    fn finish_all(&mut self) {
        let mut clients = std::mem::take(&mut self.clients);
        for client in &mut clients {
            if let Some(tx) = client.tx.take() {
                self.finish(client, tx);
            }
        }
        self.clients = clients;
    }

    /// Makes a file in the volume, past the server, or gives a directory a project.
    fn foreign(&mut self) {
        let n = self.rng.below(1000);
        let name = format!("stranger-{n}");
        let dirs: Vec<Serial> =
            self.dirs.iter().filter_map(|d| sim::with(|k| k.serial_of(&d.0.id))).collect();
        if dirs.is_empty() {
            return;
        }
        let dir = *self.rng.pick(&dirs);
        if self.rng.one_in(2) {
            let project = 42 + self.rng.below(2) as u32;
            if sim::with(|k| k.set_project_as_stranger(dir, project)) {
                self.say(|| format!("a stranger gives {dir} the project {project}"));
            }
        } else if let Some(made) = sim::with(|k| k.intrude(dir, name.as_bytes())) {
            self.say(|| format!("a stranger makes {name} in {dir}: object {made}"));
            self.figures.foreign += 1;
            self.strangers.insert(made);
        }
    }

    /// Makes the kernel's write-back of a file fail. Somebody else learns of it, or nobody.
    fn fail_write_back(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let node = self.rng.pick(&self.files).clone();
        let Some(serial) = sim::with(|k| k.serial_of(&node.0.id)) else { return };
        if !sim::with(|k| k.fail_write_back(serial)) {
            return;
        }
        self.figures.lost_quietly += 1;
        self.say(|| format!("data of object {serial} cannot be written back"));
        if self.rng.one_in(4) {
            self.volume().close_idle();
        }
        if self.rng.one_in(2) {
            // By then the descriptors for single accesses are closed.
            if self.rng.one_in(2) {
                sim::with(|k| k.wait(600_000_000));
                self.volume().close_idle();
            }
            self.say(|| "somebody else is told".to_owned());
            sim::with(|k| k.told_to_stranger(serial));
        }
        if self.rng.one_in(2) {
            self.say(|| "and it is read from the disk again".to_owned());
            sim::with(|k| k.drop_clean(serial));
        }
        self.suspect = Some(node);
    }

    /// Notes that a client or the server has seen the attributes of an object.
    pub(super) fn seen(&mut self, node: &Node, change: u64) -> Result<(), String> {
        let Some(serial) = sim::with(|k| k.serial_of(&node.0.id)) else { return Ok(()) };
        // Older contents do not look older.
        if sim::with(|k| k.reverted.contains(&serial)) {
            return Ok(());
        }
        // Strangers' changes become visible up to a second late.
        let digest = sim::with(|k| {
            let meta =
                k.peek(serial).filter(|m| !m.entries.values().any(|e| self.strangers.contains(&e.serial)))?;
            Some(visible(k, meta))
        });
        let Some(digest) = digest else { return Ok(()) };
        let key = (node.fh(), change);
        self.digest((serial, digest));
        match self.changes.insert(key, digest) {
            Some(before) if before != digest => Err(format!(
                "object {serial} has the change attribute {change} again, and is not what it was then"
            )),
            _ => Ok(()),
        }
    }

    fn stop_in_order(&mut self) -> Result<(), String> {
        self.finish_all();
        self.bound();
        loop {
            let Some(stepper) = &mut self.stepper else { return Ok(()) };
            match stepper.stop() {
                Step::Ended => break,
                Step::Did(_) => {}
                Step::Blocked(wait) => {
                    let a = stepper.write();
                    // What that has made durable was so even if the checkpoint's flush fails.
                    self.settle();
                    let Some(stepper) = &mut self.stepper else { return Ok(()) };
                    let b = stepper.checkpoint();
                    let stuck = |s| matches!(s, Step::Idle | Step::Blocked(_));
                    if stuck(a) && stuck(b) && wait == Wait::Gate {
                        return Err("stopping waits for a transaction that there is not".to_owned());
                    }
                }
                Step::Idle => return Err("stopping has nothing to do".to_owned()),
            }
            self.settle();
        }
        self.acknowledge()?;
        let volume = self.volume();
        let log_failed = volume.log().and_then(|(log, _)| log.failed());
        let stopped = match volume.failed().or(log_failed) {
            None => volume.assume_root().and_then(|()| volume.mark_stopped()),
            Some(_) => Err(Error::Failed),
        };
        if stopped.is_ok() {
            self.figures.clean += 1;
            self.acked_position = sim::with(|k| k.position());
            // Everything done is durable.
            for noted in &self.noted {
                self.acked.insert(noted.client, noted.n);
            }
            self.stop_process();
            self.volume = None;
        }
        Ok(())
    }

    /// Ends the process: all its state goes, and nothing is written.
    pub(super) fn stop_process(&mut self) {
        for client in &mut self.clients {
            client.tx = None;
        }
        self.waiting.clear();
        self.open.clear();
        self.suspect = None;
        (self.dirs, self.files, self.others) = (Vec::new(), Vec::new(), Vec::new());
        self.stepper = None;
        self.volume = None;
    }

    fn end_life(&mut self, clean: bool) -> Result<(), String> {
        // After a failed flush the page cache shows what is not on disk, and no process can tell.
        let killed = !clean && !sim::with(|k| k.must_reboot()) && self.rng.one_in(3);
        // What the process still does while it ends has no effect.
        if !clean {
            sim::with(|k| k.cut());
        }
        let mut past = std::mem::replace(&mut self.past, sim::with(Past::nothing));
        sim::with(|k| past.end(k));
        self.stop_process();
        self.without = sim::with(Kernel::find_log);
        let position = if killed {
            self.figures.kills += 1;
            sim::with(|k| k.restart_process());
            self.say(|| "the process is killed".to_owned());
            past.end
        } else if clean && !sim::with(|k| k.must_reboot()) && self.rng.one_in(2) {
            past.end
        } else {
            self.figures.cuts += u64::from(!clean);
            let call = sim::with(|k| k.cut_in);
            let position = sim::with(Kernel::reboot);
            self.say(|| {
                format!("power goes in {call}; metadata of position {position} of {} is left", past.end)
            });
            position
        };
        self.unclean = !clean;
        self.unbroken = killed && sim::with(|k| k.tells_mounts);
        if clean && self.rng.one_in(4) {
            self.serve_without_log()?;
        }
        let foreign = self.rng.one_in(12);
        if foreign {
            self.foreign_at_names();
        }
        self.recover(&past, position, clean)
    }

    /// Serves the volume without its log, between a clean stop and the next start.
    fn serve_without_log(&mut self) -> Result<(), String> {
        let quiet = sim::with(|k| k.hold_troubles());
        let (volume, _) = Volume::open(OpenOptions::new(sim::DIR, Durability::Sync))
            .map_err(|e| format!("opening without the log: {e}"))?;
        volume.start(Arc::new(Replies::default())).map_err(|e| format!("starting without the log: {e}"))?;
        volume.shutdown().map_err(|e| format!("stopping without the log: {e}"))?;
        drop(volume);
        sim::with(|k| k.resume_troubles(quiet));
        self.say(|| "served without the log".to_owned());
        self.acked.clear();
        self.notes_are_old = true;
        Ok(())
    }

    /// Notes that an object belongs to a stranger until the next start.
    pub(super) fn is_strangers(&mut self, serial: Serial) {
        self.strangers.insert(serial);
        self.squatters.push(serial);
    }

    /// Notes that an object has a name which clients use. If it is a stranger's, it is so until the next start.
    pub(super) fn may_be_met(&mut self, serial: Serial) {
        if self.strangers.contains(&serial) && !self.squatters.contains(&serial) {
            self.squatters.push(serial);
        }
    }

    /// Forgets a stranger's object that is gone.
    pub(super) fn forget_stranger(&mut self, serial: Serial) {
        self.strangers.remove(&serial);
        self.squatters.retain(|s| *s != serial);
    }

    /// Makes files between the power cut and the next start, some at clients' names.
    fn foreign_at_names(&mut self) {
        let dirs: Vec<Serial> = sim::with(|k| k.directories());
        for _ in 0..=self.rng.below(3) {
            let dir = *self.rng.pick(&dirs);
            let name = [b'a' + self.rng.below(6) as u8];
            if let Some(made) = sim::with(|k| k.intrude(dir, &name)) {
                self.say(|| format!("a stranger makes {:?} in {dir}: object {made}", name[0] as char));
                self.figures.foreign += 1;
                self.is_strangers(made);
            }
        }
        sim::with(Kernel::flush_as_stranger);
    }
}

/// A hash of all that a client can see of an object.
fn visible(k: &Kernel, meta: &Rc<Meta>) -> u64 {
    let mut h = std::hash::DefaultHasher::new();
    (meta.mode, meta.uid, meta.gid, meta.size, meta.mtime).hash(&mut h);
    if meta.kind == Kind::File {
        meta.nlink.hash(&mut h);
        k.contents(meta).hash(&mut h);
    }
    for (name, entry) in meta.entries.iter().filter(|(n, _)| &***n != STATE_DIR.as_bytes()) {
        (name, k.peek(entry.serial).map(|m| (m.ino, m.generation))).hash(&mut h);
    }
    for (name, value) in meta.xattrs.iter().filter(|(n, _)| !n.starts_with(b"trusted.")) {
        (name, value).hash(&mut h);
    }
    h.finish()
}
