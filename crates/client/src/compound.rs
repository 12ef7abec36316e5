//! COMPOUNDs on the wire: their header, and their results read in order.

use bytes::BytesMut;
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::res::{ListxattrsRes, OpenRes, ReadRes, ReaddirRes, WriteRes};
use landfast_nfs::v4::{
    ArgOp, CompoundRes, Fattr, FileHandle, NfsStat, OpNum, ResBody, ResOp, Stateid, Verifier,
};
use landfast_nfs::{PROGRAM, v4};
use landfast_rpc::Target;
use landfast_xdr::{Bytes, Encode, Reader};

use crate::error::SessionError;

pub(crate) const COMPOUND: Target = Target { prog: PROGRAM, vers: v4::VERSION, proc: v4::PROC_COMPOUND };

/// The header of a COMPOUND of `count` operations: an empty tag, the minor version, the count.
pub(crate) fn compound_header(minor: u32, count: usize, out: &mut BytesMut) {
    Bytes::new().encode(out);
    minor.encode(out);
    (count as u32).encode(out);
}

/// Why a COMPOUND stopped, or a reply that does not fit its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    #[error("{op}: {status}")]
    Failed { op: OpNum, status: NfsStat },
    /// The reply does not fit the request.
    #[error("the server's reply has no result for {op}")]
    Missing {
        /// The operation whose result is missing.
        op: OpNum,
    },
}

impl OpError {
    /// The status of the failed operation; IO for a reply that makes no sense.
    pub fn status(&self) -> NfsStat {
        match self {
            OpError::Failed { status, .. } => *status,
            OpError::Missing { .. } => NfsStat::NFS4ERR_IO,
        }
    }
}

/// Decodes `count` operations, for versions that execute COMPOUNDs in another form.
pub(crate) fn decode_ops(ops: Bytes, count: usize) -> Result<Vec<ArgOp>, SessionError> {
    let mut reader = Reader::new(ops);
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let op = ArgOp::decode_lenient(&mut reader)
            .map_err(|e| SessionError::Unknown(format!("an operation of our own does not decode: {e}")))?;
        all.push(op);
    }
    Ok(all)
}

/// Encodes all attributes that have a value.
pub(crate) fn fattr(values: &AttrValues) -> Fattr {
    values.to_fattr(&AttrValues::KNOWN)
}

/// A copy to keep. A handle that was read from a reply is a slice of it, and would keep the whole reply in memory.
pub(crate) fn detached(fh: &FileHandle) -> FileHandle {
    FileHandle(Bytes::copy_from_slice(&fh.0))
}

/// Decodes attributes.
pub(crate) fn values(fattr: &Fattr) -> Result<AttrValues, OpError> {
    AttrValues::from_fattr(fattr).map_err(|status| OpError::Failed { op: OpNum::GETATTR, status })
}

/// A cursor over results. Each method takes the next result, which must be of the named operation.
#[derive(Debug)]
pub struct Results {
    status: NfsStat,
    results: std::vec::IntoIter<ResOp>,
}

macro_rules! bodies {
    ($($(#[$doc:meta])* $method:ident: $op:ident => $body:ident -> $ty:ty;)*) => {
        $($(#[$doc])*
        pub fn $method(&mut self) -> Result<$ty, OpError> {
            match self.take(OpNum::$op)? {
                ResBody::$body(body) => Ok(body),
                _ => Err(OpError::Missing { op: OpNum::$op }),
            }
        })*
    };
}

impl Results {
    /// Starts at the first result of `reply`.
    pub fn new(reply: CompoundRes) -> Results {
        Results { status: reply.status, results: reply.results.into_iter() }
    }

    /// Results not taken yet.
    pub fn remaining(&self) -> usize {
        self.results.len()
    }

    /// The next result's body, of operation `op`.
    ///
    /// # Errors
    /// [`OpError::Failed`] when `op` failed, [`OpError::Missing`] when there is no result or another
    /// operation's.
    pub fn take(&mut self, op: OpNum) -> Result<ResBody, OpError> {
        match self.results.next() {
            Some(r) if r.op == op && r.status.is_ok() => Ok(r.body),
            Some(r) if !r.status.is_ok() => Err(OpError::Failed { op: r.op, status: r.status }),
            None if !self.status.is_ok() => Err(OpError::Failed { op, status: self.status }),
            _ => Err(OpError::Missing { op }),
        }
    }

    /// Passes over successful results of these operations.
    pub fn skip(&mut self, ops: &[OpNum]) -> Result<(), OpError> {
        ops.iter().try_for_each(|op| self.take(*op).map(drop))
    }

    /// READ of one byte or more. A server that has none for it, and does not say that the file ends, would otherwise pass for
    /// one whose file is shorter (RFC 8881 section 18.22.3).
    ///
    /// # Errors
    /// As [`Results::take`]; IO in that case.
    pub fn data(&mut self) -> Result<ReadRes, OpError> {
        let part = self.read()?;
        match part.data.is_empty() && !part.eof {
            true => Err(OpError::Failed { op: OpNum::READ, status: NfsStat::NFS4ERR_IO }),
            false => Ok(part),
        }
    }

    /// GETFH. The handle may be kept: it holds nothing of the reply.
    ///
    /// # Errors
    /// As [`Results::take`].
    pub fn getfh(&mut self) -> Result<FileHandle, OpError> {
        match self.take(OpNum::GETFH)? {
            ResBody::Getfh(fh) => Ok(detached(&fh)),
            _ => Err(OpError::Missing { op: OpNum::GETFH }),
        }
    }

    bodies! {
        getattr: GETATTR => Getattr -> Fattr;
        open: OPEN => Open -> OpenRes;
        read: READ => Read -> ReadRes;
        readdir: READDIR => Readdir -> ReaddirRes;
        readlink: READLINK => Readlink -> Bytes;
        getxattr: GETXATTR => Getxattr -> Bytes;
        listxattrs: LISTXATTRS => Listxattrs -> ListxattrsRes;
        write: WRITE => Write -> WriteRes;
        commit: COMMIT => Commit -> Verifier;
        close: CLOSE => Close -> Stateid;
    }
}
