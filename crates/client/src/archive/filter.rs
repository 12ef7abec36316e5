//! Decides which members may be extracted, and to which path. Names in an archive are not trusted.

use crate::glob::matches;
use bytes::Bytes;

/// Why a member's name, or its hard link's target, is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("absolute name: not extracted")]
    Absolute,
    #[error("name contains `..`: not extracted")]
    Parent,
    #[error("name contains a NUL byte: not extracted")]
    Nul,
    /// A component has more than 255 bytes.
    #[error("name has a component of more than 255 bytes: not extracted")]
    Long,
    /// More than [`crate::limits::DEPTH_MAX`] components.
    #[error("name is nested too deeply: not extracted")]
    Deep,
    /// A hard link's target of which stripping leaves nothing.
    #[error("empty name: not extracted")]
    Empty,
}

/// The longest file name on the filesystems that servers export, in bytes.
const NAME_MAX: usize = 255;

/// The components of a name, without `.` and empty ones. Fails for a name that could lead out of the destination, or that
/// no file can have.
pub fn components(name: &[u8]) -> Result<Vec<Bytes>, PathError> {
    if name.contains(&0) {
        return Err(PathError::Nul);
    }
    if name.first() == Some(&b'/') {
        return Err(PathError::Absolute);
    }
    let mut parts = Vec::new();
    for part in name.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(PathError::Parent),
            p if p.len() > NAME_MAX => return Err(PathError::Long),
            p => parts.push(Bytes::copy_from_slice(p)),
        }
    }
    if parts.len() > crate::limits::DEPTH_MAX {
        return Err(PathError::Deep);
    }
    Ok(parts)
}

/// Which members to extract, and under which names: `--strip-components` and `--exclude`.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    strip: usize,
    exclude: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Extract it at this path. Empty: the destination itself.
    Take(Vec<Bytes>),
    /// Leave it out: it is excluded, or stripping leaves nothing.
    Skip,
}

impl Filter {
    /// Removes `strip` leading components, and leaves out members that match one of `exclude`.
    pub fn new(strip: usize, exclude: &[String]) -> Filter {
        let exclude = exclude.iter().map(|e| e.trim_end_matches('/').as_bytes().to_vec()).collect();
        Filter { strip, exclude }
    }

    /// Decides about a member's name. A name that is excluded or stripped away is never an error.
    pub fn judge(&self, name: &[u8]) -> Result<Verdict, PathError> {
        if self.excludes(name) {
            return Ok(Verdict::Skip);
        }
        let mut parts = components(name)?;
        if self.strip == 0 {
            return Ok(Verdict::Take(parts));
        }
        if parts.len() <= self.strip {
            return Ok(Verdict::Skip);
        }
        Ok(Verdict::Take(parts.split_off(self.strip)))
    }

    /// The target of a hard link is a name in the archive, so it is stripped like one.
    pub fn link_target(&self, name: &[u8]) -> Result<Vec<Bytes>, PathError> {
        let mut parts = components(name)?;
        if parts.len() <= self.strip {
            return Err(PathError::Empty);
        }
        Ok(parts.split_off(self.strip))
    }

    /// Whether names may be excluded.
    pub(crate) fn has_patterns(&self) -> bool {
        !self.exclude.is_empty()
    }

    /// As GNU tar by default: a pattern matches the whole name, the part after any `/`, or a parent directory. Wildcards match
    /// `/`.
    pub(crate) fn excludes(&self, name: &[u8]) -> bool {
        if self.exclude.is_empty() {
            return false;
        }
        let name = name.strip_suffix(b"/").unwrap_or(name);
        let slash = |i: usize| name[i] == b'/';
        let starts = std::iter::once(0).chain((0..name.len()).filter(|i| slash(*i)).map(|i| i + 1));
        let ends: Vec<usize> = (0..name.len()).filter(|i| slash(*i)).chain([name.len()]).collect();
        starts.into_iter().any(|from| {
            ends.iter().any(|to| from < *to && self.exclude.iter().any(|p| matches(p, &name[from..*to])))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(filter: &Filter, name: &str) -> Result<Option<String>, PathError> {
        Ok(match filter.judge(name.as_bytes())? {
            Verdict::Skip => None,
            Verdict::Take(parts) => Some(
                parts.iter().map(|p| String::from_utf8_lossy(p).into_owned()).collect::<Vec<_>>().join("/"),
            ),
        })
    }

    #[test]
    fn no_name_leads_out() {
        let all = Filter::default();
        for (name, result) in [
            ("a/b", Ok("a/b")),
            ("./a//b/./", Ok("a/b")),
            ("./", Ok("")),
            ("a/..b/...", Ok("a/..b/...")),
            ("..", Err(PathError::Parent)),
            ("a/../b", Err(PathError::Parent)),
            ("a/..", Err(PathError::Parent)),
            ("./../../etc/passwd", Err(PathError::Parent)),
            ("/etc/passwd", Err(PathError::Absolute)),
            ("//", Err(PathError::Absolute)),
            ("a\0b", Err(PathError::Nul)),
        ] {
            assert_eq!(take(&all, name), result.map(|r| Some(r.to_owned())), "{name:?}");
        }
        assert_eq!(take(&all, &"n".repeat(256)), Err(PathError::Long));
        assert!(take(&all, &"n".repeat(255)).is_ok());
        assert_eq!(take(&all, &"d/".repeat(crate::limits::DEPTH_MAX + 1)), Err(PathError::Deep));
    }

    #[test]
    fn stripping() {
        let one = Filter::new(1, &[]);
        assert_eq!(take(&one, "top/a/b"), Ok(Some("a/b".into())));
        assert_eq!(take(&one, "./top/a"), Ok(Some("a".into())));
        assert_eq!(take(&one, "top/"), Ok(None));
        // What is stripped does not excuse what it leads to.
        assert_eq!(take(&one, "../a"), Err(PathError::Parent));
        assert_eq!(one.link_target(b"top/x"), Ok(vec![Bytes::from_static(b"x")]));
        assert_eq!(one.link_target(b"top"), Err(PathError::Empty));
        assert_eq!(one.link_target(b"top/../../x"), Err(PathError::Parent));
    }

    #[test]
    fn excluding_as_gnu_tar() {
        for (pattern, name, excluded) in [
            ("*.o", "a/b/c.o", true),
            ("*.o", "c.old", false),
            ("b", "a/b/c", true),
            ("a/b", "x/a/b/c", true),
            ("b", "a/bc", false),
            ("a*c", "a/b/c", true),
            ("[a-c]?", "x/b1", true),
            ("[!a-c]?", "b1", false),
            ("[]x]", "]", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("dir/", "dir/", true),
            ("[", "[", true),
            (".git", "p/.git/config", true),
        ] {
            assert_eq!(
                Filter::new(0, &[pattern.into()]).excludes(name.as_bytes()),
                excluded,
                "{pattern} {name}"
            );
        }
        // An excluded name is not judged further.
        assert_eq!(take(&Filter::new(0, &["bad".into()]), "../bad"), Ok(None));
    }
}
