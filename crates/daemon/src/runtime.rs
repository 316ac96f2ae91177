//! The runtime of a mount: its settings in a stack file and in a flag, and its socket.

use crate::refusal::{Located, Place, Refusal};
use crate::section::{Field, Section};
use crate::yaml::Value;
use braid_contract::units::{parse_duration, parse_percent};
use braid_contract::{Caller, Errno, FileSystem, FileSystemCapabilities, InodeId, Layer, XattrMode};
use braid_ipc::socket;
use braid_runtime::{Before, Mounted, PolicyKind, Runtime, Scheduler, Settings, WORKERS_MAX};
use std::ffi::OsStr;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The keys below `runtime`.
const KEYS: &[&str] =
    &["workers", "policy", "scheduler", "poll", "rebalance", "loss", "latency-below", "dedicated"];

/// Whether applications may have sessions, and how these are served.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeSettings {
    /// Whether they may.
    pub on: Located<bool>,
    pub(crate) settings: Settings,
}

impl RuntimeSettings {
    /// `true`, `false`, or keys of its own.
    pub(crate) fn from_file(field: &Field) -> Result<Self, Refusal> {
        if let Value::Scalar(_) = field.node.value {
            return Ok(Self { on: field.truth()?, settings: Settings::default() });
        }
        let section = Section::of(field, KEYS)?;
        let on = Located::new(true, field.place.clone());
        Ok(Self { on, settings: settings(section)? })
    }

    /// `KEY=VALUE,…`; nothing is the defaults.
    ///
    /// # Errors
    /// The error and its place.
    pub fn from_flag(text: &str) -> Result<Self, Refusal> {
        let place =
            Place::flag(if text.is_empty() { "--runtime".into() } else { format!("--runtime={text}") });
        let part = |part| {
            let advice = "write KEY=VALUE, such as --runtime=workers=2,policy=round-robin";
            str::split_once(part, '=')
                .ok_or_else(|| place.refuse(format!("found '{part}', expected a setting"), advice))
        };
        let parts = text.split(',').filter(|part| !part.is_empty()).map(part);
        let parts: Vec<(&str, &str)> = parts.collect::<Result<_, _>>()?;
        let section = Section::from_parts(place.clone(), &parts, KEYS)?;
        Ok(Self { on: Located::new(true, place), settings: settings(section)? })
    }

    /// Applications may have none, by a flag.
    #[must_use]
    pub fn off(flag: &str) -> Self {
        Self { on: Located::new(false, Place::flag(flag)), settings: Settings::default() }
    }

    /// The settings of the runtime to start, if any.
    pub(crate) fn wanted(of: Option<&Self>) -> Option<Settings> {
        of.filter(|of| of.on.value).map(|of| of.settings)
    }

    /// As the value in a stack file: keys with their values, or nothing if it is off.
    pub(crate) fn written(&self) -> Vec<(&'static str, String)> {
        let Settings { workers, policy, scheduler, poll, rebalance, loss, latency_below, dedicated } =
            self.settings;
        let us = |time: Duration| format!("{}us", time.as_micros());
        vec![
            ("workers", workers.to_string()),
            ("policy", policy.name().into()),
            ("scheduler", scheduler.name().into()),
            ("poll", us(poll)),
            ("rebalance", us(rebalance)),
            ("loss", format!("{}%", (loss * 10_000.0).round() / 100.0)),
            ("latency-below", us(latency_below)),
            ("dedicated", dedicated.to_string()),
        ]
    }
}

/// Bounds of the times, in nanoseconds.
const POLL: RangeInclusive<u64> = 0..=1_000_000_000;
const REBALANCE: RangeInclusive<u64> = 1_000_000..=60_000_000_000;
const LATENCY_BELOW: RangeInclusive<u64> = 1_000..=10_000_000_000;

fn settings(mut section: Section) -> Result<Settings, Refusal> {
    let default = Settings::default();
    let mut time = |name: &str, bounds: RangeInclusive<u64>, advice: &str, usual: Duration| {
        let Some(field) = section.take(name) else { return Ok(usual) };
        let time = field.parse("a duration", |text| {
            let time = parse_duration(text)?;
            if bounds.contains(&time) { Ok(time) } else { Err(advice.to_owned()) }
        })?;
        Ok(Duration::from_nanos(time.value))
    };
    let poll = time("poll", POLL, "at most 1s", default.poll)?;
    let rebalance = time("rebalance", REBALANCE, "from 1ms to 60s", default.rebalance)?;
    let latency_below = time("latency-below", LATENCY_BELOW, "from 1us to 10s", default.latency_below)?;
    let mut take = |name: &str| section.take(name);
    let workers = take("workers").map(|field| field.count(1..=WORKERS_MAX)).transpose()?;
    let policy =
        take("policy").map(|field| field.parse("a policy of workers", PolicyKind::parse)).transpose()?;
    let scheduler =
        take("scheduler").map(|field| field.parse("a scheduler", Scheduler::parse)).transpose()?;
    let loss = take("loss").map(|field| field.parse("a percentage", parse_percent)).transpose()?;
    let dedicated = take("dedicated").map(|field| field.truth()).transpose()?;
    Ok(Settings {
        workers: workers.map_or(default.workers, |workers| workers.value),
        policy: policy.map_or(default.policy, |policy| policy.value),
        scheduler: scheduler.map_or(default.scheduler, |scheduler| scheduler.value),
        poll,
        rebalance,
        loss: loss.map_or(default.loss, |loss| loss.value / 100.0),
        latency_below,
        dedicated: dedicated.map_or(default.dedicated, |dedicated| dedicated.value),
    })
}

/// A file system whose extended attributes are not served.
pub(crate) struct WithoutXattrs(pub(crate) Arc<dyn FileSystem>);

impl Layer for WithoutXattrs {
    fn child(&self) -> &dyn FileSystem {
        &*self.0
    }

    fn capabilities(&self) -> FileSystemCapabilities {
        FileSystemCapabilities { posix_acl: false, ..self.0.capabilities() }
    }

    fn getxattr(&self, _: &Caller, _: InodeId, _: &OsStr) -> braid_contract::Result<Vec<u8>> {
        Err(Errno::EOPNOTSUPP.into())
    }

    fn listxattr(&self, _: &Caller, _: InodeId) -> braid_contract::Result<Vec<u8>> {
        Err(Errno::EOPNOTSUPP.into())
    }

    fn setxattr(
        &self,
        _: &Caller,
        _: InodeId,
        _: &OsStr,
        _: &[u8],
        _: XattrMode,
    ) -> braid_contract::Result<()> {
        Err(Errno::EOPNOTSUPP.into())
    }

    fn removexattr(&self, _: &Caller, _: InodeId, _: &OsStr) -> braid_contract::Result<()> {
        Err(Errno::EOPNOTSUPP.into())
    }
}

/// Begins to serve sessions, if that is wanted: at a socket beside the control socket. Goes
/// on with those of another process.
///
/// # Errors
/// If there can be no socket, or no thread.
pub(crate) fn start(
    settings: Option<Settings>,
    control: &Path,
    mounted: impl FnOnce() -> io::Result<Mounted>,
    before: Before,
) -> io::Result<Option<Arc<Runtime>>> {
    let Some(settings) = settings else { return Ok(None) };
    let open_to_all = rustix::process::geteuid().is_root();
    let at = socket::for_sessions(control);
    Runtime::start((&at, open_to_all), settings, mounted()?, before).map(|runtime| Some(Arc::new(runtime)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_flag_are_read_and_written() {
        let plain = RuntimeSettings::from_flag("").unwrap();
        assert_eq!(plain.settings, Settings::default());
        let given =
            RuntimeSettings::from_flag("workers=3,policy=round-robin,scheduler=noop,poll=5us,loss=2.5%")
                .unwrap();
        let settings = given.settings;
        assert_eq!(
            (settings.workers, settings.policy, settings.scheduler),
            (3, PolicyKind::RoundRobin, Scheduler::Noop)
        );
        assert_eq!((settings.poll, settings.loss), (Duration::from_micros(5), 0.025));
        let text: Vec<String> = given.written().iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(RuntimeSettings::from_flag(&text.join(",")).unwrap().settings, settings);
    }

    #[test]
    fn bad_settings_are_refused() {
        for (text, part) in [
            ("workers", "expected a setting"),
            ("workers=0", "from 1 to 64"),
            ("worker=1", "worker"),
            ("policy=best", "dynamic or round-robin"),
            ("scheduler=x", "blk-switch or noop"),
            ("poll=2s", "at most 1s"),
            ("rebalance=1us", "from 1ms to 60s"),
            ("loss=5", "%"),
            ("workers=1,workers=2", "twice"),
        ] {
            let refused = RuntimeSettings::from_flag(text).unwrap_err().to_string();
            assert!(refused.contains(part) && refused.contains("--runtime="), "{text}: {refused}");
        }
    }
}
