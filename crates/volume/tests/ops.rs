//! Each operation on a real directory.

mod common;

use common::*;
use landfast_volume::*;

#[test]
fn the_main_job() {
    if !is_root() {
        return;
    }
    let rig = Rig::log();
    let v = &rig.volume;
    let root_dir = v.root();
    let dir = rig.mkdir(&root(), &root_dir, "d").unwrap();
    let made = rig.create(&root(), &dir, "f").unwrap();
    assert!(made.created && made.dir_change.atomic && made.dir_change.after > made.dir_change.before);
    assert_eq!(made.dir_change.after, rig.change(&dir));
    assert_eq!(rig.write(&made.file, 0, b"hello").unwrap(), (5, Stable::FileSync));
    assert_eq!(v.read(&made.file, 1, 100).unwrap(), (bytes::Bytes::from_static(b"ello"), true));
    assert!(v.read(&made.file, 0, 5).unwrap().1);
    assert_eq!(v.read(&made.file, 0, 4).unwrap(), (bytes::Bytes::from_static(b"hell"), false));
    let set =
        SetAttrs { uid: Some(12), mtime: Some(TimeSet::At(Timestamp { secs: 5, nanos: 6 })), ..mode(0o4711) };
    let attrs = rig.setattr(&root(), &made.node, set).unwrap();
    assert_eq!((attrs.uid, attrs.mode, attrs.size), (12, 0o4711, 5));
    assert_eq!(attrs.mtime, Timestamp { secs: 5, nanos: 6 });
    let (fh, fileid) = (made.node.fh(), attrs.fileid);
    drop(made);
    let rig = rig.restart();
    assert!(rig.report.clean);
    assert_eq!(rig.report.epoch, 2);
    let node = rig.volume.resolve(&fh).unwrap();
    assert_eq!(rig.volume.getattr(&node).unwrap().fileid, fileid);
    assert_eq!(std::fs::read(rig.dir().join("d/f")).unwrap(), b"hello");
}
