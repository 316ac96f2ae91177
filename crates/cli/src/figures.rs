//! The modules' counters, as lines of `braid status`.

use braid_contract::units::{show_latency, show_size};
use braid_contract::{AfterCrash, Figure, FigureValue, ModuleStatus};
use std::fmt::Write as _;

/// A line for each module that counted anything, and for each set of labels.
pub(crate) fn render(modules: &[ModuleStatus]) -> String {
    let mut text = String::new();
    for module in modules {
        let told = module.figures.iter().filter(|figure| !is_nothing(&figure.value));
        let mut lines: Vec<(String, Vec<String>)> = Vec::new();
        for figure in told {
            let labels: String = figure.labels.values().map(|value| format!(", {value}")).collect();
            match lines.iter_mut().find(|(of, _)| *of == labels) {
                Some((_, shown)) => shown.push(show(figure)),
                None => lines.push((labels, vec![show(figure)])),
            }
        }
        text.push_str(&after_crash(module));
        for (labels, shown) in lines {
            // Writing to a string does not fail.
            _ = writeln!(text, "module {} {}{labels}: {}", module.place, module.module, shown.join(", "));
        }
    }
    text
}

/// How a module went on after the last crash; nothing if it had nothing to go on with.
fn after_crash(module: &ModuleStatus) -> String {
    let Some(AfterCrash { state_age_seconds, error }) = &module.after_crash else { return String::new() };
    let age = state_age_seconds.map(|seconds| show_latency((seconds * 1e9) as u64));
    let with = age.map(|age| format!("after the crash, it went on with its state of {age} before"));
    let failed = error.as_ref().map(|error| format!("after the crash: {error}"));
    let lines = with.into_iter().chain(failed);
    lines.map(|line| format!("module {} {}: {line}\n", module.place, module.module)).collect()
}

fn is_nothing(value: &FigureValue) -> bool {
    match value {
        FigureValue::Counter(value) | FigureValue::Gauge(value) => *value == 0.0,
        FigureValue::Histogram(distribution) => distribution.count() == 0,
    }
}

fn show(figure: &Figure) -> String {
    let named = |unit: &str| figure.name.trim_end_matches(unit).trim_end_matches('_').replace('_', " ");
    let in_unit = |value: f64| match figure.name.rsplit('_').next() {
        Some("bytes") => (named("bytes"), show_size(value as u64)),
        Some("seconds") => (named("seconds"), show_latency((value * 1e9) as u64)),
        _ => (named(""), format!("{value}")),
    };
    match &figure.value {
        FigureValue::Counter(value) | FigureValue::Gauge(value) => {
            let (name, value) = in_unit(*value);
            format!("{name} {value}")
        }
        FigureValue::Histogram(distribution) => {
            let count = distribution.count();
            let (name, mean) = in_unit(distribution.sum / count as f64);
            format!("{name} {count} times, {mean} on average")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_contract::{AfterCrash, Distribution};

    #[test]
    fn what_was_counted_is_shown_in_its_unit() {
        let latency = Distribution { sum: 0.004, buckets: vec![(Some(0.001), 1), (None, 1)] };
        let figures = vec![
            Figure::counter("refused", "", 3),
            Figure::counter("waits", "", 0),
            Figure::counter("data_bytes", "", 2048),
            Figure::seconds("wait_seconds", "", 1_500_000),
            Figure::new("latency_seconds", "", FigureValue::Histogram(latency)).with("operation", "read"),
        ];
        let went_on = |place, state_age_seconds, error: Option<&str>| ModuleStatus {
            after_crash: Some(AfterCrash { state_age_seconds, error: error.map(str::to_owned) }),
            ..ModuleStatus::new("keep", place, Vec::new())
        };
        let modules = [
            ModuleStatus::new("deny", 1, figures),
            ModuleStatus::new("noop", 2, Vec::new()),
            went_on(3, Some(0.0123), None),
            went_on(4, None, Some("it begins anew")),
            went_on(5, None, None),
        ];
        assert_eq!(
            render(&modules),
            "module 1 deny: refused 3, data 2.00 KiB, wait 1.5 ms\n\
             module 1 deny, read: latency 2 times, 2.0 ms on average\n\
             module 3 keep: after the crash, it went on with its state of 12 ms before\n\
             module 4 keep: after the crash: it begins anew\n"
        );
    }
}
