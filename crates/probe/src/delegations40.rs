//! Delegations of version 4.0 (RFC 7530 sections 10.2 and 10.4). The server grants one only after it has connected to
//! a port of the client.

use crate::delegations::{Delegation, Delegations, given, open_ops, opened};
use crate::error::{Error, Result};
use crate::limits::{CALLED_PATIENCE, CALLED_SHUTDOWN, DELEGATION_PAUSE, DELEGATION_TRIES, PATIENCE};
use crate::v4::{PROGRAM_NAME, options, seqids_used};
use bytes::Bytes;
use landfast_nfs::v4::args::CloseArgs;
use landfast_nfs::v4::callback::{CB_PROC_COMPOUND, CB_PROC_NULL, CB_VERSION, CbCompoundRes, CbRes};
use landfast_nfs::v4::res::OpenRes;
use landfast_nfs::v4::v40::{CALLBACKS, OpenConfirmArgs};
use landfast_nfs::v4::{
    ArgOp, CompoundArgs, CompoundRes, FileHandle, NfsStat, OpNum, PROC_COMPOUND, ResBody, Stateid, VERSION,
    flags,
};
use landfast_rpc::Service;
use landfast_rpc::conn::{CallHeader, ConnInfo, Program, Response};
use landfast_rpc::server::{Server, ServerConfig};
use landfast_verify::Target;
use landfast_verify::blocking::nfs::Fh;
use landfast_verify::blocking::session::Options;
use landfast_verify::blocking::v4::Client;
use landfast_verify::blocking::wire::{Procedure, Wire};
use landfast_verify::error::Error as ServerError;
use landfast_xdr::{Decode, Encode, Reader};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const PROGRAMS: &[Program] = &[Program { number: CALLBACKS, low: CB_VERSION, high: CB_VERSION }];

/// CB_RECALL (RFC 7530 section 15.2).
const RECALL: u32 = 4;

/// Answers the server's callbacks.
struct Answers {
    /// Notified of the first NULL.
    called: Mutex<Option<mpsc::Sender<()>>>,
    was_called: AtomicBool,
}

impl Service for Answers {
    fn programs(&self) -> &[Program] {
        PROGRAMS
    }

    async fn call(&self, _: &Arc<ConnInfo>, call: CallHeader, body: Bytes) -> Response {
        match call.proc {
            CB_PROC_NULL => {
                self.was_called.store(true, Ordering::Release);
                drop(self.called.lock().unwrap_or_else(PoisonError::into_inner).take());
                Response::Success(Bytes::new())
            }
            CB_PROC_COMPOUND => answer(body).map_or(Response::GarbageArgs, Response::Success),
            _ => Response::ProcUnavail,
        }
    }
}

/// Delegations are returned at once anyway, so a recall needs no action. Other callbacks are about state that nobody
/// holds.
fn answer(body: Bytes) -> Option<Bytes> {
    let mut r = Reader::new(body);
    let (tag, _minor, _ident) = (Bytes::decode(&mut r).ok()?, r.u32().ok()?, r.u32().ok()?);
    let first = if r.u32().ok()? > 0 { Some(r.u32().ok()?) } else { None };
    let status = match first {
        None | Some(RECALL) => NfsStat::NFS4_OK,
        Some(_) => NfsStat::NFS4ERR_BADHANDLE,
    };
    let results =
        first.map(|op| CbRes { op: OpNum(op), status, sequence: None, attrs: None }).into_iter().collect();
    Some(CbCompoundRes { status, tag, results }.to_bytes())
}

/// The port for the server's callbacks.
struct Listening {
    runtime: Runtime,
    server: Option<Server>,
    answers: Arc<Answers>,
    called: mpsc::Receiver<()>,
    port: u16,
}

impl Listening {
    /// Listens on a free port of every address of this machine.
    fn start() -> std::io::Result<Listening> {
        // Callbacks are answered while this thread waits for the server.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let any: [SocketAddr; 2] = [(Ipv6Addr::UNSPECIFIED, 0).into(), (Ipv4Addr::UNSPECIFIED, 0).into()];
        let (sender, called) = mpsc::channel();
        let answers =
            Arc::new(Answers { called: Mutex::new(Some(sender)), was_called: AtomicBool::new(false) });
        let service = answers.clone();
        let server = runtime.block_on(async {
            Server::start(TcpListener::bind(&any[..]).await?, service, ServerConfig::default())
        })?;
        let port = server.local_addr().port();
        Ok(Listening { runtime, server: Some(server), answers, called, port })
    }

    /// Waits up to `patience` until the server has called.
    fn wait(&self, patience: Duration) -> bool {
        // The first call drops the sender. Nothing is ever sent.
        let _ = self.called.recv_timeout(patience);
        self.answers.was_called.load(Ordering::Acquire)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.shutdown(CALLED_SHUTDOWN));
        }
    }
}

/// A client ID with callbacks, and its open owner.
struct Client40 {
    client: Client,
    seqid: u32,
}

impl Client40 {
    fn compound(&mut self, ops: Vec<ArgOp>) -> Result<CompoundRes> {
        let announced = ops.len() as u32;
        let args = CompoundArgs { tag: Bytes::new(), minor_version: 0, announced, ops };
        let to = Procedure { prog: landfast_nfs::PROGRAM, vers: VERSION, proc: PROC_COMPOUND };
        let wire: &mut Wire = self.client.session.wire();
        let res = CompoundRes::from_bytes(wire.call(to, &args)?)
            .map_err(|e| ServerError::Nonsense(e.to_string()))?;
        self.seqid = self.seqid.wrapping_add(seqids_used(&res));
        Ok(res)
    }

    /// Opens a file and closes it again. Returns whether a delegation was given.
    fn open(&mut self, dir: &FileHandle, name: &str, share_access: u32) -> Result<Delegation> {
        let ops = open_ops(dir, name, share_access, (self.client.session.clientid(), self.seqid));
        let (open, fh) = match opened(self.compound(ops)?) {
            Ok(opened) => opened,
            Err(none) => return Ok(none),
        };
        let open_stateid = self.confirmed(&open, &fh)?;
        let mut back = vec![ArgOp::Putfh(fh)];
        let said = given(&open.delegation, share_access, &mut back);
        back.push(ArgOp::Close(CloseArgs { seqid: self.seqid, open_stateid }));
        let closed = self.compound(back)?.status;
        if closed.is_ok() {
            Ok(said)
        } else {
            Ok(Delegation::none(format!("DELEGRETURN or CLOSE: {closed}")))
        }
    }

    /// An owner's first open must be confirmed. Servers grant nothing before.
    fn confirmed(&mut self, open: &OpenRes, fh: &FileHandle) -> Result<Stateid> {
        if open.rflags & flags::OPEN4_RESULT_CONFIRM == 0 {
            return Ok(open.stateid);
        }
        let confirm = OpenConfirmArgs { open_stateid: open.stateid, seqid: self.seqid };
        let reply = self.compound(vec![ArgOp::Putfh(fh.clone()), ArgOp::OpenConfirm(confirm)])?;
        let confirmed = reply.results.into_iter().find_map(|r| match r.body {
            ResBody::OpenConfirm(stateid) => Some(stateid),
            _ => None,
        });
        Ok(confirmed.unwrap_or(open.stateid))
    }

    fn wish(&mut self, dir: &FileHandle, name: &str, share_access: u32) -> Result<Delegation> {
        let mut said = Delegation { offered: false, why: None };
        for attempt in 0..DELEGATION_TRIES {
            if attempt > 1 {
                // The first open only confirms. Nothing shows when the server knows that it can call back.
                std::thread::sleep(DELEGATION_PAUSE);
            }
            said = self.open(dir, name, share_access)?;
            if said.offered {
                break;
            }
        }
        Ok(said)
    }
}

/// Opens two files as a client with callbacks. Fails if the server is lost; a refused delegation is a result.
pub fn delegations(target: &Target, dir: &Fh, names: [&str; 2]) -> Result<Delegations> {
    let listening = Listening::start().map_err(|e| Error::Unable(format!("no port for callbacks: {e}")))?;
    let options = Options { callbacks: Some(listening.port), ..options() };
    let mut client =
        Client40 { client: Client::connect_as(PROGRAM_NAME, &options, target, 0, PATIENCE)?, seqid: 0 };
    listening.wait(CALLED_PATIENCE);
    let dir = FileHandle(Bytes::copy_from_slice(dir));
    let read = client.wish(&dir, names[0], flags::OPEN4_SHARE_ACCESS_READ)?;
    let write = client.wish(&dir, names[1], flags::OPEN4_SHARE_ACCESS_BOTH)?;
    let why = match listening.wait(Duration::ZERO) {
        true => "the server called back, and gave none".to_owned(),
        false => {
            format!(
                "the server did not call back at port {} of this machine: it gives none, or cannot reach it",
                listening.port
            )
        }
    };
    let because = |d: Delegation| match d {
        Delegation { offered: false, why: None } => Delegation { offered: false, why: Some(why.clone()) },
        said => said,
    };
    Ok(Delegations::simple(because(read), because(write), "version 4.0 has none"))
}
