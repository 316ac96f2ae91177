//! Programs in C and Python use the library on a mount. Needs root, /dev/fuse, cc and python3,
//! and the command: that of `BRAID_BIN`, or the one built beside this test.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// The directory of the programs that Cargo built: the one above that of this test.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned()
}

/// A log file system, and its mount, which goes with this.
struct Mounted {
    dir: TempDir,
    braid: PathBuf,
}

impl Mounted {
    /// A log file system with these flags; `None` where nothing can be mounted.
    fn with(flags: &[&str]) -> Option<Self> {
        let made = Self::made()?;
        made.mount(flags);
        Some(made)
    }

    fn mount(&self, flags: &[&str]) {
        self.ok(&[&["log", "mount", "--log-file", "log"], flags, &["fs", "m"]].concat());
    }

    /// The same before it is mounted.
    fn made() -> Option<Self> {
        let privileged = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
        if !privileged {
            braid_testkit::skipped("root and /dev/fuse");
            return None;
        }
        let braid = std::env::var_os("BRAID_BIN").map_or_else(|| built().join("braid"), PathBuf::from);
        assert!(braid.is_file(), "{} is not built", braid.display());
        let dir = tempfile::Builder::new().prefix("braid-").tempdir().unwrap();
        fs::create_dir(dir.path().join("m")).unwrap();
        let mounted = Self { dir, braid };
        mounted.ok(&["log", "create", "fs", "--size", "64MiB"]);
        Some(mounted)
    }

    fn ok(&self, words: &[&str]) {
        let output = Command::new(&self.braid).args(words).current_dir(self.dir.path()).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program in C, built.
    fn program(&self) -> PathBuf {
        let program = self.path("client");
        let compiled = Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
            .arg(Path::new(HERE).join("include"))
            .arg(Path::new(HERE).join("tests/client.c"))
            .arg("-o")
            .arg(&program)
            .arg(library())
            .arg(format!("-Wl,-rpath,{}", library().parent().unwrap().display()))
            .status();
        assert!(compiled.unwrap().success());
        program
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new(&self.braid).args(["umount", "m"]).current_dir(self.dir.path()).status();
    }
}

/// The library as Cargo built it for this test.
fn library() -> PathBuf {
    let places = [built().join("deps/libbraid.so"), built().join("libbraid.so")];
    places.into_iter().find(|path| path.is_file()).expect("the library is built with its tests")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_program_in_c_uses_a_directory() {
    let Some(mounted) = Mounted::with(&["--runtime"]) else { return };
    let output = Command::new(mounted.program()).arg(mounted.path("m")).output().unwrap();
    let expected = "many-x-098=many-x-098\nmany-x-099=many-x-099\nmany-y-000=many-y-000\n";
    assert!(output.status.success() && output.stdout == expected.as_bytes(), "{}", said(&output));
    assert_eq!(fs::read(mounted.path("m/a")).unwrap(), b"one");
    assert_eq!(fs::metadata(mounted.path("m/a")).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_program_in_c_can_also_have_a_module() {
    let dir = tempfile::tempdir().unwrap();
    let includes = [Path::new(HERE).join("include"), Path::new(HERE).join("../sdk/include")];
    for (number, headers) in [["braid.h", "braid_module.h"], ["braid_module.h", "braid.h"]].iter().enumerate()
    {
        let source = dir.path().join(format!("both-{number}.c"));
        let [first, second] = headers;
        let uses = "int main(void) { struct braid_bytes key = {\"k\", 1}; struct braid_slice name = {0, 0};\n\
                    return key.len + name.len == 1 ? 0 : 1; }";
        fs::write(&source, format!("#include <{first}>\n#include <{second}>\n{uses}\n")).unwrap();
        for compiler in ["cc", "c++"] {
            let mut command = Command::new(compiler);
            command.args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]).arg(&source);
            for dir in &includes {
                command.arg("-I").arg(dir);
            }
            assert!(command.status().unwrap().success(), "{compiler}: {headers:?}");
        }
    }
}

/// Runs the program in Python.
fn python(on: &Path) {
    let output = Command::new("python3")
        .arg(Path::new(HERE).join("tests/client.py"))
        .arg(on)
        .env("PYTHONPATH", Path::new(HERE).join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("BRAID_LIBRARY", library())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_program_in_python_uses_a_directory() {
    let Some(mounted) = Mounted::with(&["--runtime"]) else { return };
    python(&mounted.path("m"));
    assert_eq!(fs::read(mounted.path("m/many-1-1199")).unwrap(), b"1199");
}

#[test]
fn a_program_in_c_carries_a_stack_out_itself() {
    let Some(made) = Mounted::made() else { return };
    let stack = made.path("values.yaml");
    fs::write(&stack, "exec: direct\nstack: { metrics: { log: { device: fs } } }\n").unwrap();
    let output = Command::new(made.program()).arg(&stack).output().unwrap();
    let expected = "many-x-098=many-x-098\nmany-x-099=many-x-099\nmany-y-000=many-y-000\n";
    assert!(output.status.success() && output.stdout == expected.as_bytes(), "{}", said(&output));
    made.mount(&[]);
    assert_eq!(fs::read(made.path("m/a")).unwrap(), b"one");
    assert_eq!(fs::metadata(made.path("m/a")).unwrap().permissions().mode() & 0o777, 0o640);
    // Now it is the daemon's.
    let output = Command::new(made.program()).arg(&stack).output().unwrap();
    assert!(output.status.code() == Some(2), "{}", said(&output));
    for part in ["refused: 16 ", "values.yaml:2", "in use"] {
        assert!(said(&output).contains(part), "{part}: {}", said(&output));
    }
}

#[test]
fn a_program_in_python_carries_a_stack_out_itself() {
    let Some(made) = Mounted::made() else { return };
    let stack = made.path("values.yaml");
    fs::write(&stack, "exec: direct\nstack: { log: { device: fs } }\n").unwrap();
    python(&stack);
    made.mount(&[]);
    assert_eq!(fs::read(made.path("m/many-1-1199")).unwrap(), b"1199");
}

#[test]
fn what_can_not_be_opened_is_said() {
    let Some(mounted) = Mounted::with(&[]) else { return };
    let program = mounted.program();
    for (dir, says) in [
        ("m", "refused: 2 "),
        ("m", "applications can't have sessions here; mount with --runtime"),
        (".", "refused: 18 "),
        (".", "it is not on a Braid file system"),
        ("none", "refused: 2 "),
    ] {
        let output = Command::new(&program).arg(mounted.path(dir)).output().unwrap();
        assert!(output.status.code() == Some(2) && said(&output).contains(says), "{dir}: {}", said(&output));
    }
}
