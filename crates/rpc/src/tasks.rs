//! The tasks of a connection: one reads and begins calls, one writes. Together they may move to the thread of a lone client
//! ([`crate::lone`]) and back.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tracing::debug;

use crate::conn::{Cause, ConnConfig, ConnInfo, Service, Shares, Stage};
use crate::lone::LonePlace;
use crate::reader::{Input, ReadEnd, Reader};
use crate::writer::{self, Outgoing};

/// Starts the tasks of a connection on an established stream.
pub(crate) fn start<S: Service>(
    stream: TcpStream,
    service: Arc<S>,
    config: &ConnConfig,
    shared: Option<Shares>,
) -> io::Result<(Arc<ConnInfo>, JoinHandle<()>)> {
    stream.set_nodelay(true)?;
    let (queue, outgoing) = mpsc::unbounded_channel();
    let conn = Arc::new(ConnInfo::new(&stream, &*service, config, shared.as_ref(), queue)?);
    let reader = Reader::new(conn.clone(), service, shared);
    let (read, write) = stream.into_split();
    let (config, input) = (config.clone(), Input::new(config));
    let task = tokio::spawn(run(Connection { reader, config, input, read, write, outgoing }));
    Ok((conn, task))
}

/// A connection while nothing of it runs.
struct Connection<S> {
    reader: Reader<S>,
    config: ConnConfig,
    input: Input,
    read: OwnedReadHalf,
    write: OwnedWriteHalf,
    outgoing: mpsc::UnboundedReceiver<Outgoing>,
}

/// A connection that belongs to no runtime.
struct Detached<S> {
    reader: Reader<S>,
    config: ConnConfig,
    input: Input,
    stream: std::net::TcpStream,
    outgoing: mpsc::UnboundedReceiver<Outgoing>,
}

/// How the tasks of a connection ended on one thread.
enum Leg<S> {
    Ended,
    /// It goes on elsewhere: on the thread of a lone client, or, with `None`, among the others.
    Moves(Box<Connection<S>>, Option<LonePlace>),
}

async fn run<S: Service>(mut connection: Connection<S>) {
    while let Leg::Moves(moving, Some(place)) = serve(connection).await {
        match serve_alone(*moving, place).await {
            Some(back) => connection = back,
            None => return,
        }
    }
}

/// Serves the connection on the thread of a lone client, until it ends (`None`) or moves back.
async fn serve_alone<S: Service>(connection: Connection<S>, place: LonePlace) -> Option<Connection<S>> {
    let detached = connection.detach()?;
    let alone = async move {
        match serve(detached.attach()?).await {
            Leg::Moves(back, _) => back.detach(),
            Leg::Ended => None,
        }
    };
    let task = place.runtime()?.spawn(alone);
    // An error: the thread has ended, and the server with it.
    let back = task.await.ok().flatten()?;
    drop(place);
    back.attach()
}

impl<S: Service> Connection<S> {
    fn detach(self) -> Option<Detached<S>> {
        let Connection { reader, config, input, read, write, outgoing } = self;
        let stream = read.reunite(write).map_err(io::Error::other).and_then(TcpStream::into_std);
        match stream {
            Ok(stream) => Some(Detached { reader, config, input, stream, outgoing }),
            Err(e) => reader.lost(&e),
        }
    }
}

impl<S: Service> Detached<S> {
    /// Makes it a connection of the runtime that this is called in.
    fn attach(self) -> Option<Connection<S>> {
        let Detached { reader, config, input, stream, outgoing } = self;
        match TcpStream::from_std(stream) {
            Ok(stream) => {
                let (read, write) = stream.into_split();
                Some(Connection { reader, config, input, read, write, outgoing })
            }
            Err(e) => reader.lost(&e),
        }
    }
}

/// Serves the connection on this thread.
async fn serve<S: Service>(connection: Connection<S>) -> Leg<S> {
    let Connection { reader, config, mut input, mut read, write, outgoing } = connection;
    let conn = reader.conn.clone();
    let mut stage = conn.stages();
    let patience = writer::Patience { stall_max: config.write_stall_max, time_max: config.write_time_max };
    let (pause, paused) = oneshot::channel();
    let shared = reader.shared.clone();
    let writing = tokio::spawn(write_all(conn.clone(), shared, write, outgoing, patience, paused));
    let why = tokio::select! {
        why = reader.read(&mut read, &mut input, &config) => why,
        _ = stage.wait_for(|s| *s != Stage::Open) => None,
    };
    let why = match why {
        Some(ReadEnd::Move(to)) => {
            let _ = pause.send(());
            if let Ok(Some((write, outgoing))) = writing.await {
                let connection = Connection { reader, config, input, read, write, outgoing };
                return Leg::Moves(Box::new(connection), to);
            }
            // The writer has ended because the connection is closed.
            reader.service.closed(&conn);
            return Leg::Ended;
        }
        why => why,
    };
    drop(read);
    match why {
        Some(ReadEnd::Eof) => conn.advance(Stage::Draining, "the peer closed the connection"),
        Some(ReadEnd::Lost(why)) => {
            debug!(conn = conn.id(), peer = %conn.peer(), "connection closed: {why}");
            conn.advance(Stage::Closed, &why);
        }
        Some(ReadEnd::Cause(cause)) => {
            conn.tell(reader.shared.as_ref(), &cause);
            conn.advance(Stage::Closed, &cause.to_string());
        }
        Some(ReadEnd::Move(_)) | None => {}
    }
    reader.service.closed(&conn);
    let (calls, _) = conn.budgets();
    tokio::select! {
        // When all permits are back, every pending reply has been written.
        _ = calls.permits.acquire_many(calls.max as u32) => {}
        _ = stage.wait_for(|s| *s == Stage::Closed) => {}
    }
    conn.advance(Stage::Closed, "closed");
    let _ = writing.await;
    Leg::Ended
}

/// Writes until the connection is closed; returns what it had if it was paused.
async fn write_all(
    conn: Arc<ConnInfo>,
    shared: Option<Shares>,
    mut write: OwnedWriteHalf,
    mut outgoing: mpsc::UnboundedReceiver<Outgoing>,
    patience: writer::Patience,
    paused: oneshot::Receiver<()>,
) -> Option<(OwnedWriteHalf, mpsc::UnboundedReceiver<Outgoing>)> {
    let mut stage: watch::Receiver<Stage> = conn.stages();
    tokio::select! {
        done = writer::run(&mut write, &mut outgoing, patience, paused, |messages| conn.written(messages)) => match done {
            Ok(writer::End::Paused) => return Some((write, outgoing)),
            Ok(writer::End::QueueClosed) => {}
            Err(e) => {
                if writer::too_slow(&e) {
                    conn.tell(shared.as_ref(), &Cause::TakesNothing);
                }
                conn.advance(Stage::Closed, &format!("cannot send: {e}"));
            }
        },
        _ = stage.wait_for(|s| *s == Stage::Closed) => {}
    }
    if conn.is_aborted() {
        // With zero linger, dropping the last half resets the connection. The orderly end must not go out
        // before that.
        let _ = write.as_ref().set_zero_linger();
        write.forget();
        return None;
    }
    // Shut down first: everything sent then reaches the peer before the reset that unread input may cause.
    let _ = tokio::io::AsyncWriteExt::shutdown(&mut write).await;
    None
}
