//! `landfast mount` on any server: what one mount does is right there and at once seen by a second one.
//!
//! The server is seen through two mounts alone, so it may be anywhere. Each check works in a directory of its own, which is empty again
//! and gone at its end.
//!
//! | room | subject |
//! |---|---|
//! | `pair` | the directory in which a check works, in both mounts |
//! | `checks` | what is done, and what must come of it |

mod checks;
mod pair;

use crate::error::{Context, Result};
use crate::fuse_mount::FuseMount;
use pair::Pair;
use serde::Serialize;
use std::time::Instant;

/// One check on one server.
#[derive(Debug, Clone, Serialize)]
pub struct Checked {
    pub url: String,
    pub check: &'static str,
    pub seconds: f64,
    /// What is wrong; nothing when all is well.
    pub wrong: Option<String>,
}

/// Does all checks on each of the servers' directories, whose URLs name the version. Call it on a thread of
/// [`crate::namespace::run_private`]. `progress` hears of each check.
/// Errors: What keeps the lab from working; what a mount does wrong is in what is returned.
pub fn run(urls: &[String], options: &str, mut progress: impl FnMut(&Checked)) -> Result<Vec<Checked>> {
    crate::machine::needs_root()?;
    let scratch = crate::machine::scratch_dir("landfast-mount-checks-")?;
    let mut done = Vec::new();
    for (n, url) in urls.iter().enumerate() {
        let mounts = ["one", "two"]
            .map(|name| FuseMount::start(url, &scratch.path().join(format!("{n}-{name}")), options));
        let [one, two] = mounts;
        let (one, two) = (one?, two?);
        let version = one.status("version")?;
        for (check, does) in checks::ALL {
            let name = format!("landfast-mount-{}-{}", std::process::id(), check.replace(' ', "-"));
            let pair = Pair {
                one: one.path().join(&name),
                two: two.path().join(&name),
                // A server of version 3 need not have a lock manager.
                locks: version != "3",
                xattrs: version == "4.2",
            };
            let start = Instant::now();
            let wrong = around(&pair, does).err().map(|e| e.to_string());
            let seconds = start.elapsed().as_secs_f64();
            let checked = Checked { url: url.clone(), check, seconds, wrong };
            progress(&checked);
            done.push(checked);
        }
        one.stop()?;
        two.stop()?;
    }
    Ok(done)
}

/// A check between the making of its directory and its end.
fn around(pair: &Pair, does: fn(&Pair) -> Result<()>) -> Result<()> {
    std::fs::create_dir(&pair.one).context(|| format!("create {}", pair.one.display()))?;
    let done = does(pair);
    match done.and_then(|()| checks::is_empty(&pair.two)) {
        Ok(()) => std::fs::remove_dir(&pair.two).context(|| format!("remove {}", pair.two.display())),
        Err(e) => {
            // What it left is in nobody's way; if it cannot be removed the error above says more.
            let _ = std::fs::remove_dir_all(&pair.one);
            Err(e)
        }
    }
}
