//! The modules of a crate and which of them uses which, file by file.
//!
//! A file uses another if it names something that is defined there, however
//! the name came to it: by an import, a re-export or a path. It also does if it
//! calls a method that stands there in an `impl` of a type from elsewhere.
//! Tests do not count.

use super::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Attribute, File, ImplItem, Item, UseTree, Visibility};

/// A module's path from the crate's root.
type ModulePath = Vec<String>;

/// The modules of one crate.
#[derive(Default)]
pub(crate) struct Modules {
    files: BTreeMap<String, (ModulePath, File)>,
    /// The definitions of each module, and their files.
    defined: BTreeMap<(ModulePath, String), String>,
    /// The re-exports and imports of each module, and their sources.
    imported: BTreeMap<(ModulePath, String), ModulePath>,
    /// Files with inherent methods of each type.
    pub(crate) inherent: BTreeMap<String, BTreeSet<String>>,
    /// Methods of a type that stand in another file than the type; `None` where
    /// two have the same name.
    foreign: BTreeMap<String, Option<String>>,
    /// The same of functions without a receiver, by the file and the name of
    /// their type.
    associated: BTreeMap<(String, String, String), String>,
}

/// Which file uses which, and a name for which it does.
pub(crate) type Uses = BTreeMap<String, BTreeMap<String, String>>;

impl Modules {
    /// Reads the files below `crates/NAME/src/`.
    pub(crate) fn read<'s>(root: &str, sources: impl Iterator<Item = &'s Source>) -> Result<Self, String> {
        let mut modules = Self::default();
        for source in sources {
            let parsed =
                syn::parse_file(&source.text).map_err(|error| format!("{}: {error}", source.path))?;
            let path = module_path(&source.path[root.len()..]);
            modules.files.insert(source.path.clone(), (path, parsed));
        }
        let files = std::mem::take(&mut modules.files);
        for (file, (path, parsed)) in &files {
            parsed
                .items
                .iter()
                .filter(|item| !is_test(attributes(item)))
                .for_each(|item| modules.define(file, path, item));
        }
        for (file, (path, parsed)) in &files {
            parsed
                .items
                .iter()
                .filter(|item| !is_test(attributes(item)))
                .for_each(|item| modules.methods(file, path, item));
        }
        modules.files = files;
        Ok(modules)
    }

    fn define(&mut self, file: &str, path: &ModulePath, item: &Item) {
        let name = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Use(item) => {
                for (name, target) in leaves(&item.tree, &Vec::new()) {
                    self.imported.insert((path.clone(), name), target);
                }
                return;
            }
            Item::Macro(item) => match &item.ident {
                Some(name) => name,
                None => return,
            },
            _ => return,
        };
        self.defined.insert((path.clone(), name.to_string()), file.to_owned());
    }

    /// Notes the inherent methods of a type.
    fn methods(&mut self, file: &str, path: &ModulePath, item: &Item) {
        let Item::Impl(item) = item else { return };
        let syn::Type::Path(of) = &*item.self_ty else { return };
        let names: ModulePath = of.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let Some(home) = self.resolve(path, &names) else { return };
        if item.trait_.is_some() {
            return;
        }
        let of = format!("{}::{}", home, names.last().map_or("", String::as_str));
        self.inherent.entry(of).or_default().insert(file.to_owned());
        for method in &item.items {
            let ImplItem::Fn(method) = method else { continue };
            let name = method.sig.ident.to_string();
            let place = (home != file).then(|| file.to_owned());
            if method.sig.receiver().is_none() {
                if let (Some(place), Some(of)) = (place, names.last()) {
                    self.associated.insert((home.clone(), of.clone(), name), place);
                }
            } else {
                self.foreign.entry(name).and_modify(|known| *known = None).or_insert(place);
            }
        }
    }

    /// The file that defines the item of a path, as seen from a module.
    fn resolve(&self, from: &ModulePath, names: &[String]) -> Option<String> {
        self.resolve_within(from, names, 16)
    }

    fn resolve_within(&self, from: &ModulePath, names: &[String], depth: u32) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        let mut module = from.clone();
        let mut rest = names;
        loop {
            match rest.split_first()? {
                (first, after) if first == "crate" => (module, rest) = (Vec::new(), after),
                (first, after) if first == "self" => rest = after,
                (first, after) if first == "super" => {
                    module.pop()?;
                    rest = after;
                }
                _ => break,
            }
        }
        let (first, after) = rest.split_first()?;
        let key = (module.clone(), first.clone());
        if let Some(file) = self.defined.get(&key) {
            return Some(file.clone());
        }
        let child: ModulePath = module.iter().chain([first]).cloned().collect();
        let is_module = || self.files.values().any(|(path, _)| *path == child);
        if !after.is_empty() && (self.defined.keys().any(|(path, _)| *path == child) || is_module()) {
            return self.resolve_within(&child, after, depth);
        }
        let target = self.imported.get(&key)?;
        let path: ModulePath = target.iter().chain(after).cloned().collect();
        self.resolve_within(&module, &path, depth)
    }

    /// Which file uses which.
    pub(crate) fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (file, (path, parsed)) in &self.files {
            let mut names = Names::default();
            names.visit_file(parsed);
            let used = uses.entry(file.clone()).or_default();
            let mut add = |target: Option<String>, name: &str| {
                if let Some(target) = target.filter(|target| target != file) {
                    used.entry(target).or_insert_with(|| name.to_owned());
                }
            };
            for name in &names.paths {
                add(self.resolve(path, name), &name.join("::"));
                if let [of @ .., function] = &name[..]
                    && let Some((of_type, home)) = of.last().zip(self.resolve(path, of))
                {
                    let key = (home, of_type.clone(), function.clone());
                    add(self.associated.get(&key).cloned(), &name.join("::"));
                }
            }
            for method in &names.methods {
                add(self.foreign.get(method).cloned().flatten(), method);
            }
        }
        uses
    }
}

/// The paths that a file names, and the methods that it calls.
#[derive(Default)]
struct Names {
    paths: BTreeSet<ModulePath>,
    methods: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test(attributes(item)) {
            return;
        }
        if let Item::Use(item) = item {
            // A re-export is used where it is named.
            if matches!(item.vis, Visibility::Inherited) {
                self.paths.extend(leaves(&item.tree, &Vec::new()).into_iter().map(|(_, path)| path));
            }
            return;
        }
        visit::visit_item(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.methods.insert(call.method.to_string());
        visit::visit_expr_method_call(self, call);
    }
}

/// The names that an import brings, each with its path.
fn leaves(tree: &UseTree, before: &ModulePath) -> Vec<(String, ModulePath)> {
    let with = |name: &syn::Ident| {
        let mut path = before.clone();
        path.push(name.to_string());
        path
    };
    match tree {
        UseTree::Path(path) => leaves(&path.tree, &with(&path.ident)),
        UseTree::Name(name) if name.ident == "self" => {
            before.last().map(|last| (last.clone(), before.clone())).into_iter().collect()
        }
        UseTree::Name(name) => vec![(name.ident.to_string(), with(&name.ident))],
        UseTree::Rename(name) => vec![(name.rename.to_string(), with(&name.ident))],
        UseTree::Group(group) => group.items.iter().flat_map(|tree| leaves(tree, before)).collect(),
        UseTree::Glob(_) => Vec::new(),
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether it is there for tests alone.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition == "test" || condition.starts_with("all (test") || condition.starts_with("all(test")
        }
        _ => false,
    })
}

/// The module that a file below `src/` is.
fn module_path(file: &str) -> ModulePath {
    let stem = file.trim_end_matches(".rs");
    let mut path: ModulePath = stem.split('/').map(str::to_owned).collect();
    if matches!(path.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        path.pop();
    }
    path
}
