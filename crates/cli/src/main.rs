//! The `landfast` command.

fn main() {}
