//! What is to be done of a change of names that the server may have executed already, or that others may have come before.

use super::bugs::{Bug, bug};

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    Send,
    /// The server has done it.
    Done,
    /// It would not mean what the program meant.
    Stale,
}

/// The removal of a name. `owned`: nobody else has changed the directory. `ours`: what the program removed. `found`: what has the name now.
pub fn removal<H: PartialEq>(owned: bool, ours: Option<&H>, found: Option<&H>) -> Replay {
    match found {
        Some(_) if bug(Bug::RemovesAnything) => Replay::Send,
        None => Replay::Done,
        Some(_) if found == ours => Replay::Send,
        // It has the name since.
        Some(_) if owned => Replay::Done,
        Some(_) => Replay::Stale,
    }
}

/// A rename. `over`: what the program replaced, if it replaced something. `from`, `to`: what has the names now.
pub fn rename<H: PartialEq>(
    owned: bool,
    ours: Option<&H>,
    over: Option<Option<&H>>,
    (from, to): (Option<&H>, Option<&H>),
) -> Replay {
    let is_ours = |found: Option<&H>| found.is_some() && found == ours;
    if !is_ours(from) && bug(Bug::NeverDone) {
        return Replay::Send;
    }
    if !is_ours(from) {
        // Whoever has the old name now came behind it.
        return if owned || is_ours(to) { Replay::Done } else { Replay::Stale };
    }
    let free = match (to, over) {
        (None, _) => true,
        (Some(_), Some(over)) => to == over || is_ours(to),
        (Some(_), None) => is_ours(to),
    };
    if owned || free || bug(Bug::ReplacesAnything) { Replay::Send } else { Replay::Stale }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Replay::{Done, Send, Stale};

    const A: Option<&u8> = Some(&1);
    const B: Option<&u8> = Some(&2);
    const OTHER: Option<&u8> = Some(&9);

    #[test]
    fn a_removal_takes_nothing_else() {
        for owned in [false, true] {
            assert_eq!(removal(owned, A, None), Done);
            assert_eq!(removal(owned, A, A), Send);
        }
        // [Remove x, Rename y->x], executed: x is what was y.
        assert_eq!(removal(true, A, B), Done);
        assert_eq!(removal(false, A, OTHER), Stale);
        assert_eq!(removal(false, None, OTHER), Stale);
    }

    #[test]
    fn a_chain_of_renames_is_not_executed_twice() {
        // [Rename a->b, Rename c->a], executed: a is what was c.
        assert_eq!(rename(true, A, None, (B, A)), Done);
        assert_eq!(rename(true, B, None, (None, B)), Done);
        // Only the first.
        assert_eq!(rename(true, A, None, (None, A)), Done);
        assert_eq!(rename(true, B, None, (B, None)), Send);
        // [Rename log->log.1, File log], executed: log is new.
        assert_eq!(rename(true, A, Some(B), (OTHER, A)), Done);
    }

    #[test]
    fn where_others_come_a_rename_replaces_what_the_program_saw_and_nothing_else() {
        assert_eq!(rename(false, A, Some(B), (A, B)), Send);
        assert_eq!(rename(false, A, Some(B), (A, None)), Send);
        assert_eq!(rename(false, A, Some(B), (A, OTHER)), Stale);
        assert_eq!(rename(false, A, Some(None), (A, OTHER)), Stale);
        assert_eq!(rename(false, A, None, (A, OTHER)), Stale);
        assert_eq!(rename(false, A, None, (A, None)), Send);
        // Executed before the doubt.
        assert_eq!(rename(false, A, Some(B), (None, A)), Done);
        assert_eq!(rename(false, A, Some(B), (OTHER, A)), Done);
        assert_eq!(rename(false, A, Some(B), (None, B)), Stale);
        assert_eq!(rename(false, None, Some(B), (OTHER, B)), Stale);
    }
}
