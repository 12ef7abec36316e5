//! The messages of `rm` about one object.

use super::super::tool::Tool;
use super::super::{message, quote};
use landfast_client::fs::{ItemError, Removal};
use serde_json::json;

pub fn failed(tool: &Tool, removal: Removal) {
    let Err(e) = removal.outcome.into_result() else { return };
    // After an interruption the summary covers everything that was not started.
    if tool.stopped() && matches!(e, ItemError::NotExecuted(_)) {
        return;
    }
    let name = quote::shown(&removal.path);
    let what = if removal.unlisted { "cannot open directory" } else { "cannot remove" };
    tool.complain(&format!("{what} {name}: {}", message::of(&e)));
}

/// Prints that an object is gone, with `-v` or as JSON.
pub fn removed(tool: &mut Tool, removal: &Removal, verbose: bool) {
    let Removal { path, dir, .. } = removal;
    if tool.json() {
        tool.print_object(
            &json!({ "path": String::from_utf8_lossy(path), "directory": dir, "removed": true }),
        );
    } else if verbose {
        let what: &[u8] = if *dir { b"removed directory " } else { b"removed " };
        tool.print(&[what, &quote::always(path), b"\n"].concat());
    }
}
