//! Visits operands and everything below them, depth first.

use super::object::below;
use super::operand::{Operand, Place};
use super::tool::Tool;
use super::{message, quote};
use crate::exit::Exit;
use crate::progress::Counter;
use bytes::Bytes;
use landfast_client::fs::{ItemError, Meta, Nfs, Start, Step, WalkOptions};
use landfast_nfs::v4::FileHandle;
use std::ops::ControlFlow;

pub enum Visit<'a> {
    /// An object. If it is a directory that is walked, its entries follow, and then [`Visit::Left`].
    Object {
        /// The path, beginning as the operand was typed.
        path: &'a [u8],
        /// Levels below the operand.
        depth: usize,
        meta: &'a Meta,
        /// The target of a symbolic link, if that was asked for.
        text: Option<&'a [u8]>,
        /// The handle, if the server gave one.
        fh: Option<&'a FileHandle>,
        /// The operand that it is, or is below.
        top: (&'a Operand, &'a Place),
        walked: bool,
    },
    /// The innermost directory could not be listed; the failure was printed.
    Unlisted,
    Left,
}

struct Top {
    nfs: Nfs,
    operand: Operand,
    place: Place,
    start: Start,
    meta: Meta,
    text: Option<Bytes>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct VisitOptions {
    /// Operands that are symbolic links are followed.
    pub follow: bool,
    pub walk: WalkOptions,
}

/// Visits everything, until `each` breaks. A failure is printed; `missing` begins the message for an operand (`cannot access`).
pub async fn in_order(
    tool: &mut Tool,
    operands: Vec<(Operand, Place)>,
    missing: &str,
    VisitOptions { follow, walk: options }: VisitOptions,
    mut each: impl FnMut(&mut Tool, Visit<'_>) -> ControlFlow<()>,
) {
    let places: Vec<Place> = operands.iter().map(|(_, place)| place.clone()).collect();
    let found = tool.servers.look_into(&places, follow).await;
    let mut tops: Vec<Top> = Vec::new();
    for ((operand, place), found) in operands.into_iter().zip(found) {
        match found {
            Ok(object) => {
                let path = operand.shown.clone().into_bytes();
                let start = Start { path, fh: object.fh, first_page: object.first_page };
                let (nfs, meta) = (tool.servers.nfs(&place).clone(), Meta::of(&object.attrs));
                let text = match meta.is_link() && options.texts {
                    true => {
                        nfs.readlinks_of([start.fh.clone()]).await.pop().and_then(|r| r.into_result().ok())
                    }
                    false => None,
                };
                tops.push(Top { nfs, operand, place, start, meta, text });
            }
            Err(e) => {
                let name = quote::shown(operand.shown.as_bytes());
                let missing = if missing.is_empty() { name } else { format!("{missing} {name}") };
                tool.complain_as(&format!("{missing}: {}", message::of(&e)), Exit::Partly);
            }
        }
    }
    let listed = Counter::new("listed", None, true);
    let mut rest = &tops[..];
    while let [first, ..] = rest {
        // Neighbouring operands on one server are walked together.
        let server = first.nfs.session().server();
        let together = rest.iter().take_while(|top| top.nfs.session().server() == server).count();
        let (now, later) = rest.split_at(together);
        rest = later;
        let dirs: Vec<usize> =
            now.iter().enumerate().filter(|(_, top)| top.meta.is_dir()).map(|(n, _)| n).collect();
        let (mut shown, mut counted) = (0, 0);
        let mut goes_on = ControlFlow::Continue(());
        // Visits operands up to `end` that were not visited yet. Only the last of them is a directory.
        let mut up_to = |tool: &mut Tool, end: usize, each: &mut dyn FnMut(&mut Tool, Visit<'_>) -> _| {
            for Top { operand, place, start, meta, text, .. } in &now[shown..end] {
                shown += 1;
                each(
                    tool,
                    Visit::Object {
                        path: &start.path,
                        depth: 0,
                        meta,
                        text: text.as_deref(),
                        fh: Some(&start.fh),
                        top: (operand, place),
                        walked: meta.is_dir(),
                    },
                )?;
            }
            ControlFlow::Continue(())
        };
        let starts: Vec<Start> = dirs.iter().map(|n| now[*n].start.clone()).collect();
        let mut top = first;
        first
            .nfs
            .walk_in_order(starts, options, |step| {
                if goes_on.is_break() {
                    return;
                }
                goes_on = match step {
                    Step::Start(n) => {
                        top = &now[dirs[n]];
                        up_to(tool, dirs[n] + 1, &mut each)
                    }
                    Step::Entry { dir, depth, entry } => {
                        counted += 1;
                        if counted == COUNTED_TOGETHER {
                            listed.more(std::mem::take(&mut counted));
                        }
                        let path = below(&dir, &entry.name);
                        let visit = Visit::Object {
                            path: &path,
                            depth,
                            meta: &entry.meta,
                            text: entry.text.as_deref(),
                            fh: entry.fh.as_ref(),
                            top: (&top.operand, &top.place),
                            walked: entry.listing.is_some(),
                        };
                        each(tool, visit)
                    }
                    Step::Unlisted { path, outcome } => {
                        if let Err(e) = outcome.into_result() {
                            unlisted(tool, missing, &path, &e);
                        }
                        each(tool, Visit::Unlisted)
                    }
                    Step::Left => {
                        listed.more(std::mem::take(&mut counted));
                        each(tool, Visit::Left)
                    }
                };
                if goes_on.is_break() {
                    first.nfs.stop();
                }
            })
            .await;
        if goes_on.is_break() || up_to(tool, now.len(), &mut each).is_break() {
            return;
        }
    }
}

/// Entries of a directory that the progress line counts together.
const COUNTED_TOGETHER: u64 = 1024;

/// Prints that a directory cannot be listed. After an interruption the summary covers everything that was not started.
fn unlisted(tool: &Tool, missing: &str, path: &[u8], e: &ItemError) {
    if tool.stopped() && matches!(e, ItemError::NotExecuted(_)) {
        return;
    }
    let name = quote::shown(path);
    let name = if missing.is_empty() { name } else { format!("cannot read directory {name}") };
    tool.complain(&format!("{name}: {}", message::of(e)));
}
