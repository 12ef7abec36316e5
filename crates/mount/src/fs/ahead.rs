//! The first data of a file, which came with the request that opened it. Pure.

use bytes::Bytes;

/// Data that was read before it was asked for.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The beginning of the file, and whether it is all of it.
    pub(super) first: Option<(Bytes, bool)>,
    /// The file's generation then: it is of no use after a write.
    pub(super) generation: u64,
    /// Bytes that count in the mount's total.
    pub(super) charged: usize,
}

impl Ahead {
    /// The bytes from `offset`, at most `count`, if they were read already.
    pub(super) fn part(&self, offset: u64, count: usize) -> Option<Bytes> {
        let (data, whole) = self.first.as_ref()?;
        let from = usize::try_from(offset).ok().filter(|from| *from <= data.len())?;
        let part = data.slice(from..data.len().min(from + count));
        (part.len() == count || *whole).then_some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_is_answered() {
        let ahead = |whole| Ahead { first: Some((Bytes::from_static(b"abcdef"), whole)), ..Ahead::default() };
        assert_eq!(ahead(false).part(1, 3), Some(Bytes::from_static(b"bcd")));
        assert_eq!(ahead(false).part(4, 3), None);
        assert_eq!(ahead(true).part(4, 3), Some(Bytes::from_static(b"ef")));
        assert_eq!(ahead(true).part(6, 3), Some(Bytes::new()));
        assert_eq!(ahead(true).part(7, 3), None);
        assert_eq!(Ahead::default().part(0, 1), None);
    }
}
