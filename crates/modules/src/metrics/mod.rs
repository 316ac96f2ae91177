//! Measures how long operations take below this place of the stack, and how much they move. Two of
//! them around a module show its cost (LabStor §3.1, estimated times).
//!
//! Operations that the kernel answers from its caches, or carries out by passthrough, do not come
//! this way.

mod histogram;
#[cfg(test)]
mod tests;

use crate::count::Count;
use crate::sync::Instant;
use crate::traffic::moved;
use crate::{Module, State};
use braid_contract::{
    Errno, Error, Figure, FigureValue, FileSystem, FileSystemCapabilities, Operation, Reply, Request, Result,
    Served, Service, dispatch,
};
use histogram::{Added, Histogram, SIZES, TIMES_NS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Version of the format of the exported state.
const VERSION: u32 = 1;

/// There are none.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {}

/// The module.
pub type Metrics = Served<Measured>;

/// Takes the time of each operation.
pub struct Measured {
    /// By the number of the operation.
    operations: Vec<OfOperation>,
    child: Arc<dyn FileSystem>,
}

/// The figures of one operation.
struct OfOperation {
    times: Histogram,
    sizes: Histogram,
    errors: Count,
}

impl Module for Metrics {
    const NAME: &'static str = "metrics";
    type Settings = Settings;

    fn new(_settings: &Settings, child: Arc<dyn FileSystem>) -> Result<Self> {
        let new = |_: &Operation| OfOperation {
            times: Histogram::new(&TIMES_NS),
            sizes: Histogram::new(&SIZES),
            errors: Count::default(),
        };
        Ok(Self(Measured { operations: Operation::ALL.iter().map(new).collect(), child }))
    }

    fn figures(&self) -> Vec<Figure> {
        Operation::ALL
            .iter()
            .zip(&self.0.operations)
            .flat_map(|(operation, of)| of.figures(*operation))
            .collect()
    }

    /// The counts, by the names of operations.
    fn export(&self) -> State {
        let operations = Operation::ALL.iter().zip(&self.0.operations);
        let counted: BTreeMap<&str, Counted> =
            operations.filter_map(|(operation, of)| Some((operation.name(), of.counted()?))).collect();
        // All of it can be serialized.
        State { version: VERSION, bytes: serde_json::to_vec(&counted).unwrap_or_default() }
    }

    fn import(&self, state: &State) -> Result<()> {
        // A program of before had none.
        if *state == State::default() {
            return Ok(());
        }
        state.expect_version(VERSION)?;
        let refuse = |why: &str| Error::new(Errno::EINVAL, format!("not a state of metrics: {why}"));
        let counted: BTreeMap<String, Counted> =
            serde_json::from_slice(&state.bytes).map_err(|error| refuse(&error.to_string()))?;
        let all = || {
            let operations = Operation::ALL.iter().zip(&self.0.operations);
            operations.filter_map(|(operation, of)| Some((of, counted.get(operation.name())?)))
        };
        if !all().all(|(of, counted)| of.times.fits(&counted.times) && of.sizes.fits(&counted.sizes)) {
            return Err(refuse("it has other bounds"));
        }
        all().for_each(|(of, counted)| of.go_on_from(counted));
        Ok(())
    }

    fn snapshot(&self) -> Option<State> {
        Some(Module::export(self))
    }
}

/// The figures of one operation, in exported form.
#[derive(Serialize, Deserialize)]
struct Counted {
    times: Added,
    sizes: Added,
    errors: u64,
}

impl OfOperation {
    /// `None` of an operation that there was not.
    fn counted(&self) -> Option<Counted> {
        let (times, sizes) = (self.times.added(), self.sizes.added());
        (!times.is_empty()).then(|| Counted { times, sizes, errors: self.errors.get() })
    }

    fn go_on_from(&self, counted: &Counted) {
        self.times.add_all(&counted.times);
        self.sizes.add_all(&counted.sizes);
        self.errors.add(counted.errors);
    }

    /// No figures of an operation that did not occur.
    fn figures(&self, operation: Operation) -> Vec<Figure> {
        let times = self.times.distribution(1e-9);
        if times.count() == 0 {
            return Vec::new();
        }
        let histogram = |name, help, value| Figure::new(name, help, FigureValue::Histogram(value));
        let mut figures =
            vec![histogram("operation_seconds", "Time that operations took below the module", times)];
        let sizes = self.sizes.distribution(1.0);
        if sizes.count() > 0 {
            figures.push(histogram("transfer_bytes", "Bytes that operations read, wrote or copied", sizes));
        }
        figures.push(Figure::counter("operation_errors", "Operations that failed", self.errors.get()));
        figures.into_iter().map(|figure| figure.with("operation", operation.name())).collect()
    }
}

impl Service for Measured {
    fn capabilities(&self) -> FileSystemCapabilities {
        self.child.capabilities()
    }

    fn call(&self, request: Request<'_>) -> Reply {
        let of = &self.operations[request.operation() as usize];
        let begun = Instant::now();
        let reply = dispatch(&*self.child, request);
        of.times.add(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        if let Some(bytes) = moved(&reply) {
            of.sizes.add(bytes);
        }
        if reply.error().is_some() {
            of.errors.one();
        }
        reply
    }
}
