//! `GET /metrics` by HTTP.

use crate::limits;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use landfast_rpc::{RateLimit, share_of};
use landfast_xdr::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// The content type that Prometheus asks for and accepts.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

struct Reader {
    number: u64,
    /// The client ([`share_of`]).
    client: IpAddr,
    task: AbortHandle,
}

/// All connections, oldest first. Dropping this ends them.
#[derive(Default)]
struct Readers(Mutex<VecDeque<Reader>>);

impl Readers {
    /// Which connection is closed for a new one of `client` when all places are taken: the oldest of the client that
    /// has most.
    fn excess(readers: &VecDeque<Reader>, client: IpAddr) -> Option<usize> {
        if readers.len() < limits::METRICS_CONNECTIONS_MAX {
            return None;
        }
        let of = |c: IpAddr| readers.iter().filter(|r| r.client == c).count() + usize::from(c == client);
        let most = readers.iter().map(|r| r.client).max_by_key(|c| of(*c))?;
        readers.iter().position(|r| r.client == most)
    }

    fn ended(&self, number: u64) {
        self.0.lock().retain(|r| r.number != number);
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.0.get_mut().iter().for_each(|r| r.task.abort());
    }
}

/// Serves until it is dropped. A reader that takes too long loses its connection. Nobody waits for others: if there are
/// too many connections, those of the client that has most are closed first.
pub(crate) async fn serve(listener: TcpListener, page: impl Fn() -> String + Send + Sync + 'static) {
    let page = Arc::new(page);
    let readers = Arc::new(Readers::default());
    let failures = RateLimit::new();
    for number in 0.. {
        let (stream, client) = match listener.accept().await {
            Ok((stream, peer)) => (stream, share_of(peer.ip())),
            Err(e) => {
                failures.warn(|more| tracing::warn!("cannot accept a connection for the metrics: {e}{more}"));
                sleep(limits::METRICS_ACCEPT_RETRY).await;
                continue;
            }
        };
        let (page, among) = (page.clone(), Arc::downgrade(&readers));
        let mut open = readers.0.lock();
        if let Some(gone) = Readers::excess(&open, client).and_then(|i| open.remove(i)) {
            gone.task.abort();
        }
        // It finds itself among the others when it has ended: they are locked until it stands there.
        let task = tokio::spawn(async move {
            let answer = service_fn(|request| {
                let response = answer(&request, &*page);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(limits::METRICS_REQUEST_TIME_MAX)
                .keep_alive(false)
                .max_buf_size(limits::METRICS_REQUEST_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), answer);
            // Errors are the reader's own problem.
            let _ = timeout(limits::METRICS_TIME_MAX, connection).await;
            if let Some(readers) = among.upgrade() {
                readers.ended(number);
            }
        });
        open.push_back(Reader { number, client, task: task.abort_handle() });
    }
}

fn answer(request: &Request<Incoming>, page: &(dyn Fn() -> String + Send + Sync)) -> Response<Full<Bytes>> {
    let (status, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, page()),
        (&Method::GET | &Method::HEAD, _) => (StatusCode::NOT_FOUND, "see /metrics\n".to_owned()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "GET /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = if status == StatusCode::OK { OPENMETRICS } else { "text/plain" };
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpSocket, TcpStream};

    const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

    async fn connect(host: u8, to: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a small window");
        socket.bind(SocketAddr::from(([127, 0, 0, host], 0))).expect("an address of the loopback network");
        socket.connect(to).await.expect("connected")
    }

    /// Some send half a request, some read nothing of the answer, from two addresses. Whoever comes then is answered at once.
    #[tokio::test]
    async fn slow_readers_keep_nobody_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let server = tokio::spawn(serve(listener, || "x".repeat(16 << 20)));
        let mut slow = Vec::new();
        for i in 0..3 * limits::METRICS_CONNECTIONS_MAX {
            let mut stream = connect(1 + (i % 2) as u8, addr).await;
            stream.write_all(if i % 3 == 0 { &GET[..20] } else { GET }).await.expect("sent");
            slow.push(stream);
        }
        for host in [3, 1] {
            let answered = tokio::time::timeout(Duration::from_secs(5), async {
                let mut stream = connect(host, addr).await;
                stream.write_all(GET).await.expect("sent");
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).await.expect("an answer");
                answer.len()
            });
            assert!(answered.await.expect("in time") > 16 << 20);
        }
        server.abort();
    }

    #[test]
    fn who_has_most_connections_gives_one_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let ip = |n| IpAddr::from([192, 0, 2, n]);
        let reader = |number: u64, n| {
            let task = runtime.spawn(std::future::pending::<()>()).abort_handle();
            Reader { number, client: ip(n), task }
        };
        let mut readers: VecDeque<Reader> = (0..limits::METRICS_CONNECTIONS_MAX as u64 - 1)
            .map(|n| reader(n, if n < 3 { 1 } else { 2 }))
            .collect();
        assert_eq!(Readers::excess(&readers, ip(3)), None, "there is a place");
        readers.push_back(reader(1000, 2));
        assert_eq!(Readers::excess(&readers, ip(3)), Some(3), "the oldest of the other");
        assert_eq!(Readers::excess(&readers, ip(1)), Some(3));
        assert_eq!(Readers::excess(&readers, ip(2)), Some(3));
    }
}
