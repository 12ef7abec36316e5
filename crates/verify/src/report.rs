//! What `check` says.

use crate::journal::End;
use crate::op::Kind;
use crate::rounds::Race;
use serde::{Deserialize, Serialize};

/// What became of one kind of operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub kind: Kind,
    pub operation: String,
    pub acknowledged: u64,
    /// Acknowledged operations whose effect can still be seen; later operations have overwritten the others.
    pub checked: u64,
    /// Acknowledged operations that are lost, wholly or in part.
    pub lost: u64,
    /// Some of them: path, and what is wrong.
    pub examples: Vec<String>,
}

/// How often something was found, with some examples.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Examples {
    pub count: u64,
    pub examples: Vec<String>,
}

impl Examples {
    pub fn add(&mut self, example: String) {
        self.count += 1;
        if self.examples.len() < crate::limits::EXAMPLES_MAX {
            self.examples.push(example);
        }
    }
}

/// What became of one race, over all its rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RaceResult {
    pub meeting: Race,
    pub rounds: u64,
    /// Rounds in which only the second was answered: its reply shows whether the first was stable.
    pub second_alone: u64,
    /// Rounds in which only the first was answered.
    pub first_alone: u64,
    /// Rounds after which a reply is not true.
    pub broken: u64,
    pub examples: Vec<String>,
}

impl RaceResult {
    pub fn new(meeting: Race) -> RaceResult {
        RaceResult { meeting, rounds: 0, second_alone: 0, first_alone: 0, broken: 0, examples: Vec::new() }
    }
}

/// What became of the write verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verifier {
    /// It is another one, so clients send again what they have not committed.
    Changed,
    Kept,
    /// Nothing was written, or there is no file to ask.
    Unknown,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    pub id: String,
    pub url: String,
    pub nfs: String,
    /// How the writing ended, if the journal says.
    pub ended: Option<End>,
    /// Bytes of a torn tail of the journal that were dropped.
    pub journal_torn: u64,
    pub acknowledged: u64,
    /// Acknowledged operations whose effect can still be seen.
    pub checked: u64,
    pub lost: u64,
    /// The kinds that were acknowledged at all, in the order of [`Kind::ALL`].
    pub rows: Vec<Row>,
    /// Operations that were sent and not acknowledged; they may be there or not.
    pub in_doubt: u64,
    /// Operations in doubt that are there in part, as only a WRITE may be.
    pub partly: Examples,
    /// What is there and nobody made.
    pub strange: Examples,
    pub objects: u64,
    pub handles: u64,
    /// Objects that are there, and whose handle from before does not lead to them any more.
    pub stale: Examples,
    /// Objects that have another file id than before.
    pub renumbered: Examples,
    pub verifier: Verifier,
    /// Unstable writes that are gone, of which the changed verifier tells the client.
    pub unstable_lost: u64,
    /// WRITEs that asked for FILE_SYNC and were answered with less, which RFC 1813 section 3.3.7 and RFC 8881 section
    /// 18.32.3 forbid. They count as unstable.
    pub weaker: u64,
    /// What pairs of clients did on one object, and what became of it.
    #[serde(default)]
    pub met: Vec<RaceResult>,
    /// Rounds whose replies fit no order of the two operations; nothing follows from them.
    #[serde(default)]
    pub unexplained: Examples,
}

impl Report {
    /// Whether the server has lost something of what it acknowledged, or has something that nobody made.
    pub fn has_losses(&self) -> bool {
        self.lost + self.broken() + self.strange.count + self.stale.count + self.renumbered.count > 0
    }

    /// Rounds after which a reply to one of two clients is not true.
    pub fn broken(&self) -> u64 {
        self.met.iter().map(|m| m.broken).sum()
    }

    pub fn rounds(&self) -> u64 {
        self.met.iter().map(|m| m.rounds).sum()
    }
}
