//! `nfs://HOST[:PORT]/PATH[?version=4.1|4.2]`, after RFC 2224 with an option for the version.

use std::str::FromStr;

use landfast_nfs::PORT;

/// Where on which server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NfsUrl {
    /// Name or address of the server; an IPv6 address without its brackets.
    pub host: String,
    /// TCP port, 2049 when the URL names none.
    pub port: u16,
    /// The path's components from the server's root, percent-decoded: none is empty, `.`, or `..`.
    pub path: Vec<Vec<u8>>,
    /// Minor version: 1 or 2; 2 when the URL names none.
    pub minor: u32,
}

/// Why a URL is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Another scheme, or none.
    #[error("`{0}` is not of the form nfs://HOST[:PORT]/PATH[?version=4.1|4.2]")]
    Form(String),
    /// The port is no number from 1 to 65535.
    #[error("`{0}` is not a port number")]
    Port(String),
    /// A `%` without two hexadecimal digits, or an encoded NUL or `/`.
    #[error("bad percent-encoding in `{0}`")]
    Encoding(String),
    /// `..` has no meaning in NFSv4.
    #[error("`..` in the path of a URL is not supported")]
    Parent,
    /// A version that is not spoken.
    #[error("NFS version `{0}` is not supported; use 4.1 or 4.2")]
    Version(String),
    /// An option that is not known.
    #[error("unknown option `{0}` in the URL; known: version")]
    Option(String),
}

impl FromStr for NfsUrl {
    type Err = UrlError;

    fn from_str(s: &str) -> Result<Self, UrlError> {
        let form = || UrlError::Form(s.to_owned());
        let rest = s.strip_prefix("nfs://").ok_or_else(form)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => {
                let (host, after) = v6.split_once(']').ok_or_else(form)?;
                (host, after.strip_prefix(':').or(after.is_empty().then_some("")).ok_or_else(form)?)
            }
            None => authority.split_once(':').unwrap_or((authority, "")),
        };
        if host.is_empty() || host.contains('@') {
            return Err(form());
        }
        let port = match port {
            "" => PORT,
            p => p.parse().ok().filter(|p| *p != 0).ok_or_else(|| UrlError::Port(p.to_owned()))?,
        };
        let mut minor = 2;
        for option in query.split('&').filter(|o| !o.is_empty()) {
            minor = match option.split_once('=') {
                Some(("version" | "vers", "4.1")) => 1,
                Some(("version" | "vers", "4.2" | "4")) => 2,
                Some(("version" | "vers", v)) => return Err(UrlError::Version(v.to_owned())),
                _ => return Err(UrlError::Option(option.to_owned())),
            };
        }
        let mut components = Vec::new();
        for component in path.split('/') {
            match decode(component)? {
                c if c.is_empty() || c == b"." => {}
                c if c == b".." => return Err(UrlError::Parent),
                c => components.push(c),
            }
        }
        Ok(NfsUrl { host: host.to_owned(), port, path: components, minor })
    }
}

fn decode(component: &str) -> Result<Vec<u8>, UrlError> {
    let bad = || UrlError::Encoding(component.to_owned());
    let mut out = Vec::with_capacity(component.len());
    let mut bytes = component.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let mut digit = || bytes.next().and_then(|d| char::from(d).to_digit(16)).ok_or_else(bad);
        match (digit()? * 16 + digit()?) as u8 {
            0 | b'/' => return Err(bad()),
            b => out.push(b),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(s: &str) -> Result<(String, u16, String, u32), UrlError> {
        let u: NfsUrl = s.parse()?;
        let path: Vec<_> = u.path.iter().map(|c| String::from_utf8_lossy(c).into_owned()).collect();
        Ok((u.host, u.port, path.join("/"), u.minor))
    }

    #[test]
    fn accepted() {
        for (url, host, port, path, minor) in [
            ("nfs://h/", "h", 2049, "", 2),
            ("nfs://h", "h", 2049, "", 2),
            ("nfs://10.0.0.1:20490/a//b/./c%20d/", "10.0.0.1", 20490, "a/b/c d", 2),
            ("nfs://[::1]:1/a?version=4.1", "::1", 1, "a", 1),
            ("nfs://[fe80::1]/", "fe80::1", 2049, "", 2),
        ] {
            assert_eq!(parse(url), Ok((host.into(), port, path.into(), minor)), "{url}");
        }
    }

    #[test]
    fn refused() {
        for url in [
            "h:/a",
            "http://h/",
            "nfs:///a",
            "nfs://h:0/",
            "nfs://h:x/",
            "nfs://h:70000/",
            "nfs://h/a/../b",
            "nfs://h/%2e%2e/b",
            "nfs://h/a%2fb",
            "nfs://h/a%00",
            "nfs://h/a%4",
            "nfs://h/?version=3",
            "nfs://h/?x=1",
            "nfs://[::1/",
            "nfs://[::1]x/",
        ] {
            assert!(parse(url).is_err(), "{url}");
        }
    }
}
