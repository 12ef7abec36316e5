//! `landfast trace --anonymise`: copies a capture without what must not be shown to others.

use super::input::Input;
use crate::exit::{Exit, failed};
use crate::units::{counted, show_count};
use landfast_trace::anonymise::Anonymiser;
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub(super) fn run(file: &Path, out: &Path, name: &str) -> Exit {
    match copy(file, out) {
        Ok(notes) => {
            notes.iter().for_each(|note| eprintln!("landfast: {name}: {note}"));
            Exit::Done
        }
        // The failure was printed, or needs no message.
        Err(_) if out == Path::new("-") && crate::say::is_closed() | crate::say::is_full() => Exit::Done,
        Err(e) => failed(format!("{name}: {e}")),
    }
}

fn copy(file: &Path, out: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut capture = Input::open(file)?;
    let mut key = [0; 16];
    getrandom::fill(&mut key)?;
    let to: Box<dyn Write> = if out == Path::new("-") {
        Box::new(crate::say::raw())
    } else {
        if let (Ok(from), Ok(to)) = (std::fs::metadata(file), std::fs::metadata(out))
            && (from.dev(), from.ino()) == (to.dev(), to.ino())
        {
            return Err("this is the capture; name another file for the copy".into());
        }
        Box::new(File::create(out).map_err(|e| format!("{}: {e}", out.display()))?)
    };
    let mut copy = Anonymiser::new(&key, BufWriter::with_capacity(1 << 20, to));
    let mut failed = None;
    let end = capture.each(|frame| {
        if failed.is_none() {
            failed = copy.frame(frame).err();
        }
    })?;
    let written = failed.map_or_else(|| copy.finish(), Err);
    let (totals, left_out, _) = written.map_err(|e| format!("{}: {e}", out.display()))?;
    let mut notes = Vec::new();
    notes.push(format!(
        "{} frames, {} calls to NFS copied",
        show_count(totals.frames - left_out.frames),
        show_count(totals.calls_seen)
    ));
    notes.extend(super::notes::end(end));
    let frames = "frames are of another link layer than the first and are not in the copy";
    notes.extend(counted(left_out.frames, frames));
    let late = "messages took too long to come to their ends: of these the copy has zeros only";
    notes.extend(counted(left_out.late, late));
    Ok(notes)
}
