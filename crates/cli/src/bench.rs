//! `braid bench calibrate`: the performance of a stack's tiers, as a table, a
//! plot and a profile.

use crate::args::CalibrateArgs;
use crate::failure::Result;
use crate::progress::Progress;
use crate::table::{self, Align, Table};
use braid_contract::units::{self, show_size};
use braid_contract::{Shown, counted};
use braid_daemon::calibrate::output::Output;
use braid_daemon::calibrate::{self, Options, Step};
use braid_daemon::profile::{Figures, Profile, TierFigures};
use braid_daemon::refusal::Place;
use braid_daemon::{Refusal, stack_file};
use std::time::Duration;

pub(crate) fn calibrate(args: &CalibrateArgs) -> Result<()> {
    let options = options(args)?;
    let config = stack_file::load_without_profile(&args.stack)?;
    let (profile, svg) = (args.output.as_deref(), args.svg.as_deref());
    let volume = config.stack.need_volume()?;
    let output = Output::prepare(&args.stack, profile, svg, !args.tiers.is_empty())?;
    let written = format!("profile: {}\nplot: {}\n", output.profile().shown(), output.plot().shown());
    let mut progress = Progress::new();
    let measured = calibrate::run(volume, &options, &mut |step| {
        // Warnings come before any line of progress.
        if let Some(warning) = tell(&mut progress, step) {
            eprintln!("braid: {warning}");
        }
    });
    drop(progress);
    let measured = measured?;
    output.write(&measured)?;
    if args.json { table::print_json(&measured) } else { table::print(&(render(&measured) + &written)) }
}

fn options(args: &CalibrateArgs) -> Result<Options> {
    let size = |flag: &str, text: &str| -> std::result::Result<u64, Refusal> {
        units::parse_size(text)
            .map_err(|advice| Place::flag(format!("--{flag} {text}")).refuse("not a size", advice))
    };
    // Invalid times exceed the bounds that are checked later.
    let time = Duration::try_from_secs_f64(args.seconds).unwrap_or_default();
    Ok(Options {
        tiers: args.tiers.clone(),
        time,
        threads_max: args.threads_max,
        block: size("block", &args.block)?,
        size: size("size", &args.size)?,
    })
}

/// Shows the current step; answers a warning that is to stay.
fn tell(progress: &mut Progress, step: &Step<'_>) -> Option<String> {
    let line = match step {
        Step::Shared(tier) => {
            return Some(format!(
                "tier '{tier}' is in use by a mounted volume: its figures are what that leaves"
            ));
        }
        Step::Filling(tier) => format!("{tier}: making files"),
        Step::Measuring(tier, direction, threads) => {
            format!("{tier}: {}, {}", direction.name(), count(*threads as u32))
        }
    };
    progress.show(&line);
    None
}

fn render(profile: &Profile) -> String {
    profile.tiers.iter().map(|(name, tier)| render_tier(name, tier) + "\n").collect()
}

fn render_tier(name: &str, tier: &TierFigures) -> String {
    let mut table = Table::new(&[
        ("THREADS", Align::Right),
        ("READ/S", Align::Right),
        ("LATENCY", Align::Right),
        ("WRITE/S", Align::Right),
        ("LATENCY", Align::Right),
    ]);
    for (read, write) in tier.read.points.iter().zip(&tier.write.points) {
        table.row(vec![
            read.threads.to_string(),
            show_size(read.bandwidth),
            units::show_latency(read.latency_ns),
            show_size(write.bandwidth),
            units::show_latency(write.latency_ns),
        ]);
    }
    let sides = [("read", &tier.read), ("write", &tier.write)];
    let lines: String = sides.iter().map(|(side, figures)| summary(side, figures)).collect();
    format!("{name}\n{}{lines}", table.render())
}

fn summary(side: &str, figures: &Figures) -> String {
    let degrades = match figures.degrades_at {
        Some(threads) => format!("less from {} on", count(threads)),
        None => "no less with more".into(),
    };
    format!("{side}: {}/s with {}, {degrades}\n", show_size(figures.bandwidth), count(figures.threads))
}

fn count(threads: u32) -> String {
    counted(threads.into(), "thread")
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_daemon::profile::Point;

    #[test]
    fn the_table_has_both_sides_and_says_what_they_come_to() {
        let point = |threads, bandwidth| Point { threads, bandwidth, latency_ns: 1_500_000 };
        let read = Figures {
            bandwidth: 200 << 20,
            latency_ns: 1_500_000,
            threads: 2,
            degrades_at: None,
            points: vec![point(1, 100 << 20), point(2, 200 << 20)],
        };
        let write = Figures { threads: 1, degrades_at: Some(2), ..read.clone() };
        let expected = "\
fast
THREADS   READ/S  LATENCY  WRITE/S  LATENCY
      1  100 MiB   1.5 ms  100 MiB   1.5 ms
      2  200 MiB   1.5 ms  200 MiB   1.5 ms
read: 200 MiB/s with 2 threads, no less with more
write: 200 MiB/s with 1 thread, less from 2 threads on
";
        assert_eq!(render_tier("fast", &TierFigures { read, write }), expected);
    }
}
