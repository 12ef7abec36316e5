//! No circles: within a crate no file uses a file that uses it, directly or through others.
//!
//! Read from the source's tokens: each path that begins with `crate`, `super`, `self` or a module of the file itself is an arrow to the file that
//! defines the name; names that a module hands on (`pub use`) count as their origin's. Test modules are not read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A module's path from the root of its crate.
type Module = Vec<String>;

/// Arrows from a file's module to others', each with the names that it uses.
type Arrows = BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>>;

#[test]
fn no_crate_has_a_circle_of_files() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut names: Vec<_> =
        fs::read_dir(&crates).expect("the crates").map(|e| e.expect("an entry").file_name()).collect();
    names.sort();
    let mut told = String::new();
    for name in names {
        let house = Crate::read(&crates.join(&name).join("src"));
        let arrows = house.arrows();
        for circle in circles(&arrows) {
            let files: Vec<String> = circle.iter().map(|module| house.file_of(module)).collect();
            told += &format!("{}: {}\n", name.display(), files.join(" "));
            for (from, to, used) in inner(&arrows, &circle) {
                told += &format!("    {} -> {}: {used}\n", house.file_of(from), house.file_of(to));
            }
        }
    }
    assert!(told.is_empty(), "circles, with the names that one file takes from another:\n{told}");
}

/// A room is a module of a crate's first level, with all that is in it.
#[test]
fn no_room_of_the_client_uses_a_room_that_uses_it() {
    let client = Crate::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/client/src"));
    let mut rooms = Arrows::new();
    for (module, to) in client.arrows() {
        let Some(room) = module.first() else { continue };
        let used = rooms.entry(vec![room.clone()]).or_default();
        for (other, names) in to {
            if let Some(other) = other.first().filter(|other| *other != room) {
                used.entry(vec![other.clone()]).or_default().extend(names);
            }
        }
    }
    assert!(rooms.contains_key(&["fs".to_owned()][..]), "the client's rooms are read");
    let told: Vec<_> = circles(&rooms).iter().map(|circle| format!("{:?}", inner(&rooms, circle))).collect();
    assert!(told.is_empty(), "{told:#?}");
}

/// What was read of one crate.
#[derive(Default)]
struct Crate {
    /// Each module that is a file, with the file below `src` and its tokens.
    files: BTreeMap<Module, (PathBuf, TokenStream)>,
    /// Modules within files, and the module that is the file.
    inline: BTreeMap<Module, Module>,
    /// Names that a module hands on, and where they come from; `*` stands for all names of a module.
    handed_on: BTreeMap<Module, Vec<(String, Module)>>,
}

impl Crate {
    fn read(src: &Path) -> Crate {
        let mut house = Crate::default();
        let root = if src.join("lib.rs").exists() { "lib.rs" } else { "main.rs" };
        house.take(src, &PathBuf::from(root), Vec::new(), &PathBuf::new());
        for (module, (_, tokens)) in house.files.clone() {
            house.learn_what_is_handed_on(&module, tokens);
        }
        house
    }

    /// One file, and the modules that it declares; `below` is where their files are.
    fn take(&mut self, src: &Path, file: &Path, module: Module, below: &Path) {
        let text = fs::read_to_string(src.join(file)).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let tokens: TokenStream = text.parse().unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        self.files.insert(module.clone(), (file.to_owned(), tokens.clone()));
        self.take_modules(src, tokens, &module, &module, below);
    }

    fn take_modules(
        &mut self,
        src: &Path,
        tokens: TokenStream,
        file: &Module,
        module: &Module,
        below: &Path,
    ) {
        for declared in modules(tokens) {
            let mut inner = module.clone();
            inner.push(declared.name.clone());
            let folder = below.join(&declared.name);
            match declared.body {
                Some(body) => {
                    self.inline.insert(inner.clone(), file.clone());
                    self.take_modules(src, body, file, &inner, &folder);
                }
                None => {
                    let flat = below.join(format!("{}.rs", declared.name));
                    let file = if src.join(&flat).exists() { flat } else { folder.join("mod.rs") };
                    self.take(src, &file, inner, &folder);
                }
            }
        }
    }

    fn is_module(&self, module: &[String]) -> bool {
        self.files.contains_key(module) || self.inline.contains_key(module)
    }

    fn learn_what_is_handed_on(&mut self, module: &Module, tokens: TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            if !is(token, "use") || !is_public(&tokens, at) {
                continue;
            }
            for path in paths(&tokens[at + 1..]) {
                if let Some(absolute) = self.absolute(module, &path.segments) {
                    let name = path.called.unwrap_or_else(|| absolute.last().cloned().unwrap_or_default());
                    self.handed_on.entry(module.clone()).or_default().push((name, absolute));
                }
            }
        }
    }

    /// A path from the crate's root; `None` if it leads out of the crate.
    fn absolute(&self, module: &Module, segments: &[String]) -> Option<Module> {
        let mut at = module.clone();
        let mut rest = segments;
        match segments.first()?.as_str() {
            "crate" => at = Vec::new(),
            "self" => {}
            "super" => {
                while rest.first().is_some_and(|s| s == "super") {
                    at.pop()?;
                    rest = &rest[1..];
                }
                at.extend(rest.iter().cloned());
                return Some(at);
            }
            first => {
                at.push(first.to_owned());
                if !self.is_module(&at) {
                    return None;
                }
            }
        }
        rest = &rest[1..];
        at.extend(rest.iter().cloned());
        Some(at)
    }

    /// The file's module in which what a path names is defined, and its name.
    fn origin(&self, absolute: &[String], depth: usize) -> Option<(Module, String)> {
        let mut module: Module = Vec::new();
        let mut rest = absolute;
        while let Some(next) = rest.first() {
            let mut inner = module.clone();
            inner.push(next.clone());
            if !self.is_module(&inner) {
                break;
            }
            module = inner;
            rest = &rest[1..];
        }
        let name = rest.first().cloned().unwrap_or_else(|| "itself".to_owned());
        if depth < 8 && !rest.is_empty() {
            let handed_on = self.handed_on.get(&module).map(Vec::as_slice).unwrap_or_default();
            if let Some((_, from)) = handed_on.iter().find(|(n, _)| *n == name) {
                return self.origin(from, depth + 1);
            }
            if !self.defines(&module, &name) {
                for (_, from) in handed_on.iter().filter(|(n, _)| n == "*") {
                    let mut through = from[..from.len() - 1].to_vec();
                    through.push(name.clone());
                    let origin = self.origin(&through, depth + 1)?;
                    if self.defines(&origin.0, &name) {
                        return Some(origin);
                    }
                }
            }
        }
        let file = self.inline.get(&module).unwrap_or(&module).clone();
        Some((file, name))
    }

    fn defines(&self, module: &Module, name: &str) -> bool {
        let file = self.inline.get(module).unwrap_or(module);
        let words = ["struct", "enum", "fn", "trait", "type", "const", "static", "union", "mod"];
        self.files.get(file).is_some_and(|(_, tokens)| {
            let tokens: Vec<_> = tokens.clone().into_iter().collect();
            tokens.windows(2).any(|w| words.iter().any(|word| is(&w[0], word)) && is(&w[1], name))
        })
    }

    fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (module, (_, tokens)) in &self.files {
            let mut used = Vec::new();
            self.collect(module, tokens.clone(), &mut used);
            let to = arrows.entry(module.clone()).or_default();
            for absolute in used {
                let Some((origin, name)) = self.origin(&absolute, 0) else { continue };
                // That a module stands in another one is no use of it.
                if origin != *module {
                    to.entry(origin).or_default().insert(name);
                }
            }
        }
        arrows
    }

    /// All paths of a module's text that stay in the crate, but for names that it only hands on.
    fn collect(&self, module: &Module, tokens: TokenStream, used: &mut Vec<Module>) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            if is_test(&tokens, at) {
                at = past_item(&tokens, at);
                continue;
            }
            if is(&tokens[at], "use") {
                let handed_on = is_public(&tokens, at);
                let end = (at..tokens.len()).find(|i| is_punct(&tokens[*i], ';')).unwrap_or(tokens.len());
                if !handed_on {
                    used.extend(
                        paths(&tokens[at + 1..end]).iter().filter_map(|p| self.absolute(module, &p.segments)),
                    );
                }
                at = end;
                continue;
            }
            if is(&tokens[at], "mod") && tokens.get(at + 2).is_some_and(|t| is_group(t, Delimiter::Brace)) {
                let (TokenTree::Ident(name), TokenTree::Group(body)) = (&tokens[at + 1], &tokens[at + 2])
                else {
                    unreachable!()
                };
                let mut inner = module.clone();
                inner.push(name.to_string());
                self.collect(&inner, body.stream(), used);
                at += 3;
                continue;
            }
            if let TokenTree::Group(group) = &tokens[at] {
                self.collect(module, group.stream(), used);
                at += 1;
                continue;
            }
            let begins = at < 2 || !are_colons(&tokens, at - 2);
            if begins && are_colons(&tokens, at + 1) && matches!(tokens[at], TokenTree::Ident(_)) {
                let mut segments = Vec::new();
                let mut i = at;
                while let Some(TokenTree::Ident(segment)) = tokens.get(i) {
                    segments.push(segment.to_string());
                    if !are_colons(&tokens, i + 1) {
                        break;
                    }
                    i += 3;
                }
                used.extend(self.absolute(module, &segments));
            }
            at += 1;
        }
    }

    fn file_of(&self, module: &Module) -> String {
        self.files[module].0.display().to_string()
    }
}

/// A module that a file declares.
struct Declared {
    name: String,
    body: Option<TokenStream>,
}

/// The modules that tokens declare, without those for tests.
fn modules(tokens: TokenStream) -> Vec<Declared> {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if is_test(&tokens, at) {
            at = past_item(&tokens, at);
            continue;
        }
        if is(&tokens[at], "mod")
            && let (Some(TokenTree::Ident(name)), Some(end)) = (tokens.get(at + 1), tokens.get(at + 2))
        {
            let body = match end {
                TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => Some(body.stream()),
                _ => None,
            };
            found.push(Declared { name: name.to_string(), body });
        }
        at += 1;
    }
    found
}

/// A path of a `use`.
struct Used {
    segments: Vec<String>,
    /// `as`.
    called: Option<String>,
}

/// The paths of a `use`, up to its `;`.
fn paths(tokens: &[TokenTree]) -> Vec<Used> {
    let mut found = Vec::new();
    let end = tokens.iter().position(|t| is_punct(t, ';')).unwrap_or(tokens.len());
    for one in tokens[..end].split(|t| is_punct(t, ',')) {
        let (mut segments, mut called, mut is_group) = (Vec::new(), None, false);
        let mut it = one.iter();
        while let Some(token) = it.next() {
            match token {
                TokenTree::Ident(word) if word == "as" => called = it.next().map(ToString::to_string),
                TokenTree::Ident(word) => segments.push(word.to_string()),
                TokenTree::Punct(p) if p.as_char() == '*' => segments.push("*".to_owned()),
                TokenTree::Group(group) => {
                    let inner: Vec<_> = group.stream().into_iter().collect();
                    for inner in paths(&inner) {
                        let mut whole = segments.clone();
                        // `a::{self}` is `a`.
                        whole.extend(
                            inner.segments.into_iter().filter(|s| segments.is_empty() || s != "self"),
                        );
                        found.push(Used { segments: whole, called: inner.called });
                    }
                    is_group = true;
                }
                _ => {}
            }
        }
        if !is_group && !segments.is_empty() {
            found.push(Used { segments, called });
        }
    }
    found
}

/// True where `#[cfg(test)]` or `#[cfg(any(test, ..))]` stands.
fn is_test(tokens: &[TokenTree], at: usize) -> bool {
    let Some(TokenTree::Group(attribute)) = tokens.get(at + 1).filter(|_| is_punct(&tokens[at], '#')) else {
        return false;
    };
    let inner: Vec<_> = attribute.stream().into_iter().collect();
    let Some(TokenTree::Group(condition)) = inner.get(1).filter(|_| is(&inner[0], "cfg")) else {
        return false;
    };
    condition.stream().into_iter().any(|t| is(&t, "test"))
}

/// The place after the item whose attribute stands at `at`.
fn past_item(tokens: &[TokenTree], at: usize) -> usize {
    let ends = |t: &TokenTree| is_punct(t, ';') || is_punct(t, ',') || is_group(t, Delimiter::Brace);
    (at + 2..tokens.len()).find(|i| ends(&tokens[*i])).map_or(tokens.len(), |i| i + 1)
}

/// True where `pub` or `pub(..)` stands before.
fn is_public(tokens: &[TokenTree], at: usize) -> bool {
    at > 0 && (is(&tokens[at - 1], "pub") || is_group(&tokens[at - 1], Delimiter::Parenthesis))
}

/// True where `::` stands.
fn are_colons(tokens: &[TokenTree], at: usize) -> bool {
    tokens.get(at..at + 2).is_some_and(|pair| pair.iter().all(|t| is_punct(t, ':')))
}

fn is(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

fn is_punct(token: &TokenTree, c: char) -> bool {
    matches!(token, TokenTree::Punct(p) if p.as_char() == c)
}

fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter)
}

/// Sets of modules each of which reaches each other.
fn circles(arrows: &Arrows) -> Vec<Vec<Module>> {
    let reach = |from: &Module| {
        let mut seen = BTreeSet::new();
        let mut waiting: Vec<&Module> = arrows.get(from).into_iter().flat_map(BTreeMap::keys).collect();
        while let Some(next) = waiting.pop() {
            if seen.insert(next.clone()) {
                waiting.extend(arrows.get(next).into_iter().flat_map(BTreeMap::keys));
            }
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> = arrows.keys().map(|m| (m, reach(m))).collect();
    let (mut done, mut found) = (BTreeSet::new(), Vec::new());
    for (module, seen) in &reached {
        if !seen.contains(*module) || !done.insert((*module).clone()) {
            continue;
        }
        let circle: Vec<Module> =
            seen.iter().filter(|m| reached.get(m).is_some_and(|s| s.contains(*module))).cloned().collect();
        done.extend(circle.iter().cloned());
        found.push(circle);
    }
    found
}

/// The arrows within a circle.
fn inner<'a>(arrows: &'a Arrows, circle: &'a [Module]) -> Vec<(&'a Module, &'a Module, String)> {
    let within = |from: &'a Module| {
        arrows[from].iter().filter(|(to, _)| circle.contains(to)).map(move |(to, names)| (from, to, names))
    };
    let joined = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
    circle.iter().flat_map(within).map(|(from, to, names)| (from, to, joined(names))).collect()
}
