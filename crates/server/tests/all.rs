//! What a client meets on a real socket, clause by clause and group by group: one program, since each one is linked with
//! the whole server. What a test asks of its process as a whole (memory, descriptors, turns) is a program of its own.

mod acl_rfc8881;
mod back_channel;
mod bad_input;
mod bad_input_names;
mod bad_input_programs;
mod bounded_opens;
mod bounded_work;
mod common;
mod copy_restart;
mod exactly_once;
mod exports;
mod exports_mounts;
mod log_again;
mod nlm_locks;
mod operations;
mod protocols;
mod rfc8881;
mod sessions;
mod small;
mod space_matrix;
mod trouble;
mod trouble_space;
mod trouble_vanish;
mod unstable;
mod v3_acl;
mod v3_changes;
mod v3_exactly_once;
mod v3_reads;
mod v40;
mod v40_operations;
mod v40_replies;
mod v40_state;
mod v42_data;
mod write_back;
mod xattr_rfc8276;
