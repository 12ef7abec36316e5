//! The arguments of `landfast tar`. Letters and names are GNU tar's.

use super::super::common::Common;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

pub const AFTER_HELP: &str = "The archive is in pax format; names in a directory are sorted.\n\n\
Exit status: 0 the archive is complete; 1 files changed while they were read; 2 something is missing, or there is no archive.";

/// Rewrites letters without a dash, as in `tar czf ARCHIVE`: each gets a dash, and those that take a value get the
/// following words in their order.
pub fn with_dashes(mut words: Vec<OsString>) -> Vec<OsString> {
    let is_tar = words.get(1).is_some_and(|word| word == "tar");
    let letters = words.get(2).and_then(|word| word.to_str()).filter(|_| is_tar).map(str::to_owned);
    let Some(letters) = letters.filter(|l| l.contains('c') && l.bytes().all(|b| b.is_ascii_alphabetic()))
    else {
        return words;
    };
    let mut rest = words.split_off(3).into_iter();
    words.truncate(2);
    for letter in letters.chars() {
        words.push(format!("-{letter}").into());
        if "fCTX".contains(letter) {
            words.extend(rest.next());
        }
    }
    words.extend(rest);
    words
}

#[derive(Debug, Args)]
pub struct TarArgs {
    /// What to archive: paths below the -C URL, or nfs://HOST[:PORT]/PATH
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,
    /// Create an archive (to extract one: landfast untar)
    #[arg(short = 'c', long, required = true)]
    pub create: bool,
    /// The archive; - or nothing for standard output
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Start of relative paths: nfs://HOST[:PORT]/PATH
    #[arg(short = 'C', long, value_name = "URL")]
    pub directory: Option<String>,
    /// Compress with gzip
    #[arg(short = 'z', long, group = "compression")]
    pub gzip: bool,
    /// Compress with bzip2
    #[arg(short = 'j', long, group = "compression")]
    pub bzip2: bool,
    /// Compress with xz
    #[arg(short = 'J', long, group = "compression")]
    pub xz: bool,
    /// Compress with Zstandard
    #[arg(long, group = "compression")]
    pub zstd: bool,
    /// Choose the compression by the archive's name
    #[arg(short = 'a', long, group = "compression")]
    pub auto_compress: bool,
    /// Print the name of each member
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Read further paths from this file, one a line; - for standard input
    #[arg(short = 'T', long, value_name = "FILE")]
    pub files_from: Option<PathBuf>,
    /// Paths in the -T file end in NUL
    #[arg(long)]
    pub null: bool,
    /// Leave out what matches this shell pattern; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Leave out what matches a pattern in this file, one a line
    #[arg(short = 'X', long, value_name = "FILE")]
    pub exclude_from: Vec<PathBuf>,
    /// Archive extended attributes as well (NFSv4.2)
    #[arg(long)]
    pub xattrs: bool,
    /// Store owners and groups as numbers only
    #[arg(long)]
    pub numeric_owner: bool,
    #[command(flatten)]
    pub common: Common,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_get_dashes_where_tar_has_them() {
        for (typed, meant) in [
            ("x tar czf a.tgz -C u p", "x tar -c -z -f a.tgz -C u p"),
            ("x tar cCf u a p", "x tar -c -C u -f a p"),
            ("x tar cf", "x tar -c -f"),
            ("x tar -cf a p", "x tar -cf a p"),
            ("x tar", "x tar"),
            ("x tar nfs://h/c -c", "x tar nfs://h/c -c"),
            ("x cp cf a", "x cp cf a"),
        ] {
            let words = typed.split(' ').map(OsString::from).collect();
            let meant: Vec<OsString> = meant.split(' ').map(OsString::from).collect();
            assert_eq!(with_dashes(words), meant, "{typed}");
        }
    }
}
