//! Notes of replies, as a server keeps them in the log: a client and the number of its request.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfast_intentlog::{Part, Snapshot};
use parking_lot::Mutex;

use crate::checkpoints::NoteKeeper;

/// The server's state: the last reply to each client.
#[derive(Default)]
pub(super) struct Replies(pub(super) Arc<Mutex<BTreeMap<u8, u32>>>);

impl NoteKeeper for Replies {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        Box::new(RepliesInParts { replies: self.0.clone(), after: None })
    }
}

/// One client's reply per part, as it is when the part is taken.
struct RepliesInParts {
    replies: Arc<Mutex<BTreeMap<u8, u32>>>,
    after: Option<u8>,
}

impl Snapshot for RepliesInParts {
    fn part(&mut self, _: usize) -> Part {
        let replies = self.replies.lock();
        let mut left = match self.after {
            Some(client) => replies.range(client + 1..),
            None => replies.range(..),
        };
        let next = left.next();
        self.after = next.map(|(client, _)| *client).or(self.after);
        Part {
            records: next.map(|(client, n)| note(*client, *n)).into_iter().collect(),
            last: left.next().is_none(),
        }
    }
}

pub(super) fn note(client: u8, n: u32) -> Vec<u8> {
    [&[client][..], &n.to_le_bytes()].concat()
}

/// Client and number of a note. The rest of the note is a reply that nobody reads.
pub(super) fn read_note(bytes: &[u8]) -> Option<(u8, u32)> {
    let (client, rest) = bytes.split_first()?;
    Some((*client, u32::from_le_bytes(*rest.first_chunk()?)))
}
