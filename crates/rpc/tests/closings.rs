//! A connection that the server closes for a cause is told to its log: once for each client and cause, with the reason.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use landfast_rpc::{CallHeader, ConnConfig, ConnInfo, Program, Response, Server, ServerConfig, Service};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const PATIENCE: Duration = Duration::from_secs(20);

/// The messages of warnings, in their order.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        struct Message(String);
        impl Visit for Message {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().unwrap().push(message.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Nothing([Program; 1]);

impl Service for Nothing {
    fn programs(&self) -> &[Program] {
        &self.0
    }

    async fn call(&self, _: &Arc<ConnInfo>, _: CallHeader, _: Bytes) -> Response {
        Response::Success(Bytes::new())
    }
}

/// Sends this, and waits until the server has closed the connection.
async fn send(server: &Server, bytes: &[u8]) {
    let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
    // A reset is a closed connection, too.
    let _ = closed.expect("closed");
}

#[tokio::test]
async fn each_cause_is_told_once_for_each_client() {
    let warnings = Warnings::default();
    tracing::subscriber::set_global_default(warnings.clone()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let conn = ConnConfig { record_stall_max: Duration::from_millis(300), ..ConnConfig::default() };
    let service = Arc::new(Nothing([Program { number: 1, low: 1, high: 1 }]));
    let config = ServerConfig { conn, ..ServerConfig::default() };
    let server = Server::start(listener, service, config).unwrap();

    let empty = [0; 4 * 2000];
    let no_message = [0x80, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 9];
    let half = [0x80, 0, 0, 8, 0, 0, 0, 1];
    for (bytes, said) in [
        (&[0xff; 4][..], "closed: a record of at least 2147483647 bytes was announced, the limit is 4259840"),
        (&no_message, "closed: what it sent is no RPC message: malformed RPC header: msg_type 9"),
        (&half, "closed: it does not finish its record"),
    ] {
        send(&server, bytes).await;
        let told = warnings.take();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("connection from 127.0.0.1 ") && told[0].ends_with(said), "{told:?}");
        for _ in 0..3 {
            send(&server, bytes).await;
        }
        assert_eq!(warnings.take(), [] as [&str; 0], "the same again");
    }
    // What the peer ends is nobody's fault.
    drop(TcpStream::connect(server.local_addr()).await.unwrap());
    let mut whole = TcpStream::connect(server.local_addr()).await.unwrap();
    whole.write_all(&half).await.unwrap();
    whole.shutdown().await.unwrap();
    assert_eq!(
        tokio::time::timeout(PATIENCE, whole.read(&mut [0; 1])).await.expect("closed").unwrap_or(0),
        0
    );
    assert_eq!(warnings.take(), [] as [&str; 0]);
    // Both are of one kind: what came is no record.
    send(&server, &empty).await;
    assert_eq!(warnings.take(), [] as [&str; 0]);
    assert!(server.shutdown(PATIENCE).await);
}
