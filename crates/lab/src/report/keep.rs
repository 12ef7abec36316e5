//! The files of kept rows: `rows/NN.json` in the report's directory.

use super::content::{FORM, Kept, Machine};
use crate::error::{Context, Error, Result};
use std::io::Write;
use std::path::{Path, PathBuf};

pub struct Keep {
    dir: PathBuf,
    program: String,
}

/// What is there of a row.
#[derive(Debug, PartialEq)]
pub enum Read {
    Kept(Box<Kept>),
    /// It was measured by another program.
    OtherProgram,
    None,
}

impl Keep {
    /// Makes the directory if it is missing. `program`: a hash of the program that measures.
    pub fn open(out: &Path, program: &str) -> Result<Keep> {
        let dir = out.join("rows");
        std::fs::create_dir_all(&dir).context(|| format!("create {}", dir.display()))?;
        Ok(Keep { dir, program: program.to_owned() })
    }

    fn path(&self, row: u8) -> PathBuf {
        self.dir.join(format!("{row:02}.json"))
    }

    /// A kept row; none if it was never measured, or by another command (another size or archive), on another machine, or is kept in another
    /// form.
    pub fn read(&self, row: u8, command: &str) -> Result<Read> {
        let path = self.path(row);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Read::None),
            Err(source) => return Err(Error::Io { what: format!("read {}", path.display()), source }),
        };
        let kept: Option<Kept> = serde_json::from_slice(&text).ok();
        let same = |kept: &Kept| {
            (kept.form, kept.row, kept.command.as_str()) == (FORM, row, command) && kept.machine == machine()
        };
        Ok(match kept.filter(same) {
            Some(kept) if kept.program == self.program => Read::Kept(Box::new(kept)),
            Some(_) => Read::OtherProgram,
            None => Read::None,
        })
    }

    /// Replaces the row's file as a whole.
    pub fn write(&self, kept: &Kept) -> Result<()> {
        let path = self.path(kept.row);
        let what = || format!("write {}", path.display());
        let text = serde_json::to_vec_pretty(kept)
            .map_err(|e| Error::Unable(format!("row {} is no JSON: {e}", kept.row)))?;
        let mut file = tempfile::NamedTempFile::new_in(&self.dir).context(what)?;
        file.write_all(&text).context(what)?;
        file.persist(&path).map(drop).map_err(|e| e.error).context(what)
    }
}

/// This machine, as the kernel describes it.
pub fn machine() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let memory = value(&read("/proc/meminfo"), "MemTotal");
    let kib: Option<u64> = memory.and_then(|text| text.split_whitespace().next()?.parse().ok());
    Machine {
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        processor: value(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
        processors: crate::busy::processors(),
        memory_bytes: kib.unwrap_or(0) << 10,
    }
}

#[cfg(test)]
mod tests {
    use super::super::content::{Axis, Found, Picture, Table};
    use super::*;

    fn row(command: &str) -> Kept {
        let picture = Picture::Bars { axis: Axis::log("x"), bars: Vec::new() };
        Kept {
            form: FORM,
            row: 4,
            title: "t".into(),
            question: "q".into(),
            source: "s".into(),
            command: command.into(),
            quick: true,
            version: "0".into(),
            program: "one".into(),
            machine: machine(),
            ended_s: 1,
            took_s: 0.5,
            others: Some(0.25),
            found: Found::new(picture, Table::default()),
        }
    }

    #[test]
    fn a_row_is_kept_for_its_own_command_and_machine_only() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::open(dir.path(), "one").unwrap();
        assert_eq!(keep.read(4, "quick").unwrap(), Read::None);
        keep.write(&row("quick")).unwrap();
        assert_eq!(keep.read(4, "quick").unwrap(), Read::Kept(Box::new(row("quick"))));
        assert_eq!(keep.read(4, "whole").unwrap(), Read::None, "a quick row is no whole one");
        assert_eq!(keep.read(5, "quick").unwrap(), Read::None);
        let other = Machine { kernel: "another".into(), ..machine() };
        keep.write(&Kept { machine: other, ..row("quick") }).unwrap();
        assert_eq!(
            keep.read(4, "quick").unwrap(),
            Read::None,
            "times of one machine beside those of another"
        );
    }

    #[test]
    fn what_another_program_has_measured_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        Keep::open(dir.path(), "one").unwrap().write(&row("quick")).unwrap();
        let other = Keep::open(dir.path(), "another").unwrap();
        assert_eq!(other.read(4, "quick").unwrap(), Read::OtherProgram);
        assert_eq!(other.read(4, "whole").unwrap(), Read::None);
    }

    #[test]
    fn what_cannot_be_read_is_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::open(dir.path(), "one").unwrap();
        for text in ["", "{", r#"{"form":0}"#] {
            std::fs::write(dir.path().join("rows/04.json"), text).unwrap();
            assert_eq!(keep.read(4, "quick").unwrap(), Read::None);
        }
    }
}
