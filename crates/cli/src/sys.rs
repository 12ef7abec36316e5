//! System calls that GNU's tools use: times in the local time zone, names of users, the width of a terminal; and the
//! wait for a slow output.

use nix::unistd::{Group, User};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

/// A date and time in the time zone of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Local {
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// 0 to 23.
    pub hour: u32,
    /// 0 to 59.
    pub minute: u32,
    /// 0 to 60.
    pub second: u32,
    /// Seconds east of Greenwich.
    pub offset: i64,
}

/// Converts seconds since 1970. `None`: the year is out of range.
pub fn local(seconds: i64) -> Option<Local> {
    let time: libc::time_t = seconds;
    let mut tm = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are valid; the result is not used unless the call says that it is there.
    let tm = unsafe {
        if libc::localtime_r(&raw const time, tm.as_mut_ptr()).is_null() {
            return None;
        }
        tm.assume_init()
    };
    let small = |n: libc::c_int| u32::try_from(n).unwrap_or_default();
    Some(Local {
        year: i64::from(tm.tm_year) + 1900,
        month: small(tm.tm_mon) + 1,
        day: small(tm.tm_mday),
        hour: small(tm.tm_hour),
        minute: small(tm.tm_min),
        second: small(tm.tm_sec),
        offset: tm.tm_gmtoff,
    })
}

/// The output of `strftime` for one letter, for seconds since 1970 in the time zone of this process; empty for an unknown letter.
pub fn strftime(letter: u8, seconds: i64) -> Vec<u8> {
    /// No letter makes more.
    const BYTES: usize = 128;
    let (time, format): (libc::time_t, _) = (seconds, [b'%', letter, 0]);
    let mut tm = MaybeUninit::<libc::tm>::uninit();
    let mut out = [0u8; BYTES];
    // SAFETY: all pointers are valid, the format ends in NUL, and the time is not used unless the call says that it is there.
    let len = unsafe {
        if libc::localtime_r(&raw const time, tm.as_mut_ptr()).is_null() {
            return Vec::new();
        }
        libc::strftime(out.as_mut_ptr().cast(), BYTES, format.as_ptr().cast(), tm.as_ptr())
    };
    out[..len.min(BYTES)].to_vec()
}

/// The width of a terminal in columns, if it is one and knows its width.
pub fn columns(terminal: &impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Waits until a non-blocking output takes more, or never will.
pub fn wait_writable(out: &impl AsFd) -> io::Result<()> {
    match poll(&mut [PollFd::new(out, PollFlags::OUT)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

pub fn user(id: u32) -> Option<Vec<u8>> {
    Some(User::from_uid(id.into()).ok()??.name.into_bytes())
}

pub fn group(id: u32) -> Option<Vec<u8>> {
    Some(Group::from_gid(id.into()).ok()??.name.into_bytes())
}

pub fn user_id(name: &[u8]) -> Option<u32> {
    Some(User::from_name(str::from_utf8(name).ok()?).ok()??.uid.as_raw())
}

pub fn group_id(name: &[u8]) -> Option<u32> {
    Some(Group::from_name(str::from_utf8(name).ok()?).ok()??.gid.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_and_nobody_else_that_one() {
        assert_eq!(user(0).as_deref(), Some(&b"root"[..]));
        assert_eq!(group(0).as_deref(), Some(&b"root"[..]));
        assert_eq!(user(u32::MAX - 7), None);
        assert_eq!((user_id(b"root"), group_id(b"root")), (Some(0), Some(0)));
        assert_eq!((user_id(b"no such user"), group_id(b"a\0b")), (None, None));
    }

    #[test]
    fn no_moment_is_too_far_for_an_answer() {
        assert_eq!(
            local(0).map(|l| l.year),
            Some(if local(0).is_some_and(|l| l.offset < 0) { 1969 } else { 1970 })
        );
        assert_eq!(local(i64::MAX), None);
    }
}
