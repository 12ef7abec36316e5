//! The server's state with clients, callbacks, its log and power cuts, where the bytes make each choice that a seed makes elsewhere
//! (`docs/internals/state-simulation.md`).
//!
//! Invariants: no two clients believe in rights that exclude each other; whoever is told that all is well has what it had; what a client holds is no other
//! client's; when all is given back nothing is left.

use landfast_server::state::simulation::bytes;

/// Any sequence of choices.
pub fn rights(data: &[u8]) {
    if bytes(data, false).is_err() {
        // Once more, with what came before.
        let told = bytes(data, true).err().unwrap_or_else(|| "not the same when it was run again".to_owned());
        panic!("{told}");
    }
}
