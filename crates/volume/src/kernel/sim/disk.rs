//! The device of the simulated log. A write that has returned is durable; of one that a power cut or an error meets, any
//! sectors are there, whole or torn, and the others are as before.

use std::io;

use landfast_intentlog::device::Device;
use landfast_intentlog::replay::ReadAt;

use super::{Class, Kernel};

/// Unit of tearing, bytes.
const SECTOR: usize = 512;

/// The log's device, of this thread's kernel.
#[derive(Clone, Copy)]
pub struct LogDisk;

impl ReadAt for LogDisk {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        super::with(|k| match k.log.get(offset as usize..offset as usize + buf.len()) {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        })
    }
}

impl Device for LogDisk {
    fn bytes(&self) -> u64 {
        super::with(|k| k.log.len() as u64)
    }

    fn write_durable(&self, parts: &[(u64, &[u8])]) -> io::Result<()> {
        super::with(|k| k.write_log(parts))
    }

    fn describe(&self) -> String {
        "a simulated disk".to_owned()
    }
}

impl Kernel {
    fn write_log(&mut self, parts: &[(u64, &[u8])]) -> io::Result<()> {
        let was_down = self.down;
        let refused = self.enter("write of the log", Class::Log);
        if refused.is_err() && was_down {
            return Err(io::Error::other("no power"));
        }
        for (offset, bytes) in parts {
            let offset = *offset as usize;
            for (n, sector) in bytes.chunks(SECTOR).enumerate() {
                let at = offset + n * SECTOR;
                let keep = match refused {
                    Ok(()) => sector.len(),
                    Err(_) => match self.rng.below(8) {
                        0..=3 => sector.len(),
                        4 => self.rng.below(sector.len() as u64) as usize,
                        _ => 0,
                    },
                };
                self.log[at..at + keep].copy_from_slice(&sector[..keep]);
            }
        }
        refused.map_err(io::Error::from)
    }
}
