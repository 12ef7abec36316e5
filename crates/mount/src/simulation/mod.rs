//! Three mounts with `close=local` and a model of a server, in memory, on one thread, by a clock of their own:
//! `docs/internals/mount-simulation.md`.
//!
//! All of the mount is real, from the kernel's requests down to COMPOUNDs; what is below is a model.

#[cfg(test)]
mod bug_scenes;
mod choices;
mod figures;
mod objects;
mod oracle;
#[cfg(test)]
mod scenes;
mod server;
#[cfg(test)]
mod tests;
pub(crate) mod wire;
mod world;
