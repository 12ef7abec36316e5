//! Remarks that a reader of the figures needs.

use super::results::Results;
use crate::units::{counted, show_bytes, show_count};
use landfast_trace::source::End;

/// How the capture ended, if not normally.
pub(super) fn end(end: End) -> Option<String> {
    match end {
        End::Whole => None,
        End::CutOff => {
            Some("the capture is cut off in the middle of a frame; what is before it counts".into())
        }
        End::Damaged(at) => Some(format!(
            "the capture is damaged at byte {at} (of what it is when not compressed); what is before it counts"
        )),
    }
}

impl Results {
    pub(super) fn notes(&self) -> Vec<String> {
        let t = &self.totals;
        let mut notes = Vec::new();
        notes.extend(end(self.end));
        let dropped =
            "frames came more quickly than they could be read: capture with tcpdump -w FILE instead";
        notes.extend(counted(self.dropped, dropped));
        if t.tcp.holes > 0 {
            notes.push(format!(
                "{} holes in the capture, {} in all: frames that were on the wire are not in it",
                show_count(t.tcp.holes),
                show_bytes(t.tcp.hole_bytes)
            ));
        }
        if t.calls_seen > 0 && t.calls_matched + t.calls_unmeasured == 0 && t.stray_replies == 0 {
            notes.push(
                "no reply is in the capture: only the way to the server was captured (an interface of a bond, a mirror of one direction, a filter on \
                 one address); capture both ways"
                    .into(),
            );
        }
        let cut = "frames were cut short when captured: times of messages of several segments are those of the first segment";
        notes.extend(counted(t.cut_frames, cut).filter(|_| t.calls_seen > 0));
        let encrypted = "calls are encrypted (krb5p): of these only the procedure is known";
        notes.extend(counted(t.encrypted_calls, encrypted));
        if self.table.operations_unknown() > t.encrypted_calls {
            notes.push(format!(
                "of {} COMPOUNDs the main operation was not captured: capture 512 bytes of each frame or all (tcpdump -s 0)",
                show_count(self.table.operations_unknown() - t.encrypted_calls)
            ));
        }
        if let Some(both) = &self.findings.both {
            let (_, sum) = both.rows();
            if sum.calls == 0 {
                notes.push("the two captures have no call in common: are they of the same traffic?".into());
            }
            notes.extend(counted(both.left_out(), "calls of the second capture were too many to remember"));
        }
        if t.tls_probes > 0 && t.calls_seen > t.tls_probes {
            notes.push("connections that turned to TLS (RPC over TLS) cannot be read: their calls are not in the numbers".into());
        }
        notes.extend(counted(t.forgotten, "connections were too many to follow to their ends"));
        notes
    }

    /// Why there are no figures.
    pub(super) fn nothing(&self) -> String {
        let t = &self.totals;
        if let Some(all @ 1..) = self.all_calls {
            return format!("none of its {} calls passes the filter", show_count(all));
        }
        if t.tls_probes > 0 {
            return "no NFS that can be read: the connections turned to TLS (RPC over TLS); capture the same work without it (mount -o xprtsec=none), or read the client's counters (landfast trace --mountstats)".into();
        }
        if t.calls_seen + t.other_calls == 0
            && let replies @ 1.. = t.stray_replies + t.replies_alone
        {
            return format!(
                "no call is in the capture, only {} replies: only the way from the server was captured (an interface of a bond, a mirror of one \
                 direction, a filter on one address); capture both ways",
                show_count(replies)
            );
        }
        let mut seen =
            format!("{} frames, {} TCP connections", show_count(t.frames), show_count(t.connections));
        for (why, n) in &t.passed {
            seen.push_str(&format!(", {} frames {}", show_count(*n), why.words()));
        }
        if self.strange > 0 {
            seen.push_str(&format!(
                ", {} frames that no interface is given for or that are too large",
                show_count(self.strange)
            ));
        }
        if self.live {
            return format!(
                "no calls to NFS came by ({seen}); the work has to run meanwhile, and over this interface: ip route get SERVER names it"
            );
        }
        format!(
            "no calls to NFS in it ({seen}); capture with tcpdump -s 0 -w FILE host SERVER while the work runs"
        )
    }
}
