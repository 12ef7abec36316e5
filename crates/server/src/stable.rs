//! How stable a write is, on the wire and to the volume.

use landfast_nfs::v4::StableHow;
use landfast_volume::Stable;

pub(crate) fn asked(how: StableHow) -> Stable {
    match how {
        StableHow::Unstable => Stable::Unstable,
        StableHow::DataSync => Stable::DataSync,
        StableHow::FileSync => Stable::FileSync,
    }
}

pub(crate) fn answered(stable: Stable) -> StableHow {
    match stable {
        Stable::Unstable => StableHow::Unstable,
        Stable::DataSync => StableHow::DataSync,
        Stable::FileSync => StableHow::FileSync,
    }
}
