//! What became durable between two records of the journal. The field names belong to the journal's format.

use serde::{Deserialize, Serialize};

/// What became durable since the record before. See [`super::done::DoneBefore`] for the fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Batch {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) members: Vec<(u64, u64)>,
    #[serde(with = "hex_pairs", skip_serializing_if = "Vec::is_empty")]
    pub(super) objects: Vec<(u64, u64)>,
    /// Large files: hash of the path, hash of the object, durable bytes, filehandle.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) parts: Vec<(u64, u64, u64, Vec<u8>)>,
    /// The same for an archive that cannot be read twice, with its digest up to there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) streamed: Vec<(u64, u64, u64, Vec<u8>, u64)>,
    #[serde(with = "hex", skip_serializing_if = "Vec::is_empty")]
    pub(super) made: Vec<u64>,
    #[serde(with = "hex", skip_serializing_if = "Vec::is_empty")]
    pub(super) met: Vec<u64>,
    #[serde(with = "hex_pairs", skip_serializing_if = "Vec::is_empty")]
    pub(super) marks: Vec<(u64, u64)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) begun: Vec<(u32, Vec<u8>)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) gone: Vec<u32>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) removed: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Writes numbers as one string, to save space.
pub(super) mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(numbers: &[u64], out: S) -> Result<S::Ok, S::Error> {
        let all: Vec<String> = numbers.iter().map(|n| format!("{n:x}")).collect();
        out.serialize_str(&all.join(" "))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
        let text = String::deserialize(from)?;
        text.split_ascii_whitespace().map(|n| u64::from_str_radix(n, 16).map_err(D::Error::custom)).collect()
    }
}

pub(super) mod hex_pairs {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(pairs: &[(u64, u64)], out: S) -> Result<S::Ok, S::Error> {
        let all: Vec<String> = pairs.iter().map(|(a, b)| format!("{a:x}.{b:x}")).collect();
        out.serialize_str(&all.join(" "))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(u64, u64)>, D::Error> {
        let number = |n: &str| u64::from_str_radix(n, 16).map_err(D::Error::custom);
        let text = String::deserialize(from)?;
        text.split_ascii_whitespace()
            .map(|pair| {
                let (a, b) = pair.split_once('.').ok_or_else(|| D::Error::custom("no pair"))?;
                Ok((number(a)?, number(b)?))
            })
            .collect()
    }
}
