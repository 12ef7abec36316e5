//! `landfast predict`: how long `tar -x` takes onto a server, now and after changes.

pub mod args;
mod input;
mod print;

use crate::exit::{Exit, failed, print_json};
use args::{PredictArgs, WayArgs};
use input::Measured;
use landfast_model::predict::{Change, Earned, Job, Kind, Looks, Manner, Prediction, Tree, Version};
use landfast_model::{Terms, predict};
use serde_json::json;
use std::io::IsTerminal;

pub fn run(args: &PredictArgs) -> Exit {
    match forecast(args) {
        Ok(found) => found.report(args),
        Err(e) => failed(e),
    }
}

struct Forecast {
    terms: Terms,
    job: Job,
    /// The files that are extracted; `None`: the trace's work is repeated.
    tree: Option<Tree>,
    manner: Manner,
    prediction: Prediction,
    /// Something could not be read, and is not counted.
    partly: bool,
}

fn forecast(args: &PredictArgs) -> Result<Forecast, String> {
    let measured = measured(&args.way)?;
    let what = &args.what;
    if args.manner.write_size == 0 {
        return Err("--write-size: WRITEs of nothing".into());
    }
    let vers = args.manner.vers.map(Version::from).or_else(|| measured.version());
    let mut manner = Manner {
        owners: !args.manner.no_same_owner,
        modes: !args.manner.no_same_permissions,
        times: !args.manner.touch,
        exclusive: !args.manner.guarded,
        write_bytes: args.manner.write_size,
        ..Manner::new(vers.unwrap_or(Version::V4))
    };
    manner.looks = if args.manner.lookups { Looks::Each } else { lookups_of(&measured, &manner) };
    let mut partly = false;
    let tree = if let Some(path) = &what.archive {
        Some(input::archive(path, manner.write_bytes)?)
    } else if let Some(path) = &what.dir {
        Some(input::directory(path, manner.write_bytes, |path, e| {
            eprintln!("landfast: {}: {e}; it is not counted", path.display());
            partly = true;
        })?)
    } else {
        what.files.map(|files| {
            let mut tree = Tree { dirs: what.dirs, ..Tree::default() };
            tree.add_files(files, what.size, manner.write_bytes);
            tree
        })
    };
    let job = match (&tree, &measured.work) {
        (Some(tree), _) => Job::extract(tree, &manner),
        (None, Some(work)) if args.way.trace.is_some() => {
            Job::repeat(work, measured.terms.in_flight, vers).map_err(|e| e.to_string())?
        }
        _ => return Err("missing work: give --archive FILE, --dir DIR, or --files N".into()),
    };
    let mut changes = args.changes.chosen();
    if changes.is_empty() {
        changes = Change::usual(&measured.terms);
    }
    let prediction = predict(&measured.terms, &job, &changes).map_err(|e| e.to_string())?;
    Ok(Forecast { terms: measured.terms, job, tree, manner, prediction, partly })
}

fn measured(way: &WayArgs) -> Result<Measured, String> {
    if let Some(path) = &way.trace {
        return input::report(path, "trace");
    }
    let seconds = |t: Option<std::time::Duration>| t.unwrap_or_default().as_secs_f64();
    if let Some(path) = &way.probe {
        let mut measured = input::report(path, "probe")?;
        measured.terms.think_s = way.think.map_or(measured.terms.think_s, |t| t.as_secs_f64());
        measured.terms.file_think_s = way.file_think.map_or(measured.terms.file_think_s, |t| t.as_secs_f64());
        return Ok(measured);
    }
    Ok(Measured::typed(Terms {
        round_trip_s: seconds(way.rtt),
        server_s: seconds(way.server),
        persistence_s: seconds(way.persistence),
        think_s: seconds(way.think),
        file_think_s: seconds(way.file_think),
        upload_bytes_per_s: way.bandwidth.map(|b| b as f64),
        download_bytes_per_s: None,
        in_flight: 1.0,
    }))
}

/// Whether the client of a trace looks names up once or each time, judging by its calls for each file.
fn lookups_of(measured: &Measured, manner: &Manner) -> Looks {
    let Some(work) = measured.work.filter(|work| work.files > 0) else { return Looks::Once };
    let per_file = work.calls as f64 / work.files as f64;
    let off = |looks| {
        let tree = Tree { files: 1, ..Tree::default() };
        (tree.calls(&Manner { looks, ..*manner }).all as f64 - per_file).abs()
    };
    if off(Looks::Each) < off(Looks::Once) { Looks::Each } else { Looks::Once }
}

impl Forecast {
    fn report(&self, args: &PredictArgs) -> Exit {
        if args.json {
            if print_json(&self.json()) != Exit::Done {
                return Exit::Failed;
            }
        } else {
            let chart = args.chart || std::io::stdout().is_terminal();
            // A failure to write shows in the exit status.
            let _ = self.print(chart);
        }
        if self.partly { Exit::Partly } else { Exit::Done }
    }

    fn json(&self) -> serde_json::Value {
        let earned = Earned::stored();
        let bars: serde_json::Map<_, _> = Kind::ALL
            .into_iter()
            .map(|kind| {
                let cases = earned.cases().iter().filter(|c| c.kind == kind).count();
                (kind.name().to_owned(), json!({ "cases": cases, "within": earned.within(kind) }))
            })
            .collect();
        let mut all = json!(self.prediction);
        if let Some(all) = all.as_object_mut() {
            all.insert("terms".into(), json!(self.terms));
            all.insert("job".into(), json!(self.job));
            all.insert("tree".into(), json!(self.tree));
            all.insert("earned".into(), bars.into());
        }
        all
    }
}
