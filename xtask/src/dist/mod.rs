//! `cargo xtask dist`: the Debian package, with all files that are installed
//! beside the command.

mod files;
mod try_out;

use files::entries;
use try_out::{in_debian, in_directory};

use crate::setup;
use braid_tests_support::error::{Context, Result, fail};
use braid_tests_support::paths;
use braid_tests_support::sh::{cmd, exists};
use braid_tests_support::tools::build_packaged;
use clap::Args;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The names by which mount(8) and umount(8) call the command.
const HELPERS: &[&str] = &["mount.fuse.braid", "mount.braid", "umount.fuse.braid", "umount.braid"];
/// Units of systemd.
const UNITS: &[&str] = &["braid@.service", "braid-scrub@.service", "braid-scrub@.timer"];

const MAINTAINER: &str = "The Braid developers <braid@braid.invalid>";
const DOC: &str = "usr/share/doc/braid";

/// What to do with the package.
#[derive(Args)]
pub(crate) struct Command {
    /// Install it in an empty directory, use and purge it
    #[arg(long)]
    test: bool,
    /// The same in a clean Debian
    #[arg(long, conflicts_with = "test")]
    test_debian: bool,
}

/// Makes the package, and tries it out.
pub(crate) fn run(command: &Command) -> Result<()> {
    setup::dist()?;
    let (braid, library) = build_packaged()?;
    let package = build(&braid, &library)?;
    println!("made {}", package.display());
    match command {
        Command { test: true, .. } => in_directory(&package),
        Command { test_debian: true, .. } => in_debian(&package),
        Command { .. } => Ok(()),
    }
}

/// Makes the package of this `braid` command and this library below
/// `target/dist`.
fn build(braid: &Path, library: &Path) -> Result<PathBuf> {
    let dist = paths::target().join("dist");
    let stage = Stage { root: dist.join("stage") };
    if stage.root.exists() {
        fs::remove_dir_all(&stage.root).at(&stage.root)?;
    }
    let version = version(braid)?;
    let architecture = cmd("dpkg").arg("--print-architecture").read()?.trim().to_owned();
    stage.command(braid)?;
    stage.manual(braid)?;
    stage.documents(&version)?;
    let ours = paths::root().join("xtask/dist");
    for unit in UNITS {
        stage.file(&ours.join(unit), &format!("usr/lib/systemd/system/{unit}"), 0o644)?;
    }
    stage.file(&paths::root().join("crates/cli/rescue/rescue.py"), "usr/share/braid/rescue.py", 0o755)?;
    stage.client(library)?;
    stage.dir("etc/braid")?;
    for script in ["postinst", "postrm"] {
        stage.file(&ours.join(script), &format!("DEBIAN/{script}"), 0o755)?;
    }
    let control = control(&version, &architecture, &stage.depends(&dist)?, stage.size_kib()?);
    stage.text("DEBIAN/control", &control)?;
    let package = dist.join(format!("braid_{version}_{architecture}.deb"));
    cmd("dpkg-deb").args(["--root-owner-group", "--build"]).args([&stage.root, &package]).quiet()?;
    Ok(package)
}

/// The version that the command prints.
fn version(braid: &Path) -> Result<String> {
    let told = cmd(braid).arg("version").read()?;
    match told.trim().strip_prefix("braid ") {
        Some(version) => Ok(version.to_owned()),
        None => fail(format!("{} tells no version: {told}", braid.display())),
    }
}

fn control(version: &str, architecture: &str, depends: &str, size_kib: u64) -> String {
    format!(
        "Package: braid\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: {MAINTAINER}\n\
         Installed-Size: {size_kib}\n\
         Depends: fuse3, {depends}\n\
         Recommends: python3\n\
         Section: admin\n\
         Priority: optional\n\
         Description: one file system over several devices\n \
         Braid joins directories on several devices into one file system that uses\n \
         all of them at once: a file may be larger than any of them, and faster.\n \
         Data moves between them while it is used; devices come and go.\n"
    )
}

const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: braid

Files: *
Copyright: The Braid developers
License: Expat or Apache-2.0

License: Apache-2.0
 On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.

";

/// The tree that becomes the package.
struct Stage {
    root: PathBuf,
}

impl Stage {
    fn dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.root.join(name);
        fs::create_dir_all(&path).at(&path)?;
        // Independent of the builder's umask.
        let mut at = Path::new(name);
        while at != Path::new("") {
            fs::set_permissions(self.root.join(at), fs::Permissions::from_mode(0o755))?;
            at = at.parent().unwrap_or(Path::new(""));
        }
        Ok(path)
    }

    /// A place for a file.
    fn place(&self, name: &str) -> Result<PathBuf> {
        self.dir(name.rsplit_once('/').map_or("", |(dir, _)| dir))?;
        Ok(self.root.join(name))
    }

    fn file(&self, from: &Path, name: &str, mode: u32) -> Result<()> {
        let to = self.place(name)?;
        fs::copy(from, &to).at(from)?;
        fs::set_permissions(&to, fs::Permissions::from_mode(mode)).at(&to)
    }

    fn text(&self, name: &str, text: &str) -> Result<()> {
        let to = self.place(name)?;
        fs::write(&to, text).at(&to)?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o644)).at(&to)
    }

    fn command(&self, braid: &Path) -> Result<()> {
        self.file(braid, "usr/bin/braid", 0o755)?;
        cmd("strip").args(["--strip-unneeded"]).arg(self.root.join("usr/bin/braid")).quiet()?;
        self.dir("usr/sbin")?;
        HELPERS.iter().try_for_each(|name| {
            let link = self.root.join("usr/sbin").join(name);
            symlink("../bin/braid", &link).at(&link)
        })
    }

    /// The library for applications.
    fn client(&self, library: &Path) -> Result<()> {
        let ours = paths::root().join("crates/client");
        self.file(library, "usr/lib/libbraid.so", 0o644)?;
        cmd("strip").args(["--strip-unneeded"]).arg(self.root.join("usr/lib/libbraid.so")).quiet()?;
        self.file(&ours.join("include/braid.h"), "usr/include/braid.h", 0o644)?;
        self.file(&ours.join("python/braid.py"), "usr/lib/python3/dist-packages/braid.py", 0o644)
    }

    /// Man pages and completions.
    fn manual(&self, braid: &Path) -> Result<()> {
        let made = paths::target().join("dist/manual");
        if made.exists() {
            fs::remove_dir_all(&made).at(&made)?;
        }
        cmd(braid).arg("manual").arg(&made).quiet()?;
        let page = paths::root().join("xtask/dist/braid.yaml.5");
        self.page(&page, "man5")?;
        for section in ["man1", "man8"] {
            for page in entries(&made.join(section))? {
                self.page(&page, section)?;
            }
        }
        for helper in ["mount", "umount"] {
            let link = self.root.join(format!("usr/share/man/man8/{helper}.braid.8.gz"));
            symlink(format!("{helper}.fuse.braid.8.gz"), &link).at(&link)?;
        }
        for (name, place) in [
            ("braid.bash", "usr/share/bash-completion/completions/braid"),
            ("_braid", "usr/share/zsh/vendor-completions/_braid"),
            ("braid.fish", "usr/share/fish/vendor_completions.d/braid.fish"),
        ] {
            self.file(&made.join("completions").join(name), place, 0o644)?;
        }
        Ok(())
    }

    fn page(&self, from: &Path, section: &str) -> Result<()> {
        let name = from.file_name().unwrap_or_default().to_string_lossy();
        let place = format!("usr/share/man/{section}/{name}");
        self.file(from, &place, 0o644)?;
        self.compress(&place)
    }

    fn compress(&self, name: &str) -> Result<()> {
        cmd("gzip").args(["-9", "--no-name", "--force"]).arg(self.root.join(name)).quiet()
    }

    fn documents(&self, version: &str) -> Result<()> {
        let root = paths::root();
        self.file(&root.join("README.md"), &format!("{DOC}/README.md"), 0o644)?;
        for document in entries(&root.join("docs"))?.iter().filter(|path| path.is_file()) {
            let name = document.file_name().unwrap_or_default().to_string_lossy();
            self.file(document, &format!("{DOC}/{name}"), 0o644)?;
        }
        for example in entries(&root.join("docs/examples"))? {
            let name = example.file_name().unwrap_or_default().to_string_lossy();
            self.file(&example, &format!("{DOC}/examples/{name}"), 0o644)?;
        }
        let mit = fs::read_to_string(root.join("LICENSES/MIT.txt")).context("LICENSES/MIT.txt")?;
        let lines = mit.lines().map(|line| match line.trim() {
            "" => " .\n".to_owned(),
            line => format!(" {line}\n"),
        });
        self.text(
            &format!("{DOC}/copyright"),
            &format!("{COPYRIGHT}License: Expat\n{}", lines.collect::<String>()),
        )?;
        self.file(&root.join("CHANGELOG.md"), &format!("{DOC}/CHANGELOG.md"), 0o644)?;
        let changelog = format!("{DOC}/changelog");
        let date = cmd("git").args(["log", "-1", "--format=%aD"]).dir(&root).read();
        let date = date.or_else(|_| cmd("date").arg("-R").read())?;
        self.text(
            &changelog,
            &format!(
                "braid ({version}) unstable; urgency=medium\n\n  * What changed is told in CHANGELOG.md.\n\n \
                 -- {MAINTAINER}  {}\n",
                date.trim()
            ),
        )?;
        self.compress(&changelog)
    }

    /// The packages of the command's libraries.
    fn depends(&self, dist: &Path) -> Result<String> {
        if !exists("dpkg-shlibdeps") {
            return Ok("libc6".into());
        }
        // It looks for the source package that it thinks it is in.
        let source = dist.join("source");
        fs::create_dir_all(source.join("debian")).at(&source)?;
        fs::write(source.join("debian/control"), "Source: braid\n\nPackage: braid\nArchitecture: any\n")?;
        let told = cmd("dpkg-shlibdeps").args(["-O", "-e"]).arg(self.root.join("usr/bin/braid"));
        let told = told.dir(&source).read()?;
        match told.lines().find_map(|line| line.strip_prefix("shlibs:Depends=")) {
            Some(depends) => Ok(depends.to_owned()),
            None => fail(format!("dpkg-shlibdeps tells of no library: {told}")),
        }
    }

    fn size_kib(&self) -> Result<u64> {
        let told = cmd("du").args(["-sk", "--apparent-size", "--exclude=DEBIAN"]).arg(&self.root).read()?;
        let size = told.split_whitespace().next().and_then(|size| size.parse().ok());
        size.map_or_else(|| fail(format!("du tells no size: {told}")), Ok)
    }
}
