//! Scenes in which more than clients act: an administrator, a disk, another server. Each cut has the next scene; it ends with a
//! power cut or a `kill -9`, after which everything acknowledged must be there.
//!
//! | room | subject |
//! |---|---|
//! | `people` | an administrator who changes the tree, or its attributes |
//! | `disks` | a disk with a block that cannot be written any more, a log that is overwritten, a filesystem without flushes |
//! | `servers` | a server of a directory within another's, a start without the log, two exports |

mod disks;
mod people;
mod servers;

use super::options::{CutReport, Variant};
use super::run::{Harness, Plan, millis, setup};
use crate::error::{Error, Result};
use crate::limits::SCENE_PATIENCE;
use crate::mounts::Filesystem;
use crate::rig::Latency;
use crate::serial::{Action, Actor, Node};
use crate::served::{Durability, Served};
use std::path::Path;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scene {
    /// Somebody removes, moves and makes files between the cut and the start.
    Administrator,
    /// A directory whose project new objects inherit.
    Project,
    /// Unstable data cannot be written back, and the error goes to another process.
    Unwritten,
    /// Somebody writes over the log while it is in use.
    Overwritten,
    /// A filesystem that is mounted without flushes.
    Unflushed,
    /// A second server of a directory within the first one's.
    Nested,
    /// A start without the log, then again with it.
    WithoutLog,
    /// One request changes two exports with a log each.
    TwoExports,
}

impl Scene {
    const ALL: [(Scene, &str); 8] = [
        (Scene::Administrator, "administrator"),
        (Scene::Project, "project"),
        (Scene::Unwritten, "unwritten"),
        (Scene::Overwritten, "overwritten log"),
        (Scene::Unflushed, "mounted without flushes"),
        (Scene::Nested, "nested directories"),
        (Scene::WithoutLog, "a time without the log"),
        (Scene::TwoExports, "two exports"),
    ];

    fn is_possible(self, fs: Filesystem, durability: Durability) -> bool {
        match self {
            Scene::Overwritten | Scene::WithoutLog if durability != Durability::Log => false,
            // btrfs flushes all that there is when a log in a file is flushed.
            Scene::TwoExports => durability == Durability::Log && fs != Filesystem::Btrfs,
            // ext4's is made without projects.
            Scene::Project => fs == Filesystem::Xfs,
            // XFS has no such option.
            Scene::Unflushed => fs != Filesystem::Xfs,
            _ => true,
        }
    }
}

/// A scene, its own directory in the export, and how it ends.
struct Stage {
    scene: Scene,
    dir: String,
    plan: Plan,
}

type File = (String, Vec<u8>);

impl Harness<'_> {
    pub(super) fn cut_scene(&mut self, n: u32) -> Result<CutReport> {
        let here = |scene: Scene| scene.is_possible(self.options.fs, self.options.durability);
        let possible: Vec<_> = Scene::ALL.into_iter().filter(|(scene, _)| here(*scene)).collect();
        // Not each series begins with the same one.
        let turn = self.options.seed.wrapping_add(u64::from(n)) % possible.len() as u64;
        let (scene, name) = possible[turn as usize];
        let mut plan = self.plan();
        plan.point = None;
        plan.at_once = true;
        // What could not be written back is not tried again.
        plan.ahead &= scene != Scene::Unwritten;
        let may_be_killed = !matches!(
            scene,
            Scene::Project | Scene::Unwritten | Scene::Unflushed | Scene::TwoExports | Scene::Overwritten
        );
        plan.variant = match self.options.variant {
            Some(Variant::Kill) | None if may_be_killed && self.rng.chance(400) => Variant::Kill,
            _ => Variant::Power,
        };
        let mut report = CutReport { cut: n, how: plan.variant.name().to_owned(), ..CutReport::default() };
        self.weather(plan.variant)?;
        self.rig.set_latency(Latency::default())?;
        let stage = Stage { scene, dir: format!("scene{n}"), plan };
        let begun = Instant::now();
        match self.play(&stage, &mut report) {
            // Whatever the scene before has left, a server starts with it.
            Err(e @ Error::Child { role: "server", .. }) => report.wrong.push(e.to_string()),
            done => done?,
        }
        report.after_ms = millis(begun);
        for wrong in &mut report.wrong {
            *wrong = format!("{name}: {wrong}");
        }
        self.after(&stage.plan, &mut report)?;
        Ok(report)
    }

    fn play(&mut self, stage: &Stage, report: &mut CutReport) -> Result<()> {
        match stage.scene {
            Scene::Administrator => self.administrator(stage, report),
            Scene::Project => self.project(stage, report),
            Scene::Unwritten => self.unwritten(stage, report),
            Scene::Overwritten => self.overwritten(stage, report),
            Scene::Unflushed => self.unflushed(stage, report),
            Scene::Nested => self.nested(stage, report),
            Scene::WithoutLog => self.without_log(stage, report),
            Scene::TwoExports => self.two_exports(stage, report),
        }
    }

    /// The power comes back, the server starts, and all of `files` must be there.
    fn come_back_with(&mut self, stage: &Stage, files: &[File], report: &mut CutReport) -> Result<()> {
        self.power_on(&stage.plan)?;
        self.has_all(files, report)
    }

    /// The server starts, and all of `files` must be there.
    fn has_all(&mut self, files: &[File], report: &mut CutReport) -> Result<()> {
        let Some(server) = self.start_again(report)? else { return Ok(()) };
        report.acknowledged += files.len() as u64;
        report.objects += files.len() as u64;
        report.wrong.extend(missing(&self.rig.export(), files));
        let mut actor = setup(server.addr())?;
        for (path, contents) in files {
            let read = |actor: &mut Actor| -> Result<bool> {
                let fh = actor.handle(path.as_bytes())?;
                let count = u32::try_from(contents.len()).unwrap_or(u32::MAX);
                Ok(actor.read(&fh, 0, count)? == contents.as_slice())
            };
            match read(&mut actor) {
                Ok(true) => {}
                Ok(false) => report.wrong.push(format!("{path} has something else, over NFS")),
                Err(e @ Error::Nfs { .. }) => report.wrong.push(format!("{path}: {e}")),
                Err(e) => return Err(e),
            }
        }
        actor.into_session().close()?;
        if let Err(e) = server.stop() {
            report.wrong.push(format!("after recovery: {e}"));
        }
        Ok(())
    }

    /// A server, a client of it, and the scene's directory.
    fn begin_scene(&self, stage: &Stage) -> Result<(Served, Actor)> {
        let server = self.serve()?;
        let mut actor = setup(server.addr())?;
        self.make_dir(&mut actor, &stage.dir)?;
        Ok((server, actor))
    }

    /// A directory, acknowledged when this returns.
    fn make_dir(&self, actor: &mut Actor, path: &str) -> Result<()> {
        actor.perform(&Action::Make { path: path.into(), node: Node::Dir, mode: 0o755 }).map(drop)
    }

    /// Files with names of their own, acknowledged when this returns.
    fn make_files(&mut self, actor: &mut Actor, dir: &str, names: &[&str]) -> Result<Vec<File>> {
        let mut files = Vec::new();
        for name in names {
            let mut contents = vec![0; 1 + self.rng.below(FILE_BYTES_MAX) as usize];
            self.rng.fill(&mut contents);
            files.push((format!("{dir}/{name}"), contents));
        }
        files.iter().try_for_each(|file| make(actor, file))?;
        Ok(files)
    }
}

/// More than ext4 keeps in an inode now and then, less than is not copied into the log.
const FILE_BYTES_MAX: u64 = 8 << 10;

/// One file, acknowledged when this returns.
fn make(actor: &mut Actor, (path, contents): &File) -> Result<()> {
    let path = path.clone().into_bytes();
    let data = contents.clone().into();
    actor.perform(&Action::Create { path: path.clone(), mode: 0o644 })?;
    actor.perform(&Action::Write { path: path.clone(), offset: 0, data, stable: true })?;
    actor.perform(&Action::Close { path }).map(drop)
}

/// The files that are not on the disk as they must be.
fn missing(export: &Path, files: &[File]) -> Vec<String> {
    let judge = |(path, contents): &File| match std::fs::read(export.join(path)) {
        Ok(found) if found == *contents => None,
        Ok(found) => Some(format!("{path} has {} bytes that nobody has written", found.len())),
        Err(e) => Some(format!("{path} is missing ({e})")),
    };
    files.iter().filter_map(judge).collect()
}

/// Polls for something for which there is no event. False after the time limit.
fn wait_until(is_so: impl FnMut() -> Result<bool>) -> Result<bool> {
    wait_within(SCENE_PATIENCE, is_so)
}

fn wait_within(patience: Duration, mut is_so: impl FnMut() -> Result<bool>) -> Result<bool> {
    let until = Instant::now() + patience;
    loop {
        if is_so()? {
            return Ok(true);
        }
        if Instant::now() > until {
            return Ok(false);
        }
        std::thread::sleep(POLL);
    }
}

const POLL: Duration = Duration::from_millis(2);
