//! Every limit and patience of the client, in one place. Sizes in bytes unless the name says otherwise.

use std::time::Duration;

/// Request size asked for in CREATE_SESSION.
pub const REQUEST_ASK: u32 = (4 << 20) + (16 << 10);
/// Reply size asked for in CREATE_SESSION.
pub const RESPONSE_ASK: u32 = (2 << 20) + (16 << 10);
/// Cached reply size asked for in CREATE_SESSION: room for the replies of a few hundred creates.
pub const RESPONSE_CACHED_ASK: u32 = 128 << 10;
/// Operations in one COMPOUND asked for in CREATE_SESSION.
pub const OPS_ASK: u32 = 2048;
/// Slots asked for in CREATE_SESSION.
pub const SLOTS_ASK: u32 = 64;
/// Never more slots than this, whatever the server would like.
pub const SLOTS_MAX: u32 = 256;
/// TCP connections of a session.
pub const CONNECTIONS: usize = 2;

/// A server that grants less than this cannot be worked with (bytes of request and of reply).
pub const MESSAGE_MIN: u32 = 2048;
/// A server that grants fewer operations than this cannot be worked with.
pub const OPS_MIN: u32 = 8;

/// How long one call waits for its reply before its connection is given up and the call is sent again.
pub const CALL_PATIENCE: Duration = Duration::from_secs(60);
/// How long a server may be unreachable before a call fails.
pub const RECONNECT_PATIENCE: Duration = Duration::from_secs(300);
/// How long the calls that end a session may take.
pub const GOODBYE_PATIENCE: Duration = Duration::from_secs(5);
/// First pause before something is tried again; doubles up to [`BACKOFF_MAX`].
pub const BACKOFF_MIN: Duration = Duration::from_millis(20);
/// Longest pause between two tries.
pub const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// How long a server may answer DELAY or GRACE to one piece of work before that counts as its failure:
/// longer than the grace periods in use (90 s).
pub const DELAY_PATIENCE: Duration = Duration::from_secs(300);
/// Lease time assumed when the server does not tell.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);
/// New sessions made in a row without one successful compound between them, before giving up.
pub const RENEWALS_MAX: u32 = 8;

/// Symbolic links followed in the path of a URL.
pub const SYMLINKS_MAX: usize = 40;
/// Bytes asked for in one READDIR.
pub const READDIR_BYTES: u32 = 256 << 10;
/// Bytes asked for in one READ.
pub const READ_BYTES: u32 = 1 << 20;

/// Bytes of one long name, or of one pax header, in an archive.
pub const ARCHIVE_META_MAX: u64 = 8 << 20;
/// Data segments of one sparse file in an archive.
pub const SPARSE_SEGMENTS_MAX: usize = 1 << 20;
/// Buffer between the archive's file and the decompressor.
pub const ARCHIVE_READ_BUFFER: usize = 256 << 10;
/// Memory that an xz stream may ask its decompressor to take.
pub const XZ_MEMORY_MAX: u64 = 1 << 30;
