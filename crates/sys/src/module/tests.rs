//! The interface as C and Rust see it.

use super::raw::{c_header, layout};
use std::fs;
use std::process::Command;

#[test]
fn c_and_rust_agree_on_every_member() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("braid_module.h"), c_header(&["lookup", "forget"])).unwrap();
    let mut source = String::from("#include \"braid_module.h\"\n#include <stdio.h>\nint main(void) {\n");
    for (what, _) in layout() {
        source.push_str(&format!("  printf(\"%zu\\n\", {what});\n"));
    }
    source.push_str("  return 0;\n}\n");
    fs::write(path("layout.c"), source).unwrap();
    for compiler in ["gcc", "g++"] {
        let built = Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-o"])
            .args([path("layout"), path("layout.c")])
            .status();
        assert!(built.unwrap().success());
        let printed = Command::new(path("layout")).output().unwrap().stdout;
        let printed: Vec<usize> =
            String::from_utf8(printed).unwrap().lines().map(|line| line.parse().unwrap()).collect();
        let wanted = layout();
        assert_eq!(printed.len(), wanted.len());
        for ((what, ours), theirs) in wanted.iter().zip(printed) {
            assert_eq!(*ours, theirs, "{what}");
        }
    }
}
