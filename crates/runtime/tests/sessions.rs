//! A session is the file system, with the rights of its user.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use braid_contract::{Caller, Entry, FileSystem, InodeId, Layer, Result};
use braid_runtime::{Geometry, Mounted, Options, PolicyKind, Runtime, Scheduler, Session, Settings};
use braid_testkit::conformance::file_system::{Fresh, Part, run};
use braid_testkit::dir_fs::{Choice, DirFs};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// The file system over a directory, whose root has the number of that.
struct Rooted {
    inner: DirFs,
    root: InodeId,
}

impl Layer for Rooted {
    fn child(&self) -> &dyn FileSystem {
        &self.inner
    }

    fn lookup(&self, caller: &Caller, parent: InodeId, name: &OsStr) -> Result<Entry> {
        let parent = if parent == self.root { InodeId::ROOT } else { parent };
        self.inner.lookup(caller, parent, name)
    }
}

/// A runtime over a directory, and a session with it.
struct Bed {
    fs: Arc<dyn FileSystem>,
    runtime: Option<Runtime>,
    dir: TempDir,
}

fn bed(settings: Settings, options: Options) -> Bed {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let found = std::fs::metadata(&data).unwrap();
    let top = Rooted { inner: DirFs::new(&data, Choice::Cached), root: InodeId(found.ino()) };
    let socket = dir.path().join("socket");
    let mounted = Mounted { top: Arc::new(top), kernel: None, device: found.dev() };
    let runtime = Runtime::start((&socket, false), settings, mounted, Vec::new()).unwrap();
    let (session, root) = Session::begin(&socket, &data, options).unwrap();
    assert_eq!(root, InodeId::ROOT);
    Bed { fs: session.file_system(), runtime: Some(runtime), dir }
}

fn fresh(settings: Settings, options: Options) -> Fresh {
    let Bed { fs, runtime, dir } = bed(settings, options);
    Fresh::new(fs, (runtime, dir))
}

#[test]
fn a_session_keeps_the_promises_of_a_file_system() {
    let small = Geometry { queues: 2, depth: 2, data: 4096 };
    let quick = Duration::from_micros(1);
    for (settings, options) in [
        (Settings::default(), Options::default()),
        (
            Settings {
                workers: 3,
                policy: PolicyKind::RoundRobin,
                scheduler: Scheduler::Noop,
                poll: quick,
                ..Settings::default()
            },
            Options { geometry: small, ordered: true, poll: quick, ..Options::default() },
        ),
    ] {
        let name = format!("a session, {:?}", settings.policy);
        run(&name, &[Part::Namespace, Part::Data], &|| fresh(settings, options)).conclude();
    }
}
