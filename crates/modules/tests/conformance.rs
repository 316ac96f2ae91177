//! A wrapping module keeps the promises that its child keeps.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use braid_modules::{NAMES, configure};
use braid_testkit::conformance::file_system::{Fresh, Part, run};
use braid_testkit::dir_fs::{Choice, DirFs};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// Settings with which each module is only a wrapper.
fn settings(name: &str, dir: &Path) -> serde_json::Value {
    match name {
        "encrypt" => {
            let key = dir.join("key");
            fs::write(&key, [7; 32]).unwrap();
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
            serde_json::json!({ "key_file": key })
        }
        "deny" => serde_json::json!({ "paths": ["never/*.there"] }),
        "permissions" => serde_json::json!({ "rules": [{ "paths": ["never/*.there"], "deny": ["write"] }] }),
        "model" => serde_json::json!({ "device": "pmem" }),
        "throttle" => {
            serde_json::json!({ "by": "process", "bandwidth": "100GiB/s", "operations": "4000000/s" })
        }
        _ => serde_json::json!({}),
    }
}

#[test]
fn every_module_over_a_directory() {
    let keys = tempfile::tempdir().unwrap();
    let once = NAMES.iter().filter(|name| **name != "consistency");
    let all = once.map(|name| (*name, settings(name, keys.path())));
    let modes = ["strict", "close-to-open"].map(|mode| ("consistency", serde_json::json!({ "mode": mode })));
    for (name, settings) in all.chain(modes) {
        let module = configure(name, settings).unwrap().unwrap();
        let fresh = || {
            let dir = tempfile::tempdir_in("/var/tmp").unwrap();
            let child = Arc::new(DirFs::new(dir.path(), Choice::Cached));
            Fresh::new(module.wrap(child).unwrap(), dir)
        };
        let name = format!("module {name}, over a directory");
        run(&name, &[Part::Namespace, Part::Data], &fresh).conclude();
    }
}
