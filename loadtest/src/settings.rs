//! The command line.

use std::time::Duration;

use clap::{Parser, ValueEnum};

/// What stands for the turn's own mark in a text.
pub const NONCE: &str = "{nonce}";

/// How turns are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// SendMessage: one answer when the turn has ended.
    Send,
    /// SendStreamingMessage: events as they come.
    Stream,
}

impl Mode {
    /// The word on the command line and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Stream => "stream",
        }
    }
}

/// Sends turns to a cluster, measures them, and checks that nothing is lost.
///
/// Without --rate each context sends its next turn when the last has ended (closed loop). With --rate turns begin at fixed
/// times whatever the cluster does, and latency counts from the time at which a turn should have begun (open loop).
/// Exit code: 0 good, 1 something was wrong, 2 usage.
#[derive(Debug, Clone, Parser)]
#[command(name = "relevo-loadtest", version)]
pub struct Settings {
    /// Addresses of one cluster; contexts are spread over them, and broken streams go on at the next
    #[arg(long, required = true, num_args = 1.., value_name = "URL")]
    pub url: Vec<String>,
    /// Conversations at once
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub contexts: u32,
    /// How turns are sent
    #[arg(long, value_enum, default_value = "stream")]
    pub mode: Mode,
    /// How long turns are begun: 10s, 500ms, 2m; those begun are waited for
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = time)]
    pub duration: Duration,
    /// Turns per second, at fixed times (open loop)
    #[arg(long, value_name = "R", value_parser = rate)]
    pub rate: Option<f64>,
    /// Further turns of each conversation: of the same task if it waits for input, else of the same context
    #[arg(long, default_value_t = 0, value_name = "K")]
    pub followups: u32,
    /// Stop after so many turns
    #[arg(long, value_name = "N")]
    pub turns: Option<u64>,
    /// Check each turn and the task it leaves; needs texts for the agent `demo` with a nonce
    #[arg(long)]
    pub verify: bool,
    /// What is sent; several take turns. {nonce} becomes the turn's own mark
    #[arg(long, default_values_t = [format!("chunks=5 nonce={NONCE}")])]
    pub text: Vec<String>,
    /// Count a broken stream as an error instead of resuming it, as clients without `Last-Event-ID` must
    #[arg(long)]
    pub no_resume: bool,
    /// A turn that has not ended after this time is given up
    #[arg(long, default_value = "2m", value_name = "TIME", value_parser = time)]
    pub turn_timeout: Duration,
    /// Print figures as JSON
    #[arg(long)]
    pub json: bool,
}

impl Settings {
    /// Rules between the flags.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn check(&self) -> Result<(), String> {
        for url in &self.url {
            let parsed = url::Url::parse(url).map_err(|error| format!("--url {url}: {error}"))?;
            if !matches!(parsed.scheme(), "http" | "https") {
                return Err(format!("--url {url}: must start with http:// or https://"));
            }
        }
        let unchecked = |text: &&String| crate::expect::Expect::of(&text.replace(NONCE, "x")).is_none();
        match self.text.iter().find(|text| !text.contains(NONCE) || unchecked(text)) {
            Some(text) if self.verify => Err(format!(
                "--verify: the text `{text}` must drive the agent demo and hold nonce={NONCE}"
            )),
            _ => Ok(()),
        }
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 1e6 => Ok(rate),
        _ => Err("must be a number above 0 and at most 1,000,000".to_owned()),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return Err("must end in ms, s, m or h".to_owned()),
    };
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 && number * seconds <= 1e7 => Ok(Duration::from_secs_f64(number * seconds)),
        _ => Err("must be a time above zero, such as 10s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Settings, String> {
        let all = ["relevo-loadtest", "--url", "http://h"].iter().chain(args);
        let settings = Settings::try_parse_from(all).map_err(|error| error.to_string())?;
        settings.check().map(|()| settings)
    }

    #[test]
    fn times_and_rates_are_read() {
        let settings = parse(&["--duration", "500ms", "--rate", "12.5", "--turn-timeout", "1m"]).unwrap();
        assert_eq!(settings.duration, Duration::from_millis(500));
        assert_eq!(settings.turn_timeout, Duration::from_mins(1));
        for wrong in [
            ["--duration", "0s"],
            ["--duration", "5y"],
            ["--rate", "0"],
            ["--rate", "NaN"],
            ["--contexts", "0"],
        ] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_cannot_be_checked_is_not_verified() {
        assert!(parse(&["--verify"]).is_ok());
        assert!(parse(&["--text", "hello"]).is_ok());
        assert!(parse(&["--verify", "--text", "hello {nonce}"]).is_err());
        assert!(parse(&["--verify", "--text", "chunks=3 nonce=a"]).is_err());
        assert!(parse(&["--url", "ftp://h"]).is_err());
    }
}
