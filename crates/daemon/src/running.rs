//! The current stack: the one that was mounted, with the changes since. Every
//! change of the tiers is written to the stack file of the mount; the whole can
//! be printed as a stack file (`control`).

use crate::config::{Cache, Config, MountSettings, POLL_DEFAULT, THREADS_DEFAULT, Transport};
use crate::drill::Drills;
use crate::hints;
use crate::memory;
use crate::refusal::Place;
use crate::require;
use crate::source::Source;
use crate::stack_file;
use crate::stack_text::{self, Edit, set};
use crate::text_file;
use crate::yaml::{self, Node, Value};
use braid_contract::Shown;
use braid_contract::units::write_size;
use braid_ipc::protocol::Saved;
use braid_stack::Registry;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The stack of a mount.
pub(crate) struct Running {
    root: Mutex<Node>,
    base: PathBuf,
    file: Option<PathBuf>,
    registry: Mutex<Arc<Registry>>,
    mount: MountSettings,
    /// Tiers that the mount was to go without.
    without: Vec<String>,
    /// The mount has ended: tiers in memory leave with it, and join at the
    /// next.
    ended: AtomicBool,
    /// Called after each change.
    follower: OnceLock<Follower>,
}

/// Follows the current stack.
type Follower = Box<dyn Fn(&Running) + Send + Sync>;

impl Running {
    /// The stack that was mounted with `config`.
    pub(crate) fn of(config: &Config) -> Self {
        let Source { root, base, file, registry } = config.source.clone();
        let tiers = config.stack.volume().map_or(&[][..], |volume| &volume.tiers);
        let absent = tiers.iter().filter(|tier| tier.absent.is_some());
        Self {
            root: Mutex::new(root),
            base,
            file,
            registry: Mutex::new(registry),
            mount: config.mount.clone(),
            without: absent.map(|tier| tier.name.clone()).collect(),
            ended: AtomicBool::new(false),
            follower: OnceLock::new(),
        }
    }

    /// Calls `follower` now and after each change of the stack. Only the first call counts.
    pub(crate) fn follow(&self, follower: impl Fn(&Self) + Send + Sync + 'static) {
        follower(self);
        let _ = self.follower.set(Box::new(follower));
    }

    fn changed(&self) {
        self.follower.get().into_iter().for_each(|follower| follower(self));
    }

    /// The modules in force that are not built in.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Other modules are in force.
    pub(crate) fn has_modules(&self, registry: Arc<Registry>) {
        *self.registry.lock().unwrap_or_else(PoisonError::into_inner) = registry;
        self.changed();
    }

    fn root(&self) -> MutexGuard<'_, Node> {
        // Each change is a single assignment.
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies changes of the tiers to the stack, and to the stack file, if
    /// there is one and that can be done safely: not if the tiers in it were
    /// edited meanwhile.
    pub(crate) fn change(&self, edits: &[Edit]) -> Saved {
        let saved = self.apply(edits);
        self.changed();
        saved
    }

    fn apply(&self, edits: &[Edit]) -> Saved {
        let mut root = self.root();
        let edits = &with_requirements(&root, edits)[..];
        let mut next = root.clone();
        for edit in edits {
            // An absent tier has nothing to change.
            let _ = stack_text::change(&mut next, edit);
        }
        let before = std::mem::replace(&mut *root, next);
        let by_hand = || edits.iter().map(Edit::to_string).collect();
        let Some(file) = &self.file else {
            return Saved { file: None, written: false, why_not: None, by_hand: by_hand() };
        };
        let shown = Some(file.to_string_lossy().into_owned());
        match self.change_file(file, &before, &root, edits) {
            Ok(()) => Saved { file: shown, written: true, why_not: None, by_hand: Vec::new() },
            Err(why) => {
                tracing::warn!(file = %file.shown(), why, "the stack file could not be changed");
                Saved { file: shown, written: false, why_not: Some(why), by_hand: by_hand() }
            }
        }
    }

    /// The stack file; `None` if the mount is not from one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The base of relative paths in the stack.
    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    /// Whether a user may modify the stack, beside root and the user who mounted.
    pub(crate) fn may_modify(&self, uid: u32) -> bool {
        self.mount.modifiable_by.contains(&uid)
    }

    /// The current stack.
    pub(crate) fn stack(&self) -> Node {
        self.root().clone()
    }

    /// Sets the current stack, which the stack file has already.
    pub(crate) fn is_now(&self, stack: Node) {
        *self.root() = stack;
        self.changed();
    }

    /// Whether the mount was to go without the tier.
    pub(crate) fn is_without(&self, tier: &str) -> bool {
        self.without.iter().any(|name| name == tier)
    }

    /// A tier that the mount was to go without.
    pub(crate) fn absent(&self) -> Option<&str> {
        self.without.first().map(String::as_str)
    }

    /// Notes that the mount has ended.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Tiers of the stack that are not among these.
    pub(crate) fn missing(&self, names: &[&str]) -> Vec<String> {
        let root = self.root();
        let Some(Node { value: Value::Map(tiers), .. }) = stack_text::tiers(&root) else { return Vec::new() };
        let stays =
            |tier: &Node| self.ended.load(Ordering::Acquire) && stack_text::get(tier, memory::KEY).is_some();
        let missing = tiers.iter().filter(|tier| !names.contains(&tier.key.as_str()) && !stays(&tier.node));
        missing.map(|tier| tier.key.clone()).collect()
    }

    fn change_file(&self, file: &Path, before: &Node, after: &Node, edits: &[Edit]) -> Result<(), String> {
        let text = text_file::read(file).map_err(|error| format!("it can't be read: {error}"))?;
        let parse = |text: &str| stack_file::parse(text, &file.to_string_lossy(), &self.base);
        parse(&text)
            .map_err(|refusal| format!("it was changed since the mount, and is not valid now: {refusal}"))?;
        let found = yaml::parse(&text, &Place::file("")).map_err(|refusal| refusal.to_string())?;
        let tiers_are = |node: &Node| match (stack_text::tiers(&found), stack_text::tiers(node)) {
            (Some(found), Some(tiers)) => stack_text::same(found, tiers),
            _ => false,
        };
        if tiers_are(after) {
            return Ok(());
        }
        if !tiers_are(before) {
            return Err("its tiers were changed since the mount".into());
        }
        let new = edits.iter().try_fold(text, |text, edit| stack_text::edited(&text, edit));
        let new = new.ok_or("it is written in a way that can't be changed in place for sure")?;
        parse(&new).map_err(|refusal| format!("what it would be is not valid: {refusal}"))?;
        replace_file(file, &new).map_err(|error| format!("it can't be written: {error}"))
    }

    /// A stack file for a mount like this one; with the volume's range size and armed faults,
    /// if a volume is mounted.
    pub(crate) fn dump(&self, volume: Option<(u32, &Drills)>) -> String {
        let mut root = self.root().clone();
        if let Some(bottom) = stack_text::bottom_mut(&mut root) {
            for key in ["device", "of"] {
                if let Some(Node { value: Value::Scalar(path), .. }) =
                    stack_text::get_mut(&mut bottom.node, key)
                {
                    self.complete(path);
                }
            }
        }
        if let (Some(volume), Some((range_size, drills))) = (stack_text::volume_mut(&mut root), volume) {
            set(volume, "range", Value::Scalar(write_size(range_size.into())));
            self.complete_profiles(volume);
            if let Some(Node { value: Value::Map(tiers), .. }) = stack_text::get_mut(volume, "tiers") {
                tiers.iter_mut().for_each(|tier| self.complete_tier(&tier.key, &mut tier.node, drills));
            }
        }
        let is_root = rustix::process::geteuid().is_root();
        let mount = &self.mount;
        let mut settings = Node::new(Value::Map(Vec::new()));
        let threads = mount.threads.as_ref().map_or(THREADS_DEFAULT, |threads| threads.value);
        let allow_other = mount.allow_other.as_ref().map_or(is_root, |allow| allow.value);
        let cache = mount.cache.as_ref().map_or(Cache::Auto, |cache| cache.value);
        let transport = mount.transport.as_ref().map_or(Transport::Auto, |transport| transport.value);
        let poll = mount.poll.as_ref().map_or(POLL_DEFAULT, |poll| poll.value);
        let xattr = mount.xattr.as_ref().is_none_or(|xattr| xattr.value);
        for (key, value) in [
            ("threads", threads.to_string()),
            ("allow-other", allow_other.to_string()),
            ("cache", cache.name().to_owned()),
            ("xattr", xattr.to_string()),
            ("transport", transport.name().to_owned()),
            ("poll", format!("{}us", poll.as_micros())),
            ("restart", mount.restarts().to_string()),
        ] {
            set(&mut settings, key, Value::Scalar(value));
        }
        if volume.is_some() {
            set(&mut settings, "inodes", Value::Scalar(mount.inodes_max().to_string()));
        }
        // Flags may have given these.
        let dirty = mount.dirty.as_ref().map(|dirty| ("dirty", write_size(dirty.value)));
        let metrics = mount.metrics.as_ref().map(|address| ("metrics", address.value.to_string()));
        let nice = mount.nice.as_ref().map(|nice| ("nice", nice.value.to_string()));
        for (key, value) in dirty.into_iter().chain(metrics).chain(nice) {
            set(&mut settings, key, Value::Scalar(value));
        }
        if let Some(kv) = &mount.kv {
            set(&mut settings, "kv", kv.node());
        }
        if let Some(runtime) = mount.runtime.as_ref().filter(|runtime| runtime.on.value) {
            let mut keys = Node::new(Value::Map(Vec::new()));
            for (key, value) in runtime.written() {
                set(&mut keys, key, Value::Scalar(value));
            }
            set(&mut settings, "runtime", keys.value);
        } else {
            set(&mut settings, "runtime", Value::Scalar("false".into()));
        }
        let written = stack_text::get(&root, "mount").and_then(|mount| stack_text::get(mount, "point"));
        if let Some(Node { value: Value::Scalar(point), .. }) = written {
            set(&mut settings, "point", Value::Scalar(self.base.join(point).to_string_lossy().into_owned()));
        }
        if !mount.options.is_empty() {
            let options = mount.options.iter().map(|option| Node::new(Value::Scalar(option.clone())));
            set(&mut settings, "options", Value::List(options.collect()));
        }
        // Other keys stay as written.
        if let Some(Node { value: Value::Map(written), .. }) = stack_text::get(&root, "mount") {
            for entry in written {
                if stack_text::get(&settings, &entry.key).is_none() {
                    set(&mut settings, &entry.key, entry.node.value.clone());
                }
            }
        }
        set(&mut root, "mount", settings.value);
        let without = self.without.iter().map(|tier| format!("# mounted with --without {tier}\n"));
        without.chain([stack_text::write(&root)]).collect()
    }

    /// Makes the paths of profiles, of tiers and of streams, absolute.
    fn complete_profiles(&self, volume: &mut Node) {
        if let Some(Node { value: Value::Scalar(path), .. }) = stack_text::get_mut(volume, "profile") {
            self.complete(path);
        }
        let hints = stack_text::get_mut(volume, "hints");
        let listed = hints.and_then(|hints| stack_text::get_mut(hints, "profiles"));
        if let Some(Node { value: Value::List(items), .. }) = listed {
            for item in items {
                if let Value::Scalar(name) = &mut item.value
                    && hints::is_file(name)
                {
                    self.complete(name);
                }
            }
        }
    }

    /// Makes a path of the stack file absolute.
    fn complete(&self, path: &mut String) {
        *path = self.base.join(&*path).to_string_lossy().into_owned();
    }

    fn complete_tier(&self, name: &str, tier: &mut Node, drills: &Drills) {
        if let Some(Node { value: Value::Scalar(dir), .. }) = stack_text::get_mut(tier, "dir") {
            self.complete(dir);
        }
        let faults: Vec<Node> =
            drills.armed(name).into_iter().map(|rule| Node::new(Value::Scalar(rule))).collect();
        if faults.is_empty() {
            if let Value::Map(keys) = &mut tier.value {
                keys.retain(|entry| entry.key != "faults");
            }
        } else {
            set(tier, "faults", Value::List(faults));
        }
    }
}

/// The edits, without the requirement of a tier whose new directory does not
/// meet it.
fn with_requirements(root: &Node, edits: &[Edit]) -> Vec<Edit> {
    let gone = |edit: &Edit| match edit {
        Edit::Set(tier, "dir", dir) => {
            let required = stack_text::get(stack_text::get(stack_text::tiers(root)?, tier)?, "require")?;
            let Value::Scalar(text) = &required.value else { return None };
            let met = require::parse(text).is_ok_and(|required| require::is_met(&required, Path::new(dir)));
            (!met).then(|| Edit::Unset(tier.clone(), "require"))
        }
        _ => None,
    };
    edits.iter().cloned().chain(edits.iter().filter_map(gone)).collect()
}

/// Replaces the text of a file, atomically also across a crash. Mode and owner
/// stay.
fn replace_file(file: &Path, text: &str) -> std::io::Result<()> {
    let old = std::fs::metadata(file)?;
    let dir = file.parent().unwrap_or(Path::new("/"));
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let fresh = dir.join(format!(".{name}.{}.new", std::process::id()));
    let write = || -> std::io::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        let mut out = options.write(true).create_new(true).mode(0o600).open(&fresh)?;
        out.write_all(text.as_bytes())?;
        let made = out.metadata()?;
        if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
            fchown(&out, Some(old.uid()), Some(old.gid()))?;
        }
        out.set_permissions(old.permissions())?;
        out.sync_all()?;
        std::fs::rename(&fresh, file)?;
        std::fs::File::open(dir)?.sync_all()
    };
    // A leftover of a crash.
    let _ = std::fs::remove_file(&fresh);
    write().inspect_err(|_| drop(std::fs::remove_file(&fresh)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const TEXT: &str = "# ours\nstack:\n  volume:\n    home: a\n    policy: { weighted: { } }\n    tiers:\n      a: { dir: x }\n      b: { dir: y }\n";

    fn running(dir: &Path) -> (PathBuf, Running) {
        let file = dir.join("s.yaml");
        std::fs::write(&file, TEXT).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let running = Running::of(&stack_file::load(&file).unwrap());
        (file, running)
    }

    fn add() -> Edit {
        Edit::Add("c".into(), vec![("dir", "/z".into())])
    }

    #[test]
    fn the_file_follows_keeps_its_mode_and_what_others_wrote_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let (file, running) = running(dir.path());
        assert!(running.change(&[add()]).written);
        let expected = format!("{TEXT}      c: {{ dir: /z }}\n");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        std::fs::write(&file, expected.replace("# ours", "# mine") + "mount: { threads: 2 }\n").unwrap();
        assert!(running.change(&[Edit::Remove("c".into())]).written);
        let expected = TEXT.replace("# ours", "# mine") + "mount: { threads: 2 }\n";
        assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "a temporary file was left");
    }

    #[test]
    fn tiers_that_somebody_changed_are_left_alone_until_they_are_as_they_should_be() {
        let dir = tempfile::tempdir().unwrap();
        let (file, running) = running(dir.path());
        for changed in [TEXT.replace("dir: y", "dir: other"), TEXT.replace("policy", "polcy"), String::new()]
        {
            std::fs::write(&file, &changed).unwrap();
            let saved = running.change(&[add()]);
            assert!(!saved.written && saved.why_not.is_some(), "{saved:?}");
            assert_eq!(saved.by_hand, ["add  c: { dir: /z }"]);
            assert_eq!(std::fs::read_to_string(&file).unwrap(), changed);
            assert!(running.change(&[Edit::Remove("c".into())]).why_not.is_some());
        }
        std::fs::write(&file, TEXT.to_owned() + "      c: { dir: /z }\n").unwrap();
        assert!(running.change(&[add()]).written, "it says so already");
        std::fs::remove_file(&file).unwrap();
        assert!(running.change(&[Edit::Remove("c".into())]).why_not.unwrap().contains("can't be read"));
    }

    #[test]
    fn a_dump_is_a_stack_file_that_is_dumped_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (file, running) = running(dir.path());
        running.change(&[add(), Edit::Set("a".into(), "weight", "2.5".into())]);
        let dump = running.dump(Some((1 << 16, &Drills::default())));
        for part in [
            "range: 64KiB",
            "c:\n        dir: /z",
            "weight: 2.5",
            "threads: 48",
            "cache: auto",
            "xattr: true",
            "transport: auto",
            "poll: 200us",
            "restart: false",
        ] {
            assert!(dump.contains(part), "{part}: {dump}");
        }
        assert!(dump.contains(&format!("dir: {}", dir.path().join("x").display())), "{dump}");
        std::fs::write(&file, &dump).unwrap();
        let again = Running::of(&stack_file::load(&file).unwrap());
        assert_eq!(again.dump(Some((1 << 16, &Drills::default()))), dump);
    }
}
