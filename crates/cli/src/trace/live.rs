//! `--interface`: captures frames until a signal, a time or a number of calls ends it.

use super::args::TraceArgs;
use super::sys::{Received, Socket};
use crate::progress::spinner;
use crate::signals::stop_on_signals;
use crate::units::show_count;
use landfast_trace::limits::READ_BUFFER;
use landfast_trace::source::Frame;
use landfast_trace::trace::{Observer, Trace};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(100);
/// IP without a link layer, in the registry of libpcap.
const LINK_RAW: i32 = 101;

/// Passes the frames of an interface to `trace`. Returns how many frames were lost because this was too slow.
pub(super) fn watch<O: Observer>(
    interface: &str,
    args: &TraceArgs,
    trace: &mut Trace<O>,
) -> Result<u64, String> {
    let socket = Socket::open(interface).map_err(|e| match e.raw_os_error() {
        Some(libc::EPERM) => {
            "capturing needs the right to (root, or CAP_NET_RAW: setcap cap_net_raw=ep on the program); or use \
             tcpdump -w - | landfast trace -"
                .to_owned()
        }
        Some(libc::ENODEV | libc::ENXIO) => "there is no such interface (ip link shows which there are)".to_owned(),
        _ => e.to_string(),
    })?;
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_signals(stop.clone())?;
    let bar = spinner();
    if bar.is_hidden() || args.seconds.is_none() {
        eprintln!(
            "landfast: watching {interface}{}",
            if args.seconds.is_none() { "; Ctrl-C ends it" } else { "" }
        );
    }
    let begun = Instant::now();
    let mut shown = begun;
    let mut buffer = vec![0; READ_BUFFER];
    let ended = |trace: &Trace<O>| {
        stop.load(Ordering::Acquire)
            || args.seconds.is_some_and(|time| begun.elapsed() >= time)
            || args.count.is_some_and(|calls| trace.totals().calls_matched >= calls)
    };
    while !ended(trace) {
        let got = socket.receive(&mut buffer, LOOK).map_err(|e| e.to_string())?;
        if let Some(Received { ns, have, wire_len, twice: false }) = got {
            trace.frame(&Frame { ns, link: LINK_RAW, data: &buffer[..have], wire_len });
        }
        if shown.elapsed() >= LOOK {
            shown = Instant::now();
            let t = trace.totals();
            bar.set_message(format!(
                "{} calls, {} answered",
                show_count(t.calls_seen),
                show_count(t.calls_matched)
            ));
            bar.tick();
        }
    }
    bar.finish_and_clear();
    Ok(socket.dropped())
}
