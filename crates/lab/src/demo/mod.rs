//! The main job against its peers, in one run: `landfast demo`.
//!
//! One archive is extracted in five ways onto the same emulated disk through the same emulated
//! network: locally, one file at a time over NFS with every operation synced to the disk, the same
//! with the intent log, the same without durability, and by `landfast untar` with the intent log.
//! Next to each result stands what the equation of the design's section 1 allows at best, from terms
//! measured in the same run.

mod injected;
mod report;
mod rows;

pub use report::{DemoOptions, DemoReport, Emulation, Progress, Row, Verified};

use crate::error::Result;
use report::Archive;

pub fn run(options: &DemoOptions, progress: &mut (dyn FnMut(Progress) + Send)) -> Result<DemoReport> {
    let start = std::time::Instant::now();
    let scratch = crate::machine::scratch_dir("landfast-demo-")?;
    progress(Progress::Doing("preparing the archive".into()));
    let archive = Archive::prepare(options.archive.as_deref(), scratch.path())?;
    crate::sys::settle();
    let mut report = match crate::rig::possible() {
        Ok(()) => crate::namespace::run_private(|| rows::run(options, &archive, progress))??,
        Err(why) => injected::run(options, &archive, scratch.path(), &why.to_string(), progress)?,
    };
    report.total_s = start.elapsed().as_secs_f64();
    Ok(report)
}
