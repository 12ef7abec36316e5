//! `GET /metrics` by HTTP.

use crate::limits;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use landfast_rpc::Seldom;
use landfast_xdr::Bytes;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// What Prometheus asks for, and takes.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers until it is dropped. A reader that takes too long loses its connection; too many wait.
pub(crate) async fn serve(listener: TcpListener, page: impl Fn() -> String + Send + Sync + 'static) {
    let page = Arc::new(page);
    let room = Arc::new(Semaphore::new(limits::METRICS_CONNECTIONS_MAX));
    let failures = Seldom::new();
    loop {
        // The semaphore is never closed.
        let permit = room.clone().acquire_owned().await;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(e) => {
                failures.warn(|more| tracing::warn!("cannot accept a connection for the metrics: {e}{more}"));
                sleep(limits::METRICS_ACCEPT_RETRY).await;
                continue;
            }
        };
        let page = page.clone();
        tokio::spawn(async move {
            let answer = service_fn(|request| {
                let response = answer(&request, &*page);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .keep_alive(false)
                .max_buf_size(limits::METRICS_REQUEST_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), answer);
            // Whatever goes wrong is the reader's.
            let _ = timeout(limits::METRICS_TIME_MAX, connection).await;
            drop(permit);
        });
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
