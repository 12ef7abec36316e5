//! `landfast lab report`: the field's experiments beside real peers, row by row, with what was asked, a picture, a table, claims and
//! the command that repeats it.
//!
//! A row that is measured is kept as a file, and not measured again until somebody asks for it. So a run that was interrupted, or
//! whose time limit has come, goes on where it was.
//!
//! | file | subject |
//! |---|---|
//! | `content` | what a row has found, as it is kept |
//! | `plan` | what a row is given |
//! | `keep` | the files of kept rows |
//! | `guests` | results that come from guests |
//! | `stand` | a server on emulated disks, and the work that is put on it |
//! | `claims` | the claims that many rows have |
//! | `rows` | the rows |

mod claims;
pub mod content;
mod guests;
mod keep;
mod plan;
mod rows;
mod stand;

use crate::error::{Error, Result};
use crate::experiments::Progress;
use content::{FORM, Kept, Left, Report};
use guests::Guests;
use keep::{Keep, Read};
use plan::Plan;
use rows::{ALL, Row};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

#[derive(Debug, Clone)]
pub struct Options {
    /// Where rows are kept.
    pub out: PathBuf,
    /// Only these rows; empty is all.
    pub only: Vec<u8>,
    /// Rows that are measured although they are kept.
    pub again: Vec<u8>,
    /// No row begins, and none goes on, after this time.
    pub limit: Option<Duration>,
    /// Small sizes.
    pub quick: bool,
    /// The archive of a real source tree.
    pub archive: Option<PathBuf>,
}

/// The numbers and titles of all rows.
pub fn rows() -> impl Iterator<Item = (u8, &'static str)> {
    ALL.iter().map(|row| (row.number, row.title))
}

/// Measures what is not kept yet and returns all of it. `progress` hears what is being done.
///
/// # Errors
/// The directory cannot be used, or there is no such row. What goes wrong within a row is in the report.
pub fn run(options: &Options, progress: Progress<'_>) -> Result<Report> {
    if let Some(number) =
        options.only.iter().chain(&options.again).find(|n| !ALL.iter().any(|row| row.number == **n))
    {
        return Err(Error::Unable(format!("no row {number}: there are 1 to {}", ALL.len())));
    }
    let program = crate::machine::program()?;
    let keep = Keep::open(&options.out, &program)?;
    let guests = Guests::read(&options.out)?;
    let deadline = options.limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut report = Report { rows: Vec::new(), left: Vec::new() };
    for row in &ALL {
        let kept = keep.read(row.number, &command(row, options))?;
        let wanted = options.only.is_empty() || options.only.contains(&row.number);
        let again = match kept {
            Read::Kept(kept) if !(wanted && options.again.contains(&row.number)) => {
                report.rows.push(*kept);
                continue;
            }
            Read::OtherProgram if !wanted => {
                report.left.push(other_program(row, options));
                continue;
            }
            _ if !wanted => continue,
            Read::OtherProgram => ", which another build of Landfast has measured",
            Read::Kept(_) | Read::None => "",
        };
        let mut plan = Plan {
            quick: options.quick,
            archive: options.archive.as_deref(),
            guests: &guests,
            deadline,
            out_of_time: false,
            progress: &mut |what: &str| progress(&format!("row {}{again}: {what}", row.number)),
        };
        match measure(row, options, &program, &mut plan) {
            Ok(kept) => {
                keep.write(&kept)?;
                report.rows.push(kept);
            }
            Err(why) => report.left.push(left(row, &why, plan.out_of_time)),
        }
    }
    Ok(report)
}

fn left(row: &Row, why: &Error, out_of_time: bool) -> Left {
    Left {
        row: row.number,
        title: row.title.to_owned(),
        question: row.question.to_owned(),
        why: why.to_string(),
        failed: !out_of_time && !matches!(why, Error::Unable(_) | Error::NoTool { .. }),
    }
}

/// A row that is kept, but not as this program measures it, and that is not to be measured now.
fn other_program(row: &Row, options: &Options) -> Left {
    let why = format!(
        "what is kept was measured by another build of Landfast; `{}` measures it again",
        command(row, options)
    );
    left(row, &Error::Unable(why), false)
}

/// What measures a row once more.
fn command(row: &Row, options: &Options) -> String {
    let archive = options.archive.as_ref().filter(|_| row.takes_archive);
    format!(
        "landfast lab report --out DIR --only {n} --again {n}{}{}",
        if options.quick { " --quick" } else { "" },
        archive.map(|a| format!(" --archive {}", a.display())).unwrap_or_default(),
        n = row.number
    )
}

fn measure(row: &Row, options: &Options, program: &str, plan: &mut Plan<'_>) -> Result<Kept> {
    plan.step("waiting until the machine's own disks have what was written before")?;
    crate::sys::settle();
    let start = Instant::now();
    let watch = crate::busy::Watch::begin();
    let found = crate::namespace::run_private(|| (row.run)(plan))??;
    let ended = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(Kept {
        form: FORM,
        row: row.number,
        title: row.title.to_owned(),
        question: row.question.to_owned(),
        source: row.source.to_owned(),
        command: command(row, options),
        quick: options.quick,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        program: program.to_owned(),
        machine: keep::machine(),
        ended_s: ended.as_secs(),
        took_s: start.elapsed().as_secs_f64(),
        others: watch.others(),
        found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_numbers_of_their_own_and_an_unknown_one_is_named() {
        let numbers: Vec<u8> = rows().map(|(number, _)| number).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        let out = tempfile::tempdir().unwrap();
        let options = Options {
            out: out.path().to_owned(),
            only: vec![99],
            again: Vec::new(),
            limit: None,
            quick: true,
            archive: None,
        };
        assert!(run(&options, &mut |_| {}).unwrap_err().to_string().contains("99"));
    }

    #[test]
    fn wrong_data_and_a_client_that_fails_are_failures_and_a_missing_tool_is_none() {
        let failed = |why: Error| left(&ALL[0], &why, false).failed;
        let differs = crate::verify::Comparison { differences: 1, ..Default::default() };
        assert!(failed(differs.into_result().unwrap_err()), "a tree that is not its archive's");
        assert!(failed(crate::experiments::client_failed(&"no reply")), "a client that fails");
        assert!(!failed(Error::Unable("needs /dev/fuse".into())));
        assert!(!failed(Error::NoTool { tool: "mkfs.xfs".into(), package: "xfsprogs" }));
    }

    #[test]
    fn no_row_begins_when_its_time_is_over() {
        let out = tempfile::tempdir().unwrap();
        let options = Options {
            out: out.path().to_owned(),
            only: Vec::new(),
            again: Vec::new(),
            limit: Some(Duration::ZERO),
            quick: true,
            archive: None,
        };
        let report = run(&options, &mut |_| {}).unwrap();
        assert_eq!((report.rows.len(), report.left.len()), (0, ALL.len()));
        assert!(report.holds() && report.left.iter().all(|left| !left.failed));
    }
}
