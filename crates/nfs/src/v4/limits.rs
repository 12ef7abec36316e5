//! How long the lists and texts of a request, and of a reply to a callback, may be. What is longer is BADXDR, or no reply.
//!
//! The first ones are the RFCs'. For the others the RFCs name no limit, and what clients send is far below these.

/// The caller's machine name in AUTH_SYS, bytes (RFC 5531 appendix A).
pub const MACHINE_NAME_MAX: usize = 255;
/// The further groups in AUTH_SYS (RFC 5531 appendix A).
pub const AUTH_SYS_GIDS_MAX: usize = 16;
/// `eia_client_impl_id<1>` (RFC 8881 section 18.35).
pub const IMPL_IDS_MAX: usize = 1;
/// `ca_rdma_ird<1>` (RFC 8881 section 18.36).
pub const RDMA_IRDS_MAX: usize = 1;
/// Kinds of security that a client offers for callbacks: `csa_sec_parms`, `bca_sec_parms` (RFC 8881 sections 18.33, 18.36).
pub const SEC_PARMS_MAX: usize = 16;
/// Algorithms of one kind that a client offers for SP4_SSV (RFC 8881 section 18.35).
pub const SSV_ALGORITHMS_MAX: usize = 16;
/// Addresses of the server that COPY reads from: `ca_source_server` (RFC 7862 section 15.2).
pub const SOURCE_SERVERS_MAX: usize = 16;
/// `na_r_netid` (RFC 7530 section 2.2.10), bytes; such as `tcp6`.
pub const NETID_MAX: usize = 128;
/// `na_r_addr` (RFC 7530 section 2.2.10), bytes; the longest IPv6 address and port take 53, the longest path of a local socket 108.
pub const UNIVERSAL_ADDRESS_MAX: usize = 128;
/// Results in the reply to a CB_COMPOUND; the server calls CB_SEQUENCE and one operation more.
pub const CB_RESULTS_MAX: usize = 16;
