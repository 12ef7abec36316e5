//! The loop of a pair of clients: prepare, note the race in the journal, run it, note both replies.
//!
//! Each pair has two connections and is two clients to the server. When the first sends its operation, the second waits a
//! little and sends its own: the server has then probably executed the first and not yet answered it. The judge does not
//! depend on which of the two the server executed first.

use crate::blocking::connect;
use crate::blocking::nfs::{Created, Creation, Fh, Nfs, SetAttr, patiently};
use crate::error::{Error, Meaning, Result};
use crate::journal::{Header, Record};
use crate::limits::{GAPS, ROUNDS_MAX, WRITE_PATIENCE};
use crate::model::Model;
use crate::op::{Reply, hex, unhex};
use crate::plan::Abilities;
use crate::rng::Rng;
use crate::rounds::{
    Answer, BYTES, Bytes, MODE, MODE_MADE, Name, Prepared, Race, RaceOp, SIZE, XATTR_NEW, XATTR_OLD, bytes,
    verifier,
};
use crate::write::Run;
use parking_lot::Mutex;
use std::sync::mpsc;
use std::time::Duration;

/// One round, as both clients need it.
#[derive(Debug, Clone)]
struct RoundPlan {
    pair: u32,
    no: u32,
    meeting: Race,
    tag: u64,
    dir: Fh,
    x: Option<Fh>,
    d: Option<Fh>,
    /// How long the second waits.
    gap: Duration,
}

impl RoundPlan {
    fn name(&self, name: Name) -> String {
        name.text(self.no)
    }
}

/// A handle that the preparation got.
fn handle_of(fh: Option<&Fh>) -> Result<&Fh> {
    fh.ok_or_else(|| Error::Nonsense("an object without a handle".into()))
}

/// Sends the operation of one of the two.
fn send_op(nfs: &mut dyn Nfs, order: &RoundPlan, second: bool) -> Result<Reply> {
    let race_op = if second { order.meeting.second } else { order.meeting.first };
    let (dir, x, y) = (&order.dir, &order.name(Name::X), &order.name(Name::Y));
    // What a LOOKUP after the reply finds may be the other client's.
    let told = |m: Created| Reply { fileid: (!m.looked_up).then_some(m.fileid), ..Reply::default() };
    let mut create =
        |dir: &Fh, name: &str, how| patiently(|| nfs.create(dir, name, MODE_MADE, how)).map(told);
    let nothing = |()| Reply::default();
    match race_op {
        RaceOp::Create => create(dir, y, Creation::Guarded),
        RaceOp::CreateUnchecked => create(dir, y, Creation::Unchecked),
        RaceOp::CreateExclusive => create(dir, y, Creation::Exclusive(verifier(order.tag))),
        RaceOp::Truncate => create(dir, x, Creation::Truncated),
        RaceOp::Fill => create(handle_of(order.d.as_ref())?, &order.name(Name::Inner), Creation::Guarded),
        RaceOp::Mkdir => patiently(|| nfs.mkdir(dir, y, MODE_MADE)).map(told),
        RaceOp::Symlink => patiently(|| nfs.symlink(dir, y, "somewhere")).map(told),
        RaceOp::Remove => patiently(|| nfs.remove(dir, x, false)).map(nothing),
        RaceOp::Rmdir => patiently(|| nfs.remove(dir, &order.name(Name::D), true)).map(nothing),
        RaceOp::Rename => patiently(|| nfs.rename(dir, x, dir, y)).map(nothing),
        RaceOp::RenameOver => patiently(|| nfs.rename(dir, &order.name(Name::Z), dir, x)).map(nothing),
        RaceOp::RenameSelf => patiently(|| nfs.rename(dir, y, dir, y)).map(nothing),
        RaceOp::Link => {
            let x = handle_of(order.x.as_ref())?;
            patiently(|| nfs.link(x, dir, y)).map(nothing)
        }
        RaceOp::Write | RaceOp::WriteFound => {
            let which = if second { Bytes::Second } else { Bytes::First };
            let fh = match race_op {
                RaceOp::Write => handle_of(order.x.as_ref())?.clone(),
                _ => patiently(|| nfs.lookup(dir, y))?.0,
            };
            let done = patiently(|| nfs.write(&fh, 0, bytes(order.tag, which), true))?;
            let verf = Some(hex(&done.verf));
            Ok(Reply { verf, count: Some(done.count), stable: done.stable, ..Reply::default() })
        }
        RaceOp::Commit => {
            let x = handle_of(order.x.as_ref())?;
            let verf = patiently(|| nfs.commit(x))?;
            Ok(Reply { verf: Some(hex(&verf)), ..Reply::default() })
        }
        RaceOp::SetMode => set(nfs, order, SetAttr::Mode(MODE)),
        RaceOp::SetSize => set(nfs, order, SetAttr::Size(SIZE)),
        RaceOp::Allocate => {
            let x = handle_of(order.x.as_ref())?;
            patiently(|| nfs.allocate(x, 2 * BYTES as u64)).map(nothing)
        }
        RaceOp::NewXattr => {
            let x = handle_of(order.x.as_ref())?;
            patiently(|| nfs.new_xattr(x, XATTR_NEW, b"value".to_vec())).map(nothing)
        }
        RaceOp::RemoveXattr => {
            let x = handle_of(order.x.as_ref())?;
            patiently(|| nfs.set_xattr(x, XATTR_OLD, None)).map(nothing)
        }
    }
}

fn set(nfs: &mut dyn Nfs, order: &RoundPlan, what: SetAttr) -> Result<Reply> {
    let x = handle_of(order.x.as_ref())?;
    patiently(|| nfs.set(x, what)).map(|()| Reply::default())
}

/// The answer in an outcome; an error if there was no reply.
fn answer(outcome: Result<Reply>) -> Result<Answer> {
    match outcome {
        Ok(reply) => Ok(Answer::Done(reply)),
        Err(e) => Ok(match (e.meaning(), &e) {
            (Some(Meaning::Exists), _) => Answer::Exists,
            (Some(Meaning::NoEntry), _) => Answer::NoEntry,
            (Some(Meaning::NotEmpty), _) => Answer::NotEmpty,
            (Some(Meaning::Stale), _) => Answer::Stale,
            (_, Error::Refused { status, .. }) => Answer::Other(status.clone()),
            _ => return Err(e),
        }),
    }
}

/// Makes what the two operations need; all of it is acknowledged before they begin.
fn prepare(nfs: &mut dyn Nfs, order: &mut RoundPlan) -> Result<Prepared> {
    let (meeting, tag, dir) = (order.meeting, order.tag, order.dir.clone());
    let mut before = Prepared::default();
    let file = |nfs: &mut dyn Nfs, name: String, which| -> Result<(Fh, u64)> {
        let made = patiently(|| nfs.create(&dir, &name, MODE_MADE, Creation::Guarded))?;
        let data = bytes(tag, which);
        let written = patiently(|| nfs.write(&made.fh, 0, data.clone(), true))?;
        if !written.stable || written.count as usize != data.len() {
            patiently(|| nfs.commit(&made.fh))?;
        }
        Ok((made.fh, made.fileid))
    };
    if meeting.uses(Name::X) {
        let (fh, fileid) = file(nfs, order.name(Name::X), Bytes::X)?;
        before.x = Some(fileid);
        if meeting.has(RaceOp::RemoveXattr) {
            patiently(|| nfs.set_xattr(&fh, XATTR_OLD, Some(b"value".to_vec())))?;
            before.xattr = true;
        }
        if meeting.has(RaceOp::Commit) {
            let written = patiently(|| nfs.write(&fh, 0, bytes(tag, Bytes::Unstable), false))?;
            before.verf = Some(hex(&written.verf));
        }
        order.x = Some(fh);
    }
    if meeting.uses(Name::Z) {
        before.z = Some(file(nfs, order.name(Name::Z), Bytes::Z)?.1);
    }
    if meeting.uses(Name::D) {
        let made = patiently(|| nfs.mkdir(&dir, &order.name(Name::D), 0o755))?;
        before.d = Some(made.fileid);
        order.d = Some(made.fh);
    }
    Ok(before)
}

/// Deals races out: all of them once in a random order, then again.
struct Dealer {
    all: Vec<Race>,
    left: Vec<Race>,
    rng: Rng,
}

impl Dealer {
    fn new(wanted: &[Race], seed: u64, minor_42: bool, abilities: Abilities) -> Dealer {
        let able =
            |race_op: RaceOp| (minor_42 || !race_op.of_42()) && (abilities.xattrs || !race_op.of_xattrs());
        let all = Race::all()
            .filter(|m| wanted.is_empty() || wanted.contains(m))
            .filter(|m| able(m.first) && able(m.second))
            .collect();
        Dealer { all, left: Vec::new(), rng: Rng::new(seed) }
    }

    fn next(&mut self) -> Option<Race> {
        if self.left.is_empty() {
            self.left.clone_from(&self.all);
        }
        let n = self.rng.modulo(self.left.len() as u64) as usize;
        (n < self.left.len()).then(|| self.left.swap_remove(n))
    }
}

impl Run<'_> {
    /// Runs a pair until the work is done, the server is gone or somebody interrupts.
    pub(crate) fn pair(&self, base: &Fh, model: &Model, header: &Header, pair: u32, abilities: Abilities) {
        if let Err(e) = self.run_pair(base, model, header, pair, abilities) {
            self.end(e);
        }
    }

    fn run_pair(
        &self,
        base: &Fh,
        model: &Model,
        header: &Header,
        pair: u32,
        abilities: Abilities,
    ) -> Result<()> {
        let mut a = connect(self.target, WRITE_PATIENCE)?;
        let mut b = connect(self.target, WRITE_PATIENCE)?;
        let top = match model.find(&header.top()).and_then(|id| model.object(id)) {
            Some(object) => object.fh.as_deref().and_then(unhex),
            None => Some(base.clone()),
        };
        let top = handle_of(top.as_ref())?.clone();
        let dir = patiently(|| a.mkdir(&top, &header.pair_name(pair), 0o755))?.fh;
        // In version 4.0 the first OPEN of an owner needs an OPEN_CONFIRM; that must not happen during a race.
        patiently(|| b.create(&dir, "warm", MODE_MADE, Creation::Guarded))?;
        let seed = Rng::new(header.seed ^ (u64::from(pair) << 32) ^ 0x5041_4952).next_u64();
        let mut dealer = Dealer::new(&self.options.meetings, seed, header.nfs == "4.2", abilities);
        let (orders, ordered) = mpsc::channel::<RoundPlan>();
        let (done, second_done) = mpsc::channel::<Result<()>>();
        // Which of the two have been answered in this round.
        let answered = Mutex::new([false; 2]);
        let told = |order: &RoundPlan, second: bool, outcome: Result<Reply>| -> Result<()> {
            let answer = answer(outcome)?;
            self.journal.append(&Record::Told { pair: order.pair, round: order.no, second, answer });
            self.count_told();
            let mut answered = answered.lock();
            answered[usize::from(second)] = true;
            match (second, *answered) {
                (true, [false, true]) => self.alone(true),
                (false, [true, true]) => self.alone(false),
                _ => {}
            }
            Ok(())
        };
        let told = &told;
        std::thread::scope(|s| {
            s.spawn(move || {
                while let Ok(order) = ordered.recv() {
                    // There is no event for "the server has executed it and not answered".
                    std::thread::sleep(order.gap);
                    let outcome = send_op(b.as_mut(), &order, true);
                    if done.send(told(&order, true, outcome)).is_err() {
                        break;
                    }
                }
                b.leave();
            });
            let mut rounds = || -> Result<()> {
                for no in 0..ROUNDS_MAX {
                    if !self.goes_on() || !self.takes(2) {
                        return Ok(());
                    }
                    let Some(meeting) = dealer.next() else { return Ok(()) };
                    let gap = dealer.rng.pick(&GAPS).copied().unwrap_or_default();
                    let tag = dealer.rng.next_u64();
                    let dir = dir.clone();
                    let mut order = RoundPlan { pair, no, meeting, tag, dir, x: None, d: None, gap };
                    let before = prepare(a.as_mut(), &mut order)?;
                    let line = self.journal.append(&Record::Meet { pair, round: no, meeting, tag, before });
                    self.journal.sync(line)?;
                    *answered.lock() = [false; 2];
                    if orders.send(order.clone()).is_err() {
                        return Ok(());
                    }
                    let outcome = send_op(a.as_mut(), &order, false);
                    let first = told(&order, false, outcome);
                    let second = second_done.recv().unwrap_or(Ok(()));
                    first.and(second)?;
                }
                Ok(())
            };
            let outcome = rounds();
            // The second thread ends when the channel closes.
            drop(orders);
            outcome
        })?;
        a.leave();
        Ok(())
    }
}
