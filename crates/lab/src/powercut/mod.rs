//! Power cuts: the power of data disk and log disk goes at a random moment, the server restarts, and
//! everything that was acknowledged must be there; what was not, whole or not at all.
//!
//! | room | subject |
//! |---|---|
//! | `options` | what a run is to do, what it reports |
//! | `model` | the tree that acknowledged actions make, and what a cut may have left of the last one |
//! | `workload`, `overwrite` | what is going on when the power goes |
//! | `worker`, `peer` | a client, what it knows, and what it repeats and sends again after a cut |
//! | `found` | a tree as the disk and as NFS show it |
//! | `check` | the oracle: that against the model |
//! | `untar` | the same for `landfast untar`, which goes on after the cut |
//! | `pairs` | pairs of clients that meet on one object, as `landfast verify` has them |
//! | `scenes` | what takes more than clients at work: administrators, disks, servers |
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
