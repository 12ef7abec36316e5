//! The kernel's server makes files for a caller who may not give them away, leaves the owner out, and says that it has set it
//! (version 4). The client's commands say that the owners are not what was asked for, once.

use std::fs;
use std::path::Path;
use std::process::Output;

use super::machine::Machine;
use crate::proc::{command, run};

/// The export's name below the other one.
pub const NAME: &str = "squashed";

const EXPORT: &str = include_str!("../../guest/squashed.sh");

/// Whose the files are that are brought there.
const OWNER: &str = "1234:2345";

pub fn export(guest: &mut Machine, limit: std::time::Duration) -> Result<(), String> {
    let mut said = Vec::new();
    match guest.run(EXPORT, &[], limit, &mut said)? {
        0 => Ok(()),
        code => Err(format!("{NAME}: not exported: {code}: {}", String::from_utf8_lossy(&said))),
    }
}

/// Files without a directory, of which a SETATTR would tell. `dir` is this machine's, `url` leads to the export.
pub fn check(binary: &str, dir: &Path, url: &str) -> Result<(), String> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let files = dir.join(format!("{NAME}-{query}"));
    let made = fs::create_dir(&files)
        .and_then(|()| ["f", "g", "h"].iter().try_for_each(|name| fs::write(files.join(name), name)));
    made.map_err(|e| format!("{}: {e}", files.display()))?;
    let archive = dir.join(format!("{NAME}-{query}.tar"));
    let ids = ["--owner=+1234", "--group=+2345", "--sort=name", "-cf"];
    run(command("tar", ids).arg(&archive).arg("-C").arg(&files).args(["f", "g", "h"]))?;
    run(command("chown", ["-R", OWNER]).arg(&files))?;
    let destination = format!("{base}/{query}?{query}");
    run(&mut command(binary, ["mkdir", &destination]))?;
    let untar = said(binary, &["untar", &archive.to_string_lossy(), &destination])?;
    let told = String::from_utf8_lossy(&untar.stderr);
    let counted = String::from_utf8_lossy(&untar.stdout);
    let all_said = told.matches("its owner is not set").count() == 2 && told.contains("2 more");
    if untar.status.code() != Some(1)
        || !all_said
        || !format!("{told}{counted}").contains("3 of these incomplete")
    {
        return Err(format!("untar {destination}: {}: {told}{counted}", untar.status));
    }
    let copied = format!("{base}/{query}/copied?{query}");
    let cp = said(binary, &["cp", "-p", &files.join("f").to_string_lossy(), &copied])?;
    let told = String::from_utf8_lossy(&cp.stderr);
    if cp.status.code() != Some(1) || !told.contains("failed to preserve") {
        return Err(format!("cp -p {copied}: {}: {told}", cp.status));
    }
    // Without owners all is as asked.
    let anew = ["untar", "--no-same-owner", &archive.to_string_lossy(), &destination];
    run(&mut command(binary, anew))?;
    println!("owners that the server leaves out: told on {url}");
    Ok(())
}

fn said(binary: &str, args: &[&str]) -> Result<Output, String> {
    command(binary, args).output().map_err(|e| format!("{binary}: {e}"))
}
