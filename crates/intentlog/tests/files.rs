//! The log on real files: commit, restart, replay.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use landfast_intentlog::{Checkpoint, Config, Log, OpenError};

#[derive(Default)]
struct Counting {
    synced: AtomicU64,
}

impl Checkpoint for Counting {
    fn snapshot(&self) -> Vec<Vec<u8>> {
        vec![b"state".to_vec()]
    }
    fn sync(&self, number: u64) -> io::Result<()> {
        self.synced.store(number, Ordering::SeqCst);
        Ok(())
    }
}

const VOLUME: [u8; 16] = [7; 16];

#[test]
fn what_was_committed_is_replayed_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::new(dir.path().join("log"), 1 << 20, VOLUME);
    let (log, replay) = Log::open(config.clone()).unwrap();
    assert!(replay.fresh && replay.clean && replay.records.is_empty());
    log.start(Arc::new(Counting::default())).unwrap();
    println!("{}", log.info());
    for i in 0..100u32 {
        let mut txn = log.begin().unwrap();
        txn.append(&i.to_le_bytes());
        txn.append(b"second");
        txn.commit().wait_blocking().unwrap();
    }
    assert_eq!(log.stats().batches, 100);
    assert!(matches!(Log::open(config.clone()), Err(OpenError::InUse { .. })));
    drop(log);
    let (log, replay) = Log::open(config.clone()).unwrap();
    assert!(!replay.clean && !replay.fresh);
    assert_eq!(replay.checkpoint, 1);
    let mut expected = vec![b"state".to_vec()];
    for i in 0..100u32 {
        expected.push(i.to_le_bytes().to_vec());
        expected.push(b"second".to_vec());
    }
    assert_eq!(replay.records, expected);
    log.start(Arc::new(Counting::default())).unwrap();
    log.begin().unwrap().append(b"dropped means committed");
    log.shutdown().unwrap();
    drop(log);
    let (log, replay) = Log::open(config.clone()).unwrap();
    assert!(replay.clean);
    assert_eq!(replay.checkpoint, 3);
    assert_eq!(replay.records, vec![b"state".to_vec()]);
    drop(log);
    let other = Config { volume_id: [8; 16], ..config };
    assert!(matches!(Log::open(other), Err(OpenError::OtherVolume { .. })));
}
