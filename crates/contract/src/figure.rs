//! Figures of a module: its counts, for `braid status` and for metrics.

use crate::crash::AfterCrash;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A module of a mounted stack, with its figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModuleStatus {
    /// Its name in a stack file.
    pub module: String,
    /// Its place in the stack, from 1 at the top; 0 for modules that the daemon puts on top of all.
    pub place: u32,
    /// Its figures; none of a module that counts nothing.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// How it went on after the last crash; `None` if there was none since it was put there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_crash: Option<AfterCrash>,
}

impl ModuleStatus {
    /// A module of this name at this place, with these figures, that no crash has met.
    #[must_use]
    pub fn new(module: &str, place: u32, figures: Vec<Figure>) -> Self {
        Self { module: module.to_owned(), place, figures, after_crash: None }
    }
}

/// One figure. Those of one name, with different labels, are of the same kind and meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Lower case letters and `_`, with the unit at the end (`bytes`, `seconds`).
    pub name: String,
    /// The meaning, without a full stop at the end.
    pub help: String,
    /// Labels that tell it from others of its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The value.
    #[serde(flatten)]
    pub value: FigureValue,
}

impl Figure {
    /// A figure without labels.
    #[must_use]
    pub fn new(name: &str, help: &str, value: FigureValue) -> Self {
        Self { name: name.to_owned(), help: help.to_owned(), labels: BTreeMap::new(), value }
    }

    /// A count of events.
    #[must_use]
    pub fn counter(name: &str, help: &str, value: u64) -> Self {
        Self::new(name, help, FigureValue::Counter(value as f64))
    }

    /// A present value.
    #[must_use]
    pub fn gauge(name: &str, help: &str, value: u64) -> Self {
        Self::new(name, help, FigureValue::Gauge(value as f64))
    }

    /// A sum of times, in seconds.
    #[must_use]
    pub fn seconds(name: &str, help: &str, nanos: u64) -> Self {
        Self::new(name, help, FigureValue::Counter(nanos as f64 / 1e9))
    }

    /// The same with a label.
    #[must_use]
    pub fn with(mut self, label: &str, value: impl Into<String>) -> Self {
        self.labels.insert(label.to_owned(), value.into());
        self
    }
}

/// The value of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureValue {
    /// It only grows, as long as the module is the same.
    Counter(f64),
    /// A present value.
    Gauge(f64),
    /// A histogram.
    Histogram(Distribution),
}

/// Counts of values by their size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// The sum of all values.
    pub sum: f64,
    /// By rising bounds: the count of values at or below the bound (`None`: of all others),
    /// and above the one before.
    pub buckets: Vec<(Option<f64>, u64)>,
}

impl Distribution {
    /// The count of all values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}
