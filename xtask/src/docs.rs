//! `cargo xtask docs`: writes the documents that are made from the code.

use std::process::ExitCode;

use crate::proc::{self, command};

/// The test that writes `docs/protocol.md` when this variable is set, and compares it otherwise.
const WRITE: &str = "LANDFAST_WRITE_DOCS";

/// Writes them.
pub fn run() -> ExitCode {
    let args = ["test", "--package", "landfast-server", "--lib", "docs_protocol_md"];
    match proc::run(command(&proc::cargo(), args).env(WRITE, "1")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
