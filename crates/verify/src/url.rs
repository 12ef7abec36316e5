//! `nfs://HOST[:PORT]/PATH[?version=3|4.0|4.1|4.2][&mountport=PORT]`.

use crate::error::{Error, Result};
use landfast_client::NfsUrl;
use landfast_client::url::UrlError;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V3,
    /// Version 4 with this minor version, 0 to 2.
    V4(u32),
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Version::V3 => f.write_str("3"),
            Version::V4(minor) => write!(f, "4.{minor}"),
        }
    }
}

impl FromStr for Version {
    type Err = Error;

    fn from_str(s: &str) -> Result<Version> {
        Ok(match s {
            "3" => Version::V3,
            "4.0" => Version::V4(0),
            "4.1" => Version::V4(1),
            "4.2" | "4" => Version::V4(2),
            _ => return Err(Error::Url(format!("`{s}` is no version of NFS; use 3, 4.0, 4.1 or 4.2"))),
        })
    }
}

/// A directory on a server, and the version of NFS to reach it with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub host: String,
    pub port: u16,
    /// TCP port of version 3's MOUNT, when it is known.
    pub mount_port: Option<u16>,
    pub version: Version,
    /// The URL names it.
    pub version_given: bool,
    /// Names from the server's root.
    pub path: Vec<Vec<u8>>,
    /// The URL as it was given.
    pub text: String,
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(s: &str) -> Result<Target> {
        let (place, query) = s.split_once('?').unwrap_or((s, ""));
        let (mut version, mut version_given) = (Version::V4(2), false);
        let mut mount_port = None;
        for option in query.split('&').filter(|o| !o.is_empty()) {
            match option.split_once('=') {
                Some(("version" | "vers", v)) => (version, version_given) = (v.parse()?, true),
                Some(("mountport", p)) => {
                    let port = p.parse().ok().filter(|p| *p != 0);
                    mount_port = Some(port.ok_or_else(|| Error::Url(format!("`{p}` is not a port number")))?);
                }
                _ => {
                    let known = "known: version, mountport";
                    return Err(Error::Url(format!("unknown option `{option}` in the URL; {known}")));
                }
            }
        }
        let url: NfsUrl = place.parse().map_err(|e| match e {
            // The client's own message names the versions that the client knows.
            UrlError::Form(_) => {
                Error::Url(format!("`{s}` is not of the form nfs://HOST[:PORT]/PATH[?version=V]"))
            }
            e => Error::Url(e.to_string()),
        })?;
        let (host, port, path) = (url.host, url.port, url.path);
        Ok(Target { host, port, mount_port, version, version_given, path, text: s.to_owned() })
    }
}

impl Target {
    /// The server's addresses, at the port `port`.
    pub fn addresses(&self, port: u16) -> Result<Vec<SocketAddr>> {
        let found = (self.host.as_str(), port).to_socket_addrs();
        let found: Vec<SocketAddr> = found.map_err(|why| self.gone(why))?.collect();
        if found.is_empty() {
            return Err(Error::Url(format!("{} has no address", self.host)));
        }
        Ok(found)
    }

    /// The error that the server cannot be reached.
    pub fn gone(&self, why: std::io::Error) -> Error {
        Error::Gone { server: format!("{}:{}", self.host, self.port), why }
    }

    /// The first `names` names of the path, for messages.
    pub fn shown(&self, names: usize) -> String {
        let names = &self.path[..names.min(self.path.len())];
        names.iter().map(|n| format!("/{}", String::from_utf8_lossy(n))).collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_ports() {
        let t: Target = "nfs://h:20490/a//b?version=3&mountport=20048".parse().unwrap();
        assert_eq!((t.version, t.port, t.mount_port), (Version::V3, 20490, Some(20048)));
        assert_eq!(t.path, [b"a".to_vec(), b"b".to_vec()]);
        for (text, version) in [("4.0", Version::V4(0)), ("4.1", Version::V4(1)), ("4.2", Version::V4(2))] {
            let t: Target = format!("nfs://h/?version={text}").parse().unwrap();
            assert_eq!((t.version, t.version.to_string().as_str()), (version, text));
        }
        for bad in ["h:/", "nfs://h/?version=2", "nfs://h/?x=1", "nfs://h/?mountport=0", "nfs://h/../a"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
