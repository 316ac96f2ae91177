//! The files of jobs: one each in `.braid/jobs` of the home tier. The volume's
//! list of jobs decides their contents; the check reads them with
//! [`problem_of`].

use crate::dirs::names_in;
use crate::home::Home;
use braid_contract::{Access, Context, Errno, Fd, NativeFd, Result, Shown};
use braid_format::{FormatError, JobRecord};
use std::ffi::OsStr;

/// The directory's name.
pub const DIR: &str = "jobs";

/// Longest job file: two long paths in JSON's escapes fit.
const LEN_MAX: usize = 256 << 10;

/// The contents of the directory.
#[derive(Default)]
pub struct StoredJobs {
    /// The jobs that could be read.
    pub records: Vec<JobRecord>,
    /// The highest number of a file, damaged or not.
    pub last: u64,
}

/// The job number in a file name.
fn number(name: &OsStr) -> Option<u64> {
    let number = name.to_str()?.parse().ok()?;
    (name == number_name(number).as_str()).then_some(number)
}

fn number_name(id: u64) -> String {
    id.to_string()
}

fn directory(home: &Home) -> Result<Option<Fd>> {
    match home.braid()?.open_at(OsStr::new(DIR), Access::Directory) {
        Err(error) if error.errno() == Errno::ENOENT => Ok(None),
        result => result.map(Some),
    }
}

/// Reads all jobs. Unreadable ones are logged and skipped.
pub fn load(home: &Home) -> Result<StoredJobs> {
    let mut shelf = StoredJobs::default();
    let Some(dir) = directory(home)? else { return Ok(shelf) };
    for name in names_in(&*dir)? {
        if name.to_str().is_some_and(|name| name.ends_with(".new")) {
            // A crash interrupted the replacement of an older file.
            if let Err(error) = dir.remove_at(&name, false) {
                tracing::warn!(name = %name.shown(), %error, "what is left of a job's file can't be removed");
            }
            continue;
        }
        let Some(id) = number(&name) else { continue };
        shelf.last = shelf.last.max(id);
        match read(&*dir, id) {
            Ok(Ok(record)) => shelf.records.push(record),
            Ok(Err(error)) => tracing::error!(job = id, %error, "a job is passed over: its file is damaged"),
            Err(error) => tracing::error!(job = id, %error, "a job is passed over: its file can't be read"),
        }
    }
    Ok(shelf)
}

fn read(dir: &dyn NativeFd, id: u64) -> Result<std::result::Result<JobRecord, FormatError>> {
    let bytes = dir.read_small(&number_name(id), LEN_MAX)?.unwrap_or_default();
    Ok(JobRecord::decode(id, &bytes))
}

/// Writes a job, durably.
pub fn save(home: &Home, record: &JobRecord) -> Result<()> {
    let braid = home.braid()?;
    let dir = match directory(home)? {
        Some(dir) => dir,
        None => {
            braid.ensure_dir_at(DIR).context("making .braid/jobs")?;
            braid.sync(false)?;
            braid.open_at(OsStr::new(DIR), Access::Directory)?
        }
    };
    dir.replace_small(&number_name(record.id), &record.encode())
        .with_context(|| format!("writing .braid/jobs/{}", record.id))
}

/// Forgets a job.
pub fn remove(home: &Home, id: u64) -> Result<()> {
    match directory(home)? {
        Some(dir) => dir.ensure_gone_at(&number_name(id)),
        None => Ok(()),
    }
}

/// The problem with a file of the directory; `None` if there is none. A file
/// that is not a job's is `Foreign`.
pub fn problem_of(dir: &dyn NativeFd, name: &OsStr) -> Result<Option<Wrong>> {
    if name
        .to_str()
        .and_then(|name| name.strip_suffix(".new"))
        .is_some_and(|of| number(OsStr::new(of)).is_some())
    {
        return Ok(Some(Wrong::Temporary));
    }
    let Some(id) = number(name) else { return Ok(Some(Wrong::Foreign)) };
    Ok(read(dir, id)?.err().map(|error| Wrong::Damaged(error.to_string())))
}

/// The problems of files in the directory.
pub enum Wrong {
    /// The new version of a job's file, which a crash kept from replacing the
    /// old one.
    Temporary,
    /// Not Braid's.
    Foreign,
    /// A job's file with invalid contents.
    Damaged(String),
}
