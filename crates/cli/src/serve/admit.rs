//! Translates the arguments of `landfast serve DIR` into addresses and access rules, and these into words. Pure, but
//! for the test whether this machine has IPv6.

use super::args::{ServeArgs, SquashArg};
use landfast_server::exports::rules::{ClientSpec, Rule, Squash};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

const PORT: u16 = 2049;

/// Where to listen, and the rule for all clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    pub listen: Vec<SocketAddr>,
    pub rule: Rule,
}

/// The error says what to type: without a rule everyone on the network could act as root.
pub fn admit(args: &ServeArgs) -> Result<Admitted, String> {
    let named = !args.allow.is_empty() || args.squash != SquashArg::None;
    let listen = match args.listen {
        Some(addr) if named || addr.ip().is_loopback() => vec![addr],
        Some(addr) => return Err(refusal(addr)),
        None if named => vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT))],
        None => local(),
    };
    let from = if args.allow.is_empty() { vec![ClientSpec::Anyone] } else { args.allow.clone() };
    let squash = match args.squash {
        SquashArg::None => Squash::Nobody,
        SquashArg::Root => Squash::Root,
        SquashArg::All => Squash::All,
    };
    Ok(Admitted { listen, rule: Rule { squash, ..Rule::open(from) } })
}

fn refusal(addr: SocketAddr) -> String {
    format!(
        "--listen {addr} can be reached from other machines, and whoever says there that they are root would be root here: name \
         who may, --listen {addr} --allow 192.168.7.0/24, or make root nobody, --listen {addr} --squash root; or serve this \
         machine only, without --listen"
    )
}

fn local() -> Vec<SocketAddr> {
    let mut all = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))];
    // A bind to any port tells whether the address exists.
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        all.push(SocketAddr::from((Ipv6Addr::LOCALHOST, PORT)));
    }
    all
}

impl Admitted {
    pub fn is_local(&self) -> bool {
        self.listen.iter().all(|addr| addr.ip().is_loopback())
    }

    /// Who is served, and as which user.
    pub fn words(&self, unprivileged: bool) -> String {
        let joined = |all: Vec<String>| match all.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, first)) => format!("{} and {last}", first.join(", ")),
            None => String::new(),
        };
        let anyone = self.rule.from.contains(&ClientSpec::Anyone);
        let to = match (self.is_local(), anyone) {
            (true, true) => {
                let addresses = joined(self.listen.iter().map(|addr| addr.ip().to_string()).collect());
                format!("{addresses}, this machine only")
            }
            (false, true) => "everyone who reaches it".to_owned(),
            (_, false) => joined(self.rule.from.iter().map(ToString::to_string).collect()),
        };
        let who = match self.rule.squash {
            _ if unprivileged => "everyone is the user that runs the server",
            Squash::Nobody => "root is root, and all others are who they say",
            Squash::Root => "root is nobody, and all others are who they say",
            Squash::All => "everyone is nobody",
        };
        format!("{to}: {who}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn admitted(options: &[&str]) -> Result<Admitted, String> {
        let cli =
            Cli::try_parse_from([&["landfast", "serve", "/srv/data", "--log", "/log"], options].concat());
        let Ok(Cli { command: Command::Serve(args), .. }) = cli else { panic!("{options:?}") };
        admit(&args)
    }

    fn words(options: &[&str]) -> String {
        let admitted = admitted(options).unwrap();
        let at: Vec<_> = admitted.listen.iter().map(ToString::to_string).collect();
        format!("{}; {}", at.join(" "), admitted.words(false))
    }

    #[test]
    fn the_network_gets_in_only_where_somebody_said_so() {
        let local = words(&[]);
        assert!(
            local.starts_with("127.0.0.1:2049") && local.contains("this machine only: root is root"),
            "{local}"
        );
        assert_eq!(
            words(&["--listen", "127.0.0.1:0"]),
            "127.0.0.1:0; 127.0.0.1, this machine only: root is root, and all others are who they say"
        );
        for listen in ["0.0.0.0:2049", "[::]:2049", "192.0.2.7:2049", "[2001:db8::7]:2049"] {
            let why = admitted(&["--listen", listen]).unwrap_err();
            assert!(
                why.contains(&format!("--listen {listen} --allow")) && why.contains("--squash root"),
                "{why}"
            );
            assert!(words(&["--listen", listen, "--squash", "all"]).ends_with("everyone is nobody"));
        }
        assert_eq!(
            words(&["--allow", "10.0.0.0/8", "--allow", "a.example.org"]),
            "0.0.0.0:2049; 10.0.0.0/8 and a.example.org: root is root, and all others are who they say"
        );
        assert_eq!(
            words(&["--allow", "*", "--squash", "root"]),
            "0.0.0.0:2049; everyone who reaches it: root is nobody, and all others are who they say"
        );
    }
}
