//! Opens a mirror: decides which half counts, and what to do with the other one.
//!
//! While both halves work, a write is acknowledged when both have it. So after a crash both hold everything acknowledged, and
//! differ by one write at most: the one with the higher serial, or else the longer one, counts. A half that was lost while
//! the other went on is more than one checkpoint older ([`Mirror`]): it is written anew and never read. If only such a half is
//! there, the volume's tag shows that, and the start is refused.

use std::io;
use std::path::{Path, PathBuf};

use super::{Device, FileDevice, Mirror};
use crate::config::Config;
use crate::error::OpenError;
use crate::examine::{check, io_error, scan_error};
use crate::format::Superblock;
use crate::limits::{CHECKPOINTS_ALONE, RING_OFFSET};
use crate::replay;

/// What one half was found to hold.
#[derive(Debug)]
enum Half {
    /// It is missing or cannot be read.
    Unusable(OpenError),
    /// It was never used.
    Blank,
    /// A log, and where its records end, or the damage that hides the end.
    Log { superblock: Superblock, end: Result<u64, OpenError> },
}

#[derive(Debug)]
enum Plan {
    /// Both are blank.
    Create,
    /// Half `read` counts and the other one is written anew; `why` is a warning, if one is needed.
    Both { read: usize, why: Option<String> },
    /// Only this half is used; `why` says what is wrong with the other.
    Alone { half: usize, why: String },
}

/// Opens both halves of a mirror.
pub(super) fn open(paths: &[PathBuf; 2], config: &Config) -> Result<Box<dyn Device>, OpenError> {
    let exists = paths.each_ref().map(|path| path.exists());
    // Files are created only if both are missing: one that is missing may be on a disk that is not mounted.
    let may_create = exists == [false, false];
    let [a, b] = paths;
    let (first, half) = look_at_file(a, config, exists[0] || may_create)?;
    let (other, other_half) = look_at_file(b, config, exists[1] || may_create)?;
    join([first, other], [half, other_half], paths, |device| device.make_ready(config))
}

/// As [`open`], for devices that are open already; the paths only name them in errors.
pub(crate) fn open_devices<D: Device + 'static>(
    devices: [Option<D>; 2],
    paths: &[PathBuf; 2],
    config: &Config,
) -> Result<Box<dyn Device>, OpenError> {
    let look = |half: usize| match devices.get(half) {
        Some(Some(device)) => examine(device, &paths[half], config),
        _ => Ok(Half::Unusable(io_error(&paths[half], "open", io::ErrorKind::NotFound.into()))),
    };
    let halves = [look(0)?, look(1)?];
    join(devices, halves, paths, |_| Ok(()))
}

/// Makes one device of the halves; calls `ready` on each half that is used.
fn join<D: Device + 'static>(
    devices: [Option<D>; 2],
    halves: [Half; 2],
    paths: &[PathBuf; 2],
    ready: impl Fn(&mut D) -> Result<(), OpenError>,
) -> Result<Box<dyn Device>, OpenError> {
    let needed = |half: &Half| match half {
        Half::Log { superblock, .. } => superblock.ring_bytes + RING_OFFSET,
        Half::Unusable(_) | Half::Blank => 0,
    };
    let min = halves.iter().map(needed).max().unwrap_or(0);
    let [first, second] = devices;
    let take = |device: Option<D>, path: &Path| -> Result<Box<dyn Device>, OpenError> {
        let mut device = device.ok_or_else(|| io_error(path, "open", io::ErrorKind::NotFound.into()))?;
        if device.bytes() < min {
            return Err(OpenError::TooSmall { path: path.into(), bytes: device.bytes(), min });
        }
        ready(&mut device)?;
        Ok(Box::new(device))
    };
    let [a, b] = paths;
    let read = match plan(halves, paths)? {
        Plan::Alone { half: 0, why } => return Ok(Box::new(Mirror::alone(take(first, a)?, 0, why))),
        Plan::Alone { half, why } => return Ok(Box::new(Mirror::alone(take(second, b)?, half, why))),
        Plan::Create => 0,
        Plan::Both { read, why } => {
            if let Some(why) = why {
                tracing::warn!("{why}");
            }
            read
        }
    };
    let mirror = Mirror::new([take(first, a)?, take(second, b)?], read);
    Ok(Box::new(mirror.map_err(|source| io_error(a, "start a thread for", source))?))
}

/// Opens and examines one half. Contents that must not be overwritten are an error.
fn look_at_file(path: &Path, config: &Config, wanted: bool) -> Result<(Option<FileDevice>, Half), OpenError> {
    if !wanted {
        return Ok((None, Half::Unusable(io_error(path, "open", io::ErrorKind::NotFound.into()))));
    }
    let (device, unused) = match FileDevice::open_filled(path, config.create_size) {
        Ok(opened) => opened,
        Err(gone @ OpenError::Io { .. }) => return Ok((None, Half::Unusable(gone))),
        Err(refused) => return Err(refused),
    };
    let half = if unused { Half::Blank } else { examine(&device, path, config)? };
    Ok((Some(device), half))
}

fn examine(device: &dyn Device, path: &Path, config: &Config) -> Result<Half, OpenError> {
    let superblocks = match check(device, path, &config.volume_id) {
        Ok(Some(superblocks)) => superblocks,
        Ok(None) => return Ok(Half::Blank),
        Err(gone @ (OpenError::Io { .. } | OpenError::Corrupt { .. })) => return Ok(Half::Unusable(gone)),
        Err(refused) => return Err(refused),
    };
    let end = replay::walk(device, &superblocks.last, |_, _| ());
    let end = end.map(|scan| scan.end).map_err(|error| scan_error(path, error));
    Ok(Half::Log { superblock: superblocks.last, end })
}

/// Decides what to do with the halves. Pure.
fn plan(halves: [Half; 2], paths: &[PathBuf; 2]) -> Result<Plan, OpenError> {
    let name = |half: usize| paths.get(half).map(|p| p.display().to_string()).unwrap_or_default();
    let alone = |half: usize, end: Result<u64, OpenError>, gone: OpenError| {
        // Damage of the only half is an error.
        end.map(|_| Plan::Alone { half, why: gone.to_string() })
    };
    match halves {
        [Half::Blank, Half::Blank] => Ok(Plan::Create),
        [Half::Unusable(gone), Half::Unusable(_) | Half::Blank] | [Half::Blank, Half::Unusable(gone)] => {
            Err(gone)
        }
        [Half::Log { end, .. }, Half::Unusable(gone)] => alone(0, end, gone),
        [Half::Unusable(gone), Half::Log { end, .. }] => alone(1, end, gone),
        [Half::Log { end, .. }, Half::Blank] => end.map(|_| Plan::Both {
            read: 0,
            why: Some(format!("log {}: empty; it is made a copy of {}", name(1), name(0))),
        }),
        [Half::Blank, Half::Log { end, .. }] => end.map(|_| Plan::Both {
            read: 1,
            why: Some(format!("log {}: empty; it is made a copy of {}", name(0), name(1))),
        }),
        [Half::Log { superblock: a, end: end_a }, Half::Log { superblock: b, end: end_b }] => {
            if a.identity.log_id == b.identity.log_id && a.ring_bytes != b.ring_bytes {
                let [path, other] = paths.clone();
                return Err(OpenError::Halves {
                    path,
                    other,
                    why: "they differ in size; resize the other one too".into(),
                });
            }
            if a.identity.log_id != b.identity.log_id {
                let [path, other] = paths.clone();
                let why = "they are two logs, not two halves of one; name one of them, or erase the one that does not count";
                return Err(OpenError::Halves { path, other, why: why.into() });
            }
            let length = |end: &Result<u64, OpenError>| *end.as_ref().unwrap_or(&0);
            let read = usize::from((b.serial, length(&end_b)) > (a.serial, length(&end_a)));
            let (best, best_end, other, other_end) =
                if read == 0 { (a, end_a, b, end_b) } else { (b, end_b, a, end_a) };
            let behind = best.checkpoint.saturating_sub(other.checkpoint);
            let why = match (best_end, other_end) {
                (Ok(_), Ok(_)) if behind < CHECKPOINTS_ALONE => None,
                (Ok(_), Ok(_)) => Some(format!(
                    "log {}: was lost at checkpoint {} and is older than {} at {}; it is written anew",
                    name(1 - read),
                    other.checkpoint,
                    name(read),
                    best.checkpoint
                )),
                (Ok(_), Err(damage)) => {
                    Some(format!("{damage} (its copy {} is whole; it is written anew)", name(read)))
                }
                (Err(damage), Ok(_)) if behind < CHECKPOINTS_ALONE => {
                    let why = format!("{damage} (its copy {} is whole; it is written anew)", name(1 - read));
                    return Ok(Plan::Both { read: 1 - read, why: Some(why) });
                }
                (Err(damage), _) => return Err(damage),
            };
            Ok(Plan::Both { read, why })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Identity;
    use crate::limits::BLOCK_BYTES;

    fn log(serial: u64, checkpoint: u64, end: Option<u64>) -> Half {
        let identity = Identity { log_id: [1; 16], salt: serial };
        let superblock = Superblock {
            version: 1,
            identity,
            volume_id: [2; 16],
            serial,
            ring_bytes: 64 * BLOCK_BYTES as u64,
            tail: 0,
            tail_seq: 1,
            checkpoint,
            durable_end: (0, 0),
            clean_end: None,
        };
        let damage = || OpenError::Corrupt { path: "x".into(), what: "a hole".into() };
        Half::Log { superblock, end: end.ok_or_else(damage) }
    }

    fn gone() -> Half {
        Half::Unusable(OpenError::Io {
            path: "x".into(),
            action: "open",
            source: io::ErrorKind::NotFound.into(),
        })
    }

    fn both(a: Half, b: Half) -> Result<Plan, OpenError> {
        plan([a, b], &["a".into(), "b".into()])
    }

    #[track_caller]
    fn reads(got: Result<Plan, OpenError>, wanted: usize, told: bool) {
        match got {
            Ok(Plan::Both { read, why }) => assert_eq!((read, why.is_some()), (wanted, told), "{why:?}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn after_a_crash_the_half_that_got_further_counts() {
        reads(both(log(5, 3, Some(8192)), log(5, 3, Some(4096))), 0, false);
        reads(both(log(5, 3, Some(4096)), log(5, 3, Some(8192))), 1, false);
        reads(both(log(5, 3, Some(8192)), log(6, 4, Some(4096))), 1, false);
    }

    #[test]
    fn a_half_that_was_lost_is_never_read() {
        reads(both(log(9, 7, Some(0)), log(5, 5, Some(8192))), 0, true);
        assert!(matches!(both(log(9, 7, None), log(5, 5, Some(8192))), Err(OpenError::Corrupt { .. })));
    }

    #[test]
    fn damage_of_one_half_is_made_good_by_the_other() {
        reads(both(log(5, 3, None), log(5, 3, Some(4096))), 1, true);
        reads(both(log(6, 4, None), log(5, 3, Some(4096))), 1, true);
        reads(both(log(5, 3, Some(4096)), log(5, 3, None)), 0, true);
        assert!(matches!(both(log(5, 3, None), log(5, 3, None)), Err(OpenError::Corrupt { .. })));
    }

    #[test]
    fn what_is_gone_is_done_without_and_what_is_empty_is_filled() {
        assert!(matches!(both(log(5, 3, Some(0)), gone()), Ok(Plan::Alone { half: 0, .. })));
        assert!(matches!(both(gone(), log(5, 3, Some(0))), Ok(Plan::Alone { half: 1, .. })));
        assert!(matches!(both(gone(), log(5, 3, None)), Err(OpenError::Corrupt { .. })));
        assert!(matches!(both(gone(), Half::Blank), Err(OpenError::Io { .. })));
        assert!(matches!(both(Half::Blank, Half::Blank), Ok(Plan::Create)));
        reads(both(Half::Blank, log(5, 3, Some(0))), 1, true);
        reads(both(log(5, 3, Some(0)), Half::Blank), 0, true);
    }

    #[test]
    fn two_logs_are_not_two_halves() {
        let mut other = log(5, 3, Some(0));
        if let Half::Log { superblock, .. } = &mut other {
            superblock.identity.log_id = [9; 16];
        }
        assert!(matches!(both(log(5, 3, Some(0)), other), Err(OpenError::Halves { .. })));
    }
}
