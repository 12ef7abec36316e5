//! The configuration file: TOML in, values or a list of all problems out. Pure.
//!
//! Each problem has a place and says what to do. A file with a problem gives no configuration at all. The keys are
//! described in `docs/exports.md`, whose example a test parses.

use crate::exports::pseudo::components;
use crate::exports::pseudo::{NameClash, Pseudo};
use crate::exports::rules::{ClientSpec, NOBODY, Rule, Rules, Squash};
use crate::exports::{Delegate, Features};
use crate::limited::{Limits, SPECS};
use crate::limits;
use crate::portmap::Rpcbind;
use crate::protocols::Protocols;
use landfast_volume::{Durability, LogPlace};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Size of a log file that does not exist yet, when the file does not say.
const LOG_BYTES: u64 = 256 << 20;
const LOG_BYTES_MIN: u64 = 16 << 20;
const BYTES: [(&str, u64); 6] =
    [("M", 1 << 20), ("MiB", 1 << 20), ("G", 1 << 30), ("GiB", 1 << 30), ("T", 1 << 40), ("TiB", 1 << 40)];
/// The longest lease, in seconds.
const LEASE_MAX: u64 = 3600;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub line: usize,
    /// In characters; line and column count from 1.
    pub column: usize,
    pub message: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub listen: Vec<SocketAddr>,
    pub lease_seconds: u32,
    pub limits: Limits,
    pub metrics: Option<SocketAddr>,
    pub protocols: Protocols,
    pub rpcbind: Rpcbind,
    /// Threads that receive and run requests; `None`: by the number of processors.
    pub workers: Option<usize>,
    pub exports: Vec<ExportConfig>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportConfig {
    pub path: PathBuf,
    /// Its name in the pseudo root; `/` when it is the root.
    pub name: PathBuf,
    pub rules: Rules,
    pub durability: Durability,
    pub log: Option<LogPlace>,
    /// Size of a log file that does not exist yet.
    pub log_size: u64,
    /// Recovery stops where somebody has changed the directory behind the server's back.
    pub strict_recovery: bool,
    /// Look up users' groups on this system.
    pub manage_gids: bool,
    /// It is served only while a filesystem is mounted here.
    pub mount_point: Option<PathBuf>,
    pub features: Features,
    pub line: usize,
}

/// Parses a configuration. The error is the list of all problems, in the order of the file.
pub fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    let mut reader = Reader { text, problems: Vec::new() };
    let (table, errors) = DeTable::parse_recoverable(text);
    for e in &errors {
        reader.problem(e.span().unwrap_or(0..0), e.message().trim().to_owned());
    }
    // If the syntax is broken, problems of meaning are not reported.
    let config = if errors.is_empty() { reader.config(table.get_ref()) } else { None };
    reader.problems.sort_by_key(|p| (p.line, p.column));
    match config {
        Some(config) if reader.problems.is_empty() => Ok(config),
        _ => Err(reader.problems),
    }
}

struct Reader<'t> {
    text: &'t str,
    problems: Vec<Problem>,
}

type Value<'i> = Spanned<DeValue<'i>>;

fn kind(v: &DeValue<'_>) -> &'static str {
    match v {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

impl Reader<'_> {
    fn place(&self, at: usize) -> (usize, usize) {
        let at = (0..=at.min(self.text.len())).rev().find(|i| self.text.is_char_boundary(*i)).unwrap_or(0);
        let before = &self.text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or(before).chars().count() + 1;
        (line, column)
    }

    fn problem(&mut self, at: Range<usize>, message: impl Into<String>) {
        let (line, column) = self.place(at.start);
        self.problems.push(Problem { line, column, message: message.into() });
    }

    fn keys(&mut self, table: &DeTable<'_>, known: &[&str], of: &str) {
        for key in table.keys() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let known = known.join(", ");
                self.problem(key.span(), format!("there is no key \"{name}\" {of}; there are: {known}"));
            }
        }
    }

    fn wrong(&mut self, v: &Value<'_>, what: &str, wanted: &str) {
        let found = kind(v.get_ref());
        self.problem(v.span(), format!("{what} is {wanted}, not {found}"));
    }

    fn string<'v>(&mut self, v: &'v Value<'_>, what: &str, wanted: &str) -> Option<&'v str> {
        match v.get_ref() {
            DeValue::String(s) => Some(s),
            _ => {
                self.wrong(v, what, wanted);
                None
            }
        }
    }

    fn boolean(&mut self, table: &DeTable<'_>, key: &str, default: bool) -> bool {
        match table.get(key).map(|v| (v, v.get_ref())) {
            None => default,
            Some((_, DeValue::Boolean(b))) => *b,
            Some((v, _)) => {
                self.wrong(v, key, "true or false");
                default
            }
        }
    }

    fn integer(&mut self, table: &DeTable<'_>, key: &str, range: Range<u64>) -> Option<u64> {
        let v = table.get(key)?;
        let last = range.end.saturating_sub(1);
        let found = match v.get_ref() {
            DeValue::Integer(i) => u64::from_str_radix(&i.as_str().replace('_', ""), i.radix()).ok(),
            _ => None,
        };
        let found = found.filter(|n| range.contains(n));
        if found.is_none() {
            self.problem(v.span(), format!("{key} is an integer from {} to {last}", range.start));
        }
        found
    }

    /// One string or an array of strings.
    fn strings<'v>(&mut self, v: &'v Value<'_>, what: &str, wanted: &str) -> Vec<(Range<usize>, &'v str)> {
        match v.get_ref() {
            DeValue::String(s) => vec![(v.span(), s)],
            DeValue::Array(all) => {
                let each = |v| self.string(v, what, wanted).map(|s| (v.span(), s));
                all.iter().filter_map(each).collect()
            }
            _ => {
                self.wrong(v, what, wanted);
                Vec::new()
            }
        }
    }

    fn config(&mut self, table: &DeTable<'_>) -> Option<Config> {
        let known = ["listen", "metrics", "lease", "protocols", "rpcbind", "limits", "export"];
        self.keys(table, &known, "at the top");
        let listen = self.listen(table);
        let lease_seconds = self.lease(table);
        let metrics = self.metrics(table);
        let protocols = self.protocols(table);
        let rpcbind = self.rpcbind(table);
        let (mut configured, mut workers) = (Limits::default(), None);
        if let Some(v) = table.get("limits") {
            match v.get_ref() {
                DeValue::Table(t) => {
                    let keys: Vec<_> = SPECS.iter().map(|s| s.key).chain(["workers"]).collect();
                    self.keys(t, &keys, "in [limits]");
                    for spec in &SPECS {
                        let (min, max) = (spec.min as u64, spec.max as u64);
                        let value = match spec.bytes {
                            true => self.bytes(t, spec.key, min..=max),
                            false => self.integer(t, spec.key, min..max + 1),
                        };
                        if let Some(value) = value {
                            configured = configured.with(spec.limit, value as usize);
                        }
                    }
                    let max = limits::WORKERS_CONFIGURED_MAX as u64;
                    workers = self.integer(t, "workers", 2..max + 1).map(|n| n as usize);
                }
                _ => self.wrong(v, "limits", "a table: [limits]"),
            }
        }
        let mut exports = Vec::new();
        match table.get("export").map(|v| (v, v.get_ref())) {
            None => self.problem(0..0, "nothing is exported: add an [[export]] with a path and clients"),
            Some((_, DeValue::Array(all))) => {
                for v in all.iter() {
                    match v.get_ref() {
                        DeValue::Table(t) => exports.extend(self.export(t, v.span())),
                        _ => self.wrong(v, "an export", "a table: [[export]]"),
                    }
                }
                if all.len() > limits::EXPORTS_MAX {
                    self.problem(
                        0..0,
                        format!(
                            "there are {} exports, at most {} are served",
                            all.len(),
                            limits::EXPORTS_MAX
                        ),
                    );
                }
            }
            Some((v, _)) => self.problem(v.span(), "write [[export]], with two brackets, for each export"),
        }
        self.check_conflicts(&exports);
        let exports = exports.into_iter().map(|(e, _)| e).collect();
        let limits = configured;
        Some(Config { listen, lease_seconds, limits, metrics, protocols, rpcbind, workers, exports })
    }

    fn listen(&mut self, table: &DeTable<'_>) -> Vec<SocketAddr> {
        const WANTED: &str = "an address and port, \"0.0.0.0:2049\" or \"[::]:2049\", or an array of such";
        let Some(v) = table.get("listen") else { return vec![SocketAddr::from(([0, 0, 0, 0], 2049))] };
        let mut found: Vec<SocketAddr> = Vec::new();
        for (at, text) in self.strings(v, "listen", WANTED) {
            match text.parse() {
                Ok(addr) if found.contains(&addr) => self.problem(at, format!("{addr} stands here twice")),
                Ok(addr) => found.push(addr),
                Err(_) => self.problem(at, format!("\"{text}\" is not {WANTED}")),
            }
        }
        if matches!(v.get_ref(), DeValue::Array(all) if all.is_empty()) {
            self.problem(
                v.span(),
                "listen is empty: name at least one address, or leave it out for 0.0.0.0:2049",
            );
        }
        if found.len() > limits::LISTEN_MAX {
            self.problem(v.span(), format!("at most {} addresses are listened on", limits::LISTEN_MAX));
        }
        found
    }

    fn metrics(&mut self, table: &DeTable<'_>) -> Option<SocketAddr> {
        const WANTED: &str = "an address and port, \"127.0.0.1:9049\"";
        let v = table.get("metrics")?;
        let text = self.string(v, "metrics", WANTED)?;
        let addr = text.parse().ok();
        if addr.is_none() {
            self.problem(v.span(), format!("metrics is {WANTED}"));
        }
        addr
    }

    fn protocols(&mut self, table: &DeTable<'_>) -> Protocols {
        const WANTED: &str =
            "an array of protocols, [\"3\", \"4.0\", \"4.1\", \"4.2\", \"nlm\", \"udp\"] or fewer";
        let Some(v) = table.get("protocols") else { return Protocols::default() };
        let before = self.problems.len();
        let names = self.strings(v, "protocols", WANTED);
        let parsed = Protocols::parse(names.iter().map(|(_, name)| *name));
        if self.problems.len() > before {
            return Protocols::default();
        }
        parsed.unwrap_or_else(|why| {
            self.problem(v.span(), why);
            Protocols::default()
        })
    }

    fn rpcbind(&mut self, table: &DeTable<'_>) -> Rpcbind {
        let Some(v) = table.get("rpcbind") else { return Rpcbind::default() };
        match v.get_ref() {
            DeValue::String(s) if s == "auto" => Rpcbind::Auto,
            DeValue::String(s) if s == "off" => Rpcbind::Off,
            DeValue::String(s) if s == "require" => Rpcbind::Require,
            _ => {
                self.problem(v.span(), "rpcbind is \"auto\", \"off\" or \"require\"");
                Rpcbind::default()
            }
        }
    }

    fn lease(&mut self, table: &DeTable<'_>) -> u32 {
        let Some(v) = table.get("lease") else { return limits::LEASE_SECONDS };
        let seconds = Self::with_unit(v, &[("s", 1), ("m", 60), ("min", 60)]);
        match seconds.filter(|s| (1..=LEASE_MAX).contains(s)) {
            Some(s) => s as u32,
            None => {
                self.problem(v.span(), "lease is a time from \"1s\" to \"60m\", with its unit: \"90s\"");
                limits::LEASE_SECONDS
            }
        }
    }

    fn delegations(&mut self, t: &DeTable<'_>) -> Delegate {
        let Some(v) = t.get("delegations") else { return Delegate::default() };
        let level = match v.get_ref() {
            DeValue::String(s) => Delegate::ALL.iter().find(|(name, _)| s == name),
            _ => None,
        };
        level.map(|(_, level)| *level).unwrap_or_else(|| {
            self.problem(v.span(), "delegations is \"off\", \"read\", \"write\" or \"times\"");
            Delegate::default()
        })
    }

    /// An export, and where its path, name and log stand.
    fn export(&mut self, t: &DeTable<'_>, at: Range<usize>) -> Option<(ExportConfig, Places)> {
        let before = self.problems.len();
        self.keys(
            t,
            &[
                "path",
                "name",
                "clients",
                "durability",
                "log",
                "strict_recovery",
                "manage_gids",
                "mountpoint",
                "acls",
                "xattrs",
                "delegations",
                "write_delegations",
            ],
            "in [[export]]",
        );
        let path = self.path(t, "path", true).unwrap_or_else(|| {
            if !t.contains_key("path") {
                self.problem(at.clone(), "this export has no path: name the directory, path = \"/srv/data\"");
            }
            PathBuf::new()
        });
        let name = self.path(t, "name", false).unwrap_or_else(|| path.clone());
        if components(&name).len() > 255 {
            self.problem(at.clone(), "the name has more than 255 components");
        }
        let rules = match t.get("clients") {
            Some(v) => self.clients(v),
            None => {
                self.problem(
                    at.clone(),
                    "this export has no clients, so nobody could use it: say who may, clients = [{ from = \"10.0.0.0/8\" }]",
                );
                Rules::default()
            }
        };
        let (log, log_size, log_at) = self.log(t);
        let durability = match t.get("durability") {
            None => Durability::Log,
            Some(v) => match v.get_ref() {
                DeValue::String(s) if s == "log" => Durability::Log,
                DeValue::String(s) if s == "sync" => Durability::Sync,
                DeValue::String(s) if s == "unsafe" => Durability::Unsafe,
                _ => {
                    self.problem(v.span(), "durability is \"log\", \"sync\" or \"unsafe\"");
                    Durability::Log
                }
            },
        };
        match (durability, &log) {
            (Durability::Log, None) if !t.contains_key("log") => self.problem(
                at.clone(),
                "this export has no log: name a file or device, log = \"/fast/data.log\", or say durability = \"sync\"",
            ),
            (Durability::Sync | Durability::Unsafe, Some(_)) => self.problem(
                log_at.clone(),
                "a log is used with durability = \"log\" only: leave one of the two out",
            ),
            _ => {}
        }
        let strict_recovery = self.boolean(t, "strict_recovery", false);
        let manage_gids = self.boolean(t, "manage_gids", false);
        let mount_point = self.mount_point(t, &path);
        let features = Features {
            acls: self.boolean(t, "acls", true),
            xattrs: self.boolean(t, "xattrs", true),
            delegations: self.delegations(t),
            write_delegations: self.boolean(t, "write_delegations", false),
        };
        if self.problems.len() > before {
            return None;
        }
        let (line, _) = self.place(at.start);
        let places = Places { export: at, log: log_at };
        Some((
            ExportConfig {
                path,
                name,
                rules,
                durability,
                log,
                log_size,
                strict_recovery,
                manage_gids,
                mount_point,
                features,
                line,
            },
            places,
        ))
    }

    /// As in exports(5): the directory itself, or the one that is named.
    fn mount_point(&mut self, t: &DeTable<'_>, export: &Path) -> Option<PathBuf> {
        match t.get("mountpoint")?.get_ref() {
            DeValue::Boolean(itself) => itself.then(|| export.to_owned()),
            DeValue::String(_) => self.path(t, "mountpoint", true),
            _ => {
                self.wrong(t.get("mountpoint")?, "mountpoint", "true, false or a path");
                None
            }
        }
    }

    /// An absolute path without `.` and `..`.
    fn path(&mut self, t: &DeTable<'_>, key: &str, directory: bool) -> Option<PathBuf> {
        let v = t.get(key)?;
        let text = self.string(v, key, "a path that begins with /")?;
        let bad = text.split('/').any(|c| matches!(c, "." | "..") || c.len() > limits::NAME_MAX);
        if !text.starts_with('/') || bad || text.contains('\0') {
            let what = if directory { "a directory's path" } else { "a path in the pseudo root" };
            self.problem(v.span(), format!("{key} is {what} that begins with / and has no . or .. in it"));
            return None;
        }
        Some(
            Path::new("/").join(
                components(Path::new(text))
                    .iter()
                    .map(|c| PathBuf::from(String::from_utf8_lossy(c).into_owned()))
                    .collect::<PathBuf>(),
            ),
        )
    }

    /// Where the log stands, the size of a new one, and the place in the file that says so.
    fn log(&mut self, t: &DeTable<'_>) -> (Option<LogPlace>, u64, Range<usize>) {
        const WANTED: &str =
            "a path, or { path = \"/fast/data.log\", mirror = \"/other/data.log\", size = \"256M\" }";
        let Some(v) = t.get("log") else { return (None, LOG_BYTES, 0..0) };
        let (path, mirror, size) = match v.get_ref() {
            DeValue::String(s) => (Some((v.span(), s.as_ref())), None, LOG_BYTES),
            DeValue::Table(t) => {
                self.keys(t, &["path", "mirror", "size"], "in log");
                let path = match t.get("path") {
                    Some(v) => self.string(v, "the log's path", "a string").map(|s| (v.span(), s)),
                    None => {
                        self.problem(v.span(), format!("the log has no path: {WANTED}"));
                        None
                    }
                };
                let mirror = t
                    .get("mirror")
                    .and_then(|v| self.string(v, "the log's mirror", "a string").map(|s| (v.span(), s)));
                (path, mirror, self.size(t, "size").unwrap_or(LOG_BYTES))
            }
            _ => {
                self.wrong(v, "log", WANTED);
                (None, None, LOG_BYTES)
            }
        };
        let mut absolute = |found: Option<(Range<usize>, &str)>, what: &str| {
            let (at, s) = found?;
            if s.starts_with('/') && !s.contains('\0') {
                return Some(PathBuf::from(s));
            }
            self.problem(at, format!("the log's {what} begins with /"));
            None
        };
        let (path, mirror) = (absolute(path, "path"), absolute(mirror, "mirror"));
        (path.map(|path| LogPlace::new(path, mirror)), size, v.span())
    }

    fn size(&mut self, t: &DeTable<'_>, key: &str) -> Option<u64> {
        let v = t.get(key)?;
        let found = Self::with_unit(v, &BYTES).filter(|b| *b >= LOG_BYTES_MIN);
        if found.is_none() {
            self.problem(v.span(), "size is a number with M, G or T, at least \"16M\"");
        }
        found
    }

    fn bytes(&mut self, t: &DeTable<'_>, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let v = t.get(key)?;
        let found = Self::with_unit(v, &BYTES).filter(|b| range.contains(b));
        if found.is_none() {
            let (min, max) = (range.start() >> 20, range.end() >> 30);
            self.problem(v.span(), format!("{key} is a number with M or G, from \"{min}M\" to \"{max}G\""));
        }
        found
    }

    /// A whole number with one of these units, multiplied by what the unit stands for.
    fn with_unit(v: &Value<'_>, units: &[(&str, u64)]) -> Option<u64> {
        let DeValue::String(text) = v.get_ref() else { return None };
        let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
        let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
        digits.parse::<u64>().ok()?.checked_mul(*scale)
    }

    fn clients(&mut self, v: &Value<'_>) -> Rules {
        const WANTED: &str = "an array of tables: clients = [{ from = \"10.0.0.0/8\", options = [\"rw\"] }]";
        let DeValue::Array(all) = v.get_ref() else {
            self.wrong(v, "clients", WANTED);
            return Rules::default();
        };
        if all.is_empty() {
            self.problem(
                v.span(),
                "clients is empty, so nobody could use this export: say who may, or leave the export out",
            );
        }
        let mut rules = Vec::new();
        for v in all.iter() {
            match v.get_ref() {
                DeValue::Table(t) => rules.push(self.rule(t, v.span())),
                _ => self.wrong(
                    v,
                    "a rule for clients",
                    "a table: { from = \"10.0.0.0/8\", options = [\"rw\"] }",
                ),
            }
        }
        Rules(rules)
    }

    fn rule(&mut self, t: &DeTable<'_>, at: Range<usize>) -> Rule {
        self.keys(t, &["from", "options", "anonuid", "anongid", "sec"], "in a rule for clients");
        let mut from = Vec::new();
        match t.get("from") {
            None => self.problem(at, "this rule says nothing of whom it is about: from = \"10.0.0.0/8\""),
            Some(v) => {
                let wanted =
                    "an address, a network, a host name, a pattern, @netgroup or *, or an array of such";
                let all = self.strings(v, "from", wanted);
                if matches!(v.get_ref(), DeValue::Array(a) if a.is_empty()) {
                    self.problem(v.span(), "from is empty: the rule is about nobody");
                }
                for (at, text) in all {
                    match ClientSpec::parse(text) {
                        Ok(one) => from.push(one),
                        Err(why) => self.problem(at, why),
                    }
                }
            }
        }
        let mut rule = Rule::new(from);
        if let Some(v) = t.get("options") {
            self.options(v, &mut rule);
        }
        let max = u64::from(u32::MAX);
        rule.anonuid = self.integer(t, "anonuid", 0..max).map_or(NOBODY, |n| n as u32);
        rule.anongid = self.integer(t, "anongid", 0..max).map_or(NOBODY, |n| n as u32);
        if let Some(v) = t.get("sec") {
            (rule.sys, rule.none) = (false, false);
            for (at, text) in self.strings(v, "sec", "\"sys\", \"none\", or an array of these") {
                match text {
                    "sys" => rule.sys = true,
                    "none" => rule.none = true,
                    "krb5" | "krb5i" | "krb5p" => {
                        self.problem(at, "Kerberos is not served: sec is \"sys\" or \"none\"")
                    }
                    _ => self
                        .problem(at, "sec is \"sys\" (users as the client says) or \"none\" (all anonymous)"),
                }
            }
            if matches!(v.get_ref(), DeValue::Array(a) if a.is_empty()) {
                self.problem(v.span(), "sec is empty: leave it out for \"sys\"");
            }
        }
        rule
    }

    fn options(&mut self, v: &Value<'_>, rule: &mut Rule) {
        const KNOWN: &str = "ro, rw, root_squash, no_root_squash, all_squash, secure, insecure";
        let mut seen: HashMap<&str, &str> = HashMap::new();
        for (at, text) in self.strings(v, "options", "an array of strings: [\"rw\", \"root_squash\"]") {
            let subject = match text {
                "ro" | "rw" => {
                    rule.read_only = text == "ro";
                    "ro"
                }
                "root_squash" | "no_root_squash" | "all_squash" => {
                    rule.squash = match text {
                        "root_squash" => Squash::Root,
                        "no_root_squash" => Squash::Nobody,
                        _ => Squash::All,
                    };
                    "squash"
                }
                "secure" | "insecure" => {
                    rule.secure = text == "secure";
                    "secure"
                }
                "sync" | "async" => {
                    self.problem(at, format!("there is no option \"{text}\": see the export's durability"));
                    continue;
                }
                _ => {
                    self.problem(at, format!("there is no option \"{text}\"; there are: {KNOWN}"));
                    continue;
                }
            };
            match seen.insert(subject, text) {
                Some(other) if other == text => self.problem(at, format!("\"{text}\" stands here twice")),
                Some(other) => self.problem(at, format!("\"{text}\" contradicts \"{other}\"")),
                None => {}
            }
        }
    }

    /// What exports must not have in common.
    fn check_conflicts(&mut self, exports: &[(ExportConfig, Places)]) {
        let mut logs = HashSet::new();
        let mut paths = HashSet::new();
        for (e, at) in exports {
            if !paths.insert(&e.path) {
                let path = e.path.display();
                self.problem(
                    at.export.clone(),
                    format!("{path} is exported twice: put the rules for it into one export"),
                );
            }
            for log in e.log.iter().flat_map(LogPlace::paths) {
                if logs.insert(log) {
                    continue;
                }
                let shown = log.display();
                let message = if e.log.as_ref().is_some_and(LogPlace::is_mirror_of_itself) {
                    format!("{shown} is the log and its own mirror: a mirror is on another device")
                } else {
                    format!("{shown} is the log of another export: each has its own")
                };
                self.problem(at.log.clone(), message);
            }
        }
        let names: Vec<_> = exports.iter().map(|(e, _)| components(&e.name)).collect();
        if let Some(root) = names.iter().position(Vec::is_empty) {
            if names.len() > 1
                && let Some((_, at)) = exports.get(root)
            {
                self.problem(
                    at.export.clone(),
                    "an export with the name / must be the only one: give it another name",
                );
            }
            return;
        }
        if let Err(NameClash(a, b)) = Pseudo::named(&names, [0; 16])
            && let (Some((one, _)), Some((other, at))) = (exports.get(a), exports.get(b))
        {
            let (one, name) = (one.name.display(), other.name.display());
            let message = if a != b && names.get(a) == names.get(b) {
                format!("two exports have the name {name}: give this one another, name = \"/other\"")
            } else {
                format!(
                    "of the names {one} and {name} one lies below the other: give this export another, name = \"/other\""
                )
            };
            self.problem(at.export.clone(), message);
        }
    }
}

/// Where an export and its log stand in the text.
struct Places {
    export: Range<usize>,
    log: Range<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONE: &str =
        "[[export]]\npath = \"/srv/data\"\nlog = \"/fast/log\"\nclients = [{ from = \"10.0.0.0/8\" }]\n";

    fn problems(text: &str) -> Vec<String> {
        match parse(text) {
            Ok(config) => panic!("{text} was taken: {config:?}"),
            Err(all) => all.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn the_example_of_the_documentation_is_taken() {
        let page = include_str!("../../../docs/exports.md");
        let example =
            page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
        let config = parse(example).unwrap_or_else(|p| panic!("{p:#?}"));
        assert!(config.exports.len() >= 3);
    }

    #[test]
    fn defaults_are_safe() {
        let config = parse(ONE).expect("taken");
        assert_eq!(config.listen, [SocketAddr::from(([0, 0, 0, 0], 2049))]);
        assert_eq!(
            (config.lease_seconds, config.limits, config.workers, config.metrics),
            (90, Limits::default(), None, None)
        );
        let e = &config.exports[0];
        assert_eq!(
            (&e.name, e.durability, e.log_size, e.manage_gids),
            (&e.path, Durability::Log, LOG_BYTES, false)
        );
        let safe =
            Features { acls: true, xattrs: true, delegations: Delegate::Off, write_delegations: false };
        assert_eq!(e.features, safe);
        let rule = &e.rules.0[0];
        assert!(rule.read_only && rule.secure && rule.sys && !rule.none && rule.squash == Squash::Root);
        assert_eq!((rule.anonuid, rule.anongid), (NOBODY, NOBODY));
    }

    #[test]
    fn features_are_taken_one_by_one() {
        let features = |more: &str| parse(&format!("{ONE}{more}")).map(|config| config.exports[0].features);
        assert_eq!(features("acls = false\n"), Ok(Features { acls: false, ..Features::default() }));
        assert_eq!(features("xattrs = false\n"), Ok(Features { xattrs: false, ..Features::default() }));
        for (name, delegations) in Delegate::ALL {
            let set = features(&format!("delegations = \"{name}\"\n"));
            assert_eq!(set, Ok(Features { delegations, ..Features::default() }));
        }
        let set = features("write_delegations = true\n");
        assert_eq!(set, Ok(Features { write_delegations: true, ..Features::default() }));
        let wrong = features("delegations = true\n").expect_err("no level");
        assert!(wrong[0].message.contains("\"times\""), "{wrong:?}");
        let wrong = features("xattrs = \"no\"\n").expect_err("no boolean");
        assert!(wrong[0].message.contains("true or false"), "{wrong:?}");
    }

    #[test]
    fn a_mount_point_is_the_directory_itself_or_another() {
        let found =
            |more: &str| parse(&format!("{ONE}{more}")).map(|config| config.exports[0].mount_point.clone());
        assert_eq!((found(""), found("mountpoint = false\n")), (Ok(None), Ok(None)));
        assert_eq!(found("mountpoint = true\n"), Ok(Some("/srv/data".into())));
        assert_eq!(found("mountpoint = \"/srv\"\n"), Ok(Some("/srv".into())));
        for wrong in ["1", "\"srv\"", "[]"] {
            found(&format!("mountpoint = {wrong}\n")).expect_err(wrong);
        }
    }

    #[test]
    fn limits_are_taken() {
        use crate::limited::Limit;
        let text = format!(
            "metrics = \"127.0.0.1:9049\"\n{ONE}[limits]\nlocks = 1_000\nsession_slots = 16\nclient_reply_bytes = \"2G\"\n"
        );
        let config = parse(&text).expect("taken");
        let wanted = Limits::default()
            .with(Limit::Locks, 1000)
            .with(Limit::SessionSlots, 16)
            .with(Limit::ClientReplyBytes, 2 << 30);
        assert_eq!((config.limits, config.metrics), (wanted, Some(SocketAddr::from(([127, 0, 0, 1], 9049)))));
    }

    #[test]
    fn rpcbind_is_asked_where_others_can_reach_the_server() {
        use crate::portmap::PortMapper;
        let how = |text: &str| {
            let config = parse(&format!("{text}{ONE}")).expect("taken");
            config.rpcbind.at(&config.listen)
        };
        assert_eq!(how(""), PortMapper::IfThere);
        assert_eq!(how("listen = [\"127.0.0.1:2049\", \"[::1]:2049\"]\n"), PortMapper::Off);
        assert_eq!(how("listen = [\"127.0.0.1:2049\", \"192.0.2.7:2049\"]\n"), PortMapper::IfThere);
        assert_eq!(how("rpcbind = \"auto\"\n"), PortMapper::IfThere);
        assert_eq!(how("rpcbind = \"off\"\n"), PortMapper::Off);
        assert_eq!(how("rpcbind = \"require\"\nlisten = \"127.0.0.1:2049\"\n"), PortMapper::Required);
        for wrong in ["true", "\"on\"", "1"] {
            let all = problems(&format!("rpcbind = {wrong}\n{ONE}"));
            assert_eq!(all, ["1:11: rpcbind is \"auto\", \"off\" or \"require\""], "{wrong}");
        }
    }

    #[test]
    fn all_problems_are_named_with_their_places() {
        let text = "listen = [\"0.0.0.0\"]\nlease = 90\ncolour = \"red\"\n[[export]]\npath = \"srv\"\n\
                    clients = [{ from = \"10.0.0.1/8\", options = [\"rw\", \"ro\", \"x\"] }]\n";
        let all = problems(text);
        let places: Vec<_> = all.iter().map(|p| p.split(": ").next().unwrap_or_default()).collect();
        assert_eq!(places, ["1:11", "2:9", "3:1", "4:1", "5:8", "6:21", "6:52", "6:58"], "{all:#?}");
        assert!(all[3].contains("no log"), "{all:#?}");
    }

    #[test]
    fn what_is_wrong() {
        let with = |more: &str| format!("{ONE}{more}");
        for (text, line, part) in [
            (String::new(), 1, "nothing is exported"),
            ("[export]\npath = \"/a\"\n".into(), 1, "two brackets"),
            ("listen = [\n".into(), 1, ""),
            ("[[export]]\npath = \"/a\"\nlog = \"/l\"\n".into(), 1, "no clients"),
            ("[[export]]\npath = \"/a\"\nlog = \"/l\"\nclients = []\n".into(), 4, "clients is empty"),
            (with("durability = \"sync\"\n"), 3, "leave one of the two out"),
            (with("name = \"/a/../b\"\n"), 5, "no . or .."),
            (with("[limits]\nconnections = 0\n"), 6, "from 1 to"),
            (with("[limits]\nconnections = 10\nopens = 1\n"), 7, "opens is an integer from 16"),
            (with("[limits]\nreply_bytes = \"7M\"\n"), 6, "reply_bytes is a number with M or G, from \"8M\""),
            (with("[limits]\nreply_bytes = 100000000\n"), 6, "with M or G"),
            (with("[limits]\nslots = 4\n"), 6, "session_slots"),
            (format!("metrics = 9049\n{ONE}"), 1, "metrics is an address and port"),
            (format!("metrics = \"localhost\"\n{ONE}"), 1, "metrics is an address and port"),
            (with(&ONE.replace("/fast/log", "/fast/2")), 5, "exported twice"),
            (with(&ONE.replace("/srv/data", "/srv/data/below")), 7, "the log of another"),
            (
                with(&ONE.replace("/srv/data", "/srv/data/below").replace("/fast/log", "/fast/2")),
                5,
                "below the other",
            ),
            (
                with(
                    &ONE.replace("path", "name = \"/\"\npath")
                        .replace("data", "b")
                        .replace("/fast/log", "/2"),
                ),
                5,
                "only one",
            ),
            (ONE.replace("from = ", "sec = \"krb5\", from = "), 4, "Kerberos"),
            (ONE.replace("from = ", "options = \"async\", from = "), 4, "durability"),
            (ONE.replace("from = ", "anonuid = 4294967295, from = "), 4, "anonuid is an integer"),
            (ONE.replace("from = ", "form = "), 4, "no key \"form\""),
            (ONE.replace("\"/fast/log\"", "{ path = \"/l\", size = \"1M\" }"), 3, "at least"),
        ] {
            let all = problems(&text);
            let found = all.iter().any(|p| p.starts_with(&format!("{line}:")) && p.contains(part));
            assert!(found, "{text}\n{part} is not in {all:#?}");
        }
    }

    #[test]
    fn columns_count_characters() {
        assert!(problems("\"ä\" = 1\n").iter().any(|p| p.starts_with("1:1: ")));
        let all = problems("listen = [\"äöü\", \"x\"]\n");
        assert!(all.iter().any(|p| p.starts_with("1:18: ")), "{all:#?}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_with_a_place(text in "(\\[\\[export\\]\\]\n|path = |clients = |\\[|\\{|\\}|\\]|\"|/|from|=|,|\n|é|1| ){0,40}") {
            if let Err(all) = parse(&text) {
                prop_assert!(!all.is_empty());
                for p in all {
                    prop_assert!(p.line >= 1 && p.column >= 1 && p.line <= text.matches('\n').count() + 1);
                }
            }
        }

        #[test]
        fn a_good_file_cut_short_never_panics(at in 0usize..200) {
            let text: String = ONE.chars().take(at).collect();
            let _ = parse(&text);
        }
    }
}
