//! The device of the simulated log. A write that has returned is durable. If a power cut or an error interrupts a write, any
//! of its sectors may be written, whole or torn; the others are unchanged.

use std::io;

use std::path::PathBuf;

use landfast_intentlog::device::Device;
use landfast_intentlog::replay::ReadAt;

use super::{Class, Kernel};

/// Unit of tearing, bytes.
const SECTOR: usize = 512;

/// The log's device on this thread's kernel: the file that was there at opening, or one that is to replace it.
#[derive(Clone, Copy)]
pub struct LogDisk(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLoss {
    /// It was renamed, and can be put back.
    Away,
    Removed,
    Overwritten,
}

impl LogDisk {
    pub fn there() -> LogDisk {
        LogDisk(super::with(|k| k.log_number))
    }
}

impl ReadAt for LogDisk {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        super::with(|k| match k.log_of(self.0).get(offset as usize..offset as usize + buf.len()) {
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
        super::with(|k| k.write_log(self.0, parts))
    }

    fn look(&self, contents: bool) -> Result<(), String> {
        match super::with(|k| k.log_loss) {
            None => Ok(()),
            Some(LogLoss::Overwritten) if !contents => Ok(()),
            Some(loss) => Err(format!("the log {} is lost: {loss:?}", super::LOG)),
        }
    }

    fn successor(&self) -> Result<Box<dyn Device>, String> {
        super::with(|k| {
            if k.enter("open that makes a log", Class::Change).is_err() || k.no_new_log {
                return Err("no new log: there is no room".to_owned());
            }
            k.new_log = vec![0; k.log.len()];
            Ok(Box::new(LogDisk(self.0 + 1)) as Box<dyn Device>)
        })
    }

    fn take_place(&self) -> Result<Vec<PathBuf>, String> {
        super::with(|k| {
            k.enter("linkat of a log", Class::Change).map_err(|e| format!("no new log: {e}"))?;
            k.log = std::mem::take(&mut k.new_log);
            k.log_number = self.0;
            k.log_loss = None;
            Ok(Vec::new())
        })
    }

    fn describe(&self) -> String {
        "a simulated disk".to_owned()
    }
}

impl Kernel {
    fn log_of(&mut self, number: u64) -> &mut Vec<u8> {
        if number == self.log_number { &mut self.log } else { &mut self.new_log }
    }

    pub fn lose_log(&mut self, loss: LogLoss) {
        self.log_loss = Some(loss);
        if loss == LogLoss::Overwritten {
            self.log.fill(0);
        }
    }

    /// Called after the end of the process: settles what is at the log's path. If the log was lost, returns how, and its contents.
    pub fn find_log(&mut self) -> Option<(LogLoss, Vec<u8>)> {
        self.new_log.clear();
        let loss = self.log_loss.take()?;
        self.log_number += 1;
        let empty = vec![0; self.log.len()];
        Some((loss, std::mem::replace(&mut self.log, empty)))
    }

    fn write_log(&mut self, number: u64, parts: &[(u64, &[u8])]) -> io::Result<()> {
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
                self.log_of(number)[at..at + keep].copy_from_slice(&sector[..keep]);
            }
        }
        refused.map_err(io::Error::from)
    }
}
