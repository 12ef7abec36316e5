//! A copy from here that begins together with its session: before the server has answered, what is copied is on its way into the
//! directory that the destination mostly is. Where it is none, nothing was done, and all is looked at in its order.

use super::super::operand::Operand;
use super::super::quote;
use super::super::tool::Tool;
use super::args::CpArgs;
use super::ends::{self, End, Ends};
use super::say::{Say, Shown, copied};
use super::sources::{how, members};
use landfast_client::NfsUrl;
use landfast_client::fs::Reflink;
use landfast_client::put::{self, FatalError, PutOptions, Report, Source};
use landfast_nfs::v4::NfsStat;
use std::sync::Arc;

/// What came of it.
pub enum Early {
    /// So many objects are on stable storage; what is not was told.
    Copied(u64),
    /// Nothing can be done, and it was told why.
    Told,
    /// The destination is not there.
    Missing,
    /// It is to be done in another way.
    NotTried,
}

/// Copies, if it can be begun so.
pub async fn copy(tool: &mut Tool, args: &CpArgs) -> Early {
    // What is there is asked about before anything is sent; and a server makes no clones of what is here.
    if args.interactive || args.reflink() == Reflink::Always {
        return Early::NotTried;
    }
    // Mostly a directory, and then nothing yet.
    for into in [true, false] {
        let Some((operand, ends)) = ends::supposed(tool, args, into).await else { continue };
        match begin(tool, args, &operand, ends).await {
            Early::Missing if into => {}
            done => return done,
        }
    }
    Early::NotTried
}

async fn begin(tool: &mut Tool, args: &CpArgs, operand: &Operand, ends: Ends) -> Early {
    let Ends { root: End::There { place, .. }, errands, .. } = ends else { return Early::NotTried };
    let Some(members) = members(tool, (args, None), &errands, None).await else { return Early::Told };
    let say = Arc::new(Say::new(errands.iter().map(Shown::from).collect(), args.verbose, tool.json(), true));
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
        Err(FatalError::Stopped) => return Early::Copied(copied(tool, &say, &Report::default())),
        Err(e) => {
            say.end();
            tool.complain(&format!("cannot reach {}: {e}", quote::shown(operand.shown.as_bytes())));
            return Early::Told;
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
                Early::Missing
            }
            _ => Early::NotTried,
        };
    }
    let report = started.go_on().await.unwrap_or_else(|e| {
        tool.complain(&e.to_string());
        Report::default()
    });
    Early::Copied(copied(tool, &say, &report))
}
