//! Tables without lines.

use comfy_table::{CellAlignment, Table, presets};

/// A table with this header, whose columns from `right` on are aligned to the right.
pub fn table<const N: usize>(header: [&str; N], right: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut().skip(right) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
