//! dbench: the load of a file server with several office clients.

use crate::arena::{Arena, Shape};
use crate::report::Report;
use crate::trial::{Suite, Trial, Turn};
use braid_tests_support::error::{Result, ensure};
use braid_tests_support::lab::Kind;
use braid_tests_support::options::Options;
use braid_tests_support::sh::cmd;

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "dbench",
    about: "a file server's load, four clients",
    on_request: false,
    on_directories: true,
    turn: Turn::Machine,
    trials,
};

const LOAD: &str = "/usr/share/dbench/client.txt";

fn trials(options: &Options) -> Vec<Trial> {
    let (shape, on) = (Shape::spread(Kind::Ext4, Kind::Xfs), options.clone());
    let trial = Trial::new(&shape.title(&on), move |report| run(shape, &on, report));
    vec![trial.on_file_systems(options)]
}

fn run(shape: Shape, options: &Options, report: &mut Report) -> Result<()> {
    let arena = Arena::new("dbench", shape, options)?;
    let seconds = options.scale(3, 10, 120).to_string();
    let mut throughput = String::new();
    report.case(&format!("four clients for {seconds} s on {}", arena.name), || {
        let text = cmd("dbench").arg("-D").arg(&arena.dir).args(["-c", LOAD, "-t", &seconds, "4"]).read()?;
        let result = text.lines().find(|line| line.starts_with("Throughput")).unwrap_or_default();
        result.clone_into(&mut throughput);
        // A semaphore makes its processes start together; they do without.
        let fails = |line: &str| line.contains("failed") && !line.contains("barrier semaphore");
        ensure(!result.is_empty() && !text.lines().any(fails), || text.clone())
    })?;
    report.print(&format!("        {throughput}"));
    report.case(&format!("fsck after dbench on {}", arena.name), || arena.finish())
}
