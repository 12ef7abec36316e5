//! Numbers and names of owners on this machine.

use crate::sys;
use landfast_client::fs::Owner;
use landfast_client::fs::{AsNamed, NOBODY, OwnerNames};
use parking_lot::Mutex;
use std::collections::HashMap;

/// Looks up names for numbers and numbers for names, and remembers them.
#[derive(Default)]
pub struct LocalNames {
    users: Mutex<HashMap<Owner, (u32, Vec<u8>)>>,
    groups: Mutex<HashMap<Owner, (u32, Vec<u8>)>>,
}

impl OwnerNames for LocalNames {
    fn user(&self, owner: &Owner) -> (u32, Vec<u8>) {
        look_up(&self.users, owner, sys::user, sys::user_id)
    }

    fn group(&self, owner: &Owner) -> (u32, Vec<u8>) {
        look_up(&self.groups, owner, sys::group, sys::group_id)
    }
}

fn look_up(
    known: &Mutex<HashMap<Owner, (u32, Vec<u8>)>>,
    owner: &Owner,
    name_of: impl Fn(u32) -> Option<Vec<u8>>,
    number_of: impl Fn(&[u8]) -> Option<u32>,
) -> (u32, Vec<u8>) {
    let mut known = known.lock();
    if let Some(found) = known.get(owner) {
        return found.clone();
    }
    let found = match owner {
        Owner::Id(id) => (*id, name_of(*id).unwrap_or_default()),
        Owner::Name(_) => {
            let (_, name) = AsNamed.user(owner);
            (number_of(&name).unwrap_or(NOBODY), name)
        }
    };
    known.insert(owner.clone(), found.clone());
    found
}
