//! `landfast cp`: as GNU's. Trees go as sequences of members through the engine of `untar`, which puts many whole files into
//! one COMPOUND and has many COMPOUNDs under way.
//!
//! | room | subject |
//! |---|---|
//! | `args` | what can be typed, and what it means together |
//! | `asking` | `-i`: what is at the destination, looked at before it is copied over |
//! | `ends` | operands as places here and there; what each source is called at the destination |
//! | `outset` | a copy that begins together with its session |
//! | `say` | messages, output, the bar |

pub mod args;
mod asking;
mod ends;
mod outset;
mod say;

use super::operand::Place;
use super::owners::Known;
use super::tool::{self, Tool};
use super::{message, quote};
use crate::exit::Exit;
use crate::process::umask;
use crate::resume;
use args::CpArgs;
use asking::{Asking, Dest};
use ends::{End, Ends, Errand};
use landfast_client::copy::{
    How, LocalOptions, LocalStart, LocalTrees, RemoteOptions, RemoteStart, RemoteTrees, Sparse,
};
use landfast_client::fs::{Meta, Reflink, ServerCopies};
use landfast_client::local::Follow;
use landfast_client::put::{self, Existing, Members, Over, PutOptions, Report, Source, When, Xattrs};
use landfast_client::resume::{Job, JournalFile, Resume};
use landfast_nfs::v4::FileHandle;
use outset::Outset;
use say::{Say, Shown};
use std::collections::HashSet;
use std::sync::Arc;

/// Copies.
pub fn run(args: CpArgs) -> Exit {
    tool::run("cp", args.common, |tool| copy(tool, args))
}

async fn copy(mut tool: Tool, args: CpArgs) -> Tool {
    let journal = match journal(&args) {
        Ok(journal) => journal,
        Err(why) => {
            tool.complain(&why);
            return tool;
        }
    };
    if journal.is_none() {
        match outset::copy(&mut tool, &args).await {
            Outset::Copied(copied) => {
                tool.summary("copied", copied);
                return tool;
            }
            Outset::Told => return tool,
            Outset::Missing | Outset::Nothing => {}
        }
    }
    tool.servers.instance = journal.as_ref().map(JournalFile::instance);
    let before = journal.as_ref().and_then(|journal| journal.fact(INTO)).map(|into| into == "yes");
    let Some(Ends { root, handle, errands, into }) = ends::of(&mut tool, &args, before).await else {
        return tool;
    };
    if args.interactive
        && let Some(source) = asking::answers_from(&errands)
    {
        let name = quote::shown(&source.shown());
        tool.complain(&format!("-i: standard input is {name}, which is to be copied, and gives no answers"));
        return tool;
    }
    let facts = [(INTO.to_owned(), if into { "yes" } else { "no" }.to_owned())];
    let start = match resume::begin(journal, job(&args), facts.into()) {
        Ok(start) => start,
        Err(e) => {
            tool.complain(&e.to_string());
            return tool;
        }
    };
    if let (resume::Start::Finished(done), Some(path)) = (&start, &args.resume) {
        eprintln!("cp: {}", resume::finished(path, *done));
        tool.count_resumed(*done);
        tool.summary("copied", 0);
        return tool;
    }
    let journal = start.journal();
    if journal.is_some() {
        tool.count_resumed(0);
    }
    tool.stop_on_signals();
    let mut copied = 0;
    // Sources of one kind, and of one server, go together.
    let mut made: HashSet<Vec<u8>> = HashSet::new();
    let mut rest = &errands[..];
    while let [first, ..] = rest {
        let together = rest.iter().take_while(|errand| errand.source.beside(&first.source)).count();
        let (now, later) = rest.split_at(together);
        rest = later;
        let twice = |errand: &&Errand| !errand.is_dir && made.contains(&errand.name);
        for Errand { source, dest, .. } in now.iter().filter(twice) {
            let (from, to) = (quote::shown(&source.shown()), quote::shown(dest));
            tool.complain(&format!("will not overwrite just-created {to} with {from}"));
        }
        let now: Vec<Errand> = now.iter().filter(|errand| !twice(errand)).cloned().collect();
        made.extend(now.iter().map(|errand| errand.name.clone()));
        if !now.is_empty() {
            copied += some(&mut tool, (&args, journal.as_ref()), (&root, handle.as_ref()), &now).await;
        }
    }
    tool.close(journal.as_deref());
    tool.summary("copied", copied);
    tool
}

/// A fact of a journal: whether the destination was a directory at first.
const INTO: &str = "into";

/// The journal, if one is asked for.
fn journal(args: &CpArgs) -> Result<Option<JournalFile>, String> {
    let Some(path) = &args.resume else { return Ok(None) };
    if args.when() != When::Always {
        return Err("--resume does not go with -n, -u and -i: a file that an interrupted run left half written could not \
                    be told from one that is to stay"
            .to_owned());
    }
    JournalFile::open(path).map(Some).map_err(|e| e.to_string())
}

/// What a journal is of.
fn job(args: &CpArgs) -> Job {
    let mut operands: Vec<String> = args.operands.iter().map(|text| resume::either(text)).collect();
    let dest = match &args.target_directory {
        Some(dir) => Some(resume::either(dir)),
        None => operands.pop(),
    };
    resume::making_job("cp")
        .about("sources", operands.join(" "))
        .about("destination", dest.unwrap_or_default())
        .about("options", args.options())
}

/// How many objects are on stable storage.
async fn some(
    tool: &mut Tool,
    (args, journal): (&CpArgs, Option<&Arc<Resume>>),
    (root, handle): (&End, Option<&FileHandle>),
    errands: &[Errand],
) -> u64 {
    let shown = errands.iter().map(Shown::from).collect();
    let say = Arc::new(Say::new(shown, args.verbose, tool.json(), !args.interactive));
    let report = match root {
        End::There { place, .. } => {
            let root = match handle {
                Some(handle) => handle.clone(),
                None => match tool.servers.look(std::slice::from_ref(place), true).await.pop() {
                    Some(Ok(object)) if Meta::of(&object.attrs).is_dir() => object.fh,
                    Some(Err(e)) => return cannot_create(tool, errands, &message::of(&e)),
                    _ => return cannot_create(tool, errands, "Not a directory"),
                },
            };
            let session = tool.servers.nfs(place).session().clone();
            let copies = match copies(tool, args, place, errands).await {
                Ok(copies) => copies,
                Err(why) => return cannot_create(tool, errands, &why),
            };
            if args.reflink() == Reflink::Always && copies.is_none() {
                return cannot_clone(tool, errands);
            }
            let Some(source) = members(tool, (args, journal), errands, copies).await else { return 0 };
            let dest = Dest::There { nfs: tool.servers.nfs(place).clone(), root: place.joined() };
            let source = Source::members(asked(tool, args, (errands, source), dest, &say));
            match put::run_in(how(args, journal), &session, root, source, say.clone()).await {
                Ok(report) => report,
                Err(e) => {
                    tool.complain(&e.to_string());
                    Report::default()
                }
            }
        }
        End::Here { .. } if args.reflink() == Reflink::Always => return cannot_clone(tool, errands),
        End::Here { path } => {
            let opened = std::fs::File::open(path);
            let root = match opened.and_then(|file| file.metadata().map(|meta| (file, meta))) {
                Ok((file, meta)) if meta.is_dir() => file,
                Ok(_) => return cannot_create(tool, errands, "Not a directory"),
                Err(e) => return cannot_create(tool, errands, &ends::strerror(&e)),
            };
            let Some(source) = members(tool, (args, journal), errands, None).await else { return 0 };
            let dest = Dest::Here { root: path.clone() };
            let mut source = asked(tool, args, (errands, source), dest, &say);
            let holes = How { zeroes_to_holes: args.sparse() == Sparse::Always, ..How::default() };
            let (options, told) = (how(args, journal), say.clone());
            let written = tokio::task::spawn_blocking(move || {
                landfast_client::copy::write(&mut *source, root, &options, holes, &*told)
            });
            match written.await {
                Ok(report) => report,
                Err(e) => {
                    tool.complain(&e.to_string());
                    Report::default()
                }
            }
        }
    };
    if journal.is_some() {
        tool.count_resumed(report.resumed);
    }
    copied(tool, &say, &report)
}

/// How many objects of a report are on stable storage; the rest is told.
fn copied(tool: &Tool, say: &Say, report: &Report) -> u64 {
    tool.count_failures(say.end());
    if let Some(why) = &report.stopped {
        tool.complain(&format!("the rest was not copied: {why}"));
    }
    report.files + report.dirs + report.symlinks + report.hard_links + report.specials
}

/// What is copied, as members; all from here, or all from one server.
async fn members(
    tool: &Tool,
    (args, journal): (&CpArgs, Option<&Arc<Resume>>),
    errands: &[Errand],
    copies: Option<Arc<ServerCopies>>,
) -> Option<Box<dyn Members>> {
    let (links, stop) = (args.preserve().links, tool.stop_flag());
    let mut places: Vec<Place> = Vec::new();
    let mut starts: Vec<LocalStart> = Vec::new();
    for Errand { source, name, .. } in errands {
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
            sparse: args.sparse(),
            xattrs: args.preserve().xattrs != Xattrs::No,
            stop,
            resume: journal.cloned(),
        };
        return Some(Box::new(LocalTrees::new(starts, options)));
    };
    if args.recursive() && args.follow() == Follow::Always {
        tool.complain("-L goes with trees of this machine only: those of a server are copied with -P or -H");
        return None;
    }
    let known: Option<Vec<_>> = errands.iter().map(|errand| errand.found.clone().map(Ok)).collect();
    let found = match known {
        Some(known) => known,
        None => tool.servers.look(&places, args.follow() != Follow::Never).await,
    };
    let mut starts = Vec::with_capacity(places.len());
    for (errand, found) in errands.iter().zip(found) {
        match found {
            Ok(object) => starts.push(RemoteStart::of(object, errand.name.clone())),
            Err(e) => {
                let name = quote::shown(&errand.source.shown());
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
    Some(Box::new(RemoteTrees::new(nfs, starts, options, Box::new(Known::default()))))
}

/// The same, asked about with `-i`.
fn asked(
    tool: &Tool,
    args: &CpArgs,
    (errands, members): (&[Errand], Box<dyn Members>),
    dest: Dest,
    say: &Arc<Say>,
) -> Box<dyn Members> {
    match args.interactive {
        true => Box::new(Asking::new(members, dest, (args, errands), (tool, say))),
        false => members,
    }
}

/// How the server of the destination copies what it has itself; `None`: all goes through this machine.
async fn copies(
    tool: &Tool,
    args: &CpArgs,
    root: &Place,
    errands: &[Errand],
) -> Result<Option<Arc<ServerCopies>>, String> {
    let Some(End::There { place, .. }) = errands.first().map(|errand| &errand.source) else {
        return Ok(None);
    };
    let (from, to) = (tool.servers.nfs(place).session(), tool.servers.nfs(root).session());
    // What the one may read the other need not.
    if !place.on_one_server(root) || from.options().identity != to.options().identity {
        return Ok(None);
    }
    ServerCopies::of(to, args.reflink()).await.map_err(|e| e.to_string())
}

/// The engine's options.
fn how(args: &CpArgs, journal: Option<&Arc<Resume>>) -> PutOptions {
    let preserve = args.preserve();
    let root = landfast_client::cred::Identity::of_process();
    let over = Over {
        when: args.when(),
        set_mode: preserve.mode,
        split_links: preserve.links,
        force: args.force,
        remove: args.remove_destination,
    };
    let mut groups = root.groups.clone();
    groups.push(root.gid);
    PutOptions {
        same_permissions: Some(preserve.mode),
        // Only root may give files away; others give what they can, as GNU cp does.
        same_owner: Some(preserve.ownership && root.uid == 0),
        own_groups: preserve.ownership.then_some(groups),
        touch: !preserve.timestamps,
        existing: Existing::Look(over),
        umask: umask(),
        xattrs: preserve.xattrs,
        resume: journal.cloned(),
        ..PutOptions::default()
    }
}

/// Storage is shared by a server that speaks 4.2, with itself.
fn cannot_clone(tool: &Tool, errands: &[Errand]) -> u64 {
    for Errand { source, dest, .. } in errands {
        let (from, to) = (quote::shown(&source.shown()), quote::shown(dest));
        tool.complain(&format!("failed to clone {to} from {from}: Operation not supported"));
    }
    0
}

/// The destination's directory is not there.
fn cannot_create(tool: &Tool, errands: &[Errand], why: &str) -> u64 {
    for errand in errands {
        let what = if errand.is_dir { "directory" } else { "regular file" };
        tool.complain(&format!("cannot create {what} {}: {why}", quote::shown(&errand.dest)));
    }
    0
}
