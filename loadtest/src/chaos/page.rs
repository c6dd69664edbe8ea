//! The report of a chaos run: a page that needs nothing else, JSON, and a few lines for the terminal. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::cancel::Cancel;
use super::history::{Breach, Promise, Turn};
use super::schedule::Kind;
use super::series::{Bucket, Course, Recovery, Summary, buckets, quantile, recoveries, summaries, usual};
use super::svg::{Chart, Line, chart, color, escape, lanes};
use super::{count, real};

/// How many stretches are drawn at most.
const STRETCHES: u64 = 240;

/// What colours mean.
const LEGEND: [(Kind, &str); 8] = [
    (Kind::KillRedis, "killed"),
    (Kind::StopRedis, "stopped"),
    (Kind::MuteRedis, "muted"),
    (Kind::MoveSlots, "moved"),
    (Kind::RollWorker, "rolled"),
    (Kind::CutRedis, "cut off"),
    (Kind::DelayRedis, "delayed"),
    (Kind::HalfOpenRedis, "half open"),
];

const STYLE: &str = "body{font:14px/1.45 system-ui,sans-serif;max-width:1100px;margin:24px auto;padding:0 12px;color:#1c2733}\
h1{font-size:22px}h2{font-size:17px;margin-top:28px}table{border-collapse:collapse;font-size:13px}\
td,th{padding:3px 12px 3px 0;text-align:left;border-bottom:1px solid #e3e8ee;vertical-align:top}td.n,th.n{text-align:right}\
svg{display:block;width:100%;height:auto;margin-top:6px}svg text{font:11px system-ui,sans-serif;fill:#44525f}\
svg .t{font-weight:600;fill:#1c2733}svg .g{stroke:#e3e8ee}.good{color:#1e8449}.bad{color:#c0392b}\
.dot{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px}code{font-size:12px;word-break:break-all}";

/// Everything that is reported.
#[derive(Debug)]
pub struct Report {
    /// Seed, versions, settings.
    pub facts: Vec<(&'static str, String)>,
    /// Counts that are not of turns.
    pub figures: Vec<(&'static str, u64)>,
    /// What happened.
    pub course: Course,
    /// Broken promises.
    pub breaches: Vec<Breach>,
}

fn put(to: &mut String, text: std::fmt::Arguments<'_>) {
    // A String takes everything.
    to.write_fmt(text).ok();
}

fn seconds(ms: u64) -> String {
    format!("{:.1}", real(ms) / 1_000.0)
}

/// When throughput was back.
fn back(summary: &Summary) -> String {
    match summary.open {
        0 => both(summary.back),
        open => format!("{} ({open} not in time)", both(summary.back)),
    }
}

/// Middle and worst, in seconds.
fn both(times: Option<(u64, u64)>) -> String {
    times.map_or_else(
        || "-".to_owned(),
        |(middle, worst)| format!("{} / {}", seconds(middle), seconds(worst)),
    )
}

impl Report {
    fn width(&self) -> u64 {
        self.course.length.div_ceil(STRETCHES).div_ceil(1_000).max(1) * 1_000
    }

    /// Counts of the turns, and what else was counted.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        let turns = &self.course.turns;
        let number = |wanted: &dyn Fn(&Turn) -> bool| count(turns.iter().filter(|turn| wanted(turn)).count());
        let ended = |state: a2a::TaskState| number(&|turn| turn.end.as_ref().is_some_and(|end| end.state == state));
        let mut counts = vec![
            ("turns", count(turns.len())),
            (
                "turns that ended as asked",
                number(&|turn| turn.end.is_some() && !turn.ended_early()),
            ),
            ("turns that ended CANCELED", ended(a2a::TaskState::Canceled)),
            ("at-most-once turns that ended FAILED", ended(a2a::TaskState::Failed)),
            (
                "sends without a key whose answer was lost",
                number(&|turn| turn.unknown),
            ),
            ("cancels", number(&|turn| turn.cancel.is_some())),
            (
                "cancels acknowledged while the turn ran",
                number(&|turn| matches!(turn.cancel, Some(Cancel::Requested(_)))),
            ),
            ("streams that were resumed", number(&|turn| turn.resumes > 0)),
            ("resumes", turns.iter().map(|turn| turn.resumes).sum()),
            (
                "messages sent again with their key",
                turns.iter().map(|turn| turn.resends).sum(),
            ),
            (
                "attempts that were restarted",
                turns.iter().map(|turn| turn.restarts).sum(),
            ),
            ("events", count(self.course.events.len())),
            (
                "errors that clients met and went past",
                count(self.course.troubles.len()),
            ),
            ("faults", count(self.course.strikes.len())),
        ];
        counts.extend(self.figures.iter().copied());
        counts
    }

    fn errors(&self) -> BTreeMap<&str, u64> {
        let mut errors = BTreeMap::new();
        for trouble in &self.course.troubles {
            *errors.entry(trouble.kind.as_str()).or_default() += 1;
        }
        errors
    }

    fn broken(&self, promise: Promise) -> u64 {
        count(self.breaches.iter().filter(|breach| breach.promise == promise).count())
    }

    /// Middle and 99th percentile of the whole run.
    fn latency(&self, of: impl Fn(&Turn) -> Option<u64>) -> Option<(u64, u64)> {
        let mut times: Vec<u64> = self
            .course
            .turns
            .iter()
            .filter_map(|turn| Some(of(turn)?.saturating_sub(turn.sent)))
            .collect();
        times.sort_unstable();
        Some((quantile(&times, 0.5)?, quantile(&times, 0.99)?))
    }

    /// For machines.
    pub fn to_json(&self) -> Value {
        let facts: BTreeMap<_, _> = self.facts.iter().cloned().collect();
        let counts: BTreeMap<_, _> = self.counts().into_iter().collect();
        let violations: BTreeMap<_, _> = Promise::ALL
            .into_iter()
            .map(|promise| (promise.as_str(), self.broken(promise)))
            .collect();
        let details: Vec<String> = self.breaches.iter().map(Breach::to_string).collect();
        let buckets: Vec<Value> = buckets(&self.course, self.width()).iter().map(bucket_json).collect();
        let recoveries: Vec<Value> = recoveries(&self.course).iter().map(recovery_json).collect();
        let summaries: Vec<Value> = summaries(&self::recoveries(&self.course))
            .iter()
            .map(summary_json)
            .collect();
        json!({
            "good": self.breaches.is_empty(),
            "facts": facts,
            "counts": counts,
            "errors": self.errors(),
            "first_event_ms": self.latency(|turn| turn.first),
            "turn_ms": self.latency(|turn| turn.ended),
            "usual_events_per_second": usual(&self.course),
            "violations": violations,
            "violation_details": details,
            "faults": recoveries,
            "recovery_by_kind": summaries,
            "stretch_ms": self.width(),
            "course": buckets,
        })
    }

    /// For the terminal.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (name, number) in self.counts() {
            put(&mut text, format_args!("{number:>8}  {name}\n"));
        }
        put(
            &mut text,
            format_args!("recovery in s (middle / worst): throughput back, longest gap, longest silence of a stream\n"),
        );
        for summary in summaries(&recoveries(&self.course)) {
            put(
                &mut text,
                format_args!(
                    "  {:<17} {:>3} {:>14} {:>14} {:>14}\n",
                    summary.kind.as_str(),
                    summary.faults,
                    back(&summary),
                    both(summary.gap),
                    both(summary.silence)
                ),
            );
        }
        put(&mut text, format_args!("{} violations\n", self.breaches.len()));
        for breach in self.breaches.iter().take(40) {
            put(&mut text, format_args!("  {breach}\n"));
        }
        text
    }

    /// For people.
    pub fn to_html(&self) -> String {
        let mut page = String::new();
        put(
            &mut page,
            format_args!(
                "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Relevo: chaos</title>\n<style>{STYLE}</style>\n<h1>Relevo: chaos run</h1>\n"
            ),
        );
        let verdict = match self.breaches.len() {
            0 => "<p class=\"good\"><b>No promise was broken.</b></p>\n".to_owned(),
            n => format!("<p class=\"bad\"><b>{n} violations.</b></p>\n"),
        };
        page.push_str(&verdict);
        page.push_str("<p>Move over a coloured band to see which fault it is. A figure of a stretch is of the turns that were sent in it.</p>\n");
        self.charts(&mut page);
        self.promises(&mut page);
        self.recovery(&mut page);
        page.push_str("<h2>Figures</h2>\n<table>\n");
        for (name, number) in self.counts() {
            put(&mut page, format_args!("<tr><td>{name}<td class=\"n\">{number}\n"));
        }
        for (name, times) in [
            ("first event, p50 / p99 ms", self.latency(|turn| turn.first)),
            ("turn, p50 / p99 ms", self.latency(|turn| turn.ended)),
        ] {
            let (middle, high) = times.unwrap_or_default();
            put(
                &mut page,
                format_args!("<tr><td>{name}<td class=\"n\">{middle} / {high}\n"),
            );
        }
        for (kind, number) in self.errors() {
            put(
                &mut page,
                format_args!("<tr><td>error <code>{}</code><td class=\"n\">{number}\n", escape(kind)),
            );
        }
        page.push_str("</table>\n<h2>Run</h2>\n<table>\n");
        for (name, value) in &self.facts {
            put(&mut page, format_args!("<tr><td>{name}<td>{}\n", escape(value)));
        }
        page.push_str("</table>\n</html>\n");
        page
    }

    fn charts(&self, page: &mut String) {
        let (length, strikes) = (self.course.length, &self.course.strikes);
        page.push_str("<p>\n");
        for (kind, word) in LEGEND {
            put(
                page,
                format_args!(
                    "<span class=\"dot\" style=\"background:{}\"></span>{word} &nbsp; \n",
                    color(kind)
                ),
            );
        }
        page.push_str("</p>\n");
        page.push_str(&lanes(strikes, length));
        let width = self.width();
        let buckets = buckets(&self.course, width);
        let line = |name, color, of: &dyn Fn(&Bucket) -> Option<f64>| Line {
            name,
            color,
            points: buckets
                .iter()
                .map(|bucket| (bucket.from + width / 2, of(bucket)))
                .collect(),
        };
        let rate = |number: u64| Some(real(number) * 1_000.0 / real(width));
        let charts = [
            Chart {
                title: "per second: turns that ended",
                log: false,
                lines: vec![line("turns", "#1f618d", &|bucket| rate(bucket.turns))],
            },
            Chart {
                title: "per second: events delivered",
                log: false,
                lines: vec![line("events", "#117864", &|bucket| rate(bucket.events))],
            },
            Chart {
                title: "first event, ms",
                log: true,
                lines: vec![
                    line("p50", "#1f618d", &|bucket| bucket.first.map(|(middle, _)| real(middle))),
                    line("p99", "#b03a2e", &|bucket| bucket.first.map(|(_, high)| real(high))),
                ],
            },
            Chart {
                title: "whole turn, ms (what the agent takes included)",
                log: true,
                lines: vec![
                    line("p50", "#1f618d", &|bucket| bucket.turn.map(|(middle, _)| real(middle))),
                    line("p99", "#b03a2e", &|bucket| bucket.turn.map(|(_, high)| real(high))),
                ],
            },
            Chart {
                title: "per second: errors that clients met and went past",
                log: false,
                lines: vec![line("errors", "#b03a2e", &|bucket| rate(bucket.errors))],
            },
        ];
        for one in &charts {
            page.push_str(&chart(one, strikes, length));
        }
    }

    fn promises(&self, page: &mut String) {
        page.push_str("<h2>Promises</h2>\n<table>\n<tr><th>promise<th class=\"n\">violations\n");
        for promise in Promise::ALL {
            let number = self.broken(promise);
            let class = if number == 0 { "good" } else { "bad" };
            put(
                page,
                format_args!("<tr><td>{}<td class=\"n {class}\">{number}\n", promise.text()),
            );
        }
        page.push_str("</table>\n");
        if !self.breaches.is_empty() {
            page.push_str("<h2>Violations</h2>\n<ol>\n");
            for breach in &self.breaches {
                put(page, format_args!("<li><code>{}</code>\n", escape(&breach.to_string())));
            }
            page.push_str("</ol>\n");
        }
    }

    fn recovery(&self, page: &mut String) {
        let recoveries = recoveries(&self.course);
        page.push_str(
            "<h2>Recovery</h2>\n<p>Seconds, middle / worst, of the faults that came alone. Throughput is back when a second has half of \
             the usual events again, counted from the beginning of the fault; 0 when it never fell below. The gap is the longest time \
             without an event on any stream, the silence the longest of one stream that began while the fault lasted; one that comes while the cluster still recovers makes it longer.</p>\n<table>\n\
             <tr><th>fault<th class=\"n\">faults<th class=\"n\">alone<th class=\"n\">throughput back<th class=\"n\">gap<th class=\"n\">silence\n",
        );
        for one in summaries(&recoveries) {
            put(
                page,
                format_args!(
                    "<tr><td><span class=\"dot\" style=\"background:{}\"></span>{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}\n",
                    color(one.kind),
                    one.kind,
                    one.faults,
                    one.alone,
                    back(&one),
                    both(one.gap),
                    both(one.silence)
                ),
            );
        }
        page.push_str("</table>\n<details><summary>Every fault</summary>\n<table>\n<tr><th>from s<th>to s<th>fault<th>victim<th class=\"n\">back<th class=\"n\">gap<th class=\"n\">silence<th class=\"n\">worst second\n");
        for one in &recoveries {
            let back = one.back.map_or_else(|| "not in time".to_owned(), seconds);
            let strike = one.strike;
            let paired = if one.alone { "" } else { " (with another)" };
            put(
                page,
                format_args!(
                    "<tr><td>{}<td>{}<td>{}{paired}<td>{}<td class=\"n\">{back}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{:.0} %\n",
                    seconds(strike.from),
                    seconds(strike.to),
                    strike.fault.kind,
                    strike.fault.victim,
                    seconds(one.gap),
                    seconds(one.silence),
                    one.worst * 100.0
                ),
            );
        }
        page.push_str("</table></details>\n");
    }
}

fn bucket_json(bucket: &Bucket) -> Value {
    json!({
        "from_ms": bucket.from, "turns": bucket.turns, "events": bucket.events, "errors": bucket.errors,
        "first_event_ms": bucket.first, "turn_ms": bucket.turn,
    })
}

fn recovery_json(one: &Recovery) -> Value {
    let strike = one.strike;
    json!({
        "kind": strike.fault.kind.as_str(), "victim": strike.fault.victim.to_string(), "from_ms": strike.from, "to_ms": strike.to,
        "alone": one.alone, "back_ms": one.back, "gap_ms": one.gap, "silence_ms": one.silence, "worst_second": one.worst,
    })
}

fn summary_json(one: &Summary) -> Value {
    json!({
        "kind": one.kind.as_str(), "faults": one.faults, "alone": one.alone, "not_in_time": one.open,
        "back_ms": one.back, "gap_ms": one.gap, "silence_ms": one.silence,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(breaches: Vec<Breach>) -> Report {
        Report {
            facts: vec![("seed", "<7>".to_owned())],
            figures: vec![("tasks listed", 3)],
            course: Course {
                length: 60_000,
                ..Course::default()
            },
            breaches,
        }
    }

    #[test]
    fn a_broken_promise_is_seen_in_every_form() {
        let broken = report(vec![Breach::new(Promise::Cancel, "turn <x>")]);
        assert_eq!(
            (&broken.to_json()["good"], &broken.to_json()["violations"]["cancel"]),
            (&false.into(), &1.into())
        );
        assert!(broken.to_text().contains("1 violations\n  cancel: turn <x>"));
        let html = broken.to_html();
        assert!(html.contains("1 violations") && html.contains("cancel: turn &lt;x&gt;") && html.contains("&lt;7&gt;"));
        let good = report(Vec::new());
        assert_eq!(good.to_json()["good"], true);
        assert!(good.to_html().contains("No promise was broken"));
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let html = report(Vec::new()).to_html();
        assert!(!html.contains("http") && !html.contains("src=") && html.contains("<svg"));
    }
}
