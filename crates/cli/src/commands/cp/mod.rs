//! `landfast cp`, as GNU's. A tree becomes a sequence of members for the engine of `untar`, which puts many whole
//! files into one COMPOUND and keeps many COMPOUNDs in flight.
//!
//! | file | subject |
//! |---|---|
//! | `args` | the arguments, and what they mean together |
//! | `asking` | `-i`: the question before a file is overwritten |
//! | `ends` | operands as places here and on servers; the name of each copy |
//! | `early` | a copy that starts together with its session |
//! | `say` | messages, output, the progress bar |
//! | `sources` | the members that are copied, and the engine's options |

pub mod args;
mod asking;
mod early;
mod ends;
mod say;
mod sources;

use super::operand::Place;
use super::tool::{self, Tool};
use super::{message, quote};
use crate::exit::Exit;
use crate::resume;
use args::CpArgs;
use asking::{Asking, Dest};
use early::Early;
use ends::{End, Ends, Errand};
use landfast_client::copy::{Sparse, WriteOptions};
use landfast_client::fs::{Meta, Reflink, ServerCopies};
use landfast_client::put::{self, Members, Report, Source, When};
use landfast_client::resume::{Job, JournalFile, Resume};
use landfast_nfs::v4::FileHandle;
use say::{Say, Shown, copied};
use sources::{how, members};
use std::collections::HashSet;
use std::sync::Arc;

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
        match early::copy(&mut tool, &args).await {
            Early::Copied(copied) => {
                tool.summary("copied", copied);
                return tool;
            }
            Early::Told => return tool,
            Early::Missing | Early::NotTried => {}
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
        tool.complain(&format!(
            "-i: standard input is {name}, which is one of the sources, so it cannot give answers"
        ));
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
    // Neighbouring sources from the same place are copied together.
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

/// The journal's fact that says whether the destination was a directory when the job began.
const INTO: &str = "into";

fn journal(args: &CpArgs) -> Result<Option<JournalFile>, String> {
    let Some(path) = &args.resume else { return Ok(None) };
    if args.when() != When::Always {
        return Err("--resume cannot be used with -n, -u or -i: a file that an interrupted run left half written could not \
                    be told from one that is to stay"
            .to_owned());
    }
    JournalFile::open(path).map(Some).map_err(|e| e.to_string())
}

fn job(args: &CpArgs) -> Job {
    let mut operands: Vec<String> = args.operands.iter().map(|text| resume::operand_key(text)).collect();
    let dest = match &args.target_directory {
        Some(dir) => Some(resume::operand_key(dir)),
        None => operands.pop(),
    };
    resume::file_job("cp")
        .about("sources", operands.join(" "))
        .about("destination", dest.unwrap_or_default())
        .about("options", args.options())
}

/// Copies sources from one place. Returns how many objects are durable.
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
            if args.reflink == Reflink::Always && copies.is_none() {
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
        End::Here { .. } if args.reflink == Reflink::Always => return cannot_clone(tool, errands),
        End::Here { path } => {
            let opened = std::fs::File::open(path);
            let root = match opened.and_then(|file| file.metadata().map(|meta| (file, meta))) {
                Ok((file, meta)) if meta.is_dir() => file,
                Ok(_) => return cannot_create(tool, errands, "Not a directory"),
                Err(e) => return cannot_create(tool, errands, &message::plain(&e)),
            };
            let Some(source) = members(tool, (args, journal), errands, None).await else { return 0 };
            let dest = Dest::Here { root: path.clone() };
            let mut source = asked(tool, args, (errands, source), dest, &say);
            let holes =
                WriteOptions { zeroes_to_holes: args.sparse == Sparse::Always, ..WriteOptions::default() };
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

/// Wraps the members into the questions of `-i`.
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

/// How the server of the destination copies files that it has itself; `None`: all data goes through this machine.
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
    // One identity may be allowed to read what the other may not.
    if !place.on_one_server(root) || from.options().identity != to.options().identity {
        return Ok(None);
    }
    ServerCopies::of(to, args.reflink).await.map_err(|e| e.to_string())
}

/// Only a server that speaks 4.2 can share storage, and only within itself.
fn cannot_clone(tool: &Tool, errands: &[Errand]) -> u64 {
    for Errand { source, dest, .. } in errands {
        let (from, to) = (quote::shown(&source.shown()), quote::shown(dest));
        tool.complain(&format!("failed to clone {to} from {from}: Operation not supported"));
    }
    0
}

/// Prints a failure for each source: the destination's directory cannot be used.
fn cannot_create(tool: &Tool, errands: &[Errand], why: &str) -> u64 {
    for errand in errands {
        let what = if errand.is_dir { "directory" } else { "regular file" };
        tool.complain(&format!("cannot create {what} {}: {why}", quote::shown(&errand.dest)));
    }
    0
}
