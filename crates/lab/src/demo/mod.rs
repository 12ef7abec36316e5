//! The main job against its peers, in one run: `landfast demo`.
//!
//! One archive is extracted onto the same kind of emulated disk through the same emulated network: locally; by clients that do
//! one thing at a time, on nfs-ganesha and on Landfast's server; and by `landfast untar`. A row that takes too long is stopped
//! and has the files a second of what it did. Right after a row's last acknowledgement the disks lose their power, and what was
//! acknowledged and is gone is counted. Next to each result stands what the equation allows at best, from terms measured in the
//! same run.

mod archive;
mod injected;
mod lost;
mod report;
mod rows;

pub use lost::Lost;
pub use report::{DemoOptions, DemoReport, Emulation, Headline, Progress, Row, Verified};

use crate::busy::{self, Watch};
use crate::error::Result;
use archive::Archive;

pub fn run(options: &DemoOptions, progress: &mut (dyn FnMut(Progress) + Send)) -> Result<DemoReport> {
    let start = std::time::Instant::now();
    let scratch = crate::machine::scratch_dir("landfast-demo-")?;
    progress(Progress::Doing("preparing the archive".into()));
    let archive = Archive::prepare(options.archive.as_deref(), scratch.path())?;
    crate::sys::settle();
    let watch = Watch::begin();
    let mut report = match crate::rig::possible() {
        Ok(()) => crate::namespace::run_private(|| rows::run(options, &archive, scratch.path(), progress))??,
        Err(why) => injected::run(options, &archive, scratch.path(), &why.to_string(), progress)?,
    };
    report.doubt(watch.others(), busy::processors());
    report.total_s = start.elapsed().as_secs_f64();
    Ok(report)
}
