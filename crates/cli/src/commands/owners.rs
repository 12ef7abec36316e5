//! Owners as numbers and names of this machine.

use crate::sys;
use landfast_client::fs::Owner;
use landfast_client::fs::{AsNamed, NOBODY, Who};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Names as this machine has them for numbers, and numbers for names.
#[derive(Default)]
pub struct Known {
    users: Mutex<HashMap<Owner, (u32, Vec<u8>)>>,
    groups: Mutex<HashMap<Owner, (u32, Vec<u8>)>>,
}

impl Who for Known {
    fn user(&self, owner: &Owner) -> (u32, Vec<u8>) {
        known(&self.users, owner, sys::user, sys::user_id)
    }

    fn group(&self, owner: &Owner) -> (u32, Vec<u8>) {
        known(&self.groups, owner, sys::group, sys::group_id)
    }
}

fn known(
    known: &Mutex<HashMap<Owner, (u32, Vec<u8>)>>,
    owner: &Owner,
    name_of: impl Fn(u32) -> Option<Vec<u8>>,
    number_of: impl Fn(&[u8]) -> Option<u32>,
) -> (u32, Vec<u8>) {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
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
