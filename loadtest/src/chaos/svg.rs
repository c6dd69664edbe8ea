//! Charts as SVG text: one time axis for all of them, faults as bands. Pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::schedule::{Kind, Victim};
use super::series::Strike;
use super::{count, real};

const WIDTH: f64 = 1_080.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = 20.0;
const HEIGHT: f64 = 130.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 20.0;
const ROW: f64 = 16.0;

/// A line of a chart.
#[derive(Debug, Clone)]
pub struct Line {
    /// In the legend.
    pub name: &'static str,
    /// A CSS colour.
    pub color: &'static str,
    /// Milliseconds of the run and values; without a value the line is broken.
    pub points: Vec<(u64, Option<f64>)>,
}

/// A chart over the time of the run.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Above it.
    pub title: &'static str,
    /// Whether values are spread by their magnitude.
    pub log: bool,
    /// What is drawn.
    pub lines: Vec<Line>,
}

/// The colour of a kind of fault: kinds that do the same to different victims share it.
pub fn color(kind: Kind) -> &'static str {
    match kind {
        Kind::KillGateway | Kind::KillWorker | Kind::KillRedis => "#c0392b",
        Kind::StopGateway | Kind::StopWorker | Kind::StopRedis => "#e67e22",
        Kind::MuteRedis => "#f1c40f",
        Kind::MoveSlots => "#16a085",
        Kind::RollGateway | Kind::RollWorker => "#27ae60",
        Kind::CutRedis | Kind::CutClient => "#8e44ad",
        Kind::DelayRedis | Kind::DelayClient => "#2980b9",
        Kind::HalfOpenRedis | Kind::HalfOpenClient => "#5d6d7e",
    }
}

/// Text as it may stand in HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

fn put(to: &mut String, text: std::fmt::Arguments<'_>) {
    // A String takes everything.
    to.write_fmt(text).ok();
}

struct Axis(f64);

impl Axis {
    fn new(length: u64) -> Self {
        Self(real(length.max(1)))
    }

    fn x(&self, at: u64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (real(at) / self.0).min(1.0)
    }

    fn band(&self, strike: &Strike) -> (f64, f64) {
        let from = self.x(strike.from);
        (from, (self.x(strike.to) - from).max(1.5))
    }

    /// Marks of time that leave room for their labels.
    fn ticks(&self) -> Vec<u64> {
        let steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 14_400];
        let step = steps
            .into_iter()
            .find(|step| self.0 / 1_000.0 / real(*step) <= 16.0)
            .unwrap_or(14_400);
        (0..=16)
            .map(|number: u64| number * step * 1_000)
            .filter(|at| real(*at) <= self.0)
            .collect()
    }
}

fn tell(strike: &Strike) -> String {
    let fault = strike.fault;
    let late = if fault.late.is_zero() {
        String::new()
    } else {
        format!(", {:?} late", fault.late)
    };
    let seconds = |ms: u64| real(ms) / 1_000.0;
    format!(
        "{} of {}, {:.1} to {:.1} s{late}",
        fault.kind,
        fault.victim,
        seconds(strike.from),
        seconds(strike.to)
    )
}

fn open(svg: &mut String, height: f64) {
    put(
        svg,
        format_args!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n"),
    );
}

/// Who was hurt when: a row per victim.
pub fn lanes(strikes: &[Strike], length: u64) -> String {
    let axis = Axis::new(length);
    let victims: BTreeSet<Victim> = strikes.iter().map(|strike| strike.fault.victim).collect();
    let height = TOP + ROW * real(count(victims.len())) + BOTTOM;
    let mut svg = String::new();
    open(&mut svg, height);
    put(
        &mut svg,
        format_args!("<text x=\"{LEFT}\" y=\"14\" class=\"t\">faults</text>\n"),
    );
    let mut y = TOP;
    for victim in victims {
        let middle = y + ROW - 4.0;
        put(
            &mut svg,
            format_args!(
                "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{victim}</text>\n",
                LEFT - 6.0
            ),
        );
        put(
            &mut svg,
            format_args!(
                "<line x1=\"{LEFT}\" x2=\"{0}\" y1=\"{1}\" y2=\"{1}\" class=\"g\"/>\n",
                WIDTH - RIGHT,
                y + ROW
            ),
        );
        for strike in strikes.iter().filter(|strike| strike.fault.victim == victim) {
            let (x, width) = axis.band(strike);
            let (color, text) = (color(strike.fault.kind), tell(strike));
            put(
                &mut svg,
                format_args!(
                    "<rect x=\"{x:.1}\" y=\"{}\" width=\"{:.1}\" height=\"{}\" rx=\"2\" fill=\"{color}\"><title>{text}</title></rect>\n",
                    y + 2.0,
                    width.max(3.0),
                    ROW - 4.0
                ),
            );
        }
        y += ROW;
    }
    times(&mut svg, &axis, y + 14.0);
    svg.push_str("</svg>\n");
    svg
}

fn times(svg: &mut String, axis: &Axis, y: f64) {
    for at in axis.ticks() {
        put(
            svg,
            format_args!(
                "<text x=\"{:.1}\" y=\"{y}\" text-anchor=\"middle\">{} s</text>\n",
                axis.x(at),
                at / 1_000
            ),
        );
    }
}

/// The scale of values: the largest, and where a value stands between 0 and 1.
struct Scale {
    top: f64,
    log: bool,
}

impl Scale {
    fn of(chart: &Chart) -> Self {
        let values = chart
            .lines
            .iter()
            .flat_map(|line| &line.points)
            .filter_map(|(_, value)| *value);
        let most = values.fold(1.0, f64::max);
        let top = if chart.log {
            10_f64.powf(most.log10().ceil().max(1.0))
        } else {
            let magnitude = 10_f64.powf(most.log10().floor());
            let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * magnitude);
            steps.into_iter().find(|step| *step >= most).unwrap_or(most)
        };
        Self { top, log: chart.log }
    }

    fn share(&self, value: f64) -> f64 {
        if self.log {
            value.max(1.0).log10() / self.top.log10()
        } else {
            value / self.top
        }
    }

    fn marks(&self) -> Vec<f64> {
        if self.log {
            (0..=9)
                .map(|power| 10_f64.powi(power))
                .filter(|mark| *mark <= self.top)
                .collect()
        } else {
            vec![0.0, self.top / 2.0, self.top]
        }
    }
}

/// A chart with the faults behind it.
pub fn chart(chart: &Chart, strikes: &[Strike], length: u64) -> String {
    let (axis, scale) = (Axis::new(length), Scale::of(chart));
    let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - scale.share(value).clamp(0.0, 1.0));
    let mut svg = String::new();
    open(&mut svg, HEIGHT);
    put(
        &mut svg,
        format_args!("<text x=\"{LEFT}\" y=\"14\" class=\"t\">{}</text>\n", chart.title),
    );
    for strike in strikes {
        let (x, width) = axis.band(strike);
        let (color, text) = (color(strike.fault.kind), tell(strike));
        put(
            &mut svg,
            format_args!(
                "<rect x=\"{x:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{}\" fill=\"{color}\" opacity=\"0.22\"><title>{text}</title></rect>\n",
                HEIGHT - TOP - BOTTOM
            ),
        );
    }
    for mark in scale.marks() {
        put(
            &mut svg,
            format_args!(
                "<line x1=\"{LEFT}\" x2=\"{0}\" y1=\"{1:.1}\" y2=\"{1:.1}\" class=\"g\"/>\n",
                WIDTH - RIGHT,
                y(mark)
            ),
        );
        put(
            &mut svg,
            format_args!(
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{mark}</text>\n",
                LEFT - 6.0,
                y(mark) + 4.0
            ),
        );
    }
    let mut legend = WIDTH - RIGHT;
    for line in chart.lines.iter().rev() {
        let mut path = String::new();
        let mut pen = 'M';
        for (at, value) in &line.points {
            match value {
                Some(value) => {
                    put(&mut path, format_args!("{pen}{:.1} {:.1}", axis.x(*at), y(*value)));
                    pen = 'L';
                }
                None => pen = 'M',
            }
        }
        put(
            &mut svg,
            format_args!(
                "<path d=\"{path}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n",
                line.color
            ),
        );
        put(
            &mut svg,
            format_args!(
                "<text x=\"{legend}\" y=\"14\" text-anchor=\"end\" style=\"fill:{}\">{}</text>\n",
                line.color, line.name
            ),
        );
        legend -= 8.0 * real(count(line.name.len())) + 10.0;
    }
    times(&mut svg, &axis, HEIGHT - 5.0);
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::chaos::schedule::Fault;

    fn strike() -> Strike {
        let fault = Fault {
            kind: Kind::DelayRedis,
            victim: Victim::Worker(1),
            at: Duration::ZERO,
            lasts: Duration::ZERO,
            late: Duration::from_millis(7),
            cut: false,
            paired: false,
        };
        Strike {
            fault,
            from: 2_000,
            to: 4_000,
        }
    }

    #[test]
    fn a_fault_stands_at_its_time_in_every_chart() {
        let lanes = lanes(&[strike()], 10_000);
        assert!(
            lanes.contains("delay-redis of worker 1, 2.0 to 4.0 s, 7ms late") && lanes.contains(">worker 1<"),
            "{lanes}"
        );
        let drawn = chart(
            &Chart {
                title: "x",
                log: false,
                lines: vec![Line {
                    name: "turns",
                    color: "red",
                    points: vec![(0, Some(0.0)), (1_000, None), (5_000, Some(3.0)), (10_000, Some(5.0))],
                }],
            },
            &[strike()],
            10_000,
        );
        assert!(
            drawn.contains("opacity=\"0.22\"") && drawn.contains(">turns<"),
            "{drawn}"
        );
        // The line is broken where there is no value, and ends at the top right.
        assert!(
            drawn.contains("M92.0 110.0M576.0") && drawn.contains("L1060.0 22.0"),
            "{drawn}"
        );
    }

    #[test]
    fn magnitudes_have_marks_of_their_own() {
        let chart = Chart {
            title: "",
            log: true,
            lines: vec![Line {
                name: "",
                color: "",
                points: vec![(0, Some(2_500.0))],
            }],
        };
        let scale = Scale::of(&chart);
        assert_eq!(scale.marks(), [1.0, 10.0, 100.0, 1_000.0, 10_000.0]);
        assert!((scale.share(100.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn nothing_that_is_told_is_markup() {
        assert_eq!(escape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }
}
