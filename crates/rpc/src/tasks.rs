//! The tasks of a connection: one reads and begins calls, one writes. Together they may move to the threads of clients that make one call
//! at a time ([`crate::lone`]) and back.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::net::Shutdown;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use crate::conn::{Cause, ConnConfig, ConnInfo, Service, Shares, Stage};
use crate::limits;
use crate::lone::{Destination, LonePlace, Seat};
use crate::reader::{Input, ReadEnd, Reader};
use crate::writer::{self, Outgoing, WriteHalf, Writing};

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
    let (config, input) = (config.clone(), Input::new(config));
    let task =
        tokio::spawn(run(Connection::new(reader, config, input, stream, outgoing, Writing::default())));
    Ok((conn, task))
}

/// A connection while nothing of it runs.
struct Connection<S: Service> {
    reader: Reader<S>,
    config: ConnConfig,
    input: Input,
    read: OwnedReadHalf,
    writing: Writing,
}

/// A connection that belongs to no runtime.
struct Detached<S: Service> {
    reader: Reader<S>,
    config: ConnConfig,
    input: Input,
    stream: std::net::TcpStream,
    outgoing: mpsc::UnboundedReceiver<Outgoing>,
}

/// How the tasks of a connection ended where they were.
enum Leg<S: Service> {
    Ended,
    Moves(Box<Connection<S>>, Destination),
}

async fn run<S: Service>(mut connection: Connection<S>) {
    while let Leg::Moves(moving, to) = serve(connection).await {
        let back = match to {
            Destination::Lone(place) => serve_alone(*moving, place).await,
            Destination::Serial(pool) => serve_in_pool(*moving, &pool).await,
            Destination::Others => Some(*moving),
        };
        match back {
            Some(back) => connection = back,
            None => return,
        }
    }
}

/// Serves the connection on the threads of this pool, until it ends (`None`) or moves back.
async fn serve_in_pool<S: Service>(connection: Connection<S>, pool: &Handle) -> Option<Connection<S>> {
    let detached = connection.detach()?;
    // An error: the pool has ended, and the server with it.
    let back = pool.spawn(serve_elsewhere(detached, Writing::default())).await.ok().flatten()?;
    back.attach(Writing::default())
}

/// Serves the connection in the runtime that polls this, until it ends (`None`) or moves back.
async fn serve_elsewhere<S: Service>(detached: Detached<S>, writing: Writing) -> Option<Detached<S>> {
    match serve(detached.attach(writing)?).await {
        Leg::Moves(back, _) => back.detach(),
        Leg::Ended => None,
    }
}

/// Serves the connection on the thread of a lone client, until it ends (`None`), moves back, or has to go on without the thread.
async fn serve_alone<S: Service>(connection: Connection<S>, place: LonePlace) -> Option<Connection<S>> {
    let seat = Arc::new(Seat::new());
    let mut detached = connection.detach()?;
    let reader = &mut detached.reader;
    let left = reader.substitute();
    let config = detached.config.clone();
    reader.seat = Some(seat.clone());
    let mut task = place.runtime()?.spawn(serve_elsewhere(detached, seat.writing.clone()));
    let (mut looks, mut before) = (interval(limits::LONE_LOOK), 0);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            back = &mut task => {
                // An error: the thread has ended, and the server with it.
                let mut back = back.ok().flatten()?;
                drop(place);
                back.reader.seat = None;
                return back.attach(Writing::default());
            }
            _ = looks.tick() => if let Some(half) = seat.take(&mut before) {
                let conn = left.conn.clone();
                conn.hold();
                // Until then nobody else may be on the thread.
                tokio::spawn(async move {
                    let _ = task.await;
                    conn.release();
                    drop(place);
                });
                return go_on_without(left, config, half);
            }
        }
    }
}

/// The connection of a reader whose thread does not go on. It was waiting for the peer's next call, and has read nothing of it.
fn go_on_without<S: Service>(
    mut reader: Reader<S>,
    config: ConnConfig,
    half: WriteHalf,
) -> Option<Connection<S>> {
    reader.waits = false;
    // While that call is in flight, no other one makes it serial again.
    reader.calls_overlap();
    let input = Input::new(&config);
    match leave(half, |socket| rustix::io::fcntl_dupfd_cloexec(socket, 0)) {
        Ok((stream, outgoing)) => {
            Detached { reader, config, input, stream, outgoing }.attach(Writing::default())
        }
        Err(e) => reader.lost(&e),
    }
}

/// Takes the stream away from the runtime that it belongs to, whose thread still holds the other half. What cannot be taken is ended.
fn leave(
    half: WriteHalf,
    duplicate: impl FnOnce(&TcpStream) -> rustix::io::Result<OwnedFd>,
) -> io::Result<(std::net::TcpStream, mpsc::UnboundedReceiver<Outgoing>)> {
    let WriteHalf { socket, queue } = half;
    // A descriptor of its own: the thread still has the other one, with the event loop that it belongs to.
    let stream = duplicate(socket.as_ref()).map(std::net::TcpStream::from);
    if stream.is_err() {
        end_both_ways(socket.as_ref());
    }
    // A stream that goes on is not to be shut down.
    socket.forget();
    Ok((stream?, queue))
}

/// Ends a stream of which a thread that does not go on holds the other half: nobody reads it any more, and the peer is to see that.
fn end_both_ways(stream: &TcpStream) {
    // Fails if the peer has ended it.
    let _ = rustix::net::shutdown(stream, Shutdown::Both);
}

impl<S: Service> Connection<S> {
    fn new(
        reader: Reader<S>,
        config: ConnConfig,
        input: Input,
        stream: TcpStream,
        queue: mpsc::UnboundedReceiver<Outgoing>,
        writing: Writing,
    ) -> Connection<S> {
        let (read, socket) = stream.into_split();
        writing.put(WriteHalf { socket, queue });
        Connection { reader, config, input, read, writing }
    }

    fn detach(self) -> Option<Detached<S>> {
        let Connection { reader, config, input, read, writing } = self;
        let WriteHalf { socket, queue: outgoing } = writing.take()?;
        let stream = read.reunite(socket).map_err(io::Error::other).and_then(TcpStream::into_std);
        match stream {
            Ok(stream) => Some(Detached { reader, config, input, stream, outgoing }),
            Err(e) => reader.lost(&e),
        }
    }
}

impl<S: Service> Detached<S> {
    /// Makes it a connection of the runtime that this is called in.
    fn attach(self, writing: Writing) -> Option<Connection<S>> {
        let Detached { reader, config, input, stream, outgoing } = self;
        match TcpStream::from_std(stream) {
            Ok(stream) => Some(Connection::new(reader, config, input, stream, outgoing, writing)),
            Err(e) => reader.lost(&e),
        }
    }
}

/// Serves the connection where it is.
async fn serve<S: Service>(connection: Connection<S>) -> Leg<S> {
    let Connection { reader, config, mut input, mut read, writing } = connection;
    let conn = reader.conn.clone();
    let mut stage = conn.stages();
    let patience = writer::Patience { stall_max: config.write_stall_max, time_max: config.write_time_max };
    let (pause, paused) = oneshot::channel();
    let shared = reader.shared.clone();
    let writer = tokio::spawn(write_all(conn.clone(), shared, writing.clone(), patience, paused));
    let why = tokio::select! {
        why = reader.read(&mut read, &mut input, &config) => why,
        _ = stage.wait_for(|s| *s != Stage::Open) => None,
    };
    let why = match why {
        Some(ReadEnd::Move(to)) => {
            let _ = pause.send(());
            if let Ok(true) = writer.await {
                let connection = Connection { reader, config, input, read, writing };
                return Leg::Moves(Box::new(connection), to);
            }
            // The writer has ended because the connection is closed.
            conn.tell_closed(&*reader.service);
            return Leg::Ended;
        }
        // Who has it ends it. The writer that was here finds nothing to write any more.
        Some(ReadEnd::Taken) => return Leg::Ended,
        why => why,
    };
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
        Some(ReadEnd::Move(_) | ReadEnd::Taken) | None => {}
    }
    conn.tell_closed(&*reader.service);
    let (calls, _) = conn.budgets();
    let in_order = tokio::select! {
        // When all permits are back, every pending reply has been written.
        _ = calls.permits.acquire_many(calls.max as u32) => conn.is_draining(),
        _ = stage.wait_for(|s| *s == Stage::Closed) => false,
    };
    if in_order {
        reader.service.drained(&conn, read.as_ref().as_fd());
    }
    drop(read);
    conn.advance(Stage::Closed, "closed");
    let _ = writer.await;
    Leg::Ended
}

/// Writes until the connection is closed or somebody else writes. Returns whether it was paused.
async fn write_all(
    conn: Arc<ConnInfo>,
    shared: Option<Shares>,
    writing: Writing,
    patience: writer::Patience,
    paused: oneshot::Receiver<()>,
) -> bool {
    let mut stage: watch::Receiver<Stage> = conn.stages();
    tokio::select! {
        done = writer::run(&writing, patience, paused, |messages| conn.written(messages)) => match done {
            Ok(writer::End::Paused) => return true,
            Ok(writer::End::Taken) => return false,
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
    let Some(WriteHalf { socket: mut write, .. }) = writing.take() else { return false };
    if conn.is_aborted() {
        // With zero linger, dropping the last half resets the connection. The orderly end must not go out
        // before that.
        let _ = write.as_ref().set_zero_linger();
        write.forget();
        return false;
    }
    if conn.is_held() {
        end_both_ways(write.as_ref());
    }
    // Shut down first: everything sent then reaches the peer before the reset that unread input may cause.
    let _ = tokio::io::AsyncWriteExt::shutdown(&mut write).await;
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    /// There may be no descriptor for it. The thread that was left behind holds its half on.
    #[tokio::test]
    async fn a_stream_that_cannot_be_taken_ends_for_the_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut peer = TcpStream::connect(listener.local_addr().expect("one")).await.expect("connected");
        let (stream, _) = listener.accept().await.expect("accepted");
        let (held, socket) = stream.into_split();
        let (_sender, queue) = mpsc::unbounded_channel();
        assert!(leave(WriteHalf { socket, queue }, |_| Err(rustix::io::Errno::MFILE)).is_err());
        let sees_it = async {
            assert_eq!(peer.read(&mut [0; 1]).await.expect("an orderly end"), 0);
            while peer.write_all(&[0; 64 << 10]).await.is_ok() {}
        };
        timeout(Duration::from_secs(30), sees_it).await.expect("in time");
        drop(held);
    }
}
