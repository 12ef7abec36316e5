//! Files that are named on the command line; `-` is standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

pub fn name(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

pub fn open(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    Ok(if is_stdin(path) { Box::new(io::stdin()) } else { Box::new(File::open(path)?) })
}

/// Reads a whole file of at most `bytes_max` bytes; `too_long`: what is said of a longer one.
pub fn read(path: &Path, bytes_max: u64, too_long: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = open(path).and_then(|input| input.take(bytes_max + 1).read_to_end(&mut bytes));
    read.map_err(|e| format!("{}: {e}", name(path)))?;
    if bytes.len() as u64 > bytes_max { Err(format!("{}: {too_long}", name(path))) } else { Ok(bytes) }
}
