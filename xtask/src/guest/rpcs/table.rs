//! What was found as text: tables in the form of the documents.

use std::fmt::Write;

use super::works::END;
use super::{Case, Report, Row};
use crate::guest::markdown::{self, in_order};

pub fn text(report: &Report) -> String {
    let mut text = format!("Linux {}, Landfast with durability {}\n", report.kernel, report.durability);
    // Writing to a string cannot fail.
    for vers in in_order(report.rows.iter().map(|row| row.case.vers)) {
        for work in in_order(report.rows.iter().map(|row| row.work)) {
            let rows: Vec<&Row> =
                report.rows.iter().filter(|row| (row.work, row.case.vers) == (work, vers)).collect();
            let _ = write!(text, "\n{}", counts(&format!("{work}, v{vers}"), &rows));
        }
    }
    if !report.parts.is_empty() {
        let mut lines = vec![["tar xf", "RPCs a file", "RPCs a directory"].map(str::to_owned).to_vec()];
        lines.extend(report.parts.iter().map(|parts| {
            vec![
                parts.case.to_string(),
                format!("{:.2}", parts.per_file),
                format!("{:.2}", parts.per_directory),
            ]
        }));
        let _ = write!(text, "\n{}", markdown::table(&lines));
    }
    if !report.looks.is_empty() {
        let _ = writeln!(text, "\n{}", looks(report));
    }
    for verdict in &report.verdicts {
        let word = if verdict.kept { "kept:  " } else { "BROKEN:" };
        let _ = writeln!(
            text,
            "{word} tar xf, {}: {} RPCs, at most {:.0}",
            verdict.case, verdict.rpcs, verdict.most
        );
    }
    text
}

/// A line for each operation of each step, and one for all of the step; a column for each mount and user. In brackets: a file.
fn counts(title: &str, rows: &[&Row]) -> String {
    let cases: Vec<Case> = in_order(rows.iter().map(|row| row.case));
    let mut head = vec![title.to_owned()];
    head.extend(cases.iter().map(|case| format!("{}, {}", case.server, case.user)));
    let mut lines = vec![head];
    for step in in_order(rows.iter().map(|row| row.step)) {
        let of_step: Vec<&Row> = rows.iter().copied().filter(|row| row.step == step).collect();
        let files = of_step.first().map_or(0, |row| row.files);
        let mut line = |what: &str, count: &dyn Fn(&Row) -> u64| {
            let mut line = vec![what.to_owned()];
            line.extend(cases.iter().map(|case| {
                of_step
                    .iter()
                    .find(|row| row.case == *case)
                    .map_or(String::new(), |row| cell(count(row), files))
            }));
            lines.push(line);
        };
        let counted = if files > 0 { format!("**{step}**, {files} files") } else { format!("**{step}**") };
        line(&counted, &|row| row.rpcs);
        let mut operations: Vec<&String> = of_step.iter().flat_map(|row| row.operations.keys()).collect();
        operations.sort();
        operations.dedup();
        // The frequent ones first; by name among equals, as the sort keeps their order.
        let most = |name: &String| of_step.iter().filter_map(|row| row.operations.get(name)).max().copied();
        operations.sort_by_key(|name| std::cmp::Reverse(most(name)));
        for name in operations {
            line(name, &|row| row.operations.get(name).copied().unwrap_or(0));
        }
    }
    let mut all = vec!["**all with the umount**".to_owned()];
    let files = rows.iter().find(|row| row.step != END).map_or(0, |row| row.files);
    all.extend(cases.iter().map(|case| {
        let total = rows.iter().filter(|row| row.case == *case).map(|row| row.rpcs).sum();
        cell(total, files)
    }));
    lines.push(all);
    markdown::table(&lines)
}

fn cell(count: u64, files: u64) -> String {
    if files == 0 || count == 0 {
        count.to_string()
    } else {
        format!("{count} ({:.2})", count as f64 / files as f64)
    }
}

fn looks(report: &Report) -> String {
    let head = [
        "archive, seen by",
        "server, user",
        "objects",
        "absent",
        "times",
        "modes",
        "owners",
        "contents",
        "such as",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for look in &report.looks {
        let found = &look.found;
        let mut line = vec![look.place.to_owned(), look.case.to_string()];
        let counts = [found.objects, found.absent, found.times, found.modes, found.owners, found.contents];
        line.extend(counts.map(|count| count.to_string()));
        line.push(found.examples.first().cloned().unwrap_or_default());
        lines.push(line);
    }
    markdown::table(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::recipe::Vers;
    use crate::guest::rpcs::{User, Who};

    #[test]
    fn a_work_has_a_line_for_each_operation_and_a_column_for_each_case() {
        let row = |server, step, files, operations: &[(&str, u64)]| Row {
            case: Case { vers: Vers::V4_2, server, user: User::Root },
            work: "tar",
            step,
            files,
            directories: 1,
            seconds: 1.0,
            rpcs: operations.iter().map(|(_, count)| count).sum(),
            operations: operations.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        };
        let rows = [
            row(Who::Landfast, "tar xf", 100, &[("OPEN", 100), ("SETATTR", 300)]),
            row(Who::Landfast, END, 0, &[("DESTROY_SESSION", 1)]),
            row(Who::Knfsd, "tar xf", 100, &[("CLOSE", 100), ("OPEN", 100)]),
            row(Who::Knfsd, END, 0, &[("DELEGRETURN", 99)]),
        ];
        let text = counts("tar, v4.2", &rows.iter().collect::<Vec<_>>());
        assert_eq!(
            text,
            "| tar, v4.2 | Landfast, root | knfsd, root |\n\
             |---|---|---|\n\
             | **tar xf**, 100 files | 400 (4.00) | 200 (2.00) |\n\
             | SETATTR | 300 (3.00) | 0 |\n\
             | CLOSE | 0 | 100 (1.00) |\n\
             | OPEN | 100 (1.00) | 100 (1.00) |\n\
             | **umount** | 1 | 99 |\n\
             | DELEGRETURN | 0 | 99 |\n\
             | DESTROY_SESSION | 1 | 0 |\n\
             | **all with the umount** | 401 (4.01) | 299 (2.99) |\n"
        );
    }
}
