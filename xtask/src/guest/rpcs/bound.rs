//! What tar's RPCs on Landfast may be at most, when it is asked.

use clap::Args;
use serde::Serialize;

use super::works::{TAR, TAR_STEP};
use super::{Case, Row, User, Who};

/// At most so many for each file, each directory, and once. Without a number for the files nothing is judged.
#[derive(Args)]
pub struct Bound {
    /// Fail if root's `tar xf` on Landfast takes more RPCs than this for each file and what is allowed beside them.
    #[arg(long)]
    most_per_file: Option<f64>,
    /// The same for the ordinary user's.
    #[arg(long)]
    most_per_file_as_user: Option<f64>,
    /// Allowed beside them for each directory.
    #[arg(long, default_value_t = 7.0)]
    most_per_directory: f64,
    /// Allowed beside them once.
    #[arg(long, default_value_t = 20.0)]
    most_more: f64,
}

/// Whether one extraction took no more than it may.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Which mount, and whose work on it.
    #[serde(flatten)]
    pub case: Case,
    /// What it took.
    pub rpcs: u64,
    /// What it may take.
    pub most: f64,
    /// Whether it did.
    pub kept: bool,
}

impl Bound {
    pub fn per_file(&self, user: User) -> Option<f64> {
        match user {
            User::Root => self.most_per_file,
            User::Ordinary => self.most_per_file_as_user,
        }
    }

    /// A verdict for each extraction on Landfast whose user has a bound. The end of the mount is left out.
    pub fn judge(&self, rows: &[Row]) -> Vec<Verdict> {
        let judged = rows.iter().filter(|row| (row.work, row.step) == (TAR, TAR_STEP));
        let verdict = |row: &Row| {
            let per_file = self.per_file(row.case.user)?;
            let (files, directories) = (row.files as f64, row.directories as f64);
            let most = per_file * files + self.most_per_directory * directories + self.most_more;
            Some(Verdict { case: row.case, rpcs: row.rpcs, most, kept: row.rpcs as f64 <= most })
        };
        judged.filter(|row| row.case.server == Who::Landfast).filter_map(verdict).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::recipe::Vers;

    fn row(server: Who, user: User, rpcs: u64) -> Row {
        Row {
            case: Case { vers: Vers::V4_2, server, user },
            work: TAR,
            step: TAR_STEP,
            files: 100,
            directories: 3,
            seconds: 1.0,
            rpcs,
            operations: Default::default(),
        }
    }

    #[test]
    fn landfast_is_held_to_its_bound_and_nobody_else() {
        let bound = Bound {
            most_per_file: Some(4.0),
            most_per_file_as_user: None,
            most_per_directory: 7.0,
            most_more: 20.0,
        };
        let kept = |rows: &[Row]| bound.judge(rows).iter().map(|verdict| verdict.kept).collect::<Vec<_>>();
        assert_eq!(kept(&[row(Who::Landfast, User::Root, 441)]), [true]);
        assert_eq!(kept(&[row(Who::Landfast, User::Root, 442)]), [false]);
        assert_eq!(kept(&[row(Who::Knfsd, User::Root, 442)]), [true; 0]);
        assert_eq!(kept(&[row(Who::Landfast, User::Ordinary, 442)]), [true; 0]);
        let mut other = row(Who::Landfast, User::Root, 442);
        other.step = "ls -lR, cold";
        assert_eq!(kept(&[other]), [true; 0]);
    }
}
