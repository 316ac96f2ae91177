//! Other modules for a mounted stack: `braid stack modify`. The bottom and the mount stay as they
//! are, even if the given stack file differs there: it may come from a user without further rights.
//! `control` calls this.

use crate::modules::Modules;
use crate::refusal::{Place, Refusal};
use crate::reply::invalid;
use crate::running::Running;
use crate::source::Reading;
use crate::stack_file;
use crate::stack_text::{self, bottom_mut, get, same, set};
use crate::yaml::{self, Node, Value};
use braid_ipc::protocol::{ErrorReply, Modified, ModuleUpgraded};
use braid_stack::Registry;
use std::path::Path;
use std::sync::Arc;

/// The modules of a mounted stack, and its document.
pub(crate) struct Stack<'a> {
    pub(crate) modules: &'a Modules,
    pub(crate) running: &'a Running,
}

/// Brings the modules of a stack file into force. The caller keeps other changes of the
/// stack away.
pub(crate) fn modify(
    mounted: &Stack<'_>,
    (name, text): (&str, &str),
    dry_run: bool,
) -> Result<(Modified, bool), ErrorReply> {
    let old = mounted.running.stack();
    let file = Place::file(name);
    let given = yaml::parse(text, &file).map_err(invalid)?;
    // Before files are read that settings name: those may be of others than the user who asks.
    refuse_second_bottom(&given, &file).map_err(invalid)?;
    refuse_other_frames(&old, &given, &file).map_err(invalid)?;
    let reading =
        Reading { base: mounted.running.base(), profile: true, registry: &mounted.running.registry() };
    let new = stack_file::of_document(spliced(given, &old), name, &reading).map_err(invalid)?;
    let next = mounted.modules.prepare(&new.stack, &file).map_err(invalid)?;
    let (were, are) = (stack_text::modules(&old), stack_text::modules(&new.source.root));
    let changes = changes(&were, &are);
    let came = are.iter().any(|(name, _)| !were.iter().any(|(old, _)| old == name));
    let modules = new.stack.modules().into_iter().map(str::to_owned).collect();
    if !dry_run && !changes.is_empty() {
        mounted.modules.exchange(next).map_err(ErrorReply::new)?;
        mounted.running.is_now(new.source.root);
        tracing::info!(changes = changes.join("; "), "the stack was modified");
    }
    let file = mounted.running.file().map(|file| file.to_string_lossy().into_owned());
    Ok((Modified { modules, changes, file }, came))
}

/// Has another library go on as module `name`: that of `file`, or the one that a
/// repository has now. The caller keeps other changes of the stack away.
pub(crate) fn upgrade(
    mounted: &Stack<'_>,
    name: &str,
    file: Option<&Path>,
) -> Result<ModuleUpgraded, ErrorReply> {
    let before = mounted.running.registry();
    if braid_modules::NAMES.contains(&name) {
        let message = format!("module {name} is built in: braid upgrade exchanges the whole program");
        return Err(ErrorReply::new(message));
    }
    let root = mounted.running.stack();
    let shown = mounted.running.file().map_or("the mounted stack".into(), |file| file.to_string_lossy());
    if !stack_text::modules(&root).iter().any(|(module, _)| *module == name) {
        return Err(ErrorReply::new(format!("the stack has no module {name}: braid stack list")));
    }
    let registry = Arc::new(before.with(name, file).map_err(ErrorReply::new)?);
    let reading = Reading { base: mounted.running.base(), profile: false, registry: &registry };
    let new = stack_file::of_document(root, &shown, &reading).map_err(invalid)?;
    let next = mounted.modules.prepare(&new.stack, &Place::file(&shown)).map_err(invalid)?;
    let paused_ns = mounted.modules.exchange(next).map_err(ErrorReply::new)?;
    let version = |registry: &Registry| registry.version(name).unwrap_or_default();
    let (from, to) = (version(&before), version(&registry));
    mounted.running.has_modules(registry);
    tracing::info!(module = name, from, to, "the module was exchanged");
    Ok(ModuleUpgraded { module: name.to_owned(), from, to, paused_ns })
}

/// Refuses a document of which it is unclear where the modules end: the mounted bottom takes the
/// place of one, and the other one would count.
fn refuse_second_bottom(given: &Node, file: &Place) -> Result<(), Refusal> {
    match get(given, "stack").map_or(0, stack_text::count_bottoms) {
        0 | 1 => Ok(()),
        _ => {
            let advice = "leave one of them, below all modules";
            Err(file.key("stack").refuse("it names more than one volume, log or view", advice))
        }
    }
}

/// Refuses other modules of frames than the mounted ones, whose open files would be lost, wherever
/// they are written.
fn refuse_other_frames(old: &Node, given: &Node, file: &Place) -> Result<(), Refusal> {
    let refuse = |found: String| {
        let advice = "leave those as 'braid stack dump' has them, or unmount, and mount with these modules";
        Err(file.key("stack").refuse(found, advice))
    };
    match stack_text::other_frames(old, given) {
        Some(name) => refuse(format!(
            "module '{name}' keeps open files to itself, so that it can't come, go, or have other settings \
             while the stack is mounted"
        )),
        None if stack_text::hidden_frames(given) => {
            refuse("it names a module of frames where none can be".into())
        }
        None => Ok(()),
    }
}

/// The modules of one document on the bottom of another, with all else of that.
fn spliced(mut modules: Node, rest: &Node) -> Node {
    let mut rest = rest.clone();
    // Without anything at the bottom, the stack is refused for that.
    if let (Some(given), Some(bottom)) = (bottom_mut(&mut modules), bottom_mut(&mut rest)) {
        given.key.clone_from(&bottom.key);
        given.node = bottom.node.clone();
    }
    for key in ["mount", "exec"] {
        match (get(&rest, key), &mut modules.value) {
            (Some(mounted), Value::Map(_)) => set(&mut modules, key, mounted.value.clone()),
            (None, Value::Map(entries)) => entries.retain(|entry| entry.key != key),
            _ => {}
        }
    }
    modules
}

/// The changes of the modules, for people.
fn changes(old: &[(&str, Node)], new: &[(&str, Node)]) -> Vec<String> {
    let mut left: Vec<&(&str, Node)> = old.iter().collect();
    let mut changes = Vec::new();
    let mut kept = Vec::new();
    for (name, settings) in new {
        match left.iter().position(|(old, _)| old == name) {
            Some(at) => {
                let (_, before) = left.remove(at);
                if !same(before, settings) {
                    changes.push(format!("module {name}: other settings"));
                }
                kept.push(*name);
            }
            None => changes.push(format!("module {name}: added")),
        }
    }
    changes.extend(left.iter().map(|(name, _)| format!("module {name}: removed")));
    let mut order: Vec<&str> = old.iter().map(|(name, _)| *name).collect();
    for (gone, _) in &left {
        if let Some(at) = order.iter().position(|name| name == gone) {
            order.remove(at);
        }
    }
    if order != kept {
        changes.push(format!("modules: in the order {}", kept.join(", ")));
    }
    changes
}
