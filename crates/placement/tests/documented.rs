//! The table of policies against the documents.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use braid_placement::{POLICIES, SettingKind};
use std::path::Path;

fn document(name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::read_to_string(docs.join(name)).unwrap()
}

/// The row of the table below `header` that begins with `name`, its cells.
fn row(text: &str, header: &str, name: &str) -> Vec<String> {
    let (_, table) = text.split_once(header).unwrap();
    let row = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = row.map(|line| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>());
    let row = cells.into_iter().find(|cells| cells[1] == format!("`{name}`"));
    row.unwrap_or_else(|| panic!("{name} is not below {header}"))
}

#[test]
fn each_policy_has_its_line_and_each_of_its_settings_its_kind() {
    let (configuration, placement) = (document("configuration.md"), document("placement.md"));
    for kind in POLICIES {
        let line = row(&placement, "| policy | in one line | its source |", kind.name);
        assert_eq!(line[2], kind.summary, "{}", kind.name);
        let settings = &row(&configuration, "| policy | settings | meaning |", kind.name)[2];
        assert_eq!(settings == "none", kind.settings.is_empty(), "{}", kind.name);
        for setting in kind.settings {
            let name = format!("`{}` (", setting.key);
            let (_, said) = settings.split_once(&name).unwrap_or_else(|| panic!("{}: {name}", kind.name));
            let said = said.split_once(')').unwrap().0;
            let what = match setting.kind {
                SettingKind::Threads { .. } => "1 to ",
                SettingKind::Percent { .. } => "percentage",
                SettingKind::Size { .. } => "size",
                SettingKind::Target => "the name of a tier",
            };
            // The second of two equal ones refers to the first.
            let refers = ["as there", "the same"].contains(&said);
            assert!(refers || said.contains(what), "{}: {name}{said}", kind.name);
        }
    }
}
