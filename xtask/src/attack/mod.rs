//! `cargo xtask attack`: attacks a running server, and measures an honest client at the same time.
//!
//! - Floods use up memory, connections and time for a while. Meanwhile an honest client makes one request after
//!   another, and the server's memory, descriptors and threads are watched. Afterwards all of them must be back to
//!   normal within ten seconds.
//! - Trespasses try what the caller may not do.
//!
//! `docs/limits.md` has the results.

mod document;
mod floods;
mod honest;
mod nfs;
mod scene;
mod target;
mod trespass;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::proc;
use honest::{Felt, Kind};
use scene::Scene;
use target::{Target, Usage};

/// The honest client's 99th percentile may be this many times that without an attack,
const P99_TIMES: f64 = 2.0;
/// if there are at least this many requests,
const P99_REQUESTS: usize = 200;
/// or this, below which the scheduler of a machine with few processors matters more than the server.
const P99_FLOOR: Duration = Duration::from_millis(20);
/// No request may take longer than this, or than twice the longest without an attack.
const LONGEST: Duration = Duration::from_millis(100);
/// A second honest client uses another server that nobody attacks, and so shows what else the machine does. If it
/// exceeds half of the limit there, the attacked server may take this many times as long, because it must answer the
/// attackers, too.
const ELSEWHERE_TIMES: f64 = 4.0;
/// The most that this excuses at the 99th percentile. A server without bounds makes clients wait for seconds and
/// minutes.
const ELSEWHERE_P99_MAX: Duration = Duration::from_millis(125);
/// The most that this excuses for the longest request.
const ELSEWHERE_LONGEST_MAX: Duration = Duration::from_millis(500);
/// How much the server's memory may grow during an attack: its byte budgets for requests and replies.
const MEMORY_MAX: u64 = 1 << 30;
/// How much larger its memory may be afterwards.
const MEMORY_LEFT_MAX: u64 = 128 << 20;
/// How many threads it may start.
const THREADS_MAX: u64 = 64;
/// How many descriptors may be left afterwards: files stay open between accesses.
const DESCRIPTORS_LEFT_MAX: u64 = 64;
/// Everything must be back to normal within this time after the attack.
const BACK_WITHIN: Duration = Duration::from_secs(10);
/// How often a failing flood is run in total, because the machine has other work, too.
const TRIES: u32 = 3;
/// Duration of a flood in seconds,
const SECONDS: u64 = 4;
/// and with `--long`.
const SECONDS_LONG: u64 = 20;
/// All cases of `--long` take at most this long. If time is short, a failing case is not repeated.
const LONG_MAX: Duration = Duration::from_secs(15 * 60);

/// Options of `cargo xtask attack`.
#[derive(Args)]
pub struct Options {
    /// The server to attack; target/release/landfast unless told otherwise
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Only these cases; may be given more than once
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// As many connections, OPENs and seconds as docs/limits.md says, at most 15 minutes, and a table for it; without it a short form
    #[arg(long)]
    long: bool,
    /// How long each flood goes on, in seconds; 4, with --long 20
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Print one JSON object for each case
    #[arg(long)]
    json: bool,
}

/// An attacker's action. It returns a summary.
type Act = fn(&Scene) -> Result<String, String>;

enum Attack {
    /// Continues until it is stopped.
    Flood(Act),
    /// Ends by itself. An error says what the attacker could do, or the victim could not.
    Trespass(Act),
}

use Attack::{Flood, Trespass};

const CASES: [(&str, Attack); 24] = [
    ("half-records", Flood(floods::half_records)),
    ("unread-replies", Flood(floods::unread_replies)),
    ("outsider-connections", Flood(floods::outsider_connections)),
    ("insider-connections", Flood(floods::insider_connections)),
    ("garbage", Flood(floods::garbage)),
    ("outsider-sessions", Flood(floods::outsider_sessions)),
    ("insider-sessions", Flood(floods::insider_sessions)),
    ("client-ids", Flood(floods::client_ids)),
    ("client-records", Flood(floods::client_records)),
    ("kept-replies", Flood(floods::kept_replies)),
    ("opens", Flood(floods::opens)),
    ("copies", Flood(floods::copies)),
    ("retries", Flood(floods::retries)),
    ("unanswered-callbacks", Flood(floods::unanswered_callbacks)),
    ("copies-in-background", Flood(floods::copies_in_background)),
    ("slow-metrics", Flood(floods::slow_metrics)),
    ("others-stateid", Trespass(trespass::others_stateid)),
    ("others-session", Trespass(trespass::others_session)),
    ("others-attributes", Trespass(trespass::others_attributes)),
    ("others-reply", Trespass(trespass::others_reply)),
    ("datagrams", Trespass(trespass::datagrams)),
    ("others-nlm-lock", Trespass(trespass::others_nlm_lock)),
    ("exclusive-create", Trespass(trespass::exclusive_create)),
    ("outsider-requests", Trespass(trespass::outsider_requests)),
];

/// Runs the cases, each against a new server. Status 1: a limit was exceeded.
pub fn run(options: &Options) -> ExitCode {
    if let Some(unknown) = options.cases.iter().find(|name| CASES.iter().all(|(case, _)| case != name)) {
        let names: Vec<&str> = CASES.iter().map(|(name, _)| *name).collect();
        eprintln!("no case is called {unknown}; there are {}", names.join(", "));
        return ExitCode::from(2);
    }
    let binary = options.binary.clone().unwrap_or_else(proc::landfast);
    if !binary.is_file() {
        eprintln!("{} is not there: cargo build --release -p landfast-cli", binary.display());
        return ExitCode::from(2);
    }
    raise_descriptors();
    let mut failed = Vec::new();
    let form = match (options.json, options.long) {
        (true, _) => Form::Json,
        (false, true) => Form::Document,
        (false, false) => Form::Lines,
    };
    match form {
        Form::Json => {}
        Form::Document => println!("{}", document::HEAD),
        Form::Lines => println!(
            "{:<21} {:<9} {:>9} {:>9} {:>9} {:>9}  what was done; what the server held at most, and afterwards",
            "case", "worst for", "p99 quiet", "elsewhere", "p99", "longest"
        ),
    }
    let named = |name: &str| options.cases.iter().any(|case| case == name);
    let wanted = |name: &str| named(name) || options.cases.is_empty();
    let cases: Vec<_> = CASES.iter().filter(|(name, _)| wanted(name)).collect();
    let begun = Instant::now();
    for (number, (name, attack)) in cases.iter().enumerate() {
        let floods_left = cases.iter().skip(number).filter(|(_, a)| matches!(a, Flood(_))).count();
        let mut outcome = once(&binary, attack, options);
        for _ in 1..TRIES {
            // A trespass must not succeed even once.
            if outcome.is_ok() || matches!(attack, Trespass(_)) {
                break;
            }
            if options.long && !may_try_again(begun.elapsed(), floods_left, options.flood_time()) {
                eprintln!("{name}: not tried again, the time is used up");
                break;
            }
            if let Err(why) = &outcome {
                eprintln!("{name}: {why}; once more");
            }
            outcome = once(&binary, attack, options);
        }
        match outcome {
            Ok(report) => report.print(name, form),
            Err(why) => {
                match form {
                    Form::Document => println!("{}", document::failed(name, &why)),
                    Form::Json | Form::Lines => println!("{name}: FAILED: {why}"),
                }
                failed.push(*name);
            }
        }
    }
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        eprintln!("not withstood: {}", failed.join(", "));
        ExitCode::FAILURE
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// One line per case.
    Lines,
    /// One object per case.
    Json,
    /// The table of `docs/limits.md`.
    Document,
}

impl Options {
    fn flood_time(&self) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(if self.long { SECONDS_LONG } else { SECONDS }))
    }
}

/// Whether a failed flood may be repeated after this time, so that all remaining floods (itself included) still fit.
/// Each also runs for half as long without attackers, and then must be back to normal.
fn may_try_again(after: Duration, left: usize, flood: Duration) -> bool {
    let each = flood.mul_f64(1.5) + BACK_WITHIN;
    after + each * u32::try_from(left).unwrap_or(u32::MAX) <= LONG_MAX
}

/// Ten thousand connections need as many descriptors.
fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Results for one kind of the honest client's requests.
struct Beside {
    kind: Kind,
    quiet: Felt,
    attacked: Felt,
    /// On the other server, which was not attacked.
    elsewhere: Felt,
}

impl Beside {
    fn quiet_p99(&self) -> Duration {
        self.quiet.quantile(0.99)
    }

    fn elsewhere_p99(&self) -> Duration {
        self.elsewhere.quantile(0.99)
    }

    fn p99(&self) -> Duration {
        self.attacked.quantile(0.99)
    }

    fn longest(&self) -> Duration {
        self.attacked.quantile(1.0)
    }

    fn broken(&self) -> Option<String> {
        let name = self.kind.name();
        if let Some(why) = self.attacked.failures.first() {
            return Some(format!(
                "the honest client's {name} failed {} times: {why}",
                self.attacked.failures.len()
            ));
        }
        if self.attacked.times.is_empty() {
            return Some(format!("the honest client's {name} was never answered"));
        }
        let beside = excused(self.elsewhere_p99(), P99_FLOOR, ELSEWHERE_P99_MAX);
        let bound = self.quiet_p99().mul_f64(P99_TIMES).max(P99_FLOOR).max(beside);
        // With fewer requests the percentile is merely the longest.
        if self.attacked.times.len() >= P99_REQUESTS && self.p99() > bound {
            return Some(format!(
                "the honest client's {name} took {} at the 99th percentile, {} before the attack, {} elsewhere during it",
                shown(self.p99()),
                shown(self.quiet_p99()),
                shown(self.elsewhere_p99())
            ));
        }
        let elsewhere = self.elsewhere.quantile(1.0);
        let beside = excused(elsewhere, LONGEST, ELSEWHERE_LONGEST_MAX);
        let bound = self.quiet.quantile(1.0).mul_f64(2.0).max(LONGEST).max(beside);
        (self.longest() > bound).then(|| {
            let (longest, elsewhere) = (shown(self.longest()), shown(elsewhere));
            format!("a {name} of the honest client took {longest}, {elsewhere} at most elsewhere")
        })
    }
}

/// How much the time on the other server excuses. `allowed` is allowed anyway.
fn excused(elsewhere: Duration, allowed: Duration, most: Duration) -> Duration {
    if elsewhere > allowed / 2 { elsewhere.min(most).mul_f64(ELSEWHERE_TIMES) } else { Duration::ZERO }
}

struct Report {
    did: String,
    beside: Vec<Beside>,
    before: Usage,
    most: Usage,
    after: Usage,
}

impl Report {
    /// The kind of request with the highest 99th percentile.
    fn worst(&self) -> Option<&Beside> {
        self.beside.iter().max_by_key(|beside| beside.p99())
    }

    fn print(&self, name: &str, form: Form) {
        if form == Form::Document {
            println!("{}", document::row(name, self));
            return;
        }
        if form == Form::Json {
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let kinds: Vec<_> = self.beside.iter().map(|beside| {
                json!({"request": beside.kind.name(), "p99_quiet_ms": ms(beside.quiet_p99()), "p99_elsewhere_ms": ms(beside.elsewhere_p99()), "p99_ms": ms(beside.p99()), "longest_ms": ms(beside.longest())})
            }).collect();
            let held = |held: Usage| json!({"memory": held.memory, "descriptors": held.descriptors, "threads": held.threads});
            println!(
                "{}",
                json!({"case": name, "did": self.did, "honest": kinds, "before": held(self.before), "most": held(self.most), "after": held(self.after)})
            );
            return;
        }
        match self.worst() {
            Some(worst) => println!(
                "{name:<21} {:<9} {:>9} {:>9} {:>9} {:>9}  {}; {}, {}",
                worst.kind.name(),
                shown(worst.quiet_p99()),
                shown(worst.elsewhere_p99()),
                shown(worst.p99()),
                shown(worst.longest()),
                self.did,
                told(self.most),
                told(self.after),
            ),
            None => {
                println!("{name:<21} {:<9} {:>9} {:>9} {:>9} {:>9}  {}", "nobody", "", "", "", "", self.did)
            }
        }
    }
}

fn shown(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn told(held: Usage) -> String {
    format!("{} MiB {} fds {} threads", held.memory >> 20, held.descriptors, held.threads)
}

fn once(binary: &std::path::Path, attack: &Attack, options: &Options) -> Result<Report, String> {
    let mut target = Target::start(binary, &proc::target_dir().join("attack"))?;
    let scene = Scene {
        nfs: target.nfs,
        metrics: target.metrics,
        export: target.export(),
        long: options.long,
        stop: AtomicBool::new(false),
        since: Instant::now(),
    };
    match attack {
        Trespass(attempt) => {
            let did = attempt(&scene)?;
            if let Some(why) = target.ended() {
                return Err(why);
            }
            let held = target.held()?;
            Ok(Report { did, beside: Vec::new(), before: held, most: held, after: held })
        }
        Flood(flood) => {
            let other = Target::start(binary, &proc::target_dir().join("attack"))?;
            beside_honest(&mut target, &other, scene, *flood, options.flood_time())
        }
    }
}

/// Measures an honest client alone, then during a flood, each time together with one on another server.
fn beside_honest(
    target: &mut Target,
    other: &Target,
    scene: Scene,
    flood: Act,
    time: Duration,
) -> Result<Report, String> {
    let Watched { felt: quiet, .. } = watched(target, other, &scene, time / 2, None)?;
    for (kind, felt) in &quiet {
        if let Some(why) = felt.failures.first() {
            return Err(format!("{} fails without any attack: {why}", kind.name()));
        }
    }
    let before = target.held()?;
    let scene = Scene { since: Instant::now(), stop: AtomicBool::new(false), ..scene };
    let Watched { felt: attacked, elsewhere, most, did } = watched(target, other, &scene, time, Some(flood))?;
    let beside: Vec<Beside> = quiet
        .into_iter()
        .zip(attacked.into_iter().zip(elsewhere))
        .map(|((kind, quiet), ((_, attacked), (_, elsewhere)))| Beside { kind, quiet, attacked, elsewhere })
        .collect();
    if let Some(why) = beside.iter().find_map(Beside::broken) {
        return Err(format!("{why} ({did}; {})", told(most)));
    }
    if most.memory > before.memory + MEMORY_MAX || most.threads > before.threads + THREADS_MAX {
        return Err(format!("the server held {}, {} before ({did})", told(most), told(before)));
    }
    let after = back(target, before)?;
    Ok(Report { did, beside, before, most, after })
}

struct Watched {
    felt: Vec<(Kind, Felt)>,
    elsewhere: Vec<(Kind, Felt)>,
    most: Usage,
    did: String,
}

/// Lets the honest clients work for some time, during the flood if there is one, and watches the server.
fn watched(
    target: &mut Target,
    other: &Target,
    scene: &Scene,
    time: Duration,
    flood: Option<Act>,
) -> Result<Watched, String> {
    let (nfs, metrics) = (other.nfs, other.metrics);
    let honest_stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let attackers = flood.map(|flood| scope.spawn(move || flood(scene)));
        let honest = scope.spawn(|| honest::work(scene.nfs, scene.metrics, &honest_stop));
        let elsewhere = scope.spawn(|| honest::work(nfs, metrics, &honest_stop));
        let end = Instant::now() + time;
        let mut most = Usage::default();
        let mut ended = None;
        while ended.is_none() && Instant::now() < end {
            if let Ok(held) = target.held() {
                most = most.max(held);
            }
            ended = target.ended();
            std::thread::sleep(Duration::from_millis(50));
        }
        // The honest client works until the end of the attack.
        honest_stop.store(true, Ordering::Release);
        let felt = honest.join().map_err(|_| "the honest client ended early".to_owned());
        let elsewhere = elsewhere.join().map_err(|_| "the honest client elsewhere ended early".to_owned());
        scene.stop.store(true, Ordering::Release);
        let did = match attackers.map(|attackers| attackers.join()) {
            None => Ok(String::new()),
            Some(Ok(did)) => did,
            Some(Err(_)) => Err("the attacker ended early".to_owned()),
        };
        match ended {
            Some(why) => Err(why),
            None => Ok(Watched { felt: felt?, elsewhere: elsewhere?, most, did: did? }),
        }
    })
}

/// Waits until the server's usage is back to normal. Fails if it takes too long.
fn back(target: &mut Target, before: Usage) -> Result<Usage, String> {
    let end = Instant::now() + BACK_WITHIN;
    loop {
        if let Some(why) = target.ended() {
            return Err(why);
        }
        let held = target.held()?;
        let over = held.memory > before.memory + MEMORY_LEFT_MAX
            || held.descriptors > before.descriptors + DESCRIPTORS_LEFT_MAX
            || held.threads > before.threads + THREADS_MAX;
        if !over {
            return Ok(held);
        }
        if Instant::now() > end {
            return Err(format!(
                "{} s after the attackers left the server still held {}, {} before",
                BACK_WITHIN.as_secs(),
                told(held),
                told(before)
            ));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn felt(ms: u64) -> Felt {
        Felt { times: vec![Duration::from_millis(ms); 200], failures: Vec::new() }
    }

    #[test]
    fn the_long_form_ends_in_time_whatever_fails() {
        let flood = Duration::from_secs(SECONDS_LONG);
        let floods = CASES.iter().filter(|(_, attack)| matches!(attack, Flood(_))).count();
        let each = flood.mul_f64(1.5) + BACK_WITHIN;
        assert!(each * u32::try_from(floods).unwrap() < LONG_MAX, "once each");
        assert!(may_try_again(each, floods, flood), "the first may fail");
        assert!(!may_try_again(LONG_MAX, 1, flood));
        // Each fails, and is repeated as long as possible.
        let mut after = Duration::ZERO;
        for left in (1..=floods).rev() {
            after += each;
            for _ in 1..TRIES {
                after += if may_try_again(after, left, flood) { each } else { Duration::ZERO };
            }
        }
        assert!(after <= LONG_MAX, "{after:?}");
    }

    #[test]
    fn an_honest_client_that_feels_the_attack_breaks_the_bound() {
        let seen = |quiet, elsewhere, attacked| Beside {
            kind: Kind::Read,
            quiet: felt(quiet),
            attacked,
            elsewhere: felt(elsewhere),
        };
        let beside = |quiet, attacked| seen(quiet, 1, attacked);
        assert!(beside(30, felt(59)).broken().is_none());
        assert!(beside(30, felt(61)).broken().unwrap().contains("99th"));
        assert!(beside(1, felt(19)).broken().is_none());
        assert!(beside(1, felt(21)).broken().is_some());
        assert!(beside(1, Felt::default()).broken().is_some());
        assert!(
            beside(1, Felt { times: vec![Duration::from_millis(30); 199], failures: Vec::new() })
                .broken()
                .is_none()
        );
        // What the machine does also affects the other server, but that does not excuse everything.
        assert!(seen(1, 10, felt(21)).broken().is_some());
        assert!(seen(1, 20, felt(79)).broken().is_none());
        assert!(seen(1, 20, felt(81)).broken().unwrap().contains("99th"));
        assert!(seen(1, 60_000, felt(501)).broken().unwrap().contains("99th"));
        let late = |ms| Felt { times: vec![Duration::from_millis(ms); 199], failures: Vec::new() };
        assert!(seen(1, 50, late(101)).broken().is_some());
        assert!(seen(1, 60, late(239)).broken().is_none());
        assert!(seen(1, 60, late(241)).broken().is_some());
        assert!(seen(1, 60_000, late(2_001)).broken().is_some());
        let mut rare = Felt { times: vec![Duration::from_millis(1); 1000], failures: Vec::new() };
        rare.times.push(Duration::from_millis(101));
        assert!(beside(1, rare.clone()).broken().unwrap().contains("101"));
        rare.times.pop();
        rare.failures.push("refused".to_owned());
        assert!(beside(1, rare).broken().unwrap().contains("refused"));
    }
}
