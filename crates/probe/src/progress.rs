//! Whom a run tells what it is doing.

pub trait Progress {
    fn doing(&self, what: &str);
    /// Something that a user must know, whatever the result of the run.
    fn notice(&self, what: &str);
}
