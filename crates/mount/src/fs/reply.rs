//! Answers to the kernel.

use bytes::Bytes;
use fuser::{FopenFlags, Generation, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyWrite, ReplyXattr};

use super::convert::{TTL, attr, errno};
use crate::core::Ino;
use crate::core::attrs::Attrs;
use crate::errno::Errno;

pub(super) fn empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(errno(e)),
    }
}

pub(super) fn entry(reply: ReplyEntry, found: Result<Option<(Ino, Attrs)>, Errno>) {
    match found {
        Ok(Some((ino, attrs))) => reply.entry(&TTL, &attr(ino, &attrs), Generation(0)),
        Ok(None) => reply.error(fuser::Errno::ENOENT),
        Err(e) => reply.error(errno(e)),
    }
}

pub(super) fn attributes(reply: ReplyAttr, ino: Ino, done: Result<Attrs, Errno>) {
    match done {
        Ok(attrs) => reply.attr(&TTL, &attr(ino, &attrs)),
        Err(e) => reply.error(errno(e)),
    }
}

pub(super) fn bytes(reply: ReplyData, done: Result<Bytes, Errno>) {
    match done {
        Ok(data) => reply.data(&data),
        Err(e) => reply.error(errno(e)),
    }
}

pub(super) fn written(reply: ReplyWrite, len: u32, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.written(len),
        Err(e) => reply.error(errno(e)),
    }
}

pub(super) fn data(reply: ReplyXattr, size: u32, value: Result<Bytes, Errno>) {
    match value {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(fuser::Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(e) => reply.error(errno(e)),
    }
}

/// Takes a name, or refuses the request.
macro_rules! named {
    ($name:expr, $reply:expr) => {
        match name($name) {
            Ok(name) => name,
            Err(e) => return $reply.error(errno(e)),
        }
    };
}

pub(super) use named;

pub(super) fn fopen(keep_pages: bool) -> FopenFlags {
    if keep_pages { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() }
}
