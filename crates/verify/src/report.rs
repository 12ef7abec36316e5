//! What `check` says.

use crate::journal::End;
use crate::op::Kind;
use crate::rounds::Meeting;
use serde::{Deserialize, Serialize};

/// What became of one kind of operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// Which.
    pub kind: Kind,
    /// How it is called in tables.
    pub operation: String,
    /// Operations acknowledged.
    pub acknowledged: u64,
    /// Those of them on which something depends that can be looked at; the others were overwritten by later ones.
    pub checked: u64,
    /// Those that are lost, wholly or in part.
    pub lost: u64,
    /// Some of them: path, and what is wrong.
    pub examples: Vec<String>,
}

/// What of a kind of trouble there is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Found {
    /// How many.
    pub count: u64,
    /// Some of them.
    pub examples: Vec<String>,
}

impl Found {
    /// One more.
    pub fn add(&mut self, example: String) {
        self.count += 1;
        if self.examples.len() < crate::limits::EXAMPLES_MAX {
            self.examples.push(example);
        }
    }
}

/// What became of one meeting of two clients, over all its rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Met {
    /// What the two did.
    pub meeting: Meeting,
    /// How often.
    pub rounds: u64,
    /// Rounds in which only the second was answered: what it was told shows whether the first was stable.
    pub second_alone: u64,
    /// Rounds in which only the first was answered.
    pub first_alone: u64,
    /// Rounds after which what was told is not so.
    pub broken: u64,
    /// Some of them.
    pub examples: Vec<String>,
}

impl Met {
    /// None yet.
    #[must_use]
    pub fn new(meeting: Meeting) -> Met {
        Met { meeting, rounds: 0, second_alone: 0, first_alone: 0, broken: 0, examples: Vec::new() }
    }
}

/// What became of the write verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verifier {
    /// It is another one: clients send again what they have not committed.
    Changed,
    /// It is the same one.
    Kept,
    /// Nothing was written, or there is no file to ask.
    Unknown,
}

/// All of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The run's id.
    pub id: String,
    /// The URL that was checked.
    pub url: String,
    /// The version of NFS.
    pub nfs: String,
    /// How the writing ended, if the journal says.
    pub ended: Option<End>,
    /// Bytes of a torn tail of the journal that were dropped.
    pub journal_torn: u64,
    /// Operations acknowledged.
    pub acknowledged: u64,
    /// Those on which something depends that can be looked at.
    pub checked: u64,
    /// Those that are lost.
    pub lost: u64,
    /// By kind, in the order of [`Kind::ALL`]; those that were acknowledged at all.
    pub rows: Vec<Row>,
    /// Operations that were sent and not acknowledged; they may be there or not.
    pub in_doubt: u64,
    /// Those of them that are there in part, which no other than a WRITE may be.
    pub partly: Found,
    /// What is there though nobody made it.
    pub strange: Found,
    /// Objects that were looked at.
    pub objects: u64,
    /// Handles from before that were tried.
    pub handles: u64,
    /// Objects that are there, and whose handle from before does not lead to them any more.
    pub stale: Found,
    /// Objects that have another file id than before.
    pub renumbered: Found,
    /// The write verifier.
    pub verifier: Verifier,
    /// Unstable writes that are gone, of which the changed verifier tells the client.
    pub unstable_lost: u64,
    /// WRITEs that asked for FILE_SYNC and were answered with less, which RFC 1813 section 3.3.7 and RFC 8881 section
    /// 18.32.3 forbid. They count as unstable.
    pub weaker: u64,
    /// What pairs of clients did on one object, and what became of it.
    #[serde(default)]
    pub met: Vec<Met>,
    /// Rounds in which the two were told what fits to no order of what they did; nothing follows from them.
    #[serde(default)]
    pub unexplained: Found,
}

impl Report {
    /// Whether the server has lost something of what it acknowledged, or has something that nobody made.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        self.lost + self.broken() + self.strange.count + self.stale.count + self.renumbered.count > 0
    }

    /// Rounds after which what one of two clients was told is not so.
    #[must_use]
    pub fn broken(&self) -> u64 {
        self.met.iter().map(|m| m.broken).sum()
    }

    /// Rounds of two clients.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.met.iter().map(|m| m.rounds).sum()
    }
}
