//! Shell wildcards.

/// Matches shell wildcards as fnmatch(3) does: `*`, `?`, `[...]`, `\`. All of them match `/`.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to continue if the last star has to match one byte more.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some(b'?') => Some(1),
            Some(b'[') => bracket(&pattern[p..], text[t]),
            Some(b'\\') if p + 1 < pattern.len() => (pattern[p + 1] == text[t]).then_some(2),
            Some(b) => (*b == text[t]).then_some(1),
            None => None,
        };
        match (step, &mut retry) {
            (Some(n), _) => {
                p += n;
                t += 1;
            }
            (None, Some((after, from))) => {
                *from += 1;
                (p, t) = (*after, *from);
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

/// Matches a bracket expression at the start of `pattern` against one byte. Returns the length of the expression if it
/// matches. Without a closing bracket, `[` stands for itself.
fn bracket(pattern: &[u8], byte: u8) -> Option<usize> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let start = if negated { 2 } else { 1 };
    // A `]` in first place is a literal.
    let Some(end) = pattern.iter().skip(start + 1).position(|b| *b == b']').map(|i| i + start + 1) else {
        return (byte == b'[').then_some(1);
    };
    let mut set = &pattern[start..end];
    let mut found = false;
    while let [first, rest @ ..] = set {
        set = rest;
        found |= match rest {
            [b'-', last, after @ ..] => {
                set = after;
                (*first..=*last).contains(&byte)
            }
            _ => *first == byte,
        };
    }
    (found != negated).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_fnmatch() {
        for (pattern, text, matched) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("?", "", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[x", "[x", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("*/b", "a/a/b", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), matched, "{pattern} {text}");
        }
    }
}
