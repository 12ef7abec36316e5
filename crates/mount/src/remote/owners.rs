//! Owners and groups as the server names them (RFC 8881 section 5.9), as numbers of this machine.

use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::limits::OWNERS_KNOWN_MAX;

/// The number of an owner whom this machine does not know.
const NOBODY: u32 = 65_534;

/// Names that were looked up on this machine.
#[derive(Debug, Default)]
pub(super) struct Owners {
    known: Mutex<HashMap<(Bytes, bool), u32>>,
}

impl Owners {
    /// The number of a user, or of a group.
    pub(super) fn number(&self, name: Option<&Bytes>, group: bool) -> u32 {
        let Some(name) = name else { return NOBODY };
        if let Some(number) = std::str::from_utf8(name).ok().and_then(|text| text.parse().ok()) {
            return number;
        }
        if let Some(number) = self.known.lock().get(&(name.clone(), group)) {
            return *number;
        }
        let number = on_this_machine(name, group);
        let mut known = self.known.lock();
        if known.len() >= OWNERS_KNOWN_MAX {
            known.clear();
        }
        // A copy: a slice of a reply would keep the whole reply in memory.
        known.insert((Bytes::copy_from_slice(name), group), number);
        number
    }
}

/// `user@domain`: the domain is the server's own; only the name counts here.
fn on_this_machine(name: &[u8], group: bool) -> u32 {
    let short = name.split(|b| *b == b'@').next().unwrap_or_default();
    let Ok(short) = std::str::from_utf8(short) else { return NOBODY };
    match group {
        false => nix::unistd::User::from_name(short).ok().flatten().map(|u| u.uid.as_raw()),
        true => nix::unistd::Group::from_name(short).ok().flatten().map(|g| g.gid.as_raw()),
    }
    .unwrap_or(NOBODY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_numbers_and_names_are_looked_up_here() {
        let owners = Owners::default();
        let number = |text: &'static str| owners.number(Some(&Bytes::from_static(text.as_bytes())), false);
        assert_eq!(number("1000"), 1000);
        assert_eq!(number("root@example.org"), 0);
        assert_eq!(number("nobody knows this one@example.org"), NOBODY);
        assert_eq!(owners.number(None, true), NOBODY);
    }
}
