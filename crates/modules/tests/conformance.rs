//! A wrapping module keeps what its child keeps.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use braid_modules::WRAPPERS;
use braid_testkit::conformance::file_system::{Fresh, Part, run};
use braid_testkit::dir_fs::{Choice, DirFs};
use std::sync::Arc;

#[test]
fn every_module_over_a_directory() {
    for wrapper in WRAPPERS {
        let fresh = || {
            let dir = tempfile::tempdir_in("/var/tmp").unwrap();
            let child = Arc::new(DirFs::new(dir.path(), Choice::Cached));
            Fresh::new((wrapper.wrap)(child), dir)
        };
        let name = format!("module {}, over a directory", wrapper.name);
        run(&name, &[Part::Namespace, Part::Data], &fresh).conclude();
    }
}
