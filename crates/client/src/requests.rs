//! Logs each request in a line at tracing's level DEBUG (`landfast --debug --debug`): the call, the result, and the
//! time. Nothing is decoded unless the log is on.

use std::future::Future;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use landfast_nfs::mount;
use landfast_nfs::v3::{self, NfsStat3};
use landfast_nfs::v4::{self, CompoundArgs, NfsStat};
use landfast_rpc::{CallError, Target};
use landfast_xdr::{Decode, Reader};
use tracing::{Level, debug, enabled};

use crate::limits::SHOWN_OPERATIONS_MAX;

/// Waits for a call's reply and logs both.
pub(crate) async fn logged(
    to: Target,
    args: &[Bytes],
    call: impl Future<Output = Result<Bytes, CallError>>,
) -> Result<Bytes, CallError> {
    if !enabled!(Level::DEBUG) {
        return call.await;
    }
    let asked = asked(to, args);
    let begun = Instant::now();
    let done = call.await;
    let took = begun.elapsed();
    match &done {
        Ok(reply) => {
            debug!("{asked}: {}{} bytes in {took:.1?}", status(to, reply), reply.len());
        }
        Err(e) => debug!("{asked}: no reply after {took:.1?}: {e}"),
    }
    done
}

/// Version, procedure or operations, and the size of the arguments.
fn asked(to: Target, args: &[Bytes]) -> String {
    let bytes = args.iter().map(Bytes::len).sum::<usize>();
    let what = match (to.prog, to.vers) {
        (landfast_nfs::PROGRAM, v4::VERSION) if to.proc == v4::PROC_COMPOUND => compound(args),
        (landfast_nfs::PROGRAM, v3::VERSION) => {
            let name = v3::PROC_NAMES.get(to.proc as usize).copied();
            format!("NFS 3 {}", name.unwrap_or("unknown procedure"))
        }
        (mount::PROGRAM, version) => format!("MOUNT {version} procedure {}", to.proc),
        (program, version) => format!("program {program} version {version} procedure {}", to.proc),
    };
    format!("{what}, {bytes} bytes")
}

fn compound(args: &[Bytes]) -> String {
    let mut whole = BytesMut::new();
    args.iter().for_each(|part| whole.extend_from_slice(part));
    let mut reader = Reader::new(whole.freeze());
    let Ok(args) = CompoundArgs::decode_limited(&mut reader, u32::MAX) else {
        return "COMPOUND".to_owned();
    };
    let names: Vec<String> =
        args.ops.iter().take(SHOWN_OPERATIONS_MAX).map(|op| op.op().to_string()).collect();
    let more = match (args.announced as usize).saturating_sub(names.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("COMPOUND 4.{} {}{more}", args.minor_version, names.join(" "))
}

/// The status at the start of a reply of an NFS server.
fn status(to: Target, reply: &Bytes) -> String {
    let mut reader = Reader::new(reply.clone());
    match (to.prog, to.vers) {
        (landfast_nfs::PROGRAM, v4::VERSION) => NfsStat::decode(&mut reader).map(|s| format!("{s}, ")),
        (landfast_nfs::PROGRAM, v3::VERSION) if to.proc != v3::proc::NULL => {
            NfsStat3::decode(&mut reader).map(|s| format!("{s}, "))
        }
        _ => Ok(String::new()),
    }
    .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compound::{COMPOUND, compound_header};
    use landfast_nfs::v4::ArgOp;
    use landfast_xdr::Encode;

    #[test]
    fn a_compound_is_shown_by_its_operations() {
        let shown = |count: usize| {
            let mut args = BytesMut::new();
            compound_header(2, count, &mut args);
            let mut ops = BytesMut::new();
            (0..count).for_each(|_| ArgOp::Putrootfh.encode(&mut ops));
            asked(COMPOUND, &[args.freeze(), ops.freeze()])
        };
        assert_eq!(shown(2), "COMPOUND 4.2 PUTROOTFH PUTROOTFH, 20 bytes");
        let many = shown(SHOWN_OPERATIONS_MAX + 3);
        assert!(many.contains(" PUTROOTFH and 3 more, "), "{many}");
        assert_eq!(asked(COMPOUND, &[Bytes::from_static(b"no")]), "COMPOUND, 2 bytes");
        let reply = Bytes::from_static(&[0, 0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(status(COMPOUND, &reply), "NFS4ERR_NOENT, ");
    }

    #[test]
    fn a_procedure_of_version_3_is_shown_by_its_name() {
        let to = Target { prog: landfast_nfs::PROGRAM, vers: 3, proc: v3::proc::LOOKUP };
        assert_eq!(asked(to, &[Bytes::from_static(&[0; 8])]), "NFS 3 LOOKUP, 8 bytes");
        assert_eq!(status(to, &Bytes::from_static(&[0; 4])), format!("{}, ", NfsStat3(0)));
    }
}
