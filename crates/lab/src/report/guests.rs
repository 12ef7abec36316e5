//! Results of guests: what `cargo xtask guest speed --json` and `guest verify --json` printed, in files `*.json` of the report's
//! directory. Each is an object with `form` (1), `guest` (`speed` or `verify`) and the report's own fields.

use crate::error::{Context, Error, Result};
use serde::Deserialize;
use std::path::Path;

/// The form of guests' files that is understood.
const FORM: u32 = 1;

/// Linux's client and Landfast's in a guest.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Speed {
    pub kernel: String,
    /// `landfast`, or `kernel`: Linux's own server.
    pub server: String,
    pub rows: Vec<SpeedRow>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SpeedRow {
    /// `files`, `nested-open`, `web-page`.
    pub subject: String,
    pub work: String,
    pub round_trip_ms: f64,
    pub client: String,
    pub objects: u64,
    pub seconds: f64,
    pub rpcs: f64,
}

/// Power cuts under Linux's own server.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Verify {
    pub kernel: String,
    pub servers: Vec<Losses>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Losses {
    pub title: String,
    pub cuts: u32,
    pub cuts_with_losses: u32,
    pub all: Count,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Count {
    pub acknowledged: u64,
    pub checked: u64,
    pub lost: u64,
}

#[derive(Deserialize)]
struct Head {
    form: u32,
    guest: String,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Guests {
    pub speed: Vec<Speed>,
    pub verify: Vec<Verify>,
}

impl Guests {
    /// Reads the guests' files of a directory. Other files are passed over.
    ///
    /// # Errors
    /// A guest's file of another form.
    pub fn read(dir: &Path) -> Result<Guests> {
        let what = || format!("read {}", dir.display());
        let mut paths: Vec<_> = std::fs::read_dir(dir)
            .context(what)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|e| e == "json"))
            .collect();
        paths.sort();
        let mut all = Guests::default();
        for path in paths {
            let text = std::fs::read(&path).context(|| format!("read {}", path.display()))?;
            let Ok(head) = serde_json::from_slice::<Head>(&text) else { continue };
            let other = || Error::Unable(format!("{}: not a guest's results of form {FORM}", path.display()));
            if head.form != FORM {
                return Err(other());
            }
            match head.guest.as_str() {
                "speed" => all.speed.push(serde_json::from_slice(&text).map_err(|_| other())?),
                "verify" => all.verify.push(serde_json::from_slice(&text).map_err(|_| other())?),
                _ => return Err(other()),
            }
        }
        Ok(all)
    }
}

/// What guests' files say of trees of small files on Linux's own server.
pub fn guests_files(guests: &Guests) -> Vec<String> {
    of_guests(guests, |subject, server| subject == "files" && server == "kernel")
}

/// What they say of opens and web pages.
pub fn guests_small(guests: &Guests) -> Vec<String> {
    of_guests(guests, |subject, _| subject != "files")
}

fn of_guests(guests: &Guests, wanted: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut lines = Vec::new();
    for speed in &guests.speed {
        for row in speed.rows.iter().filter(|row| wanted(&row.subject, &speed.server)) {
            lines.push(format!(
                "in a guest with Linux {} (its times are those of an emulated processor), server {}: {} by {} at a round trip of {} ms, {} \
                 objects: {:.3} s, {} RPCs",
                speed.kernel, speed.server, row.work, row.client, row.round_trip_ms, row.objects, row.seconds, row.rpcs
            ));
        }
    }
    lines
}

/// How to get Linux's own server, or that its results are among the notes.
pub fn knfsd_absent(guests: &Guests, options: &str) -> String {
    match guests.speed.iter().any(|speed| speed.server == "kernel") {
        true => "Linux's own server on this machine: see the notes for a guest's".to_owned(),
        false => format!(
            "Linux's own server: put what `cargo xtask guest speed {options} --json` prints into DIR as a file *.json"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_files_are_found_among_others() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        put("report.json", r#"{"rows":[],"left":[]}"#);
        put("notes.txt", "no JSON");
        put(
            "knfsd.json",
            r#"{"form":1,"guest":"verify","kernel":"6.1","servers":[{"title":"t","cuts":2,"cuts_with_losses":1,
            "all":{"acknowledged":9,"checked":8,"lost":3}}]}"#,
        );
        let found = Guests::read(dir.path()).unwrap();
        assert_eq!((found.speed.len(), found.verify[0].servers[0].all.lost), (0, 3));
        put("new.json", r#"{"form":2,"guest":"verify"}"#);
        assert!(Guests::read(dir.path()).unwrap_err().to_string().contains("new.json"));
    }
}
