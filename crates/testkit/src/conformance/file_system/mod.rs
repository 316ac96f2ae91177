//! The suite for [`FileSystem`]. It uses it like a front end, but holds none of
//! the kernel's locks.
#![allow(clippy::unwrap_used, reason = "a case fails by panicking")]

mod attributes;
mod bed;
mod concurrency;
mod data;
mod directories;
mod lifetimes;
mod names;
mod renames;
mod space;

use super::Report;
use bed::Bed;
use braid_contract::FileSystem;
use std::any::Any;
use std::sync::Arc;

/// An empty file system, with the resources that it needs.
pub struct Fresh {
    fs: Arc<dyn FileSystem>,
    _kept: Box<dyn Any>,
}

impl Fresh {
    /// A file system, and the directory that it is in, for example.
    #[must_use]
    pub fn new(fs: Arc<dyn FileSystem>, kept: impl Any) -> Self {
        Self { fs, _kept: Box::new(kept) }
    }
}

/// The subject of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Names, links, directories, attributes.
    Namespace,
    /// The bytes of files, and their space.
    Data,
}

/// The name of a case, the capabilities it needs, and its function.
type Case = (&'static str, Needs, fn(&Bed<'_>));

/// Whether a case is for a file system, which may be tried for it.
type Needs = fn(&Bed<'_>) -> bool;

const CASES: [(Part, &[Case]); 8] = [
    (Part::Namespace, &names::CASES),
    (Part::Namespace, &renames::CASES),
    (Part::Namespace, &attributes::CASES),
    (Part::Namespace, &directories::CASES),
    (Part::Namespace, &concurrency::CASES),
    (Part::Data, &data::CASES),
    (Part::Data, &space::CASES),
    (Part::Data, &lifetimes::CASES),
];

/// All cases: the part that each is about, and its name.
pub fn cases() -> impl Iterator<Item = (Part, &'static str)> {
    CASES.into_iter().flat_map(|(part, cases)| cases.iter().map(move |(name, ..)| (part, *name)))
}

/// Runs every case of these parts that is for the `implementation`, each on a
/// file system of its own.
#[must_use]
pub fn run(implementation: &str, parts: &[Part], fresh: &dyn Fn() -> Fresh) -> Report {
    let mut report = Report::new("file system", implementation);
    for (part, cases) in CASES {
        for (name, needs, case) in cases {
            report.run(name, || {
                if !parts.contains(&part) {
                    return None;
                }
                let fresh = fresh();
                let bed = Bed::new(&*fresh.fs);
                needs(&bed).then(|| case(&bed))
            });
        }
    }
    report
}

/// For every file system.
fn always(_: &Bed<'_>) -> bool {
    true
}
