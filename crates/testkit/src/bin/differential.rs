//! Compares a mounted file system with a reference directory: random sequences
//! of operations must have the same results on both.
#![forbid(unsafe_code)]

use braid_testkit::{
    Common, Difference, Failure, ModelSide, NativeSide, Op, Runner, Settings, Side, run_parallel,
};
use clap::Parser;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Compare two directories by random sequences of file-system operations.
#[derive(Parser)]
struct Args {
    /// Directory on the file system under test
    #[arg(long, value_name = "DIR")]
    mount: PathBuf,
    /// Directory on the file system to compare with; the in-memory model if absent
    #[arg(long, value_name = "DIR")]
    reference: Option<PathBuf>,
    /// How many operations to carry out
    #[arg(long, default_value_t = 100_000)]
    ops: u64,
    /// Decides which sequences are run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads that work at the same time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    threads: u64,
    /// Operations in one sequence, at most
    #[arg(long, default_value_t = 200)]
    case_len: usize,
    /// Compare the whole trees after this many operations
    #[arg(long, default_value_t = 50)]
    compare_every: usize,
    /// Run only the sequence stored in FILE
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Where a sequence that differs is stored [default: below the directory for temporary files]
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("differential: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether the two agreed in everything.
fn run(args: &Args) -> Result<bool, String> {
    rustix::process::umask(rustix::fs::Mode::from(0o022));
    let dirs: Vec<&Path> =
        [Some(&args.mount), args.reference.as_ref()].into_iter().flatten().map(|p| &**p).collect();
    let common = Common::model().with(&dirs).map_err(|error| format!("probing {dirs:?}: {error}"))?;
    eprintln!("not compared: {common}");
    let common = Arc::new(common);
    // The model is a superuser's: see `Settings::plain_modes`.
    let plain_modes = args.reference.is_none() && !common.superuser;
    let mount = NativeSide::new(args.mount.clone(), common.clone());
    let reference: Box<dyn Side> = match &args.reference {
        Some(dir) => Box::new(NativeSide::new(dir.clone(), common)),
        None if args.threads > 1 => return Err("--threads needs --reference".to_owned()),
        None => Box::new(ModelSide(common)),
    };
    let settings =
        Settings { seed: args.seed, case_len: args.case_len, compare_every: args.compare_every, plain_modes };
    let runner = Runner::new(&mount, reference.as_ref(), settings);
    if let Some(file) = &args.replay {
        return replay(&runner, file);
    }
    let start = Instant::now();
    let result = if args.threads == 1 {
        runner.run(args.ops)
    } else {
        run_parallel(&runner, args.threads as usize, args.ops)
    };
    match result {
        Ok(totals) => {
            let secs = start.elapsed().as_secs_f64();
            eprintln!("{} operations succeeded on both sides; {secs:.1} s", totals.succeeded);
            println!("{} operations, {} cases, 0 differences", totals.ops, totals.cases);
            Ok(true)
        }
        Err(failure) => {
            let default = || std::env::temp_dir().join(format!("differential-{}.json", args.seed));
            report(&failure, &args.save.clone().unwrap_or_else(default))?;
            Ok(false)
        }
    }
}

fn report(failure: &Failure, save: &Path) -> Result<(), String> {
    println!("1 difference\n{failure}");
    let json = serde_json::to_string(&failure.ops).map_err(|error| error.to_string())?;
    fs::write(save, json).map_err(|error| format!("storing the sequence in {}: {error}", save.display()))?;
    println!("The sequence is stored; run it again with --replay {}", save.display());
    Ok(())
}

fn replay(runner: &Runner<'_>, file: &Path) -> Result<bool, String> {
    let json = fs::read(file).map_err(|error| format!("reading {}: {error}", file.display()))?;
    let ops: Vec<Op> = serde_json::from_slice(&json)
        .map_err(|error| format!("{} is not a sequence: {error}", file.display()))?;
    let result: Result<u64, Box<Difference>> = runner.replay(&ops);
    match result {
        Ok(_) => {
            println!("{} operations, 1 case, 0 differences", ops.len());
            Ok(true)
        }
        Err(difference) => {
            println!("1 difference\n{difference}");
            Ok(false)
        }
    }
}
