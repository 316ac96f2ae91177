//! `cargo xtask tidy`: the house rules, as a test.
//!
//! `house.rs` holds the table of edges and the limits, `rules.rs` the rules;
//! the rest reads the tree.

mod cycles;
mod house;
mod modules;
mod rules;
mod source;
mod tree;

use braid_tests_support::error::{Result, fail};
use tree::Tree;

/// Checks the working tree, and prints figures.
pub(crate) fn run() -> Result<()> {
    let tree = Tree::load()?;
    let mut broken = 0;
    for (name, rule) in rules::RULES {
        for finding in rule(&tree) {
            eprintln!("tidy: {name}: {finding}");
            broken += 1;
        }
    }
    print_figures(&tree);
    if broken > 0 { fail(format!("{broken} breaches of the house rules")) } else { Ok(()) }
}

fn print_figures(tree: &Tree) {
    let mut files: Vec<_> = tree.sources.iter().map(|source| (source.code_lines(), &source.path)).collect();
    files.sort();
    let at = |percent: usize| files.get((files.len() * percent).div_ceil(100).saturating_sub(1));
    let total: usize = files.iter().map(|(lines, _)| lines).sum();
    let length = |percent| at(percent).map_or(0, |(lines, _)| *lines);
    println!("files: {}, {total} lines of code; p50 {}, p90 {}", files.len(), length(50), length(90));
    for (lines, path) in files.iter().rev().take_while(|(lines, _)| *lines > house::FILE_LINES_LARGE) {
        println!("  large: {path}: {lines} lines of code (limit {})", house::FILE_LINES_MAX);
    }
    let functions = rules::functions_by_length(tree);
    let [p50, p90, p99] = [50, 90, 99].map(|percent| rules::percentile(&functions, percent));
    println!("functions: {}; lines p50 {p50}, p90 {p90}, p99 {p99}", functions.len());
    for (path, function) in functions.iter().rev().take(3) {
        println!("  longest: {path}:{} {}: {} lines", function.line, function.name, function.length);
    }
    let items = rules::public_items(tree);
    let documented = items.iter().filter(|item| item.documented).count();
    println!("contract: {} public items, {documented} documented", items.len());
    println!("module cycles: {}", cycles::count(tree));
    println!("root: {} of {} entries", tree.root_entries.len(), house::ROOT_ENTRIES_MAX);
}
