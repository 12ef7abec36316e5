//! `nfs://HOST[:PORT]/PATH[?version=3|4.0|4.1|4.2&...]`, after RFC 2224 with libnfs's options.
//!
//! ```
//! use landfast_client::{NfsUrl, Version};
//!
//! let url: NfsUrl = "nfs://server:20490/a//b%20c?version=4.0&nconnect=4".parse()?;
//! assert_eq!((url.host.as_str(), url.port, url.version), ("server", 20490, Some(Version::V40)));
//! assert_eq!((url.path, url.nconnect), (vec![b"a".to_vec(), b"b c".to_vec()], Some(4)));
//! # Ok::<(), landfast_client::url::UrlError>(())
//! ```
//!
//! | option | value | otherwise |
//! |---|---|---|
//! | `version`, `vers` | 3, 4.0, 4.1, 4.2 | the highest that both sides have |
//! | `nconnect` | TCP connections, 1 to 16 | 2 |
//! | `mountport` | port of MOUNT, for version 3 | the port mapper's, or that of NFS |
//! | `uid`, `gid` | who calls | the user of this process |

use std::str::FromStr;

use landfast_nfs::PORT;

use crate::limits::NCONNECT_MAX;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NfsUrl {
    /// A host name or address; an IPv6 address has no brackets.
    pub host: String,
    /// 2049 unless the URL has a port.
    pub port: u16,
    /// The path's components from the server's root, percent-decoded. None is empty, `.` or `..`.
    pub path: Vec<Vec<u8>>,
    /// `None`: the highest version that both sides have.
    pub version: Option<Version>,
    /// The port of MOUNT, for NFSv3.
    pub mount_port: Option<u16>,
    /// The caller's user, if it is not that of this process.
    pub uid: Option<u32>,
    /// The caller's group, likewise.
    pub gid: Option<u32>,
    /// TCP connections, from 1 to [`NCONNECT_MAX`].
    pub nconnect: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// NFS version 3 (RFC 1813).
    V3,
    /// NFSv4.0 (RFC 7530).
    V40,
    /// NFSv4.1 (RFC 8881).
    V41,
    /// NFSv4.2 (RFC 7862).
    V42,
}

impl Version {
    pub(crate) fn minor(self) -> u32 {
        match self {
            Version::V3 | Version::V40 => 0,
            Version::V41 => 1,
            Version::V42 => 2,
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Version::V3 => "3",
            Version::V40 => "4.0",
            Version::V41 => "4.1",
            Version::V42 => "4.2",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Another scheme, or none.
    #[error("`{0}` is not of the form nfs://HOST[:PORT]/PATH[?version=3|4.0|4.1|4.2]")]
    Form(String),
    /// The port is not a number from 1 to 65535.
    #[error("`{0}` is not a port number")]
    Port(String),
    /// A `%` without two hexadecimal digits, or an encoded NUL or `/`.
    #[error("bad percent-encoding in `{0}`")]
    Encoding(String),
    /// `..` has no meaning in NFSv4.
    #[error("`..` in the path of a URL is not supported")]
    Parent,
    #[error("NFS version `{0}` is not supported; use 3, 4.0, 4.1 or 4.2")]
    Version(String),
    #[error("unknown option `{0}` in the URL; known: version, mountport, uid, gid, nconnect")]
    Option(String),
    /// The value is not a number, or out of range.
    #[error("`{0}`: not a number that this option takes")]
    Number(String),
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
        let (mut version, mut mount_port, mut uid, mut gid, mut nconnect) = (None, None, None, None, None);
        for option in query.split('&').filter(|o| !o.is_empty()) {
            let (key, value) = option.split_once('=').ok_or_else(|| UrlError::Option(option.to_owned()))?;
            let id = || value.parse::<u32>().map_err(|_| UrlError::Number(option.to_owned()));
            match key {
                "version" | "vers" => {
                    version = Some(match value {
                        "3" => Version::V3,
                        "4.0" => Version::V40,
                        "4.1" => Version::V41,
                        "4.2" | "4" => Version::V42,
                        _ => return Err(UrlError::Version(value.to_owned())),
                    });
                }
                "mountport" => {
                    let port = value.parse().ok().filter(|port| *port != 0);
                    mount_port = Some(port.ok_or_else(|| UrlError::Number(option.to_owned()))?);
                }
                "uid" => uid = Some(id()?),
                "gid" => gid = Some(id()?),
                "nconnect" => {
                    let count = value.parse().ok().filter(|n| (1..=NCONNECT_MAX).contains(n));
                    nconnect = Some(count.ok_or_else(|| UrlError::Number(option.to_owned()))?);
                }
                _ => return Err(UrlError::Option(option.to_owned())),
            }
        }
        let mut components = Vec::new();
        for component in path.split('/') {
            match decode(component)? {
                c if c.is_empty() || c == b"." => {}
                c if c == b".." => return Err(UrlError::Parent),
                c => components.push(c),
            }
        }
        Ok(NfsUrl { host: host.to_owned(), port, path: components, version, mount_port, uid, gid, nconnect })
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

    fn parse(s: &str) -> Result<(String, u16, String, Option<Version>), UrlError> {
        let u: NfsUrl = s.parse()?;
        let path: Vec<_> = u.path.iter().map(|c| String::from_utf8_lossy(c).into_owned()).collect();
        Ok((u.host, u.port, path.join("/"), u.version))
    }

    #[test]
    fn accepted() {
        for (url, host, port, path, version) in [
            ("nfs://h/", "h", 2049, "", None),
            ("nfs://h", "h", 2049, "", None),
            ("nfs://10.0.0.1:20490/a//b/./c%20d/", "10.0.0.1", 20490, "a/b/c d", None),
            ("nfs://[::1]:1/a?version=4.1", "::1", 1, "a", Some(Version::V41)),
            ("nfs://[fe80::1]/", "fe80::1", 2049, "", None),
            ("nfs://h/?version=4.0", "h", 2049, "", Some(Version::V40)),
            ("nfs://h/?vers=4", "h", 2049, "", Some(Version::V42)),
            ("nfs://h/?version=3&mountport=20048&uid=7&gid=8", "h", 2049, "", Some(Version::V3)),
        ] {
            assert_eq!(parse(url), Ok((host.into(), port, path.into(), version)), "{url}");
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
            "nfs://h/?version=2",
            "nfs://h/?mountport=0",
            "nfs://h/?uid=-1",
            "nfs://h/?nconnect=0",
            "nfs://h/?nconnect=17",
            "nfs://h/?version",
            "nfs://h/?x=1",
            "nfs://[::1/",
            "nfs://[::1]x/",
        ] {
            assert!(parse(url).is_err(), "{url}");
        }
    }
}
