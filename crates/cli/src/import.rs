//! `braid import`: brings a tier's own files into the volume.

use crate::args::{ImportArgs, StartArgs};
use crate::failure::Result;
use crate::{locate, movers, table};
use braid_contract::counted;
use braid_contract::units::show_size;
use braid_ipc::protocol::{ImportSurvey, JobKind, Reply, Request};

/// Most staying files that are named.
const NAMED_MAX: usize = 20;

pub(crate) fn run(args: &ImportArgs) -> Result<()> {
    let mount = locate::given_or_only(args.mountpoint.as_deref())?;
    let tier = args.tier.clone();
    if !args.dry_run {
        let start = StartArgs { bandwidth: None, background: args.background, json: args.json };
        return movers::start(&mount, JobKind::Import { tier }, &start);
    }
    let mut daemon = locate::need_daemon(&mount)?;
    let survey = locate::ask(&mut daemon, &Request::SurveyImport { tier }, |reply| match reply {
        Reply::ImportSurvey(survey) => Some(survey),
        _ => None,
    })?;
    if args.json { table::print_json(&survey) } else { table::print(&render(&survey)) }
}

fn render(survey: &ImportSurvey) -> String {
    let ImportSurvey { tier, files, bytes, others, dirs, conflicts, conflicting, failures } = survey;
    let mut text = format!(
        "tier {tier}: {} of {} come in (directories: {dirs}, links and others: {others})\n",
        counted(*files, "file"),
        show_size(*bytes),
    );
    if *conflicts > 0 {
        text.push_str(&format!(
            "{conflicts} stay on the tier, since the volume has something of that name:\n"
        ));
        conflicting.iter().take(NAMED_MAX).for_each(|path| text.push_str(&format!("  {path}\n")));
        if *conflicts > NAMED_MAX as u64 {
            text.push_str("  … (all of them by --json)\n");
        }
    }
    failures.iter().for_each(|failure| text.push_str(&format!("{}: {}\n", failure.path, failure.why)));
    text
}
