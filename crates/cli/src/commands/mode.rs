//! Modes as `ls -l` prints them, and as `chmod` and `mkdir -m` read them. Pure.

use super::object::names_of;
use landfast_nfs::v4::FileType;

/// The ten characters of `ls -l`: file type and permissions.
pub fn shown(kind: Option<FileType>, mode: u32) -> String {
    let Some(kind) = kind else { return "?---------".to_owned() };
    let mut out = String::with_capacity(10);
    out.push(names_of(kind).ls);
    for (shift, special, lower) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => lower,
            (true, false) => lower.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// The mode of a new directory for `mkdir -m TEXT` (octal or symbolic, as in chmod). As in GNU's mkdir, the umask only
/// counts if `text` is about nothing but the sticky bit.
pub fn parse(text: &str, umask: u32) -> Option<u32> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    }
    let mut spoken = 0;
    let mode = text.split(',').try_fold(0o777, |mode, clause| {
        let (mode, of) = apply(clause.as_bytes(), mode, umask)?;
        spoken |= of;
        Some(mode)
    })?;
    Some(if spoken == 0o1000 { mode & !umask } else { mode })
}

/// The bits of the argument of `find -perm`: a symbolic mode is applied to zero.
pub fn of_nothing(text: &str) -> Option<u32> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    }
    text.split(',').try_fold(0, |mode, clause| Some(apply(clause.as_bytes(), mode, 0)?.0))
}

/// Applies one clause, `[ugoa]*([-+=]([rwxXst]*|[ugo]))+`. Returns the mode and the bits that the clause is about.
fn apply(clause: &[u8], mut mode: u32, umask: u32) -> Option<(u32, u32)> {
    let mut spoken = 0;
    let whom_len = clause.iter().take_while(|b| b"ugoa".contains(b)).count();
    let (whom, mut rest) = clause.split_at(whom_len);
    // The bits that the clause may change, the special ones with those of their owner.
    let mut about = whom.iter().fold(0, |all, who| {
        all | match who {
            b'u' => 0o4700,
            b'g' => 0o2070,
            b'o' => 0o1007,
            _ => 0o7777,
        }
    });
    // Without a letter everybody is meant, except for what the umask takes away.
    let masked = if whom.is_empty() { umask & 0o777 } else { 0 };
    if whom.is_empty() {
        about = 0o7777;
    }
    if rest.is_empty() {
        return None;
    }
    while let [op, after @ ..] = rest {
        if !b"+-=".contains(op) {
            return None;
        }
        let len = after.iter().take_while(|b| !b"+-=".contains(b)).count();
        let (letters, next) = after.split_at(len);
        rest = next;
        let bits = match letters {
            [copied @ (b'u' | b'g' | b'o')] => {
                let three = match copied {
                    b'u' => mode >> 6,
                    b'g' => mode >> 3,
                    _ => mode,
                } & 7;
                three << 6 | three << 3 | three
            }
            letters => letters.iter().try_fold(0, |all, letter| {
                Some(
                    all | match letter {
                        b'r' => 0o444,
                        b'w' => 0o222,
                        // For a directory X is the same as x.
                        b'x' | b'X' => 0o111,
                        b's' => 0o6000,
                        b't' => 0o1000,
                        _ => return None,
                    },
                )
            })?,
        } & about
            & !masked;
        spoken |= if *op == b'=' { about & 0o1777 | bits } else { bits };
        mode = match op {
            b'+' => mode | bits,
            b'-' => mode & !bits,
            // The special bits of a directory stay unless they are named.
            _ => mode & !(about & 0o1777) | bits,
        };
    }
    Some((mode, spoken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_as_ls_does() {
        for (kind, mode, text) in [
            (FileType::Reg, 0o644, "-rw-r--r--"),
            (FileType::Dir, 0o1777, "drwxrwxrwt"),
            (FileType::Reg, 0o6754, "-rwsr-sr--"),
            (FileType::Reg, 0o7000, "---S--S--T"),
            (FileType::Lnk, 0o777, "lrwxrwxrwx"),
            (FileType::Sock, 0o600, "srw-------"),
        ] {
            assert_eq!(shown(Some(kind), mode), text);
        }
        assert_eq!(shown(None, 0), "?---------");
    }

    #[test]
    fn symbolic_modes_as_mkdir_takes_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let texts = [
            "755",
            "0",
            "1777",
            "u=rwx,g=rx,o=",
            "a-w",
            "-w",
            "+t",
            "g+s",
            "u+s,o-x",
            "go=u",
            "o=g-w",
            "u=,g=u",
            "=rx",
            "a=X",
            "ug=rw,o+x",
        ];
        let umask = 0o022;
        for text in texts {
            let at = dir.path().join(text);
            let made = std::process::Command::new("sh")
                .args(["-c", &format!("umask {umask:o}; mkdir -m '{text}' -- \"$0\"")])
                .arg(&at)
                .status()
                .expect("mkdir");
            assert!(made.success(), "{text}");
            let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&at).expect("there")) & 0o7777;
            assert_eq!(parse(text, umask).map(|m| format!("{m:o}")), Some(format!("{mode:o}")), "{text}");
        }
        for bad in ["", "8", "u", "u+z", "77777", "x+r", "u~r"] {
            assert_eq!(parse(bad, umask), None, "{bad}");
        }
    }
}
