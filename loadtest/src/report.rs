//! Figures as a table for people and as JSON for machines.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::recorder::Tally;
use crate::settings::Settings;
use crate::verify::Kind;

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];

/// What a run led to.
#[derive(Debug)]
pub struct Report {
    mode: &'static str,
    contexts: u32,
    rate: Option<f64>,
    verify: bool,
    elapsed: Duration,
    tally: Tally,
}

impl Report {
    /// The report of a run that took `elapsed`.
    pub fn new(settings: &Settings, elapsed: Duration, tally: Tally) -> Self {
        Self {
            mode: settings.mode.as_str(),
            contexts: settings.contexts,
            rate: settings.rate,
            verify: settings.verify,
            elapsed,
            tally,
        }
    }

    /// What was counted.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Whether nothing was wrong. Refusals with a time to come back are the cluster's right; anything else that failed is
    /// an error when every turn is to be verified.
    pub fn is_good(&self) -> bool {
        let tally = &self.tally;
        tally.violations.is_empty() && tally.turns > 0 && (!self.verify || tally.failed == 0)
    }

    fn per_second(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count of turns is far below 2^52")]
        let turns = self.tally.turns as f64;
        turns / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// For machines.
    pub fn to_json(&self) -> Value {
        let tally = &self.tally;
        let violations: Map<String, Value> = Kind::ALL
            .iter()
            .map(|kind| (kind.as_str().to_owned(), self.violations(*kind).into()))
            .collect();
        json!({
            "mode": self.mode,
            "contexts": self.contexts,
            "rate": self.rate,
            "seconds": self.elapsed.as_secs_f64(),
            "turns": tally.turns,
            "turns_per_second": self.per_second(),
            "first_event_ms": quantiles(&tally.first_event),
            "turn_ms": quantiles(&tally.turn),
            "refused": tally.refused,
            "failed": tally.failed,
            "errors": tally.errors,
            "resumes": tally.resumes,
            "boundaries": tally.boundaries,
            "verified": tally.verified,
            "violations": violations,
            "examples": tally.examples,
            "good": self.is_good(),
        })
    }

    fn violations(&self, kind: Kind) -> u64 {
        self.tally.violations.get(&kind).copied().unwrap_or(0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = &self.tally;
        let pace = self
            .rate
            .map_or_else(|| "closed loop".to_owned(), |rate| format!("{rate} turns/s asked for"));
        writeln!(
            f,
            "{} mode, {} contexts, {pace}, {:.1} s",
            self.mode,
            self.contexts,
            self.elapsed.as_secs_f64()
        )?;
        writeln!(f, "  {} turns, {:.1} per second", tally.turns, self.per_second())?;
        writeln!(
            f,
            "  {:<12}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "ms", "p50", "p90", "p99", "p99.9", "max"
        )?;
        for (name, histogram) in [("first event", &tally.first_event), ("turn", &tally.turn)] {
            if histogram.is_empty() {
                continue;
            }
            write!(f, "  {name:<12}")?;
            for (_, quantile) in QUANTILES {
                write!(f, "{:>10.2}", millis(histogram.value_at_quantile(quantile)))?;
            }
            writeln!(f, "{:>10.2}", millis(histogram.max()))?;
        }
        writeln!(
            f,
            "  resumed {}, attempts made void {}",
            tally.resumes, tally.boundaries
        )?;
        if tally.errors.is_empty() {
            writeln!(f, "  errors: none")?;
        }
        for (kind, count) in &tally.errors {
            writeln!(f, "  errors: {kind} {count}")?;
        }
        if self.verify {
            let found: Vec<String> = Kind::ALL
                .iter()
                .map(|kind| format!("{} {}", kind.as_str(), self.violations(*kind)))
                .collect();
            writeln!(f, "  verified {}: {}", tally.verified, found.join(", "))?;
        }
        for example in &tally.examples {
            writeln!(f, "    {example}")?;
        }
        Ok(())
    }
}

fn quantiles(histogram: &Histogram<u64>) -> Value {
    if histogram.is_empty() {
        return Value::Null;
    }
    let mut figures: Map<String, Value> = QUANTILES
        .iter()
        .map(|(name, quantile)| {
            (
                (*name).to_owned(),
                millis(histogram.value_at_quantile(*quantile)).into(),
            )
        })
        .collect();
    figures.insert("max".to_owned(), millis(histogram.max()).into());
    figures.insert("mean".to_owned(), (histogram.mean() / 1_000.0).into());
    Value::Object(figures)
}

fn millis(micros: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a latency is far below 2^52 microseconds")]
    let micros = micros as f64;
    micros / 1_000.0
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::recorder::Recorder;
    use crate::turn::{Done, Failure};
    use crate::verify::Violation;

    fn report(args: &[&str], fill: impl FnOnce(&Recorder)) -> Report {
        let all = ["relevo-loadtest", "--url", "http://h"].iter().chain(args);
        let recorder = Recorder::default();
        fill(&recorder);
        Report::new(&Settings::parse_from(all), Duration::from_secs(2), recorder.take())
    }

    fn done(ms: u64) -> Done {
        Done {
            took: Duration::from_millis(ms),
            first_event: Some(Duration::from_millis(1)),
            ..Done::default()
        }
    }

    fn failure(refused: bool) -> Failure {
        Failure {
            kind: "k".to_owned(),
            detail: "d".to_owned(),
            refused,
            resumes: 0,
        }
    }

    #[test]
    fn figures_are_told_in_both_forms() {
        let report = report(&["--verify"], |recorder| {
            (1..=100).for_each(|ms| recorder.done(&done(ms)));
            recorder.verified(&[Violation {
                kind: Kind::Lost,
                detail: "number 3".to_owned(),
            }]);
        });
        let json = report.to_json();
        assert_eq!(
            (json["turns"].as_u64(), json["turns_per_second"].as_f64()),
            (Some(100), Some(50.0))
        );
        let p90 = json["turn_ms"]["p90"].as_f64().unwrap();
        assert!((89.0..=91.0).contains(&p90), "{p90}");
        assert_eq!(json["violations"]["lost"], 1);
        let text = report.to_string();
        assert!(
            text.contains("lost 1") && text.contains("lost: number 3") && text.contains("first event"),
            "{text}"
        );
        assert!(!report.is_good());
    }

    #[test]
    fn a_refusal_is_no_failure_and_a_failure_counts_when_all_is_verified() {
        let good = |args: &[&str], refused| {
            report(args, |recorder| {
                recorder.done(&done(1));
                recorder.failed(&failure(refused));
            })
            .is_good()
        };
        assert!(good(&["--verify"], true));
        assert!(!good(&["--verify"], false));
        assert!(good(&[], false));
        assert!(!report(&[], |_| {}).is_good());
    }
}
