//! The NFSv4 state of the server as a pure core: no I/O, no clock, no threads. Values in, values out.
//!
//! From the bottom up; a file uses only files above it in this list:
//!
//! - [`clock`], [`ids`], [`identity`], `call_key`, `share`, `expired_stateids`: times, identifiers, who calls, the share of an
//!   address;
//! - [`bugs`]: deliberate bugs, which [`simulation`] must see; a program has none;
//! - [`refusals`]: which limits have refused something;
//! - [`notes`]: the form of the state in the log;
//! - [`removals`]: clients that are gone, before the log has said so;
//! - [`clients`]: EXCHANGE_ID and CREATE_SESSION, leases;
//! - [`sessions`]: slots, the reply cache, retries;
//! - [`drc`]: replies to calls without a session;
//! - [`grace`]: who may reclaim after a restart;
//! - [`copies`]: copies that continue after the reply to their COPY;
//! - [`owners`]: the sequence numbers of NFSv4.0's owners;
//! - [`ranges`]: the locked ranges of one file; [`nlm::hosts`], [`nlm::waiters`]: NLM hosts and their waiting requests;
//! - `revoked`: what is known of revoked delegations; [`delegations`]: what makes an open a delegation; `logged_locks`, `preserved`: which locks and opens stand in the log;
//! - [`opens`]: opens, share reservations, stateids; [`locks`]: byte ranges; [`opens40`]: what NFSv4.0 needs of both;
//!   `deadlock`;
//! - [`tables`]: [`State`], all of these together;
//! - [`looking`], [`asked`]: who looks at delegated files, and what their holders say of them;
//! - [`delegated`]: who is given a delegation, what is in whose way, recall; `revocation`; [`whole_directories`]: those for writing directories;
//! - `former`: what former instances gave to clients that go on: their locks and opens; `unlinked`: files that are removed while they are open;
//! - `authority`, `room`, `session_room`, [`nlm`], [`v40`], `expiry`: operations on the whole state;
//! - [`snapshot`], [`restore`], [`merge`]: the state as notes and back; the notes of several logs.
//!
//! Time is in milliseconds, never goes backwards, and is passed in by the caller ([`Millis`]). All state is behind one
//! mutex ([`crate::shared::Shared`]), which is a leaf: nothing is called while it is held.
//!
//! Invariants: an open belongs to a live client; a lock state belongs to a live open, or by NLM to a live host; a session
//! belongs to a confirmed client. A note carries a version that grows with each change, so that notes may reach the log in any order.

pub mod asked;
mod authority;
pub mod bugs;
mod call_key;
pub mod clients;
pub mod clock;
pub mod copies;
mod crowding;
mod deadlock;
pub mod delegated;
pub mod delegations;
pub mod drc;
mod expired_stateids;
mod expiry;
mod former;
pub mod grace;
mod grants;
pub mod identity;
pub mod ids;
pub mod locks;
mod logged_locks;
pub mod looking;
pub mod merge;
pub mod nlm;
pub mod notes;
pub mod opens;
pub mod opens40;
pub mod owners;
mod preserved;
pub mod ranges;
pub mod recall_any;
pub mod refusals;
pub mod removals;
pub mod restore;
mod revocation;
mod revoked;
mod room;
mod session_room;
pub mod sessions;
mod settling;
mod share;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
pub mod snapshot;
pub mod tables;
mod unlinked;
pub mod unwritten;
pub mod v40;
pub mod whole_directories;

pub use clock::Millis;
pub use identity::Principal;
pub use tables::{Bounds, State};

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests40;
#[cfg(test)]
mod tests_asked;
#[cfg(test)]
mod tests_clock;
#[cfg(test)]
mod tests_delegations;
#[cfg(test)]
mod tests_former;
#[cfg(test)]
mod tests_grants;
#[cfg(test)]
mod tests_identity;
#[cfg(test)]
mod tests_notes;
#[cfg(test)]
mod tests_recall_any;
#[cfg(test)]
mod tests_reclaims;
#[cfg(test)]
mod tests_room;
#[cfg(test)]
mod tests_unlinked;
#[cfg(test)]
mod tests_whole_directories;
