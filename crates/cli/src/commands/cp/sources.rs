//! The members that are copied, and the engine's options.

use super::super::operand::Place;
use super::super::owners::LocalNames;
use super::super::tool::Tool;
use super::super::{message, quote};
use super::args::CpArgs;
use super::ends::{CopyTask, End};
use crate::process::umask;
use landfast_client::copy::{LocalOptions, LocalStart, LocalTrees, RemoteOptions, RemoteStart, RemoteTrees};
use landfast_client::fs::ServerCopies;
use landfast_client::local::Follow;
use landfast_client::put::{Existing, Members, Over, PutOptions, Xattrs};
use landfast_client::resume::Resume;
use std::sync::Arc;

/// The sources as members; all are on this machine, or all on one server.
pub async fn members(
    tool: &Tool,
    (args, journal): (&CpArgs, Option<&Arc<Resume>>),
    tasks: &[CopyTask],
    copies: Option<Arc<ServerCopies>>,
) -> Option<Box<dyn Members>> {
    let (links, stop) = (args.preserve().links, tool.stop_flag());
    let mut places: Vec<Place> = Vec::new();
    let mut starts: Vec<LocalStart> = Vec::new();
    for CopyTask { source, name, .. } in tasks {
        match source {
            End::Here { path } => starts.push(LocalStart { path: path.clone(), name: name.clone() }),
            End::There { place, .. } => places.push(place.clone()),
        }
    }
    let Some(first) = places.first() else {
        let options = LocalOptions {
            follow: args.follow(),
            one_file_system: args.one_file_system,
            recursive: args.recursive(),
            links,
            sparse: args.sparse,
            xattrs: args.preserve().xattrs != Xattrs::No,
            stop,
            resume: journal.cloned(),
        };
        return Some(Box::new(LocalTrees::new(starts, options)));
    };
    if args.recursive() && args.follow() == Follow::Always {
        tool.complain("-L is only possible for trees of this machine: copy those of a server with -P or -H");
        return None;
    }
    let known: Option<Vec<_>> = tasks.iter().map(|task| task.found.clone().map(Ok)).collect();
    let found = match known {
        Some(known) => known,
        None => tool.servers.look(&places, args.follow() != Follow::Never).await,
    };
    let mut starts = Vec::with_capacity(places.len());
    for (task, found) in tasks.iter().zip(found) {
        match found {
            Ok(object) => starts.push(RemoteStart::of(object, task.name.clone())),
            Err(e) => {
                let name = quote::shown(&task.source.shown());
                tool.complain(&format!("cannot stat {name}: {}", message::of(&e)));
            }
        }
    }
    let nfs = tool.servers.nfs(first);
    let xattrs = match (args.preserve().xattrs, starts.first()) {
        (Xattrs::Try | Xattrs::Must, Some(start)) => nfs.has_xattrs(&start.fh).await,
        _ => false,
    };
    let options = RemoteOptions {
        one_file_system: args.one_file_system,
        links,
        copies,
        xattrs,
        exact: false,
        stop,
        resume: journal.cloned(),
    };
    Some(Box::new(RemoteTrees::new(nfs, starts, options, Box::new(LocalNames::default()))))
}

pub fn how(args: &CpArgs, journal: Option<&Arc<Resume>>) -> PutOptions {
    let preserve = args.preserve();
    let user = landfast_client::cred::Identity::of_process();
    let over = Over {
        when: args.when(),
        set_mode: preserve.mode,
        split_links: preserve.links,
        force: args.force,
        remove: args.remove_destination,
    };
    PutOptions {
        same_permissions: Some(preserve.mode),
        // Only root may give files away. GNU cp, too, lets other users keep what ownership they can.
        same_owner: Some(preserve.ownership && user.uid == 0),
        own: preserve.ownership.then_some(user),
        touch: !preserve.timestamps,
        existing: Existing::Look(over),
        umask: umask(),
        xattrs: preserve.xattrs,
        resume: journal.cloned(),
        ..PutOptions::default()
    }
}
