//! Building the guest's disk, kernel and initrd, cached under the target directory by the recipe's hash.
//!
//! A thing that exists under its final name is complete: everything is built under another name and renamed.
//! One process builds at a time; the others wait at a lock and then find it built.

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::recipe::{self, Kernel};
use crate::packages;
use crate::proc::{self, command, output, run};

/// Programs that building needs.
const PROGRAMS: &[&str] =
    &["debootstrap", "busybox", "cpio", "depmod", "mkfs.ext4", "unshare", "dpkg-deb", "apt-get", "xz"];

/// The keys that Debian signs its releases with, where its package puts them; debootstrap takes the same.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

pub struct Image {
    dir: PathBuf,
    pub kernel: PathBuf,
    pub initrd: PathBuf,
    /// The root disk, raw; booted with a throw-away overlay.
    pub disk: PathBuf,
    /// The kernel's release, as `uname -r` says.
    pub release: String,
}

impl Image {
    /// The parts of an image with this kernel, whether it is built or not.
    fn cached(cache: &Cache, kernel: Kernel, package: &str, version: &str) -> Image {
        let dir = cache.dir.join(format!("image-{kernel}-{}", recipe::image_key(package, version)));
        Image {
            kernel: dir.join("vmlinuz"),
            initrd: dir.join("initrd"),
            disk: dir.join("root.img"),
            release: recipe::release_of(package).to_owned(),
            dir,
        }
    }
}

/// Where guests, kernels and downloads are kept.
pub fn cache_dir() -> PathBuf {
    proc::target_dir().join("guest")
}

/// Why a guest cannot be built or run here; `Ok` if it can.
pub fn possible() -> Result<(), String> {
    if !proc::is_root() {
        return Err("the guest needs root (its disk is built with debootstrap)".to_owned());
    }
    if !cfg!(target_arch = "x86_64") {
        return Err("the guest is built for x86-64 only".to_owned());
    }
    packages::require(PROGRAMS)?;
    packages::require(&["qemu-system-x86_64", "setpriv"])
}

/// Builds what is not cached yet and returns the guest's parts.
pub fn build(kernel: Kernel) -> Result<Image, String> {
    possible()?;
    let cache = Cache::open()?;
    let apt = Apt::of(&cache, kernel.suite())?;
    let known = kernel_package(&apt, kernel)
        .map(|(package, version)| Image::cached(&cache, kernel, &package, &version));
    if let Ok(image) = known
        && image.dir.is_dir()
    {
        return Ok(image);
    }
    proc::tried(BUILD_TRIES, BUILD_PAUSE, || {
        // The mirror may have other versions now than at the last try.
        cache.refreshed.set(false);
        build_newest(&cache, &apt, kernel)
    })
}

/// How often an image is tried to build: mirrors and networks have bad minutes.
const BUILD_TRIES: usize = 3;

/// What it waits before the next try.
const BUILD_PAUSE: Duration = Duration::from_secs(20);

/// Builds the image with the newest kernel that the mirror has.
fn build_newest(cache: &Cache, apt: &Apt, kernel: Kernel) -> Result<Image, String> {
    cache.refresh_lists(apt)?;
    let (package, version) = kernel_package(apt, kernel)?;
    let image = Image::cached(cache, kernel, &package, &version);
    if !image.dir.is_dir() {
        let userland = userland(cache)?;
        let parts = kernel_parts(apt, &package)?;
        let kernel_tree = unpack(cache, apt, (&package, &version), &parts)?;
        assemble(&image.dir, &userland, &kernel_tree, &image.release)?;
        cache.keep_only(&format!("image-{kernel}-"), &image.dir)?;
        cache.keep_only("userland-", &userland)?;
    }
    Ok(image)
}

/// The cache directory, locked for this process as long as this value lives.
struct Cache {
    dir: PathBuf,
    _lock: fs::File,
    refreshed: Cell<bool>,
}

impl Cache {
    fn open() -> Result<Cache, String> {
        let dir = cache_dir();
        let open = || -> std::io::Result<fs::File> {
            fs::create_dir_all(&dir)?;
            let lock = fs::File::create(dir.join("lock"))?;
            rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
            Ok(lock)
        };
        let lock = open().map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok(Cache { dir, _lock: lock, refreshed: Cell::new(false) })
    }

    /// Brings apt's lists up to date, once: old ones name files that the mirror no longer has.
    fn refresh_lists(&self, apt: &Apt) -> Result<(), String> {
        if !self.refreshed.replace(true) {
            run(&mut apt.command("apt-get", ["-q", "update"]))?;
        }
        Ok(())
    }

    /// Removes what older recipes left under names that start like this.
    fn keep_only(&self, prefix: &str, keep: &Path) -> Result<(), String> {
        let entries = fs::read_dir(&self.dir).map_err(|e| format!("{}: {e}", self.dir.display()))?;
        for entry in entries.flatten() {
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with(prefix) && path != keep {
                remove_dir(&path)?;
            }
        }
        Ok(())
    }
}

/// The machine's apt: with its own sources, or with one Debian release from the mirror that these name.
struct Apt {
    /// What says so, in front of each command's own arguments.
    options: Vec<String>,
}

impl Apt {
    /// The machine's own.
    fn own() -> Apt {
        Apt::with(Vec::new())
    }

    fn with(mut options: Vec<String>) -> Apt {
        // apt's own user may not write into the cache.
        options.push("APT::Sandbox::User=root".to_owned());
        options.push(packages::APT_RETRIES.to_owned());
        Apt { options: options.into_iter().flat_map(|option| ["-o".to_owned(), option]).collect() }
    }

    /// The one that knows this release. For another release than the guest's, sources and lists are kept in the cache, so that
    /// the machine is never offered a package of that release.
    fn of(cache: &Cache, suite: &str) -> Result<Apt, String> {
        if suite == recipe::SUITE {
            return Ok(Apt::own());
        }
        let dir = cache.dir.join(format!("apt-{suite}"));
        let sources = dir.join("only.sources");
        let (lists, packages) = (dir.join("lists"), dir.join("cache"));
        let text = format!(
            "Types: deb\nURIs: {}\nSuites: {suite}\nComponents: main\nTargets: Packages\nSigned-By: {KEYRING}\n",
            mirror()?
        );
        fs::create_dir_all(lists.join("partial"))
            .and_then(|()| fs::create_dir_all(packages.join("archives/partial")))
            .and_then(|()| fs::write(&sources, text))
            .map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok(Apt::with(vec![
            format!("Dir::Etc::SourceList={}", sources.display()),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            format!("Dir::State::Lists={}", lists.display()),
            format!("Dir::Cache={}", packages.display()),
        ]))
    }

    fn command<const N: usize>(&self, program: &str, args: [&str; N]) -> Command {
        let mut apt = command(program, &self.options);
        apt.args(args);
        apt
    }
}

/// Where files are kept that somebody has asked for; `scratch` if nobody has.
pub fn kept_in(asked: Option<&Path>, scratch: &Path) -> Result<PathBuf, String> {
    let Some(dir) = asked else { return Ok(scratch.to_owned()) };
    let made = fs::create_dir_all(dir).and_then(|()| fs::canonicalize(dir));
    made.map_err(|e| format!("{}: {e}", dir.display()))
}

/// A directory for one run, under the cache directory; what runs left that were killed is removed.
pub fn run_dir(what: &str) -> Result<tempfile::TempDir, String> {
    let cache = Cache::open()?;
    for entry in fs::read_dir(&cache.dir).map_err(|e| format!("{}: {e}", cache.dir.display()))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix("run-").and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
            remove_dir(&entry.path())?;
        }
    }
    tempfile::Builder::new()
        .prefix(&format!("run-{}-{what}-", std::process::id()))
        .tempdir_in(&cache.dir)
        .map_err(|e| format!("{}: {e}", cache.dir.display()))
}

/// The newest image package of the series and its version, as the machine's apt knows them.
fn kernel_package(apt: &Apt, kernel: Kernel) -> Result<(String, String), String> {
    let (meta, suite) = (kernel.meta_package(), kernel.suite());
    let depends = output(&mut apt.command("apt-cache", ["depends", meta]))?;
    let package = recipe::depends_on_image(&depends)
        .ok_or(format!("{meta} depends on no kernel: does apt here know Debian {suite}?"))?;
    let version = candidate(apt, &package)?;
    Ok((package, version))
}

/// The packages that the files of a kernel image are in, besides its own, with their versions.
fn kernel_parts(apt: &Apt, image_package: &str) -> Result<Vec<(String, String)>, String> {
    let depends = output(&mut apt.command("apt-cache", ["depends", image_package]))?;
    let parts = recipe::parts_of_image(&depends, image_package);
    parts.into_iter().map(|part| candidate(apt, &part).map(|version| (part, version))).collect()
}

/// The version of a package that apt would install.
fn candidate(apt: &Apt, package: &str) -> Result<String, String> {
    let policy = output(&mut apt.command("apt-cache", ["policy", package]))?;
    policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate: "))
        .map(str::to_owned)
        .ok_or(format!("apt here knows no package {package}"))
}

/// The base address that apt here fetches the guest's release from: the guest comes from the same place.
fn mirror() -> Result<String, String> {
    let format = "$(CODENAME) $(REPO_URI)";
    let targets =
        output(&mut command("apt-get", ["indextargets", "--format", format, "Created-By: Packages"]))?;
    targets
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(codename, _)| *codename == recipe::SUITE)
        .map(|(_, uri)| uri.to_owned())
        .ok_or(format!("apt here is not set up for Debian {}", recipe::SUITE))
}

/// The userland without kernel: debootstrap's minimal set and [`recipe::PACKAGES`].
fn userland(cache: &Cache) -> Result<PathBuf, String> {
    let dir = cache.dir.join(format!("userland-{}", recipe::userland_key()));
    if dir.is_dir() {
        return Ok(dir);
    }
    let part = fresh_dir(&dir)?;
    let include = format!("--include={}", recipe::PACKAGES.join(","));
    // In a mount namespace of its own, so that no mount of debootstrap's outlives it.
    run(command(
        "unshare",
        ["--mount", "debootstrap", "--variant=minbase", "--merged-usr", &include, recipe::SUITE],
    )
    .arg(&part)
    .arg(mirror()?))?;
    // Nobody reads them in the guest.
    for unused in ["var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"]
    {
        remove_dir(&part.join(unused))?;
    }
    rename(&part, &dir)?;
    Ok(dir)
}

/// Downloads a package with the machine's apt and returns the file.
fn download(cache: &Cache, apt: &Apt, package: &str, version: &str) -> Result<PathBuf, String> {
    let debs = cache.dir.join(format!("deb-{}", recipe::key(&[package, version])));
    if !debs.is_dir() {
        let part = fresh_dir(&debs)?;
        let what = format!("{package}={version}");
        run(apt.command("apt-get", ["-q", "download", &what]).current_dir(&part))?;
        rename(&part, &debs)?;
    }
    let mut files = fs::read_dir(&debs).map_err(|e| format!("{}: {e}", debs.display()))?;
    match files.next() {
        Some(Ok(file)) => Ok(file.path()),
        _ => Err(format!("apt-get download {package}: no file")),
    }
}

/// Where a package's files are unpacked.
fn tree_dir(cache: &Cache, package: &str, version: &str) -> PathBuf {
    cache.dir.join(format!("tree-{}", recipe::key(&[package, version])))
}

/// Downloads a package and what belongs to it, and unpacks the files of all into one directory.
fn unpack(
    cache: &Cache,
    apt: &Apt,
    (package, version): (&str, &str),
    parts: &[(String, String)],
) -> Result<PathBuf, String> {
    let dir = tree_dir(cache, package, version);
    if dir.is_dir() {
        return Ok(dir);
    }
    let part = fresh_dir(&dir)?;
    let all = parts.iter().map(|(package, version)| (package.as_str(), version.as_str()));
    for (package, version) in all.chain([(package, version)]) {
        let deb = download(cache, apt, package, version)?;
        run(command("dpkg-deb", ["-x"]).arg(&deb).arg(&part))?;
    }
    rename(&part, &dir)?;
    Ok(dir)
}

/// The newest version of a package that apt knows, downloaded and unpacked.
pub fn unpack_newest(package: &str) -> Result<PathBuf, String> {
    let cache = Cache::open()?;
    let apt = Apt::own();
    if let Ok(version) = candidate(&apt, package)
        && tree_dir(&cache, package, &version).is_dir()
    {
        return Ok(tree_dir(&cache, package, &version));
    }
    cache.refresh_lists(&apt)?;
    unpack(&cache, &apt, (package, &candidate(&apt, package)?), &[])
}

/// Puts userland, kernel and our scripts together: disk, initrd, kernel.
fn assemble(dir: &Path, userland: &Path, kernel_tree: &Path, release: &str) -> Result<(), String> {
    let part = fresh_dir(dir)?;
    let root = part.join("root");
    // Hard links: the copy costs no space, and what is added below are new files.
    run(command("cp", ["-a", "--link"]).arg(userland).arg(&root))?;
    let modules = root.join("usr/lib/modules");
    fs::create_dir_all(&modules).map_err(|e| format!("{}: {e}", modules.display()))?;
    let packaged = one_of(["lib/modules", "usr/lib/modules"].map(|at| kernel_tree.join(at).join(release)))?;
    run(command("cp", ["-a", "--link"]).arg(&packaged).arg(&modules))?;
    run(command("depmod", ["-b"]).arg(&root).arg(release))?;
    install(&root.join("landfast/init"), recipe::INIT)?;
    install(&root.join("landfast/agent"), recipe::AGENT)?;
    symlink(&root.join("etc/mtab"), "/proc/self/mounts")?;
    initrd(&part, &root, release)?;

    let disk = part.join("root.img");
    let file = fs::File::create(&disk).map_err(|e| format!("{}: {e}", disk.display()))?;
    file.set_len(recipe::DISK_BYTES).map_err(|e| format!("{}: {e}", disk.display()))?;
    run(command("mkfs.ext4", ["-q", "-F", "-d"]).arg(&root).arg(&disk))?;
    let vmlinuz =
        one_of([kernel_tree.join("boot").join(format!("vmlinuz-{release}")), packaged.join("vmlinuz")])?;
    fs::copy(&vmlinuz, part.join("vmlinuz")).map_err(|e| format!("{}: {e}", vmlinuz.display()))?;
    remove_dir(&root)?;
    rename(&part, dir)
}

/// The one of these that is there: where an older kernel package has something, and a newer one.
fn one_of([older, newer]: [PathBuf; 2]) -> Result<PathBuf, String> {
    let absent = format!("neither {} nor {}", older.display(), newer.display());
    [older, newer].into_iter().find(|path| path.exists()).ok_or(absent)
}

/// The initrd: busybox, the modules of [`recipe::INITRD_MODULES`] with what they need, and the script that loads them.
fn initrd(part: &Path, root: &Path, release: &str) -> Result<(), String> {
    let dir = part.join("initrd.d");
    let modules = dir.join("modules");
    fs::create_dir_all(&modules).map_err(|e| format!("{}: {e}", modules.display()))?;
    let busybox = proc::find_program("busybox").ok_or("no busybox")?;
    fs::create_dir_all(dir.join("bin")).map_err(|e| e.to_string())?;
    fs::copy(&busybox, dir.join("bin/busybox")).map_err(|e| format!("{}: {e}", busybox.display()))?;
    install(&dir.join("init"), recipe::INITRD_INIT)?;

    let mut order = Vec::new();
    for module in recipe::INITRD_MODULES {
        let found = output(
            command("modprobe", ["--show-depends", "--set-version", release, "--dirname"])
                .arg(root)
                .arg(module),
        )?;
        for path in module_files(&found) {
            let file = Path::new(path);
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let plain = name.trim_end_matches(".xz").to_owned();
            if order.contains(&plain) {
                continue;
            }
            let target = modules.join(&plain);
            if name == plain {
                fs::copy(file, &target).map_err(|e| format!("{path}: {e}"))?;
            } else {
                let out = fs::File::create(&target).map_err(|e| format!("{}: {e}", target.display()))?;
                run(command("xz", ["-dc", path]).stdout(out))?;
            }
            order.push(plain);
        }
    }
    fs::write(modules.join("order"), order.join("\n")).map_err(|e| e.to_string())?;

    let names = output(command("find", ["."]).current_dir(&dir))?;
    let archive = fs::File::create(part.join("initrd")).map_err(|e| e.to_string())?;
    let mut cpio = command("cpio", ["--quiet", "-o", "-H", "newc"])
        .current_dir(&dir)
        .stdin(Stdio::piped())
        .stdout(archive)
        .spawn()
        .map_err(|e| format!("cpio: {e}"))?;
    if let Some(mut stdin) = cpio.stdin.take() {
        stdin.write_all(names.as_bytes()).map_err(|e| format!("cpio: {e}"))?;
    }
    let status = cpio.wait().map_err(|e| format!("cpio: {e}"))?;
    if !status.success() {
        return Err(format!("cpio: {status}"));
    }
    remove_dir(&dir)
}

/// The files named by `modprobe --show-depends`: lines `insmod PATH [OPTIONS]`; `builtin NAME` needs none.
fn module_files(show_depends: &str) -> impl Iterator<Item = &str> {
    show_depends
        .lines()
        .filter_map(|line| line.strip_prefix("insmod "))
        .filter_map(|rest| rest.split(' ').next())
}

/// An empty directory beside `done`, for building what will get that name.
fn fresh_dir(done: &Path) -> Result<PathBuf, String> {
    let mut part = done.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    remove_dir(&part)?;
    fs::create_dir_all(&part).map_err(|e| format!("{}: {e}", part.display()))?;
    Ok(part)
}

fn remove_dir(dir: &Path) -> Result<(), String> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {e}", dir.display())),
        _ => Ok(()),
    }
}

fn rename(from: &Path, to: &Path) -> Result<(), String> {
    fs::rename(from, to).map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))
}

/// Writes an executable file, with its directories.
fn install(path: &Path, text: &str) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let write = || {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(path, text)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))
    };
    write().map_err(|e| format!("{}: {e}", path.display()))
}

/// Makes a symbolic link, in place of what has the name.
fn symlink(path: &Path, target: &str) -> Result<(), String> {
    let make = || match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => std::os::unix::fs::symlink(target, path),
    };
    make().map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::module_files;

    #[test]
    fn module_files_come_in_load_order_without_options() {
        let text =
            "insmod /r/lib/modules/6/kernel/fs/jbd2.ko \ninsmod /r/ext4.ko.xz a=1\nbuiltin virtio_pci\n";
        let files: Vec<&str> = module_files(text).collect();
        assert_eq!(files, ["/r/lib/modules/6/kernel/fs/jbd2.ko", "/r/ext4.ko.xz"]);
    }
}
