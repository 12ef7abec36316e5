//! The whole volume, log and recovery, over a power cut: operations go through [`Volume`], the filesystem and the log
//! stop without a flush, and what was acknowledged must be there.

mod common;

use common::*;

#[test]
fn a_thread_that_acted_for_a_user_goes_on() {
    if !is_root() {
        return;
    }
    let rig = Rig::log();
    let root_dir = rig.volume.root();
    let dir = rig.mkdir(&root(), &root_dir, "d").unwrap();
    rig.setattr(&root(), &dir, mode(0o777)).unwrap();
    for name in ["a", "b", "c"] {
        rig.create(&user(1000), &dir, name).unwrap();
    }
}
