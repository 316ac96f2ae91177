//! Reads a stack file.

use crate::config::{
    BOTTOMS, BottomNode, Cache, Config, Exec, INODES, MountSettings, StackNode, THREADS, Transport,
    mount_option, parse_poll,
};
use crate::kv::settings::KvSettings;
use crate::logfs::settings::LogSettings;
use crate::metrics::Address;
use crate::module_settings::Settings;
use crate::nice;
use crate::paths::join;
use crate::refusal::{Located, Place, Refusal};
use crate::runtime::RuntimeSettings;
use crate::section::{Field, Section, nearest, one_of};
use crate::source::{Reading, Source};
use crate::text_file;
use crate::users;
use crate::view::settings::ViewSettings;
use crate::volume_settings;
use crate::yaml::{self, Node, Value};
use braid_modules::Configured;
use braid_stack::Registry;
use std::cell::OnceCell;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Modules on top of each other, below which is a file system.
const DEPTH_MAX: usize = 32;

/// Reads the stack file at `path`.
///
/// # Errors
/// Its first error.
pub fn load(path: &Path) -> Result<Config, Refusal> {
    load_with(path, true)
}

/// Reads the stack file at `path`, but not the profile that it may name: for
/// calibration, which writes that.
///
/// # Errors
/// Its first error.
pub fn load_without_profile(path: &Path) -> Result<Config, Refusal> {
    load_with(path, false)
}

fn load_with(path: &Path, profile: bool) -> Result<Config, Refusal> {
    let base = path.parent().unwrap_or(Path::new(""));
    let mut config = read_at(path, &Reading { base, profile, registry: &Arc::default() })?;
    // The target of a symbolic link has to change.
    config.source.file = std::fs::canonicalize(path).ok();
    Ok(config)
}

/// Reads the stack file at `path`.
pub(crate) fn read_at(path: &Path, reading: &Reading<'_>) -> Result<Config, Refusal> {
    let name = path.to_string_lossy().into_owned();
    of_document(yaml::parse(&text(path)?, &Place::file(&name))?, &name, reading)
}

/// The text of the stack file at `path`.
///
/// # Errors
/// If it can't be one.
pub fn text(path: &Path) -> Result<String, Refusal> {
    let place = Place::file(&path.to_string_lossy());
    text_file::read(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => place.refuse("there is no such file", "check the path of the stack file"),
        io::ErrorKind::InvalidData => place.refuse("not a text file", "a stack file is YAML in UTF-8"),
        io::ErrorKind::IsADirectory => place.refuse("this is a directory", "name the stack file in it"),
        io::ErrorKind::InvalidInput => {
            place.refuse("this is not a regular file", "a stack file is a file of its own")
        }
        io::ErrorKind::FileTooLarge => place.refuse("longer than 1 MiB", "check that this is a stack file"),
        _ => place.refuse(format!("can't be read: {error}"), "make it readable for this user"),
    })
}

/// Reads the stack file `text`, which is called `name` in messages, with `base`
/// for relative directories.
///
/// # Errors
/// Its first error.
pub fn parse(text: &str, name: &str, base: &Path) -> Result<Config, Refusal> {
    parse_with(text, name, base, &Arc::default())
}

/// The same with modules that are in force.
pub(crate) fn parse_with(
    text: &str,
    name: &str,
    base: &Path,
    registry: &Arc<Registry>,
) -> Result<Config, Refusal> {
    let reading = Reading { base, profile: true, registry };
    of_document(yaml::parse(text, &Place::file(name))?, name, &reading)
}

/// The configuration in the document of a stack file.
pub(crate) fn of_document(document: Node, name: &str, reading: &Reading<'_>) -> Result<Config, Refusal> {
    let file = Place::file(name);
    let source = Source {
        root: document.clone(),
        // The parent of a file in the working directory has no name.
        base: std::path::absolute(Path::new(".").join(reading.base)).unwrap_or_else(|_| reading.base.into()),
        file: None,
        registry: Arc::clone(reading.registry),
    };
    let root = Field::root(document, &file);
    let advice = "a stack file begins with 'stack:'; see docs/configuration.md";
    match &root.node.value {
        Value::Map(_) => {}
        Value::Null => return Err(file.refuse("the file is empty", advice)),
        Value::List(_) => return Err(root.place.refuse("found a list, expected keys", advice)),
        Value::Scalar(_) => return Err(root.place.refuse("found a single value, expected keys", advice)),
    }
    let mut section = Section::of(&root, &["stack", "exec", "mount"])?;
    let stack = section.require("stack", "stack: { volume: { … } }")?;
    let exec = section.take("exec").map(|field| field.parse("a way to carry a stack out", Exec::parse));
    let mount = section.take("mount");
    let (stack, exec) = (stack_node(&stack, reading)?, exec.transpose()?);
    if let Some(exec) = exec.as_ref().filter(|exec| exec.value == Exec::Direct) {
        fit_for_programs(&exec.place, &stack, mount.as_ref())?;
    }
    Ok(Config {
        stack,
        exec,
        mount: mount.map(|field| mount_settings(&field, reading.base)).transpose()?.unwrap_or_default(),
        create: false,
        source,
    })
}

/// Refuses what programs can't carry out themselves.
fn fit_for_programs(exec: &Place, stack: &StackNode, mount: Option<&Field>) -> Result<(), Refusal> {
    if let Some(mount) = mount {
        let found = "a stack with 'exec: direct' is not mounted";
        return Err(mount.place.refuse(found, "leave out mount, or exec"));
    }
    if let BottomNode::Volume(_) = stack.bottom() {
        let advice =
            "mount it, with 'runtime: true' below 'mount:', and write in this file: view: { of: DIRECTORY }";
        return Err(exec.refuse("a volume is served by one process, for all programs", advice));
    }
    Ok(())
}

/// The node below `field`, the top of the stack: exactly one module.
fn stack_node(field: &Field, reading: &Reading<'_>) -> Result<StackNode, Refusal> {
    let names = ModuleNames { registry: reading.registry, loaded: OnceCell::new() };
    let top = Section::open(field)?.into_only(&names.for_keys_of(field))?;
    Nodes { names: &names, reading }.node(top, 0)
}

/// The names of modules.
struct ModuleNames<'a> {
    registry: &'a Registry,
    /// Of those that are not built in; looked for if there is need.
    loaded: OnceCell<Vec<String>>,
}

impl ModuleNames<'_> {
    /// The names that a key below `field` may have to be a module. A key that is a setting of
    /// one module may be the name of another that is not built in.
    fn for_keys_of(&self, field: &Field) -> Vec<&str> {
        let is_built_in = |key: &str| built_in().any(|name| name == key);
        match &field.node.value {
            Value::Map(entries) if entries.iter().any(|entry| is_built_in(&entry.key)) => {
                built_in().collect()
            }
            _ => self.all(),
        }
    }

    fn all(&self) -> Vec<&str> {
        let loaded = self.loaded.get_or_init(|| self.registry.names());
        let built_in = built_in().map(|name: &str| name);
        built_in.chain(loaded.iter().map(String::as_str)).collect()
    }
}

fn built_in() -> impl Iterator<Item = &'static str> {
    BOTTOMS.into_iter().chain(braid_modules::NAMES.iter().copied())
}

/// Makes nodes from the text of a stack file.
struct Nodes<'a> {
    names: &'a ModuleNames<'a>,
    reading: &'a Reading<'a>,
}

impl Nodes<'_> {
    /// The module that `field` names, with all below it.
    fn node(&self, field: Field, depth: usize) -> Result<StackNode, Refusal> {
        if field.name == "volume" {
            return Ok(StackNode::Volume(Box::new(volume_settings::from_file(&field, self.reading)?)));
        }
        if field.name == "log" {
            return Ok(StackNode::Log(Box::new(LogSettings::from_file(&field, self.reading.base)?)));
        }
        if field.name == "view" {
            return Ok(StackNode::View(Box::new(ViewSettings::from_file(&field, self.reading.base)?)));
        }
        let is_known =
            built_in().any(|name| name == field.name) || self.names.all().contains(&field.name.as_str());
        if !is_known {
            return Err(no_such_module(&field, &self.names.all()));
        }
        if depth == DEPTH_MAX {
            return Err(field
                .place
                .refuse(format!("more than {DEPTH_MAX} modules on top of each other"), "take some out"));
        }
        let names = self.names.for_keys_of(&field);
        let (child, settings) = Section::open(&field)?.split_only(&names, |key| {
            let may_be_module = matches!(key.node.value, Value::Map(_) | Value::Null);
            may_be_module.then(|| no_such_module(key, &self.names.all()))
        })?;
        let settings = Field { node: settings, ..field };
        let module = self.module(&settings)?;
        let child = Box::new(self.node(child, depth + 1)?);
        let fits = braid_modules::fused(&*module, &child.wrappers());
        let advice = "change the order, or leave one out";
        fits.map_err(|found| settings.place.refuse(found, advice))?;
        Ok(StackNode::Wrapper { module, place: settings.place, child })
    }

    /// The module with these settings.
    fn module(&self, settings: &Field) -> Result<Arc<dyn Configured>, Refusal> {
        if let Some(built_in) = braid_modules::configure(&settings.name, Settings(settings.clone())) {
            return built_in.map_err(|unfit| unfit.at(settings));
        }
        let text = settings.node.to_json().to_string();
        match self.reading.registry.configure(&settings.name, &text) {
            Some(configured) => configured.map_err(|why| {
                settings.place.refuse(why, "braid module list shows the modules that are not built in")
            }),
            None => Err(no_such_module(settings, &self.names.all())),
        }
    }
}

fn no_such_module(field: &Field, names: &[&str]) -> Refusal {
    let advice = match nearest(&field.name, names) {
        Some(nearest) => format!("did you mean '{nearest}'? The modules are {}", names.join(", ")),
        None => format!("a module is {}", one_of(names)),
    };
    field.place.refuse(format!("there is no module '{}'", field.name), advice)
}

fn mount_settings(field: &Field, base: &Path) -> Result<MountSettings, Refusal> {
    let known = [
        "point",
        "options",
        "threads",
        "nice",
        "allow-other",
        "cache",
        "dirty",
        "inodes",
        "xattr",
        "transport",
        "poll",
        "restart",
        "runtime",
        "metrics",
        "kv",
        "modifiable-by",
    ];
    let mut section = Section::of(field, &known)?;
    let option = |field: &Field| field.parse("an option of mounts", mount_option).map(|option| option.value);
    let options = section.take("options").map(|field| field.items("options: [ ro, noexec ]")).transpose()?;
    let users = section.take("modifiable-by");
    let users = users.map(|field| field.items("modifiable-by: [ 1000, alice ]")).transpose()?;
    let user = |field: &Field| field.parse("a user", users::id_of).map(|user| user.value);
    let point = section.take("point").map(|field| field.text("a directory")).transpose()?;
    Ok(MountSettings {
        point: point.map(|point| Located::new(join(base, &point.value), point.place)),
        options: options.unwrap_or_default().iter().map(option).collect::<Result<_, _>>()?,
        threads: section.take("threads").map(|field| field.count(THREADS)).transpose()?,
        nice: section.take("nice").map(|field| field.parse("a nice value", nice::parse)).transpose()?,
        allow_other: section.take("allow-other").map(|field| field.truth()).transpose()?,
        cache: section.take("cache").map(|field| field.parse("a cache mode", Cache::parse)).transpose()?,
        dirty: section.take("dirty").map(|field| field.size()).transpose()?,
        inodes: section.take("inodes").map(|field| field.count(INODES)).transpose()?,
        xattr: section.take("xattr").map(|field| field.truth()).transpose()?,
        transport: section
            .take("transport")
            .map(|field| field.parse("a transport", Transport::parse))
            .transpose()?,
        poll: section.take("poll").map(|field| field.parse("a duration", parse_poll)).transpose()?,
        restart: section.take("restart").map(|field| field.truth()).transpose()?,
        runtime: section.take("runtime").map(|field| RuntimeSettings::from_file(&field)).transpose()?,
        metrics: section
            .take("metrics")
            .map(|field| field.parse("an address of this machine", Address::parse))
            .transpose()?,
        kv: section.take("kv").map(|field| KvSettings::from_file(&field)).transpose()?,
        modifiable_by: users.unwrap_or_default().iter().map(user).collect::<Result<_, _>>()?,
    })
}
