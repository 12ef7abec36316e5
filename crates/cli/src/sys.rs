//! What the system knows of times and users, as GNU's tools ask it; the wait for an output that is slow, and how wide one is.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes for a user's or a group's record; more for as long as the system asks.
const RECORD_BYTES: usize = 4 << 10;
const RECORD_BYTES_MAX: usize = 1 << 20;

/// A time of the calendar in the time zone of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Local {
    /// Year, as people count.
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

/// A moment (seconds since 1970) in the time zone of this process. `None`: no year can say it.
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

/// Columns of a terminal; `None`: it is none, or does not know.
pub fn columns(terminal: &impl AsFd) -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the pointer is valid, and the descriptor open while it is borrowed.
    let asked = unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    Some(usize::from(size.ws_col)).filter(|columns| asked == 0 && *columns > 0)
}

/// Waits until something that does not block takes more, or never will.
pub fn wait_writable(out: &impl AsFd) -> io::Result<()> {
    let mut wait = libc::pollfd { fd: out.as_fd().as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: the one entry is valid, and its descriptor open while it is borrowed.
    match unsafe { libc::poll(&raw mut wait, 1, -1) } {
        -1 => Some(io::Error::last_os_error())
            .filter(|e| e.kind() != io::ErrorKind::Interrupted)
            .map_or(Ok(()), Err),
        _ => Ok(()),
    }
}

/// What `strftime` makes of a letter for a moment (seconds since 1970), in the time zone of this process; nothing where it knows none.
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

/// The name of a user.
pub fn user(id: u32) -> Option<Vec<u8>> {
    let mut record = MaybeUninit::<libc::passwd>::uninit();
    named(|buffer| {
        let mut found = std::ptr::null_mut();
        // SAFETY: the record and the buffer are writable for as long as is said, `found` is a valid place for a pointer.
        let error = unsafe {
            libc::getpwuid_r(
                id,
                record.as_mut_ptr(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &raw mut found,
            )
        };
        // SAFETY: a pointer that is not null leads to the record, whose name is a string in the buffer.
        (error, (!found.is_null()).then(|| unsafe { CStr::from_ptr((*found).pw_name) }.to_bytes().to_vec()))
    })
}

/// The name of a group.
pub fn group(id: u32) -> Option<Vec<u8>> {
    let mut record = MaybeUninit::<libc::group>::uninit();
    named(|buffer| {
        let mut found = std::ptr::null_mut();
        // SAFETY: as in `user`.
        let error = unsafe {
            libc::getgrgid_r(
                id,
                record.as_mut_ptr(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &raw mut found,
            )
        };
        // SAFETY: as in `user`.
        (error, (!found.is_null()).then(|| unsafe { CStr::from_ptr((*found).gr_name) }.to_bytes().to_vec()))
    })
}

/// The number of a user.
pub fn user_id(name: &[u8]) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut record = MaybeUninit::<libc::passwd>::uninit();
    named(|buffer| {
        let mut found = std::ptr::null_mut();
        // SAFETY: as in `user`; the name ends in NUL.
        let error = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                record.as_mut_ptr(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &raw mut found,
            )
        };
        // SAFETY: a pointer that is not null leads to the record.
        (error, (!found.is_null()).then(|| unsafe { (*found).pw_uid }))
    })
}

/// The number of a group.
pub fn group_id(name: &[u8]) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut record = MaybeUninit::<libc::group>::uninit();
    named(|buffer| {
        let mut found = std::ptr::null_mut();
        // SAFETY: as in `user_id`.
        let error = unsafe {
            libc::getgrnam_r(
                name.as_ptr(),
                record.as_mut_ptr(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &raw mut found,
            )
        };
        // SAFETY: as in `user_id`.
        (error, (!found.is_null()).then(|| unsafe { (*found).gr_gid }))
    })
}

fn named<T>(mut ask: impl FnMut(&mut [u8]) -> (libc::c_int, Option<T>)) -> Option<T> {
    let mut bytes = RECORD_BYTES;
    loop {
        match ask(&mut vec![0; bytes]) {
            (libc::ERANGE, _) if bytes < RECORD_BYTES_MAX => bytes *= 2,
            (_, name) => return name,
        }
    }
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
