//! The contract has no unused parts: shipped code uses each method of its
//! traits and each public field, function and variant. Names are compared, not
//! types, so a name that many things share counts as used once one of them is.
//! `--nocapture` prints the first use of each.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};

/// The crates that use stores.
const ABOVE_STORES: [&str; 5] = ["core/", "check/", "volume/", "tiers/", "daemon/"];

/// All public names of the contract: the file of each, and whether it is a
/// method.
#[derive(Default)]
struct Offered(BTreeMap<String, (String, bool)>);

/// The names that a file uses.
#[derive(Default)]
struct Used {
    /// Fields that it reads, and names in paths and macros.
    names: BTreeSet<String>,
    /// Methods that it calls.
    calls: BTreeSet<String>,
    /// The enclosing functions: a call of the same name only forwards.
    within: Vec<String>,
}

impl Used {
    fn note(&mut self, name: &syn::Ident) {
        let name = name.to_string();
        if !self.within.contains(&name) {
            self.names.insert(name);
        }
    }

    fn call(&mut self, name: &syn::Ident) {
        let name = name.to_string();
        if !self.within.contains(&name) {
            self.calls.insert(name);
        }
    }

    /// Arguments of macros are not parsed: all names there count.
    fn tokens(&mut self, tokens: proc_macro2::TokenStream) {
        let mut after_dot = false;
        for token in tokens {
            match &token {
                proc_macro2::TokenTree::Ident(name) if after_dot => {
                    self.call(name);
                    self.note(name);
                }
                proc_macro2::TokenTree::Ident(name) => self.note(name),
                proc_macro2::TokenTree::Group(group) => self.tokens(group.stream()),
                proc_macro2::TokenTree::Literal(text) => self.interpolated(&text.to_string()),
                proc_macro2::TokenTree::Punct(_) => {}
            }
            after_dot = matches!(&token, proc_macro2::TokenTree::Punct(mark) if mark.as_char() == '.');
        }
    }

    /// The names in the braces of a format string.
    fn interpolated(&mut self, text: &str) {
        for part in text.split('{').skip(1) {
            let name: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            self.names.insert(name);
        }
    }
}

fn is_test(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|attr| match &attr.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition == "test" || condition.contains("(test")
        }
        meta => meta.path().is_ident("test"),
    })
}

impl<'ast> Visit<'ast> for Used {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    // Imports and re-exports use nothing by themselves.
    fn visit_item_use(&mut self, _: &'ast syn::ItemUse) {}

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.within.push(item.sig.ident.to_string());
        visit::visit_impl_item_fn(self, item);
        self.within.pop();
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.call(&call.method);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_field(&mut self, field: &'ast syn::ExprField) {
        if let syn::Member::Named(name) = &field.member {
            self.note(name);
        }
        visit::visit_expr_field(self, field);
    }

    fn visit_field_pat(&mut self, field: &'ast syn::FieldPat) {
        if let syn::Member::Named(name) = &field.member {
            self.note(name);
        }
        visit::visit_field_pat(self, field);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        path.segments.iter().for_each(|segment| self.note(&segment.ident));
        if let Some(last) = path.segments.last().filter(|_| path.segments.len() > 1) {
            self.call(&last.ident);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(item.tokens.clone());
    }
}

impl Offered {
    fn add(&mut self, file: &str, of: &str, name: &syn::Ident) {
        self.0.insert(format!("{of}{name}"), (file.to_owned(), false));
    }

    fn add_method(&mut self, file: &str, of: &str, name: &syn::Ident) {
        self.0.insert(format!("{of}{name}"), (file.to_owned(), true));
    }

    fn item(&mut self, file: &str, item: &syn::Item) {
        let public = |vis: &syn::Visibility| matches!(vis, syn::Visibility::Public(_));
        match item {
            syn::Item::Fn(item) if public(&item.vis) => self.add(file, "", &item.sig.ident),
            syn::Item::Const(item) if public(&item.vis) => self.add(file, "", &item.ident),
            syn::Item::Trait(item) => {
                for member in &item.items {
                    if let syn::TraitItem::Fn(method) = member {
                        self.add_method(file, &format!("{}::", item.ident), &method.sig.ident);
                    }
                }
            }
            syn::Item::Struct(item) if public(&item.vis) && !is_serialized(&item.attrs) => {
                for field in item.fields.iter().filter(|field| public(&field.vis)) {
                    if let Some(name) = &field.ident {
                        self.add(file, &format!("{}::", item.ident), name);
                    }
                }
            }
            syn::Item::Enum(item) if public(&item.vis) => {
                for variant in &item.variants {
                    self.add(file, &format!("{}::", item.ident), &variant.ident);
                }
            }
            syn::Item::Impl(item) if item.trait_.is_none() => {
                for member in &item.items {
                    if let syn::ImplItem::Fn(method) = member
                        && public(&method.vis)
                    {
                        let of = match &*item.self_ty {
                            syn::Type::Path(of) => of.path.segments.last(),
                            _ => None,
                        };
                        let of = of.map_or(String::new(), |of| format!("{}::", of.ident));
                        self.add_method(file, &of, &method.sig.ident);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Serialized fields are read at the other end.
fn is_serialized(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|attr| match &attr.meta {
        syn::Meta::List(list) => {
            list.path.is_ident("derive") && list.tokens.to_string().contains("Serialize")
        }
        _ => false,
    })
}

/// The Rust files below a directory.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn parse(path: &Path) -> syn::File {
    let text = std::fs::read_to_string(path).unwrap();
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn nothing_in_the_contract_is_unused() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let short = |path: &Path| path.strip_prefix(crates).unwrap().display().to_string();
    let mut files = Vec::new();
    sources(crates, &mut files);
    // Tests and their support do not count.
    files.retain(|path| {
        let path = short(path);
        path.contains("/src/") && !path.starts_with("testkit/") && !path.ends_with("tests.rs")
    });
    files.sort();
    let mut offered = Offered::default();
    let mut uses: BTreeMap<(String, bool), Vec<String>> = BTreeMap::new();
    for path in &files {
        let (file, parsed) = (short(path), parse(path));
        if file.starts_with("contract/") {
            parsed.items.iter().for_each(|item| offered.item(&file, item));
        }
        let mut used = Used::default();
        used.visit_file(&parsed);
        let calls = used.calls.into_iter().map(|name| (name, true));
        for key in used.names.into_iter().map(|name| (name, false)).chain(calls) {
            uses.entry(key).or_default().push(file.clone());
        }
    }
    assert!(offered.0.len() > 200, "only {} things found: this looks in the wrong place", offered.0.len());
    let mut unused = Vec::new();
    for (name, (file, is_method)) in &offered.0 {
        let last = name.rsplit("::").next().unwrap().to_owned();
        let of_store = name.starts_with("Store::") || name.starts_with("StoreCapabilities::");
        // Stores keep promises, and only the code above stores relies on them.
        let counts = |place: &&String| !of_store || ABOVE_STORES.iter().any(|dir| place.starts_with(dir));
        match uses.get(&(last, *is_method)).into_iter().flatten().find(counts) {
            Some(place) => println!("{name}: {place}"),
            None => unused.push(format!("{name} ({file})")),
        }
    }
    assert!(unused.is_empty(), "nothing that ships uses:\n{}", unused.join("\n"));
}
