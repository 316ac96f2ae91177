//! The outcome for the stack file when tiers were changed.

use braid_contract::Shown;
use braid_ipc::protocol::Saved;

/// The message about it, if any.
pub(crate) fn render(saved: &Saved) -> String {
    let changes = || saved.by_hand.iter().map(|change| format!("  {change}\n")).collect::<String>();
    match (&saved.file, &saved.why_not) {
        _ if saved.file.is_none() && saved.by_hand.is_empty() => String::new(),
        (Some(file), _) if saved.written => format!("{} says so\n", file.shown()),
        (Some(file), why) => format!(
            "{} was not changed: {}\nbefore the next mount, change its tiers:\n{}",
            file.shown(),
            why.as_deref().unwrap_or("the reason is not known"),
            changes()
        ),
        (None, _) => format!(
            "the volume was mounted by flags: before the next mount, change them as one would the tiers of a stack file:\n{}",
            changes()
        ),
    }
}
