//! Every limit and patience of the client, in one place. Sizes in bytes unless the name says otherwise.

use std::time::Duration;

/// Request size asked for in CREATE_SESSION.
pub const REQUEST_ASK: u32 = (4 << 20) + (16 << 10);
/// Reply size asked for in CREATE_SESSION.
pub const RESPONSE_ASK: u32 = (2 << 20) + (16 << 10);
/// Cached reply size asked for in CREATE_SESSION: room for the replies of some hundred creates, for as many slots.
pub const RESPONSE_CACHED_ASK: u32 = 96 << 10;
/// Operations in one COMPOUND asked for in CREATE_SESSION.
pub const OPS_ASK: u32 = 2048;
/// Slots asked for in CREATE_SESSION: some for what goes beside [`COMPOUNDS_IN_FLIGHT_MAX`].
pub const SLOTS_ASK: u32 = 72;
/// Slots asked for when the server has no room for more.
pub const SLOTS_MODEST: u32 = 8;
/// Never more slots than this, whatever the server would like.
pub const SLOTS_MAX: u32 = 256;
/// COMPOUNDs that are executed at the same time on a version 3 server.
pub const CALLS_IN_FLIGHT_MAX: u32 = 128;
/// Operations in one COMPOUND of version 4.0, which has no way to ask, before a server says that it takes fewer: the least
/// that today's servers take.
pub const LEG_OPS: u64 = 96;
/// Fewer are never tried.
pub const LEG_OPS_MIN: u64 = 8;
/// Bytes of a COMPOUND of version 4.0, and of its reply, that every server takes.
pub const MESSAGE40_MIN: u32 = 64 << 10;
/// Bytes of a reply of version 4.0 that a server may be expected to keep for a call that is sent again.
pub const RESPONSE40_CACHED: u32 = 12 << 10;
/// How often a version 4.0 server that is in its grace period, or has forgotten an open, is asked whether it knows this client.
pub const CLIENT_ASKED_EACH: Duration = Duration::from_millis(200);
/// RENEWs in one lease of version 4.0.
pub const RENEWALS_PER_LEASE: u32 = 3;
/// Ways in which one COMPOUND of version 4.0 is tried: with other owners, client IDs, stateids, or in shorter parts.
pub const LEG_TRIES_MAX: u32 = 64;
/// Bytes of one WRITE of version 3 that every server takes, whatever it says.
pub const WRITE3_BYTES_MIN: usize = 8 << 10;
/// Bytes of one WRITE of version 3 beyond which nothing is gained.
pub const WRITE3_BYTES_MAX: usize = 1 << 20;
/// TCP connections of a session.
pub const CONNECTIONS: usize = 2;
/// Most connections that a URL may ask for.
pub const NCONNECT_MAX: usize = 16;

/// A server that grants less than this cannot be worked with (bytes of request and of reply).
pub const MESSAGE_MIN: u32 = 2048;
/// A server that grants fewer operations than this cannot be worked with.
pub const OPS_MIN: u32 = 8;

/// How long one call waits for its reply before its connection is given up and the call is sent again.
pub const CALL_PATIENCE: Duration = Duration::from_secs(60);
/// How long a server may be unreachable before a call fails.
pub const RECONNECT_PATIENCE: Duration = Duration::from_secs(300);
/// The same for a server that has taken a connection and never answered on one: what `mount` gives it.
pub const FIRST_ANSWER_PATIENCE: Duration = Duration::from_secs(120);
/// How long commands try again to connect to a server that refuses the first connection: about what a restart takes.
pub const REFUSED_PATIENCE: Duration = Duration::from_secs(5);
/// After so much of it, it is told.
pub const REFUSED_TOLD_AFTER: Duration = Duration::from_millis(500);
/// Pause between two such tries.
pub const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// How long nothing comes from a server that is waited for before that is told.
pub const SILENT_AFTER: Duration = Duration::from_secs(5);
/// Longest pause between two tries to connect again.
pub const RECONNECT_PAUSE_MAX: Duration = Duration::from_millis(500);
/// Times that a call is sent to a server which answers it with what is no RPC record.
pub const GARBLED_MAX: u32 = 3;
/// How long an archive is read, at most, before its first members go where a session is known already.
pub const READ_FIRST_MAX: Duration = Duration::from_millis(200);
/// How long what a session's first request has to say waits for a compound that takes it along.
pub const OPENING_WAITS_MAX: Duration = Duration::from_secs(1);
/// How long it may take until the calls that end a session are on their way.
pub const GOODBYE_PATIENCE: Duration = Duration::from_secs(5);
/// How long their replies are waited for from then on; not at all where a reply has taken longer.
pub const GOODBYE_HEARD: Duration = Duration::from_millis(5);
/// First pause before something is tried again; doubles up to [`BACKOFF_MAX`].
pub const BACKOFF_MIN: Duration = Duration::from_millis(20);
/// Longest pause between two tries.
pub const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// How long a server may answer DELAY or GRACE to one piece of work, or lose its state or its reply, before that counts as its
/// failure, by the pauses between the tries: longer than the grace periods in use (90 s).
pub const DELAY_PATIENCE: Duration = Duration::from_secs(300);
/// Tries to connect again from the port of the connection that was lost, before any port will do.
pub const SAME_PORT_TRIES: usize = 10;
/// Lease time assumed when the server does not tell.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);
/// New sessions, or client IDs, made in a row without one successful compound between them, before giving up; the more there were,
/// the longer the pause before the next.
pub const RENEWALS_MAX: u32 = 32;

/// Symbolic links followed in the path of a URL.
pub const SYMLINKS_MAX: usize = 40;
/// COMPOUNDs that one vectored call has under way.
pub const WINDOW_MAX: usize = 128;
/// Items of a walk, or removals, that are sent although others of them may soon come.
pub const GATHERED_MIN: usize = 32;
/// Entries, at most, together with which a directory is removed in one COMPOUND.
pub const REMOVED_TOGETHER: usize = 4096;
/// Entries of a directory that are listed before they are removed.
pub const REMOVED_PART: usize = 16_384;
/// Objects whose removal is requested, or that are being listed for it. More are listed only if nothing else is in flight.
pub const REMOVED_AHEAD_MAX: usize = 65_536;
/// Entries that a walk has listed before their turn, or is listing. More are listed only if nothing else is in flight.
pub const WALKED_EARLY_MAX: usize = 65_536;
/// Directories that a walk has asked for or is about to; the others that it knows take less memory.
pub const WALKED_ASKED_MAX: usize = 16_384;
/// Entries of a directory in one part of its listing, where a walk may give parts.
pub const WALKED_PART: usize = 16_384;
/// Entries that the first listings of a walk are expected to bring; about those of one page of [`READDIR_FIRST_BYTES`].
pub const LISTING_EXPECTED: usize = 256;
/// How long a directory's filehandle is taken for where its path leads.
pub const DIR_FRESH: Duration = Duration::from_secs(5);
/// Files of [`crate::fs::Writes`] that are written in one call.
pub const WRITES_TOGETHER: usize = 64;
/// The same for their bytes.
pub const WRITES_TOGETHER_BYTES: usize = 1 << 20;
/// Bytes of files, and calls, that [`crate::fs::Writes`] has under way before it takes more.
pub const WRITES_BYTES_MAX: usize = 64 << 20;
/// The same for its calls.
pub const WRITES_CALLS_MAX: usize = 64;
/// Directories whose filehandles are remembered.
pub const DIRS_KEPT_MAX: usize = 65_536;
/// Bytes asked for in one READDIR.
pub const READDIR_BYTES: u32 = 256 << 10;
/// Bytes asked for in the first READDIR of a directory, of which many fit in one reply.
pub const READDIR_FIRST_BYTES: u32 = 32 << 10;
/// Bytes asked for in the first READ of a file whose size is not known, of which many fit in one reply.
pub const READ_FIRST_BYTES: u32 = 64 << 10;
/// Bytes asked for in one LISTXATTRS.
pub const LISTXATTRS_BYTES: u32 = 4 << 10;
/// Extended attributes of one object that are asked for.
pub const XATTRS_MAX: usize = 4096;
/// Longest value of an extended attribute on the systems in use.
pub const XATTR_BYTES_MAX: usize = 64 << 10;
/// Bytes asked for in one READ.
pub const READ_BYTES: u32 = 1 << 20;
/// The same however small a server says that its replies have to be.
pub const READ_BYTES_MIN: u32 = 512;

/// Bytes of one long name, or of one pax header, in an archive.
pub const ARCHIVE_META_MAX: u64 = 8 << 20;
/// Data segments of one sparse file in an archive.
pub const SPARSE_SEGMENTS_MAX: usize = 1 << 20;
/// Buffer between the archive's file and the decompressor.
pub const ARCHIVE_READ_BUFFER: usize = 256 << 10;
/// Members with at most so many bytes of data are read into memory that they share.
pub const SMALL_DATA_BYTES: usize = 16 << 10;
/// Bytes of memory that small members share. It is free when all of them are done.
pub const SMALL_DATA_TOGETHER: usize = 64 << 10;
/// Buffer between the compressor and the archive that is written.
pub const ARCHIVE_WRITE_BUFFER: usize = 256 << 10;
/// Memory that an xz stream may ask its decompressor to take.
pub const XZ_MEMORY_MAX: u64 = 1 << 30;

/// Blocks of zeroes of this many bytes may become holes.
pub const SPARSE_BLOCK_BYTES: usize = 4096;

/// Objects of a server's tree that are listed before it is their turn to be copied; one reply may bring more.
pub const WALKED_AHEAD_MAX: usize = 16_384;
/// Members of a server's tree that are read in one call.
pub const COPIED_TOGETHER: usize = 256;
/// The same for their bytes.
pub const COPIED_TOGETHER_BYTES: usize = 4 << 20;
/// Bytes of a server's files that are read ahead.
pub const COPIED_AHEAD_BYTES: usize = 32 << 20;
/// The same for calls.
pub const COPIED_CALLS_MAX: usize = 16;
/// Files written on this machine before their filesystem is synced.
pub const SYNC_EVERY_MEMBERS: usize = 65_536;
/// The same for their bytes.
pub const SYNC_EVERY_BYTES: u64 = 1 << 30;

/// Smaller files are not cloned: a server copies them as cheaply, and they share little.
pub const CLONED_MIN: u64 = 64 << 10;
/// Larger files are copied by the server in a COMPOUND of their own.
pub const COPIED_WHOLE_MAX: u64 = 4 << 20;
/// Bytes that one COMPOUND has a server copy.
pub const COPIED_PER_COMPOUND: u64 = 16 << 20;
/// Bytes of one COPY of a larger file: what a slow disk copies long before [`CALL_PATIENCE`] ends, and all that a server goes on with
/// when its client has died.
pub const COPY_PIECE_BYTES: u64 = 64 << 20;
/// How long the end of a copy that a server does not know any more may still be on its way here.
pub const COPY_END_PATIENCE: Duration = Duration::from_secs(5);
/// Ends of copies that are remembered until somebody asks for them.
pub const COPY_ENDS_MAX: usize = 1024;
/// Recalls of delegations that wait for whoever listens. A further one is answered with DELAY: the server repeats it.
pub const RECALLS_MAX: usize = 1024;
/// Pieces of a file that are read and written together when the server does not copy it.
pub const COPIED_PIECES: usize = 4;

/// How often a listing of a directory begins anew because the server does not continue from its cookies; then that is an error.
pub const LISTING_RESTARTS_MAX: u32 = 16;

/// Keys of names, or of other things of a tree, that are remembered in memory; more are in a temporary file, and in memory 2 bytes of
/// each.
pub const KEYS_IN_MEMORY: usize = 450_000;
/// Directories that an extraction has in memory while nothing in them is in progress; more are in a temporary file.
pub const DIRS_IN_MEMORY: usize = 16_384;
/// Directories that are looked at for one that may go there, when a member is planned.
pub const DIRS_LOOKED_AT: usize = 64;
/// Directories whose final attributes are read back from there together.
pub const FINALS_TOGETHER: usize = 16_384;
/// Files with several names that are remembered in memory until all their names have come; more are in a temporary file.
pub const LINKS_IN_MEMORY: usize = 65_536;
/// Bytes that wait to be written to a temporary file.
pub const OVERFLOW_BUFFER: usize = 256 << 10;

/// Directories that a member may be nested in.
pub const DEPTH_MAX: usize = 512;
/// Members that `untar` packs into one compound.
pub const MEMBERS_PER_COMPOUND: usize = 64;
/// Directories that count as one of these.
pub const DIRS_FOR_A_MEMBER: usize = 4;
/// Members that `untar` reads ahead of what it plans; their bytes are bounded by [`BYTES_IN_FLIGHT_MAX`], too.
pub const MEMBERS_AHEAD: usize = 8192;
/// Members that `untar` plans before it looks again what can be sent, where answers take no longer than [`SHORT_ANSWER`]; else
/// [`MEMBERS_AHEAD`].
pub const MEMBERS_AT_ONCE: usize = 256;
/// About what planning [`MEMBERS_AHEAD`] members takes.
pub const SHORT_ANSWER: Duration = Duration::from_millis(5);
/// Combinations of owner, group and mode of which `untar` remembers whether the server sets them; further ones are taken for set.
pub const OWNERS_KNOWN_MAX: usize = 16_384;
/// Bytes of a request that `untar` packs.
pub const PACKED_REQUEST_MAX: usize = 768 << 10;
/// Files larger than this are written in pieces.
pub const WHOLE_FILE_MAX: u64 = 256 << 10;
/// Bytes of file data that `untar` holds.
pub const BYTES_IN_FLIGHT_MAX: usize = 64 << 20;
/// What a member counts for in that beside its data, bytes: about what it takes while it is planned, packed and sent.
pub const MEMBER_OVERHEAD: usize = 2048;
/// Answered compounds whose memory is kept for the next ones.
pub const BODIES_KEPT: usize = 8;
/// Compounds that `untar` has under way.
pub const COMPOUNDS_IN_FLIGHT_MAX: usize = 64;
/// Replies that wait for `untar`'s loop; whoever has another one waits with it.
pub const REPLIES_WAITING_MAX: usize = 256;
/// How long members wait for more of their kind when nothing is under way.
pub const LINGER: Duration = Duration::from_millis(3);
/// Members that are extracted one operation at a time, at the same time.
pub const STEPWISE_MAX: usize = 16;
/// Tries to replace a file that keeps coming back.
pub const REPLACE_TRIES: usize = 4;
/// Largest existing directory that is listed before something is put into it, entries.
pub const LISTING_MAX: usize = 100_000;
/// Bytes of one piece of a large file.
pub const PIECE_BYTES: usize = 1 << 20;
/// Pieces of a large file that are written between two COMMITs, and held until then.
pub const PIECES_PER_COMMIT: usize = 16;
/// Times that pieces are written again because the server restarted before their COMMIT.
pub const REWRITES_MAX: usize = 64;
/// Failed members that a report names one by one; more are only counted.
pub const FAILURES_NAMED_MAX: usize = 10_000;

/// Objects that `tar` fetches in one call.
pub const FETCHED_TOGETHER: usize = 256;
/// The same for the bytes of their data.
pub const FETCHED_TOGETHER_BYTES: u64 = 1 << 20;
/// Larger files are read in pieces while they are written to the archive.
pub const FETCHED_WHOLE_MAX: u64 = 4 << 20;
/// Calls that `tar` has under way or waiting for their turn in the archive.
pub const FETCHES_MAX: usize = 64;
/// Bytes of files' data that `tar` holds.
pub const FETCHED_BYTES_MAX: usize = 64 << 20;
/// Objects that `tar` has listed and not yet begun to fetch; one reply may bring more.
pub const PLANNED_AHEAD_MAX: usize = 16_384;
/// Members that wait for the thread that writes the archive.
pub const ORDERS_MAX: usize = 256;
/// Pieces of a large file between the one who reads and the one who writes.
pub const PIECES_WAITING: usize = 4;
/// Bytes of a large file that are read in one call, and such calls under way.
pub const STRETCH_BYTES: u64 = 4 << 20;
/// The same for such calls under way.
pub const STRETCHES_MAX: usize = 4;
/// Calls that the comparison of contents has under way.
pub const COMPARED_CALLS_MAX: usize = 16;

/// How long what became stable may wait before it is written to the journal of `--resume` and synced there: what is lost of
/// it when this machine loses its power is done again.
pub const JOURNAL_SYNC_INTERVAL: Duration = Duration::from_millis(100);
/// Entries of the journal that are written and synced without waiting for more.
pub const JOURNAL_SYNC_ENTRIES: usize = 4096;
/// Entries that wait for the journal's disk before the work itself waits.
pub const JOURNAL_QUEUE_MAX: usize = 262_144;
/// Bytes of the journal that are read at a time.
pub const JOURNAL_READ_BYTES: usize = 256 << 10;
/// Bytes of a large file that become stable between two entries of the journal about it.
pub const JOURNAL_PART_BYTES: u64 = 64 << 20;
/// Bytes of members that are held until it is known that a stream is the archive that it was.
pub const HELD_UNCHECKED_BYTES_MAX: usize = 8 << 20;
/// With a journal: files written on this machine before their filesystem is synced.
pub const JOURNAL_SYNC_MEMBERS: usize = 4096;
/// The same for their bytes.
pub const JOURNAL_SYNC_BYTES: u64 = 64 << 20;
/// The same for the time since the last sync.
pub const JOURNAL_SYNC_LOCAL_INTERVAL: Duration = Duration::from_secs(1);

/// Operations of a COMPOUND that a line of the log names; of more it says how many they are.
pub const SHOWN_OPERATIONS_MAX: usize = 24;
