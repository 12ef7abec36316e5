//! A server of a directory within another's, a start without the log, and two exports.

use super::{Stage, make, wait_until, wait_within};
use crate::error::{Context, Error, Result};
use crate::powercut::options::CutReport;
use crate::powercut::run::{Harness, setup};
use crate::rig::Latency;
use crate::serial::Action;
use crate::serial::session::{self, Connect, Session};
use crate::serial::v3::{self, Actor3};
use crate::served::{Other, ServeOptions, Served};
use landfast_nfs::v4::args::{CreateArgs, CreateType};
use landfast_nfs::v4::{ArgOp, AttrValues};
use landfast_xdr::Bytes;
use std::time::Duration;

/// A flush that takes longer than everything else meanwhile.
const HELD: Duration = Duration::from_secs(3);

/// How long the second export's log is waited for, whose flush takes no time. That the reply is not written down yet is right, too.
const FLUSHED_WITHIN: Duration = Duration::from_millis(1500);

impl Harness<'_> {
    /// A second server of a directory within the first one's is refused.
    pub(super) fn nested(&mut self, stage: &Stage, report: &mut CutReport) -> Result<()> {
        let (server, mut actor) = self.begin_scene(stage)?;
        let files = self.make_files(&mut actor, &stage.dir, &["a"])?;
        let within = ServeOptions {
            dir: self.rig.export().join(&stage.dir),
            ..self.serve_options(None)?.without_log()
        };
        match Served::start(&within) {
            Err(Error::Child { what, .. }) if what.contains("landfast") => {}
            Err(Error::Child { what, .. }) => {
                report.wrong.push(format!("refused a directory within its own without saying why: {what}"));
            }
            Err(e) => return Err(e),
            Ok(second) => {
                report.wrong.push("a second server was let into the first one's directory".to_owned());
                second.kill();
            }
        }
        self.end(server, &stage.plan)?;
        self.come_back_with(stage, &files, report)
    }

    /// A file is removed, then made again while the server runs without the log. When the log is back, a call with the xid of the
    /// first removal is a new call and must remove the file.
    pub(super) fn without_log(&mut self, stage: &Stage, report: &mut CutReport) -> Result<()> {
        let (server, mut actor) = self.begin_scene(stage)?;
        let files = self.make_files(&mut actor, &stage.dir, &["f"])?;
        actor.into_session().close()?;
        let mut client = Actor3::connect(server.addr(), "", self.xid())?;
        client.act(&Action::Remove { path: files[0].0.clone().into() })?;
        let Some(sent) = client.recent().pop() else {
            return Err(Error::Protocol("a call that is not remembered".to_owned()));
        };
        server.stop()?;
        let server = Served::start(&self.serve_options(None)?.without_log())?;
        let mut actor = setup(server.addr())?;
        make(&mut actor, &files[0])?;
        actor.into_session().close()?;
        server.stop()?;
        let server = self.serve()?;
        client.reconnect(server.addr())?;
        let told = v3::learn(&sent.call, client.repeat(&sent)?).map(drop);
        let there = |harness: &Self| harness.rig.export().join(&files[0].0).exists();
        match told {
            Ok(()) if there(self) => report.wrong.push("a new call got an old reply".to_owned()),
            Ok(()) => {}
            Err(e) => report.wrong.push(format!("a new call under an old number: {e}")),
        }
        self.end(server, &stage.plan)?;
        self.come_back_with(stage, &[], report)?;
        if there(self) {
            report.wrong.push(format!("{} was removed, and is there again", files[0].0));
        }
        Ok(())
    }

    /// One request makes a directory in each of two exports. Power goes when the second one's log has its part and the first one's
    /// has not. Whoever repeats the request is told what is so.
    pub(super) fn two_exports(&mut self, stage: &Stage, report: &mut CutReport) -> Result<()> {
        let volume = self.rig.scratch().join("volume");
        let second = Other {
            dir: volume.join(format!("{}-second", stage.dir)),
            name: "second".to_owned(),
            log: volume.join(format!("{}-second.log", stage.dir)),
        };
        std::fs::create_dir(&second.dir).context(|| format!("make {}", second.dir.display()))?;
        let made = [self.rig.export(), second.dir.clone()].map(|export| export.join(&stage.dir));
        let options = ServeOptions { others: vec![second], ..self.serve_options(None)? };
        let server = Served::start(&options)?;
        crate::mounts::syncfs(&self.rig.export())?;
        let mut client = Session::connect(&Connect::new(server.addr(), "two exports"))?;
        self.rig.control("keep_permille=0")?;
        self.rig.set_latency(Latency { data_flush: Duration::ZERO, log_flush: HELD })?;
        let ops = ["first", "second"].into_iter().flat_map(|export| {
            let create = CreateArgs {
                kind: CreateType::Dir,
                name: Bytes::from(stage.dir.clone()),
                attrs: AttrValues { mode: Some(0o755), ..AttrValues::default() }.to_fattr(&AttrValues::KNOWN),
            };
            let export = Bytes::from_static(export.as_bytes());
            [ArgOp::Putrootfh, ArgOp::Lookup(export), ArgOp::Create(create)]
        });
        let ops: Vec<ArgOp> = ops.collect();
        let client = std::thread::scope(|scope| -> Result<Option<Session>> {
            let before = self.rig.stats()?.data.flushes;
            let asking = scope.spawn(move || {
                let told = client.compound(ops);
                (client, told.is_ok())
            });
            wait_until(|| Ok(made.iter().all(|dir| dir.exists()) || asking.is_finished()))?;
            wait_within(FLUSHED_WITHIN, || Ok(self.rig.stats()?.data.flushes > before))?;
            self.end(server, &stage.plan)?;
            let asked = asking.join().map_err(|_| Error::Protocol("a client's thread ended".to_owned()))?;
            Ok((!asked.1).then_some(asked.0))
        })?;
        self.rig.set_latency(Latency::default())?;
        self.power_on(&stage.plan)?;
        let server = match Served::start(&options) {
            Err(e @ Error::Child { .. }) => {
                report.wrong.push(format!("no recovery: {e}"));
                return Ok(());
            }
            started => started?,
        };
        // It was answered before the power went, on a machine that was very slow.
        if let Some(mut client) = client {
            client.reconnect(server.addr())?;
            let sent = client.last_requests().pop().filter(session::Sent::is_kept);
            if let Some(sent) = sent {
                let told = session::results(client.repeat(&sent)?);
                if told.is_ok() {
                    let lost = made.iter().filter(|dir| !dir.exists());
                    let lost =
                        lost.map(|dir| format!("told that {} was made: it is not there", dir.display()));
                    report.wrong.extend(lost);
                }
            }
        }
        server.stop()
    }
}
