//! Flag words and small constants, with the RFC's names.

// ACCESS (RFC 8881 section 18.1; the last three: RFC 8276 section 8.5).
pub const ACCESS4_READ: u32 = 0x01;
pub const ACCESS4_LOOKUP: u32 = 0x02;
pub const ACCESS4_MODIFY: u32 = 0x04;
pub const ACCESS4_EXTEND: u32 = 0x08;
pub const ACCESS4_DELETE: u32 = 0x10;
pub const ACCESS4_EXECUTE: u32 = 0x20;
pub const ACCESS4_XAREAD: u32 = 0x40;
pub const ACCESS4_XAWRITE: u32 = 0x80;
pub const ACCESS4_XALIST: u32 = 0x100;

// OPEN (RFC 8881 section 18.16).
pub const OPEN4_SHARE_ACCESS_READ: u32 = 1;
pub const OPEN4_SHARE_ACCESS_WRITE: u32 = 2;
pub const OPEN4_SHARE_ACCESS_BOTH: u32 = 3;
pub const OPEN4_SHARE_DENY_NONE: u32 = 0;
pub const OPEN4_SHARE_DENY_READ: u32 = 1;
pub const OPEN4_SHARE_DENY_WRITE: u32 = 2;
pub const OPEN4_SHARE_DENY_BOTH: u32 = 3;
pub const OPEN4_SHARE_ACCESS_WANT_DELEG_MASK: u32 = 0xFF00;
pub const OPEN4_SHARE_ACCESS_WANT_READ_DELEG: u32 = 0x0100;
pub const OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG: u32 = 0x0200;
pub const OPEN4_SHARE_ACCESS_WANT_ANY_DELEG: u32 = 0x0300;
pub const OPEN4_SHARE_ACCESS_WANT_NO_DELEG: u32 = 0x0400;
pub const OPEN4_SHARE_ACCESS_WANT_CANCEL: u32 = 0x0500;
pub const OPEN4_SHARE_ACCESS_WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL: u32 = 0x10000;
pub const OPEN4_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED: u32 = 0x20000;
pub const OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS: u32 = 0x100000;
pub const OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION: u32 = 0x200000;
pub const OPEN4_RESULT_CONFIRM: u32 = 0x02;
pub const OPEN4_RESULT_LOCKTYPE_POSIX: u32 = 0x04;
pub const OPEN4_RESULT_PRESERVE_UNLINKED: u32 = 0x08;
/// No open stateid comes with the delegation (RFC 9754 section 7).
pub const OPEN4_RESULT_NO_OPEN_STATEID: u32 = 0x10;
pub const OPEN4_RESULT_MAY_NOTIFY_LOCK: u32 = 0x20;

// EXCHANGE_ID (RFC 8881 section 18.35).
pub const EXCHGID4_FLAG_SUPP_MOVED_REFER: u32 = 0x0000_0001;
pub const EXCHGID4_FLAG_SUPP_MOVED_MIGR: u32 = 0x0000_0002;
pub const EXCHGID4_FLAG_SUPP_FENCE_OPS: u32 = 0x0000_0004;
pub const EXCHGID4_FLAG_BIND_PRINC_STATEID: u32 = 0x0000_0100;
pub const EXCHGID4_FLAG_USE_NON_PNFS: u32 = 0x0001_0000;
pub const EXCHGID4_FLAG_USE_PNFS_MDS: u32 = 0x0002_0000;
pub const EXCHGID4_FLAG_USE_PNFS_DS: u32 = 0x0004_0000;
pub const EXCHGID4_FLAG_MASK_PNFS: u32 = 0x0007_0000;
pub const EXCHGID4_FLAG_UPD_CONFIRMED_REC_A: u32 = 0x4000_0000;
pub const EXCHGID4_FLAG_CONFIRMED_R: u32 = 0x8000_0000;

// CREATE_SESSION (RFC 8881 section 18.36).
pub const CREATE_SESSION4_FLAG_PERSIST: u32 = 1;
pub const CREATE_SESSION4_FLAG_CONN_BACK_CHAN: u32 = 2;
pub const CREATE_SESSION4_FLAG_CONN_RDMA: u32 = 4;

// BIND_CONN_TO_SESSION (RFC 8881 section 18.34).
pub const CDFC4_FORE: u32 = 1;
pub const CDFC4_BACK: u32 = 2;
pub const CDFC4_FORE_OR_BOTH: u32 = 3;
pub const CDFC4_BACK_OR_BOTH: u32 = 7;
pub const CDFS4_FORE: u32 = 1;
pub const CDFS4_BACK: u32 = 2;
pub const CDFS4_BOTH: u32 = 3;

// SEQUENCE (RFC 8881 section 18.46).
pub const SEQ4_STATUS_CB_PATH_DOWN: u32 = 0x001;
pub const SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED: u32 = 0x008;
pub const SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED: u32 = 0x010;
pub const SEQ4_STATUS_ADMIN_STATE_REVOKED: u32 = 0x020;
pub const SEQ4_STATUS_RECALLABLE_STATE_REVOKED: u32 = 0x040;
pub const SEQ4_STATUS_LEASE_MOVED: u32 = 0x080;
pub const SEQ4_STATUS_RESTART_RECLAIM_NEEDED: u32 = 0x100;
pub const SEQ4_STATUS_CB_PATH_DOWN_SESSION: u32 = 0x200;
pub const SEQ4_STATUS_BACKCHANNEL_FAULT: u32 = 0x400;

// Attribute values.
pub const FH4_PERSISTENT: u32 = 0;
pub const ACL4_SUPPORT_ALLOW_ACL: u32 = 1;
pub const ACL4_SUPPORT_DENY_ACL: u32 = 2;
/// `change_attr_type` (RFC 7862 section 12.2.3).
pub const CHANGE_TYPE_IS_MONOTONIC_INCR: u32 = 0;
pub const CHANGE_TYPE_IS_VERSION_COUNTER: u32 = 1;
pub const CHANGE_TYPE_IS_VERSION_COUNTER_NOPNFS: u32 = 2;
pub const CHANGE_TYPE_IS_TIME_METADATA: u32 = 3;
pub const CHANGE_TYPE_IS_UNDEFINED: u32 = 4;

// `nfsace4` (RFC 8881 section 6.2.1).
pub const ACE4_ACCESS_ALLOWED_ACE_TYPE: u32 = 0;
pub const ACE4_ACCESS_DENIED_ACE_TYPE: u32 = 1;
pub const ACE4_SYSTEM_AUDIT_ACE_TYPE: u32 = 2;
pub const ACE4_SYSTEM_ALARM_ACE_TYPE: u32 = 3;
pub const ACE4_READ_DATA: u32 = 0x1;
pub const ACE4_WRITE_DATA: u32 = 0x2;
pub const ACE4_APPEND_DATA: u32 = 0x4;
pub const ACE4_READ_NAMED_ATTRS: u32 = 0x8;
pub const ACE4_WRITE_NAMED_ATTRS: u32 = 0x10;
pub const ACE4_EXECUTE: u32 = 0x20;
pub const ACE4_DELETE_CHILD: u32 = 0x40;
pub const ACE4_READ_ATTRIBUTES: u32 = 0x80;
pub const ACE4_WRITE_ATTRIBUTES: u32 = 0x100;
pub const ACE4_WRITE_RETENTION: u32 = 0x200;
pub const ACE4_WRITE_RETENTION_HOLD: u32 = 0x400;
pub const ACE4_DELETE: u32 = 0x10000;
pub const ACE4_READ_ACL: u32 = 0x20000;
pub const ACE4_WRITE_ACL: u32 = 0x40000;
pub const ACE4_WRITE_OWNER: u32 = 0x80000;
pub const ACE4_SYNCHRONIZE: u32 = 0x100000;
pub const ACE4_FILE_INHERIT_ACE: u32 = 0x1;
pub const ACE4_DIRECTORY_INHERIT_ACE: u32 = 0x2;
pub const ACE4_NO_PROPAGATE_INHERIT_ACE: u32 = 0x4;
pub const ACE4_INHERIT_ONLY_ACE: u32 = 0x8;
pub const ACE4_IDENTIFIER_GROUP: u32 = 0x40;

// `open_args_share_access_want4` (RFC 9754).
pub const OPEN_ARGS_SHARE_ACCESS_WANT_ANY_DELEG: u32 = 3;
pub const OPEN_ARGS_SHARE_ACCESS_WANT_NO_DELEG: u32 = 4;
pub const OPEN_ARGS_SHARE_ACCESS_WANT_CANCEL: u32 = 5;
pub const OPEN_ARGS_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS: u32 = 20;
pub const OPEN_ARGS_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION: u32 = 21;

// `why_no_delegation4` (RFC 8881 section 18.16).
pub const WND4_NOT_WANTED: u32 = 0;
pub const WND4_CONTENTION: u32 = 1;
pub const WND4_RESOURCE: u32 = 2;
pub const WND4_NOT_SUPP_FTYPE: u32 = 3;

/// Bit of `gdda_notification_types` and `gddr_notification` in GET_DIR_DELEGATION: asked for is, given was, a delegation for writing. The RFC assigns
/// bits 0 to 5 (RFC 8881 section 18.39); this one is no standard's (`docs/internals/write-directory-delegations.md`).
pub const NOTIFY4_WRITE_DELEGATION: u32 = 31;

// SECINFO_NO_NAME (RFC 8881 section 18.45).
pub const SECINFO_STYLE4_CURRENT_FH: u32 = 0;
pub const SECINFO_STYLE4_PARENT: u32 = 1;

// RPC security flavours (RFC 5531 section 8.2).
pub const AUTH_NONE: u32 = 0;
pub const AUTH_SYS: u32 = 1;
pub const RPCSEC_GSS: u32 = 6;
