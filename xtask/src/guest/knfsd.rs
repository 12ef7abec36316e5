//! A guest whose kernel serves the filesystem on its scratch disk.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::image::Image;
use super::machine::{Hardware, Machine, NETWORK_STANDS};
use super::recipe::Vers;

/// What the guest runs to serve.
const SERVE: &str = concat!(include_str!("../../guest/verify-serve.sh"), include_str!("../../guest/nfsd.sh"));

/// What the guest runs to serve a filesystem on its own disk.
const SERVE_OWN: &str = concat!(include_str!("../../guest/knfsd.sh"), include_str!("../../guest/nfsd.sh"));

/// The lock manager of NFSv3 has a grace period of its own, 50 s by default, in which nfsd gives no delegations either: 1 s here.
const SHORT_GRACE: &str = "set -e
modprobe lockd
echo 3 >/proc/sys/fs/nfs/nlm_timeout
echo 1 >/proc/sys/fs/nfs/nlm_grace_period
";

/// Nothing says that this period is over, so it is waited for.
const AFTER_GRACE: &str = "sleep 1.5";

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(300);

const NFS_PORT: u16 = 2049;

/// How long a guest whose network works may take to let somebody connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// Boots one that serves an ext4 on its own disk, which is thrown away, and where a flush costs nothing. It gives delegations at once.
pub fn boot_throwaway(image: &Image, hardware: &Hardware, lease_s: u64) -> Result<Machine, String> {
    let script = format!("LEASE={lease_s}\n{SHORT_GRACE}{SERVE_OWN}{AFTER_GRACE}");
    serving(Machine::boot(image, hardware)?, &script)
}

/// Boots one, which serves `fs` with these export options.
pub fn boot(image: &Image, hardware: &Hardware, fs: &str, exports: &str) -> Result<Machine, String> {
    serving(Machine::boot(image, hardware)?, &format!("FS={fs} OPTIONS={exports}\n{SERVE}"))
}

fn serving(mut guest: Machine, script: &str) -> Result<Machine, String> {
    let mut said = Vec::new();
    match guest.run(script, &[], LIMIT, &mut said)? {
        0 => Ok(guest),
        code => Err(format!(
            "the guest does not serve: {code}: {}{}",
            String::from_utf8_lossy(&said),
            guest.console()
        )),
    }
}

/// [`NETWORK_STANDS`] and a line's end, or nothing: where no frame comes to it any more its kernel cannot tell. It takes
/// connections whatever its server does.
pub fn stands(hardware: &Hardware) -> String {
    let address = hardware.link.as_ref().and_then(|link| link.host().parse().ok());
    let connect = |address| TcpStream::connect_timeout(&SocketAddr::new(address, NFS_PORT), CONNECT_LIMIT);
    match address.map(connect) {
        Some(Err(e)) if matches!(e.kind(), ErrorKind::TimedOut | ErrorKind::HostUnreachable) => {
            format!("{NETWORK_STANDS}\n")
        }
        _ => String::new(),
    }
}

/// The URL of what it serves.
pub fn url(hardware: &Hardware, vers: Vers) -> Result<String, String> {
    url_of(hardware, vers, "")
}

/// The URL of something in it, which has this path.
pub fn url_of(hardware: &Hardware, vers: Vers, below: &str) -> Result<String, String> {
    let link = hardware.link.as_ref().ok_or("the guest has no address")?;
    let address = link.host();
    // NFSv3 knows no pseudo root.
    let path = if vers == Vers::V3 { "srv/export/" } else { "" };
    Ok(format!("nfs://{address}/{path}{below}?version={vers}"))
}
