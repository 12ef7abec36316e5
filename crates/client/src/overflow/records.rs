//! Records in a temporary file: read by their places, or all of them in the order in which they were written, or backwards.
//!
//! A record is the number of its bytes (4, little-endian), one byte that says whether it still counts, the bytes, and their
//! number again, for those who read backwards.

use super::file::{OverflowError, TempFile};

const HEAD: usize = 5;
const TAIL: usize = 4;
const COUNTS: u8 = 1;
const TAKEN: u8 = 0;

#[derive(Debug)]
pub(crate) struct Records {
    file: TempFile,
}

impl Default for Records {
    fn default() -> Records {
        Records::new(TempFile::new())
    }
}

impl Records {
    pub(crate) fn new(file: TempFile) -> Records {
        Records { file }
    }

    /// Adds a record and returns its place.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> u64 {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let record = [&len.to_le_bytes(), &[COUNTS][..], bytes, &len.to_le_bytes()].concat();
        self.file.append(&record)
    }

    /// Puts a record that was dropped back in its place, with as many other bytes. `false`: they are not as
    /// many.
    pub(crate) fn again(&mut self, at: u64, bytes: &[u8]) -> Result<bool, OverflowError> {
        if self.read(at)?.1.len() != bytes.len() {
            return Ok(false);
        }
        self.file.change(at + HEAD as u64 - 1, &[&[COUNTS], bytes].concat())?;
        Ok(true)
    }

    /// The record at this place.
    pub(crate) fn get(&self, at: u64) -> Result<Vec<u8>, OverflowError> {
        Ok(self.read(at)?.1)
    }

    fn read(&self, at: u64) -> Result<(u8, Vec<u8>), OverflowError> {
        let mut head = [0; HEAD];
        self.file.read(at, &mut head)?;
        let [a, b, c, d, counts] = head;
        let mut bytes = vec![0; u32::from_le_bytes([a, b, c, d]) as usize];
        self.file.read(at + HEAD as u64, &mut bytes)?;
        Ok((counts, bytes))
    }

    /// The record at this place no longer counts.
    pub(crate) fn drop(&mut self, at: u64) -> Result<(), OverflowError> {
        self.file.change(at + HEAD as u64 - 1, &[TAKEN])
    }

    /// The next record that counts, from this place on, and the place behind it.
    pub(crate) fn next(&self, mut at: u64) -> Result<Option<(Vec<u8>, u64)>, OverflowError> {
        while at < self.file.end() {
            let (counts, bytes) = self.read(at)?;
            at += (HEAD + bytes.len() + TAIL) as u64;
            if counts == COUNTS {
                return Ok(Some((bytes, at)));
            }
        }
        Ok(None)
    }

    /// The place behind the last record.
    pub(crate) fn end(&self) -> u64 {
        self.file.end()
    }

    /// The last record that counts before this place, and its own place.
    pub(crate) fn before(&self, mut at: u64) -> Result<Option<(Vec<u8>, u64)>, OverflowError> {
        while at > 0 {
            let mut len = [0; TAIL];
            self.file.read(at - TAIL as u64, &mut len)?;
            at -= HEAD as u64 + u64::from(u32::from_le_bytes(len)) + TAIL as u64;
            let (counts, bytes) = self.read(at)?;
            if counts == COUNTS {
                return Ok(Some((bytes, at)));
            }
        }
        Ok(None)
    }

    /// Why records are in memory that should be in the file; once.
    pub(crate) fn trouble(&mut self) -> Option<OverflowError> {
        self.file.trouble()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_in_their_order_without_those_that_were_dropped() {
        let mut records = Records::default();
        let at: Vec<u64> = (0..100u8).map(|n| records.add(&vec![n; 10_000])).collect();
        assert_eq!(records.get(at[7]).unwrap(), vec![7; 10_000]);
        for n in [0, 40, 99] {
            records.drop(at[n]).unwrap();
        }
        assert!(records.again(at[40], &[200; 10_000]).unwrap());
        assert!(!records.again(at[99], &[200; 9_999]).unwrap());
        let (mut next, mut seen) = (0, Vec::new());
        while let Some((bytes, after)) = records.next(next).unwrap() {
            seen.push(bytes[0]);
            next = after;
        }
        let mut want: Vec<u8> = (1..99).map(|n| if n == 40 { 200 } else { n }).collect();
        assert_eq!(seen, want);
        let (mut last, mut seen) = (records.end(), Vec::new());
        while let Some((bytes, before)) = records.before(last).unwrap() {
            seen.push(bytes[0]);
            last = before;
        }
        want.reverse();
        assert_eq!(seen, want);
    }
}
