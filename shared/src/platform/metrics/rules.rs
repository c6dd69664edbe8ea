//! The rules for names, help texts and labels.

use super::MetricInfo;

/// Every label there may be. Each stands for a small closed set; none may ever be an id, a tenant or an address.
pub const LABELS: [&str; 14] = [
    "agent",
    "component",
    "error",
    "instance",
    "kind",
    "method",
    "operation",
    "outcome",
    "pool",
    "reason",
    "script",
    "state",
    "storage",
    "version",
];

const COMPONENTS: [&str; 8] = [
    "build", "cluster", "egress", "gateway", "janitor", "process", "store", "worker",
];

/// Names that a convention outside of ours fixes.
const FOREIGN_PREFIX: &str = "process_";

/// What a histogram measures in.
const HISTOGRAM_UNITS: [&str; 4] = ["_seconds", "_bytes", "_events", "_turns"];

/// What breaks a rule, each with the name; empty when all is well.
///
/// A name is `relevo_<component>_<noun>_<unit>` in base units; counters, and only they, end in `_total`; the help text
/// is a sentence; labels are of [`LABELS`]; a histogram has buckets and ends in its unit.
pub fn mistakes(metrics: &[MetricInfo]) -> Vec<String> {
    metrics.iter().flat_map(mistakes_of).collect()
}

fn mistakes_of(info: &MetricInfo) -> Vec<String> {
    let help = info.help();
    let histogram = info.kind == "histogram";
    let rules = [
        (has_component(info.name), "is not named relevo_<component>_<noun>"),
        (is_snake_case(info.name), "is not of lower-case words with single _"),
        (
            (info.kind == "counter") == info.name.ends_with("_total"),
            "counters, and only they, end in _total",
        ),
        (
            !["_ms", "_millis", "_milliseconds", "_kib", "_kb", "_mb"]
                .iter()
                .any(|unit| info.name.contains(unit)),
            "is not in base units (seconds, bytes)",
        ),
        (
            help.ends_with('.') && help.starts_with(|first: char| first.is_uppercase()),
            "has no sentence as help text",
        ),
        (
            info.labels.iter().all(|label| LABELS.contains(label)),
            "has a label that is not allowed",
        ),
        (
            info.labelled != info.labels.is_empty(),
            "has labels but no type for them, or the other way round",
        ),
        (
            histogram != info.buckets.is_empty(),
            "has no buckets, or buckets without being a histogram",
        ),
        (
            !histogram || HISTOGRAM_UNITS.iter().any(|unit| info.name.ends_with(unit)),
            "does not end in its unit",
        ),
    ];
    let broken = rules.into_iter().filter(|(holds, _)| !holds);
    broken.map(|(_, mistake)| format!("{}: {mistake}", info.name)).collect()
}

fn has_component(name: &str) -> bool {
    if name.starts_with(FOREIGN_PREFIX) {
        return true;
    }
    let component = name.strip_prefix("relevo_").and_then(|rest| rest.split_once('_'));
    component.is_some_and(|(component, noun)| COMPONENTS.contains(&component) && !noun.is_empty())
}

fn is_snake_case(name: &str) -> bool {
    let word = |word: &str| !word.is_empty() && word.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.split('_').all(word)
}

#[cfg(test)]
mod tests {
    use super::super::{FAST, ProcessMetrics};
    use super::*;

    const GOOD: MetricInfo = MetricInfo {
        name: "relevo_gateway_requests_total",
        kind: "counter",
        labelled: true,
        labels: &["method"],
        buckets: &[],
        doc: " Requests answered.\n",
    };
    const GOOD_HISTOGRAM: MetricInfo = MetricInfo {
        name: "relevo_store_script_seconds",
        kind: "histogram",
        labelled: true,
        labels: &["script", "outcome"],
        buckets: FAST,
        doc: " Seconds a script took.\n",
    };

    #[test]
    fn a_metric_by_the_rules_has_no_mistake() {
        assert_eq!(mistakes(&[GOOD, GOOD_HISTOGRAM]), Vec::<String>::new());
        assert_eq!(mistakes(ProcessMetrics::METRICS), Vec::<String>::new());
    }

    #[test]
    fn each_rule_finds_its_mistake() {
        let wrong = [
            MetricInfo {
                name: "gateway_requests_total",
                ..GOOD
            },
            MetricInfo {
                name: "relevo_cache_requests_total",
                ..GOOD
            },
            MetricInfo {
                name: "relevo_gateway__requests_total",
                ..GOOD
            },
            MetricInfo {
                name: "relevo_gateway_requests",
                ..GOOD
            },
            MetricInfo { kind: "gauge", ..GOOD },
            MetricInfo {
                name: "relevo_gateway_wait_ms_total",
                ..GOOD
            },
            MetricInfo {
                doc: " Requests answered\n",
                ..GOOD
            },
            MetricInfo { doc: "\n", ..GOOD },
            MetricInfo {
                labels: &["task"],
                ..GOOD
            },
            MetricInfo { labels: &[], ..GOOD },
            MetricInfo { buckets: FAST, ..GOOD },
            MetricInfo {
                buckets: &[],
                ..GOOD_HISTOGRAM
            },
            MetricInfo {
                name: "relevo_store_script_duration",
                ..GOOD_HISTOGRAM
            },
        ];
        for info in wrong {
            assert_eq!(mistakes(&[info]).len(), 1, "{info:?}: {:?}", mistakes(&[info]));
        }
    }
}
