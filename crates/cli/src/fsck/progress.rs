//! The progress of a check, in words.

use crate::progress::bar;
use braid_ipc::protocol::FsckProgress;

pub(super) fn render(now: &FsckProgress) -> String {
    match now.total.filter(|total| *total > 0) {
        None if now.done == 0 => format!("checking {}", now.phase),
        None => format!("checking {}: {}", now.phase, now.done),
        Some(total) => {
            let done = now.done.min(total);
            format!("checking {} {} {done}/{total}", now.phase, bar(done, total))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_drawn_where_the_end_is_known() {
        let now = |done, total| FsckProgress { phase: "files".into(), done, total };
        assert_eq!(render(&now(0, None)), "checking files");
        assert_eq!(render(&now(7, None)), "checking files: 7");
        let bar = render(&now(1, Some(2)));
        assert_eq!(bar, "checking files [###############---------------] 1/2");
        assert!(render(&now(9, Some(2))).ends_with("] 2/2"));
    }
}
