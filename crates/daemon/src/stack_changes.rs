//! Changes between two readings of a stack file, for any bottom: of its modules, and of the mount.
//! Changes that only a mount can make are refused.

use crate::config::Config;
use crate::modify::Stack;
use crate::refusal::{Place, Refusal};
use crate::reply::{invalid, refused};
use crate::running::Running;
use crate::source::Reading;
use crate::stack_file;
use crate::stack_text::{self, bottom_mut, get, same};
use crate::yaml::{Node, Value};
use braid_contract::Errno;
use braid_ipc::protocol::{ErrorReply, Reloaded};

/// The old and the new stack file.
pub(crate) struct Files {
    pub(crate) old: Config,
    pub(crate) new: Config,
    /// The name of the file, for people.
    pub(crate) shown: String,
}

impl Files {
    /// Reads the stack file of a mount again.
    ///
    /// # Errors
    /// If there is none, or its first error.
    pub(crate) fn read(running: &Running) -> Result<Self, ErrorReply> {
        let Some(file) = running.file() else {
            let advice =
                "change tiers by braid tier; or write a stack file (braid stack dump), and mount with that";
            return Err(refused(
                Errno::EINVAL,
                "it was mounted by flags: there is no stack file to be read",
                advice,
            ));
        };
        let (shown, base) = (file.to_string_lossy().into_owned(), running.base());
        let reading = Reading { base, profile: true, registry: &running.registry() };
        let new = stack_file::read_at(file, &reading).map_err(invalid)?;
        let old = stack_file::of_document(running.stack(), &shown, &reading).map_err(invalid)?;
        Ok(Self { old, new, shown })
    }

    /// Refuses other modules, or other settings of those that can't be exchanged.
    pub(crate) fn refuse_modules(&self) -> Result<(), Refusal> {
        let (were, are) = (self.old.stack.modules(), self.new.stack.modules());
        if were != are {
            let found = format!("the modules were {}", were.join(", "));
            let advice = "put them back, or bring others into force by: braid stack modify MOUNT FILE";
            return Err(self.file().key("stack").refuse(found, advice));
        }
        if let Some(name) = stack_text::other_frames(&self.old.source.root, &self.new.source.root) {
            let found = format!("settings of '{name}' can't change while the stack is mounted");
            return Err(self.file().key("stack").refuse(found, anew("put them back")));
        }
        Ok(())
    }

    /// Refuses other settings of the file system at the bottom that only a mount sets.
    pub(crate) fn refuse_bottom(&self, keys: &[&str], place: &Place) -> Result<(), Refusal> {
        let (mut old, mut new) = (self.old.source.root.clone(), self.new.source.root.clone());
        match (bottom_mut(&mut old), bottom_mut(&mut new)) {
            (Some(old), Some(new)) => refuse_changed((&old.node, &new.node), place, keys),
            _ => Ok(()),
        }
    }

    /// Refuses another mount.
    pub(crate) fn refuse_mount(&self) -> Result<(), Refusal> {
        self.new.refuse_direct()?;
        let nothing = Node::new(Value::Null);
        let mounts =
            [&self.old, &self.new].map(|config| get(&config.source.root, "mount").unwrap_or(&nothing));
        let keys: Vec<&str> = mounts.into_iter().flat_map(keys_of).collect();
        refuse_changed((mounts[0], mounts[1]), &self.file().key("mount"), &keys)
    }

    /// The modules whose settings changed.
    pub(crate) fn module_changes(&self) -> Vec<String> {
        let [old, new] = [&self.old, &self.new].map(|config| stack_text::modules(&config.source.root));
        let changed = old.iter().zip(&new).filter(|((_, old), (_, new))| !same(old, new));
        changed.map(|((name, _), _)| format!("module {name}: other settings")).collect()
    }

    /// The new file as a place.
    pub(crate) fn file(&self) -> Place {
        Place::file(&self.shown)
    }
}

/// Reads the stack file of a stack without a volume again, and applies its changes: those of
/// modules. `keys` are those of the file system at the bottom. The caller keeps other changes of
/// the stack away.
pub(crate) fn reload(stack: &Stack<'_>, keys: &[&str], dry_run: bool) -> Result<Reloaded, ErrorReply> {
    let files = Files::read(stack.running)?;
    files.refuse_modules().map_err(invalid)?;
    files.refuse_bottom(keys, files.new.stack.bottom().place()).map_err(invalid)?;
    files.refuse_mount().map_err(invalid)?;
    let changes = files.module_changes();
    if !dry_run {
        if !changes.is_empty() {
            let next = stack.modules.prepare(&files.new.stack, &files.file()).map_err(invalid)?;
            stack.modules.exchange(next).map_err(ErrorReply::new)?;
            tracing::info!(file = files.shown, changes = changes.join("; "), "the stack file was read anew");
        }
        stack.running.is_now(files.new.source.root);
    }
    Ok(Reloaded { file: files.shown, changes })
}

/// Refuses changed keys. `place` is theirs.
fn refuse_changed((old, new): (&Node, &Node), place: &Place, keys: &[&str]) -> Result<(), Refusal> {
    for key in keys {
        let (before, now) = (get(old, key), get(new, key));
        let refuse = |line: Option<u64>, found: &str| {
            let place = line.map_or_else(|| place.clone(), |line| place.at_line(line)).key(key);
            Err(place.refuse(found, anew("put it back")))
        };
        match (before, now) {
            (Some(before), Some(now)) if same(before, now) => {}
            (None, None) => {}
            (_, Some(now)) => return refuse(Some(now.line), "this was changed since the mount"),
            (Some(_), None) => return refuse(None, "this was taken out since the mount"),
        }
    }
    Ok(())
}

fn anew(or: &str) -> String {
    format!("{or}, or unmount and mount anew: it counts for a mount as a whole")
}

fn keys_of(node: &Node) -> Vec<&str> {
    match &node.value {
        Value::Map(entries) => entries.iter().map(|entry| entry.key.as_str()).collect(),
        _ => Vec::new(),
    }
}
