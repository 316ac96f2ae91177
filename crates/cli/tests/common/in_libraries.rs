//! Libraries with modules, made for tests.
#![allow(dead_code, reason = "each test program uses a part of it")]

use crate::common::Bench;
use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Command;

/// The owner of untrusted libraries.
pub(crate) const ALICE: u32 = 4801;

pub(crate) const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sdk");

/// A stack with a module on two tiers.
pub(crate) fn stack(module: &str) -> String {
    format!(
        "stack:\n  {module}\n    volume:\n      home: fast\n      range: 64KiB\n      tiers:\n        fast: {{ dir: a }}\n        slow: {{ dir: b }}\n"
    )
}

pub(crate) fn bench(module: &str) -> Option<Bench> {
    let bench = Bench::bare(&["a", "b", "m", "repo"])?;
    bench.write_stack(&stack(module));
    bench.ok(&["module", "repo", "add", "repo"]);
    Some(bench)
}

/// Compiles a module in C.
pub(crate) fn compile(bench: &Bench, source: &str, flags: &[&str], to: &str) -> PathBuf {
    let header = bench.path("braid_module.h");
    fs::write(&header, bench.ok(&["module", "header"])).unwrap();
    let (include, to) = (format!("-I{}", bench.path("").display()), bench.path(to));
    let built = Command::new("gcc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", &include, "-o"])
        .arg(&to)
        .args(flags)
        .arg(source)
        .status();
    assert!(built.unwrap().success());
    to
}

pub(crate) fn keep(bench: &Bench, version: &str, to: &str) -> PathBuf {
    let version = format!("-DVERSION=\"{version}\"");
    compile(bench, &format!("{SDK}/templates/c/keep.c"), &[&version], to)
}

pub(crate) fn odd(bench: &Bench, flags: &[&str], to: &str) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/odd.c");
    compile(bench, source, flags, to)
}

/// The value of an extended attribute of the root; the error number if there is none.
pub(crate) fn attribute(bench: &Bench, name: &str) -> Result<String, i32> {
    let mut value = [0; 64];
    let len =
        rustix::fs::getxattr(bench.path("m"), name, &mut value).map_err(|error| error.raw_os_error())?;
    Ok(String::from_utf8_lossy(&value[..len]).into_owned())
}

pub(crate) fn refused(bench: &Bench, words: &[&str]) -> String {
    let output = bench.braid(words);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A library of another user, put into the repository.
pub(crate) fn untrusted(bench: &Bench, flags: &[&str]) {
    let library = odd(bench, flags, "odd.so");
    chown(&library, Some(ALICE), Some(0)).unwrap();
    fs::rename(library, bench.path("repo/odd.so")).unwrap();
}
