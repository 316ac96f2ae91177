//! `braid module`: modules that come in libraries.

use crate::args::{ModuleDebugArgs, ModuleListArgs, ModuleUpgradeArgs, RepoArgs, RepoCommand};
use crate::failure::{Failure, Result};
use crate::locate;
use crate::table::{self, Align, Table};
use braid_contract::Shown;
use braid_contract::units::show_size;
use braid_daemon::libraries::{self, Registry, Repositories};
use braid_daemon::{debug, trace};
use braid_ipc::protocol::{Reply, Request};
use serde::Serialize;
use std::collections::BTreeMap;

/// A module that a stack file may name.
#[derive(Serialize)]
struct Listed {
    module: String,
    /// `None` for one that can't be loaded.
    version: Option<String>,
    /// `None` for one that is built in.
    file: Option<String>,
    /// Why it can't be loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Why it runs in a process of its own, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    isolated: Option<String>,
}

pub(crate) fn list(args: &ModuleListArgs) -> Result<()> {
    let built_in = libraries::BUILT_IN.iter().map(|name| Listed {
        module: (*name).to_owned(),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        file: None,
        error: None,
        isolated: None,
    });
    let known = Registry::default().known().map_err(Failure::new)?.into_iter().map(|known| Listed {
        module: known.name,
        version: known.version.as_ref().ok().cloned(),
        file: Some(known.file.to_string_lossy().into_owned()),
        error: known.version.err(),
        isolated: known.isolated,
    });
    let modules: Vec<Listed> = built_in.chain(known).collect();
    if args.json {
        return table::print_json(&BTreeMap::from([("modules", modules)]));
    }
    let columns = ["MODULE", "VERSION", "FILE"].map(|name| (name, Align::Left));
    let mut table = Table::new(&columns);
    for module in modules {
        let file = module.file.map_or_else(|| "built in".to_owned(), |file| file.shown().to_string());
        let isolated = module.isolated.map(|why| format!("in a process of its own, since {why}"));
        let file = module.error.or(isolated).map_or(file.clone(), |said| format!("{file}: {said}"));
        table.row(vec![module.module, module.version.unwrap_or_else(|| "-".into()), file]);
    }
    table::print(&table.render())
}

pub(crate) fn upgrade(args: &ModuleUpgradeArgs) -> Result<()> {
    let absolute = |file| std::path::absolute(file).map_err(|error| Failure::new(error.to_string()));
    let file = args.to.as_ref().map(absolute).transpose()?;
    let mut daemon = locate::need_daemon(&locate::given_or_only(args.mountpoint.as_deref())?)?;
    let request = Request::UpgradeModule {
        module: args.name.clone(),
        file: file.map(|file| file.to_string_lossy().into_owned()),
    };
    let upgraded = locate::ask(&mut daemon, &request, |reply| match reply {
        Reply::ModuleUpgraded(upgraded) => Some(upgraded),
        _ => None,
    })?;
    if args.json {
        return table::print_json(&upgraded);
    }
    let microseconds = upgraded.paused_ns.div_ceil(1000);
    let line = format!(
        "module {} is version {} now, before {}; operations were held up for {microseconds} \u{b5}s\n",
        upgraded.module, upgraded.to, upgraded.from
    );
    table::print(&line)
}

pub(crate) fn repo(command: &RepoCommand) -> Result<()> {
    let mut repositories = Repositories::read().map_err(Failure::new)?;
    match command {
        RepoCommand::Add(args) => repositories.add(&args.dir).map_err(|why| refused(args, &why)),
        RepoCommand::Remove(args) => repositories.remove(&args.dir).map_err(|why| refused(args, &why)),
        RepoCommand::List(args) => {
            let dirs: Vec<String> =
                repositories.all().map(|dir| dir.to_string_lossy().into_owned()).collect();
            if args.json {
                return table::print_json(&BTreeMap::from([("repositories", dirs)]));
            }
            table::print(&repositories.all().map(|dir| format!("{}\n", dir.shown())).collect::<String>())
        }
    }
}

fn refused(args: &RepoArgs, why: &str) -> Failure {
    Failure::new(format!("{}: {why}", args.dir.shown()))
}

pub(crate) fn debug(args: &ModuleDebugArgs) -> Result<()> {
    let report = debug::run(&args.name, &args.settings, &trace::load(&args.trace)?, args.repair)?;
    if args.json {
        table::print_json(&report)?;
    } else {
        let columns = [
            ("OPERATION", Align::Left),
            ("COUNT", Align::Right),
            ("FAILED", Align::Right),
            ("WITHOUT", Align::Right),
            ("WITH", Align::Right),
        ];
        let mut table = Table::new(&columns);
        let mean = |nanoseconds: u64| format!("{:.1} \u{b5}s", nanoseconds as f64 / 1000.0);
        for operation in &report.operations {
            let (count, failed) = (operation.count.to_string(), operation.failed.to_string());
            let means = [mean(operation.without_ns), mean(operation.with_ns)];
            let [without, with] = means;
            table.row(vec![operation.operation.to_owned(), count, failed, without, with]);
        }
        table::print(&table.render())?;
        report.repair.as_ref().map_or(Ok(()), |repair| table::print(&repaired(repair)))?;
    }
    let repair = report.repair.iter().filter_map(|repair| repair.error.as_ref());
    let said: Vec<&String> = report.errors.iter().chain(&report.wrong).chain(repair).collect();
    if said.is_empty() {
        return Ok(());
    }
    said.iter().for_each(|said| eprintln!("braid: {said}"));
    Err(Failure::new(format!("module {} does not do what it should with this trace", args.name)))
}

/// How a module went on as after a crash, for people.
fn repaired(repair: &debug::Repair) -> String {
    let how = if repair.error.is_some() { "failed" } else { "done" };
    let state = repair.state_bytes.map_or_else(|| "nothing".to_owned(), show_size);
    format!("repair: {how}; kept for it: {state}\n")
}

/// Serves as the process of a module that is not trusted.
pub(crate) fn host() -> Result<()> {
    libraries::run_host()
        .map_err(|why| Failure::usage(format!("module-host is for Braid, which starts it: {why}")))
}

pub(crate) fn header() -> Result<()> {
    table::print(&libraries::c_header())
}
