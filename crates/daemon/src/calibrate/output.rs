//! The results of a calibration as files: the profile and the plot. The command
//! line calls this before and after the measurement.

use super::plot;
use crate::profile::{self, Profile};
use crate::refusal::{Place, Refusal};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The paths of profile and plot, and the profile to be kept.
#[derive(Debug)]
pub struct Output {
    profile: PathBuf,
    plot: PathBuf,
    before: Option<Profile>,
}

impl Output {
    /// Checks the paths of the files, by default beside the stack file. With
    /// `keep`, the profile keeps its figures of other tiers.
    ///
    /// # Errors
    /// If files can't be created there, or the file to keep is not a profile.
    pub fn prepare(
        stack: &Path,
        profile: Option<&Path>,
        plot: Option<&Path>,
        keep: bool,
    ) -> Result<Self, Refusal> {
        let beside = |extension| stack.with_extension(extension);
        let output = Self {
            profile: profile.map_or_else(|| beside("profile.yaml"), Path::to_owned),
            plot: plot.map_or_else(|| beside("profile.svg"), Path::to_owned),
            before: None,
        };
        for file in [&output.profile, &output.plot] {
            can_be_made(file)?;
        }
        let before = (keep && output.profile.exists())
            .then(|| profile::load(&output.profile, &place(&output.profile)))
            .transpose()?;
        Ok(Self { before, ..output })
    }

    /// The path of the profile.
    #[must_use]
    pub fn profile(&self) -> &Path {
        &self.profile
    }

    /// The path of the plot.
    #[must_use]
    pub fn plot(&self) -> &Path {
        &self.plot
    }

    /// Writes both, each atomically.
    ///
    /// # Errors
    /// If one can't be written.
    pub fn write(self, measured: &Profile) -> Result<(), Refusal> {
        let mut all = self.before.unwrap_or_else(|| measured.clone());
        all.tiers.extend(measured.tiers.clone());
        let draw = |what: String| place(&self.plot).refuse(what, "this is a mistake in braid");
        let picture = plot::draw(&all).map_err(draw)?;
        let text =
            all.to_yaml().map_err(|what| place(&self.profile).refuse(what, "this is a mistake in braid"))?;
        replace(&self.profile, &format!("# Made by braid bench calibrate.\n{text}"))?;
        replace(&self.plot, &picture)
    }
}

fn place(path: &Path) -> Place {
    Place::file(&path.to_string_lossy())
}

/// Refuses a path that could not be written in the end.
fn can_be_made(path: &Path) -> Result<(), Refusal> {
    let made =
        if path.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { fs::File::create(new(path)) };
    let _ = fs::remove_file(new(path));
    made.map(drop).map_err(|error| cant_write(path, &error))
}

fn replace(path: &Path, text: &str) -> Result<(), Refusal> {
    let write = || {
        let mut file = fs::File::create(new(path))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(new(path), path)
    };
    write().map_err(|error: io::Error| {
        let _ = fs::remove_file(new(path));
        cant_write(path, &error)
    })
}

/// The temporary path of a file.
fn new(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    name.into()
}

fn cant_write(path: &Path, error: &io::Error) -> Refusal {
    place(path).refuse(format!("can't be written: {error}"), "name another file, or make room for it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Figures, Point, TierFigures};

    fn measured(names: &[&str]) -> Profile {
        let point = |threads| Point { threads, bandwidth: 200_000_000, latency_ns: 500_000 };
        let figures = Figures {
            bandwidth: 200_000_000,
            latency_ns: 500_000,
            threads: 1,
            degrades_at: Some(2),
            points: vec![point(1), point(2)],
        };
        let tier = TierFigures { read: figures.clone(), write: figures };
        let tiers = names.iter().map(|name| ((*name).to_owned(), tier.clone()));
        Profile { version: profile::VERSION, tiers: tiers.collect() }
    }

    #[test]
    fn what_is_written_is_read_and_other_tiers_are_kept_when_asked() {
        let dir = tempfile::tempdir().unwrap();
        let stack = dir.path().join("two.tier.yaml");
        let file = dir.path().join("two.tier.profile.yaml");
        let tiers = || {
            let text = fs::read_to_string(&file).unwrap();
            profile::parse(&text, "p").unwrap().tiers.into_keys().collect::<Vec<_>>()
        };
        let prepare = |keep| Output::prepare(&stack, None, None, keep);
        prepare(true).unwrap().write(&measured(&["fast", "slow"])).unwrap();
        prepare(true).unwrap().write(&measured(&["fast"])).unwrap();
        assert_eq!(tiers(), ["fast", "slow"]);
        prepare(false).unwrap().write(&measured(&["fast"])).unwrap();
        assert_eq!(tiers(), ["fast"]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "something was left");

        fs::write(&file, "version: 1\ntears: { }\n").unwrap();
        assert!(prepare(true).unwrap_err().to_string().contains("two.tier.profile.yaml:2: tears"));
        assert!(prepare(false).is_ok());
    }

    #[test]
    fn a_file_that_can_not_be_written_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().join("no/such"), dir.path().to_owned()] {
            let refusal = Output::prepare(Path::new("s.yaml"), Some(&path), None, false).unwrap_err();
            assert!(refusal.to_string().contains(": can't be written: "), "{refusal}");
        }
    }
}
