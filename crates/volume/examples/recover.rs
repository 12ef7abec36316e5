//! Opens a volume that was not stopped cleanly and prints what its recovery took: `cargo run --release -p landfast-volume
//! --example recover -- DIR LOG`.

use landfast_volume::{OpenOptions, Volume};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(dir), Some(log)) = (args.next(), args.next()) else {
        return Err("usage: recover DIR LOG".into());
    };
    let (_, report) = Volume::open(OpenOptions::with_log(dir, &log))?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!(
        "{} records, {} bytes, {} objects made again, {:.3} s; {peak}",
        report.records, report.bytes, report.remade, report.seconds
    );
    Ok(())
}
