//! How many descriptors opens may keep within the process's limit (`RLIMIT_NOFILE`). The volumes raised it as far as they
//! may when they were opened.

use crate::limited::{Limit, Limits};
use landfast_volume::limits as volume;
use rustix::process::{Resource, getrlimit};

/// Descriptors for logs, listeners, the runtime, directories being read, and files that libraries open.
const BESIDE: u64 = 256;
/// At least this part of all descriptors is for opens.
const OPENS_DIVISOR: u64 = 4;

/// The limits with as many descriptors for opens as fit beside the volumes and connections, and whether the volumes and
/// connections leave room for any.
fn within(limits: Limits, descriptors: u64, volumes: usize) -> (Limits, bool) {
    let nodes = (descriptors / volume::NODE_FDS_DIVISOR).min(volume::NODE_FDS_MAX as u64);
    let witnesses = (descriptors / volume::WITNESS_FDS_DIVISOR).min(volume::WITNESSES_MAX as u64);
    let of_a_volume = nodes + witnesses + volume::DESCRIPTOR_CACHE_MAX as u64;
    let others = (volumes as u64).saturating_mul(of_a_volume) + limits[Limit::Connections] as u64 + BESIDE;
    let (least, rest) = (descriptors / OPENS_DIVISOR, descriptors.saturating_sub(others));
    let room = usize::try_from(rest.max(least)).unwrap_or(usize::MAX);
    let kept = limits[Limit::OpenDescriptors].min(room);
    (limits.with(Limit::OpenDescriptors, kept), rest >= least)
}

/// The limits that this process can keep.
pub(crate) fn bounded(limits: Limits, volumes: usize) -> Limits {
    let Some(descriptors) = getrlimit(Resource::Nofile).current else { return limits };
    let (bounded, roomy) = within(limits, descriptors, volumes);
    if !roomy {
        tracing::warn!(
            "{descriptors} descriptors (RLIMIT_NOFILE) are few for {volumes} exports and {} connections: raise the limit \
             (LimitNOFILE= of the service), or lower limits.connections",
            limits[Limit::Connections]
        );
    }
    let (opens, kept) = (limits[Limit::Opens], bounded[Limit::OpenDescriptors]);
    if bounded != limits && kept < opens {
        tracing::info!(
            "{descriptors} descriptors (RLIMIT_NOFILE) have room for {kept} that opens keep, of {opens} opens: each access \
             through a further one opens the file again"
        );
    }
    bounded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_of_opens_follow_the_limit_of_the_process() {
        let kept = |descriptors, volumes| {
            let (limits, roomy) = within(Limits::default(), descriptors, volumes);
            assert_eq!(
                limits[Limit::Opens],
                Limits::default()[Limit::Opens],
                "opens are as many with few descriptors"
            );
            (limits[Limit::OpenDescriptors], roomy)
        };
        let all = Limits::default()[Limit::OpenDescriptors];
        assert_eq!(kept(1 << 20, 1), (all, true));
        let (some, roomy) = kept(1 << 19, 4);
        assert!(roomy && some < all && some > all / 2, "{some}");
        // With all of them in use the rest has its own.
        assert!(some + 4 * (16_384 + 4096 + 1024) + 1024 < 1 << 19);
        assert_eq!(kept(1024, 1), (256, false));
        assert_eq!(kept(64, 1), (16, false));
        let few = Limits::default().with(Limit::OpenDescriptors, 20);
        assert_eq!(within(few, 1 << 20, 1).0, few);
    }
}
