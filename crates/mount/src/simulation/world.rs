//! What happens: programs' calls one after the other, and trouble beside them.

mod ends;
mod files;
mod look;
mod names;
mod trouble;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use landfast_nfs::v4::{FileType, NfsTime, SetTime};
use tokio::time::{sleep, timeout};

use super::choices::Choices;
use super::figures::Figures;
use super::objects::{Tag, handle, tag_of};
use super::oracle::{Body, Dir, Oid, Oracle, TOP};
use super::server::{Effect, ROOT, Server, Trouble, Who};
use super::wire::{Line, Net};
use crate::core::Ino;
use crate::core::attrs::{Attrs, Set};
use crate::errno::Errno;
use crate::fs::kernel::Kernel;
use crate::options::Options;
use crate::remote::{Remote, Wire};

const CLIENTS: usize = 3;
/// A call that takes longer waits for ever. A lease, a cut of the network and a server that is away take less together.
const PATIENCE: Duration = Duration::from_secs(150);
/// How much later than its age a change may be sent, where nothing is in the way: one whole file is waited for, then it is sent.
const SENDS: Duration = Duration::from_millis(2500);
/// How long trouble has its effect.
const TROUBLE_LASTS: Duration = Duration::from_secs(20);

const NAMES: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];

/// What a run is like.
#[derive(Debug, Clone, Copy)]
struct Kind {
    steps: u64,
    /// So many names are used.
    names: usize,
    /// In so many percent of its calls a program is in its client's own place.
    home: u64,
    /// There are no more directories than that.
    dirs: usize,
    hold: bool,
    flush_age: Duration,
    lease: Duration,
    /// In a thousand steps.
    cuts: u64,
    cuts_without_log: u64,
    partitions: u64,
    deaths: u64,
}

/// A machine with a mount.
struct Machine {
    kernel: Kernel,
    line: Line,
    dead: bool,
    /// It is back then.
    back: Duration,
    /// Errors that its programs were told, or `sync`.
    told: u64,
    /// Others have removed a file that its programs have open: its data may be lost.
    excused: bool,
}

/// A file that a program has open.
#[derive(Debug, Clone)]
struct Opened {
    who: Who,
    fh: u64,
    oid: Oid,
    dir: Oid,
    /// It was made where others do not see it before it is closed.
    held: bool,
    /// So many creations of its client had an unknown outcome then.
    unknown_files: u64,
    /// Nobody has removed it.
    sure: bool,
}

struct World {
    net: Arc<Net>,
    c: Choices,
    o: Oracle,
    machines: Vec<Machine>,
    files: Vec<Opened>,
    kind: Kind,
    /// Trouble has its effect until then.
    trouble: Duration,
    /// A delegation was taken away, a client has died, or it is not known whether a call was executed: clients may have seen two different
    /// file systems.
    unsure: bool,
    /// Files whose close succeeded: who, what.
    closed: Vec<(Who, Oid)>,
    figures: Figures,
    /// Objects that the kernels refer to.
    refs: Vec<(Who, Ino)>,
}

/// What a program finds under a name.
struct Seen {
    ino: Ino,
    attrs: Attrs,
}

/// Runs to the end. The error is what was seen, with the history if there is one.
pub(super) fn run(seed: u64, with_history: bool) -> Result<Figures, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|e| e.to_string())?;
    let done = runtime.block_on(async move {
        let mut world = World::new(seed, with_history).await;
        world.go().await;
        world.figures.requests = world.net.requests.load(Ordering::Relaxed);
        world.figures.recalls = world.net.recalls.load(Ordering::Relaxed);
        world.figures.checks = world.o.checks;
        world.figures.torn = world.o.tears;
        let history = world.net.history.lock().take();
        // They refer to the network, as it does to them.
        world.net.lines.lock().clear();
        match world.o.fault.take() {
            None => Ok(world.figures),
            Some(fault) => {
                let history = history.map(|lines| lines.join("\n")).unwrap_or_default();
                Err(format!("{fault}\n{:?}\n{history}", world.kind))
            }
        }
    });
    // What waits for a dead client waits for ever.
    runtime.shutdown_background();
    done
}

fn name_of(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

impl World {
    async fn new(seed: u64, with_history: bool) -> World {
        let mut c = Choices::new(seed);
        let rough = c.percent(50);
        let some = |c: &mut Choices, of: &[u64]| c.pick(of).unwrap_or_default();
        let trouble = Trouble {
            busy: some(&mut c, &[0, 0, 2, 10]),
            full: if rough { some(&mut c, &[0, 0, 0, 20]) } else { 0 },
            stable: 50,
            refused: some(&mut c, &[0, 0, 20]),
        };
        // All are in few places, and in each other's way.
        let narrow = c.percent(30);
        let kind = Kind {
            steps: 20 + c.below(60),
            names: if narrow { 2 } else { NAMES.len() },
            home: if narrow { 40 } else { 75 },
            dirs: if narrow { 7 } else { 15 },
            hold: c.percent(30),
            flush_age: Duration::from_millis(some(&mut c, &[0, 50, 1000, 1000])),
            lease: Duration::from_secs(4),
            cuts: some(&mut c, &[0, 0, 15]),
            cuts_without_log: if rough { some(&mut c, &[0, 0, 15]) } else { 0 },
            partitions: if rough { some(&mut c, &[0, 0, 30]) } else { 0 },
            deaths: if c.percent(40) { 15 } else { 0 },
        };
        let mut server = Server::new(CLIENTS, kind.lease, trouble);
        let mut o = Oracle::new();
        for (n, name) in [b"x", b"y", b"z"].into_iter().enumerate() {
            let tag = o.tag();
            let oid = o.add(Body::Dir(Dir::default()), (tag, 0o700 | u32::from(tag)), n);
            o.name(TOP, &name_of(name), oid, (n, Duration::ZERO));
            server.old_dir(&name_of(name), 0o700 | u32::from(tag));
        }
        let effects = std::mem::take(&mut server.effects);
        o.take(effects, false);
        let network = (some(&mut c, &[0, 3, 20, 60]), some(&mut c, &[0, 0, 10, 40]));
        let net = Arc::new(Net::new(server, Choices::new(c.below(u64::MAX)), network, with_history));
        let mut world = World {
            net,
            c,
            o,
            machines: Vec::new(),
            files: Vec::new(),
            kind,
            trouble: Duration::ZERO,
            unsure: false,
            closed: Vec::new(),
            figures: Figures { seeds: 1, ..Figures::default() },
            refs: Vec::new(),
        };
        for who in 0..CLIENTS {
            let machine = world.mount(who).await;
            world.machines.push(machine);
        }
        world
    }

    async fn mount(&mut self, who: Who) -> Machine {
        let line = Line::new(self.net.clone(), who);
        {
            let mut lines = self.net.lines.lock();
            match lines.get_mut(who) {
                Some(old) => *old = line.clone(),
                None => lines.push(line.clone()),
            }
        }
        let remote = Remote::over(Wire::Model(line.clone()), None);
        let values = self.net.server.lock().objects.get(&ROOT).map(|root| root.values(ROOT));
        let attrs = remote.attrs_of(&values.unwrap_or_default());
        let options = Options {
            memory: Duration::ZERO,
            dir_memory: Duration::ZERO,
            hold: if self.kind.hold { Duration::from_secs(1) } else { Duration::ZERO },
            local: true,
            flush_age: self.kind.flush_age,
            ..Options::default()
        };
        let attrs = attrs.unwrap_or_else(|| unreachable!("the top has attributes"));
        let kernel = Kernel::mount(remote, options, (handle(ROOT), attrs), who as u64).await;
        Machine { kernel, line, dead: false, back: Duration::ZERO, told: 0, excused: false }
    }

    fn tells(&self, line: impl FnOnce() -> String) {
        self.net.tells(line);
    }

    fn now(&self) -> Duration {
        self.net.now()
    }

    async fn go(&mut self) {
        for step in 0..self.kind.steps {
            self.step().await;
            self.take(false);
            if self.o.fault.is_some() {
                return;
            }
            self.check_age();
            if step + 1 == self.kind.steps || self.c.below(60) == 0 {
                self.quiesce().await;
            }
            if self.o.fault.is_some() {
                return;
            }
        }
    }

    /// Has the oracle see what has happened at the server.
    fn take(&mut self, lenient: bool) {
        self.take_tears();
        let dead: Vec<bool> = self.machines.iter().map(|m| m.dead).collect();
        let mut server = self.net.server.lock();
        let effects = std::mem::take(&mut server.effects);
        if effects.iter().any(|e| matches!(e, Effect::Refused { .. } | Effect::Revoked { .. })) {
            self.trouble = self.net.now() + TROUBLE_LASTS;
        }
        // All that a client needs to return a delegation in time is there.
        let calm = self.kind.cuts + self.kind.cuts_without_log + self.kind.partitions + self.net.lost == 0;
        let revoked = effects.iter().find_map(|e| match e {
            Effect::Revoked { who, dir } if !dead[*who] => Some((*who, *dir)),
            _ => None,
        });
        if let (true, Some((who, dir))) = (calm, revoked) {
            self.o.fails(format!("client {who} has not returned the delegation of {dir} in time"));
        }
        self.o.unseen = self.files.iter().filter(|f| f.held).map(|f| (f.who, f.dir)).collect();
        self.o.take(effects, lenient);
    }

    /// Of which directories nothing is certain since then.
    fn take_tears(&mut self) {
        let server = self.net.server.lock();
        self.unsure |= server.effects.iter().any(|effect| matches!(effect, Effect::Revoked { .. }));
        // A file that is made behind the program's back gets EEXIST if its reply is lost and the server has nothing of its data.
        for file in self.files.iter().filter(|f| f.held) {
            if self.machines[file.who].line.unknown_files() != file.unknown_files {
                self.o.tear(file.dir);
                self.unsure = true;
            }
        }
        for effect in &server.effects {
            match effect {
                Effect::Refused { who, id } => {
                    self.o.tear_all_of(*who, &server);
                    server.dirs_of(*id).into_iter().for_each(|dir| self.o.tear_id(dir));
                    // It may be data of a file that is open.
                    self.files.iter().filter(|f| f.who == *who).for_each(|f| self.o.tear(f.dir));
                }
                Effect::Revoked { who, dir } if !self.machines[*who].dead => self.o.tear_id(*dir),
                _ => {}
            }
        }
    }

    async fn step(&mut self) {
        self.figures.steps += 1;
        let roll = self.c.below(1000);
        let k = self.kind;
        let mut limit = k.cuts;
        if roll < limit {
            return self.cut(true);
        }
        limit += k.cuts_without_log;
        if roll < limit {
            return self.cut(false);
        }
        limit += k.partitions;
        if roll < limit {
            return self.partition();
        }
        limit += k.deaths;
        if roll < limit {
            return self.die();
        }
        self.revive().await;
        let living: Vec<Who> = (0..CLIENTS).filter(|who| !self.machines[*who].dead).collect();
        match self.c.below(100) {
            0..12 => {
                let ms = self.c.pick(&[1, 10, 100, 300, 1500, 4000]).unwrap_or(1);
                sleep(Duration::from_millis(ms)).await;
            }
            12..15 => {
                // Long enough for a directory to be given again.
                sleep(Duration::from_secs(11)).await;
            }
            _ => {
                let Some(who) = self.c.pick(&living) else {
                    sleep(Duration::from_secs(1)).await;
                    return;
                };
                self.call(who).await;
                if self.c.percent(20) {
                    self.forget();
                }
            }
        }
    }

    /// The kernels forget what they refer to.
    fn forget(&mut self) {
        for (who, ino) in self.refs.drain(..) {
            self.machines[who].kernel.forget(ino);
        }
    }

    /// Does something for a program.
    async fn run<T>(&mut self, what: &str, work: impl Future<Output = T>) -> Option<T> {
        match timeout(PATIENCE, work).await {
            Ok(done) => Some(done),
            Err(_) => {
                self.o.fails(format!("{what} waits for ever"));
                None
            }
        }
    }

    /// Whether a call did what a local file system does. `dirs`: where. Returns whether it has succeeded.
    fn judge<T>(
        &mut self,
        (who, unknown): (Who, u64),
        what: &str,
        dirs: &[Oid],
        (done, expected): (&Result<T, Errno>, Result<(), i32>),
    ) -> bool {
        self.tells(|| format!("client {who}: {what}: {:?}", done.as_ref().map(|_| ())));
        self.figures.calls += 1;
        self.take_tears();
        self.o.checks += 1;
        let told = done.as_ref().map(|_| ()).map_err(|e| e.0);
        if done.is_err() && told != expected {
            self.machines[who].told += 1;
        }
        if told == expected || dirs.iter().any(|dir| self.o.is_torn(*dir)) {
            return done.is_ok();
        }
        let refused = {
            let server = self.net.server.lock();
            let ours = |e: &Effect| match e {
                Effect::Refused { who: w, .. } | Effect::Revoked { who: w, .. } => *w == who,
                _ => false,
            };
            server.effects.iter().any(ours)
        };
        if refused || self.machines[who].line.unknown() != unknown {
            dirs.iter().for_each(|dir| self.o.tear(*dir));
            self.unsure |= self.machines[who].line.unknown() != unknown;
        } else {
            self.o.fails(format!("client {who}: {what}: {told:?} instead of {expected:?}"));
        }
        done.is_ok()
    }

    fn unknown(&self, who: Who) -> (Who, u64) {
        (who, self.machines[who].line.unknown())
    }

    fn name(&mut self) -> Bytes {
        let name = self.c.pick(&NAMES[..self.kind.names]).unwrap_or(b"a");
        name_of(name)
    }

    async fn call(&mut self, who: Who) {
        if self.c.below(100) < 25 && self.call_open(who).await {
            return;
        }
        let dirs = self.o.dirs();
        // Each has a favourite place.
        let home: Vec<Oid> = {
            let top = self.o.named(TOP, &name_of([b"x", b"y", b"z"][who]));
            dirs.iter().copied().filter(|dir| top.is_some_and(|top| self.o.is_below(*dir, top))).collect()
        };
        let dir = match self.c.percent(self.kind.home) {
            true => self.c.pick(&home).or(self.c.pick(&dirs)),
            false => self.c.pick(&dirs),
        };
        let Some(dir) = dir else { return };
        // Others see a new file when it is closed; what they do until then is theirs to lose.
        if self.files.iter().any(|f| f.held && f.who != who && f.dir == dir) {
            return;
        }
        let Some(ino) = self.walk(who, dir).await else { return };
        let at = (dir, ino);
        match self.c.below(100) {
            0..26 => self.create(who, at).await,
            26..36 => self.mkdir(who, at).await,
            36..39 => self.symlink(who, at).await,
            39..50 => self.unlink(who, at).await,
            50..54 => self.rmdir(who, at).await,
            54..66 => self.rename(who, at).await,
            66..70 => self.rename_across(who, at).await,
            70..75 => self.set(who, at).await,
            75..82 => self.read(who, at).await,
            82..88 => self.list(who, at).await,
            88..93 => self.fsync_dir(who, at).await,
            93..95 => self.sync(who).await,
            _ => {
                let name = self.name();
                let _ = self.see(who, at, &name).await;
            }
        }
    }
}
