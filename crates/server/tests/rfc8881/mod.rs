//! RFC 8881 clause by clause, as bytes on a socket: one file for each subject, one test for each clause or small group of
//! clauses that a client depends on, named by its section.

mod attributes;
mod clients;
mod compound;
mod grace;
mod io;
mod locks;
mod many;
mod names;
mod opens;
mod readdir;
mod slots;
mod stateids;
