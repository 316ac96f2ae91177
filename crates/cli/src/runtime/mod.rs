//! `braid runtime`: the workers and the queues that they serve. `braid bench runtime`: the
//! cost of requests through them.

mod client;
mod deeds;
mod measure;

pub(crate) use measure::bench;

use crate::args::RuntimeArgs;
use crate::failure::Result;
use crate::locate;
use crate::table::{self, Align, Table};
use braid_contract::units::show_latency;
use braid_contract::{RuntimeStatus, counted};
use braid_ipc::protocol::{Reply, Request};

pub(crate) fn show(args: &RuntimeArgs) -> Result<()> {
    let mut daemon = locate::need_daemon(&locate::given_or_only(args.path.as_deref())?)?;
    let status = locate::ask(&mut daemon, &Request::Runtime, |reply| match reply {
        Reply::Runtime(status) => Some(status),
        _ => None,
    })?;
    if args.json { table::print_json(&status) } else { table::print(&render(&status)) }
}

/// A runtime in a line.
pub(crate) fn summary(status: &RuntimeStatus) -> String {
    let RuntimeStatus { policy, scheduler, workers_max, workers, queues, .. } = status;
    let mut sessions: Vec<u64> = queues.iter().map(|queue| queue.session).collect();
    sessions.dedup();
    let asleep = workers.iter().filter(|worker| worker.asleep).count();
    let latency = workers.iter().filter(|worker| worker.latency).count();
    let waiting: u64 = queues.iter().map(|queue| queue.waiting).sum();
    format!(
        "runtime: {} of at most {workers_max} ({latency} for latency, {asleep} asleep), {}, {}, {waiting} waiting; {policy}, {scheduler}",
        counted(workers.len() as u64, "worker"),
        counted(sessions.len() as u64, "session"),
        counted(queues.len() as u64, "queue"),
    )
}

fn render(status: &RuntimeStatus) -> String {
    let RuntimeStatus { workers, queues, sessions, .. } = status;
    let mut text = summary(status) + "\n";
    if !workers.is_empty() {
        let mut table = Table::new(&[
            ("WORKER", Align::Right),
            ("FOR", Align::Left),
            ("QUEUES", Align::Right),
            ("REQUESTS", Align::Right),
            ("MEAN", Align::Right),
            ("SLEPT", Align::Right),
            ("NOW", Align::Left),
        ]);
        for (number, worker) in workers.iter().enumerate() {
            table.row(vec![
                number.to_string(),
                if worker.latency { "latency" } else { "any" }.into(),
                worker.queues.to_string(),
                worker.requests.to_string(),
                mean(worker.busy_ns, worker.requests),
                worker.slept.to_string(),
                if worker.asleep { "asleep" } else { "awake" }.into(),
            ]);
        }
        text.push_str(&format!("\n{}", table.render()));
    }
    let used: Vec<_> = queues.iter().filter(|queue| queue.requests + queue.waiting > 0).collect();
    if !used.is_empty() {
        let mut table = Table::new(&[
            ("SESSION", Align::Right),
            ("PROCESS", Align::Right),
            ("QUEUE", Align::Right),
            ("WANTS", Align::Left),
            ("REQUESTS", Align::Right),
            ("MEAN", Align::Right),
            ("WAITING", Align::Right),
        ]);
        for queue in used {
            let process = sessions.iter().find(|session| session.session == queue.session);
            table.row(vec![
                queue.session.to_string(),
                process.map_or_else(|| "-".into(), |session| session.pid.to_string()),
                queue.queue.to_string(),
                queue.class.name().into(),
                queue.requests.to_string(),
                mean(queue.busy_ns, queue.requests),
                queue.waiting.to_string(),
            ]);
        }
        text.push_str(&format!("\n{}", table.render()));
    }
    text
}

fn mean(busy_ns: u64, requests: u64) -> String {
    busy_ns.checked_div(requests).map_or_else(|| "-".into(), show_latency)
}
