//! What can be typed behind `landfast probe`.

use clap::Args;
use landfast_probe::limits;

/// `landfast probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// Where to: nfs://HOST[:PORT]/PATH[?version=3|4.0|4.1|4.2]; the highest version that is offered when none is named
    pub url: String,
    /// Rounds of single calls at most
    #[arg(long, value_name = "N", default_value_t = limits::COUNT, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub count: u64,
    /// How long to measure; connecting and clearing up come on top
    #[arg(long, value_name = "SECONDS", default_value_t = limits::SECONDS, value_parser = seconds)]
    pub seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// How long it may measure, as typed.
pub fn seconds(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is not a number of seconds between 0.1 and {}", limits::SECONDS_MAX);
    let seconds = text.parse::<f64>().map_err(|_| wrong())?;
    if (0.1..=limits::SECONDS_MAX).contains(&seconds) { Ok(seconds) } else { Err(wrong()) }
}
