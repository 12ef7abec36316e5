//! What the system knows of hosts, netgroups and users. These calls block, for as long as a name server likes.

use crate::limits;
use std::ffi::{CStr, CString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes of a host name that the resolver gives at most (NI_MAXHOST).
const HOST_BYTES: usize = 1025;
/// Bytes for a user's record; more for as long as the system asks.
const PASSWD_BYTES: usize = 4 << 10;
const PASSWD_BYTES_MAX: usize = 1 << 20;

/// Makes a socket take no IPv4 connections.
pub(crate) fn only_ipv6(socket: &impl AsRawFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open as long as the borrow; the value is as long as is said.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_V6ONLY,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bytes written to a TCP socket that its peer has not acknowledged (tcp(7), `SIOCOUTQ`).
pub(crate) fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open as long as the borrow; the call writes one number.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if done == 0 { Ok(usize::try_from(bytes).unwrap_or(0)) } else { Err(io::Error::last_os_error()) }
}

/// The addresses of a host name. An empty list when there is no such name.
/// Errors: The resolver does not answer.
pub(crate) fn addresses(host: &str) -> io::Result<Vec<IpAddr>> {
    let Ok(host) = CString::new(host) else { return Ok(Vec::new()) };
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    // Each address once, not for each kind of socket.
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut all = std::ptr::null_mut();
    // SAFETY: the name ends with a zero byte; all pointers are to live values; a service is not asked for.
    let got = unsafe { libc::getaddrinfo(host.as_ptr(), std::ptr::null(), &raw const hints, &raw mut all) };
    if got != 0 {
        return unknown(got).map(|()| Vec::new());
    }
    let (mut found, mut at) = (Vec::new(), all.cast_const());
    // SAFETY: the call has succeeded: each entry is valid until the list is freed, and the last one points nowhere.
    while let Some(entry) = unsafe { at.as_ref() } {
        // SAFETY: the address of an entry is as long as its family says.
        found.extend(unsafe { cooked(entry.ai_addr) });
        at = entry.ai_next;
    }
    // SAFETY: the list came from the resolver and is not used any more.
    unsafe { libc::freeaddrinfo(all) };
    Ok(found)
}

/// What an error of the resolver says: that there is no such name.
/// Errors: Any other says nothing about the name: it gave no answer, or could not be asked, as without a free descriptor.
fn unknown(error: libc::c_int) -> io::Result<()> {
    match error {
        libc::EAI_NONAME | libc::EAI_NODATA => Ok(()),
        libc::EAI_SYSTEM => Err(io::Error::last_os_error()),
        error => Err(io::Error::other(format!("the resolver does not answer (error {error})"))),
    }
}

/// # Safety
/// The pointer is null, or to an address that is as long as its family says.
unsafe fn cooked(addr: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as the caller promises.
    let family = libc::c_int::from(unsafe { addr.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: as the caller promises.
            let addr = unsafe { addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(addr.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as the caller promises.
            let addr = unsafe { addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::from(Ipv6Addr::from(addr.sin6_addr.s6_addr)).to_canonical())
        }
        _ => None,
    }
}

/// The name of an address, as its owner says. `None` when it has none.
/// Errors: The resolver does not answer.
pub(crate) fn name(addr: IpAddr) -> io::Result<Option<String>> {
    let mut host = [0u8; HOST_BYTES];
    let (storage, len) = raw(addr);
    // SAFETY: `storage` is an initialised address of `len` bytes, `host` is writable for as many bytes as are said; a
    // service name is not asked for.
    let got = unsafe {
        libc::getnameinfo(
            (&raw const storage).cast(),
            len,
            host.as_mut_ptr().cast(),
            HOST_BYTES as libc::socklen_t,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    match got {
        0 => Ok(CStr::from_bytes_until_nul(&host)
            .ok()
            .and_then(|n| n.to_str().ok())
            .map(str::to_ascii_lowercase)),
        error => unknown(error).map(|()| None),
    }
}

fn raw(addr: IpAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let len = match addr {
        IpAddr::V4(a) => {
            let at = (&raw mut storage).cast::<libc::sockaddr_in>();
            // SAFETY: the storage is large enough and aligned for every kind of address.
            unsafe {
                (*at).sin_family = libc::AF_INET as libc::sa_family_t;
                (*at).sin_addr.s_addr = u32::from_ne_bytes(a.octets());
            }
            size_of::<libc::sockaddr_in>()
        }
        IpAddr::V6(a) => {
            let at = (&raw mut storage).cast::<libc::sockaddr_in6>();
            // SAFETY: as above.
            unsafe {
                (*at).sin6_family = libc::AF_INET6 as libc::sa_family_t;
                (*at).sin6_addr.s6_addr = a.octets();
            }
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, len as libc::socklen_t)
}

unsafe extern "C" {
    /// netgroup(3), setnetgrent(3): in every C library on Linux that has netgroups; the `libc` crate does not declare it.
    fn innetgr(
        netgroup: *const libc::c_char,
        host: *const libc::c_char,
        user: *const libc::c_char,
        domain: *const libc::c_char,
    ) -> libc::c_int;
    fn setnetgrent(netgroup: *const libc::c_char) -> libc::c_int;
    fn endnetgrent();
}

/// Errors: No database that answers knows the netgroup. That is no different from one that does not answer.
pub(crate) fn in_netgroup(group: &str, host: &str) -> io::Result<bool> {
    let (Ok(group), Ok(host)) = (CString::new(group), CString::new(host)) else { return Ok(false) };
    // The C library's enumeration of netgroups is not safe for threads everywhere.
    static ONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _one = ONE.lock();
    // SAFETY: the strings end with a zero byte and live; null pointers mean "any".
    if unsafe { innetgr(group.as_ptr(), host.as_ptr(), std::ptr::null(), std::ptr::null()) } == 1 {
        return Ok(true);
    }
    // SAFETY: as above. Nobody else enumerates: each does so under the mutex.
    let known = unsafe { setnetgrent(group.as_ptr()) } == 1;
    // SAFETY: it has no arguments.
    unsafe { endnetgrent() };
    if known { Ok(false) } else { Err(io::Error::other("no database knows the netgroup")) }
}

/// The groups of a user beside the first, as this system's databases say. `None` for a user that they do not know.
/// Errors: The databases do not answer.
pub(crate) fn groups(uid: u32, max: usize) -> io::Result<Option<Vec<u32>>> {
    let Some((name, gid)) = user(uid)? else { return Ok(None) };
    let mut room: usize = 64;
    loop {
        let mut groups = vec![0 as libc::gid_t; room];
        let mut count = room as libc::c_int;
        // SAFETY: the name ends with a zero byte; `groups` is writable for as many entries as `count` says.
        let done = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        if done >= 0 {
            groups.truncate(usize::try_from(count).unwrap_or(0).min(max));
            return Ok(Some(groups));
        }
        if room >= max {
            groups.truncate(max);
            return Ok(Some(groups));
        }
        room = room.saturating_mul(8).min(max);
    }
}

fn user(uid: u32) -> io::Result<Option<(CString, libc::gid_t)>> {
    let mut bytes = vec![0u8; PASSWD_BYTES];
    loop {
        // SAFETY: all zeroes is a valid value of this plain structure.
        let mut record: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: all pointers are to live values; `bytes` is writable for the length that is said.
        let e = unsafe {
            libc::getpwuid_r(uid, &raw mut record, bytes.as_mut_ptr().cast(), bytes.len(), &raw mut found)
        };
        match e {
            0 if found.is_null() => return Ok(None),
            // SAFETY: the call has succeeded: the name points into `bytes` and ends with a zero byte.
            0 => return Ok(Some((unsafe { CStr::from_ptr(record.pw_name) }.to_owned(), record.pw_gid))),
            libc::ERANGE if bytes.len() < PASSWD_BYTES_MAX => bytes.resize(bytes.len() * 4, 0),
            libc::ENOENT | libc::ESRCH => return Ok(None),
            e => return Err(io::Error::from_raw_os_error(e)),
        }
    }
}

/// Bytes of this process that are in memory (proc(5), `statm`); `None` where the system does not say.
pub(crate) fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}

/// Makes the allocator keep freed memory for the next request, until [`give_back_memory`]. Otherwise glibc gives the buffer of each large
/// request or reply back to the system, and every page of the next one costs a page fault: for a stream of WRITEs a fifth of all work.
pub(crate) fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it has no memory of ours as an argument, and takes the allocator's own locks. If it refuses, the defaults stay.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, limits::ALLOCATOR_MAPS_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, limits::ALLOCATOR_KEEPS_BYTES);
    }
}

/// Gives memory that is free back to the system, where the allocator can be told to.
pub(crate) fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it has no memory of ours as an argument, and takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_superuser_and_this_host_are_known() {
        assert!(groups(0, 1024).expect("answered").expect("root").contains(&0));
        assert_eq!(groups(4_000_000_000, 1024).expect("answered"), None);
        assert!(addresses("localhost").expect("answered").iter().any(IpAddr::is_loopback));
    }

    #[test]
    fn what_a_peer_has_not_acknowledged_is_seen() {
        use std::io::{Read, Write};
        use std::net::{TcpListener, TcpStream};
        use std::os::fd::AsFd;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut peer = TcpStream::connect(listener.local_addr().expect("one")).expect("connected");
        let (mut socket, _) = listener.accept().expect("accepted");
        assert_eq!(unacknowledged(socket.as_fd()).expect("known"), 0);
        // Its system takes no more.
        socket.set_nonblocking(true).expect("an option");
        let mut written = 0;
        while let Ok(n) = socket.write(&[0; 64 << 10]) {
            written += n;
        }
        assert!(unacknowledged(socket.as_fd()).expect("known") > 0);
        peer.read_exact(&mut vec![0; written]).expect("all of it");
        let begun = std::time::Instant::now();
        while unacknowledged(socket.as_fd()).expect("known") > 0 {
            assert!(begun.elapsed() < std::time::Duration::from_secs(60), "it has all");
            std::thread::yield_now();
        }
    }

    #[test]
    fn only_an_answer_says_that_there_is_no_such_name() {
        for error in [libc::EAI_NONAME, libc::EAI_NODATA] {
            assert!(unknown(error).is_ok(), "{error}");
        }
        for error in [
            libc::EAI_AGAIN,
            libc::EAI_FAIL,
            libc::EAI_MEMORY,
            libc::EAI_SYSTEM,
            libc::EAI_FAMILY,
            libc::EAI_SERVICE,
            libc::EAI_BADFLAGS,
            libc::EAI_OVERFLOW,
        ] {
            assert!(unknown(error).is_err(), "{error}");
        }
        assert_eq!(addresses("192.0.2.1").expect("answered"), [IpAddr::from([192, 0, 2, 1])]);
        assert_eq!(addresses("::ffff:192.0.2.1").expect("answered"), [IpAddr::from([192, 0, 2, 1])]);
        assert!(addresses("::1").expect("answered").iter().all(|a| a.is_ipv6() && a.is_loopback()));
        assert_eq!(addresses("a\0b").expect("answered"), [] as [IpAddr; 0]);
        assert!(in_netgroup("no such group", "localhost").is_err());
    }
}
