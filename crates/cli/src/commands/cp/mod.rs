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
use early::EarlyOutcome;
use ends::{CopyTask, End, Ends};
use landfast_client::copy::{Sparse, WriteOptions};
use landfast_client::fs::{Meta, Reflink, ServerCopies};
use landfast_client::put::{self, Members, Report, Source, When};
use landfast_client::resume::{Job, JournalFile, Resume};
use landfast_nfs::v4::FileHandle;
use say::{CopyOutput, Shown, copied};
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
            EarlyOutcome::Copied(copied) => {
                tool.summary("copied", copied);
                return tool;
            }
            EarlyOutcome::Told => return tool,
            EarlyOutcome::Missing | EarlyOutcome::NotTried => {}
        }
    }
    tool.servers.instance = journal.as_ref().map(JournalFile::instance);
    let before = journal.as_ref().and_then(|journal| journal.fact(INTO)).map(|into| into == "yes");
    let Some(Ends { root, handle, tasks, into }) = ends::of(&mut tool, &args, before).await else {
        return tool;
    };
    if args.interactive
        && let Some(source) = asking::answers_from(&tasks)
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
    let mut rest = &tasks[..];
    while let [first, ..] = rest {
        let together = rest.iter().take_while(|task| task.source.beside(&first.source)).count();
        let (now, later) = rest.split_at(together);
        rest = later;
        let twice = |task: &&CopyTask| !task.is_dir && made.contains(&task.name);
        for CopyTask { source, dest, .. } in now.iter().filter(twice) {
            let (from, to) = (quote::shown(&source.shown()), quote::shown(dest));
            tool.complain(&format!("will not overwrite just-created {to} with {from}"));
        }
        let now: Vec<CopyTask> = now.iter().filter(|task| !twice(task)).cloned().collect();
        made.extend(now.iter().map(|task| task.name.clone()));
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
    tasks: &[CopyTask],
) -> u64 {
    let shown = tasks.iter().map(Shown::from).collect();
    let say = Arc::new(CopyOutput::new(shown, args.verbose, tool.json(), !args.interactive));
    let report = match root {
        End::There { place, .. } => {
            let root = match handle {
                Some(handle) => handle.clone(),
                None => match tool.servers.look(std::slice::from_ref(place), true).await.pop() {
                    Some(Ok(object)) if Meta::of(&object.attrs).is_dir() => object.fh,
                    Some(Err(e)) => return cannot_create(tool, tasks, &message::of(&e)),
                    _ => return cannot_create(tool, tasks, "Not a directory"),
                },
            };
            let session = tool.servers.nfs(place).session().clone();
            let copies = match copies(tool, args, place, tasks).await {
                Ok(copies) => copies,
                Err(why) => return cannot_create(tool, tasks, &why),
            };
            if args.reflink == Reflink::Always && copies.is_none() {
                return cannot_clone(tool, tasks);
            }
            let Some(source) = members(tool, (args, journal), tasks, copies).await else { return 0 };
            let dest = Dest::There { nfs: tool.servers.nfs(place).clone(), root: place.joined() };
            let source = Source::members(asked(tool, args, (tasks, source), dest, &say));
            match put::run_in(how(args, journal), &session, root, source, say.clone()).await {
                Ok(report) => report,
                Err(e) => {
                    tool.complain(&e.to_string());
                    Report::default()
                }
            }
        }
        End::Here { .. } if args.reflink == Reflink::Always => return cannot_clone(tool, tasks),
        End::Here { path } => {
            let opened = std::fs::File::open(path);
            let root = match opened.and_then(|file| file.metadata().map(|meta| (file, meta))) {
                Ok((file, meta)) if meta.is_dir() => file,
                Ok(_) => return cannot_create(tool, tasks, "Not a directory"),
                Err(e) => return cannot_create(tool, tasks, &message::plain(&e)),
            };
            let Some(source) = members(tool, (args, journal), tasks, None).await else { return 0 };
            let dest = Dest::Here { root: path.clone() };
            let mut source = asked(tool, args, (tasks, source), dest, &say);
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
    (tasks, members): (&[CopyTask], Box<dyn Members>),
    dest: Dest,
    say: &Arc<CopyOutput>,
) -> Box<dyn Members> {
    match args.interactive {
        true => Box::new(Asking::new(members, dest, (args, tasks), (tool, say))),
        false => members,
    }
}

/// How the server of the destination copies files that it has itself; `None`: all data goes through this machine.
async fn copies(
    tool: &Tool,
    args: &CpArgs,
    root: &Place,
    tasks: &[CopyTask],
) -> Result<Option<Arc<ServerCopies>>, String> {
    let Some(End::There { place, .. }) = tasks.first().map(|task| &task.source) else {
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
fn cannot_clone(tool: &Tool, tasks: &[CopyTask]) -> u64 {
    for CopyTask { source, dest, .. } in tasks {
        let (from, to) = (quote::shown(&source.shown()), quote::shown(dest));
        tool.complain(&format!("failed to clone {to} from {from}: Operation not supported"));
    }
    0
}

/// Prints a failure for each source: the destination's directory cannot be used.
fn cannot_create(tool: &Tool, tasks: &[CopyTask], why: &str) -> u64 {
    for task in tasks {
        let what = if task.is_dir { "directory" } else { "regular file" };
        tool.complain(&format!("cannot create {what} {}: {why}", quote::shown(&task.dest)));
    }
    0
}
