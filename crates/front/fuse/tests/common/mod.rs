//! A mount of [`DirFs`] for the tests of this crate.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) use braid_testkit::dir_fs::{Choice, DirFs};

use braid_contract::FileSystem;
use braid_fuse::{CacheMode, FuseConfig, Unmounter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use tempfile::TempDir;

/// A served mount; unmounted and joined when dropped.
pub(crate) struct Mount {
    pub(crate) fs: Arc<DirFs>,
    unmounter: Unmounter,
    server: Option<JoinHandle<std::io::Result<()>>>,
    backing: TempDir,
    mountpoint: TempDir,
}

impl Mount {
    pub(crate) fn new(choice: Choice) -> Self {
        Self::with(choice, &config())
    }

    pub(crate) fn with(choice: Choice, config: &FuseConfig) -> Self {
        Self::over(choice, config, |fs| fs)
    }

    /// A mount of the directory's file system, wrapped by `wrap`.
    pub(crate) fn over(
        choice: Choice,
        config: &FuseConfig,
        wrap: impl FnOnce(Arc<dyn FileSystem>) -> Arc<dyn FileSystem>,
    ) -> Self {
        let backing = tempfile::tempdir().unwrap();
        let mountpoint = tempfile::tempdir().unwrap();
        let fs = Arc::new(DirFs::new(backing.path(), choice));
        let session = braid_fuse::mount(wrap(fs.clone()), mountpoint.path(), config).unwrap();
        let unmounter = session.unmounter();
        let server = Some(std::thread::spawn(move || session.run().map(drop)));
        Self { fs, unmounter, server, backing, mountpoint }
    }

    /// The path of `name` in the mount.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.mountpoint.path().join(name)
    }

    /// The path of `name` in the directory behind it.
    pub(crate) fn backing(&self, name: &str) -> PathBuf {
        self.backing.path().join(name)
    }

    pub(crate) fn mountpoint(&self) -> &Path {
        self.mountpoint.path()
    }

    pub(crate) fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Waits for the session's end.
    pub(crate) fn join(&mut self) -> std::io::Result<()> {
        self.server.take().expect("joined once").join().expect("the server does not panic")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let detached = self.unmounter.detach();
        if let Some(server) = self.server.take() {
            let served = server.join().expect("the server does not panic");
            if !std::thread::panicking() {
                detached.unwrap();
                served.unwrap();
            }
        }
    }
}

pub(crate) fn config() -> FuseConfig {
    FuseConfig {
        ledger: None,
        threads: 4,
        rings: true,
        poll: std::time::Duration::from_micros(200),
        allow_other: true,
        cache: CacheMode::Passthrough,
        xattrs: true,
        dirty_max: 64 << 20,
        fs_name: "a,b\\c test".into(),
        options: Vec::new(),
    }
}

/// Whether kernel and privileges allow passthrough to be tested.
pub(crate) fn has_passthrough() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let root = rustix::process::geteuid().is_root();
    let kernel = (numbers.next(), numbers.next()) >= (Some(6), Some(9));
    match (root, kernel) {
        (true, true) => {}
        (false, _) => braid_testkit::skipped("root, for passthrough"),
        (true, false) => braid_testkit::unsupported("Linux 6.9, for passthrough"),
    }
    root && kernel
}
