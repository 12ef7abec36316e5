//! Failures by their causes: the first one is printed with advice, the others of the same cause are only counted.

use super::message;
use crate::units::show_count;
use landfast_client::put::{Cause, MemberError};
use landfast_nfs::v4::NfsStat;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The cause of members whose directory failed, which was printed.
const UNMADE: &str = "its directory was not made";

#[derive(Default)]
pub struct Causes(Mutex<BTreeMap<String, u64>>);

impl Causes {
    /// Counts one more failure of this cause. `true`: it is not the first.
    pub fn again(&self, words: &str) -> bool {
        let mut causes = self.0.lock();
        let count = causes.entry(words.to_owned()).or_default();
        *count += 1;
        *count > 1
    }

    /// Prints a line for each cause that occurred more than once, with the number of other failures, unless `verbose`
    /// has printed them all. Forgets all causes.
    pub fn print_others(&self, tool: &str, verbose: bool) {
        let causes = std::mem::take(&mut *self.0.lock());
        for (words, n) in causes.into_iter().filter(|_| !verbose) {
            match (words == UNMADE, n) {
                (true, n) => eprintln!("{tool}: {} more: their directories were not made", show_count(n)),
                (false, 2..) => eprintln!("{tool}: {} more: {words}", show_count(n - 1)),
                (false, _) => {}
            }
        }
    }

    /// The message for a failure; `None` if its cause was printed before, unless `all` is set. `keep_owners`: the
    /// command's option that leaves owners alone.
    pub fn told(&self, why: &MemberError, keep_owners: &str, all: bool) -> Option<String> {
        let (words, of_many) = words(why, keep_owners);
        let again = of_many && self.again(&words);
        // The directory's own failure was printed.
        (all || !again && why.cause != Cause::Parent).then_some(words)
    }
}

/// What to do, for a cause that many members have if one has it.
pub fn advice(cause: Cause, keep_owners: &str) -> Option<String> {
    let (status, incomplete) = match cause {
        Cause::Refused(_, status) => (status, false),
        Cause::Attributes(status) => (status, true),
        _ => return None,
    };
    let advice = match (status, incomplete) {
        (NfsStat::NFS4ERR_PERM | NfsStat::NFS4ERR_ACCESS | NfsStat::NFS4ERR_BADOWNER, true) => {
            return Some(format!(
                ": the server does not let this user give files away, as when it squashes root; {keep_owners} leaves owners as they come"
            ));
        }
        (NfsStat::NFS4ERR_PERM | NfsStat::NFS4ERR_ACCESS, false) => {
            ": this user may not write there; on the server root may be nobody (root_squash)"
        }
        (NfsStat::NFS4ERR_ROFS, _) => {
            ": the server's filesystem, or its export to this machine, is read-only"
        }
        (NfsStat::NFS4ERR_NOSPC, _) => ": make room on the server, then do it again",
        (NfsStat::NFS4ERR_DQUOT, _) => ": the quota on the server is used up; make room, then do it again",
        (NfsStat::NFS4ERR_IO | NfsStat::NFS4ERR_STALE, _) => "",
        _ => return None,
    };
    Some(advice.to_owned())
}

/// The message for a failure, and whether its cause is one that many members have, so that it is printed once.
fn words(why: &MemberError, keep_owners: &str) -> (String, bool) {
    let (status, incomplete) = match why.cause {
        Cause::Parent => return (UNMADE.to_owned(), true),
        Cause::Refused(_, status) => (status, false),
        Cause::Attributes(status) => (status, true),
        _ => return (why.to_string(), false),
    };
    let Some(advice) = advice(why.cause, keep_owners) else { return (why.to_string(), false) };
    // The attribute that was not set, without the protocol's own words.
    let what = why.text.split_inclusive(": ").next().filter(|_| incomplete).unwrap_or_default();
    (format!("{what}{}{advice}", message::of_status(status)), true)
}
