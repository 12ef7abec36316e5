//! URLs as operands: the server, the path there, and the name in messages.

use crate::outage;
use landfast_client::fs::{ItemError, Nfs, Object, Outcome};
use landfast_client::session::SessionError;
use landfast_client::url::UrlError;
use landfast_client::{NfsUrl, Session, SessionOptions};
use std::time::Duration;
use tokio::task::JoinSet;

/// Up to this many places are looked up independently of each other.
const LOOKED_FOR: usize = 32;

#[derive(Debug, Clone)]
pub struct Operand {
    /// As typed, without the options behind `?`.
    pub shown: String,
    pub url: NfsUrl,
    /// It ends in `/`, so that a symbolic link is followed.
    pub slash: bool,
}

impl Operand {
    pub fn parse(text: &str) -> Result<Operand, UrlError> {
        let url: NfsUrl = text.parse()?;
        let shown = text.split_once('?').map_or(text, |(shown, _)| shown);
        let slash = shown.ends_with('/') && !url.path.is_empty();
        Ok(Operand { shown: shown.to_owned(), url, slash })
    }

    /// `nfs://HOST:PORT` as typed.
    fn authority(&self) -> &str {
        let rest = self.shown.strip_prefix("nfs://").unwrap_or(&self.shown);
        let len = rest.find('/').unwrap_or(rest.len());
        &self.shown[..self.shown.len() - rest.len() + len]
    }

    /// Whether its last name is `.`, so that its own name in its directory is not known.
    pub fn ends_in_dot(&self) -> bool {
        let path = self.shown[self.authority().len()..].trim_end_matches('/');
        path.rsplit('/').next().is_some_and(|name| name == "." || name.eq_ignore_ascii_case("%2e"))
    }

    /// The first `count` names of its path, as they appear in messages.
    pub fn shown_above(&self, count: usize) -> String {
        let names = self.shown[self.authority().len()..].split('/').filter(|n| !n.is_empty() && *n != ".");
        names.take(count).fold(self.authority().to_owned(), |all, name| all + "/" + name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    tree: usize,
    /// The index of the first connection to the same server.
    server: usize,
    pub path: Vec<Vec<u8>>,
    slash: bool,
}

impl Place {
    pub fn joined(&self) -> Vec<u8> {
        self.path.join(&b'/')
    }

    /// Resolves a path (of raw bytes) relative to this place, or to the server's root if it begins with `/`.
    pub fn at(&self, path: &[u8]) -> Place {
        let from: &[Vec<u8>] = if path.starts_with(b"/") { &[] } else { &self.path };
        let names = path.split(|b| *b == b'/').filter(|name| !name.is_empty() && *name != b".");
        let slash = path.ends_with(b"/");
        let path = from.iter().cloned().chain(names.map(<[u8]>::to_vec)).collect();
        Place { tree: self.tree, server: self.server, path, slash }
    }

    pub fn beside(&self, other: &Place) -> bool {
        self.tree == other.tree
    }

    /// Whether both are on one server, whatever its names are.
    pub fn on_one_server(&self, other: &Place) -> bool {
        self.server == other.server
    }

    pub fn and_above(&self) -> impl Iterator<Item = Place> {
        std::iter::successors(Some(self.clone()), |place| place.split().map(|(above, _)| above))
    }

    pub fn split(&self) -> Option<(Place, &[u8])> {
        let (name, above) = self.path.split_last()?;
        let Place { tree, server, .. } = *self;
        Some((Place { tree, server, path: above.to_vec(), slash: false }, name))
    }
}

#[derive(Default)]
pub struct Servers {
    trees: Vec<(NfsUrl, Nfs)>,
    /// For each connection the index of the first one to the same server.
    servers: Vec<usize>,
    /// The number by which the first server knows this client; further servers get the numbers after it.
    pub instance: Option<u64>,
    /// How long a server may not reply before it is given up.
    timeout: Option<Duration>,
}

impl Servers {
    pub fn new(timeout: Option<Duration>) -> Servers {
        Servers { timeout, ..Servers::default() }
    }

    pub fn options(&self, url: &NfsUrl) -> SessionOptions {
        outage::with_messages(SessionOptions::for_url(url), self.timeout)
    }

    /// Resolves an operand. Connects to its server if there is no connection yet.
    pub async fn place(&mut self, operand: &Operand) -> Result<Place, SessionError> {
        let url = &operand.url;
        let server = top(url);
        let tree = match self.trees.iter().position(|(known, _)| *known == server) {
            Some(n) => n,
            None => {
                let number = self.trees.len() as u64;
                let instance = self.instance.map(|first| first.wrapping_add(number));
                let options = SessionOptions { instance, ..self.options(&server) };
                let session = Session::connect(options).await?;
                let mut same = self.trees.len();
                for (n, (_, nfs)) in self.trees.iter().enumerate() {
                    if session.is_same_server(nfs.session()).await {
                        same = self.servers[n];
                        break;
                    }
                }
                self.servers.push(same);
                self.trees.push((server, Nfs::rooted(session)));
                self.trees.len() - 1
            }
        };
        let server = self.servers[tree];
        Ok(Place { tree, server, path: url.path.clone(), slash: operand.slash })
    }

    /// The place of an operand, supposing that its server becomes the first connection.
    pub fn first_place(operand: &Operand) -> Place {
        Place { tree: 0, server: 0, path: operand.url.path.clone(), slash: operand.slash }
    }

    /// Adds the first connection, to the server of this URL.
    pub fn first(&mut self, url: &NfsUrl, session: Session) {
        debug_assert!(self.trees.is_empty(), "others are compared with it");
        self.servers.push(0);
        self.trees.push((top(url), Nfs::rooted(session)));
    }

    pub fn nfs(&self, place: &Place) -> &Nfs {
        &self.trees[place.tree].1
    }

    pub fn trees(&self) -> impl Iterator<Item = &Nfs> {
        self.trees.iter().map(|(_, nfs)| nfs)
    }

    /// The places by their connections, as indices into `places`.
    pub fn by_tree<'a>(&self, places: impl IntoIterator<Item = &'a Place>) -> Vec<(&Nfs, Vec<usize>)> {
        let mut all: Vec<(&Nfs, Vec<usize>)> = self.trees.iter().map(|(_, nfs)| (nfs, Vec::new())).collect();
        for (n, place) in places.into_iter().enumerate() {
            all[place.tree].1.push(n);
        }
        all.retain(|(_, numbers)| !numbers.is_empty());
        all
    }

    /// Looks places up. With `follow`, or where a URL ends in `/`, symbolic links are followed.
    pub async fn look(&self, places: &[Place], follow: bool) -> Vec<Result<Object, ItemError>> {
        let mut found: Vec<Option<Result<Object, ItemError>>> = places.iter().map(|_| None).collect();
        for (nfs, numbers) in self.by_tree(places) {
            let (followed, own): (Vec<_>, Vec<_>) =
                numbers.into_iter().partition(|n| follow || places[*n].slash);
            let paths =
                |numbers: &[usize]| -> Vec<_> { numbers.iter().map(|n| places[*n].joined()).collect() };
            let outcomes = tokio::join!(nfs.getattrs(paths(&own)), nfs.getattrs_followed(paths(&followed)));
            let outcomes = outcomes.0.into_iter().chain(outcomes.1);
            for (n, outcome) in own.into_iter().chain(followed).zip(outcomes) {
                found[n] = Some(outcome.into_result());
            }
        }
        let none = || Outcome::from(SessionError::Ended).into_result();
        found.into_iter().map(|f| f.unwrap_or_else(none)).collect()
    }

    /// The same. If there is one place, and it is a directory, its listing starts as well.
    pub async fn look_into(&self, places: &[Place], follow: bool) -> Vec<Result<Object, ItemError>> {
        match places {
            [place] => {
                let found = self.nfs(place).look_into(&place.joined(), follow || place.slash).await;
                vec![found.into_result()]
            }
            _ => self.look(places, follow).await,
        }
    }

    /// Looks a few places up and follows symbolic links. Some may be missing: each has a COMPOUND of its own, since a
    /// failed operation ends its COMPOUND.
    pub async fn look_for(&self, places: &[Place]) -> Vec<Result<Object, ItemError>> {
        if places.len() > LOOKED_FOR {
            return self.look(places, true).await;
        }
        let mut looking = JoinSet::new();
        for (n, place) in places.iter().enumerate() {
            let (nfs, path) = (self.nfs(place).clone(), place.joined());
            looking.spawn(async move { (n, nfs.getattrs_followed([path]).await.pop()) });
        }
        let none = || Outcome::from(SessionError::Ended).into_result();
        let mut found: Vec<_> = places.iter().map(|_| none()).collect();
        while let Some(looked) = looking.join_next().await {
            if let Ok((n, Some(outcome))) = looked {
                found[n] = outcome.into_result();
            }
        }
        found
    }

    pub fn rpcs(&self) -> u64 {
        self.trees.iter().map(|(_, nfs)| nfs.stats().rpcs).sum()
    }

    pub fn bytes(&self) -> (u64, u64) {
        let all = self.trees.iter().map(|(_, nfs)| nfs.stats());
        all.fold((0, 0), |(sent, received), s| (sent + s.bytes_sent, received + s.bytes_received))
    }

    pub async fn close(self) {
        for (_, nfs) in self.trees {
            nfs.disconnect().await;
        }
    }
}

/// The URL of the server's root: the same for all URLs that can share a connection.
fn top(url: &NfsUrl) -> NfsUrl {
    NfsUrl { path: Vec::new(), ..url.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_as_typed() {
        let operand = Operand::parse("nfs://h:1//a/b%20c/?version=3").expect("a URL");
        assert_eq!(operand.shown, "nfs://h:1//a/b%20c/");
        assert!(operand.slash);
        assert_eq!(operand.shown_above(0), "nfs://h:1");
        assert_eq!(operand.shown_above(2), "nfs://h:1/a/b%20c");
        assert!(!Operand::parse("nfs://h/").expect("a URL").slash);
        for (text, dot) in
            [("nfs://h/a/.", true), ("nfs://h/a/%2E//", true), ("nfs://h/a.", false), ("nfs://.", false)]
        {
            assert_eq!(Operand::parse(text).expect("a URL").ends_in_dot(), dot, "{text}");
        }
    }
}
