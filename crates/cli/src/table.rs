//! Output for people: aligned tables, and colour on terminals only.

use crate::failure::{Failure, Result};
use braid_contract::{tame, tame_json};
use comfy_table::Cell;
use comfy_table::presets::NOTHING;
pub(crate) use comfy_table::{CellAlignment as Align, Color};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

/// Prints to standard output. A reader that has seen enough (`| head`) is not
/// an error.
pub(crate) fn print(text: &str) -> Result<()> {
    print_to_reader(&tame(text)).map(drop)
}

/// Prints text with colours or cursor movements, and answers whether the reader
/// is still there. The rest of the text is [tame](braid_contract::tame) or
/// JSON.
pub(crate) fn print_to_reader(text: &str) -> Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(format!("can't write to standard output: {error}"))),
    }
}

/// The version of the output of `--json`. An incompatible change raises it; new
/// fields do not.
const SCHEMA: u32 = 1;

/// An object with the schema's version.
#[derive(Serialize)]
struct Versioned<'a, T> {
    schema: u32,
    #[serde(flatten)]
    value: &'a T,
}

/// Prints an object as JSON, indented.
pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(&Versioned { schema: SCHEMA, value });
    let text = text.map_err(|error| Failure::new(error.to_string()))?;
    print(&(tame_json(&text).into_owned() + "\n"))
}

/// An object as one line of JSON.
pub(crate) fn json_line(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string(&Versioned { schema: SCHEMA, value });
    let text = text.map_err(|error| Failure::new(error.to_string()))?;
    Ok(tame_json(&text).into_owned() + "\n")
}

/// Rows below a head, each column as wide as needed.
pub(crate) struct Table(comfy_table::Table);

impl Table {
    pub(crate) fn new(head: &[(&'static str, Align)]) -> Self {
        let mut table = comfy_table::Table::new();
        // The caller decides about colours, terminal or not.
        table.load_style(NOTHING).set_header(head.iter().map(|(name, _)| *name)).enforce_styling();
        for (column, (_, align)) in table.column_iter_mut().zip(head) {
            column.set_padding((0, 2)).set_cell_alignment(*align);
        }
        Self(table)
    }

    /// Adds a row, one cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.0.add_row(cells);
    }

    /// Adds a row, of which `paint` colours some cells.
    pub(crate) fn painted_row(&mut self, cells: Vec<String>, paint: impl Fn(&str) -> Option<Color>) {
        self.0.add_row(cells.into_iter().map(|text| match paint(&text) {
            Some(colour) => Cell::new(text).fg(colour),
            None => Cell::new(text),
        }));
    }

    /// The table as text.
    pub(crate) fn render(&self) -> String {
        self.0.trim_fmt() + "\n"
    }
}

/// Whether to use colour: on a terminal, unless the user declined.
pub(crate) fn colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&[("TIER", Align::Left), ("FREE", Align::Right), ("WHERE", Align::Left)]);
        assert_eq!(table.render(), "TIER  FREE  WHERE\n");
        table.row(vec!["fäst".into(), "100 GiB".into(), "/a".into()]);
        table.row(vec!["very-slow".into(), "1 B".into(), "/mnt/日本/b c".into()]);
        table.row(vec!["日本".into(), String::new(), String::new()]);
        let expected = "\
TIER          FREE  WHERE
fäst       100 GiB  /a
very-slow      1 B  /mnt/日本/b c
日本
";
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn colours_take_no_room() {
        let mut table = Table::new(&[("TIER", Align::Left), ("STATE", Align::Left), ("FREE", Align::Right)]);
        let paint = |cell: &str| (cell == "full").then_some(Color::DarkYellow);
        table.painted_row(["slow", "full", "1 B"].map(str::to_owned).to_vec(), paint);
        let text = table.render();
        assert!(text.contains("\x1b["), "{text:?}");
        let mut plain = text.replace("\x1b[38;5;3m", "").replace("\x1b[39m", "");
        plain = plain.replace("\x1b[0m", "");
        assert_eq!(plain, "TIER  STATE  FREE\nslow  full    1 B\n");
    }
}
