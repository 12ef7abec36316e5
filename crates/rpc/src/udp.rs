//! RPC over UDP (RFC 5531 section 10: a message is a datagram), for the small protocols around NFSv3 that still use it:
//! the port mapper, the lock manager, the status monitor. Calls may arrive twice, so their service must tolerate that.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use landfast_xdr::Encode;
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::auth::Credential;
use crate::conn::{CallError, CallHeader, Program, Response, Target, check_program};
use crate::limits::{ACCEPT_RETRY, DATAGRAM_MAX, DATAGRAMS_IN_FLIGHT_MAX};
use crate::message::{
    AcceptStat, Incoming, OpaqueAuth, Outcome, RawCall, RejectStat, encode_accepted, encode_denied, parse,
};
use crate::turns::Turn;

/// Makes a call: sends it, and again after each of `waits` but the last, until the reply comes.
/// Errors: As for a call on a connection. [`CallError::Closed`] when nobody listens there or nothing can be sent: then
/// nothing was executed.
pub async fn call(
    to: SocketAddr,
    target: Target,
    cred: &OpaqueAuth,
    args: &Bytes,
    waits: &[Duration],
) -> Result<Bytes, CallError> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    call_from(any, to, target, cred, args, waits).await
}

/// [`call`] from this address of this machine.
pub async fn call_from(
    from: IpAddr,
    to: SocketAddr,
    target: Target,
    cred: &OpaqueAuth,
    args: &Bytes,
    waits: &[Duration],
) -> Result<Bytes, CallError> {
    static NEXT_XID: AtomicU32 = AtomicU32::new(1);
    let closed = |e: io::Error| CallError::Closed(e.to_string().into());
    let socket = UdpSocket::bind((from, 0)).await.map_err(closed)?;
    socket.connect(to).await.map_err(closed)?;
    let seed = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos() as u32);
    let xid = NEXT_XID.fetch_add(1, Ordering::Relaxed) ^ seed;
    let mut message = BytesMut::new();
    RawCall {
        xid,
        prog: target.prog,
        vers: target.vers,
        proc: target.proc,
        cred: cred.clone(),
        verf: OpaqueAuth::NONE,
    }
    .encode(&mut message);
    message.extend_from_slice(args);
    if message.len() > DATAGRAM_MAX {
        return Err(CallError::TooLarge(args.len()));
    }
    let mut buf = vec![0; DATAGRAM_MAX];
    for wait in waits {
        socket.send(&message).await.map_err(closed)?;
        let until = Instant::now() + *wait;
        while let Ok(received) = timeout_at(until, socket.recv(&mut buf)).await {
            let len = received.map_err(closed)?;
            let datagram = Bytes::copy_from_slice(buf.get(..len).unwrap_or_default());
            match parse(datagram) {
                Ok(Incoming::Reply { xid: of, outcome }) if of == xid => {
                    return match outcome {
                        Outcome::Accepted(AcceptStat::Success, results) => Ok(results),
                        Outcome::Accepted(stat, _) => Err(CallError::Failed(stat)),
                        Outcome::Denied(why) => Err(CallError::Denied(why)),
                    };
                }
                // For somebody else, or unknown.
                _ => continue,
            }
        }
    }
    Err(CallError::Timeout(waits.iter().sum()))
}

/// Serves calls by datagram, at most [`DATAGRAMS_IN_FLIGHT_MAX`] at a time. Later calls wait in the socket's buffer and
/// are lost when it is full: the caller retries. A datagram that is no call gets no answer.
pub async fn serve<H, F>(socket: UdpSocket, programs: &'static [Program], handler: H)
where
    H: Fn(SocketAddr, CallHeader, Bytes) -> F,
    F: Future<Output = Response> + Send + 'static,
{
    let socket = Arc::new(socket);
    let room = Arc::new(Semaphore::new(DATAGRAMS_IN_FLIGHT_MAX));
    let mut buf = vec![0; DATAGRAM_MAX];
    loop {
        // The semaphore is never closed.
        let permit = room.clone().acquire_owned().await;
        let (len, from) = match socket.recv_from(&mut buf).await {
            Ok(received) => received,
            Err(e) => {
                // An earlier answer could not be delivered, or the system is short of memory.
                tracing::debug!("cannot receive a datagram: {e}");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let datagram = Bytes::copy_from_slice(buf.get(..len).unwrap_or_default());
        let (call, body) = match parse(datagram) {
            Ok(Incoming::Call(call, body)) => (call, body),
            Ok(Incoming::Refused { xid, why }) => {
                answer(&socket, from, denied(xid, why)).await;
                continue;
            }
            _ => continue,
        };
        let xid = call.xid;
        if let Err(stat) = check_program(programs, &call) {
            answer(&socket, from, accepted(xid, stat, &[])).await;
            continue;
        }
        let cred = match Credential::from_opaque(&call.cred) {
            Ok(cred) => cred,
            Err(stat) => {
                answer(&socket, from, denied(xid, RejectStat::AuthError(stat))).await;
                continue;
            }
        };
        let header = CallHeader {
            xid,
            prog: call.prog,
            vers: call.vers,
            proc: call.proc,
            cred,
            message_bytes: len,
            turn: Turn::free(),
            lone: false,
        };
        let response = handler(from, header, body);
        let socket = socket.clone();
        tokio::spawn(async move {
            let message = match response.await {
                Response::Success(results) => accepted(xid, AcceptStat::Success, &[results]),
                Response::Segments(results) => accepted(xid, AcceptStat::Success, &results),
                Response::ProcUnavail => accepted(xid, AcceptStat::ProcUnavail, &[]),
                Response::GarbageArgs => accepted(xid, AcceptStat::GarbageArgs, &[]),
                Response::SystemErr => accepted(xid, AcceptStat::SystemErr, &[]),
                Response::AuthError(stat) => denied(xid, RejectStat::AuthError(stat)),
                Response::Close => return,
            };
            answer(&socket, from, message).await;
            drop(permit);
        });
    }
}

async fn answer(socket: &UdpSocket, to: SocketAddr, message: BytesMut) {
    // A lost answer is asked for again.
    if let Err(e) = socket.send_to(&message, to).await {
        tracing::debug!("cannot answer {to}: {e}");
    }
}

fn accepted(xid: u32, stat: AcceptStat, results: &[Bytes]) -> BytesMut {
    let mut out = BytesMut::new();
    encode_accepted(xid, stat, &mut out);
    results.iter().for_each(|r| out.extend_from_slice(r));
    out
}

fn denied(xid: u32, why: RejectStat) -> BytesMut {
    let mut out = BytesMut::new();
    encode_denied(xid, why, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    const PROGRAMS: &[Program] = &[Program { number: 7, low: 2, high: 3 }];
    const ONCE: &[Duration] = &[Duration::from_secs(20)];

    async fn echo() -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let addr = socket.local_addr().expect("an address");
        tokio::spawn(serve(socket, PROGRAMS, |_, call: CallHeader, body| async move {
            if call.proc == 1 { Response::Success(body) } else { Response::ProcUnavail }
        }));
        addr
    }

    async fn ask(to: SocketAddr, prog: u32, vers: u32, proc: u32) -> Result<Bytes, CallError> {
        let args = Bytes::from_static(b"abcd");
        call(to, Target { prog, vers, proc }, &OpaqueAuth::NONE, &args, ONCE).await
    }

    #[tokio::test]
    async fn calls_are_answered_and_errors_named() {
        let to = echo().await;
        assert_eq!(ask(to, 7, 3, 1).await, Ok(Bytes::from_static(b"abcd")));
        assert_eq!(ask(to, 7, 3, 2).await, Err(CallError::Failed(AcceptStat::ProcUnavail)));
        assert_eq!(ask(to, 8, 3, 1).await, Err(CallError::Failed(AcceptStat::ProgUnavail)));
        let mismatch = AcceptStat::ProgMismatch { low: 2, high: 3 };
        assert_eq!(ask(to, 7, 4, 1).await, Err(CallError::Failed(mismatch)));
    }

    #[tokio::test]
    async fn garbage_is_not_answered_and_harms_nobody() {
        let to = echo().await;
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        for len in [0, 1, 3, 40, 1400] {
            socket.send_to(&vec![0xff; len], to).await.expect("sent");
        }
        assert_eq!(ask(to, 7, 2, 1).await, Ok(Bytes::from_static(b"abcd")));
        let mut buf = [0; 16];
        assert!(socket.try_recv(&mut buf).is_err(), "an answer to garbage");
    }

    /// The first datagram is lost; the second attempt is answered, and is the same call.
    #[tokio::test]
    async fn a_lost_call_is_sent_again() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let to = socket.local_addr().expect("an address");
        let seen = Arc::new(AtomicUsize::new(0));
        let count = seen.clone();
        tokio::spawn(async move {
            let mut buf = [0; 512];
            loop {
                let (len, from) = socket.recv_from(&mut buf).await.expect("a datagram");
                if count.fetch_add(1, Ordering::Relaxed) > 0
                    && let Ok(Incoming::Call(call, body)) = parse(Bytes::copy_from_slice(&buf[..len]))
                {
                    let _ = socket.send_to(&accepted(call.xid, AcceptStat::Success, &[body]), from).await;
                }
            }
        });
        let waits = [Duration::from_millis(20), Duration::from_secs(20)];
        let args = Bytes::from_static(b"abcd");
        let target = Target { prog: 7, vers: 2, proc: 1 };
        assert_eq!(call(to, target, &OpaqueAuth::NONE, &args, &waits).await, Ok(args));
        assert_eq!(seen.load(Ordering::Relaxed), 2);
    }
}
