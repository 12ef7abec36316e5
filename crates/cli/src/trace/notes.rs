//! What a reader of the numbers has to know.

use super::found::Found;
use crate::units::{show_bytes, show_count};
use landfast_trace::source::End;

/// How a capture ended, if not as it should.
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

impl Found {
    /// What a reader of the numbers has to know.
    pub(super) fn notes(&self) -> Vec<String> {
        let t = &self.totals;
        let mut notes = Vec::new();
        notes.extend(end(self.end));
        if self.dropped > 0 {
            notes.push(format!(
                "{} frames came more quickly than they could be read: capture with tcpdump -w FILE instead",
                show_count(self.dropped)
            ));
        }
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
        if t.cut_frames > 0 && t.calls_seen > 0 {
            notes.push(format!(
                "{} frames were cut short when captured: times of messages of several segments are those of the first segment",
                show_count(t.cut_frames)
            ));
        }
        if t.encrypted_calls > 0 {
            notes.push(format!(
                "{} calls are encrypted (krb5p): of these only the procedure is known",
                show_count(t.encrypted_calls)
            ));
        }
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
            if both.left_out() > 0 {
                notes.push(format!(
                    "{} calls of the second capture were too many to remember",
                    show_count(both.left_out())
                ));
            }
        }
        if t.tls_probes > 0 && t.calls_seen > t.tls_probes {
            notes.push("connections that turned to TLS (RPC over TLS) cannot be read: their calls are not in the numbers".into());
        }
        if t.forgotten > 0 {
            notes.push(format!(
                "{} connections were too many to follow to their ends",
                show_count(t.forgotten)
            ));
        }
        notes
    }

    /// Why there is no table.
    pub(super) fn nothing(&self) -> String {
        let t = &self.totals;
        if let Some(all @ 1..) = self.all_calls {
            return format!("none of its {} calls is what was asked for", show_count(all));
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
            seen.push_str(&format!(", {} frames that no interface is given for", show_count(self.strange)));
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
