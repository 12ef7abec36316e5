//! Prints the tables.

use super::results::Results;
use crate::units::show_count;
use landfast_trace::skim::Program;
use landfast_trace::table::seconds;
use std::io::{self, BufWriter, Write};

const TITLES: &str =
    "Index  Procedure              Calls    Min SRT    Max SRT    Avg SRT    Sum SRT     Median   99th pct";

impl Results {
    pub(super) fn print(&self, as_json: bool) -> io::Result<()> {
        if as_json || self.listed {
            return Ok(());
        }
        let mut out = BufWriter::new(crate::say::stdout());
        self.print_answer(&mut out)?;
        let mut last = None;
        // Callbacks belong to version 4. Programs around NFS are printed if the filter names procedures.
        let shown = |program| self.named || matches!(program, Program::Nfs | Program::Callback);
        for (place, row) in self.table.rows().filter(|(place, _)| shown(place.program)) {
            let program = place.program;
            if last != Some((program, place.version)) {
                last = Some((program, place.version));
                let what = match (program, place.version) {
                    (Program::Nfs, 4) => ", COMPOUNDs by their main operation",
                    (Program::Callback, _) => ", what the server asked of its clients",
                    _ => "",
                };
                writeln!(
                    out,
                    "{} version {}: service response times in seconds{what}\n{TITLES}",
                    program.name(),
                    place.version
                )?;
            }
            writeln!(
                out,
                "{:5}  {:<22} {:6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
                place.index(),
                place.name(),
                row.calls,
                seconds(row.min_ns.into()),
                seconds(row.max_ns.into()),
                seconds(row.avg_ns().into()),
                seconds(row.sum_ns),
                seconds(row.percentile_ns(50.0).into()),
                seconds(row.percentile_ns(99.0).into()),
            )?;
        }
        let t = &self.totals;
        if let Some(all) = self.all_calls {
            let others = match t.other_calls {
                n @ 1.. if self.named => format!(", and {} to other programs", show_count(n)),
                _ => String::new(),
            };
            writeln!(
                out,
                "\n{} of its {} calls pass the filter{others}",
                show_count(t.calls_seen),
                show_count(all)
            )?;
        }
        writeln!(
            out,
            "\n{} of {} calls matched with their replies; {} sent again; {} TCP segments sent again",
            show_count(t.calls_matched),
            show_count(t.calls_seen),
            show_count(t.repeated_calls),
            show_count(t.tcp.retransmitted),
        )?;
        self.print_shapes(&mut out)?;
        out.flush()
    }
}
