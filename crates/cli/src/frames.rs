//! `braid frames cat`: prints the data of a file in frames.

use crate::args::CatArgs;
use crate::failure::{Failure, Result};
use braid_contract::Shown;
use braid_daemon::frames::{CatError, Found};
use std::io::{self, BufWriter};

pub(crate) fn cat(args: &CatArgs) -> Result<()> {
    let failed = |error: CatError| {
        let why = match error {
            CatError::Refused(why) => why,
            CatError::Io(error) => error.to_string(),
        };
        Failure::new(format!("{}: {why}", args.file.shown()))
    };
    let found = Found::open(&args.file, args.key_file.as_deref()).map_err(failed)?;
    let damaged = found.write_to(&mut BufWriter::new(io::stdout().lock())).map_err(failed)?;
    if damaged.is_empty() {
        return Ok(());
    }
    let offsets: Vec<String> = damaged.iter().map(u64::to_string).collect();
    let (count, at) = (damaged.len(), offsets.join(", "));
    Err(Failure::new(format!(
        "{}: {count} frames are damaged, and zeros here; they begin at {at}",
        args.file.shown()
    )))
}
