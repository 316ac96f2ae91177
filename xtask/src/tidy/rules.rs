//! The house rules. Each looks at the whole tree and answers its violations.

use super::cycles::{module_cycles, spread_methods};
use super::house;
use super::source::{Function, Source};
use super::tree::Tree;
use std::collections::HashSet;

/// A rule: its name, and the function that finds its violations.
type Rule = (&'static str, fn(&Tree) -> Vec<String>);

/// All rules.
pub(crate) const RULES: &[Rule] = &[
    ("edges", edges),
    ("module cycles", module_cycles),
    ("spread methods", spread_methods),
    ("file length", file_length),
    ("xtask length", xtask_length),
    ("function length", function_length),
    ("unsafe", unsafe_code),
    ("forbid(unsafe_code)", forbids_unsafe),
    ("root entries", root_entries),
    ("forbidden macros", forbidden_macros),
    ("names are escaped", raw_names),
    ("dead files", dead_files),
    ("module heads", module_heads),
    ("contract documented", contract_documented),
];

fn edges(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for package in &tree.packages {
        let Some((_, allowed)) = house::EDGES.iter().find(|(name, _)| *name == package.short_name()) else {
            found.push(format!(
                "crate {} is not in the table of edges (xtask/src/tidy/house.rs)",
                package.name
            ));
            continue;
        };
        let uses = package.uses.iter().filter(|name| !allowed.contains(&name.as_str()));
        found.extend(uses.map(|name| format!("{} must not use {name}", package.short_name())));
    }
    found
}

fn file_length(tree: &Tree) -> Vec<String> {
    let long = tree.sources.iter().filter(|source| source.code_lines() > house::FILE_LINES_MAX);
    long.map(|source| {
        format!("{}: {} lines of code, limit {}", source.path, source.code_lines(), house::FILE_LINES_MAX)
    })
    .collect()
}

fn xtask_length(tree: &Tree) -> Vec<String> {
    let sources = tree.sources.iter().filter(|source| source.path.starts_with("xtask/src/"));
    let lines: usize = sources.map(Source::code_lines).sum();
    let long = lines > house::XTASK_LINES_MAX;
    long.then(|| format!("xtask: {lines} lines of code, limit {}", house::XTASK_LINES_MAX))
        .into_iter()
        .collect()
}

fn function_length(tree: &Tree) -> Vec<String> {
    let functions = functions_by_length(tree);
    let marks = [(90, house::FUNCTION_LINES_P90), (99, house::FUNCTION_LINES_P99)];
    let missed = marks.iter().filter(|(percent, limit)| percentile(&functions, *percent) > *limit);
    missed
        .map(|(percent, limit)| {
            format!(
                "p{percent} of the functions' length is {}, limit {limit}",
                percentile(&functions, *percent)
            )
        })
        .collect()
}

fn unsafe_code(tree: &Tree) -> Vec<String> {
    let outside = tree.sources.iter().filter(|source| !source.path.starts_with(house::UNSAFE_HOME));
    outside
        .flat_map(|source| {
            let words = source.words().into_iter().filter(|(_, word)| word == "unsafe");
            words.map(|(at, _)| format!("{}:{}: unsafe", source.path, source.line_of(at))).collect::<Vec<_>>()
        })
        .collect()
}

fn forbids_unsafe(tree: &Tree) -> Vec<String> {
    let roots = tree.packages.iter().flat_map(|package| &package.shipped_roots);
    roots
        .filter(|root| !root.starts_with(house::UNSAFE_HOME))
        .filter(|root| tree.source(root).is_some_and(|source| !has_forbid(source)))
        .map(|root| format!("{root}: lacks #![forbid(unsafe_code)]"))
        .collect()
}

fn has_forbid(source: &Source) -> bool {
    source.text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]")
}

fn root_entries(tree: &Tree) -> Vec<String> {
    let (count, limit) = (tree.root_entries.len(), house::ROOT_ENTRIES_MAX);
    if count <= limit {
        return Vec::new();
    }
    vec![format!("{count} visible entries at the root, limit {limit}: {}", tree.root_entries.join(" "))]
}

fn forbidden_macros(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for source in &tree.sources {
        for (at, word) in source.words() {
            let called = source.next_visible(at + word.chars().count()) == Some('!');
            if called && house::FORBIDDEN_MACROS.contains(&word.as_str()) {
                found.push(format!("{}:{}: {word}!", source.path, source.line_of(at)));
            }
        }
    }
    found
}

/// Code that prints file names must not use `Path::display()`, but the
/// contract's `shown()`, which escapes.
fn raw_names(tree: &Tree) -> Vec<String> {
    let shipped = tree.sources.iter().filter(|source| {
        let in_crate = source.path.strip_prefix("crates/").is_some_and(|path| path.contains("/src/"));
        in_crate && !source.path.starts_with("crates/testkit/")
    });
    shipped
        .flat_map(|source| {
            let code: String = source.code.iter().collect();
            let shipped = code.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let lines = shipped.lines().enumerate().filter(|(_, line)| line.contains(".display()"));
            let told = |at| format!("{}:{}: write shown() in place of display()", source.path, at + 1);
            lines.map(|(at, _)| told(at)).collect::<Vec<_>>()
        })
        .collect()
}

fn dead_files(tree: &Tree) -> Vec<String> {
    let roots = tree.packages.iter().flat_map(|package| package.roots.iter().cloned());
    let mut reached: HashSet<String> = HashSet::new();
    // Fuzz targets and templates are in workspaces of their own.
    let is_apart = |path: &str| path.contains("/fuzz/fuzz_targets/") || path.contains("/templates/");
    let apart = tree.sources.iter().map(|source| source.path.clone()).filter(|path| is_apart(path));
    let mut todo: Vec<(String, bool)> = roots.chain(apart).map(|root| (root, true)).collect();
    while let Some((path, is_root)) = todo.pop() {
        let Some(source) = tree.source(&path) else { continue };
        if reached.insert(path.clone()) {
            let modules = source.module_files().into_iter();
            let files = modules.flat_map(|module| candidates(&path, is_root, module));
            todo.extend(files.map(|file| (file, false)));
        }
    }
    let dead = tree.sources.iter().filter(|source| !reached.contains(&source.path));
    dead.map(|source| format!("{}: no `mod` leads here", source.path)).collect()
}

/// The files that `mod name;` in the file at `path` may mean.
fn candidates(path: &str, is_root: bool, (name, at): (String, Option<String>)) -> Vec<String> {
    let (dir, file) = path.rsplit_once('/').unwrap_or(("", path));
    if let Some(at) = at {
        let above = at.matches("../").count();
        let dir = (0..above).fold(dir, |dir, _| dir.rsplit_once('/').map_or("", |(dir, _)| dir));
        return vec![format!("{dir}/{}", &at[3 * above..])];
    }
    let stem = file.trim_end_matches(".rs");
    let dir = if is_root || stem == "mod" { dir.to_owned() } else { format!("{dir}/{stem}") };
    vec![format!("{dir}/{name}.rs"), format!("{dir}/{name}/mod.rs")]
}

fn module_heads(tree: &Tree) -> Vec<String> {
    let headless = tree.sources.iter().filter(|source| {
        let first = source.text.lines().map(str::trim).find(|line| !line.is_empty());
        !first.is_some_and(|line| line.starts_with("//!") && line.len() > 4)
    });
    headless.map(|source| format!("{}: does not begin with a //! paragraph", source.path)).collect()
}

fn contract_documented(tree: &Tree) -> Vec<String> {
    public_items(tree).into_iter().filter(|item| !item.documented).map(|item| item.place).collect()
}

/// A public item of the contract.
pub(crate) struct PublicItem {
    /// File, line and text.
    place: String,
    /// Whether a doc comment stands above it.
    pub(crate) documented: bool,
}

/// Public items, fields and trait methods' owners of the contract crate,
/// without re-exports.
pub(crate) fn public_items(tree: &Tree) -> Vec<PublicItem> {
    let contract = tree.sources.iter().filter(|source| source.path.starts_with("crates/contract/src/"));
    contract.flat_map(items_of).collect()
}

fn items_of(source: &Source) -> Vec<PublicItem> {
    let lines: Vec<&str> = source.text.lines().collect();
    let code: String = source.code.iter().collect();
    let public = code.lines().enumerate().filter(|(_, line)| {
        let line = line.trim_start();
        line.starts_with("pub ") && !line.starts_with("pub use ") && !line.contains('$')
    });
    public
        .map(|(at, line)| PublicItem {
            place: format!("{}:{}: no documentation: {}", source.path, at + 1, line.trim()),
            documented: is_documented(&lines[..at]),
        })
        .collect()
}

/// Whether a doc comment stands above, with only attributes between.
fn is_documented(above: &[&str]) -> bool {
    let mut lines = above.iter().rev().map(|line| line.trim());
    lines.find(|line| !line.starts_with("#[")).is_some_and(|line| line.starts_with("///"))
}

/// Functions of all sources with their paths, shortest first.
pub(crate) fn functions_by_length(tree: &Tree) -> Vec<(&str, Function)> {
    let mut all: Vec<_> = tree
        .sources
        .iter()
        .flat_map(|source| source.functions().into_iter().map(|function| (source.path.as_str(), function)))
        .collect();
    all.sort_by_key(|(_, function)| function.length);
    all
}

/// The length that `percent` of the functions do not exceed.
pub(crate) fn percentile(functions: &[(&str, Function)], percent: usize) -> usize {
    let at = (functions.len() * percent).div_ceil(100).saturating_sub(1);
    functions.get(at).map_or(0, |(_, function)| function.length)
}

#[cfg(test)]
mod tests;
