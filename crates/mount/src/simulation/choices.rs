//! Where all chance comes from: a seed.

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Choices(u64);

impl Choices {
    pub(crate) fn new(seed: u64) -> Choices {
        Choices(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    /// One of the numbers below `n`, which is at least 1.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    /// In so many percent.
    pub(crate) fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() {
            return None;
        }
        from.get(self.below(from.len() as u64) as usize).cloned()
    }
}
