//! Prints the results as the table in `docs/limits.md`.

use super::target::Usage;
use super::{Report, shown};

/// The head of the table.
pub const HEAD: &str = "| case | what was done | worst for | 99th percentile before, elsewhere, during; longest | at most held: memory, descriptors, threads | afterwards |
|---|---|---|---|---|---|";

/// A case that the server withstood.
pub fn row(name: &str, report: &Report) -> String {
    let (worst, times) = match report.worst() {
        Some(worst) => (
            worst.kind.name(),
            format!(
                "{}, {}, {}; {}",
                shown(worst.quiet_p99()),
                shown(worst.elsewhere_p99()),
                shown(worst.p99()),
                shown(worst.longest())
            ),
        ),
        None => ("nobody", String::new()),
    };
    let cells = [cell(&report.did), worst.to_owned(), times, held(report.most), held(report.after)];
    format!("| `{name}` | {} |", cells.join(" | "))
}

/// A case that it did not withstand.
pub fn failed(name: &str, why: &str) -> String {
    format!("| `{name}` | **not withstood:** {} | | | | |", cell(why))
}

fn held(held: Usage) -> String {
    format!("{} MiB, {}, {}", held.memory >> 20, held.descriptors, held.threads)
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::super::honest::{Felt, Kind};
    use super::super::{Beside, Report};
    use super::*;
    use std::time::Duration;

    #[test]
    fn rows_have_the_columns_of_the_head() {
        let felt = |ms| Felt { times: vec![Duration::from_millis(ms); 200], failures: Vec::new() };
        let beside = Beside { kind: Kind::Write, quiet: felt(1), attacked: felt(3), elsewhere: felt(2) };
        let held = Usage { memory: 50 << 20, descriptors: 40, threads: 60 };
        let report = |beside| Report { did: "a|b".to_owned(), beside, before: held, most: held, after: held };
        let flood = row("copies", &report(vec![beside]));
        assert_eq!(
            flood,
            "| `copies` | a\\|b | WRITE | 1.0 ms, 2.0 ms, 3.0 ms; 3.0 ms | 50 MiB, 40, 60 | 50 MiB, 40, 60 |"
        );
        let columns = |line: &str| line.replace("\\|", "").matches('|').count();
        for line in HEAD.lines().chain([&flood[..], &row("x", &report(Vec::new())), &failed("x", "a\nb|c")]) {
            assert_eq!(columns(line), 7, "{line}");
        }
    }
}
