//! `nfsstat3`: the outcome of a procedure (RFC 1813 section 2.6).

use landfast_xdr::{Decode, Encode};
use std::fmt;

/// The outcome of a procedure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NfsStat3(pub u32);

crate::status::statuses! {
    NfsStat3:
    OK = 0;
    PERM = 1;
    NOENT = 2;
    IO = 5;
    NXIO = 6;
    ACCES = 13;
    EXIST = 17;
    XDEV = 18;
    NODEV = 19;
    NOTDIR = 20;
    ISDIR = 21;
    INVAL = 22;
    FBIG = 27;
    NOSPC = 28;
    ROFS = 30;
    MLINK = 31;
    NAMETOOLONG = 63;
    NOTEMPTY = 66;
    DQUOT = 69;
    STALE = 70;
    REMOTE = 71;
    BADHANDLE = 10001;
    NOT_SYNC = 10002;
    BAD_COOKIE = 10003;
    NOTSUPP = 10004;
    TOOSMALL = 10005;
    SERVERFAULT = 10006;
    BADTYPE = 10007;
    JUKEBOX = 10008;
}

impl fmt::Display for NfsStat3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some("OK") => f.write_str("NFS3_OK"),
            Some(name) => write!(f, "NFS3ERR_{name}"),
            None => write!(f, "nfsstat3 {}", self.0),
        }
    }
}

impl fmt::Debug for NfsStat3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
