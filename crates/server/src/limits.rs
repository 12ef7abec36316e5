//! Every limit of the server in one place, with the answer that a client gets at it.
//!
//! Sizes are bytes, times milliseconds, unless the name says otherwise.

use std::time::Duration;

/// Largest request that a session takes, RPC header included: a 4 MiB WRITE and what stands around it.
/// More: `NFS4ERR_REQ_TOO_BIG`.
pub const REQUEST_BYTES_MAX: u32 = (4 << 20) + (64 << 10);
/// Largest reply that a session gives, RPC header included. More: `NFS4ERR_REP_TOO_BIG`.
pub const RESPONSE_BYTES_MAX: u32 = (4 << 20) + (64 << 10);
/// The smallest request and reply size that a session is made with, room for a SEQUENCE and some more; less:
/// `NFS4ERR_TOOSMALL`.
pub const CHANNEL_BYTES_MIN: u32 = 256;
/// The smallest request and reply size of a back channel, room for a CB_SEQUENCE and some more; less: `NFS4ERR_TOOSMALL`.
pub const BACK_CHANNEL_BYTES_MIN: u32 = 256;
/// The fewest operations of a CB_COMPOUND: CB_SEQUENCE and one more. Less: `NFS4ERR_TOOSMALL`.
pub const BACK_CHANNEL_OPS_MIN: u32 = 2;
/// Largest reply that is kept for replay. A client that asks for more is given this.
pub const CACHED_BYTES_MAX: u32 = 256 << 10;
/// Where room is short the largest reply that is kept is this: what Linux asks for is less.
pub const CACHED_BYTES_COMMON: u32 = 8 << 10;
/// What one session may at worst keep for replay: slots times the largest kept reply. Fewer slots are granted above.
pub const SESSION_CACHED_BYTES_MAX: u64 = 8 << 20;
/// What all sessions keep for replay, each with room for one largest reply; above it a new session gets `NFS4ERR_DELAY`, and
/// so does a request on another slot than the first. With a log less: see [`LOG_PARTS`].
pub const CACHED_BYTES_TOTAL_MAX: u64 = 128 << 20;
/// Sessions, client records, NLM hosts and kept replies stand in the log at each checkpoint and must leave room for the
/// work. Each may take at most so many of this number of equal parts of the log.
pub const LOG_PARTS: u64 = 16;
/// Parts of the log for sessions.
pub const LOG_PARTS_SESSIONS: u64 = 3;
/// Parts of the log for client records.
pub const LOG_PARTS_CLIENTS: u64 = 1;
/// Parts of the log for NLM hosts.
pub const LOG_PARTS_NLM: u64 = 1;
/// The most bytes of an NLM host in the log: a name of 1,024 bytes and the rest.
pub const NLM_HOST_NOTE_BYTES: u64 = 1152;
/// Parts of the log for the duplicate request cache.
pub const LOG_PARTS_CALLS: u64 = 1;
/// Parts of the log for delegations.
pub const LOG_PARTS_DELEGATIONS: u64 = 1;
/// The most bytes of a delegation in the log: two handles of 128 bytes, and the rest.
pub const DELEGATION_NOTE_BYTES: u64 = 384;
/// Delegations that stand in the log, so that a restart of the server is not felt; fewer with a small log. The clients of others reclaim.
pub const LOGGED_DELEGATIONS_MAX: usize = 64 << 10;
/// Delegations and lock owners that have ended and of which the log is told with whatever it is told next; with one more it is told at once.
pub const GONE_MAX: usize = 4096;
/// Parts of the log for byte-range locks of NFSv4.1 and 4.2.
pub const LOG_PARTS_LOCKS: u64 = 1;
/// Bytes of locks in the log, so that a restart of the server is not felt; fewer with a small log. The clients of others reclaim.
pub const LOGGED_LOCKS_BYTES_MAX: u64 = 64 << 20;
/// The most bytes of one owner's locks on one file in the log. The client of one who has more ranges there reclaims.
pub const LOCKS_NOTE_BYTES_MAX: u64 = 8192;
/// Lock owners for which the log had no room and of which it is told at a time.
pub const LOCKS_NOTED_AT_ONCE: usize = 4096;
/// Parts of the log for opens.
pub const LOG_PARTS_OPENS: u64 = 1;
/// Bytes of opens in the log, so that a file which is removed while it is open outlasts a restart; fewer with a small log. With more, clients are not told
/// that it does.
pub const LOGGED_OPENS_BYTES_MAX: u64 = 16 << 20;
/// What an open takes in the log besides its owner and the file's handle, at most.
pub const OPEN_NOTE_BYTES: u64 = 64;
/// Opens that go into the log at a tick.
pub const OPENS_NOTED_AT_ONCE: usize = 4096;
/// Files without a name that are kept because they are open, and those that clients were promised; with more, no further client is told that a file outlasts its last name, and a file
/// that nobody was promised is not kept.
pub const ORPHANS_MAX: usize = landfast_volume::limits::ORPHANS_MAX;
/// Files without a name that nobody has open any more and that are removed before the log is waited for.
pub const ORPHANS_REMOVED_AT_ONCE: usize = 256;
/// Bytes of a slot in the log besides its reply.
pub const SLOT_NOTE_BYTES: u64 = 64;
/// The most bytes of a session in the log besides its slots: its channels, and its callbacks' credential.
pub const SESSION_NOTE_BYTES: u64 = 576;
/// The most bytes of a client record in the log: an owner of 1,024 bytes, the last CREATE_SESSION reply, and the rest.
pub const CLIENT_NOTE_BYTES: u64 = 1536;
/// Notes that no log took and that go into each snapshot. A tick makes some for each client.
pub const UNWRITTEN_NOTES_MAX: usize = 4096;
/// Notes of a snapshot that are taken at a time, while the state is locked and the log's gate is closed. Then those
/// that wait for it go on.
pub const SNAPSHOT_PART: usize = 512;
/// Operations of one COMPOUND. More: `NFS4ERR_TOO_MANY_OPS`.
pub const OPS_MAX: u32 = 4096;
/// A COMPOUND of more operations is kept as it was received while it waits, and decoded for each run: an operation of 4 bytes takes 176
/// in memory.
pub const OPS_KEPT_DECODED: usize = 64;
/// The least that the limit for operations may be set to: a client must be able to walk to an export and open a file there.
pub const OPS_CONFIGURED_MIN: usize = 16;
/// Slots of one session. A client that asks for more is given this.
pub const SLOTS_MAX: u32 = 256;
/// Sessions of one client. One more takes the place of the one that was unused longest.
pub const SESSIONS_PER_CLIENT_MAX: usize = 16;
/// Client records. Above it a client that holds nothing goes, of the address that has most records; of these unconfirmed
/// before confirmed, then the one that was silent longest. When each holds something, EXCHANGE_ID gets `NFS4ERR_DELAY`.
pub const CLIENTS_MAX: usize = 4096;
/// One of so many places for client records is for addresses that have fewer than [`CLIENT_RECORDS_FEW`].
pub const CLIENTS_KEPT_DIVISOR: usize = 16;
/// See [`CLIENTS_KEPT_DIVISOR`].
pub const CLIENT_RECORDS_FEW: usize = 16;
/// Addresses that a client is remembered to have called from. One more takes the place of the one that was heard of first.
pub const CLIENT_ADDRESSES_MAX: usize = 8;
/// Owners that are remembered to have sent RECLAIM_COMPLETE; the oldest is forgotten, and has to send it again when it
/// comes back without a record.
pub const COMPLETED_OWNERS_MAX: usize = 4096;
/// A request that ran for longer asks for its flush at once; others wait for those that were received with them, so that one
/// flush does for all. No seal waits
/// longer for what was announced either.
pub const RUN_IN_COMPANY_MAX: Duration = Duration::from_micros(500);
/// Opens of one client; more: `NFS4ERR_NOSPC`.
pub const OPENS_PER_CLIENT_MAX: usize = 64 << 10;
/// Opens in all, of which those of one address are no more than are free; more: `NFS4ERR_DELAY`, after clients whose lease is over
/// have given up theirs.
pub const OPENS_MAX: usize = 256 << 10;
/// Descriptors that opens keep (fewer where the process has not so many, see `descriptors.rs`), of which those of one address are no more
/// than are free; an open beyond keeps none, and each access through it opens the file again.
pub const OPEN_DESCRIPTORS_MAX: usize = 2 * OPENS_MAX;
/// Locked ranges of one file; more: `NFS4ERR_SERVERFAULT`, in NFSv4.0 `NFS4ERR_RESOURCE`, also for an UNLOCK that would make two ranges of one.
pub const LOCKS_PER_FILE_MAX: usize = 64 << 10;
/// Locked ranges of one client; the same answer.
pub const LOCKS_PER_CLIENT_MAX: usize = 128 << 10;
/// Locked ranges in all (about 200 bytes each); the same answer.
pub const LOCKS_MAX: usize = 512 << 10;
/// Lock owners of one client, each counted for each file; more: as above.
pub const LOCK_OWNERS_PER_CLIENT_MAX: usize = 64 << 10;
/// Hosts that lock by NLM; above it one that holds nothing is forgotten; when each holds something: `NLM4_DENIED_NOLOCKS`,
/// as at each limit of NLM.
pub const NLM_HOSTS_MAX: usize = 4096;
/// A limit that refuses something is named in the server's log at most so often.
pub const REFUSALS_SAID_MS: u64 = 60_000;
/// NLM requests that wait for a lock: of one host,
pub const NLM_WAITERS_PER_HOST_MAX: usize = 1024;
/// of one file,
pub const NLM_WAITERS_PER_FILE_MAX: usize = 1024;
/// and in all.
pub const NLM_WAITERS_MAX: usize = 16 << 10;
/// Ranges that an owner held where it is granted a lock, so that it has them again if the grant is taken back. With more the
/// grant is not taken back.
pub const NLM_RANGES_REMEMBERED_MAX: usize = 16;
/// Lock owners that are looked at to see whether a request would wait for itself; beyond, it waits.
pub const DEADLOCK_STEPS_MAX: usize = 8192;
/// Calls to NLM clients at the same time. GRANTED waits for its turn; the answer to an asynchronous message is not sent.
pub const NLM_CALLBACKS_MAX: usize = 64;
/// How long a call to a client waits for its reply; over UDP it is sent again after each of these but the last. GRANTED is
/// not: it waits for the first of these.
pub const NLM_CALL_WAITS: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// The same for an asynchronous message, which some clients do not reply to.
pub const NLM_MESSAGE_WAITS: [Duration; 1] = [Duration::from_secs(1)];
/// How long it is until a client is told again that it has a lock; after the last, see `nlm/grants.rs`.
pub const NLM_GRANT_PAUSES: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(40),
    Duration::from_secs(60),
];
/// Clients that are told of a restart at the same time.
pub const NSM_NOTIFIES_MAX: usize = 32;
/// How long it is until one that did not answer is told again; after the last it is not.
pub const NSM_NOTIFY_PAUSES: [Duration; 8] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(120),
    Duration::from_secs(240),
    Duration::from_secs(0),
];
/// So long a status monitor that says the same state speaks of the same restart: sm-notify repeats itself for 15 minutes.
pub const NSM_REPEATED_MS: u64 = 15 * 60 * 1000;
/// Names of status monitors of one address whose last state is remembered; one more, and its oldest is forgotten.
pub const NSM_STATES_PER_ADDRESS_MAX: usize = 16;
/// The same of all addresses.
pub const NSM_STATES_MAX: usize = 4096;
/// Where a port mapper listens (RFC 1833 section 3).
pub const PORTMAPPER_PORT: u16 = 111;
/// How long a port that a client's port mapper named is not asked for again, and how many are kept.
pub const PORT_KNOWN: Duration = Duration::from_secs(60);
/// See [`PORT_KNOWN`]; above it all are forgotten.
pub const PORTS_KNOWN_MAX: usize = 4096;
/// Connections of one session that callbacks may use; more are not kept.
pub const BACK_CONNECTIONS_MAX: usize = 64;
/// Slots of a back channel that are used.
pub const BACK_SLOTS_MAX: u32 = 16;
/// How long a callback waits for its answer on one connection. A connection on which nothing at all has come for so long after it serves the back channel no more.
pub const CALLBACK_PATIENCE_MS: u64 = 10_000;
/// How long a callback waits for a free slot of the session and a connection to come.
pub const CALLBACK_SLOT_WAIT_MS: u64 = 10_000;
/// How often a client is told of the end of a copy that it does not answer; then it has to ask.
pub const CALLBACK_TRIES: u32 = 5;
/// What lies between.
pub const CALLBACK_PAUSE_MS: u64 = 1_000;
/// Recalls of delegations to one client that are under way at once, until it has returned the delegation; further ones wait.
pub const RECALLS_AT_ONCE: usize = 64;
/// Delegations of files that were there, of which the log is told at a time.
pub const DELEGATIONS_NOTED_AT_ONCE: usize = 4096;
/// OPENs of a client that wait at once until the log has the delegations which they were given, where nothing else of them goes there; further ones
/// wait for nothing, and their client reclaims after a restart until the log has been told.
pub const GRANTS_AWAITED_AT_ONCE: u64 = 16;
/// After so many milliseconds one more of these may wait.
pub const GRANTS_AWAITED_EACH_MS: u64 = 125;
/// The log is told of the delegations that it does not know when their client was given none for so long, milliseconds.
pub const GRANTS_SETTLE_MS: u64 = 100;
/// How long a recall that a client could not take yet is left alone before it is sent again, at first and at most.
pub const RECALL_PAUSE: Duration = Duration::from_millis(100);
pub const RECALL_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a revocation that the log has not taken is left alone before another log is asked, at first; it doubles up to a lease.
pub const REVOCATION_PAUSE: Duration = Duration::from_secs(1);
/// How often a client that does not know a delegation is asked for it: its OPEN may not have been answered yet.
pub const RECALL_UNKNOWN_TRIES: u32 = 3;
/// CB_GETATTRs to one client that are under way at once; further ones wait. Clients offer no more slots.
pub const GETATTRS_AT_ONCE: usize = 16;
/// How long a CB_GETATTR waits for its answer on one connection; after that the delegation is recalled.
pub const GETATTR_PATIENCE: Duration = Duration::from_secs(1);
/// How often the server sets a file's time for what one answer says: once, and again where the file was written meanwhile.
pub const GETATTR_SETS: usize = 4;
/// How often the holder of a delegation is asked with CB_GETATTR; then it is recalled: whoever looks at a file again and again waits
/// each time.
pub const GETATTRS_MAX: u32 = 4;
/// Delegated files whose holders are asked for one request: a listing ends before the next such file, and its client goes on from there.
pub const GETATTRS_FOR_ONE: usize = 256;
/// How long a request waits for a delegation that is in its way to come back; then it gets `NFS4ERR_DELAY`, in NFSv3
/// `NFS3ERR_JUKEBOX`. It waits only if it has changed nothing yet.
pub const RECALL_WAIT: Duration = Duration::from_secs(2);
/// How long a file that a delegation was recalled for is not delegated again.
pub const CONTENDED_MS: u64 = 60_000;
/// Such files that are remembered; the oldest is forgotten.
pub const CONTENDED_FILES_MAX: usize = 4096;
/// A write directory delegation is given to a client if no other has looked into the directory for so long.
pub const ALONE_MS: u64 = 10_000;
/// Directories of which is remembered who has looked into them, at least; at most twice as many.
pub const LOOKERS_MAX: usize = 4096;
/// A user of a client with a write directory delegation is kept this part of the space, and of the objects, that he was told of,
pub const RESERVATION_PART: u64 = 8;
/// but no more than so many bytes
pub const RESERVATION_BYTES_MAX: u64 = 256 << 20;
/// and so many objects.
pub const RESERVATION_FILES_MAX: u64 = 16_384;
/// Promises to one of them that stand beside each other, each smaller than the one before; of more the oldest last longer.
pub const PROMISES_MAX: usize = 8;
/// What a new name uses of what was promised, bytes.
pub const RESERVED_FOR_NAME: u64 = 8 << 10;
/// Users of clients for whom space is kept; a further one is not told how much there is, and so changes nothing before the server has.
pub const RESERVATIONS_MAX: usize = 4096;
/// How often those whose time is over are forgotten, milliseconds.
pub const RESERVATIONS_SWEPT_MS: u64 = 1_000;
/// Who would take what is kept for others finds the disk full so many bytes before: a change needs blocks beside its data.
pub const RESERVED_MARGIN: u64 = 256 << 10;
/// The same for objects.
pub const RESERVED_FILES_MARGIN: u64 = 4;
/// How long MNT waits for write directory delegations on its path; then it fails.
pub const MNT_RECALL_WAIT: Duration = RECALL_WAIT;
/// Files whose delegations were revoked from one client, until it opens them anew; one more, and the client loses all that it holds.
pub const REVOKED_MAX: usize = 256;
/// Sessions whose back channels wait to be tried out with CB_NULL; for a further one the next OPEN asks again.
pub const UNTRIED_SESSIONS_MAX: usize = 4096;
/// Delegations are given while fewer opens than this part of the limit are in use: each is an open itself.
pub const DELEGATED_OPENS_DIVISOR: usize = 2;
/// Of what one client may have open this part is left to opens: no delegation is given that would take it.
pub const UNDELEGATED_OPENS_DIVISOR: usize = 16;
/// Delegations of directories are given while there are fewer than this part of what the log keeps of all.
pub const DELEGATED_DIRECTORIES_DIVISOR: usize = 2;
/// Limits of delegations are divided into so many parts for CB_RECALL_ANY.
pub const CROWDED_PARTS: usize = 8;
/// From so many parts in use on, clients are asked to return some delegations,
pub const CROWDED_PARTS_ASKED: usize = 7;
/// so that no more than so many are in use then. A client is asked once a lease.
pub const CROWDED_PARTS_KEPT: usize = 6;
/// How often it is looked whom to ask when all clients together have too many, milliseconds.
pub const CROWDED_LOOK_MS: u64 = 1_000;
/// Clients that are gone and of which the log is not known to have said so, 16 bytes each; of more the oldest is forgotten.
pub const UNSETTLED_REMOVALS_MAX: usize = 4096;
/// Bytes that the holder of a write delegation may keep unwritten after it closes the file (`space_limit`): none, so that a close still
/// finds a full disk.
pub const DELEGATED_DIRTY_BYTES: u64 = 0;
/// Groups of files by which is known what is being done to them right now. While anybody else is at work in its group, a file is not
/// delegated.
pub const TOUCH_GROUPS: usize = 16 << 10;
/// Copies that go on after their COPY was answered; one more is made before its COPY is answered.
pub const COPIES_MAX: usize = 16;
/// Copies that are remembered, those included that have ended and whose client does not answer; the same above.
pub const COPIES_KEPT_MAX: usize = 256;
/// A COPY of more bytes goes on after it was answered, if the client allows it and can be told of the end.
pub const COPY_SYNC_BYTES: u64 = 16 << 20;
/// What one COMPOUND may copy, clone, reserve and give back, bytes. A COPY that has to be answered at its end is cut short
/// there, and the client goes on from where it ended (RFC 7862 section 15.2.3); further operations of these kinds get
/// `NFS4ERR_DELAY`. The first one is done whatever its size, where it cannot be done in part.
pub const COMPOUND_WORK_BYTES: u64 = 64 << 20;
/// Each of these operations counts for so many at least: it may flush a file.
pub const COMPOUND_WORK_MIN: u64 = 64 << 10;
/// A hole of fewer bytes is data for READ_PLUS.
pub const READ_PLUS_HOLE_MIN: u64 = 32 << 10;
/// Connections; one more takes the place of another (`landfast_rpc::places`), or is closed when it comes.
pub const CONNECTIONS_MAX: usize = 8192;
/// Compounds of one connection that are being worked on; the next is read when one is done.
pub const CONNECTION_COMPOUNDS_MAX: usize = 512;
/// Request bytes of one connection that are being worked on.
pub const CONNECTION_BYTES_MAX: usize = 32 << 20;
/// Request bytes of all connections that are being worked on.
pub const SERVER_BYTES_MAX: usize = 256 << 20;
/// Connections of one client (an address); more are closed when they come.
pub const CLIENT_CONNECTIONS_MAX: usize = 256;
/// Requests of one client that are being worked on; the next is read when one is done.
pub const CLIENT_COMPOUNDS_MAX: usize = 2048;
/// Requests of all clients that are being worked on.
pub const SERVER_COMPOUNDS_MAX: usize = 16 << 10;
/// Request bytes of one client that are being worked on or received.
pub const CLIENT_BYTES_MAX: usize = 64 << 20;
/// Bytes of large replies of one connection, from before they are made until they are sent. Above it its requests wait.
pub const CONNECTION_REPLY_BYTES_MAX: usize = 64 << 20;
/// The same of one client.
pub const CLIENT_REPLY_BYTES_MAX: usize = 128 << 20;
/// The same of all clients.
pub const SERVER_REPLY_BYTES_MAX: usize = 512 << 20;
/// Requests that run or wait for a thread, for each thread; the clients have the next place in turn.
pub const TURNS_PER_WORKER: usize = 2;
/// Threads that take over from those that wait for a device, besides one for each turn: for the server's own tasks.
pub const SPARE_THREADS: usize = 16;
/// Seconds of acknowledged work that `--durability unsafe` risks: how long the kernel may keep a page dirty
/// (`vm.dirty_expire_centisecs`, 30 s unless changed) and the time to write it.
pub const UNSAFE_RISK_SECONDS: u32 = 35;
/// Memory that is free and not given back to the system, bytes: more is, within seconds.
pub const MEMORY_KEPT_BYTES: u64 = 64 << 20;
/// Memory of at least this size is mapped for itself and goes back to the system when it is freed, bytes: nothing that a usual request
/// needs, whose largest buffer is a record with as much as was read behind it. (glibc takes at most 32 MiB.)
pub const ALLOCATOR_MAPS_BYTES: i32 = 16 << 20;
/// Free memory at the end of each of glibc's arenas that is kept for the next request, bytes; all of it counts for
/// [`MEMORY_KEPT_BYTES`].
pub const ALLOCATOR_KEEPS_BYTES: i32 = 16 << 20;
/// Readers of the metrics at a time; for one more the oldest goes of the address that has most.
pub const METRICS_CONNECTIONS_MAX: usize = 32;
/// How long one may take,
pub const METRICS_TIME_MAX: Duration = Duration::from_secs(10);
/// how long its request may take to arrive,
pub const METRICS_REQUEST_TIME_MAX: Duration = Duration::from_secs(2);
/// and how long its request may be.
pub const METRICS_REQUEST_BYTES_MAX: usize = 16 << 10;
/// How long the listener for the metrics rests after it failed.
pub const METRICS_ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Threads that receive requests and run compounds: so many for each processor, since some wait for cold reads.
pub const WORKERS_PER_CPU: usize = 4;
/// At least so many.
pub const WORKERS_MIN: usize = 8;
/// At most so many.
pub const WORKERS_MAX: usize = 64;
/// How often it is looked whether a thread waits for a device while others wait for that thread. A call from memory waits for
/// no device longer than this.
pub const WATCH_EVERY: Duration = Duration::from_millis(5);
/// After so many looks at which nothing was called, nothing is looked at until the next call.
pub const WATCH_QUIET: u32 = 200;
/// Threads that run compounds which wait for the disk: COMMIT, large stable writes; all that modify when there is no log.
pub const SLOW_WORKERS: usize = 32;
/// One of so many of these threads, and at least one, is left to clients that have nothing on any.
pub const SLOW_WORKERS_KEPT_DIVISOR: usize = 8;
/// Threads that make the copies which go on after their COPY was answered.
pub const COPY_WORKERS: usize = 4;
/// By how much these give way to all other threads, since nobody waits for them: a nice value, 0 to 19.
pub const COPY_NICE: i32 = 15;
/// A stable WRITE of more bytes than this goes to the disk, not into the log.
pub const LOGGED_WRITE_MAX: usize = 1 << 20;
/// How long a retry waits for the request that it repeats; after that it gets `NFS4ERR_DELAY`.
pub const RETRY_WAIT: Duration = Duration::from_secs(5);
/// How long a DESTROY_CLIENTID waits for the end of its client's sessions, which may have been sent before it; after that it gets
/// `NFS4ERR_CLIENTID_BUSY`.
pub const FAREWELL_WAIT: Duration = Duration::from_millis(500);
/// Stateids that one TEST_STATEID may ask about; more: `NFS4ERR_INVAL`.
pub const TEST_STATEIDS_MAX: usize = 4096;
/// Bytes of a request that its fingerprint covers (RFC 8881 section 2.10.6.1.3.1).
pub const FINGERPRINT_BYTES: usize = 1024;
/// Largest READ and WRITE.
pub const IO_BYTES_MAX: u32 = 4 << 20;
/// Longest name of a directory entry.
pub const NAME_MAX: usize = 255;
/// Entries of an NFSv4 ACL that is set; more: `NFS4ERR_NOSPC`. The longest POSIX ACL with the longest default is less.
pub const ACES_MAX: usize = 8192;
/// Longest target of a symbolic link.
pub const LINK_TARGET_MAX: usize = 4095;
/// Largest READDIR reply.
pub const READDIR_BYTES_MAX: u32 = 1 << 20;
/// Replies that the duplicate request cache keeps for calls without a session; the oldest goes first.
pub const DRC_ENTRIES_MAX: usize = 16 << 10;
/// Bytes that it keeps, [`DRC_ENTRY_BYTES`] for each entry included. With a log less: see [`LOG_PARTS`].
pub const DRC_BYTES_MAX: u64 = 8 << 20;
/// What an entry takes besides its reply, in memory and in the log.
pub const DRC_ENTRY_BYTES: u64 = 256;
/// Connections that have ended and of which the cache remembers how; the oldest is forgotten first.
pub const DRC_ENDED_CONNECTIONS_MAX: usize = 4096;
/// Rows of the table of who has mounted what (MOUNT); the oldest goes first.
pub const MOUNTS_MAX: usize = 4096;
/// Largest READ and WRITE of NFS version 3.
pub const V3_IO_BYTES_MAX: u32 = 1 << 20;
/// The size of READDIR that NFS version 3 clients are told to ask for.
pub const V3_READDIR_PREFERRED: u32 = 64 << 10;
/// Entries that READDIR and READDIRPLUS of NFS version 3 ask of the volume at once.
pub const V3_READDIR_PAGE: usize = 1024;
/// Names that an object can have, as PATHCONF says it.
pub const V3_LINKS_MAX: u32 = 65_000;
/// How often CREATE UNCHECKED looks again when the name comes and goes; after that `NFS3ERR_JUKEBOX`.
pub const V3_CREATE_TRIES: usize = 8;
/// Lease time when nothing else is asked for, in seconds.
pub const LEASE_SECONDS: u32 = 90;
/// A client that holds nothing is forgotten after so much silence.
pub const IDLE_MS: u64 = 3600 * 1000;
/// A client whose lease is over keeps its state until somebody needs it, at most so long.
pub const COURTESY_MS: u64 = 24 * 3600 * 1000;
/// An EXCHANGE_ID without a CREATE_SESSION is forgotten after so many leases.
pub const UNCONFIRMED_LEASES: u64 = 1;
/// Open owners and lock owners of one client of NFSv4.0; above it those that hold nothing go, then: `NFS4ERR_RESOURCE`.
pub const OWNERS_PER_CLIENT_MAX: usize = 16 << 10;
/// Open owners and lock owners in all, with the same answer.
pub const OWNERS_MAX: usize = 128 << 10;
/// An open owner of NFSv4.0 that has nothing open is forgotten after so many leases of silence.
pub const OWNER_IDLE_LEASES: u64 = 2;
/// States of NFSv4.0's clients that are remembered as `NFS4ERR_EXPIRED`; older ones are `NFS4ERR_BAD_STATEID`.
pub const EXPIRED_STATES_MAX: usize = 64 << 10;
/// Exports of one server; more: the configuration is refused.
pub const EXPORTS_MAX: usize = 1024;
/// Addresses to listen on; more: the configuration is refused.
pub const LISTEN_MAX: usize = 64;
/// Bytes of a configuration file; more: it is refused.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Addresses whose names are remembered, and users whose groups are; above it the elder half is forgotten.
pub const KNOWN_MAX: usize = 4096;
/// So many of each may be remembered for a further one to be looked up for a call by datagram, whose sender may be forged.
pub const KNOWN_BY_DATAGRAM_MAX: usize = KNOWN_MAX / 2;
/// Addresses whose names are asked for at a time; about a further one nobody is asked yet.
pub const KNOWN_ASKING_MAX: usize = 256;
/// While so many are asked for, none is for a call by datagram: whoever forges many senders keeps no look-up from a call on a connection.
pub const KNOWN_ASKING_BY_DATAGRAM_MAX: usize = 8;
/// So many of one client: an address, or an IPv6 network of 64 bits.
pub const KNOWN_ASKING_CLIENT_MAX: usize = 8;
/// Users whose groups are asked for at a time; a further one's request gets `NFS4ERR_DELAY`.
pub const KNOWN_USERS_MAX: usize = KNOWN_MAX;
/// The same of one client.
pub const KNOWN_USERS_CLIENT_MAX: usize = KNOWN_USERS_MAX / 4;
/// Threads that ask for names and groups.
pub const KNOWN_THREADS: usize = 4;
/// How long a request waits for the names of its address or the groups of its user; after that it gets `NFS4ERR_DELAY`.
pub const KNOWN_WAIT_MS: u64 = 2_000;
/// Names and groups that were asked for so long ago are asked for again.
pub const KNOWN_MS: u64 = 5 * 60 * 1000;
/// The same of one that leaves a rule open, since a name server did not answer for it.
pub const KNOWN_BRIEFLY_MS: u64 = 1_000;
/// They serve so long when no newer answer comes.
pub const KNOWN_STALE_MS: u64 = 60 * 60 * 1000;
/// Groups of one user that are looked up; further ones are left out.
pub const GROUPS_MAX: usize = 65_536;
/// The most connections that a configuration may allow.
pub const CONNECTIONS_CONFIGURED_MAX: usize = 65_536;
/// The most threads that a configuration may ask for.
pub const WORKERS_CONFIGURED_MAX: usize = 512;
/// A reply of NFSv4.0 larger than this is not kept for retries: its COMPOUND reads much besides what it changes.
pub const DRC_COMPOUND_REPLY_MAX: usize = 16 << 10;

/// Data of a READ as long as this is sent from where it was read to; less is copied into the reply, bytes.
pub const REPLY_COPY_MAX: usize = 16 << 10;

/// Exports that are opened, started or stopped at a time. Each mostly waits for its disks.
pub const EXPORTS_AT_ONCE: usize = 16;
/// Bytes of logs that are opened at a time, but for a larger one alone: recovery holds a log's records in memory.
pub const LOGS_OPENED_BYTES_MAX: u64 = 1 << 30;
