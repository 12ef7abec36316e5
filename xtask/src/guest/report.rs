//! What the checks found: a table for people, JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::mountstats::Counts;

/// The form of the objects that `landfast lab report` reads (`speed`, `verify`).
pub const FORM: u32 = 1;

#[derive(Serialize)]
pub struct Row {
    /// The NFS version it ran with.
    pub vers: String,
    /// Its name: the file under `xtask/guest/checks`.
    pub name: String,
    pub seconds: f64,
    pub passed: bool,
    /// Files that it handled, if it goes over the archive.
    pub files: Option<u64>,
    /// RPCs per file, if it goes over the archive.
    pub rpcs_per_file: Option<f64>,
    pub rpcs: BTreeMap<String, u64>,
    /// What its scripts have measured (`shown` in `xtask/guest/lib.sh`).
    pub shown: Vec<String>,
}

impl Row {
    pub fn new(vers: &str, name: &str, seconds: f64, passed: bool, files: Option<u64>, rpcs: Counts) -> Row {
        let per_file = files.filter(|files| *files > 0).map(|files| rpcs.total() as f64 / files as f64);
        let (vers, name) = (vers.to_owned(), name.to_owned());
        Row { vers, name, seconds, passed, files, rpcs_per_file: per_file, rpcs: rpcs.0, shown: Vec::new() }
    }

    /// The same with what the scripts have measured: each line of their output that begins with `shown: `.
    pub fn showing(mut self, output: &str) -> Row {
        self.shown =
            output.lines().filter_map(|line| line.strip_prefix("shown: ")).map(str::to_owned).collect();
        self
    }
}

#[derive(Serialize)]
pub struct Report {
    pub kernel: String,
    /// Who serves: `landfast` or `kernel`.
    pub server: String,
    pub archive: String,
    /// Regular files in the archive.
    pub files: u64,
    pub rows: Vec<Row>,
}

impl Report {
    /// Number of checks that did not pass.
    pub fn failed(&self) -> usize {
        self.rows.iter().filter(|row| !row.passed).count()
    }

    /// The table: a line for each check, with the operations of those that are counted per file.
    pub fn table(&self) -> String {
        let mut text = format!(
            "\nLinux {}, {} server, {} ({} files); seconds are under software emulation\n",
            self.kernel, self.server, self.archive, self.files
        );
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:5} {:15} {:7} {:>8} {:>8} {:>9}  operations per file",
            "vers", "check", "", "seconds", "RPCs", "RPCs/file"
        );
        for row in &self.rows {
            let verdict = if row.passed { "passed" } else { "FAILED" };
            let per_file = row.rpcs_per_file.map(|n| format!("{n:.2}")).unwrap_or_default();
            let total: u64 = row.rpcs.values().sum();
            let _ = writeln!(
                text,
                "{:5} {:15} {:7} {:8.1} {:8} {:>9}  {}",
                row.vers,
                row.name,
                verdict,
                row.seconds,
                total,
                per_file,
                operations(row)
            );
        }
        text
    }
}

/// The operations of a check that goes over the archive, most frequent first, as numbers per file; of others what they have measured.
fn operations(row: &Row) -> String {
    let Some(files) = row.files.filter(|files| *files > 0) else { return row.shown.join("; ") };
    let mut operations: Vec<(&String, &u64)> = row.rpcs.iter().collect();
    operations.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let words = operations.iter().map(|(name, count)| format!("{name} {:.2}", **count as f64 / files as f64));
    words.filter(|word| !word.ends_with(" 0.00")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, u64)]) -> Counts {
        Counts(pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect())
    }

    #[test]
    fn rpcs_are_given_per_file_where_there_are_files() {
        let untar =
            Row::new("4.2", "untar", 1.5, true, Some(200), counts(&[("OPEN", 200), ("SETATTR", 800)]));
        assert_eq!(untar.rpcs_per_file, Some(5.0));
        let lock =
            Row::new("4.2", "locks", 1.0, false, None, counts(&[("LOCK", 3)])).showing("on\nshown: 3 ms\n");
        assert_eq!(lock.rpcs_per_file, None);
        let report = Report {
            kernel: "6.1".into(),
            server: "landfast".into(),
            archive: "a.tar".into(),
            files: 200,
            rows: vec![untar, lock],
        };
        assert_eq!(report.failed(), 1);
        let table = report.table();
        assert!(table.contains("SETATTR 4.00, OPEN 1.00\n"), "{table}");
        assert!(table.contains("FAILED"), "{table}");
        assert!(table.ends_with("  3 ms\n"), "{table}");
    }
}
