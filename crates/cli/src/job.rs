//! `braid job`: shows, awaits and controls jobs.

mod show;

use crate::args::{JobCommand, JobIdArgs, JobListArgs, JobSetArgs, JobShowArgs, JobWaitArgs};
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::{interrupt, locate, table};
use braid_contract::Shown;
use braid_contract::units::{parse_rate, parse_truth};
use braid_ipc::Client;
use braid_ipc::mounts::Mount;
use braid_ipc::protocol::{Job, JobChange, JobId, JobState, Reply, Request};
use serde::Serialize;
use std::time::Duration;

/// Time between two polls of an awaited job.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) fn run(command: &JobCommand) -> Result<()> {
    match command {
        JobCommand::List(args) => list(args),
        JobCommand::Show(args) => show(args),
        JobCommand::Wait(args) => wait_for(args),
        JobCommand::Pause(args) => change(args, JobChange::Pause),
        JobCommand::Resume(args) => change(args, JobChange::Resume),
        JobCommand::Cancel(args) => change(args, JobChange::Cancel),
        JobCommand::Set(args) => set(args),
    }
}

/// Jobs as JSON.
#[derive(Serialize)]
struct JobsTold<'a> {
    jobs: &'a [Job],
}

fn daemon(args: &JobListArgs) -> Result<(Mount, Client)> {
    let mount = locate::given_or_only(args.mountpoint.as_deref())?;
    let daemon = locate::need_daemon(&mount)?;
    Ok((mount, daemon))
}

/// Sends a request that is answered with a job.
pub(crate) fn ask_job(daemon: &mut Client, request: &Request) -> Result<Job> {
    locate::ask(daemon, request, |reply| match reply {
        Reply::Job(job) => Some(job),
        _ => None,
    })
}

fn list(args: &JobListArgs) -> Result<()> {
    let (_, mut daemon) = daemon(args)?;
    let jobs = locate::ask(&mut daemon, &Request::Jobs, |reply| match reply {
        Reply::Jobs(jobs) => Some(jobs),
        _ => None,
    })?;
    if args.json { table::print_json(&JobsTold { jobs: &jobs }) } else { table::print(&show::list(&jobs)) }
}

fn show(args: &JobShowArgs) -> Result<()> {
    let (mount, mut daemon) = daemon(&args.list)?;
    let mut job = ask_job(&mut daemon, &Request::Job { id: args.id })?;
    if args.follow {
        must_end(job.id, "look at it: braid top")?;
        job = wait(&mut daemon, &mount, job)?;
    }
    tell(&job, args.list.json)
}

fn wait_for(args: &JobWaitArgs) -> Result<()> {
    let (words, mountpoint) = locate::split_mount(&args.words);
    let id = |word: &String| word.parse::<JobId>().map_err(|why| Failure::usage(format!("'{word}': {why}")));
    let ids: Vec<JobId> = words.iter().map(id).collect::<Result<_>>()?;
    if ids.is_empty() {
        return Err(Failure::usage("no job is named\n  help: say which one: braid job list shows them"));
    }
    let mount = locate::given_or_only(mountpoint)?;
    let mut daemon = locate::need_daemon(&mount)?;
    // An unknown or endless job is reported before any is awaited.
    let jobs: Vec<Job> =
        ids.iter().map(|id| ask_job(&mut daemon, &Request::Job { id: *id })).collect::<Result<_>>()?;
    for job in &jobs {
        must_end(
            job.id,
            &format!("pause it: braid job pause {}; or switch it off in the stack file", job.id),
        )?;
    }
    let ended: Vec<Job> =
        jobs.into_iter().map(|job| wait(&mut daemon, &mount, job)).collect::<Result<_>>()?;
    if args.json {
        table::print_json(&JobsTold { jobs: &ended })?;
    } else {
        table::print(&ended.iter().map(show::end).collect::<String>())?;
    }
    ended.iter().try_for_each(|job| judge(job, args.json))
}

fn change(args: &JobIdArgs, change: JobChange) -> Result<()> {
    let (_, mut daemon) = daemon(&args.list)?;
    let job = ask_job(&mut daemon, &Request::ChangeJob { id: args.id, change })?;
    if args.list.json { table::print_json(&job) } else { table::print(&show::line(&job)) }
}

fn set(args: &JobSetArgs) -> Result<()> {
    let set = match args.setting.split_once('=') {
        Some(("bandwidth", "none")) => JobChange::Bandwidth(None),
        Some(("bandwidth", value)) => JobChange::Bandwidth(Some(rate(value)?)),
        Some(("guard", value)) => JobChange::Guard(parse_truth(value).map_err(|advice| {
            Failure::usage(format!("guard={value}: neither yes nor no\n  help: {advice}"))
        })?),
        _ => {
            let what = format!(
                "'{}' can't be set\n  help: write bandwidth=50MiB/s, bandwidth=none, guard=yes or guard=no",
                args.setting
            );
            return Err(Failure::usage(what));
        }
    };
    let ids = JobIdArgs {
        id: args.id,
        list: JobListArgs { mountpoint: args.list.mountpoint.clone(), json: args.list.json },
    };
    change(&ids, set)
}

/// Refuses to wait for a mover.
fn must_end(id: JobId, instead: &str) -> Result<()> {
    match id {
        JobId::Number(_) => Ok(()),
        JobId::Mover(_) => Err(Failure::new(format!("job {id} stands, and does not end\n  help: {instead}"))),
    }
}

/// Bytes a second.
pub(crate) fn rate(text: &str) -> Result<u64> {
    let refuse = |why: &str| Failure::usage(format!("'{text}' is not a bandwidth\n  help: {why}"));
    match parse_rate(text) {
        Ok(0) => Err(refuse("to stop a job, use braid job pause")),
        Ok(rate) => Ok(rate),
        Err(advice) => Err(refuse(&advice)),
    }
}

/// Prints a job.
pub(crate) fn tell(job: &Job, json: bool) -> Result<()> {
    if json { table::print_json(job) } else { table::print(&show::all(job)) }
}

/// Prints how a job ended; a failure unless it is done.
pub(crate) fn conclude(job: &Job, json: bool) -> Result<()> {
    if json {
        table::print_json(job)?;
    } else {
        table::print(&show::end(job))?;
    }
    judge(job, json)
}

fn judge(job: &Job, told: bool) -> Result<()> {
    if job.state == JobState::Done {
        return Ok(());
    }
    let why = job.message.as_ref().map_or(String::new(), |why| format!(": {why}"));
    let failure = Failure::new(format!("job {}: {}: {}{why}", job.id, job.text, job.state.name()));
    Err(if told { failure.told() } else { failure })
}

/// Shows the progress of a job until it has ended. Ctrl-C ends that, but not
/// the job.
pub(crate) fn wait(daemon: &mut Client, mount: &Mount, mut job: Job) -> Result<Job> {
    interrupt::watch();
    let mut progress = Progress::new();
    while !job.is_over() {
        progress.show(&show::progress(&job));
        std::thread::sleep(LOOK);
        if interrupt::came() {
            drop(progress);
            return Err(goes_on(job.id, mount));
        }
        job = ask_job(daemon, &Request::Job { id: job.id })?;
    }
    Ok(job)
}

/// The failure of a command that ends before its job.
pub(crate) fn goes_on(id: JobId, mount: &Mount) -> Failure {
    let point = mount.point.shown();
    Failure::new(format!(
        "job {id} goes on in the background\n  help: look at it: braid job show {id} {point}; \
         end it: braid job cancel {id} {point}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_sizes_a_second() {
        assert_eq!(rate("50MiB/s").unwrap(), 50 << 20);
        assert_eq!(rate("1000").unwrap(), 1000);
        assert_eq!(rate("5 M").unwrap(), 5 << 20);
        for bad in ["0", "fast", "5X", "-1", "50MiB/h"] {
            assert!(rate(bad).unwrap_err().is_usage(), "{bad}");
        }
    }
}
