//! Divides the pauses of clients that do one thing at a time: a part for each call, and a part for each file that is
//! begun. No I/O.
//!
//! A program's own work between files stays whatever calls it makes. The pauses between the calls for one file
//! disappear with these calls.

use super::spread::Spread;
use landfast_model::Terms;

/// Fewer pauses of a kind mean nothing.
const KIND_MIN: u64 = 8;
/// With more calls in flight, what follows what is chance.
const IN_FLIGHT_MAX: f64 = 1.5;

/// Which file a call was about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct About {
    /// Number of the file. 0: a directory, or unknown.
    pub file: u32,
    /// It is the first call about this file.
    pub begins: bool,
}

/// The current position in a client's work.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Track {
    /// Time of the last reply, in nanoseconds.
    ended_ns: Option<i64>,
    file: u32,
    /// Pauses since the last call about a file.
    pauses: u64,
    sum_ns: u64,
}

impl Track {
    /// A call that counts for nothing else was answered: what is before it is no pause.
    pub fn busy_until(&mut self, ended_ns: i64) {
        self.ended_ns = self.ended_ns.map(|ns| ns.max(ended_ns));
    }
}

/// Pauses, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Think {
    /// Between two calls about the same file.
    within: Spread,
    /// From a file's last call to the next file's first, with calls about directories between them: the sum of all
    /// pauses.
    between: Spread,
    pauses: u64,
}

impl Think {
    /// A call was answered. Times of its first byte and of its reply's last.
    pub fn call(&mut self, track: &mut Track, begun_ns: i64, ended_ns: i64, about: About) {
        let before = track.ended_ns.replace(track.ended_ns.map_or(ended_ns, |ns| ns.max(ended_ns)));
        let Some(before) = before else {
            track.file = about.file;
            return;
        };
        if begun_ns > before {
            track.pauses += 1;
            track.sum_ns = track.sum_ns.saturating_add(begun_ns.saturating_sub(before).unsigned_abs());
        }
        if about.file == 0 {
            return;
        }
        let Track { pauses, sum_ns, .. } = *track;
        if pauses > 0 && track.file != 0 {
            if about.begins && about.file != track.file {
                self.between.add(sum_ns, 1.0);
                self.pauses += pauses;
            } else {
                self.within.add_many(sum_ns / pauses, pauses);
            }
        }
        *track = Track { ended_ns: track.ended_ns, file: about.file, pauses: 0, sum_ns: 0 };
    }

    /// The additional pause for each new file, beyond the pauses between the calls for one file, and the number of
    /// files. Pauses are capped at their 75th percentile.
    fn of_files(&self) -> Option<(f64, u64)> {
        let mean = |spread: &Spread| {
            let most = spread.percentile_ns(75.0)?;
            Some(spread.sum_of(|ns| ns.min(most)) / spread.count() as f64)
        };
        let files = self.between.count();
        if files < KIND_MIN || self.within.count() < KIND_MIN {
            return None;
        }
        let own = mean(&self.between)? - mean(&self.within)? * self.pauses as f64 / files as f64;
        (own > 0.0).then_some((own, files))
    }

    /// Divides the client's time between calls and files.
    pub fn divide(&self, terms: &mut Terms, client_s: f64, calls: u64, files: u64) {
        let Some((own_ns, begun)) = self.of_files() else { return };
        if files == 0 || calls == 0 || terms.in_flight > IN_FLIGHT_MAX {
            return;
        }
        let own_s = (own_ns * begun as f64 / 1e9).min(client_s);
        terms.file_think_s = own_s / files as f64;
        terms.think_s = (client_s - own_s) / calls as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn terms(in_flight: f64) -> Terms {
        let (round_trip_s, server_s, persistence_s) = (1e-3, 0.0, 0.0);
        Terms {
            round_trip_s,
            server_s,
            persistence_s,
            think_s: 9.0,
            file_think_s: 0.0,
            upload_bytes_per_s: None,
            download_bytes_per_s: None,
            in_flight,
        }
    }

    /// Files one after another: three calls each, a millisecond apart, after `look` calls about directories, with
    /// `own` before each file.
    fn work(think: &mut Think, files: u32, look: u32, own: i64) -> f64 {
        let (mut track, mut now, mut client) = (Track::default(), 0, 0);
        for file in 1..=files {
            for n in 0..look + 3 {
                let pause = if n == 0 { own + MS } else { MS };
                client += if now == 0 { 0 } else { pause };
                now += pause;
                let about = if n < look { About::default() } else { About { file, begins: n == look } };
                think.call(&mut track, now, now + 2 * MS, about);
                now += 2 * MS;
            }
        }
        client as f64 / 1e9
    }

    #[test]
    fn what_a_program_does_between_its_files_is_theirs() {
        for look in [0, 2] {
            let mut think = Think::default();
            let client_s = work(&mut think, 100, look, 40 * MS);
            let mut terms = terms(1.0);
            think.divide(&mut terms, client_s, 100 * u64::from(look + 3), 100);
            // Exact to a tenth, the step of the histogram.
            assert!((terms.file_think_s - 0.040).abs() < 0.004, "{look}: {terms:?}");
            assert!((terms.think_s - 0.001).abs() < 0.001, "{look}: {terms:?}");
            let all = terms.file_think_s * 100.0 + terms.think_s * 100.0 * f64::from(look + 3);
            assert!((all - client_s).abs() < 1e-9);
        }
    }

    #[test]
    fn where_pauses_tell_nothing_they_are_those_of_calls() {
        let divided = |think: &Think, in_flight, client_s| {
            let mut terms = terms(in_flight);
            think.divide(&mut terms, client_s, 300, 100);
            (terms.think_s, terms.file_think_s)
        };
        // The pauses between files are as long as those within them.
        let mut think = Think::default();
        let client_s = work(&mut think, 100, 1, 0);
        let (think_s, file_think_s) = divided(&think, 1.0, client_s);
        assert!(file_think_s < 1e-4 && think_s > 0.9 * client_s / 300.0 || file_think_s == 0.0);
        // Several at a time; nothing; too few; one file read by many calls.
        let mut think = Think::default();
        work(&mut think, 100, 0, 40 * MS);
        assert_eq!(divided(&think, 3.0, 1.0), (9.0, 0.0));
        assert_eq!(divided(&Think::default(), 1.0, 1.0), (9.0, 0.0));
        let mut think = Think::default();
        work(&mut think, 5, 0, 40 * MS);
        assert_eq!(divided(&think, 1.0, 1.0), (9.0, 0.0));
        let (mut think, mut track) = (Think::default(), Track::default());
        for n in 0..100 {
            think.call(&mut track, 10 * n * MS, (10 * n + 1) * MS, About { file: 1, begins: n == 0 });
        }
        assert_eq!(divided(&think, 1.0, 1.0), (9.0, 0.0));
        // Never more than the client's time.
        let mut think = Think::default();
        work(&mut think, 100, 0, 40 * MS);
        assert_eq!(divided(&think, 1.0, 0.5), (0.0, 0.005));
    }

    #[test]
    fn times_can_be_anything() {
        let (mut think, mut track) = (Think::default(), Track::default());
        for (n, at) in [i64::MIN, i64::MAX, 0, i64::MAX, i64::MIN].into_iter().cycle().take(50).enumerate() {
            think.call(&mut track, at, at, About { file: n as u32, begins: true });
        }
        think.divide(&mut terms(1.0), 1.0, 50, 50);
    }
}
