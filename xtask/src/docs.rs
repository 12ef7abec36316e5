//! `cargo xtask docs`: writes the documents that are generated from the code, and the picture that is drawn from a
//! report.

use std::process::ExitCode;

use crate::picture;
use crate::proc::{self, command};

/// With this variable set, the tests write a document instead of comparing it.
const WRITE: &str = "LANDFAST_WRITE_DOCS";

pub fn run() -> ExitCode {
    let at = |name: &str| proc::workspace().join("docs").join(name);
    let drawn = std::fs::read_to_string(at("demo.json"))
        .map_err(|e| e.to_string())
        .and_then(|json| std::fs::write(at("demo.svg"), picture::of_demo(&json)?).map_err(|e| e.to_string()));
    if let Err(why) = drawn {
        eprintln!("docs/demo.svg from docs/demo.json (landfast demo --json): {why}");
        return ExitCode::FAILURE;
    }
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
