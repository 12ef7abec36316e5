//! Dispatch of operations: from each to its function.

use super::context::{Context, OpError};
use crate::errors;
use landfast_nfs::v4::{ArgOp, NfsStat, OpNum, ResBody, ResOp};

impl Context<'_> {
    /// Runs an operation that [`super::matrix`] says is served.
    pub(super) fn dispatch(&mut self, op: &ArgOp) -> Result<ResBody, OpError> {
        match op {
            ArgOp::Access(a) => self.access(*a),
            ArgOp::Close(a) => self.close(a),
            ArgOp::Commit(a) => self.commit(a),
            ArgOp::Create(a) => self.create(a),
            ArgOp::Getattr(a) => self.getattr(a),
            ArgOp::Getfh => self.getfh(),
            ArgOp::Link(a) => self.link(a),
            ArgOp::Lock(a) => self.lock(a),
            ArgOp::Lockt(a) => self.lockt(a),
            ArgOp::Locku(a) => self.locku(a),
            ArgOp::Lookup(a) => self.lookup(a),
            ArgOp::Lookupp => self.lookupp(),
            ArgOp::Nverify(a) => self.verify(a, NfsStat::NFS4ERR_SAME),
            ArgOp::Verify(a) => self.verify(a, NfsStat::NFS4ERR_NOT_SAME),
            ArgOp::Open(a) => self.open(a),
            ArgOp::OpenDowngrade(a) => self.open_downgrade(a),
            ArgOp::Putfh(a) => self.putfh(a),
            ArgOp::Putpubfh | ArgOp::Putrootfh => self.putrootfh(),
            ArgOp::Read(a) => self.read(a),
            ArgOp::Readdir(a) => self.readdir(a),
            ArgOp::Readlink => self.readlink(),
            ArgOp::Remove(a) => self.remove(a),
            ArgOp::Rename(a) => self.rename(a),
            ArgOp::Restorefh => self.restorefh(),
            ArgOp::Savefh => self.savefh(),
            ArgOp::Secinfo(a) => self.secinfo(a),
            ArgOp::SecinfoNoName(a) => self.secinfo_no_name(*a),
            ArgOp::Setattr(a) => self.setattr(a),
            ArgOp::Write(a) => self.write(a),
            ArgOp::BackchannelCtl(a) => self.backchannel_ctl(a),
            ArgOp::BindConnToSession(a) => self.bind_conn_to_session(a),
            ArgOp::ExchangeId(a) => self.exchange_id(a),
            ArgOp::CreateSession(a) => self.create_session(a),
            ArgOp::DestroySession(a) => self.destroy_session(a),
            ArgOp::DestroyClientid(a) => self.destroy_clientid(*a),
            ArgOp::FreeStateid(a) => self.free_stateid(a),
            ArgOp::GetDirDelegation(a) => self.get_dir_delegation(a),
            ArgOp::TestStateid(a) => self.test_stateid(a),
            ArgOp::ReclaimComplete(a) => self.reclaim_complete(*a),
            ArgOp::Getxattr(name) => self.getxattr(name),
            ArgOp::Setxattr(a) => self.setxattr(a),
            ArgOp::Listxattrs(a) => self.listxattrs(a),
            ArgOp::Removexattr(name) => self.removexattr(name),
            ArgOp::Sequence(_) => Err(NfsStat::NFS4ERR_SEQUENCE_POS.into()),
            ArgOp::Allocate(a) => self.allocate(a),
            ArgOp::Clone(a) => self.clone_file(a),
            ArgOp::Copy(a) => self.copy(a),
            ArgOp::Deallocate(a) => self.deallocate(a),
            ArgOp::IoAdvise(a) => self.io_advise(a),
            ArgOp::OffloadCancel(a) => self.offload_cancel(a),
            ArgOp::OffloadStatus(a) => self.offload_status(a),
            ArgOp::ReadPlus(a) => self.read_plus(a),
            ArgOp::Seek(a) => self.seek(a),
            ArgOp::DelegReturn(a) => self.deleg_return(a),
            ArgOp::Other(_) => Err(NfsStat::NFS4ERR_NOTSUPP.into()),
            // Only in NFSv4.0, which has its own way here: `v40`.
            ArgOp::Setclientid(_)
            | ArgOp::SetclientidConfirm(_)
            | ArgOp::Renew(_)
            | ArgOp::ReleaseLockowner(_)
            | ArgOp::OpenConfirm(_) => Err(NfsStat::NFS4ERR_NOTSUPP.into()),
            ArgOp::Malformed(_) => Err(NfsStat::NFS4ERR_BADXDR.into()),
        }
    }
}

/// The result of an operation as it stands in the reply.
pub(super) fn result(op: OpNum, done: Result<ResBody, OpError>) -> ResOp {
    match done {
        Ok(body) => ResOp::ok(op, body),
        // Not every operation may say so.
        Err(OpError { status: NfsStat::NFS4ERR_IO, .. }) => ResOp::failed(op, errors::status_of_failed(op)),
        Err(OpError { status, body: Some(body) }) => ResOp { op, status, body: *body },
        Err(OpError { status, body: None }) => ResOp::failed(op, status),
    }
}
