//! The place of a suite's work: a directory on a Braid volume made for it, or a
//! directory from the command line (for a native baseline).

use braid_tests_support::error::{Context, Result, fail};
use braid_tests_support::lab::{Kind, Lab, Mount, Stack, Tier};
use braid_tests_support::options::Options;
use braid_tests_support::sh::cmd;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The tiers of a volume and how it spreads.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Whether it is a log file system, in place of a volume.
    pub(crate) log: bool,
    /// The home tier's file system.
    pub(crate) home: Kind,
    /// The other tier's.
    pub(crate) other: Kind,
    /// MiB of each.
    pub(crate) mib: u64,
    /// The policy, as a YAML value.
    pub(crate) policy: &'static str,
    /// Weights of home and the other tier.
    pub(crate) weights: (u32, u32),
    /// Modules above the volume, from the top down, each with an optional setting.
    pub(crate) modules: &'static [&'static str],
    /// Whether the modules are those of a view of it.
    pub(crate) view: bool,
}

/// Ranges dealt over both tiers.
pub(crate) const WEIGHTED: &str = "{ weighted: { } }";

/// Ranges on the tier that completes them soonest, by the tiers' load.
pub(crate) const ADAPTIVE: &str = "{ adaptive: { } }";

/// Threads mapped to tiers, for good and by the tiers' load.
pub(crate) const STATIC: &str = "{ static: { threads: 2 } }";
pub(crate) const DYNAMIC: &str = "{ dynamic: { threads: 2 } }";

/// Small files at home, the others spread.
pub(crate) const SIZE: &str = "{ size: { small: 64KiB, large: spread } }";

/// All at home until it is half full.
pub(crate) const HOME_FIRST: &str = "{ home-first: { watermark: 50% } }";

/// As [`WEIGHTED`], with range sizes by the size of a file when it is spread:
/// the lines after the policy are rules.
pub(crate) const RANGES: &str = "{ weighted: { } }\n    rules:\n      \
    - { when: 'size % 128KiB < 64KiB', range: 128KiB }\n      - { when: 'size > 200KiB', range: 1MiB }";

/// The smallest range, so that files spread soon.
pub(crate) const RANGE: &str = "64KiB";

/// The stacks of modules that store files in frames, in all orders that are accepted.
pub(crate) const FRAMES: [&[&str]; 7] = [
    COMPRESSED,
    ENCRYPTED,
    &["compress", "encrypt", "checksum"],
    &["encrypt"],
    &["checksum"],
    &["compress", "encrypt"],
    &["compress codec: lz4", "checksum"],
];
pub(crate) const COMPRESSED: &[&str] = &["compress"];
pub(crate) const ENCRYPTED: &[&str] = &["encrypt", "checksum"];

impl Shape {
    /// Equal weights and the policy `weighted`.
    pub(crate) const fn spread(home: Kind, other: Kind) -> Self {
        let (policy, weights) = (WEIGHTED, (100, 100));
        Self { log: false, home, other, mib: 2048, policy, weights, modules: &[], view: false }
    }

    /// A log file system below these modules.
    pub(crate) const fn log(modules: &'static [&'static str]) -> Self {
        Self { log: true, mib: 512, modules, ..Self::spread(Kind::Ext4, Kind::Ext4) }
    }

    /// The same with another policy.
    pub(crate) const fn policy(self, policy: &'static str) -> Self {
        Self { policy, ..self }
    }

    /// The same with another size.
    pub(crate) const fn mib(self, mib: u64) -> Self {
        Self { mib, ..self }
    }

    /// The same below these modules.
    pub(crate) const fn below(self, modules: &'static [&'static str]) -> Self {
        Self { modules, ..self }
    }

    /// A view of it, with its modules.
    pub(crate) const fn in_view(self) -> Self {
        Self { view: true, ..self }
    }

    /// The title of a trial on it, or on the directory that the options name.
    pub(crate) fn title(&self, options: &Options) -> String {
        options.on.as_ref().map_or_else(|| self.name(), |on| format!("on {}", on.display()))
    }

    /// Its name in reports.
    pub(crate) fn name(&self) -> String {
        let modules = self.modules.iter().map(|name| format!("{name} over ")).collect::<String>();
        let modules = if self.view { format!("{modules}view of ") } else { modules };
        if self.log {
            return format!("{modules}log");
        }
        format!("{modules}{} + {}, {}", self.home.name(), self.other.name(), policy_name(self.policy))
    }
}

/// The first word of a policy's YAML value.
pub(crate) fn policy_name(policy: &str) -> &str {
    let policy = policy.trim_start_matches(['{', ' ']);
    policy.split(':').next().unwrap_or(policy)
}

/// A place to work in.
pub(crate) struct Arena {
    /// Where files go.
    pub(crate) dir: PathBuf,
    /// Its description, for reports.
    pub(crate) name: String,
    /// For data that must not be on the volume.
    pub(crate) lab: Lab,
    /// From the bottom up; none if the files are on no Braid volume.
    mounts: Vec<Mount>,
    is_log: bool,
}

impl Arena {
    /// A directory on a new volume, or below the one that the options name.
    pub(crate) fn new(suite: &str, shape: Shape, options: &Options) -> Result<Self> {
        let mut lab = Lab::for_suite(suite)?;
        if let Some(on) = &options.on {
            let dir = on.join(format!("braid-suite-{}", std::process::id()));
            std::fs::create_dir_all(&dir).at(&dir)?;
            return Ok(Self { dir, name: on.display().to_string(), lab, mounts: Vec::new(), is_log: false });
        }
        let key = lab.path().join("key");
        std::fs::write(&key, [7; 32]).at(&key)?;
        std::fs::set_permissions(&key, Permissions::from_mode(0o600)).at(&key)?;
        let module = |module: &&str| {
            let (name, setting) = module.split_once(' ').unwrap_or((module, ""));
            let setting = Some(setting.to_owned()).filter(|setting| !setting.is_empty());
            let key = (name == "encrypt").then(|| format!("key_file: {}", key.display()));
            [name.to_owned()].into_iter().chain(setting).chain(key).collect()
        };
        let modules: Vec<_> = shape.modules.iter().map(module).collect();
        let (in_view, modules) = if shape.view { (modules, Vec::new()) } else { (Vec::new(), modules) };
        let mount = match shape.log {
            true => lab.log("mnt", shape.mib, modules)?,
            false => {
                let home = lab.file_system("home", shape.home, shape.mib)?;
                let other = lab.file_system("other", shape.other, shape.mib)?;
                let tiers = vec![
                    Tier::new("home", &home, shape.weights.0),
                    Tier::new("other", &other, shape.weights.1),
                ];
                let (runtime, stack) = (shape.view, Stack::new(shape.policy, RANGE, tiers));
                lab.volume("mnt", &Stack { modules, runtime, ..stack })?
            }
        };
        let mut mounts = vec![mount];
        if shape.view {
            mounts.push(lab.view("view", &mounts[0], in_view)?);
        }
        let (dir, name) = (mounts[mounts.len() - 1].point.clone(), shape.name());
        Ok(Self { dir, name, lab, mounts, is_log: shape.log })
    }

    /// Unmounts and mounts again, so that reads come from the tiers. A native
    /// directory is only flushed.
    pub(crate) fn remount(&mut self) -> Result<()> {
        if self.mounts.is_empty() {
            return cmd("sync").arg("--file-system").arg(&self.dir).quiet();
        }
        self.mounts.iter().rev().try_for_each(|mount| self.lab.unmount(mount))?;
        let [volume, views @ ..] = self.mounts.as_slice() else { return Ok(()) };
        self.lab.mount(volume)?;
        views.iter().try_for_each(|view| self.lab.mount_as_is(view, &[]))
    }

    /// Whether the files are on a Braid volume.
    pub(crate) fn is_braid(&self) -> bool {
        !self.mounts.is_empty()
    }

    /// Unmounts, and expects `braid fsck`, or `braid log check`, to find nothing.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.mounts.iter().rev().try_for_each(|mount| self.lab.unmount(mount))?;
        match self.mounts.first() {
            None => std::fs::remove_dir_all(&self.dir).at(&self.dir),
            Some(log) if self.is_log => self.lab.check_log(log).map(drop),
            Some(volume) => self.lab.fsck(volume).map(drop),
        }
    }

    /// An empty directory in it.
    pub(crate) fn fresh(&self, name: &str) -> Result<PathBuf> {
        let dir = self.dir.join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).at(&dir)?;
        }
        std::fs::create_dir(&dir).at(&dir)?;
        Ok(dir)
    }
}

/// Fails unless a spread file has ranges on more than one tier: a suite that
/// tests spreading must not pass when no file was spread.
pub(crate) fn expect_spread(arena: &Arena, file: &Path) -> Result<()> {
    if !arena.is_braid() {
        return Ok(());
    }
    let text = arena.lab.braid().arg("explain").arg("--json").arg(file).read()?;
    if text.contains("\"home\"") && text.contains("\"other\"") {
        return Ok(());
    }
    fail(format!("{} is not spread:\n{text}", file.display()))
}
