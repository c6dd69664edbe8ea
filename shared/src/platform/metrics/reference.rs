//! The table of docs/observability.md.

use std::fmt::Write as _;

use super::MetricInfo;

/// Metrics as a Markdown table, one row each in the order declared.
pub fn metrics_table(metrics: &[MetricInfo]) -> String {
    let mut text = String::from("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n");
    for info in metrics {
        let labels = info
            .labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect::<Vec<_>>()
            .join(", ");
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {labels} | {} |",
            info.name,
            info.kind,
            info.help().replace('|', "\\|")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::ProcessMetrics;
    use super::*;

    #[test]
    fn each_metric_has_a_row() {
        let table = metrics_table(ProcessMetrics::METRICS);
        assert_eq!(table.lines().count(), ProcessMetrics::METRICS.len() + 2);
        assert!(
            table.contains("| `relevo_build_info` | gauge | `component`, `version` |"),
            "{table}"
        );
    }
}
