//! `landfast mount`, `umount`, `sync`, `status`: a server's directory as a filesystem of this machine.

pub mod args;

use crate::exit::{Exit, failed, ok_or_print, runtime};
use crate::outage;
use crate::say;
use args::{DirArgs, MountArgs};
use landfast_client::NfsUrl;
use landfast_mount::control::{self, Mounted};
use landfast_mount::options::Options;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub fn run(args: &MountArgs) -> Exit {
    if args.foreground || args.server { serve(args) } else { in_background(args) }
}

/// Starts a process that serves the mount, and waits until the mount is there.
fn in_background(args: &MountArgs) -> Exit {
    let Some(this) = ok_or_print(std::env::current_exe()) else { return Exit::Failed };
    let mut server = Command::new(this);
    server.args(["mount", "--server"]);
    for options in &args.options {
        server.args(["-o", options]);
    }
    server.arg("--").arg(&args.url).arg(&args.dir).stdin(Stdio::null()).stdout(Stdio::piped());
    let Some(mut server) = ok_or_print(server.spawn()) else { return Exit::Failed };
    let mut promise = String::new();
    if let Some(mut out) = server.stdout.take()
        && ok_or_print(out.read_to_string(&mut promise)).is_none()
    {
        return Exit::Failed;
    }
    if promise.is_empty() {
        // It has said why.
        let _ = server.wait();
        return Exit::Failed;
    }
    println!("{}", promise.trim_end());
    Exit::Done
}

fn serve(args: &MountArgs) -> Exit {
    let Some((url, options, log)) = ok_or_print(settings(args)) else { return Exit::Failed };
    if args.server {
        // A process group of its own: a Ctrl-C at the terminal is not for it. If that fails, it is one already.
        let _ = rustix::process::setsid();
    }
    control::writes_pages_back();
    let Some(runtime) = runtime() else { return Exit::Failed };
    let watch = outage::messages();
    let mounted = control::mount(runtime, &url, &args.url, &args.dir, options, Some(watch));
    let Some(mounted) = ok_or_print(mounted) else { return Exit::Failed };
    let Some(dir) = ok_or_print(std::path::absolute(&args.dir)) else { return Exit::Failed };
    end_on_signals(&mounted, dir);
    println!("{}", mounted.promise);
    say::flush();
    if args.server && ok_or_print(detach(log.as_deref())).is_none() {
        return Exit::Failed;
    }
    match mounted.serve() {
        Ok(lost) if lost.is_empty() => Exit::Done,
        Ok(lost) => {
            lost.iter().for_each(|line| eprintln!("landfast: {line}"));
            Exit::Partly
        }
        Err(e) => failed(format!("{}: {e}", args.dir.display())),
    }
}

/// Leaves the terminal. Messages go to `log`, or nowhere.
fn detach(log: Option<&Path>) -> std::io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    match log {
        Some(log) => rustix::stdio::dup2_stderr(File::options().append(true).create(true).open(log)?)?,
        None => rustix::stdio::dup2_stderr(&null)?,
    }
    std::env::set_current_dir("/")
}

/// SIGINT and SIGTERM unmount it. A mount that is in use stays.
fn end_on_signals(mounted: &Mounted, dir: PathBuf) {
    use tokio::signal::unix::{SignalKind, signal};
    mounted.spawn(async move {
        let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else { return };
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            let done = tokio::task::block_in_place(|| control::unmount(&dir));
            match done {
                Ok(()) => return,
                Err(e) => eprintln!("landfast: {}: {e}", dir.display()),
            }
        }
    });
}

type Settings = (NfsUrl, Options, Option<PathBuf>);

fn settings(args: &MountArgs) -> Result<Settings, Box<dyn std::error::Error>> {
    let mut options = Options { allow_other: rustix::process::geteuid().is_root(), ..Options::default() };
    args.options.iter().try_for_each(|o| options.take(o))?;
    let mut text = url_of(&args.url);
    let mut port = None;
    for (name, value) in &options.url {
        match name.as_str() {
            "port" => port = Some(value.parse().map_err(|_| format!("'{value}' is not a port"))?),
            name => text.push_str(&format!("{}{name}={value}", if text.contains('?') { '&' } else { '?' })),
        }
    }
    let mut url: NfsUrl = text.parse().map_err(|e| format!("{}: {e}", args.url))?;
    url.port = port.unwrap_or(url.port);
    let log = options.log.clone().map(PathBuf::from);
    Ok((url, options, log))
}

/// `HOST:/PATH`, as mount.nfs takes it, as a URL.
fn url_of(source: &str) -> String {
    match source.split_once(":/") {
        Some((host, path)) if !source.contains("://") => {
            let path: String = path
                .chars()
                .map(|c| match c {
                    '%' => "%25".to_owned(),
                    '?' => "%3F".to_owned(),
                    '#' => "%23".to_owned(),
                    c => c.to_string(),
                })
                .collect();
            format!("nfs://{host}/{path}")
        }
        _ => source.to_owned(),
    }
}

/// Prints what was lost.
fn told(dir: &Path, done: std::io::Result<Vec<String>>) -> Exit {
    match done {
        Ok(lost) if lost.is_empty() => Exit::Done,
        Ok(lost) => {
            lost.iter().for_each(|line| eprintln!("{line}"));
            Exit::Partly
        }
        Err(e) => failed(format!("{}: {e}", dir.display())),
    }
}

/// Makes everything stable before, so that what was lost has a reader. It is said of a mount that is in use, too: nobody hears of it again.
pub fn unmount(args: &DirArgs) -> Exit {
    let synced = control::sync(&args.dir);
    let there = synced.is_ok();
    let told = told(&args.dir, synced);
    if !there {
        return told;
    }
    match control::unmount(&args.dir) {
        Ok(()) => told,
        Err(e) => failed(format!("{}: {e}", args.dir.display())),
    }
}

pub fn sync(args: &DirArgs) -> Exit {
    told(&args.dir, control::sync(&args.dir))
}

pub fn status(args: &DirArgs) -> Exit {
    match control::status(&args.dir) {
        Ok(text) => {
            let _ = write!(say::stdout(), "{text}");
            Exit::Done
        }
        Err(e) => failed(format!("{}: {e}", args.dir.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_as_mount_nfs_takes_it_is_a_url() {
        assert_eq!(url_of("nas:/a/b c?"), "nfs://nas/a/b c%3F");
        assert_eq!(url_of("nfs://nas/a?version=3"), "nfs://nas/a?version=3");
        assert_eq!(url_of("[::1]:/x"), "nfs://[::1]/x");
    }

    #[test]
    fn options_of_the_server_are_the_urls() {
        let args = |options: &[&str]| MountArgs {
            url: "nas:/x".into(),
            dir: "/mnt".into(),
            options: options.iter().map(|o| (*o).to_owned()).collect(),
            foreground: false,
            server: false,
        };
        let (url, options, log) =
            settings(&args(&["vers=4.1,nconnect=4,port=2050", "ro,log=/tmp/l"])).unwrap();
        assert_eq!(
            (url.port, url.nconnect, url.version),
            (2050, Some(4), Some(landfast_client::Version::V41))
        );
        assert!(options.read_only && log == Some(PathBuf::from("/tmp/l")));
        assert!(settings(&args(&["vers=5"])).is_err() && settings(&args(&["port=x"])).is_err());
    }
}
