//! An administrator who changes the tree while the server is down, or its attributes while it is up.

use super::{File, Stage, missing};
use crate::error::{Context, Error, Result};
use crate::mounts::{run, syncfs};
use crate::powercut::options::CutReport;
use crate::powercut::run::Harness;
use crate::serial::Action;
use std::path::Path;
use std::process::Command;

/// What the administrator writes.
const HIS: &[u8] = b"put there while the server was down";

impl Harness<'_> {
    /// Between the end and the next start an administrator removes a file, moves one, and makes one. The server must start all the
    /// same; what was not touched is as it was, what was made or moved is where the administrator put it.
    pub(super) fn administrator(&mut self, stage: &Stage, report: &mut CutReport) -> Result<()> {
        let (server, mut actor) = self.begin_scene(stage)?;
        let files = self.make_files(&mut actor, &stage.dir, &["removed", "moved", "kept", "other"])?;
        if stage.plan.ahead {
            syncfs(&self.rig.export())?;
        }
        self.end(server, &stage.plan)?;
        self.power_on(&stage.plan)?;
        let dir = self.rig.export().join(&stage.dir);
        // What the cut has removed cannot be touched.
        let at = |name: &str| dir.join(name);
        let mut there: Vec<File> = files[2..].to_vec();
        let said = |what: &str| format!("{what} in {}", stage.dir);
        if at("removed").exists() {
            std::fs::remove_file(at("removed")).context(|| said("remove a file"))?;
        }
        // One that the cut has half taken is moved as it is, and may be moved only if it is whole.
        if missing(&self.rig.export(), &files[1..2]).is_empty() {
            std::fs::rename(at("moved"), at("elsewhere")).context(|| said("move a file"))?;
            there.push((format!("{}/elsewhere", stage.dir), files[1].1.clone()));
        }
        if dir.exists() {
            std::fs::write(at("his"), HIS).context(|| said("make a file"))?;
            there.push((format!("{}/his", stage.dir), HIS.to_vec()));
        }
        self.has_all(&there, report)?;
        // Recovery may bring it back; then whole.
        if at("removed").exists() {
            report.wrong.extend(missing(&self.rig.export(), &files[..1]));
        }
        Ok(())
    }

    /// A directory that hands a project down, as `xfs_quota` sets it: what is made in it cannot be moved in from elsewhere
    /// (`EXDEV`). All that was made in it and lost is made again.
    pub(super) fn project(&mut self, stage: &Stage, report: &mut CutReport) -> Result<()> {
        let (server, mut actor) = self.begin_scene(stage)?;
        give_project(&self.rig.export().join(&stage.dir))?;
        syncfs(&self.rig.export())?;
        // Nothing else of what follows gets to the disk.
        self.rig.control("keep_permille=0")?;
        let mut files = self.make_files(&mut actor, &stage.dir, &["a", "b", "c"])?;
        let below = format!("{}/below", stage.dir);
        self.make_dir(&mut actor, &below)?;
        files.extend(self.make_files(&mut actor, &below, &["d"])?);
        let to = format!("{below}/moved");
        actor.perform(&Action::Rename { from: files[0].0.clone().into(), to: to.clone().into() })?;
        files[0].0 = to;
        self.end(server, &stage.plan)?;
        self.come_back_with(stage, &files, report)
    }
}

fn give_project(dir: &Path) -> Result<()> {
    match run(Command::new("chattr").args(["+P", "-p", "42"]).arg(dir), "e2fsprogs") {
        Ok(_) => Ok(()),
        Err(e) => Err(Error::Unable(format!("a project of {}: {e}", dir.display()))),
    }
}
