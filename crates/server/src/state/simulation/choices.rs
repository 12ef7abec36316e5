//! Where all chance comes from: a seed, or the bytes of a fuzzer.

/// A source of choices.
#[derive(Debug, Clone)]
pub(super) enum Choices<'a> {
    Seed(u64),
    /// When they are used up each choice is the first.
    Bytes(&'a [u8]),
}

impl Choices<'_> {
    /// One of the numbers below `n`, which is at least 1.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        match self {
            Choices::Seed(state) => {
                // SplitMix64.
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = *state;
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                (z ^ (z >> 31)) % n
            }
            Choices::Bytes(left) => {
                let take = if n > 256 { 3 } else { 1 };
                let mut number = 0;
                for _ in 0..take {
                    let Some((first, rest)) = left.split_first() else { break };
                    (number, *left) = (number << 8 | u64::from(*first), rest);
                }
                number % n
            }
        }
    }

    /// Once in `n` times.
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == n - 1
    }

    /// In so many percent.
    pub(super) fn percent(&mut self, n: u64) -> bool {
        99 - self.below(100) < n
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() {
            return None;
        }
        from.get(self.below(from.len() as u64) as usize).cloned()
    }

    /// Whether there is nothing left to choose by.
    pub(super) fn are_over(&self) -> bool {
        matches!(self, Choices::Bytes(left) if left.is_empty())
    }
}
