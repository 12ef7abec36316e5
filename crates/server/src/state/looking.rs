//! Who looks at the attributes of a file that another client has a write delegation of (RFC 8881 section 10.4.3): its holder is asked with CB_GETATTR,
//! and keeps the delegation.
//!
//! It is recalled instead if
//! - the holder does not answer, or not with what was asked for;
//! - it was asked so often that it is cheaper for all to have it back;
//! - the server has restarted since it was given, so that what the holder says cannot be compared;
//! - the request that looks cannot wait, or not longer.
//!
//! Invariant: an answer serves only requests that began to look before its question was sent. So nobody is told what was no longer true when they
//! asked.

use super::asked::{AsGiven, Asking, Told};
use super::clock::Millis;
use super::delegations::{GivenTo, Touch};
use super::ids::FileKey;
use super::opens::Files;
use super::tables::State;
use crate::limits;
use bytes::Bytes;

/// A question to the holder of a delegation.
#[derive(Debug, Clone)]
pub struct Question {
    pub id: u64,
    /// Grows with each question to anybody.
    pub number: u64,
    pub client: u64,
    pub file: FileKey,
    /// The handle as the holder knows it.
    pub fh: Bytes,
    pub given_to: GivenTo,
    pub given: AsGiven,
    /// The holder answers for the file's times.
    pub times: bool,
}

/// What a request finds that looks at a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The file's attributes are those on the server.
    Clear,
    Told(Told),
    /// This delegation's holder has to say something first, or to return it.
    Waits(u64),
}

impl<F> Files<F> {
    /// Questions sent so far: what a request remembers when it begins to look.
    pub fn questions_sent(&self) -> u64 {
        self.delegations.asked
    }

    /// The delegation of another client that is in the way of who looks, its client, and what its holder has said that serves a request
    /// which began to look after so many questions.
    fn to_look_past(&self, file: &FileKey, by: Option<u64>, since: u64) -> Option<(u64, u64, Option<Told>)> {
        let (id, open) = self.of_file(file).find(|(_, open)| open.conflicts(by, Touch::Looks))?;
        let told = open.delegation.as_ref().and_then(|d| d.asking.since(since));
        Some((id, open.client, told))
    }

    /// Whether [`State::look`] would have to wait.
    pub fn look_would_wait(&self, file: &FileKey, by: Option<u64>, since: u64) -> bool {
        matches!(self.to_look_past(file, by, since), Some((.., None)))
    }

    /// Whether a request that began to look after so many questions still waits for this delegation. With `u64::MAX` it waits for its end.
    pub fn is_waited_for(&self, id: u64, since: u64) -> bool {
        let delegation = self.opens.get(&id).and_then(|open| open.delegation.as_ref());
        delegation.is_some_and(|d| d.asking.since(since).is_none())
    }

    /// Has the holder asked. False: it has to be recalled.
    fn ask(&mut self, id: u64, since: u64) -> bool {
        let Some(open) = self.opens.get_mut(&id) else { return true };
        let (client, Some(d)) = (open.client, &mut open.delegation) else { return true };
        if d.recalled.is_some() {
            return true;
        }
        let asking = &mut d.asking;
        if asking.queued || asking.under_way.is_some_and(|number| number > since) {
            return true;
        }
        if asking.given.is_none()
            || asking.times >= limits::GETATTRS_MAX
            || self.delegations.mute.contains(&client)
        {
            return false;
        }
        asking.times += 1;
        asking.queued = true;
        self.delegations.questions.entry(client).or_default().push_back(id);
        self.delegations.news = true;
        true
    }

    /// The next question to be sent to a client that `may` be asked one more.
    pub fn take_question(&mut self, may: impl Fn(u64) -> bool) -> Option<Question> {
        while let Some(id) = self.delegations.next_question(&may) {
            let Some(open) = self.opens.get_mut(&id) else { continue };
            let Some(d) = open.delegation.as_mut().filter(|d| d.recalled.is_none()) else { continue };
            let Some(given) = d.asking.given else { continue };
            self.delegations.asked += 1;
            self.delegations.counts.asked += 1;
            let number = self.delegations.asked;
            (d.asking.queued, d.asking.under_way) = (false, Some(number));
            return Some(Question {
                id,
                number,
                client: open.client,
                file: open.file.clone(),
                fh: d.fh.clone(),
                given_to: d.given_to,
                given,
                times: d.times,
            });
        }
        None
    }

    /// A question was answered, and what follows from that is durable.
    pub fn is_told(&mut self, question: &Question, told: Told) {
        self.delegations.counts.answered += 1;
        if let Some(asking) = self.ends_question(question)
            && asking.told.as_ref().is_none_or(|earlier| earlier.0 < question.number)
        {
            asking.told = Some(Box::new((question.number, told)));
        }
        self.delegations.answered_some = true;
    }

    /// A question was not answered, or not with what was asked for: the delegation is recalled.
    pub fn is_not_told(&mut self, now: Millis, question: &Question) {
        self.delegations.counts.unanswered += 1;
        self.ends_question(question);
        self.recall(now, question.id);
    }

    fn ends_question(&mut self, question: &Question) -> Option<&mut Asking> {
        let asking = &mut self.opens.get_mut(&question.id)?.delegation.as_mut()?.asking;
        if asking.under_way == Some(question.number) {
            asking.under_way = None;
        }
        Some(asking)
    }

    /// Whether a client answers callbacks. While it does not, it is asked nothing: it is told that its delegations are recalled.
    pub fn answers(&mut self, client: u64, does: bool) {
        if does {
            self.delegations.mute.remove(&client);
        } else if self.clients.contains_key(&client) {
            self.delegations.mute.insert(client);
        }
    }
}

impl<F> State<F> {
    /// What `by` finds who looks at a file's attributes, and began to look after so many questions. If another client has a write delegation of it,
    /// its holder is asked; or it is recalled, where that one is not to be asked or the request does not wait (`may_wait`).
    pub fn look(&mut self, now: Millis, file: &FileKey, by: Option<u64>, since: u64, may_wait: bool) -> Look {
        match self.files.to_look_past(file, by, since) {
            None => Look::Clear,
            Some((_, _, Some(told))) => Look::Told(told),
            Some((id, client, None)) => {
                let goes_on = self.expels(now, client) || may_wait && self.files.ask(id, since);
                if !goes_on {
                    self.files.recall(now, id);
                }
                Look::Waits(id)
            }
        }
    }
}
