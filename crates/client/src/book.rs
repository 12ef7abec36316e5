//! The library in small examples. Each of them is run against a server, in every version of NFS, by `tests/book.rs`.
//!
//! # Connecting
//!
//! A URL is as libnfs has them ([`mod@crate::url`]). Without `version` the highest is taken that both sides have. A connection that breaks is made
//! again, a server that restarts is waited for: calls take longer then, and that is all. Who is done says so: the server then forgets the session at
//! once.
//!
#![doc = concat!("```no_run\n", include_str!("../book/connect.rs"), "```")]
//!
//! # Writing many files
//!
//! Calls take vectors, and items of one call are sent together: a hundred small files are a request or two. When the call returns
//! they are durable.
//!
#![doc = concat!("```no_run\n", include_str!("../book/write.rs"), "```")]
//!
//! # One wait for any number of files
//!
//! Files that come one by one are queued; [`Writes::sync`](crate::fs::Writes::sync) returns when all are stable, with an outcome for each.
//!
#![doc = concat!("```no_run\n", include_str!("../book/queue.rs"), "```")]
//!
//! # What an outcome is
//!
//! A vector is no transaction: items are independent, one that fails stops no other, and each says what became of it.
//!
#![doc = concat!("```no_run\n", include_str!("../book/outcome.rs"), "```")]
//!
//! # Reading
//!
#![doc = concat!("```no_run\n", include_str!("../book/read.rs"), "```")]
//!
//! # Listing
//!
#![doc = concat!("```no_run\n", include_str!("../book/list.rs"), "```")]
//!
//! # Walking a tree
//!
//! Memory holds the listings that are on their way, not the tree. [`Nfs::walk_in_order`](crate::fs::Nfs::walk_in_order) gives the entries in
//! the order of a depth-first walk; [`InOrder`](crate::fs::InOrder) is for those who hold listings themselves.
//!
#![doc = concat!("```no_run\n", include_str!("../book/walk.rs"), "```")]
//!
//! # Attributes, links, new names
//!
#![doc = concat!("```no_run\n", include_str!("../book/change.rs"), "```")]
//!
//! # Copying
//!
#![doc = concat!("```no_run\n", include_str!("../book/copy.rs"), "```")]
//!
//! # Removing
//!
#![doc = concat!("```no_run\n", include_str!("../book/remove.rs"), "```")]
//!
//! # Stopping
//!
//! A call that is dropped leaves what it has sent under way. To know what was done, stop it and wait for it.
//!
#![doc = concat!("```no_run\n", include_str!("../book/stop.rs"), "```")]
//!
//! # Archives
//!
//! Onto a server:
//!
#![doc = concat!("```no_run\n", include_str!("../book/extract.rs"), "```")]
//!
//! and from there:
//!
#![doc = concat!("```no_run\n", include_str!("../book/archive.rs"), "```")]
//!
//! # Trees beside each other
//!
#![doc = concat!("```no_run\n", include_str!("../book/beside.rs"), "```")]
//!
//! # A COMPOUND of one's own
//!
//! Below all this is the session: any operations of RFC 8881 in one request. Versions 3 and 4.0 take them as well, and are
//! asked what they understand.
//!
#![doc = concat!("```no_run\n", include_str!("../book/compound.rs"), "```")]
