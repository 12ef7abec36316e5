//! The arguments of `landfast mount`, `umount`, `sync` and `status`, and of `mount.landfast`, which mount(8) calls.

use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub const HELP: &str = "\
Options of -o, separated by commas:
  vers=3|4.0|4.1|4.2   version of NFS; default: the highest that both sides have
  port=N, mountport=N, nconnect=N (1 to 16)
  hard                 wait for the server for ever (default)
  soft, timeo=TENTHS   give a request up after so many tenths of a second (default 600)
  actimeo=SECONDS      answer attributes and names from memory for so long (default: files 1, directories 30; 0: ask each time)
  acdirmin=SECONDS     the same for directories only
  close=wait|local     whether close, and changes of names, wait for the server (default wait). local: where the server
                       delegates a directory they do not; fsync, `landfast sync` and `landfast umount` wait
  flush_age=SECONDS    how old such a change becomes before it is sent (default 1)
  hold=SECONDS         keep a new file back until it is closed, at most so long (default 1; 0: never)
  allow_other          all users may use the mount (default when root mounts)
  owner_only           only the user who mounts may use it
  nolock               locks are kept on this machine
  ro, nosuid, nodev, noexec, noatime, dev, suid
  log=FILE             messages of the mount go there
Exit status: 0 mounted (or unmounted), 1 something that was written is lost, 2 not mounted.";

#[derive(Debug, Args)]
pub struct MountArgs {
    /// nfs://HOST[:PORT]/PATH, or HOST:/PATH as mount.nfs takes it
    pub url: String,
    /// An existing directory
    pub dir: PathBuf,
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Stay in the foreground, with messages on standard error
    #[arg(long)]
    pub foreground: bool,
    /// The process that serves the mount, as the one in the foreground starts it
    #[arg(long, hide = true)]
    pub server: bool,
}

#[derive(Debug, Args)]
pub struct DirArgs {
    /// A directory in the mount; for umount the one that it is mounted on
    pub dir: PathBuf,
}

/// The command line as our own: mount(8) calls us as `mount.landfast`. `None`: there is nothing to do.
pub fn as_called(args: Vec<OsString>) -> Option<Vec<OsString>> {
    let name = args.first().and_then(|a| Path::new(a).file_name());
    if name.is_some_and(|n| n == "mount.landfast") { as_helper(&args) } else { Some(args) }
}

/// What mount(8) calls us with, as our own arguments. `None`: there is nothing to do (`-f`).
fn as_helper(args: &[OsString]) -> Option<Vec<OsString>> {
    let mut own: Vec<OsString> = ["landfast", "mount"].map(OsString::from).to_vec();
    let mut rest = args.iter().skip(1);
    while let Some(arg) = rest.next() {
        match arg.to_str() {
            Some("-o") => own.extend([arg.clone(), rest.next().cloned().unwrap_or_default()]),
            // The type and the namespace are known.
            Some("-t" | "-N") => drop(rest.next()),
            Some(flags)
                if flags.len() > 1
                    && flags.strip_prefix('-').is_some_and(|f| f.chars().all(|c| "sfnv".contains(c))) =>
            {
                if flags.contains('f') {
                    return None;
                }
            }
            _ => own.push(arg.clone()),
        }
    }
    Some(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(args: &[&str]) -> Option<Vec<String>> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        as_helper(&args).map(|own| own.into_iter().map(|a| a.into_string().unwrap()).collect())
    }

    #[test]
    fn mount_8_calls_it_with_flags_of_its_own() {
        let own =
            called(&["/sbin/mount.landfast", "nfs://h/p", "/mnt", "-sn", "-o", "rw,ro", "-t", "landfast"]);
        assert_eq!(own.unwrap(), ["landfast", "mount", "nfs://h/p", "/mnt", "-o", "rw,ro"]);
        assert_eq!(called(&["mount.landfast", "h:/p", "/mnt", "-f"]), None);
    }
}
