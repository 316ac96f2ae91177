//! The input of the rules: the packages of the workspace, the sources, and the
//! entries at the root.

use super::source::Source;
use braid_tests_support::error::{Context, Result};
use braid_tests_support::paths;
use braid_tests_support::sh::cmd;
use serde_json::Value;
use std::path::Path;

/// The working tree.
pub(crate) struct Tree {
    /// The workspace's packages.
    pub(crate) packages: Vec<Package>,
    /// All Rust sources.
    pub(crate) sources: Vec<Source>,
    /// Names of the visible entries at the root.
    pub(crate) root_entries: Vec<String>,
}

/// A package of the workspace.
pub(crate) struct Package {
    /// Its name for Cargo.
    pub(crate) name: String,
    /// The in-house crates that it uses outside tests, by folder name.
    pub(crate) uses: Vec<String>,
    /// The root files of all its targets.
    pub(crate) roots: Vec<String>,
    /// The root files of its libraries and binaries.
    pub(crate) shipped_roots: Vec<String>,
}

impl Package {
    /// Its name in the table of edges.
    pub(crate) fn short_name(&self) -> &str {
        short(&self.name)
    }
}

fn short(name: &str) -> &str {
    name.strip_prefix("braid-").unwrap_or(name)
}

impl Tree {
    /// Reads the working tree.
    pub(crate) fn load() -> Result<Self> {
        let root = paths::root();
        let json = cmd("cargo").args(["metadata", "--format-version=1", "--no-deps"]).dir(&root).read()?;
        let packages = packages(&json, &format!("{}/", root.display()))?;
        let mut sources = Vec::new();
        for folder in ["crates", "tests", "xtask", "bench", "docs"] {
            collect(&root, &root.join(folder), &mut sources)?;
        }
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { packages, sources, root_entries: root_entries(&root)? })
    }

    /// The source at a path from the root.
    pub(crate) fn source(&self, path: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.path == path)
    }
}

/// Reads the output of `cargo metadata`; `root` ends with a slash.
pub(crate) fn packages(json: &str, root: &str) -> Result<Vec<Package>> {
    let metadata: Value = serde_json::from_str(json).context("cargo metadata")?;
    let packages = array(&metadata["packages"]);
    let names: Vec<&str> = packages.iter().map(|package| text(&package["name"])).collect();
    Ok(packages.iter().map(|package| read_package(package, &names, root)).collect())
}

fn read_package(package: &Value, in_house: &[&str], root: &str) -> Package {
    let uses = array(&package["dependencies"])
        .iter()
        .filter(|dependency| text(&dependency["kind"]) != "dev")
        .map(|dependency| text(&dependency["name"]))
        .filter(|name| in_house.contains(name))
        .map(|name| short(name).to_owned())
        .collect();
    let roots_of = |wanted: &dyn Fn(&str) -> bool| {
        array(&package["targets"])
            .iter()
            .filter(|target| array(&target["kind"]).iter().any(|kind| wanted(text(kind))))
            .map(|target| text(&target["src_path"]).trim_start_matches(root).to_owned())
            .collect()
    };
    Package {
        name: text(&package["name"]).to_owned(),
        uses,
        roots: roots_of(&|_| true),
        shipped_roots: roots_of(&|kind| kind == "bin" || kind.ends_with("lib")),
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn collect(root: &Path, dir: &Path, sources: &mut Vec<Source>) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        // Code of others keeps its own style.
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target" && name != "vendor") {
            collect(root, &path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            sources.push(Source::new(name, std::fs::read_to_string(&path).at(&path)?));
        }
    }
    Ok(())
}

fn root_entries(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root).at(root)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && name != "target" {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_gives_edges_without_those_for_tests() {
        let json = r#"{"packages": [
            {"name": "braid-a", "dependencies": [
                {"name": "braid-b", "kind": null}, {"name": "braid-c", "kind": "dev"},
                {"name": "libc", "kind": null}, {"name": "braid-c", "kind": "build"}],
             "targets": [{"kind": ["lib"], "src_path": "/r/a/src/lib.rs"}, {"kind": ["test"], "src_path": "/r/a/t.rs"}]},
            {"name": "braid-b", "dependencies": [], "targets": []},
            {"name": "braid-c", "dependencies": [], "targets": []}]}"#;
        let packages = packages(json, "/r/").unwrap();
        assert_eq!(packages[0].short_name(), "a");
        assert_eq!(packages[0].uses, ["b", "c"]);
        assert_eq!(packages[0].roots, ["a/src/lib.rs", "a/t.rs"]);
        assert_eq!(packages[0].shipped_roots, ["a/src/lib.rs"]);
    }
}
