//! The operations, and what a reply says about each.

use crate::rng::Rng;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One operation. Paths are names joined by `/`, below the directory of the URL. A `tag` stands for bytes that are
/// written: [`data`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Make a file that must not exist: CREATE, or OPEN that creates; with a verifier if it is `exclusive`. An exclusive create
    /// of versions 3 and 4.0 cannot set the mode.
    Create { path: String, mode: u32, exclusive: bool },
    /// WRITE FILE_SYNC if it is `stable`, else UNSTABLE.
    Write { path: String, offset: u64, len: u32, tag: u64, stable: bool },
    /// COMMIT of the whole file; if it is `late`, so many milliseconds after the operation before it, with no file open in
    /// between.
    Commit {
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        late: Option<u32>,
    },
    /// SETATTR of the permission bits.
    SetMode { path: String, mode: u32 },
    /// SETATTR of the size, in bytes.
    SetSize { path: String, size: u64 },
    /// SETATTR of the modification time, in seconds since 1970.
    SetTimes { path: String, mtime: u32 },
    /// MKDIR, or CREATE of a directory.
    Mkdir { path: String, mode: u32 },
    /// RMDIR, or REMOVE of a directory.
    Rmdir { path: String },
    /// SYMLINK, or CREATE of a symbolic link.
    Symlink { path: String, text: String },
    /// LINK of `from`, a name of a file, to `to`.
    Link { from: String, to: String },
    /// RENAME; `over` if something has the new name.
    Rename { from: String, to: String, over: bool },
    /// REMOVE of what is no directory.
    Remove { path: String },
    /// SETXATTR (RFC 8276).
    SetXattr { path: String, name: String, len: u32, tag: u64 },
    /// REMOVEXATTR (RFC 8276).
    RemoveXattr { path: String, name: String },
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $word:literal, $label:literal;)*) => {
        /// What is counted together.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Kind {
            $($(#[$doc])* #[serde(rename = $word)] $variant,)*
        }

        impl Kind {
            /// All kinds, in the order of tables.
            pub const ALL: &'static [Kind] = &[$(Kind::$variant),*];

            pub fn word(self) -> &'static str {
                match self {
                    $(Kind::$variant => $word,)*
                }
            }

            pub fn label(self) -> &'static str {
                match self {
                    $(Kind::$variant => $label,)*
                }
            }
        }
    };
}

kinds! {
    Create = "create", "CREATE guarded";
    CreateExclusive = "create-exclusive", "CREATE exclusive";
    /// A WRITE that was answered with FILE_SYNC.
    Write = "write", "WRITE FILE_SYNC";
    /// A WRITE that was answered with less: it promises nothing before its COMMIT.
    WriteUnstable = "write-unstable", "WRITE UNSTABLE";
    /// A COMMIT after such WRITEs.
    Commit = "commit", "WRITE + COMMIT";
    /// The same, so late that the server has closed the file in between.
    CommitLate = "commit-late", "WRITE + late COMMIT";
    SetMode = "setattr-mode", "SETATTR mode";
    SetSize = "setattr-size", "SETATTR size";
    SetTimes = "setattr-times", "SETATTR times";
    Mkdir = "mkdir", "MKDIR";
    Rmdir = "rmdir", "RMDIR";
    Symlink = "symlink", "SYMLINK";
    Link = "link", "LINK";
    Rename = "rename", "RENAME";
    RenameOver = "rename-over", "RENAME over a file";
    Remove = "remove", "REMOVE";
    SetXattr = "setxattr", "SETXATTR";
    RemoveXattr = "removexattr", "REMOVEXATTR";
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(s: &str) -> Result<Kind, String> {
        Kind::ALL.iter().copied().find(|k| k.word() == s).ok_or_else(|| {
            let all: Vec<_> = Kind::ALL.iter().map(|k| k.word()).collect();
            format!("`{s}` is no kind of operation; there are {}", all.join(", "))
        })
    }
}

/// What a reply said, as far as anything depends on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The handle of what was made, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fileid: Option<u64>,
    /// The write verifier of a WRITE or COMMIT, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verf: Option<String>,
    /// Bytes that a WRITE wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// A WRITE was answered with FILE_SYNC.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stable: bool,
    /// An exclusive create has set the mode as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mode_set: bool,
}

impl Op {
    /// What it counts as, given the reply.
    pub fn kind(&self, reply: &Reply) -> Kind {
        match self {
            Op::Create { exclusive: false, .. } => Kind::Create,
            Op::Create { exclusive: true, .. } => Kind::CreateExclusive,
            Op::Write { .. } if reply.stable => Kind::Write,
            Op::Write { .. } => Kind::WriteUnstable,
            Op::Commit { late: None, .. } => Kind::Commit,
            Op::Commit { late: Some(_), .. } => Kind::CommitLate,
            Op::SetMode { .. } => Kind::SetMode,
            Op::SetSize { .. } => Kind::SetSize,
            Op::SetTimes { .. } => Kind::SetTimes,
            Op::Mkdir { .. } => Kind::Mkdir,
            Op::Rmdir { .. } => Kind::Rmdir,
            Op::Symlink { .. } => Kind::Symlink,
            Op::Link { .. } => Kind::Link,
            Op::Rename { over: false, .. } => Kind::Rename,
            Op::Rename { over: true, .. } => Kind::RenameOver,
            Op::Remove { .. } => Kind::Remove,
            Op::SetXattr { .. } => Kind::SetXattr,
            Op::RemoveXattr { .. } => Kind::RemoveXattr,
        }
    }

    /// The last byte of a file or value that it reaches, plus one.
    pub fn reach(&self) -> u64 {
        match self {
            Op::Write { offset, len, .. } => offset.saturating_add(u64::from(*len)),
            Op::SetSize { size, .. } => *size,
            Op::SetXattr { len, .. } => u64::from(*len),
            _ => 0,
        }
    }

    /// The path that it is about, the new one of two.
    pub fn path(&self) -> &str {
        match self {
            Op::Create { path, .. }
            | Op::Write { path, .. }
            | Op::Commit { path, .. }
            | Op::SetMode { path, .. }
            | Op::SetSize { path, .. }
            | Op::SetTimes { path, .. }
            | Op::Mkdir { path, .. }
            | Op::Rmdir { path }
            | Op::Symlink { path, .. }
            | Op::Remove { path }
            | Op::SetXattr { path, .. }
            | Op::RemoveXattr { path, .. } => path,
            Op::Link { to, .. } | Op::Rename { to, .. } => to,
        }
    }
}

/// The bytes that `tag` stands for: different tags give different bytes, so that each byte tells which operation wrote it.
pub fn data(tag: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    Rng::new(tag).fill(&mut out);
    out
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The bytes of hexadecimal text, or `None`.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |d: u8| char::from(d).to_digit(16);
    digits.chunks(2).map(|two| Some((digit(two[0])? * 16 + digit(two[1])?) as u8)).collect()
}

/// Splits a path into its directory's and its last name.
pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_depends_on_the_tag_only_and_hexadecimal_round_trips() {
        assert_eq!(data(1, 100)[..50], data(1, 50)[..]);
        assert_ne!(data(1, 50), data(2, 50));
        assert_eq!(unhex(&hex(&data(3, 33))), Some(data(3, 33)));
        assert_eq!((unhex("0"), unhex("0g")), (None, None));
    }

    #[test]
    fn every_kind_has_its_word() {
        for kind in Kind::ALL {
            assert_eq!(kind.word().parse::<Kind>(), Ok(*kind));
        }
        assert!("tar".parse::<Kind>().is_err());
    }
}
