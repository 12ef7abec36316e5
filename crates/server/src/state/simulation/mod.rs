//! The state with its clients, its log and its clock, all in memory, on one thread: `docs/internals/state-simulation.md`.
//!
//! The oracle: no two clients ever believe, by the replies that they have seen, in rights that exclude each other, and nobody does what another's right
//! forbids, unless its holder was told or can know by its lease that it has lost it. Whoever is told that all is well has all that it had. What a client
//! holds is no other client's. When all is given back nothing is left.

mod checks;
mod choices;
mod log;
mod model;
mod op;
mod people;
mod rights;
mod server;
mod world;

use choices::Choices;
pub use model::Figures;

/// From this seed on every other run is narrow.
const NARROW_FROM: u64 = 1_000_000;

/// Runs a seed.
///
/// # Errors
/// What was seen that must not be.
pub fn seed(seed: u64, with_history: bool) -> Result<Figures, String> {
    let narrow = seed >= NARROW_FROM && seed % 2 == 1;
    world::run(Choices::Seed(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)), with_history, narrow)
}

/// Runs what these bytes choose.
///
/// # Errors
/// What was seen that must not be.
pub fn bytes(bytes: &[u8], with_history: bool) -> Result<Figures, String> {
    world::run(Choices::Bytes(bytes), with_history, false)
}

#[cfg(test)]
mod tests;
