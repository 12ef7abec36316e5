//! One cause of many failures: said once, in words, with what to do; the others that have it are counted.

use super::message;
use crate::units::show_count;
use landfast_client::put::{Cause, MemberError};
use landfast_nfs::v4::NfsStat;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Of members whose directory was told.
const UNMADE: &str = "its directory was not made";

/// How often each cause was met.
#[derive(Default)]
pub struct Causes(Mutex<BTreeMap<String, u64>>);

impl Causes {
    /// One more has it. `true`: it was said.
    pub fn again(&self, words: &str) -> bool {
        let mut causes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = causes.entry(words.to_owned()).or_default();
        *count += 1;
        *count > 1
    }

    /// A sentence for each cause that others than its first one have, too; from here on all are new.
    pub fn others(&self) -> Vec<String> {
        let causes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let of = |(words, n): (String, u64)| match (words == UNMADE, n) {
            (true, n) => Some(format!("{} more: their directories were not made", show_count(n))),
            (false, 2..) => Some(format!("{} more: {words}", show_count(n - 1))),
            (false, _) => None,
        };
        causes.into_iter().filter_map(of).collect()
    }

    /// What is said of a failure now: nothing where its cause was said. `all`: of each. `keep_owners`: the command's option that
    /// leaves owners alone.
    pub fn told(&self, why: &MemberError, keep_owners: &str, all: bool) -> Option<String> {
        let (words, of_many) = words(why, keep_owners);
        let again = of_many && self.again(&words);
        // A directory that was not made was told itself.
        (all || !again && why.cause != Cause::Parent).then_some(words)
    }
}

/// What to do about a cause that many will have if one has it.
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

/// Why a member failed, in words, and whether many will have the same cause: then it is said once.
fn words(why: &MemberError, keep_owners: &str) -> (String, bool) {
    let (status, incomplete) = match why.cause {
        Cause::Parent => return (UNMADE.to_owned(), true),
        Cause::Refused(_, status) => (status, false),
        Cause::Attributes(status) => (status, true),
        _ => return (why.to_string(), false),
    };
    let Some(advice) = advice(why.cause, keep_owners) else { return (why.to_string(), false) };
    // What is not set, without the protocol's own words.
    let what = why.text.split_inclusive(": ").next().filter(|_| incomplete).unwrap_or_default();
    (format!("{what}{}{advice}", message::of_status(status)), true)
}
