//! Guesses the kind of device from the times that calls wait for durability.

use serde::{Deserialize, Serialize};

/// How long calls wait for durability, without the round trip and everything else such a call needs. Seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wait {
    /// 10th percentile.
    pub p10_s: f64,
    pub median_s: f64,
}

/// Kinds of devices, by the time of a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// No visible wait.
    None,
    /// Non-volatile memory, or flash behind it: below 0.1 ms.
    Protected,
    /// Flash that must write before it answers: 0.1 to 2 ms.
    Flash,
    /// Slow flash, or a disk behind a cache: 2 to 4 ms.
    Between,
    /// A rotating disk: 4 to 20 ms, spread over a rotation.
    Disk,
    /// 4 to 20 ms, but with little spread.
    Even,
    /// Above 20 ms.
    Slow,
}

/// A shorter wait is lost in the noise. Seconds.
pub const SEEN_S: f64 = 20e-6;

/// The position of a platter is random, so the 10th percentile of a disk's waits is shorter than the median by at
/// least this part of it. (The longer waits depend on whatever else goes on, with any device.)
const ROTATION: f64 = 0.10;

impl Device {
    /// The kind of device with such waits.
    pub fn of(wait: &Wait) -> Device {
        match wait.median_s {
            s if s < SEEN_S => Device::None,
            s if s < 0.1e-3 => Device::Protected,
            s if s < 2e-3 => Device::Flash,
            s if s < 4e-3 => Device::Between,
            s if s <= 20e-3 && s - wait.p10_s >= ROTATION * s => Device::Disk,
            s if s <= 20e-3 => Device::Even,
            _ => Device::Slow,
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Device::None => "no wait for stable storage can be seen",
            Device::Protected => "memory that survives a power cut, or NVMe with power-loss protection",
            Device::Flash => "an SSD or NVMe device that has to flush its cache",
            Device::Between => "a slow SSD, or disks behind a cache",
            Device::Disk => "a rotating disk",
            Device::Even => {
                "as slow as a disk but always alike: a disk that waits for a whole turn each time (8.3 ms at 7,200 a minute), storage \
                 that is far away or throttled, or a delay that is made"
            }
            Device::Slow => "a disk with a queue, or several flushes for one call",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_what_they_look_like() {
        for (p10, median, device) in [
            (0.0, 0.0, Device::None),
            (-1e-5, 1e-5, Device::None),
            (3e-5, 5e-5, Device::Protected),
            (2e-4, 5e-4, Device::Flash),
            (2e-3, 3e-3, Device::Between),
            (4e-3, 8e-3, Device::Disk),
            (9.9e-3, 10e-3, Device::Even),
            (20e-3, 30e-3, Device::Slow),
        ] {
            assert_eq!(Device::of(&Wait { p10_s: p10, median_s: median }), device, "{median}");
        }
    }
}
