//! Starts a copy from this machine together with its session: before the server has answered, files are on their way
//! into the destination, which is assumed to be a directory. If it is not, nothing was changed, and the copy starts
//! again the slow way, with a look at everything first.

use super::super::operand::Operand;
use super::super::quote;
use super::super::tool::Tool;
use super::args::CpArgs;
use super::ends::{self, End, Ends};
use super::say::{CopyOutput, Shown, copied};
use super::sources::{how, members};
use landfast_client::NfsUrl;
use landfast_client::fs::Reflink;
use landfast_client::put::{self, FatalError, PutOptions, Report, Source};
use landfast_nfs::v4::NfsStat;
use std::sync::Arc;

pub enum EarlyOutcome {
    /// This many objects are durable; failures were printed.
    Copied(u64),
    /// Nothing can be done, and the reason was printed.
    Told,
    Missing,
    /// The copy must be done the slow way.
    NotTried,
}

pub async fn copy(tool: &mut Tool, args: &CpArgs) -> EarlyOutcome {
    // `-i` asks before anything is sent, and a server cannot clone files of this machine.
    if args.interactive || args.reflink == Reflink::Always {
        return EarlyOutcome::NotTried;
    }
    // The destination mostly is a directory; otherwise it mostly does not exist.
    for into in [true, false] {
        let Some((operand, ends)) = ends::supposed(tool, args, into).await else { continue };
        match begin(tool, args, &operand, ends).await {
            EarlyOutcome::Missing if into => {}
            done => return done,
        }
    }
    EarlyOutcome::NotTried
}

async fn begin(tool: &mut Tool, args: &CpArgs, operand: &Operand, ends: Ends) -> EarlyOutcome {
    let Ends { root: End::There { place, .. }, tasks, .. } = ends else { return EarlyOutcome::NotTried };
    let Some(members) = members(tool, (args, None), &tasks, None).await else { return EarlyOutcome::Told };
    let say =
        Arc::new(CopyOutput::new(tasks.iter().map(Shown::from).collect(), args.verbose, tool.json(), true));
    let options = PutOptions { stop: Some(tool.stop_on_signals()), ..how(args, None) };
    let (source, path) = (Source::members(members), &place.path);
    let known = tool.servers.trees().next().map(|nfs| nfs.session().clone());
    let started = match &known {
        Some(session) => put::start_in(options, session, source, path, say.clone()).await,
        None => {
            let session = tool.servers.options(&NfsUrl { path: Vec::new(), ..operand.url.clone() });
            put::start(options, session, source, path, say.clone()).await
        }
    };
    let started = match started {
        Ok(started) => started,
        Err(FatalError::Stopped) => return EarlyOutcome::Copied(copied(tool, &say, &Report::default())),
        Err(e) => {
            say.end();
            tool.complain(&format!("cannot reach {}: {e}", quote::shown(operand.shown.as_bytes())));
            return EarlyOutcome::Told;
        }
    };
    if known.is_none() {
        tool.servers.first(&operand.url, started.session().clone());
        tool.stop_on_signals();
    }
    if let Err(e) = started.destination() {
        say.end();
        return match e {
            FatalError::Destination { source, .. } if source.status() == Some(NfsStat::NFS4ERR_NOENT) => {
                EarlyOutcome::Missing
            }
            _ => EarlyOutcome::NotTried,
        };
    }
    let report = started.go_on().await.unwrap_or_else(|e| {
        tool.complain(&e.to_string());
        Report::default()
    });
    EarlyOutcome::Copied(copied(tool, &say, &report))
}
