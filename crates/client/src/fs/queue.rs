//! Items that are ready to be sent. Pure.

use std::collections::{BTreeMap, VecDeque};

use super::action::Action;
use super::item::Item;

/// Where an item stands in a depth-first walk: the indices of the entries that lead to it. Empty outside of walks.
pub(super) type Turn = Box<[u32]>;

/// An item and its number.
pub(super) type Numbered<A> = (usize, Item<A>);

/// See the module.
pub(super) enum Queue<A> {
    /// One after another.
    Line(VecDeque<Numbered<A>>),
    /// By their turns, and by their numbers where these are equal.
    Turns(BTreeMap<(Turn, usize), Item<A>>),
}

impl<A: Action> Queue<A> {
    pub(super) fn len(&self) -> usize {
        match self {
            Queue::Line(line) => line.len(),
            Queue::Turns(turns) => turns.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn pop(&mut self) -> Option<Numbered<A>> {
        match self {
            Queue::Line(line) => line.pop_front(),
            Queue::Turns(turns) => {
                turns.pop_first().map(|((turn, number), item)| (number, item.in_turn(turn)))
            }
        }
    }

    /// Adds an item at the end, or at its turn.
    pub(super) fn push(&mut self, numbered: Numbered<A>) {
        match self {
            Queue::Line(line) => line.push_back(numbered),
            Queue::Turns(_) => self.push_first(numbered),
        }
    }

    /// Adds an item at the front, or at its turn.
    pub(super) fn push_first(&mut self, (number, mut item): Numbered<A>) {
        match self {
            Queue::Line(line) => line.push_front((number, item)),
            Queue::Turns(turns) => {
                let turn = std::mem::take(&mut item.turn);
                turns.insert((turn, number), item);
            }
        }
    }

    pub(super) fn take_all(&mut self) -> Vec<Numbered<A>> {
        std::iter::from_fn(|| self.pop()).collect()
    }
}
