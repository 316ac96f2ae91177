//! The metrics of modules: all their figures, each under its own name.

use braid_contract::{Distribution, Figure, FigureValue};
use braid_ipc::protocol::Status;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use std::collections::BTreeMap;
use std::fmt;

/// The labels of a sample.
type Labels = Vec<(String, String)>;

/// Writes the figures of all modules of a volume.
pub(super) fn encode(volume: &Status, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut families: BTreeMap<&str, Vec<(Labels, &Figure)>> = BTreeMap::new();
    for module in &volume.modules {
        for figure in &module.figures {
            let mut labels: Labels = vec![
                ("volume".to_owned(), volume.volume.clone()),
                ("module".to_owned(), module.module.clone()),
                ("place".to_owned(), module.place.to_string()),
            ];
            labels.extend(figure.labels.iter().map(|(key, value)| (key.clone(), value.clone())));
            families.entry(&figure.name).or_default().push((labels, figure));
        }
    }
    for (name, samples) in families {
        let Some((_, first)) = samples.first() else { continue };
        let kind = match &first.value {
            FigureValue::Counter(_) => MetricType::Counter,
            FigureValue::Gauge(_) => MetricType::Gauge,
            FigureValue::Histogram(_) => MetricType::Histogram,
        };
        let name = format!("braid_module_{name}");
        let mut family = encoder.encode_descriptor(&name, &first.help, None, kind)?;
        for (labels, figure) in &samples {
            let mut sample = family.encode_family(labels)?;
            match &figure.value {
                FigureValue::Counter(value) => sample.encode_counter::<Labels, _, f64>(value, None)?,
                FigureValue::Gauge(value) => sample.encode_gauge(value)?,
                FigureValue::Histogram(distribution) => encode_distribution(&mut sample, distribution)?,
            }
        }
    }
    Ok(())
}

fn encode_distribution(sample: &mut MetricEncoder<'_>, distribution: &Distribution) -> fmt::Result {
    let bound = |(bound, count): &(Option<f64>, u64)| (bound.unwrap_or(f64::INFINITY), *count);
    let buckets: Vec<(f64, u64)> = distribution.buckets.iter().map(bound).collect();
    sample.encode_histogram::<Labels>(distribution.sum, distribution.count(), &buckets, None)
}
