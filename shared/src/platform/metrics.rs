//! Metrics: declared once, registered into a registry that is passed in.
//!
//! Owns the `metrics!` declaration, the sets of histogram buckets, what every process measures about itself, the text
//! format and the generated table of docs/observability.md. It refuses statics: two gateways in one test process count
//! apart. Which metrics exist is declared by `gateway/src/metrics.rs`, `worker/src/metrics.rs` and `store::metrics`.

mod process;
mod reference;
mod rules;

use prometheus::core::Collector;
use prometheus::{HistogramOpts, Opts, TextEncoder};

pub use process::ProcessMetrics;
pub use prometheus::Registry;
pub use reference::metrics_table;
pub use rules::{LABELS, mistakes};

/// A count that only grows.
pub type Counter = prometheus::IntCounter;
/// Counts by label.
pub type CounterVec = prometheus::IntCounterVec;
/// A growing amount that is not whole.
pub type FloatCounter = prometheus::Counter;
/// A number that goes up and down.
pub type Gauge = prometheus::IntGauge;
/// Numbers by label.
pub type GaugeVec = prometheus::IntGaugeVec;
/// An amount that is not whole and goes up and down.
pub type FloatGauge = prometheus::Gauge;
/// Amounts by label.
pub type FloatGaugeVec = prometheus::GaugeVec;
/// A distribution.
pub type Histogram = prometheus::Histogram;
/// Distributions by label.
pub type HistogramVec = prometheus::HistogramVec;

/// Buckets in seconds for a round trip to Redis: most are under a millisecond, and one of a second is an outage.
pub const FAST: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0,
];
/// Buckets in seconds for a request: from what Redis needs to where clients give up.
pub const HTTP: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
/// Buckets in seconds for a turn: an agent answers in a tenth of a second or works for an hour.
pub const RUN: &[f64] = &[
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
];

/// One declared metric.
#[derive(Clone, Copy, Debug)]
pub struct MetricInfo {
    /// Its full name.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Whether its type takes labels.
    pub labelled: bool,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// The buckets of a histogram.
    pub buckets: &'static [f64],
    /// Its doc comment, raw.
    pub doc: &'static str,
}

impl MetricInfo {
    /// The doc comment as one paragraph: the help text.
    pub fn help(&self) -> String {
        self.doc
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// A metric that cannot be made or registered: a mistake in its declaration, or registered twice.
#[derive(Debug, thiserror::Error)]
#[error("cannot register the metric {name}")]
pub struct MetricsError {
    /// Its name.
    pub name: &'static str,
    /// Why.
    pub source: prometheus::Error,
}

/// A type a declared metric can have.
pub trait Metric: Collector + Clone + 'static {
    /// `counter`, `gauge` or `histogram`.
    const KIND: &'static str;
    /// Whether it takes labels.
    const LABELLED: bool;

    /// Makes it.
    ///
    /// # Errors
    /// When the name or a label is not well-formed.
    fn create(info: &MetricInfo) -> prometheus::Result<Self>;
}

macro_rules! metric_types {
    ($($type:ty, $kind:literal, $labelled:literal, |$info:ident| $create:expr;)+) => {$(
        impl Metric for $type {
            const KIND: &'static str = $kind;
            const LABELLED: bool = $labelled;

            fn create($info: &MetricInfo) -> prometheus::Result<Self> {
                $create
            }
        }
    )+};
}

metric_types! {
    Counter, "counter", false, |info| Self::with_opts(opts(info));
    CounterVec, "counter", true, |info| Self::new(opts(info), info.labels);
    FloatCounter, "counter", false, |info| Self::with_opts(opts(info));
    Gauge, "gauge", false, |info| Self::with_opts(opts(info));
    GaugeVec, "gauge", true, |info| Self::new(opts(info), info.labels);
    FloatGauge, "gauge", false, |info| Self::with_opts(opts(info));
    FloatGaugeVec, "gauge", true, |info| Self::new(opts(info), info.labels);
    Histogram, "histogram", false, |info| Self::with_opts(histogram_opts(info));
    HistogramVec, "histogram", true, |info| Self::new(histogram_opts(info), info.labels);
}

fn opts(info: &MetricInfo) -> Opts {
    Opts::new(info.name, info.help())
}

fn histogram_opts(info: &MetricInfo) -> HistogramOpts {
    HistogramOpts::new(info.name, info.help()).buckets(info.buckets.to_vec())
}

/// Makes a declared metric and registers it.
///
/// # Errors
/// When it is not well-formed or registered already.
pub fn register<M: Metric>(info: &MetricInfo, registry: &Registry) -> Result<M, MetricsError> {
    let failed = |source| MetricsError {
        name: info.name,
        source,
    };
    let metric = M::create(info).map_err(failed)?;
    registry.register(Box::new(metric.clone())).map_err(failed)?;
    Ok(metric)
}

/// The text format of what several registries hold; families of one name are one.
///
/// # Errors
/// When a family is empty or its name is not well-formed.
pub fn encode(registries: &[Registry]) -> prometheus::Result<String> {
    let mut families: Vec<prometheus::proto::MetricFamily> = Vec::new();
    for family in registries.iter().flat_map(Registry::gather) {
        match families.iter_mut().find(|known| known.name() == family.name()) {
            Some(known) => known.mut_metric().extend(family.get_metric().iter().cloned()),
            None => families.push(family),
        }
    }
    families.sort_by(|left, right| left.name().cmp(right.name()));
    TextEncoder::new().encode_to_string(&families)
}

/// Declares the metrics of one component.
///
/// The doc comment of a field is its help text. Labels come in brackets and must be of [`LABELS`]; a histogram names
/// its buckets after `in`. Where the struct is declared, a test calls [`mistakes`] on its `METRICS`.
///
/// ```
/// use relevo_shared::platform::metrics::{HTTP, Registry, mistakes};
///
/// relevo_shared::metrics! {
///     /// What a gateway counts.
///     pub struct GatewayMetrics {
///         /// Requests answered.
///         requests: CounterVec = "relevo_gateway_requests_total" ["method", "outcome"],
///         /// Seconds from the request to the end of the answer.
///         duration: HistogramVec = "relevo_gateway_request_duration_seconds" ["method"] in HTTP,
///         /// Streams open now.
///         streams: Gauge = "relevo_gateway_streams_open",
///     }
/// }
///
/// assert_eq!(mistakes(GatewayMetrics::METRICS), Vec::<String>::new());
/// let metrics = GatewayMetrics::register(&Registry::new())?;
/// metrics.requests.with_label_values(&["SendMessage", "ok"]).inc();
/// # Ok::<(), relevo_shared::platform::metrics::MetricsError>(())
/// ```
#[macro_export]
macro_rules! metrics {
    (
        $(#[doc = $struct_doc:literal])+
        $visibility:vis struct $struct:ident {
            $(
                $(#[doc = $doc:literal])+
                $field:ident : $type:ident = $name:literal $([$($label:literal),+ $(,)?])? $(in $buckets:expr)?
            ),+ $(,)?
        }
    ) => {
        $(#[doc = $struct_doc])+
        #[derive(Clone, Debug)]
        $visibility struct $struct {
            $(
                $(#[doc = $doc])+
                $visibility $field: $crate::platform::metrics::$type,
            )+
        }

        impl $struct {
            /// The declarations, for the naming test and the generated table.
            $visibility const METRICS: &'static [$crate::platform::metrics::MetricInfo] = &[
                $($crate::platform::metrics::MetricInfo {
                    name: $name,
                    kind: <$crate::platform::metrics::$type as $crate::platform::metrics::Metric>::KIND,
                    labelled: <$crate::platform::metrics::$type as $crate::platform::metrics::Metric>::LABELLED,
                    labels: &[$($($label),+)?],
                    buckets: $crate::metrics!(@buckets $($buckets)?),
                    doc: concat!($($doc, "\n"),+),
                },)+
            ];

            /// Makes the metrics and registers them.
            ///
            /// # Errors
            /// When one is registered already.
            $visibility fn register(
                registry: &$crate::platform::metrics::Registry,
            ) -> ::core::result::Result<Self, $crate::platform::metrics::MetricsError> {
                let mut declared = Self::METRICS.iter();
                ::core::result::Result::Ok(Self {
                    $($field: $crate::platform::metrics::register_next(&mut declared, registry)?,)+
                })
            }
        }
    };
    (@buckets) => { &[] };
    (@buckets $buckets:expr) => { $buckets };
}

/// Registers the next of a list of declarations; the generated code's way through its own list.
#[doc(hidden)]
#[expect(clippy::expect_used, reason = "`metrics!` calls it once per declaration")]
pub fn register_next<M: Metric>(
    declared: &mut std::slice::Iter<'_, MetricInfo>,
    registry: &Registry,
) -> Result<M, MetricsError> {
    register(declared.next().expect("as many fields as declarations"), registry)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    crate::metrics! {
        /// Examples.
        struct Examples {
            /// Things done.
            done: CounterVec = "relevo_worker_things_total" ["outcome"],
            /// Seconds a thing
            /// took.
            seconds: Histogram = "relevo_worker_thing_seconds" in FAST,
            /// Share of a thing.
            share: FloatGauge = "relevo_worker_thing_share",
        }
    }

    #[test]
    fn declared_metrics_are_in_the_text_with_their_help() {
        let registry = Registry::new();
        let metrics = Examples::register(&registry).unwrap();
        metrics.done.with_label_values(&["ok"]).inc();
        metrics.seconds.observe(0.0002);
        metrics.share.set(0.5);
        let text = encode(&[registry]).unwrap();
        for line in [
            "# HELP relevo_worker_thing_seconds Seconds a thing took.",
            "# TYPE relevo_worker_thing_seconds histogram",
            "relevo_worker_thing_seconds_bucket{le=\"0.00025\"} 1",
            "relevo_worker_things_total{outcome=\"ok\"} 1",
            "relevo_worker_thing_share 0.5",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
        }
    }

    #[test]
    fn a_metric_is_registered_once() {
        let registry = Registry::new();
        Examples::register(&registry).unwrap();
        let error = Examples::register(&registry).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot register the metric relevo_worker_things_total"
        );
    }

    #[test]
    fn families_of_several_registries_are_joined() {
        let registry = |instance: &str| {
            let label = HashMap::from([("instance".to_owned(), instance.to_owned())]);
            let registry = Registry::new_custom(None, Some(label)).unwrap();
            Examples::register(&registry)
                .unwrap()
                .done
                .with_label_values(&["ok"])
                .inc();
            registry
        };
        let text = encode(&[registry("a"), registry("b")]).unwrap();
        assert_eq!(
            text.matches("# TYPE relevo_worker_things_total counter").count(),
            1,
            "{text}"
        );
        assert!(
            text.contains("relevo_worker_things_total{outcome=\"ok\",instance=\"a\"} 1"),
            "{text}"
        );
        assert!(
            text.contains("relevo_worker_things_total{outcome=\"ok\",instance=\"b\"} 1"),
            "{text}"
        );
    }

    #[test]
    fn buckets_grow() {
        for set in [FAST, HTTP, RUN] {
            assert!(set.is_sorted_by(|left, right| left < right));
        }
    }
}
