//! Power cuts: the power of data disk and log disk goes at a random moment, the server restarts, and
//! everything that was acknowledged must be there; what was not, whole or not at all.
//!
//! | room | subject |
//! |---|---|
//! | `options` | what a run is to do, what it reports |
//! | `model` | the tree that acknowledged actions make, and what a cut may have left of the last one |
//! | `workload`, `overwrite` | the actions that clients do until the cut |
//! | `worker`, `peer` | a client, its model, and the requests that it repeats or sends again after a cut |
//! | `found` | reads a tree from the disk or over NFS |
//! | `check` | the oracle: compares that tree with the model |
//! | `untar` | the same for `landfast untar`, which goes on after the cut |
//! | `pairs` | pairs of clients that race on one object, as in `landfast verify` |
//! | `scenes` | cases that need more than clients: administrators, disks, other servers |
//! | `moment` | when the power goes |
//! | `run` | the harness |

pub mod check;
pub mod found;
pub mod model;
mod moment;
mod options;
mod overwrite;
mod pairs;
pub(crate) mod peer;
mod run;
mod scenes;
mod untar;
mod worker;
pub mod workload;

pub use options::{CutReport, Load, Options, Points, Report, Variant};
pub use run::run;
