//! A disk with a block that cannot be written any more, a log that somebody overwrites, a filesystem that is mounted without flushes.

use super::{File, Stage, make, missing, wait_until};
use crate::error::{Context, Error, Result};
use crate::mounts::Filesystem;
use crate::powercut::options::CutReport;
use crate::powercut::peer::Peer;
use crate::powercut::run::{Harness, PROBE, setup};
use crate::serial::v3::Actor3;
use crate::served::{ServeOptions, Served};
use crate::trouble::unwritten;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// What a server says of a log that it has lost: that it has failed, or that it goes on with another one.
const NOTICED: [&str; 2] = [" has FAILED: ", "a new log was made"];

/// Files that are made after the server has noticed.
const AFTERWARDS: usize = 20;

/// What is written over a log at a time.
const ZEROES: usize = 1 << 20;

impl Harness<'_> {
    /// A block of each of two files cannot be written back, and the error goes to another process: their COMMITs must fail, or the
    /// verifier must change.
    pub(super) fn unwritten(&mut self, stage: &Stage, report: &mut CutReport) -> Result<()> {
        let (server, actor) = self.begin_scene(stage)?;
        let mut peer = Peer::V4(Box::new(actor));
        unwritten::prepare(&mut peer, &self.rig, &stage.dir)?;
        let client = Actor3::connect(server.addr(), "", self.xid())?;
        let mut peers = [Peer::V3(Box::new(client)), peer];
        let wrong = unwritten::strike(&self.rig, server.pid(), &mut peers, &stage.dir, PROBE.as_bytes())?;
        report.wrong.extend(wrong);
        self.end(server, &stage.plan)?;
        self.come_back_with(stage, &[], report)?;
        report.wrong.extend(unwritten::strange(&self.rig, &stage.dir));
        Ok(())
    }

    /// Somebody writes over the log. The server notices, and either makes another log or acknowledges nothing more; in both cases
    /// what it has acknowledged is there after a cut.
    pub(super) fn overwritten(&mut self, stage: &Stage, report: &mut CutReport) -> Result<()> {
        let (server, mut actor) = self.begin_scene(stage)?;
        let mut files = self.make_files(&mut actor, &stage.dir, &["before"])?;
        self.overwrite_log()?;
        let mut refused = false;
        let mut one_more = |files: &mut Vec<File>| -> Result<bool> {
            let name = format!("{}/{}", stage.dir, files.len());
            let file = (name.clone(), name.into_bytes());
            match make(&mut actor, &file) {
                Ok(()) => files.push(file),
                Err(Error::Nfs { .. }) => refused = true,
                Err(e) => return Err(e),
            }
            Ok(refused)
        };
        let noticed = || NOTICED.iter().any(|words| server.words().contains(words));
        // It says so when all is durable, a moment after it has begun to refuse.
        if !wait_until(|| Ok(noticed() || one_more(&mut files)? && wait_until(|| Ok(noticed()))?))? {
            report.wrong.push("the log was overwritten, which was not noticed".to_owned());
        }
        for _ in 0..AFTERWARDS {
            if one_more(&mut files)? {
                break;
            }
        }
        // A server that has failed says what to do before the next start.
        let erase = server.words().contains("blkdiscard -z");
        self.end(server, &stage.plan)?;
        self.power_on(&stage.plan)?;
        if erase {
            self.overwrite_log()?;
        }
        self.has_all(&files, report)
    }

    fn overwrite_log(&self) -> Result<()> {
        overwrite(self.rig.log_device()?)?;
        self.rig.mirror_device().map_or(Ok(()), overwrite)
    }

    /// A filesystem that is mounted without flushes is refused. If it is served all the same, what it acknowledges is lost.
    pub(super) fn unflushed(&mut self, stage: &Stage, report: &mut CutReport) -> Result<()> {
        let option = if self.options.fs == Filesystem::Ext4 { "barrier=0" } else { "nobarrier" };
        self.rig.unmount()?;
        self.rig.set_mount_options(option);
        self.rig.mount()?;
        let options = ServeOptions { judges_disks: true, ..self.serve_options(None)?.without_log() };
        let files = match Served::start(&options) {
            Err(Error::Child { what, .. }) => {
                if !what.contains("barrier") {
                    report.wrong.push(format!("refused a mount with {option} without naming it: {what}"));
                }
                Vec::new()
            }
            Err(e) => return Err(e),
            Ok(server) => {
                report.wrong.push(format!("a filesystem mounted with {option} was served"));
                let mut actor = setup(server.addr())?;
                self.make_dir(&mut actor, &stage.dir)?;
                let files = self.make_files(&mut actor, &stage.dir, &["a", "b", "c"])?;
                self.rig.control("keep_permille=0")?;
                self.end(server, &stage.plan)?;
                self.power_on(&stage.plan)?;
                files
            }
        };
        report.wrong.extend(missing(&self.rig.export(), &files));
        self.rig.unmount()?;
        self.rig.set_mount_options("");
        self.rig.mount()
    }
}

/// Writes zeroes over all of a device.
fn overwrite(device: &Path) -> Result<()> {
    let what = || format!("overwrite {}", device.display());
    let mut file = OpenOptions::new().write(true).open(device).context(what)?;
    loop {
        match file.write(&[0; ZEROES]) {
            Ok(0) => break,
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::StorageFull => break,
            Err(e) => return Err(e).context(what),
        }
    }
    file.sync_all().context(what)
}
