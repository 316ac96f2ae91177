//! Tables of `braid top`.

use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Cell, Row, Table};

/// Width from which on nothing is shortened.
pub(super) const WIDE: u16 = 110;

/// Number of rows with room below a section's head.
pub(super) fn rows_in(area: Rect, blank: bool) -> usize {
    usize::from(area.height.saturating_sub(1 + u16::from(blank)))
}

/// A table with a head; columns have names and widths.
pub(super) fn table(rows: Vec<Row<'static>>, columns: &[(&'static str, u16)]) -> Table<'static> {
    let head = columns.iter().map(|(name, _)| Cell::from(*name));
    let head = Row::new(head.collect::<Vec<_>>()).style(Style::new().add_modifier(Modifier::DIM));
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
    Table::new(rows, widths.collect::<Vec<_>>()).header(head).column_spacing(1)
}

/// The beginning of a text, as much as fits.
pub(super) fn fit(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}
