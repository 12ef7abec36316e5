//! `landfast cat`: prints files one after another. Many small files go into one COMPOUND; a large file is read ahead in pieces.

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

#[derive(Debug, Args)]
pub struct CatArgs {
    /// Files to print: nfs://HOST[:PORT]/PATH
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Number all lines
    #[arg(short = 'n', long)]
    number: bool,
    /// Number all lines that are not empty
    #[arg(short = 'b', long)]
    number_nonblank: bool,
    /// Print one empty line in place of several
    #[arg(short = 's', long)]
    squeeze_blank: bool,
    /// Print $ at the end of each line
    #[arg(short = 'E', long)]
    show_ends: bool,
    /// Print tabs as ^I
    #[arg(short = 'T', long)]
    show_tabs: bool,
    /// Print characters that are not printable as ^X and M-X; newlines and tabs stay
    #[arg(short = 'v', long)]
    show_nonprinting: bool,
    /// The same as -vET
    #[arg(short = 'A', long)]
    show_all: bool,
    /// The same as -vE
    #[arg(short = 'e')]
    show_ends_and_bytes: bool,
    /// The same as -vT
    #[arg(short = 't')]
    show_tabs_and_bytes: bool,
    /// Accepted for compatibility; output is never held back
    #[arg(short = 'u')]
    unbuffered: bool,
    #[command(flatten)]
    pub common: Common,
}

impl CatArgs {
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

/// How many bytes are read at one time, of small files together or of one large file.
const READ_AHEAD_BYTES: u64 = 16 << 20;

/// Of up to this many files the first bytes are read before the sizes are known.
const FEW: usize = 16;
const BEGINNING_BYTES: u64 = 256 << 10;

pub fn run(args: CatArgs) -> Exit {
    tool::run("cat", args.common, |tool| print(tool, args))
}

async fn print(mut tool: Tool, args: CatArgs) -> Tool {
    let operands = tool.places(&args.urls, "cannot open", Exit::Partly).await;
    let places: Vec<Place> = operands.iter().map(|(_, place)| place.clone()).collect();
    // For a few files this saves a round trip: their first bytes and their sizes are fetched together.
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

struct Printed {
    files: u64,
    /// `None`: contents are printed unchanged.
    lines: Option<Lines>,
}

impl Printed {
    /// With --json only the number of bytes is printed.
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

/// The first bytes of each file. `None`: it cannot be read; reading it again will say why.
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

/// Prints whole files, with one call for each server.
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

/// Prints a file in pieces. The first piece that is short is the last one.
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
