//! What one request that looks at delegated files waits for, and what it is told (RFC 8881 section 10.4.3); the same for all versions.

use crate::limits;
use crate::state::asked::Told;
use crate::state::delegations::Touch;
use crate::state::ids::FileKey;
use crate::state::looking::Look;
use crate::state::notes::Stamped;
use crate::state::{Millis, State};
use crate::touches::can_be_delegated;
use landfast_volume::{Attrs, Node};
use std::collections::HashMap;

/// Kept from run to run of the request.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Questions that had been sent to holders when it began to look.
    since: Option<u64>,
    /// The delegations that it waits for, each with what [`crate::state::opens::Files::is_waited_for`] needs.
    waits: Vec<(u64, u64)>,
    /// What it is told, by file.
    told: HashMap<FileKey, Told>,
    /// It has waited.
    waited: bool,
}

/// Who looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Looker {
    pub(crate) now: Millis,
    /// `None`: no client that could hold a delegation.
    pub(crate) client: Option<u64>,
    /// It has changed nothing yet, and has not waited long enough.
    pub(crate) may_wait: bool,
}

impl Looks {
    /// Looks at a file. Returns whether the request goes on.
    fn look<F>(&mut self, st: &mut State<F>, by: Looker, file: &FileKey) -> bool {
        let since = self.since(st);
        match st.look(by.now, file, by.client, since, by.may_wait) {
            Look::Clear => true,
            Look::Told(told) => {
                self.told.insert(file.clone(), told);
                true
            }
            Look::Waits(id) => {
                self.waits.push((id, since));
                false
            }
        }
    }

    /// Asks for the delegations in the way of what is done to a file. Who looks may be told what its holder says. Returns the clients that are
    /// gone, which the answer rests on; `None` while a delegation is in the way.
    pub(crate) fn touch<F>(
        &mut self,
        st: &mut State<F>,
        by: Looker,
        file: &FileKey,
        touch: Touch,
    ) -> Option<Vec<Stamped>> {
        let clear = if touch == Touch::Looks {
            self.look(st, by, file)
        } else {
            let in_the_way = st.recall_from_others(by.now, file, by.client, touch);
            let clear = in_the_way.is_empty();
            self.wait_for_ends(in_the_way);
            clear
        };
        clear.then(|| st.removals.of_file(file))
    }

    /// Looks at the entries of a listing. Returns how many may be shown; `None` when the request does not go on. `ends`: entries before these are
    /// there to be shown, so that it may end here.
    pub(crate) fn look_at_entries<'a, F>(
        &mut self,
        st: &mut State<F>,
        by: Looker,
        entries: impl Iterator<Item = Option<&'a Node>> + Clone,
        ends: bool,
    ) -> Option<usize> {
        let since = self.since(st);
        let file = |node: Option<&'a Node>| node.filter(|node| can_be_delegated(node.kind())).map(Node::wire);
        let mut all = entries.clone().map(file);
        let waits = |file: Option<&FileKey>| {
            file.is_some_and(|file| st.files.look_would_wait(file, by.client, since))
        };
        let count = entries.clone().count();
        let first = all.position(waits).unwrap_or(count);
        let shown = if first < count && !(ends || (self.waited && first > 0)) { count } else { first };
        if shown == 0 && count > 0 && ends {
            return Some(0);
        }
        let mut asked = 0;
        for file in entries.map(file).take(shown).flatten() {
            asked += usize::from(!self.look(st, by, file));
            if asked == limits::GETATTRS_FOR_ONE {
                break;
            }
        }
        (asked == 0).then_some(shown)
    }

    fn since<F>(&mut self, st: &State<F>) -> u64 {
        *self.since.get_or_insert_with(|| st.files.questions_sent())
    }

    /// The request waits for the end of these delegations.
    fn wait_for_ends(&mut self, delegations: Vec<u64>) {
        self.waits.extend(delegations.into_iter().map(|id| (id, u64::MAX)));
    }

    /// Before the request runs again.
    pub(crate) fn again(&mut self) {
        self.waited = true;
        self.waits.clear();
        self.told.clear();
    }

    /// Whether it still waits for any of them.
    pub(crate) fn still_waits<F>(&mut self, st: &State<F>) -> bool {
        while let Some((id, since)) = self.waits.last() {
            if st.files.is_waited_for(*id, *since) {
                return true;
            }
            self.waits.pop();
        }
        false
    }

    /// Whether the request is told something of this file. Then its reply rests on what was done to the file for that.
    pub(crate) fn is_told(&self, node: &Node) -> bool {
        self.told.contains_key(node.wire())
    }

    /// Puts what the request is told of a file in the place of what the server knows.
    pub(crate) fn show_in(&self, node: &Node, attrs: &mut Attrs) {
        if let Some(told) = self.told.get(node.wire()) {
            told.show_in(attrs);
        }
    }

    /// Another operation of the request begins.
    pub(crate) fn next(&mut self) {
        self.told.clear();
    }
}

/// What an answer rests on that found these without delegations of clients that are gone ([`crate::state::removals`]).
pub(crate) fn gone_among<'a, F>(st: &State<F>, nodes: impl Iterator<Item = &'a Node>) -> Vec<Stamped> {
    if st.removals.of_holders() == 0 {
        return Vec::new();
    }
    let mut gone: Vec<Stamped> = nodes.flat_map(|node| st.removals.of_file(node.wire())).collect();
    gone.sort_unstable_by_key(|note| note.v);
    gone.dedup_by_key(|note| note.v);
    gone
}
