//! The options of the suites: those of the test binary, which `cargo xtask
//! test` accepts too and passes on.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// Which suites run, for how long, and where.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Only this suite (may be repeated)
    #[arg(long = "suite", value_name = "NAME")]
    pub suites: Vec<String>,
    /// A shorter run of each suite
    #[arg(long)]
    pub quick: bool,
    /// A longer run of each suite
    #[arg(long, conflicts_with = "quick")]
    pub long: bool,
    /// Rounds of kill9, cuts of power, states of crash
    #[arg(long, value_name = "N")]
    pub iterations: Option<u64>,
    /// Where random sequences start
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// A directory to run on instead of a Braid volume
    #[arg(long, value_name = "DIR")]
    pub on: Option<PathBuf>,
}

impl Options {
    /// A measure of work: for `--quick`, as usual, for `--long`.
    pub fn scale(&self, quick: u64, usual: u64, long: u64) -> u64 {
        match (self.quick, self.long) {
            (true, _) => quick,
            (_, true) => long,
            _ => usual,
        }
    }

    /// The arguments that these options are read from.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments = Vec::new();
        let mut add = |name: &str, value: OsString| arguments.extend([OsString::from(name), value]);
        self.suites.iter().for_each(|suite| add("--suite", suite.into()));
        self.iterations.iter().for_each(|count| add("--iterations", count.to_string().into()));
        self.on.iter().for_each(|dir| add("--on", dir.into()));
        add("--seed", self.seed.to_string().into());
        arguments.extend(self.quick.then(|| "--quick".into()));
        arguments.extend(self.long.then(|| "--long".into()));
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn parse(arguments: impl IntoIterator<Item = OsString>) -> Option<Options> {
        let words = std::iter::once("test".into()).chain(arguments);
        Command::try_parse_from(words).ok().map(|command| command.options)
    }

    fn of(line: &str) -> Option<Options> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn arguments_give_the_same_options_again() {
        let every = "--suite fsx --suite kill9 --quick --iterations 50 --seed 3 --on /x";
        for line in ["", "--long", every] {
            let options = of(line).unwrap();
            assert_eq!(parse(options.arguments()), Some(options));
        }
        assert_eq!(of(every).unwrap().suites, ["fsx", "kill9"]);
    }

    #[test]
    fn work_is_measured() {
        let scale = |line| of(line).unwrap().scale(1, 2, 3);
        assert_eq!([scale("--quick"), scale(""), scale("--long")], [1, 2, 3]);
        assert_eq!(of("--quick --long"), None);
    }
}
