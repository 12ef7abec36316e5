//! `cargo xtask docs`: writes the documents that are made from the code.

use std::process::ExitCode;

use crate::proc::{self, command};

/// The tests that write a document when this variable is set, and compare it otherwise.
const WRITE: &str = "LANDFAST_WRITE_DOCS";

/// Writes them.
pub fn run() -> ExitCode {
    let server = ["test", "--package", "landfast-server"];
    for test in [["--lib", "docs_protocol_md", ""], ["--test", "pairs", "docs_durability_md"]] {
        let args = server.into_iter().chain(test.into_iter().filter(|arg| !arg.is_empty()));
        if let Err(why) = proc::run(command(&proc::cargo(), args).env(WRITE, "1")) {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
