//! The bodies of the fuzz targets: each takes bytes and panics when something is wrong. `fuzz_targets/any.rs` hands
//! them to libFuzzer; the tests here run them over the corpus that is kept, on any toolchain.

#![forbid(unsafe_code)]

pub mod connection;
mod decoders;
pub mod locks;
mod rights;
mod state;
mod trace;

pub use connection::connection;
pub use decoders::{
    archive, attributes, compound_args, compound_res, journal, log_blocks, log_records, notes,
    record_marking, rpc_message, side_protocols, v3_args,
};
pub use locks::locks;
pub use rights::rights;
pub use state::state;
pub use trace::trace;

/// A target: bytes in, a panic when something is wrong.
pub type Target = fn(&[u8]);

/// All targets by name, as in `corpus/`.
pub const TARGETS: &[(&str, Target)] = &[
    ("rpc_message", rpc_message),
    ("record_marking", record_marking),
    ("compound_args", compound_args),
    ("compound_res", compound_res),
    ("v3_args", v3_args),
    ("side_protocols", side_protocols),
    ("attributes", attributes),
    ("notes", notes),
    ("log_blocks", log_blocks),
    ("log_records", log_records),
    ("archive", archive),
    ("journal", journal),
    ("trace", trace),
    ("state", state),
    ("connection", connection),
    ("locks", locks),
    ("rights", rights),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_corpus_finds_nothing() {
        for (name, target) in TARGETS {
            let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
            let mut seen = 0;
            for entry in std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
                let path = entry.expect("an entry").path();
                println!("{}", path.display());
                target(&std::fs::read(&path).expect("a file"));
                seen += 1;
            }
            assert!(seen > 0, "no corpus for {name}");
        }
    }
}
