//! What makes an open a delegation, and what is known of delegations beside the opens that they are. What may be given and what is in
//! whose way: [`super::delegated`].

use super::asked::Asking;
use super::bugs::{Bug, bug};
use super::clock::Millis;
use super::grants::Grants;
use super::ids::FileKey;
pub use super::notes::Right;
use super::recall_any::{RecallAny, RecallsAny};
use super::revoked::Revocations;
use crate::limits;
use bytes::Bytes;
use landfast_nfs::v4::{SessionId, Stateid};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

/// What somebody else does to a file or directory, as far as delegations of it are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// Reads attributes that a writer changes: under a write delegation, what its holder says of them.
    Looks,
    /// Reads data: not under a write delegation.
    Reads,
    /// Changes data, attributes or names: not under any delegation.
    Changes,
}

impl Touch {
    /// What a lock, or a question about one, does. The holder of a delegation keeps its own locks to itself: one for writing those of both kinds, one
    /// for reading shared ones.
    pub fn of_lock(exclusive: bool) -> Touch {
        if exclusive { Touch::Changes } else { Touch::Reads }
    }
}

/// The OPEN that a delegation was given to. A recall names it, since it may arrive before that OPEN's reply (RFC 8881 section
/// 2.10.6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenTo {
    pub session: SessionId,
    pub slot: u32,
    pub sequence: u32,
    pub minor: u32,
}

/// What makes an open a delegation.
#[derive(Debug, Clone)]
pub struct Delegation {
    pub(super) right: Right,
    /// The holder answers for the file's times (RFC 9754).
    pub times: bool,
    pub given_to: GivenTo,
    /// The handle as the holder knows it.
    pub(super) fh: Bytes,
    /// The version of its note, if it stands in the log.
    pub(super) logged: Option<u64>,
    /// Wherever the log says that its client holds nothing else, it has this one's note, too ([`super::settling`]).
    pub(super) settled: bool,
    /// It has just become one for writing, and whether it may is not decided yet: for the log it is what it was.
    pub(super) undecided: bool,
    /// What its holder is asked, and has said. Only one for writing.
    pub(super) asking: Asking,
    /// When it was recalled.
    pub(super) recalled: Option<Millis>,
}

impl Delegation {
    /// Whether it may become one with this right, under the same stateid.
    pub(super) fn may_become(&self, right: Right) -> bool {
        self.right == Right::Names && right == Right::ChangeNames && self.recalled.is_none()
    }
}

/// A delegation that has to be recalled.
#[derive(Debug, Clone)]
pub struct Recall {
    pub id: u64,
    pub client: u64,
    pub fh: Bytes,
    pub stateid: Stateid,
    pub given_to: GivenTo,
}

/// All that is known of delegations beside the opens that they are.
#[derive(Debug, Default)]
pub struct Delegations {
    /// Those that are live: of files, of directories; of the latter, those for writing.
    files: Tally,
    directories: Tally,
    whole_directories: Tally,
    /// Of these, those that stand in the log.
    pub(super) logged: HashSet<u64>,
    /// Of these, those that are settled.
    settled: Tally,
    /// Delegations in the log that have ended, which the log does not know yet.
    pub(super) gone: Vec<u64>,
    /// Those of former instances that have ended in this one: their stateids are nobody's any more. Never more than the log had at the start.
    pub(super) ended_of_former: HashSet<u64>,
    /// Those that do not stand in the log yet.
    pub(super) grants: Grants,
    /// Who is asked to return some, whichever.
    pub(super) any: RecallsAny,
    /// Recalls to be sent, by client.
    due: BTreeMap<u64, VecDeque<u64>>,
    /// Questions to be sent, by client.
    pub(super) questions: BTreeMap<u64, VecDeque<u64>>,
    /// Questions sent so far.
    pub(super) asked: u64,
    /// Clients that have left a question unanswered, and have answered no callback since.
    pub(super) mute: HashSet<u64>,
    /// A question was answered since the shell last asked.
    pub(super) answered_some: bool,
    /// Clients whose lease is over and whose delegations are in somebody's way.
    lapsed: BTreeSet<u64>,
    /// There is something new in `due`, `questions`, `lapsed` or `untried` since the shell last asked.
    pub(super) news: bool,
    /// Those that were revoked.
    pub(super) revocations: Revocations,
    /// Files that were fought over, and until when they are not delegated; the oldest first.
    contended: HashMap<FileKey, Millis>,
    contended_order: VecDeque<(Millis, FileKey)>,
    /// Sessions whose back channel is to be tried out with CB_NULL, before anything is given to their clients.
    untried: VecDeque<SessionId>,
    /// One was returned or revoked, or went with its client, since the shell last asked.
    ended: bool,
    pub counts: Counts,
}

/// What has happened to delegations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signals {
    /// One has ended.
    pub ended: bool,
    /// The holder of one has said what it was asked.
    pub answered: bool,
    /// There is another callback to send.
    pub due: bool,
    /// A client was given some that the log does not know.
    pub unsettled: bool,
}

/// How many there are, in all and of each client.
#[derive(Debug, Default)]
struct Tally {
    all: usize,
    of: HashMap<u64, usize>,
}

impl Tally {
    fn add(&mut self, client: u64) {
        self.all += 1;
        *self.of.entry(client).or_default() += 1;
    }

    fn remove(&mut self, client: u64) {
        if let Some(n) = self.of.get_mut(&client) {
            self.all -= 1;
            *n -= 1;
            if *n == 0 {
                self.of.remove(&client);
            }
        }
    }

    fn of(&self, client: u64) -> usize {
        self.of.get(&client).copied().unwrap_or(0)
    }
}

/// Since the server started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub given_read: u64,
    pub given_write: u64,
    pub given_directory: u64,
    pub given_directory_write: u64,
    /// CB_GETATTRs: sent, and of these answered with what was asked for, and not.
    pub asked: u64,
    pub answered: u64,
    pub unanswered: u64,
    /// Clients asked to return some, whichever.
    pub asked_any: u64,
    pub recalled: u64,
    pub returned: u64,
    pub revoked: u64,
}

/// The open owner of delegations: longer than any that a client can send (RFC 8881 section 3.2: `NFS4_OPAQUE_LIMIT`).
pub(super) fn owner() -> Bytes {
    static OWNER: [u8; 1025] = [0; 1025];
    Bytes::from_static(&OWNER)
}

/// The first of a client that `may` be sent one more.
fn next(queues: &mut BTreeMap<u64, VecDeque<u64>>, may: impl Fn(u64) -> bool) -> Option<u64> {
    let client = queues.keys().copied().find(|client| may(*client))?;
    let of_client = queues.get_mut(&client)?;
    let id = of_client.pop_front();
    if of_client.is_empty() {
        queues.remove(&client);
    }
    id
}

impl Delegations {
    /// How many are live.
    pub fn live(&self) -> usize {
        self.files.all + self.directories.all
    }

    /// How many of these are of directories, for writing.
    pub fn whole_directories(&self) -> usize {
        self.whole_directories.all
    }

    /// Whether clients but this one have any that may be in the way of who looks: those for reading directories are not.
    pub fn others_have_any(&self, but: Option<u64>) -> bool {
        let others = |tally: &Tally| tally.all > but.map_or(0, |client| tally.of(client));
        others(&self.files) || others(&self.whole_directories)
    }

    /// What has happened since the last call.
    pub fn signals(&mut self) -> Signals {
        Signals {
            ended: std::mem::take(&mut self.ended),
            answered: std::mem::take(&mut self.answered_some),
            due: std::mem::take(&mut self.news),
            unsettled: self.grants.news(),
        }
    }

    /// How many this client has of files, of directories.
    pub(super) fn of_client(&self, client: u64) -> [usize; 2] {
        [self.files.of(client), self.directories.of(client)]
    }

    /// How many are live that the log does not know.
    pub fn unlogged(&self) -> usize {
        self.live() - self.logged.len()
    }

    /// The client is asked for some of them, and not again until then.
    pub(super) fn ask_any(&mut self, until: Millis, what: RecallAny) {
        self.any.ask(until, what);
        self.counts.asked_any += 1;
        self.news = true;
    }

    /// The next client to be asked.
    pub fn take_any(&mut self) -> Option<RecallAny> {
        self.any.take()
    }

    /// How many of these are of directories.
    pub(super) fn directories(&self) -> usize {
        self.directories.all
    }

    /// How many of these are this client's.
    pub(super) fn directories_of(&self, client: u64) -> usize {
        self.directories.of(client)
    }

    fn tally(&mut self, right: Right) -> &mut Tally {
        if right.is_of_directory() { &mut self.directories } else { &mut self.files }
    }

    pub(super) fn given(&mut self, client: u64, right: Right) {
        self.tally(right).add(client);
        if right == Right::ChangeNames {
            self.whole_directories.add(client);
        }
    }

    /// Clients that have some of directories for writing.
    pub fn holders_of_whole_directories(&self) -> Vec<u64> {
        self.whole_directories.of.keys().copied().collect()
    }

    /// One of a directory is for writing from now on, or not any more.
    pub(super) fn is_for_writing(&mut self, client: u64, is: bool) {
        if is { self.whole_directories.add(client) } else { self.whole_directories.remove(client) }
    }

    pub(super) fn recall(&mut self, id: u64, client: u64) {
        self.due.entry(client).or_default().push_back(id);
        self.news = true;
    }

    pub(super) fn expel(&mut self, client: u64) {
        self.news |= self.lapsed.insert(client);
    }

    /// A client that has to go before its delegations are out of the way.
    pub fn take_lapsed(&mut self) -> Option<u64> {
        self.lapsed.pop_first()
    }

    /// The next recall of a client that `may` be sent one more.
    pub(super) fn next_due(&mut self, may: impl Fn(u64) -> bool) -> Option<u64> {
        next(&mut self.due, may)
    }

    /// The next question to a client that `may` be asked one more.
    pub(super) fn next_question(&mut self, may: impl Fn(u64) -> bool) -> Option<u64> {
        next(&mut self.questions, may)
    }

    pub(super) fn dropped(&mut self, id: u64, client: u64, delegation: &Delegation) {
        if delegation.recalled.is_none() || !bug(Bug::CountKept) {
            self.tally(delegation.right).remove(client);
            if delegation.right == Right::ChangeNames {
                self.whole_directories.remove(client);
            }
        }
        self.ended = true;
        if delegation.logged.is_some() {
            self.logged.remove(&id);
            self.gone.push(id);
        }
        if delegation.settled {
            self.settled.remove(client);
        }
    }

    /// How many delegations of this client are not settled: for these the log has to say that it holds something.
    pub(super) fn unsettled_of(&self, client: u64) -> usize {
        self.files.of(client) + self.directories.of(client) - self.settled.of(client)
    }

    /// One is settled from now on, or not any more.
    pub(super) fn is_settled(&mut self, client: u64, is: bool) {
        if is { self.settled.add(client) } else { self.settled.remove(client) }
    }

    pub(super) fn forget_client(&mut self, client: u64) {
        self.revocations.forget_client(client);
        self.due.remove(&client);
        self.questions.remove(&client);
        self.mute.remove(&client);
        self.grants.forget_client(client);
        self.any.forget_client(client);
    }

    pub(super) fn is_contended(&self, now: Millis, file: &FileKey) -> bool {
        self.contended.get(file).is_some_and(|until| *until > now)
    }

    pub(super) fn contend(&mut self, now: Millis, file: &FileKey) {
        while let Some((until, oldest)) = self.contended_order.front()
            && (*until <= now || self.contended_order.len() >= limits::CONTENDED_FILES_MAX)
        {
            if self.contended.get(oldest) == Some(until) {
                self.contended.remove(oldest);
            }
            self.contended_order.pop_front();
        }
        let until = now + limits::CONTENDED_MS;
        self.contended.insert(file.clone(), until);
        self.contended_order.push_back((until, file.clone()));
    }

    /// Asks the shell to try out the back channel of this session.
    pub fn try_out(&mut self, session: SessionId) {
        if self.untried.len() < limits::UNTRIED_SESSIONS_MAX && !self.untried.contains(&session) {
            self.untried.push_back(session);
            self.news = true;
        }
    }

    /// The sessions whose back channels are to be tried out now.
    pub fn take_untried(&mut self) -> Vec<SessionId> {
        self.untried.drain(..).collect()
    }
}
