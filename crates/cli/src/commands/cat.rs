//! `landfast cat`: files one after another, many small ones in one COMPOUND, large ones in pieces that are read ahead.

use super::common::Common;
use super::lines::{Lines, Shown};
use super::message;
use super::operand::{Operand, Place};
use super::tool::{self, Tool};
use crate::exit::Exit;
use bytes::Bytes;
use clap::Args;
use landfast_client::fs::{ItemError, Meta};
use landfast_client::limits::READ_BYTES;
use landfast_nfs::v4::NfsStat;
use serde_json::json;

/// `landfast cat`.
#[derive(Debug, Args)]
pub struct CatArgs {
    /// What to print: nfs://HOST[:PORT]/PATH
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Number all lines
    #[arg(short = 'n', long)]
    number: bool,
    /// Number lines that are not empty
    #[arg(short = 'b', long)]
    number_nonblank: bool,
    /// Of several empty lines one
    #[arg(short = 's', long)]
    squeeze_blank: bool,
    /// $ at ends of lines
    #[arg(short = 'E', long)]
    show_ends: bool,
    /// ^I for tabs
    #[arg(short = 'T', long)]
    show_tabs: bool,
    /// ^ and M- for what cannot be printed, but newlines and tabs
    #[arg(short = 'v', long)]
    show_nonprinting: bool,
    /// As -vET
    #[arg(short = 'A', long)]
    show_all: bool,
    /// As -vE
    #[arg(short = 'e')]
    show_ends_and_bytes: bool,
    /// As -vT
    #[arg(short = 't')]
    show_tabs_and_bytes: bool,
    /// Accepted for compatibility; output is never buffered
    #[arg(short = 'u')]
    unbuffered: bool,
    #[command(flatten)]
    pub common: Common,
}

impl CatArgs {
    /// What is shown of lines.
    pub fn shown(&self) -> Shown {
        let numbers = if self.number_nonblank { Some(true) } else { self.number.then_some(false) };
        let (e, t) = (self.show_ends_and_bytes, self.show_tabs_and_bytes);
        Shown {
            numbers,
            ends: self.show_ends || self.show_all || e,
            tabs: self.show_tabs || self.show_all || t,
            bytes: self.show_nonprinting || self.show_all || e || t,
            squeezed: self.squeeze_blank,
        }
    }
}

/// Bytes of small files, or of one large file, that are read at one time.
const READ_AHEAD_BYTES: u64 = 16 << 20;

/// Of so many files the first bytes are read at once, and how many.
const FEW: usize = 16;
const BEGINNING_BYTES: u64 = 256 << 10;

/// Prints.
pub fn run(args: CatArgs) -> Exit {
    tool::run("cat", args.common, |tool| print(tool, args))
}

async fn print(mut tool: Tool, args: CatArgs) -> Tool {
    let operands = tool.places(&args.urls, "cannot open", Exit::Partly).await;
    let places: Vec<Place> = operands.iter().map(|(_, place)| place.clone()).collect();
    // Of a few files the beginning is read before it is known how large they are.
    let few = if places.len() <= FEW { &places[..] } else { &[] };
    let (found, begun) = tokio::join!(tool.servers.look(&places, true), beginnings(&tool, few));
    let mut begun = begun.into_iter();
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let shown = args.shown();
    let mut printed = Printed { files: 0, lines: (shown != Shown::default()).then(|| Lines::new(shown)) };
    for ((operand, place), found) in operands.into_iter().zip(found) {
        let begun = begun.next().flatten();
        let size = match found.map(|object| Meta::of(&object.attrs)) {
            Ok(meta) if meta.is_dir() => {
                complain(&tool, &operand, &message::of_status(NfsStat::NFS4ERR_ISDIR));
                continue;
            }
            Ok(meta) => meta.size,
            Err(e) => {
                complain(&tool, &operand, &message::of(&e));
                continue;
            }
        };
        if let Some(data) = begun.filter(|data| data.len() as u64 == size && size < BEGINNING_BYTES) {
            small(&mut tool, std::mem::take(&mut batch), &mut printed).await;
            bytes = 0;
            printed.files += 1;
            printed.say(&mut tool, &operand, &data);
            continue;
        }
        if bytes + size > READ_AHEAD_BYTES {
            small(&mut tool, std::mem::take(&mut batch), &mut printed).await;
            bytes = 0;
        }
        if size > READ_AHEAD_BYTES {
            large(&mut tool, &operand, &place, &mut printed).await;
        } else {
            bytes += size;
            batch.push((operand, place));
        }
    }
    small(&mut tool, batch, &mut printed).await;
    if let Some(lines) = &mut printed.lines {
        let mut rest = Vec::new();
        lines.flush(&mut rest);
        tool.print_raw(&rest);
    }
    tool.summary("printed", printed.files);
    tool
}

/// What was printed so far.
struct Printed {
    files: u64,
    /// If they are not shown as they are.
    lines: Option<Lines>,
}

impl Printed {
    /// With --json contents are counted, not printed.
    fn say(&mut self, tool: &mut Tool, operand: &Operand, data: &[u8]) {
        if tool.json() {
            return tool.print_object(&json!({ "path": operand.shown, "bytes": data.len() }));
        }
        match &mut self.lines {
            Some(lines) => {
                let mut out = Vec::with_capacity(data.len());
                lines.put(data, &mut out);
                tool.print_raw(&out);
            }
            None => tool.print_raw(data),
        }
    }
}

/// The first bytes of files; `None`: they cannot be read, and why shows again.
async fn beginnings(tool: &Tool, places: &[Place]) -> Vec<Option<Bytes>> {
    let mut all = vec![None; places.len()];
    for (nfs, numbers) in tool.servers.by_tree(places) {
        let parts: Vec<_> = numbers.iter().map(|n| (places[*n].joined(), 0, BEGINNING_BYTES)).collect();
        for (n, outcome) in numbers.into_iter().zip(nfs.read(parts).await) {
            all[n] = outcome.into_result().ok();
        }
    }
    all
}

fn complain(tool: &Tool, operand: &Operand, why: &str) {
    tool.complain(&format!("{}: {why}", operand.shown));
}

/// Whole files in one call for each server.
async fn small(tool: &mut Tool, batch: Vec<(Operand, Place)>, printed: &mut Printed) {
    let mut all: Vec<Option<Result<Bytes, ItemError>>> = batch.iter().map(|_| None).collect();
    for (nfs, numbers) in tool.servers.by_tree(batch.iter().map(|(_, place)| place)) {
        let paths: Vec<_> = numbers.iter().map(|n| batch[*n].1.joined()).collect();
        for (n, outcome) in numbers.into_iter().zip(nfs.read_files(paths).await) {
            all[n] = Some(outcome.into_result());
        }
    }
    for ((operand, _), read) in batch.iter().zip(all) {
        match read {
            Some(Ok(data)) => {
                printed.files += 1;
                printed.say(tool, operand, &data);
            }
            Some(Err(e)) => complain(tool, operand, &message::of(&e)),
            None => {}
        }
    }
}

/// A file in pieces, up to where the first one comes short.
async fn large(tool: &mut Tool, operand: &Operand, place: &Place, printed: &mut Printed) {
    let piece = u64::from(READ_BYTES);
    let path = place.joined();
    let mut at = 0;
    loop {
        let pieces = (0..READ_AHEAD_BYTES / piece).map(|n| (path.clone(), at + n * piece, piece));
        let read = tool.servers.nfs(place).read(pieces).await;
        for outcome in read {
            match outcome.into_result() {
                Ok(data) => {
                    at += data.len() as u64;
                    printed.say(tool, operand, &data);
                    if (data.len() as u64) < piece {
                        printed.files += 1;
                        return;
                    }
                }
                Err(e) => return complain(tool, operand, &message::of(&e)),
            }
        }
    }
}
