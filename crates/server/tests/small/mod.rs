//! A server whose export is on a small filesystem of its own, its log beside it.
#![allow(dead_code)] // each test file uses its part

#[path = "../../../volume/tests/common/image.rs"]
pub mod image;

use super::common::Rig;
use image::{Image, Kernel};
use landfast_volume::Durability;

/// `None`, with a line that says so, where that cannot be done.
pub async fn on_an_image(kernel: Kernel) -> Option<(Image, Rig)> {
    on_an_image_with(kernel, Durability::Log).await
}

/// The same, in any mode.
pub async fn on_an_image_with(kernel: Kernel, durability: Durability) -> Option<(Image, Rig)> {
    let image = Image::new(kernel)?;
    let dir = tempfile::Builder::new().tempdir_in(image.path()).expect("a directory");
    std::fs::create_dir(dir.path().join("data")).expect("the export");
    let log = image.beside().join("log");
    let rig = Rig::at(dir, durability, 90, Some(log)).await;
    Some((image, rig))
}

/// Leaves so many bytes of the filesystem free.
pub fn blow_up(image: &Image, leave: u64) {
    let free = rustix::fs::statvfs(image.path()).expect("statvfs");
    // The server is root's, for whom the reserve is not reserved.
    let size = (free.f_bfree * free.f_frsize).saturating_sub(leave);
    let balloon = std::fs::File::create(image.path().join("balloon")).expect("a file");
    rustix::fs::fallocate(&balloon, rustix::fs::FallocateFlags::empty(), 0, size).expect("space taken");
    balloon.sync_all().expect("fsync");
}
