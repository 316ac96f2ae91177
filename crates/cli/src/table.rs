//! Output for people: aligned tables, and colour on a terminal only.

use crate::failure::{Failure, Result};
use braid_contract::{tame, tame_json};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

/// Prints to standard output. A reader that has seen enough (`| head`) is not
/// an error.
pub(crate) fn print(text: &str) -> Result<()> {
    print_to_reader(&tame(text)).map(drop)
}

/// Prints what has colours or moves the cursor, and says whether somebody still
/// reads. What else is in it, is [tame](braid_contract::tame) or JSON.
pub(crate) fn print_to_reader(text: &str) -> Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(format!("can't write to standard output: {error}"))),
    }
}

/// The version of what `--json` prints. A change that a reader would trip over
/// raises it; new fields do not.
const SCHEMA: u32 = 1;

/// An object with the version of its form.
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

/// How a column is aligned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows below a head, each column as wide as it has to be.
pub(crate) struct Table {
    head: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[(&'static str, Align)]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, one cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as text. `paint` may decorate a cell once it is padded.
    pub(crate) fn render(&self, paint: impl Fn(&str, String) -> String) -> String {
        let width = |column: usize, name: &str| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.max().unwrap_or(0).max(name.len())
        };
        let widths: Vec<usize> =
            self.head.iter().enumerate().map(|(column, (name, _))| width(column, name)).collect();
        let mut text = String::new();
        let names = self.head.iter().map(|(name, _)| (*name).to_owned()).collect();
        for row in std::iter::once(&names).chain(&self.rows) {
            let cells: Vec<String> = row
                .iter()
                .zip(&self.head)
                .zip(&widths)
                .map(|((cell, (_, align)), width)| match align {
                    Align::Left => paint(cell, format!("{cell:<width$}")),
                    Align::Right => paint(cell, format!("{cell:>width$}")),
                })
                .collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// Whether to use colour: on a terminal, unless the user wants none.
pub(crate) fn colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&[("TIER", Align::Left), ("FREE", Align::Right), ("WHERE", Align::Left)]);
        table.row(vec!["fäst".into(), "100 GiB".into(), "/a".into()]);
        table.row(vec!["very-slow".into(), "1 B".into(), "/mnt/b".into()]);
        let expected = "\
TIER          FREE  WHERE
fäst       100 GiB  /a
very-slow      1 B  /mnt/b
";
        assert_eq!(table.render(|_, padded| padded), expected);
    }
}
