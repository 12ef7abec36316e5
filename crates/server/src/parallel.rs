//! Work on several things at a time, where each mostly waits for a disk: exports that are opened, started or stopped.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Does `work` on each item, on up to so many threads; the results in the order of the items. Where the system gives no further thread,
/// those that it gave do all of it.
///
/// # Panics
/// When `work` panics, with its panic.
pub fn each<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let run = || {
        while let Some((n, item)) = {
            let n = next.fetch_add(1, Ordering::Relaxed);
            items.get(n).map(|item| (n, item))
        } {
            let result = work(item);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((n, result));
        }
    };
    std::thread::scope(|scope| {
        let more = threads.min(items.len()).saturating_sub(1);
        let named = |n: usize| std::thread::Builder::new().name(format!("export-{n}"));
        let spawned: Vec<_> = (0..more).map_while(|n| named(n).spawn_scoped(scope, run).ok()).collect();
        run();
        for thread in spawned {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn results_come_in_the_order_of_the_items_and_the_work_overlaps() {
        let items: Vec<usize> = (0..40).collect();
        // Nobody passes before four are there.
        let four = Barrier::new(4);
        let doubled = each(&items, 4, |n| {
            four.wait();
            n * 2
        });
        assert_eq!(doubled, (0..40).map(|n| n * 2).collect::<Vec<_>>());
        assert!(each(&[0; 0], 1, |n| *n).is_empty());
    }
}
