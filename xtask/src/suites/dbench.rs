//! dbench: what a file server does for office clients, several at once.

use super::arena::{Arena, Shape};
use super::{Report, Suite};
use crate::error::{Result, ensure};
use crate::lab::Kind;
use crate::sh::cmd;
use crate::test::Options;

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite { name: "dbench", about: "a file server's load, four clients", run };

const LOAD: &str = "/usr/share/dbench/client.txt";

fn run(options: &Options, report: &mut Report) -> Result<()> {
    let arena = Arena::new("dbench", Shape::spread(Kind::Ext4, Kind::Xfs), options)?;
    let seconds = options.scale(3, 10, 120).to_string();
    report.case(&format!("four clients for {seconds} s on {}", arena.name), || {
        let text = cmd("dbench").arg("-D").arg(&arena.dir).args(["-c", LOAD, "-t", &seconds, "4"]).read()?;
        let result = text.lines().find(|line| line.starts_with("Throughput"));
        println!("        {}", result.unwrap_or_default());
        // A semaphore lets its processes begin at once; they do without.
        let fails = |line: &str| line.contains("failed") && !line.contains("barrier semaphore");
        ensure(result.is_some() && !text.lines().any(fails), || text.clone())
    })?;
    report.case(&format!("fsck after dbench on {}", arena.name), || arena.finish())
}
