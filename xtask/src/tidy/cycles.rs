//! The rules on modules: no cycle between the files of a shipped crate, and no
//! type whose methods are spread over many files.

use super::house;
use super::modules::{Modules, Uses};
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// The modules of each shipped crate, or which file can't be read.
fn crates(tree: &Tree) -> Vec<Result<Modules, String>> {
    let roots = tree.packages.iter().flat_map(|package| &package.shipped_roots);
    let shipped: BTreeSet<&str> = roots
        .filter_map(|root| root.rsplit_once('/'))
        .map(|(folder, _)| folder)
        .filter(|folder| folder.starts_with("crates/") && folder.ends_with("/src"))
        // The crate that tests stand on is not shipped.
        .filter(|folder| !folder.starts_with("crates/testkit/"))
        .collect();
    let read = |folder: &&str| {
        let root = format!("{folder}/");
        let sources = tree.sources.iter().filter(|source| source.path.starts_with(&root));
        Modules::read(&root, sources)
    };
    shipped.iter().map(read).collect()
}

/// Files that use one another in a circle.
pub(crate) fn module_cycles(tree: &Tree) -> Vec<String> {
    let (mut found, mut unread) = (Vec::new(), Vec::new());
    for modules in crates(tree) {
        match modules {
            Ok(modules) => found.extend(circles(&modules.uses())),
            Err(error) => unread.push(error),
        }
    }
    unread.into_iter().chain(found).collect()
}

/// How many circles there are.
pub(crate) fn count(tree: &Tree) -> usize {
    crates(tree).into_iter().flatten().map(|modules| circles(&modules.uses()).len()).sum()
}

/// Types with methods in too many files.
pub(crate) fn spread_methods(tree: &Tree) -> Vec<String> {
    let modules = crates(tree).into_iter().flatten();
    let spread = modules.flat_map(|modules| {
        let many = modules.inherent.into_iter().filter(|(_, files)| files.len() > house::METHOD_FILES_MAX);
        many.map(|(name, files)| {
            format!("{name} has methods in {} files, limit {}", files.len(), house::METHOD_FILES_MAX)
        })
    });
    spread.collect()
}

/// The sets of files of which each leads to each other, with the edges between
/// them.
fn circles(uses: &Uses) -> Vec<String> {
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        uses.keys().map(|file| (file, reachable(uses, file))).collect();
    let mut done = BTreeSet::new();
    let mut found = Vec::new();
    for file in uses.keys() {
        if done.contains(file) || !reach[file].contains(file) {
            continue;
        }
        let circle: BTreeSet<&String> = reach[file]
            .iter()
            .copied()
            .filter(|other| reach.get(other).is_some_and(|from| from.contains(file)))
            .collect();
        let way = shortest_way(uses, file, file);
        found.push(format!("{} files use one another, as in {}", circle.len(), way.join(" -> ")));
        done.extend(circle);
    }
    found
}

fn reachable<'u>(uses: &'u Uses, from: &String) -> BTreeSet<&'u String> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&String> = uses.get(from).into_iter().flat_map(BTreeMap::keys).collect();
    while let Some(file) = next.pop() {
        if seen.insert(file) {
            next.extend(uses.get(file).into_iter().flat_map(BTreeMap::keys));
        }
    }
    seen
}

/// The shortest way from one file to another, both included; there is one.
fn shortest_way(uses: &Uses, from: &str, to: &str) -> Vec<String> {
    let mut ways: Vec<Vec<String>> = vec![vec![from.to_owned()]];
    let mut seen = BTreeSet::new();
    let mut at = 0;
    while let Some(way) = ways.get(at).cloned() {
        at += 1;
        for (next, name) in way.last().and_then(|last| uses.get(last)).into_iter().flatten() {
            let longer = || way.iter().cloned().chain([format!("{next} ({name})")]).collect::<Vec<_>>();
            if next == to {
                return longer();
            }
            if seen.insert(next.clone()) {
                ways.push(way.iter().cloned().chain([next.clone()]).collect());
            }
        }
    }
    Vec::new()
}
