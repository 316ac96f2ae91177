//! The curves of a profile as an SVG picture: bandwidth and latency against the
//! number of threads, a line for each tier. Called when a profile is written.

use super::Direction;
use crate::profile::{Point, Profile};
use plotters::chart::ChartBuilder;
use plotters::coord::combinators::IntoLogRange;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::PathElement;
use plotters::prelude::SVGBackend;
use plotters::series::LineSeries;
use plotters::style::{BLACK, Color, Palette, Palette99, WHITE};
use std::error::Error;

const SIZE: (u32, u32) = (1200, 900);
const FONT: &str = "sans-serif";

/// One of the pictures.
struct Panel {
    title: String,
    unit: &'static str,
    /// A line for each tier: its name, and threads against value.
    lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// Draws the profile.
pub(super) fn draw(profile: &Profile) -> Result<String, String> {
    let mut text = String::new();
    draw_to(profile, &mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

fn draw_to<'a>(profile: &Profile, text: &'a mut String) -> Result<(), Box<dyn Error + 'a>> {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let panels = [
        panel(profile, Direction::Read, "bandwidth", "MB/s", |point| point.bandwidth as f64 / 1e6),
        panel(profile, Direction::Write, "bandwidth", "MB/s", |point| point.bandwidth as f64 / 1e6),
        panel(profile, Direction::Read, "latency", "ms", |point| point.latency_ns as f64 / 1e6),
        panel(profile, Direction::Write, "latency", "ms", |point| point.latency_ns as f64 / 1e6),
    ];
    for (area, panel) in root.split_evenly((2, 2)).iter().zip(&panels) {
        panel.draw(area)?;
    }
    root.present()?;
    Ok(())
}

fn panel(
    profile: &Profile,
    direction: Direction,
    what: &str,
    unit: &'static str,
    value: fn(&Point) -> f64,
) -> Panel {
    let line =
        |points: &[Point]| points.iter().map(|point| (f64::from(point.threads), value(point))).collect();
    let lines = profile.tiers.iter().map(|(name, tier)| {
        let figures = match direction {
            Direction::Read => &tier.read,
            Direction::Write => &tier.write,
        };
        (name.clone(), line(&figures.points))
    });
    Panel { title: format!("{} {what}", direction.name()), unit, lines: lines.collect() }
}

impl Panel {
    fn draw<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    ) -> Result<(), Box<dyn Error + 'a>> {
        let points = || self.lines.iter().flat_map(|(_, line)| line);
        // One number of threads would make an axis without length.
        let right = points().map(|(threads, _)| *threads).fold(2.0, f64::max);
        let top = points().map(|(_, value)| *value).fold(0.001, f64::max) * 1.1;
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 20))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d((1.0..right).log_scale().base(2.0), 0.0..top)?;
        chart
            .configure_mesh()
            .x_desc("threads")
            .y_desc(self.unit)
            .x_label_formatter(&|threads| format!("{threads:.0}"))
            .draw()?;
        for (number, (name, line)) in self.lines.iter().enumerate() {
            let style = Palette99::pick(number).stroke_width(2);
            let shown = chart.draw_series(LineSeries::new(line.iter().copied(), style).point_size(3))?;
            shown.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Figures, TierFigures, VERSION};

    #[test]
    fn every_tier_has_its_line_and_a_single_point_can_be_drawn() {
        for counts in [&[1, 2, 4, 32][..], &[1]] {
            let point =
                |threads: &u32| Point { threads: *threads, bandwidth: 400_000_000, latency_ns: 90_000 };
            let points = counts.iter().map(point).collect();
            let read = Figures { bandwidth: 1, latency_ns: 1, threads: 1, degrades_at: None, points };
            let write = Figures { points: Vec::new(), ..read.clone() };
            let tier = TierFigures { read, write };
            let tiers = [("fast".to_owned(), tier.clone()), ("slow".to_owned(), tier)];
            let text = draw(&Profile { version: VERSION, tiers: tiers.into() }).unwrap();
            assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"), "{text}");
            for word in ["fast", "slow", "read bandwidth", "write latency", "MB/s", "threads"] {
                assert!(text.contains(word), "{word}: {text}");
            }
        }
    }
}
