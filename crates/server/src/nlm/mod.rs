//! NLM version 4 and NSM, the lock manager and the status monitor of NFSv3 (RFC 1813 appendix II; C702 chapters 10, 11,
//! 14), on the same port as NFS, over TCP and UDP.
//!
//! - [`procs`]: the lock manager's procedures; their state is [`crate::state::nlm`], in the tables of all versions;
//! - `manager`: what these share, and what the log has to know;
//! - `grants`: tells clients of locks that they waited for;
//! - `monitor`: the status monitor: tells clients of a restart of this server, and hears of theirs;
//! - `peers`: calls to a client, whose port its port mapper knows.
//!
//! What a host holds may be changed only from the address that it was taken from, or from another address that the
//! host's name resolves to (`hosts_named`), while the rules of the export admit that one.
//!
//! Invariants: a client hears GRANTED only when the log says that it may hold something. A lock that a client may have
//! heard of is taken from it only at its own request.

mod grants;
mod manager;
mod monitor;
mod peers;
mod procs;

use crate::admission::is_for_all;
use crate::exports::caller::Admission;
use crate::exports::name_cache::Wait;
use crate::state::nlm::RequestForm;
use bytes::Bytes;
use landfast_nfs::nlm;
use landfast_rpc::conn::{CallHeader, Response};
pub(crate) use manager::Nlm;
use std::net::{IpAddr, SocketAddr};

impl Nlm {
    /// The background tasks: grants locks that become free, tells clients of the restart. Ends with the runtime or when dropped.
    pub(crate) async fn run(self) {
        tokio::join!(grants::run(self.clone()), monitor::notify_all(self));
    }

    /// Serves a call by datagram. Its source address may be forged, so a caller that is not admitted gets no reply, except to NULL. Nor
    /// does one of whom that is not known yet: it would keep its place until it is, and forged ones would keep all. It calls again.
    /// `at` is the address that it came to, if known.
    pub(crate) async fn datagram(
        &self,
        peer: SocketAddr,
        at: Option<IpAddr>,
        call: CallHeader,
        body: Bytes,
    ) -> Response {
        let (prog, proc) = (call.prog, call.proc);
        if !is_for_all(prog, proc) {
            match self.sh.admission_to(peer, prog, proc, Wait::No).await {
                Admission::Taken => {}
                Admission::NotYet => return Response::Close,
                Admission::Refused(_) => {
                    self.sh.counters.stranger();
                    return Response::Close;
                }
            }
        }
        self.call(peer, RequestForm { udp: true, message: false, at }, call, body).await
    }

    /// Serves a call of one of [`crate::protocols::LOCK_PROGRAMS`].
    pub(crate) async fn call(
        &self,
        peer: SocketAddr,
        by: RequestForm,
        call: CallHeader,
        body: Bytes,
    ) -> Response {
        match call.prog {
            nlm::PROGRAM => self.lock_manager(peer, by, call, body).await,
            _ => self.status_monitor(peer, &call, body).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::hosts::{Asked, Names};
    use crate::exports::name_cache::{NameCache, Source};
    use crate::exports::rules::{ClientSpec, Rule, Rules};
    use crate::exports::unavailable::Unavailable;
    use crate::exports::{Exports, Features, Served};
    use crate::limited::Limits;
    use crate::protocols::{LOCK_PROGRAMS, Protocols};
    use crate::shared::{Instance, Shared};
    use crate::state::ids::Secret;
    use landfast_nfs::nlm::{Lock, TestArgs, TestRes, proc};
    use landfast_nfs::v4::Opaque1024;
    use landfast_rpc::conn::Target;
    use landfast_rpc::limits::DATAGRAMS_IN_FLIGHT_MAX;
    use landfast_rpc::message::RawCall;
    use landfast_rpc::{AuthSys, Credential, OpaqueAuth, Turn, udp};
    use landfast_volume::{Cred, Durability, OpenOptions, Volume};
    use landfast_xdr::{BytesMut, Decode, Encode};
    use parking_lot::Mutex;
    use std::sync::{Arc, mpsc};
    use std::time::Duration;
    use tokio::net::UdpSocket;

    /// Answers nothing while the other end is there.
    struct Silent(Mutex<mpsc::Receiver<()>>);

    impl Silent {
        fn waits<T>(&self) -> Option<T> {
            // The other end never sends.
            let _ = self.0.lock().recv();
            None
        }
    }

    impl Source for Silent {
        fn names(&self, _: IpAddr, _: &Asked) -> Option<Names> {
            self.waits()
        }

        fn addresses(&self, _: &str) -> Option<Vec<IpAddr>> {
            self.waits()
        }

        fn groups(&self, _: u32) -> Option<Vec<u32>> {
            self.waits()
        }
    }

    fn rules(client: &str) -> Rules {
        let client = ClientSpec::parse(client).expect("a client");
        Rules(vec![Rule { secure: false, ..Rule::new(vec![client]) }])
    }

    /// An export that nobody can use now; who might is known.
    fn unavailable(path: &str, client: &str) -> Unavailable {
        let (path, name, rules) = (path.into(), path.into(), rules(client));
        Unavailable { path, name, rules, manage_gids: true, log_bytes: None, why: "damaged".into() }
    }

    /// A lock manager whose name server is silent until the sender is dropped.
    fn with_silent_names(served: Vec<Served>, down: Vec<Unavailable>) -> (Nlm, mpsc::Sender<()>) {
        let (silent, other_end) = mpsc::channel();
        let known = NameCache::new(Box::new(Silent(Mutex::new(other_end)))).expect("threads");
        let instance = Instance { server: [0; 16], epoch: 1, secret: Secret::default() };
        let exports = Exports::new(served, down, [0; 16], Vec::new()).expect("a table");
        let sh = Shared::new(exports, instance, 90, known, Limits::default(), Protocols::default());
        (Nlm::new(Arc::new(sh), 1, 111), silent)
    }

    fn test_args(fh: &Bytes) -> Bytes {
        let obj = |text: &'static [u8]| Opaque1024(Bytes::from_static(text));
        let (caller_name, fh, oh) = (obj(b"host"), Opaque1024(fh.clone()), obj(b"owner"));
        let lock = Lock { caller_name, fh, oh, svid: 1, offset: 0, length: 1 };
        TestArgs { cookie: obj(b"cookie"), exclusive: true, lock }.to_bytes()
    }

    /// More calls from addresses that may be named, as forged datagrams are, than are served at a time.
    #[tokio::test]
    async fn c7_datagrams_of_unknown_hosts_keep_no_place_while_the_name_server_is_silent() {
        let down = vec![unavailable("/a", "127.0.0.1"), unavailable("/b", "client.example.org")];
        let (nlm, _silent) = with_silent_names(Vec::new(), down);
        let args = test_args(&Bytes::new());
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let to = socket.local_addr().expect("an address");
        let server = tokio::spawn(udp::serve(socket, LOCK_PROGRAMS, move |peer, call, body| {
            let nlm = nlm.clone();
            async move { nlm.datagram(peer, None, call, body).await }
        }));

        let target = Target { prog: nlm::PROGRAM, vers: nlm::VERSION, proc: proc::TEST };
        for n in 0..2 * DATAGRAMS_IN_FLIGHT_MAX as u8 {
            let stranger = UdpSocket::bind((IpAddr::from([127, 0, 0, 2 + n]), 0)).await.expect("a socket");
            let Target { prog, vers, .. } = target;
            // Anybody's NULL is answered.
            for (proc, args) in [(proc::TEST, args.clone()), (proc::NULL, Bytes::new())] {
                let (cred, verf) = (OpaqueAuth::NONE, OpaqueAuth::NONE);
                let mut message = BytesMut::new();
                RawCall { xid: u32::from(n), prog, vers, proc, cred, verf }.encode(&mut message);
                message.extend_from_slice(&args);
                stranger.send_to(&message, to).await.expect("sent");
            }
        }
        let here = IpAddr::from([127, 0, 0, 1]);
        let waits = [Duration::from_secs(1)];
        let answer = udp::call_from(here, to, target, &OpaqueAuth::NONE, &args, &waits).await;
        let res = TestRes::from_bytes(answer.expect("an answer within a second")).expect("a result");
        assert_eq!(res.cookie.0, "cookie");
        server.abort();
    }

    /// DENIED would tell the client that another holds the lock.
    #[tokio::test]
    #[cfg_attr(not(root), ignore = "needs root")]
    async fn who_calls_by_datagram_before_his_groups_are_known_is_told_to_come_again() {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        std::fs::write(dir.path().join("f"), "").expect("a file");
        let options = OpenOptions { accept_weak: true, ..OpenOptions::new(dir.path(), Durability::Sync) };
        let (volume, recovery) = Volume::open(options).expect("the volume opens");
        let fh = volume.lookup(&Cred::root(), &volume.root(), b"f").expect("there").fh();
        let (path, name, rules) = (dir.path().into(), "/".into(), rules("127.0.0.1"));
        let features = Features::default();
        let served = Served { volume, recovery, path, name, rules, manage_gids: true, features };
        let (nlm, _silent) = with_silent_names(vec![served], Vec::new());
        let sys = AuthSys { uid: 1000, ..AuthSys::default() };
        let call = CallHeader {
            xid: 1,
            prog: nlm::PROGRAM,
            vers: nlm::VERSION,
            proc: proc::TEST,
            cred: Credential::Sys(Arc::new(sys)),
            message_bytes: 1024,
            turn: Turn::free(),
            lone: false,
        };
        let answer = nlm.datagram(([127, 0, 0, 1], 1023).into(), None, call, test_args(&fh)).await;
        let Response::Success(res) = answer else { panic!("{answer:?}") };
        let stat = TestRes::from_bytes(res).expect("a result").reply.stat;
        assert_eq!(stat, nlm::NlmStat::DENIED_GRACE_PERIOD);
    }
}
