//! The arguments of `landfast probe`.

use clap::Args;
use landfast_probe::limits;

#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// Directory on the server: nfs://HOST[:PORT]/PATH[?version=3|4.0|4.1|4.2]; without a version the highest one that
    /// the server offers is used
    pub url: String,
    /// Largest number of rounds of single calls
    #[arg(long, value_name = "N", default_value_t = limits::COUNT, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub count: u64,
    /// How long to measure; connecting and cleaning up take additional time
    #[arg(long, value_name = "SECONDS", default_value_t = limits::SECONDS, value_parser = seconds)]
    pub seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

pub fn seconds(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is not a number of seconds between 0.1 and {}", limits::SECONDS_MAX);
    let seconds = text.parse::<f64>().map_err(|_| wrong())?;
    if (0.1..=limits::SECONDS_MAX).contains(&seconds) { Ok(seconds) } else { Err(wrong()) }
}
