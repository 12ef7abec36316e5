//! Flushes of the whole filesystem, one at a time, shared by all who ask for one in the meantime.
//!
//! `syncfs` reports write-back errors of any file, once to each open file description. All flushes use one description, open
//! since before anything was served. If two of them overlapped, one could get the error and the other succeed before the
//! volume is known to have failed. So an error fails the volume before the next flush begins.

use parking_lot::{Condvar, Mutex};

#[derive(Default)]
pub(crate) struct SharedSyncfs {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    begun: u64,
    done: u64,
    under_way: bool,
}

impl SharedSyncfs {
    /// Returns after the end of a flush that began after this call. `flush` performs one, and fails the volume on an error.
    pub(crate) fn flush<E>(&self, flush: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut state = self.state.lock();
        let mine = state.begun + 1;
        while state.under_way && state.done < mine {
            self.ended.wait(&mut state);
        }
        if state.done >= mine {
            return Ok(());
        }
        state.under_way = true;
        state.begun += 1;
        let number = state.begun;
        drop(state);
        let ended = Ended(self, number);
        let done = flush();
        drop(ended);
        done
    }
}

/// Ends a flush even if it panics, so that nobody waits for ever.
struct Ended<'a>(&'a SharedSyncfs, u64);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.under_way = false;
        // After a panic the flush does not count as done; the next caller flushes itself.
        if !std::thread::panicking() {
            state.done = self.1;
        }
        drop(state);
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;

    #[test]
    fn who_comes_while_one_is_under_way_shares_the_next() {
        let (together, count) = (SharedSyncfs::default(), AtomicU64::new(0));
        let (begun, wait) = mpsc::channel();
        let (go_on, held) = mpsc::channel::<()>();
        std::thread::scope(|s| {
            let (together, count) = (&together, &count);
            s.spawn(move || {
                together.flush(|| {
                    count.fetch_add(1, Ordering::SeqCst);
                    begun.send(()).unwrap();
                    held.recv().map_err(|_| ())
                })
            });
            wait.recv().unwrap();
            let others: Vec<_> = (0..8)
                .map(|_| {
                    s.spawn(move || {
                        together.flush(|| {
                            count.fetch_add(1, Ordering::SeqCst);
                            Ok::<(), ()>(())
                        })
                    })
                })
                .collect();
            // All of them wait: the flush in progress began before they came.
            assert!(others.iter().all(|t| !t.is_finished()));
            go_on.send(()).unwrap();
            for other in others {
                other.join().unwrap().unwrap();
            }
        });
        // Whoever came after the second had begun needed another one.
        let count = count.into_inner();
        assert!((2..=9).contains(&count), "{count}");
    }

    #[test]
    fn one_after_the_other_each_does_its_own() {
        let (together, mut count) = (SharedSyncfs::default(), 0);
        for _ in 0..3 {
            together
                .flush(|| {
                    count += 1;
                    Ok::<(), ()>(())
                })
                .unwrap();
        }
        assert_eq!(together.flush(|| Err("disk")), Err("disk"));
        assert_eq!(count, 3);
    }
}
