//! What `-o` takes. Pure.

use std::time::Duration;

use crate::limits::{
    DIR_MEMORY_AGE, FLUSH_AGE, FLUSH_AGE_MAX, HOLD_AGE, HOLD_AGE_MAX, MEMORY_AGE, MEMORY_AGE_MAX,
    OFFLINE_AGE, OFFLINE_AGE_MAX, SOFT_DEFAULT,
};

/// Options of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long attributes and names are answered from memory (`actimeo`).
    pub memory: Duration,
    /// The same for directories, and names that lead to them (`acdirmin`).
    pub dir_memory: Duration,
    /// How long a new file may be held back; zero: never (`hold`).
    pub hold: Duration,
    /// Close(2) and changes of names return before the server has heard of them, where a write delegation lets them (`close=local`).
    pub local: bool,
    /// How old such changes become (`flush_age`).
    pub flush_age: Duration,
    /// How long they go on while the server takes none (`offline`).
    pub offline: Duration,
    /// A request is given up after [`Options::timeo`]; else never (`soft`, `hard`).
    pub soft: bool,
    /// How long a request of a soft mount may take.
    pub timeo: Duration,
    /// `ro`
    pub read_only: bool,
    /// Other users may use the mount (`allow_other`).
    pub allow_other: bool,
    /// Locks are kept on this machine and not told to the server (`nolock`).
    pub local_locks: bool,
    /// Where the messages of a mount in the background go (`log`).
    pub log: Option<String>,
    /// Options that are the URL's: `vers`, `nconnect`, `port`, `mountport`, `uid`, `gid`.
    pub url: Vec<(String, String)>,
    /// Options that the kernel takes as they are: `nosuid`, `nodev`, `noexec`, `noatime` and their opposites, `dirsync`.
    pub kernel: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory: MEMORY_AGE,
            dir_memory: DIR_MEMORY_AGE,
            hold: HOLD_AGE,
            local: false,
            flush_age: FLUSH_AGE,
            offline: OFFLINE_AGE,
            soft: false,
            timeo: SOFT_DEFAULT,
            read_only: false,
            allow_other: false,
            local_locks: false,
            log: None,
            url: Vec::new(),
            kernel: Vec::new(),
        }
    }
}

/// An option that is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error("unknown mount option '{0}'")]
    Unknown(String),
    #[error("mount option '{option}': '{value}' is not {wanted}")]
    Value { option: String, value: String, wanted: String },
}

/// Options of `mount` and of fstab that mean nothing here: what calls us has obeyed them, or they only concern it.
const IGNORED: [&str; 13] = [
    "defaults", "auto", "noauto", "user", "users", "nouser", "nousers", "_netdev", "nofail", "rw", "async",
    "tcp", "relatime",
];

/// Options of nfs(5) that say what is so anyway: what Linux does without them, or does not look at.
const SO_ANYWAY: [&str; 4] = ["proto=tcp", "sec=sys", "intr", "nointr"];

impl Options {
    /// Takes comma-separated options, in addition to what is there.
    ///
    /// # Errors
    /// An option is unknown, or has a value that it cannot have.
    pub fn take(&mut self, text: &str) -> Result<(), OptionError> {
        text.split(',').filter(|o| !o.is_empty()).try_for_each(|option| self.one(option))
    }

    /// How long a request may take; `None`: for ever.
    pub fn patience(&self) -> Option<Duration> {
        self.soft.then_some(self.timeo)
    }

    fn one(&mut self, option: &str) -> Result<(), OptionError> {
        let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
        match (name, value) {
            ("actimeo", Some(v)) => {
                self.memory = seconds(name, v, MEMORY_AGE_MAX)?;
                self.dir_memory = self.memory;
            }
            ("acdirmin", Some(v)) => self.dir_memory = seconds(name, v, MEMORY_AGE_MAX)?,
            ("noac", None) => (self.memory, self.dir_memory) = (Duration::ZERO, Duration::ZERO),
            ("hold", Some(v)) => self.hold = seconds(name, v, HOLD_AGE_MAX)?,
            ("close", Some("wait")) => self.local = false,
            ("close", Some("local")) => self.local = true,
            ("close", Some(v)) => return Err(wrong(name, v, "'wait' or 'local'")),
            ("flush_age", Some(v)) => self.flush_age = seconds(name, v, FLUSH_AGE_MAX)?,
            ("offline", Some(v)) => self.offline = seconds(name, v, OFFLINE_AGE_MAX)?,
            ("soft", None) => self.soft = true,
            ("hard", None) => self.soft = false,
            // As in nfs(5): tenths of a second.
            ("timeo", Some(v)) => {
                let wanted = "a positive number of tenths of a second";
                let tenths: Option<u32> = v.parse().ok().filter(|t| *t > 0);
                self.timeo =
                    Duration::from_millis(u64::from(tenths.ok_or_else(|| wrong(name, v, wanted))?) * 100);
            }
            ("ro", None) => self.read_only = true,
            ("allow_other", None) => self.allow_other = true,
            ("owner_only", None) => self.allow_other = false,
            ("log", Some(v)) if !v.is_empty() => self.log = Some(v.into()),
            ("nolock" | "local_lock", None | Some("all")) => self.local_locks = true,
            ("vers" | "nfsvers" | "version", Some(v)) => self.url.push(("version".into(), v.into())),
            ("nconnect" | "mountport" | "uid" | "gid" | "port", Some(v)) => {
                self.url.push((name.into(), v.into()))
            }
            (
                "suid" | "nosuid" | "dev" | "nodev" | "exec" | "noexec" | "atime" | "noatime" | "dirsync",
                None,
            ) => {
                self.kernel.push(name.into());
            }
            _ if SO_ANYWAY.contains(&option) => {}
            (name, None) if IGNORED.contains(&name) || name.starts_with("x-") => {}
            (name, Some(_)) if name.starts_with("x-") => {}
            _ => return Err(OptionError::Unknown(option.to_owned())),
        }
        Ok(())
    }
}

fn wrong(option: &str, value: &str, wanted: &str) -> OptionError {
    OptionError::Value { option: option.into(), value: value.into(), wanted: wanted.into() }
}

fn seconds(option: &str, value: &str, most: Duration) -> Result<Duration, OptionError> {
    let range = || wrong(option, value, &format!("a number of seconds from 0 to {}", most.as_secs()));
    let duration = value.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    duration.filter(|d| *d <= most).ok_or_else(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> Result<Options, OptionError> {
        let mut options = Options::default();
        options.take(text).map(|()| options)
    }

    #[test]
    fn options_of_fstab_are_taken() {
        let o =
            taken("rw,_netdev,x-systemd.automount,x-a=b,soft,timeo=30,actimeo=0.5,hold=0,vers=4.1,nosuid")
                .unwrap();
        assert_eq!(o.patience(), Some(Duration::from_secs(3)));
        assert_eq!((o.memory, o.dir_memory), (Duration::from_millis(500), Duration::from_millis(500)));
        assert_eq!(o.hold, Duration::ZERO);
        assert_eq!(taken("acdirmin=2").unwrap().dir_memory, Duration::from_secs(2));
        assert_eq!((o.url, o.kernel), (vec![("version".into(), "4.1".into())], vec!["nosuid".into()]));
        assert_eq!(taken("defaults"), Ok(Options::default()));
        assert_eq!(taken("relatime,proto=tcp,sec=sys,intr"), Ok(Options::default()));
        assert!(taken("proto=udp").is_err() && taken("sec=krb5").is_err() && taken("intr=1").is_err());
        assert_eq!(taken("hard,timeo=30").unwrap().patience(), None);
    }

    #[test]
    fn what_is_not_known_is_refused_and_named() {
        assert_eq!(taken("ro,wibble").unwrap_err().to_string(), "unknown mount option 'wibble'");
        let e = taken("actimeo=soon").unwrap_err().to_string();
        assert_eq!(e, "mount option 'actimeo': 'soon' is not a number of seconds from 0 to 3600");
        assert!(taken("close=local,flush_age=0.2").is_ok_and(|o| o.local && o.flush_age.as_millis() == 200));
        assert_eq!(taken("offline=0").unwrap().offline, Duration::ZERO);
        assert!(taken("offline=3600").is_ok() && taken("offline=3601").is_err());
        assert!(taken("close=local,close=wait").is_ok_and(|o| !o.local));
        assert!(taken("close=soon").is_err() && taken("flush_age=31").is_err() && taken("close").is_err());
        assert!(taken("hold=-1").is_err() && taken("hold=31").is_err() && taken("timeo=0").is_err());
        assert!(taken("actimeo=nan").is_err() && taken("ro=1").is_err());
    }
}
