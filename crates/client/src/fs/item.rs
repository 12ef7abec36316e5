//! One item of a vectored call on its way: from a path to an outcome, segment by segment. No I/O.
//!
//! A segment is what one COMPOUND holds for the item: a place to go to, and operations there. The first one usually
//! is the whole item, at any depth. What makes it several:
//!
//! | on the way | next segment |
//! |---|---|
//! | more names than a COMPOUND takes | goes as far as it can, GETFH; then on from there |
//! | a name is a symbolic link (SYMLINK, or NOTDIR at the next name) | READLINK; then the path with its text in it |
//! | a remembered directory is gone | the same again from the top, once |
//! | the action has more to do | what it says |

use std::time::{Duration, Instant};

use landfast_nfs::v4::{ArgOp, FileHandle, NfsStat, OpNum};

use super::action::{Action, AfterLostReply, Answer, Budget, Wants};
use super::dirs::Dirs;
use super::outcome::{Failure, Outcome};
use super::path::{Base, Place, Step, steps};
use crate::compound::{OpError, Results};
use crate::cost::FIRST_PAGE;
use crate::limits::SYMLINKS_MAX;

/// The most operations that an action has at the end of its path, with the LOOKUP of the last name.
const OWN_OPS: usize = 8;

/// Operations that a source needs besides its names, with the one that keeps it.
const SOURCE_OPS: usize = 3;

/// An item's part of one COMPOUND.
#[derive(Debug)]
pub(super) struct Segment {
    /// The source of a RENAME or LINK: the server goes there first and keeps the filehandle with SAVEFH.
    pub(super) source: Option<Place>,
    /// Where the operations are executed.
    pub(super) place: Place,
    /// The path of `place` in steps from the top. A directory that is found there is remembered under it.
    pub(super) known_as: Option<Vec<Step>>,
    pub(super) ops: Vec<ArgOp>,
    /// An upper bound of the bytes of the results.
    pub(super) reply: usize,
    /// After the segment the current filehandle is still that of `place`.
    pub(super) stays: bool,
    /// Whether it changes something on the server.
    pub(super) changes: bool,
    /// Bytes that the server copies for it.
    pub(super) moves: u64,
}

/// The place that could not be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathOf {
    Source,
    Place,
}

#[derive(Debug)]
pub(super) enum Next<T> {
    /// Another segment follows.
    Again,
    End(Outcome<T>),
}

/// A path and how far it was walked.
#[derive(Debug)]
struct Route {
    /// All steps from the top. A symbolic link was replaced by its target.
    steps: Vec<Step>,
    /// How many steps this item has walked, and the handle found there.
    walked: Option<(usize, FileHandle)>,
    /// The last segment started at a remembered directory.
    remembered: bool,
    /// The walk ends at the parent: the action uses the last name itself.
    parent_only: bool,
    follow: bool,
}

impl Route {
    fn new(path: &[u8], wants: Wants) -> Route {
        Route {
            steps: steps(path),
            walked: None,
            remembered: false,
            parent_only: wants == Wants::Parent,
            follow: wants == Wants::Object { follow: true },
        }
    }

    /// How many steps lead to the place where the last name is looked up.
    fn parent_len(&self) -> usize {
        self.steps.len().saturating_sub(1)
    }

    /// How many steps lead to the object that SAVEFH keeps.
    fn source_len(&self) -> usize {
        if self.parent_only { self.parent_len() } else { self.steps.len() }
    }

    /// Returns where the walk begins and how many steps that stands for. The place lies `until` steps from the top.
    fn begin(&mut self, until: usize, dirs: &Dirs, now: Instant) -> (usize, Base) {
        let walked = self.walked.as_ref().filter(|(n, _)| *n <= until);
        let walked_len = walked.map_or(0, |(n, _)| *n);
        if let Some((n, fh)) = dirs.nearest(&self.steps, until, now).filter(|(n, _)| *n > walked_len) {
            self.remembered = true;
            return (n, Base::Handle(fh));
        }
        self.remembered = false;
        match walked {
            Some((n, fh)) => (*n, Base::Handle(fh.clone())),
            None => (0, Base::Top),
        }
    }

    /// Replaces a symbolic link by its target.
    fn splice(&mut self, at: usize, text: &[u8]) {
        let from = if text.first() == Some(&b'/') { 0 } else { at };
        self.steps.splice(from..=at, steps(text));
        self.walked = self.walked.take().filter(|(n, _)| *n <= from);
    }
}

#[derive(Debug)]
enum ItemStep {
    /// The action at the end of the path.
    Act,
    /// The action on an object whose handle an earlier segment found.
    ActAt(FileHandle),
    /// A walk of so many steps, to remember where they lead.
    Walk(PathOf, usize),
    /// Step `at` may be a symbolic link; `why` is the error that suggested it.
    ReadLink { way: PathOf, at: usize, why: OpError },
}

#[derive(Debug)]
pub(super) struct Item<A> {
    pub(super) action: A,
    route: Route,
    source: Option<Route>,
    doing: ItemStep,
    links: usize,
    restarted: bool,
    /// An object on the path has no handle (NFSv3: above an export), so none is asked for.
    nameless: bool,
    /// Whether the last segment changed something.
    changed: bool,
    /// Whether a segment that changes something was ever made.
    begun: bool,
    /// How long the item was delayed because the server was not ready or a reply was lost.
    pub(super) put_off: Duration,
    /// The item is done in the same COMPOUND as the items of these numbers and after them, or not at all.
    pub(super) behind: Vec<usize>,
    /// When it is sent, if it waits with others of a walk.
    pub(super) turn: Box<[u32]>,
}

impl<A: Action> Item<A> {
    pub(super) fn new(path: &[u8], action: A) -> Item<A> {
        let route = Route::new(path, action.wants());
        Item {
            action,
            route,
            source: None,
            doing: ItemStep::Act,
            links: 0,
            restarted: false,
            nameless: false,
            changed: false,
            begun: false,
            put_off: Duration::ZERO,
            behind: Vec::new(),
            turn: Box::default(),
        }
    }

    pub(super) fn at(fh: FileHandle, action: A) -> Item<A> {
        let mut item = Item::new(b"", action);
        item.doing = ItemStep::ActAt(fh);
        item
    }

    /// The same at another turn.
    pub(super) fn in_turn(mut self, turn: Box<[u32]>) -> Item<A> {
        self.turn = turn;
        self
    }

    /// Adds a source that becomes the saved filehandle.
    pub(super) fn with_source(mut self, path: &[u8], wants: Wants) -> Item<A> {
        self.source = Some(Route::new(path, wants));
        self
    }

    /// Adds a source whose handle is known.
    pub(super) fn with_source_at(mut self, fh: FileHandle) -> Item<A> {
        let route = Route::new(b"", Wants::Object { follow: false });
        self.source = Some(Route { walked: Some((0, fh)), ..route });
        self
    }

    /// The current steps of the path and of the source's path.
    pub(super) fn paths(&self) -> impl Iterator<Item = &[Step]> {
        [Some(&self.route), self.source.as_ref()].into_iter().flatten().map(|route| &route.steps[..])
    }

    pub(super) fn changes(&self) -> bool {
        matches!(self.doing, ItemStep::Act | ItemStep::ActAt(_)) && self.action.changes()
    }

    /// Whether something may have been changed on the server.
    pub(super) fn begun(&self) -> bool {
        self.begun
    }

    /// Returns the next segment, or the end if there can be none.
    pub(super) fn segment(&mut self, dirs: &Dirs, room: &Budget, now: Instant) -> Result<Segment, Failure> {
        match &self.doing {
            ItemStep::ActAt(fh) => {
                let place = Place { base: Base::Handle(fh.clone()), steps: Vec::new() };
                Ok(self.act(None, place, None, None, room))
            }
            ItemStep::Walk(way, len) => {
                let (way, len) = (*way, *len);
                let (begin, base) = self.of(way).begin(len, dirs, now);
                let steps = self.of(way).steps[begin..len].to_vec();
                let place = Place { base, steps };
                Ok(look(place, vec![ArgOp::Getfh]))
            }
            ItemStep::ReadLink { way, at, .. } => {
                let (way, at) = (*way, *at);
                let (begin, base) = self.of(way).begin(at, dirs, now);
                let steps = self.of(way).steps[begin..=at].to_vec();
                Ok(look(Place { base, steps }, vec![ArgOp::Readlink]))
            }
            ItemStep::Act => self.whole(dirs, room, now),
        }
    }

    /// Both places and the action in one segment, or a walk if one COMPOUND cannot hold that.
    fn whole(&mut self, dirs: &Dirs, room: &Budget, now: Instant) -> Result<Segment, Failure> {
        // Names get the room that the action does not need.
        let mut spare = room.ops.saturating_sub(OWN_OPS).max(room.ops / 2).max(1);
        let mut source = None;
        if let Some(route) = &mut self.source {
            let until = route.source_len();
            if route.steps.is_empty() && route.walked.is_none() {
                return Err(Failure::Root);
            }
            let (begin, base) = route.begin(until, dirs, now);
            let most = (spare / 2).max(1);
            if until - begin > most {
                self.doing = ItemStep::Walk(PathOf::Source, begin + most);
                return self.segment(dirs, room, now);
            }
            source = Some(Place { base, steps: route.steps[begin..until].to_vec() });
            spare = spare.saturating_sub(until - begin + SOURCE_OPS).max(1);
        }
        let until = self.route.parent_len();
        let (begin, base) = self.route.begin(until, dirs, now);
        let near = match room.packs_data {
            true => usize::MAX,
            false => near(&self.route.steps[begin..until]),
        };
        if until - begin > near {
            self.doing = ItemStep::Walk(PathOf::Place, begin + near);
            return self.segment(dirs, room, now);
        }
        if until - begin > spare {
            self.doing = ItemStep::Walk(PathOf::Place, begin + spare);
            return self.segment(dirs, room, now);
        }
        let place = Place { base, steps: self.route.steps[begin..until].to_vec() };
        let known_as =
            (!place.steps.is_empty() && !self.nameless).then(|| self.route.steps[..until].to_vec());
        let name = match (self.route.steps.last().cloned(), self.route.parent_only) {
            (None | Some(Step::Up), true) => return Err(Failure::Root),
            (name, _) => name,
        };
        Ok(self.act(source, place, known_as, name, room))
    }

    fn act(
        &mut self,
        source: Option<Place>,
        place: Place,
        known_as: Option<Vec<Step>>,
        name: Option<Step>,
        room: &Budget,
    ) -> Segment {
        let mut ops = Vec::new();
        let mut stays = self.action.stays();
        let mut given = None;
        match (name, self.route.parent_only) {
            (Some(Step::Name(name)), true) => given = Some(name),
            (Some(Step::Name(name)), false) => {
                ops.push(ArgOp::Lookup(name));
                stays = false;
            }
            (Some(Step::Up), _) => {
                ops.push(ArgOp::Lookupp);
                stays = false;
            }
            (None, _) => {}
        }
        self.action.ops(given.as_ref(), room, &mut ops);
        let reply = self.action.reply(&ops);
        self.changed = self.action.changes();
        self.begun |= self.changed;
        let moves = self.action.moves();
        Segment { source, place, known_as, ops, reply, stays, changes: self.changed, moves }
    }

    fn of(&mut self, way: PathOf) -> &mut Route {
        match (way, &mut self.source) {
            (PathOf::Source, Some(source)) => source,
            _ => &mut self.route,
        }
    }

    /// Takes the results of the segment's own operations.
    pub(super) fn answer(&mut self, results: &mut Results) -> Next<A::Out> {
        match std::mem::replace(&mut self.doing, ItemStep::Act) {
            ItemStep::Walk(way, len) => match results.getfh() {
                Ok(fh) => {
                    self.of(way).walked = Some((len, fh));
                    Next::Again
                }
                Err(e) => fail(e),
            },
            ItemStep::ReadLink { way, at, why } => match results.readlink() {
                Ok(text) => self.follow(way, at, &text),
                // No symbolic link after all.
                Err(OpError::Failed {
                    status: NfsStat::NFS4ERR_INVAL | NfsStat::NFS4ERR_WRONG_TYPE, ..
                }) => self.no_link(way, why),
                Err(e) => fail(e),
            },
            ItemStep::ActAt(fh) => match self.action.answer(results) {
                Ok(Answer::More) => {
                    self.doing = ItemStep::ActAt(fh);
                    Next::Again
                }
                Ok(answer) => self.answered(answer),
                Err(e) => fail(e),
            },
            ItemStep::Act => {
                let last = self.route.steps.last();
                let looked = match last {
                    Some(Step::Name(_)) if !self.route.parent_only => results.take(OpNum::LOOKUP),
                    Some(Step::Up) => results.take(OpNum::LOOKUPP),
                    _ => Ok(landfast_nfs::v4::ResBody::Empty),
                };
                if let Err(e) = looked {
                    return self.missed(PathOf::Place, self.route.parent_len(), e);
                }
                match self.action.answer(results) {
                    Ok(answer) => self.answered(answer),
                    Err(e) => self.refused(e),
                }
            }
        }
    }

    fn answered(&mut self, answer: Answer<A::Out>) -> Next<A::Out> {
        match answer {
            Answer::Done(out) => Next::End(Outcome::Committed(out)),
            Answer::More => Next::Again,
            Answer::MoreAt(fh) => {
                self.doing = ItemStep::ActAt(fh);
                Next::Again
            }
            Answer::Follow if self.route.follow || self.route.parent_only => self.read_link(
                PathOf::Place,
                self.route.parent_len(),
                OpError::Failed { op: OpNum::READLINK, status: NfsStat::NFS4ERR_SYMLINK },
            ),
            Answer::Follow => fail(OpError::Failed { op: OpNum::LOOKUP, status: NfsStat::NFS4ERR_SYMLINK }),
            Answer::Failed(failure) => Next::End(Outcome::Failed(failure)),
            Answer::Unknown(e) => {
                let why =
                    format!("it was sent again after its reply was lost, and {e} may be of the second time");
                Next::End(Outcome::Unknown(why))
            }
        }
    }

    /// Handles an action that the server refused. An action that needs a directory fails only here if its place is
    /// none.
    fn refused(&mut self, e: OpError) -> Next<A::Out> {
        let parent = self.route.parent_len();
        match e.status() {
            NfsStat::NFS4ERR_NOTDIR | NfsStat::NFS4ERR_SYMLINK if self.route.parent_only && parent > 0 => {
                self.read_link(PathOf::Place, parent - 1, e)
            }
            // NFSv4.0 answers INVAL for a symbolic link (RFC 7530 section 16.23), and so do some servers of later
            // versions. It has other causes, too, so only a READLINK can tell.
            NfsStat::NFS4ERR_INVAL if self.may_be_link(&e) => self.read_link(PathOf::Place, parent, e),
            _ => fail(e),
        }
    }

    fn may_be_link(&self, e: &OpError) -> bool {
        let OpError::Failed { op, .. } = e else { return false };
        let acts_on_last = match *op {
            OpNum::READ => self.route.follow,
            OpNum::OPEN => self.route.parent_only,
            _ => false,
        };
        acts_on_last && matches!(self.doing, ItemStep::Act) && !self.route.steps.is_empty()
    }

    /// Handles a supposed symbolic link that is none. An action that refuses a place may have meant its source.
    fn no_link(&mut self, way: PathOf, why: OpError) -> Next<A::Out> {
        let at = self.source.as_ref().filter(|s| s.parent_only).map_or(0, Route::parent_len);
        match why {
            OpError::Failed { op: OpNum::RENAME, .. } if way == PathOf::Place && at > 0 => {
                self.read_link(PathOf::Source, at - 1, why)
            }
            _ => fail(why),
        }
    }

    /// The walk ended before step `at`, counted from the top.
    fn missed(&mut self, way: PathOf, at: usize, e: OpError) -> Next<A::Out> {
        match e.status() {
            NfsStat::NFS4ERR_SYMLINK | NfsStat::NFS4ERR_NOTDIR if at > 0 => self.read_link(way, at - 1, e),
            // The parent of the top is the top.
            NfsStat::NFS4ERR_NOENT if self.of(way).steps.get(at) == Some(&Step::Up) => {
                self.of(way).steps.remove(at);
                Next::Again
            }
            _ => fail(e),
        }
    }

    /// The walk failed: at its base (`None`), or at step `step` of [`Place::steps`].
    pub(super) fn unreached(
        &mut self,
        way: PathOf,
        place: &Place,
        step: Option<usize>,
        e: OpError,
    ) -> Next<A::Out> {
        let gone = matches!(
            e.status(),
            NfsStat::NFS4ERR_STALE | NfsStat::NFS4ERR_FHEXPIRED | NfsStat::NFS4ERR_BADHANDLE
        );
        if gone && step.is_none() && self.of(way).remembered && !self.restarted {
            // The remembered directory is gone; the path from the top may still lead there.
            self.restarted = true;
            self.of(way).walked = None;
            if !matches!(self.doing, ItemStep::ActAt(_)) {
                self.doing = ItemStep::Act;
            }
            return Next::Again;
        }
        if step.is_none()
            && !std::mem::replace(&mut self.nameless, true)
            && matches!(e, OpError::Failed { op: OpNum::GETFH, .. })
        {
            return Next::Again;
        }
        let until = match &self.doing {
            ItemStep::ActAt(_) => return fail(e),
            ItemStep::Walk(_, len) => *len,
            ItemStep::ReadLink { at, .. } => at + 1,
            ItemStep::Act => match way {
                PathOf::Place => self.route.parent_len(),
                PathOf::Source => self.source.as_ref().map_or(0, Route::source_len),
            },
        };
        match step {
            Some(step) => {
                if !matches!(self.doing, ItemStep::ReadLink { .. }) {
                    self.doing = ItemStep::Act;
                }
                self.missed(way, until - place.steps.len() + step, e)
            }
            None => fail(e),
        }
    }

    fn read_link(&mut self, way: PathOf, at: usize, why: OpError) -> Next<A::Out> {
        if matches!(self.of(way).steps.get(at), Some(Step::Name(_))) {
            self.doing = ItemStep::ReadLink { way, at, why };
            Next::Again
        } else {
            fail(why)
        }
    }

    fn follow(&mut self, way: PathOf, at: usize, text: &[u8]) -> Next<A::Out> {
        self.links += 1;
        if self.links > SYMLINKS_MAX {
            return Next::End(Outcome::Failed(Failure::Loop));
        }
        self.of(way).splice(at, text);
        Next::Again
    }

    /// The reply to the segment is lost and cannot be had again.
    pub(super) fn lost(&mut self, why: &str) -> Next<A::Out> {
        let acting = matches!(self.doing, ItemStep::Act | ItemStep::ActAt(_));
        if !acting || !self.changed || self.action.lost() == AfterLostReply::Again {
            return Next::Again;
        }
        Next::End(Outcome::Unknown(why.to_owned()))
    }
}

/// How many steps (at least one) fit in half of a request's first page; data follows them.
fn near(steps: &[Step]) -> usize {
    let bytes = |step: &Step| match step {
        Step::Name(name) => name.len() + 12,
        Step::Up => 4,
    };
    let mut sum = 0;
    let fits = |step: &&Step| {
        sum += bytes(step);
        sum <= FIRST_PAGE / 2
    };
    steps.iter().take_while(fits).count().max(1)
}

fn look(place: Place, ops: Vec<ArgOp>) -> Segment {
    let reply = ops.iter().map(crate::cost::result_bytes).sum();
    Segment { source: None, place, known_as: None, ops, reply, stays: false, changes: false, moves: 0 }
}

fn fail<T>(e: OpError) -> Next<T> {
    Next::End(Outcome::Failed(e.into()))
}
