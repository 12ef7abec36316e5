//! Operands and all below them, in the order of a depth-first walk, for commands that say something of each object.

use super::operand::{Operand, Place};
use super::tool::Tool;
use super::{below, message, quote};
use crate::exit::Exit;
use landfast_client::fs::{InOrder, Meta, Nfs, Start, Step, WalkOptions};

/// What comes next.
pub enum Visit<'a> {
    /// An object; if it is a directory that is walked, what is in it follows, and then [`Visit::Left`].
    Object {
        /// Its path, as the operand was typed.
        path: &'a [u8],
        /// Levels below the operand.
        depth: usize,
        /// Its attributes.
        meta: &'a Meta,
        /// What is in it follows.
        walked: bool,
    },
    /// The innermost directory could not be listed, which was told.
    Unlisted,
    /// The innermost directory is done.
    Left,
}

/// Visits. What cannot be reached or listed is told: `missing` is what is said of an operand (`cannot access`).
pub async fn in_order(
    tool: &mut Tool,
    operands: Vec<(Operand, Place)>,
    missing: &str,
    depth_max: usize,
    mut each: impl FnMut(&mut Tool, Visit<'_>),
) {
    let places: Vec<Place> = operands.iter().map(|(_, place)| place.clone()).collect();
    let found = tool.servers.look_into(&places, false).await;
    let mut tops: Vec<(Nfs, Vec<u8>, Start, Meta)> = Vec::new();
    for ((operand, place), found) in operands.into_iter().zip(found) {
        match found {
            Ok(object) => {
                let path = operand.shown.into_bytes();
                let start = Start { path: path.clone(), fh: object.fh, begun: object.begun };
                tops.push((tool.servers.nfs(&place).clone(), path, start, Meta::of(&object.attrs)));
            }
            Err(e) => {
                let name = quote::shown(operand.shown.as_bytes());
                let missing = if missing.is_empty() { name } else { format!("{missing} {name}") };
                tool.complain_as(&format!("{missing}: {}", message::of(&e)), Exit::Partly);
            }
        }
    }
    let mut rest = &tops[..];
    while let [(nfs, ..), ..] = rest {
        // Operands on one server that follow each other are walked together.
        let together =
            rest.iter().take_while(|top| top.0.session().server() == nfs.session().server()).count();
        let (now, later) = rest.split_at(together);
        rest = later;
        let dirs: Vec<usize> =
            now.iter().enumerate().filter(|(_, top)| top.3.is_dir()).map(|(n, _)| n).collect();
        let mut order = InOrder::new(dirs.len());
        let mut shown = 0;
        // Operands up to one, as far as they were not visited: only the last of them is a directory.
        let mut up_to = |tool: &mut Tool, end: usize, each: &mut dyn FnMut(&mut Tool, Visit<'_>)| {
            for (_, path, _, meta) in &now[shown..end] {
                each(tool, Visit::Object { path, depth: 0, meta, walked: meta.is_dir() });
            }
            shown = end;
        };
        let starts: Vec<Start> = dirs.iter().map(|n| now[*n].2.clone()).collect();
        let options = WalkOptions { depth_max, ..WalkOptions::default() };
        nfs.walk_from(starts, options, |listing| {
            order.came(listing);
            while let Some(step) = order.next() {
                match step {
                    Step::Start(n) => up_to(tool, dirs[n] + 1, &mut each),
                    Step::Entry { dir, depth, entry } => {
                        let path = below(&dir, &entry.name);
                        let walked = entry.listing.is_some();
                        each(tool, Visit::Object { path: &path, depth, meta: &entry.meta, walked });
                    }
                    Step::Unlisted { path, outcome } => {
                        if let Err(e) = outcome.into_result() {
                            let name = quote::shown(&path);
                            let (e, name) = (
                                message::of(&e),
                                if missing.is_empty() {
                                    name
                                } else {
                                    format!("cannot read directory {name}")
                                },
                            );
                            tool.complain(&format!("{name}: {e}"));
                        }
                        each(tool, Visit::Unlisted);
                    }
                    Step::Left => each(tool, Visit::Left),
                }
            }
        })
        .await;
        up_to(tool, now.len(), &mut each);
    }
}
