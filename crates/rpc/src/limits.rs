//! Every limit of the RPC layer, in one place. Sizes in bytes unless the name says otherwise.

use std::time::Duration;

/// Largest body of an authentication field (RFC 5531 section 8.2).
pub const AUTH_BODY_MAX: usize = 400;
/// Longest machine name in AUTH_SYS (RFC 5531 appendix A).
pub const MACHINE_NAME_MAX: usize = 255;
/// Most supplementary groups in AUTH_SYS (RFC 5531 appendix A).
pub const AUTH_SYS_GIDS_MAX: usize = 16;

/// Largest record accepted when the caller names no other size: room for a 4 MiB request or reply and
/// its headers.
pub const RECORD_MAX_DEFAULT: usize = (4 << 20) + (64 << 10);
/// Most fragments without a byte that one record may have. Of others it may have as many as it has bytes.
pub const EMPTY_FRAGMENTS_MAX: usize = 1024;
/// Largest fragment that record marking can express (RFC 5531 section 11): 31 bits.
pub const FRAGMENT_MAX: usize = 0x7fff_ffff;

/// Room that a connection's read buffer is given before a read.
pub const READ_CHUNK: usize = 128 << 10;
/// Segments handed to one vectored write (Linux takes 1024; more than this does not pay).
pub const WRITE_SEGMENTS_MAX: usize = 128;
/// Messages that the writer collects into one batch.
pub const WRITE_BATCH_MAX: usize = 128;
/// A batch of no more than this is copied together, which is cheaper than a vectored write.
pub const WRITE_COPY_MAX: usize = 16 << 10;
/// A peer that takes no byte for this long while something waits to be sent loses its connection.
pub const WRITE_STALL_MAX: Duration = Duration::from_secs(60);
/// So does one that takes less than [`WRITE_PROGRESS_MIN`] within this.
pub const WRITE_TIME_MAX: Duration = Duration::from_secs(300);
/// See [`WRITE_TIME_MAX`].
pub const WRITE_PROGRESS_MIN: usize = 1 << 20;

/// Calls of one connection that are served at the same time. The next call is read when one is done.
pub const CALLS_IN_FLIGHT_MAX: usize = 1024;
/// A call that took longer than this where it was read, without waiting for anything that lets others go on, was one for
/// a task of its own,
pub const IN_PLACE_MAX: Duration = Duration::from_micros(200);
/// and so are this many after it.
pub const APART_AFTER_SLOW: u32 = 64;
/// A connection's first calls are begun where they were read, whatever the ones before took: behind what makes a session and its
/// first request a client may send what is of no use before these.
pub const IN_PLACE_FIRST: u32 = 4;
/// A connection counts as serial after so many calls in a row, each alone in flight ([`crate::lone`]).
pub const SERIAL_AFTER: u32 = 64;
/// So many serial connections have threads of their own; if there are more, none has: from three clients on, those that are served together share more flushes.
pub const LONE_THREADS_MAX: usize = 2;
/// Threads that take over from those of the serial connections' pool that wait for a device, for each of these.
pub const SERIAL_THREADS_PER_WORKER: usize = 8;
/// How long a server that stops waits for connections that it has closed.
pub const CLOSE_MAX: Duration = Duration::from_secs(5);
/// How long no thread is asked for after the system gave none.
pub const THREADS_RETRY: Duration = Duration::from_secs(60);
/// Of the calls of a connection that has a thread of its own, at one in so many it is looked whether the next one has arrived already.
pub const LONE_LOOK_EVERY: u32 = 4;
/// How often it is looked whether a call keeps the thread of a client that has the server to itself. One that is found twice loses the client's
/// connection, which goes on without it: a call of a slow disk takes less, and a client waits longer for a disk that does not answer.
pub const LONE_LOOK: Duration = Duration::from_millis(50);
/// Messages that are dealt with before what answers them has a turn to be sent.
pub const IN_PLACE_IN_A_ROW: u32 = 32;
/// Request bytes of one connection that are being served. A single request may be larger than this:
/// then it runs alone.
pub const BYTES_IN_FLIGHT_MAX: usize = 32 << 20;
/// Request bytes being served on all connections of a server together.
pub const SERVER_BYTES_IN_FLIGHT_MAX: usize = 256 << 20;
/// Largest message by datagram, either way; what is longer is cut, and then no RPC message.
pub const DATAGRAM_MAX: usize = 16 << 10;
/// Calls by datagram that are served at the same time.
pub const DATAGRAMS_IN_FLIGHT_MAX: usize = 64;
/// Connections that a server holds at the same time; more are closed when they arrive.
pub const CONNECTIONS_MAX: usize = 8192;
/// The same of one client (an address).
pub const CLIENT_CONNECTIONS_MAX: usize = 256;
/// Calls of one client that are served at the same time, on all its connections.
pub const CLIENT_CALLS_IN_FLIGHT_MAX: usize = 2048;
/// Request bytes of one client that are being served or received.
pub const CLIENT_BYTES_IN_FLIGHT_MAX: usize = 64 << 20;
/// Calls that a server serves at the same time.
pub const SERVER_CALLS_IN_FLIGHT_MAX: usize = 16 << 10;
/// A reply of up to so many bytes is not counted: the number of calls bounds them.
pub const SMALL_REPLY: usize = 16 << 10;
/// Bytes of larger replies of one connection, from before they are made until they are in the socket. A call that has no
/// room for its reply waits.
pub const REPLY_BYTES_MAX: usize = 64 << 20;
/// The same of one client.
pub const CLIENT_REPLY_BYTES_MAX: usize = 128 << 20;
/// The same of all connections of a server.
pub const SERVER_REPLY_BYTES_MAX: usize = 512 << 20;
/// Calls that run, or wait for a thread, at the same time; further ones wait for their client's turn.
pub const TURNS: usize = 32;
/// How long a warning of one kind is not given again.
pub const WARN_EVERY: Duration = Duration::from_secs(3600);
/// Of so many things (clients, say) a warning of one kind is given for each; that of all others counts as one.
pub const WARN_OF_MAX: usize = 256;
/// A record of which less than [`RECORD_PROGRESS_MIN`] arrives within this, or less than what is missing of it, ends its
/// connection. So does one that waits for so long for room.
pub const RECORD_STALL_MAX: Duration = Duration::from_secs(60);
/// See [`RECORD_STALL_MAX`].
pub const RECORD_PROGRESS_MIN: usize = 64 << 10;
/// A record of up to so many bytes is not counted: the number of calls bounds them, and of connections while they arrive.
pub const SMALL_RECORD: usize = 16 << 10;
/// A connection that was silent for so long has no buffer until something comes.
pub const BUFFER_IDLE: Duration = Duration::from_secs(2);

/// Calls that each client may have in flight whatever others have.
pub const CALLS_LEAST: usize = 16;
/// Request bytes that each client may have in flight whatever others have: a largest record.
pub const BYTES_LEAST: usize = RECORD_MAX_DEFAULT;
/// Bytes of large replies that are made for each client whatever is made for others: a largest one.
pub const REPLY_BYTES_LEAST: usize = RECORD_MAX_DEFAULT;

/// Connections of outsiders (addresses that nobody names) in all; one more takes the place of the oldest,
pub const OUTSIDERS_MAX: usize = 64;
/// and of one outsider.
pub const OUTSIDER_CONNECTIONS_MAX: usize = 4;
/// Largest record that an outsider may send, and what its buffer holds.
pub const OUTSIDER_RECORD_MAX: usize = 8 << 10;
/// An outsider's connection is closed when nothing has arrived for so long.
pub const OUTSIDER_IDLE_MAX: Duration = Duration::from_secs(30);
/// So many connections a client keeps that holds state, or is served, whoever needs places: as many as a Linux client makes
/// at most (`nconnect`).
pub const PLACES_KEPT: usize = 16;
/// A client that has all the connections it may have gets a place of its own that was idle for so long.
pub const OWN_IDLE_MIN_MS: u64 = 60_000;
/// How long it is believed that a client which has all the connections it may have has none that was idle for long.
pub const FULL_KNOWN_MS: u64 = 500;
/// How long it is believed who holds state, before it is asked for again.
pub const HOLDERS_KNOWN_MS: u64 = 1_000;

/// How long the port mapper may take for one answer, and a server that it knows for one connection.
pub const RPCBIND_PATIENCE: Duration = Duration::from_secs(5);
/// Largest answer of the port mapper.
pub const RPCBIND_REPLY_MAX: usize = 1 << 20;

/// The ports that a client tries which is to have one that only root opens: as Linux' client, and none of those below, which
/// have names.
pub const RESERVED_PORTS: std::ops::RangeInclusive<u16> = 665..=1023;
/// How long a client waits for a TCP connection to be made.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// A server closes a connection on which nothing arrived for this long. NFSv4.1 clients renew their lease
/// far more often, and make a new connection when they need one.
pub const SERVER_IDLE_MAX: Duration = Duration::from_secs(600);
/// How long a listener rests after `accept` failed for want of descriptors or memory.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(100);
