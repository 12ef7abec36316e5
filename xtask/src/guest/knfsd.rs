//! A guest whose kernel serves the filesystem on its scratch disk.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::image::Image;
use super::machine::{Hardware, Machine, NETWORK_STANDS};
use super::recipe::Vers;

/// What the guest runs to serve.
const SERVE: &str = include_str!("../../guest/verify-serve.sh");

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(300);

const NFS_PORT: u16 = 2049;

/// How long a guest whose network works may take to let somebody connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// Boots one, which serves `fs` with these export options.
pub fn boot(image: &Image, hardware: &Hardware, fs: &str, exports: &str) -> Result<Machine, String> {
    let mut guest = Machine::boot(image, hardware)?;
    let script = format!("FS={fs} OPTIONS={exports}\n{SERVE}");
    let mut said = Vec::new();
    match guest.run(&script, &[], LIMIT, &mut said)? {
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
