//! For each rule, a small tree that breaks it and one that keeps it.

use super::*;
use crate::tidy::cycles::count;
use crate::tidy::tree::Package;

const FINE: &str = "//! Head.\n#![forbid(unsafe_code)]\n";

fn package(name: &str, uses: &[&str]) -> Package {
    let root = format!("crates/{name}/src/lib.rs");
    Package {
        name: format!("braid-{name}"),
        uses: uses.iter().map(|name| (*name).to_owned()).collect(),
        roots: vec![root.clone()],
        shipped_roots: vec![root],
    }
}

fn tree(files: &[(&str, &str)]) -> Tree {
    Tree {
        packages: vec![package("volume", &["contract", "sys"]), package("sys", &[])],
        sources: files.iter().map(|(path, text)| Source::new(*path, *text)).collect(),
        root_entries: vec!["README.md".into()],
    }
}

fn volume(text: &str) -> Tree {
    tree(&[("crates/volume/src/lib.rs", text)])
}

#[test]
fn a_tree_that_keeps_the_rules_breaks_none() {
    let tree = tree(&[
        ("crates/volume/src/lib.rs", "//! Head.\n#![forbid(unsafe_code)]\nmod index;\n"),
        ("crates/volume/src/index/mod.rs", "//! Head.\nmod entry;\n"),
        ("crates/volume/src/index/entry.rs", "//! Head.\nfn short() {\n}\n"),
        ("crates/sys/src/lib.rs", "//! Head.\nunsafe fn allowed() {}\n"),
    ]);
    for (name, rule) in RULES {
        assert_eq!(rule(&tree), [] as [String; 0], "{name}");
    }
}

#[test]
fn edges_that_the_table_lacks_are_found() {
    let mut tree = volume(FINE);
    tree.packages.push(package("fuse", &["contract", "volume"]));
    tree.packages.push(package("upstart", &[]));
    let found = edges(&tree);
    assert_eq!(found[0], "fuse must not use volume");
    assert!(found[1].contains("braid-upstart is not in the table"), "{found:?}");
    assert_eq!(found.len(), 2);
}

#[test]
fn volume_must_not_use_stores() {
    let mut tree = volume(FINE);
    tree.packages = vec![package("volume", &["stores"])];
    assert_eq!(edges(&tree), ["volume must not use stores"]);
}

#[test]
fn a_long_file_is_found_and_comments_do_not_count() {
    let long = format!("{FINE}{}", "const A: u8 = 0;\n".repeat(house::FILE_LINES_MAX));
    assert_eq!(file_length(&volume(&long)).len(), 1);
    let commented = format!("{FINE}{}", "// a\n\n".repeat(house::FILE_LINES_MAX));
    assert_eq!(file_length(&volume(&commented)).len(), 0);
}

#[test]
fn a_long_xtask_is_found() {
    let half = format!("{FINE}{}", "const A: u8 = 0;\n".repeat(house::XTASK_LINES_MAX / 2));
    let files =
        [("xtask/src/main.rs", half.as_str()), ("xtask/src/a.rs", &half), ("tests/src/lib.rs", &half)];
    assert_eq!(xtask_length(&tree(&files)).len(), 1);
    assert_eq!(xtask_length(&tree(&files[1..])).len(), 0);
}

#[test]
fn long_functions_are_found() {
    let function = |lines: usize| format!("fn f() {{\n{}}}\n", "a();\n".repeat(lines - 2));
    let short = function(5).repeat(9);
    assert_eq!(function_length(&volume(&format!("{short}{}", function(40)))).len(), 0);
    assert_eq!(function_length(&volume(&format!("{short}{}", function(81)))).len(), 1, "p99");
    assert_eq!(function_length(&volume(&function(31).repeat(10))).len(), 1, "p90");
}

#[test]
fn unsafe_outside_the_fence_is_found() {
    let text = format!("{FINE}// unsafe\nconst S: &str = \"unsafe\";\nfn f() {{ unsafe {{}} }}\n");
    assert_eq!(unsafe_code(&volume(&text)), ["crates/volume/src/lib.rs:5: unsafe"]);
}

#[test]
fn a_root_without_forbid_is_found() {
    assert_eq!(forbids_unsafe(&volume("//! Head.\n")).len(), 1);
    assert_eq!(forbids_unsafe(&volume("//! Head.\n// #![forbid(unsafe_code)]\n")).len(), 1);
}

#[test]
fn too_many_root_entries_are_found() {
    let mut tree = volume(FINE);
    tree.root_entries = (0..13).map(|n| format!("entry{n}")).collect();
    assert_eq!(root_entries(&tree).len(), 1);
    tree.root_entries.pop();
    assert_eq!(root_entries(&tree).len(), 0);
}

#[test]
fn forbidden_macros_are_found() {
    let text = format!("{FINE}fn f() {{ let todo = 1; dbg!(todo); }}\nfn g() {{ todo!() }}\n");
    let found = forbidden_macros(&volume(&text));
    assert_eq!(found, ["crates/volume/src/lib.rs:3: dbg!", "crates/volume/src/lib.rs:4: todo!"]);
}

#[test]
fn a_file_that_no_module_names_is_found() {
    let tree = tree(&[
        ("crates/volume/src/lib.rs", "//! Head.\nmod used;\n// mod dead;\n"),
        ("crates/volume/src/used.rs", "//! Head.\n#[path = \"../common/mod.rs\"]\nmod common;\n"),
        ("crates/volume/common/mod.rs", "//! Head.\n"),
        ("crates/volume/src/dead.rs", "//! Head.\n"),
    ]);
    assert_eq!(dead_files(&tree), ["crates/volume/src/dead.rs: no `mod` leads here"]);
}

#[test]
fn a_file_without_a_head_is_found() {
    assert_eq!(module_heads(&volume("// Head.\n")).len(), 1);
    assert_eq!(module_heads(&volume("//!\nfn f() {}\n")).len(), 1);
    assert_eq!(module_heads(&volume("")).len(), 1);
}

#[test]
fn a_public_item_without_documentation_is_found() {
    let text = "//! Head.\n/// A.\n#[derive(Debug)]\npub struct A {\n    pub field: u8,\n}\npub use a::A;\n";
    let tree = tree(&[("crates/contract/src/a.rs", text)]);
    assert_eq!(contract_documented(&tree), ["crates/contract/src/a.rs:5: no documentation: pub field: u8,"]);
    assert_eq!(public_items(&tree).len(), 2);
}

#[test]
fn percentiles_are_of_whole_functions() {
    let text = (1..=10).map(|n| format!("fn f{n}() {{{}}}\n", "\na();".repeat(n))).collect::<String>();
    let tree = volume(&text);
    let functions = functions_by_length(&tree);
    assert_eq!(
        (percentile(&functions, 50), percentile(&functions, 90), percentile(&functions, 99)),
        (6, 10, 11)
    );
    assert_eq!(percentile(&[], 90), 0);
}

#[test]
fn names_that_are_not_escaped_are_found() {
    let text = format!(
        "{FINE}// a.display()\nfn f() {{\n    g(path.display());\n}}\n#[cfg(test)]\nmod tests {{ fn f() {{ a.display() }} }}\n"
    );
    assert_eq!(
        raw_names(&volume(&text)),
        ["crates/volume/src/lib.rs:5: write shown() in place of display()"]
    );
    assert_eq!(raw_names(&tree(&[("xtask/src/main.rs", text.as_str())])), [] as [String; 0]);
}

#[test]
fn circles_of_modules_are_found_however_they_close() {
    let by_import = [
        ("crates/volume/src/lib.rs", "//! Head.\nmod a;\nmod b;\n"),
        ("crates/volume/src/a.rs", "//! Head.\nuse crate::b::B;\npub(crate) struct A(B);\n"),
        ("crates/volume/src/b.rs", "//! Head.\npub(crate) struct B;\n"),
    ];
    assert_eq!(count(&tree(&by_import)), 0);
    let mut closed = by_import;
    closed[2].1 = "//! Head.\nuse crate::a::A;\npub(crate) struct B;\nfn f(_: &A) {}\n";
    assert_eq!(count(&tree(&closed)), 1);
    // A method of a foreign type counts for the module that it is in.
    closed[1].1 = "//! Head.\npub(crate) struct A;\nfn f(a: &A) { a.of_b(); }\n";
    closed[2].1 = "//! Head.\nuse crate::a::A;\nimpl A { pub(crate) fn of_b(&self) {} }\n";
    assert_eq!(count(&tree(&closed)), 1);
    // A use in tests alone does not.
    closed[1].1 = "//! Head.\npub(crate) struct A;\n#[cfg(test)]\nmod tests { use crate::b::B; }\n";
    assert_eq!(count(&tree(&closed)), 0);
}
