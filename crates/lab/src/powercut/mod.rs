//! Power cuts: the power of data disk and log disk goes at a random moment, the server restarts, and
//! everything that was acknowledged must be there; what was not, whole or not at all.
//!
//! | room | subject |
//! |---|---|
//! | `model` | the tree that acknowledged actions make, and what a cut may have left of the last one |
//! | `workload` | what is going on when the power goes |
//! | `check` | the oracle: disk and wire against the model |
//! | `untar` | the same for `landfast untar`, which goes on after the cut |
//! | `moment` | when the power goes |
//! | `run` | the harness |

pub mod check;
pub mod model;
mod moment;
mod run;
mod untar;
pub mod workload;

pub use run::{CutReport, Load, Options, Report, run};
