//! The packet socket of `trace --interface`.

use std::ffi::CString;
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// The kernel's buffer for frames, in bytes.
const KEPT: libc::c_int = 32 << 20;
/// The kernel's number for a loopback interface.
const ARPHRD_LOOPBACK: u16 = 772;

/// A socket that receives all frames of an interface, from the network layer on.
pub(super) struct Socket(OwnedFd);

pub(super) struct Received {
    pub(super) ns: i64,
    pub(super) have: usize,
    pub(super) wire_len: u32,
    /// The loopback interface delivers each frame twice; this is the second one.
    pub(super) twice: bool,
}

impl Socket {
    pub(super) fn open(interface: &str) -> io::Result<Socket> {
        let all = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: no memory is handed over; a valid descriptor is owned from here on.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, i32::from(all));
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Socket(OwnedFd::from_raw_fd(fd))
        };
        let name = CString::new(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: `name` ends with a zero byte and outlives the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        socket.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        // More than the limit of ordinary processes, where that is allowed.
        if socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, KEPT).is_err() {
            socket.set(libc::SOL_SOCKET, libc::SO_RCVBUF, KEPT)?;
        }
        // SAFETY: all fields may be zero.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = all;
        address.sll_ifindex = index.cast_signed();
        // SAFETY: the address and its length belong together and outlive the call.
        let bound = unsafe {
            libc::bind(
                socket.0.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
    }

    fn set(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        // SAFETY: the value and its length belong together and outlive the call.
        let done = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as u32,
            )
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    pub(super) fn dropped(&self) -> u64 {
        let mut counted = MaybeUninit::<libc::tpacket_stats>::zeroed();
        let mut len = size_of::<libc::tpacket_stats>() as u32;
        // SAFETY: the kernel writes no more than `len` bytes into a structure that may be zero.
        unsafe {
            let (to, fd) = (counted.as_mut_ptr().cast(), self.0.as_raw_fd());
            if libc::getsockopt(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, to, &raw mut len) < 0 {
                return 0;
            }
            counted.assume_init().tp_drops.into()
        }
    }

    /// The next frame; `None`: none came for this time.
    pub(super) fn receive(&self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<Received>> {
        let mut waits = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        match unsafe { libc::poll(&raw mut waits, 1, wait.as_millis() as i32) } {
            0 => return Ok(None),
            n if n < 0 => return interrupted(),
            _ => {}
        }
        // SAFETY: all fields of these may be zero.
        let (mut address, mut message): (libc::sockaddr_ll, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
        let mut control = [0u64; 16];
        let mut piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        message.msg_name = (&raw mut address).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        // SAFETY: all that the message points to outlives the call, with the lengths that it says.
        let len = unsafe {
            libc::recvmsg(self.0.as_raw_fd(), &raw mut message, libc::MSG_TRUNC | libc::MSG_DONTWAIT)
        };
        let Ok(len) = usize::try_from(len) else { return interrupted() };
        let twice = address.sll_hatype == ARPHRD_LOOPBACK && address.sll_pkttype == libc::PACKET_OUTGOING;
        let wire_len = u32::try_from(len).unwrap_or(u32::MAX);
        Ok(Some(Received { ns: stamped(&message), have: len.min(buffer.len()), wire_len, twice }))
    }
}

fn interrupted<T>() -> io::Result<Option<T>> {
    let e = io::Error::last_os_error();
    if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) { Ok(None) } else { Err(e) }
}

/// When the kernel received it, in nanoseconds since 1970.
fn stamped(message: &libc::msghdr) -> i64 {
    // SAFETY: the kernel has filled the control messages of `message`; each is read only as far as it says that it goes.
    unsafe {
        let mut each = libc::CMSG_FIRSTHDR(message);
        while !each.is_null() {
            if (*each).cmsg_level == libc::SOL_SOCKET && (*each).cmsg_type == libc::SCM_TIMESTAMPNS {
                let time: libc::timespec = std::ptr::read_unaligned(libc::CMSG_DATA(each).cast());
                return time.tv_sec * 1_000_000_000 + time.tv_nsec;
            }
            each = libc::CMSG_NXTHDR(message, each);
        }
    }
    0
}
