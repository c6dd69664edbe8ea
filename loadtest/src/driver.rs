//! Load: many conversations at once, in a closed or an open loop, until the time is over.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use a2a::TaskState;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{Client, Outgoing};
use crate::expect::Expect;
use crate::recorder::Recorder;
use crate::report::Report;
use crate::settings::{NONCE, Settings};
use crate::turn::{self, Done, Failure, Manner, Order};
use crate::verify::check_task;

/// The agent whose answers can be checked.
const DEMO: &str = "demo";
/// How long the card may take.
const CARD_WAIT: Duration = Duration::from_secs(10);

/// Runs the load that `settings` describe.
///
/// # Errors
/// When no client can be built.
pub async fn run(settings: &Settings) -> Result<Report, reqwest::Error> {
    run_until(settings, std::future::pending()).await
}

/// The agent that the cluster's card names, if it is another than `demo`; a card that cannot be read names none.
///
/// # Errors
/// When no client can be built.
pub async fn other_agent(settings: &Settings) -> Result<Option<String>, reqwest::Error> {
    let http = reqwest::Client::builder().no_proxy().timeout(CARD_WAIT).build()?;
    let Some(url) = settings.url.first() else {
        return Ok(None);
    };
    let url = format!("{}/.well-known/agent-card.json", url.trim_end_matches('/'));
    let Ok(answer) = http.get(url).send().await else {
        return Ok(None);
    };
    let card: serde_json::Value = answer.json().await.unwrap_or_default();
    let name = card.get("name").and_then(serde_json::Value::as_str);
    Ok(name.filter(|name| *name != DEMO).map(str::to_owned))
}

/// [`run`] that begins no turn any more once `stop` has resolved.
///
/// # Errors
/// When no client can be built.
pub async fn run_until(settings: &Settings, stop: impl Future<Output = ()>) -> Result<Report, reqwest::Error> {
    let client = Client::new(settings.url.clone())?;
    let contexts = settings.contexts;
    let recorder = Arc::new(Recorder::default());
    let load = Arc::new(Load {
        client,
        // Contexts of another run on the same cluster are other contexts.
        run: RandomState::new().build_hasher().finish(),
        schedule: Schedule::new(settings),
        recorder: Arc::clone(&recorder),
        settings: settings.clone(),
    });
    let begun = Instant::now();
    let mut conversations = JoinSet::new();
    for place in 0..contexts {
        let load = Arc::clone(&load);
        conversations.spawn(async move { load.converse(place).await });
    }
    let over = conversations.join_all();
    tokio::select! {
        _ended = over => {}
        () = async {
            stop.await;
            load.schedule.stopped.store(true, Ordering::Relaxed);
            std::future::pending::<()>().await;
        } => {}
    }
    Ok(Report::new(settings, begun.elapsed(), recorder.take()))
}

/// When turns begin.
#[derive(Debug)]
struct Schedule {
    begun: Instant,
    end: Instant,
    /// Between two turns of an open loop.
    interval: Option<f64>,
    most: u64,
    given: AtomicU64,
    stopped: AtomicBool,
}

impl Schedule {
    fn new(settings: &Settings) -> Self {
        let begun = Instant::now();
        Self {
            begun,
            end: begun + settings.duration,
            interval: settings.rate.map(|rate| 1.0 / rate),
            most: settings.turns.unwrap_or(u64::MAX),
            given: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// The number of the next turn and when it should begin; returns when that time has come. A turn that comes late
    /// because every context was busy keeps its time: waiting is part of its latency.
    async fn next(&self) -> Option<(u64, Instant)> {
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        if number >= self.most || self.stopped.load(Ordering::Relaxed) {
            return None;
        }
        let time = match self.interval {
            None => Instant::now(),
            Some(interval) => {
                #[expect(clippy::cast_precision_loss, reason = "a count of turns is far below 2^52")]
                let offset = number as f64 * interval;
                self.begun + Duration::try_from_secs_f64(offset).ok()?
            }
        };
        if time >= self.end {
            return None;
        }
        tokio::time::sleep_until(time).await;
        Some((number, time))
    }
}

struct Load {
    client: Client,
    run: u64,
    schedule: Schedule,
    recorder: Arc<Recorder>,
    settings: Settings,
}

impl Load {
    /// One conversation after the other.
    async fn converse(&self, place: u32) {
        let mut count = 0_u64;
        loop {
            let context = format!("lt-{:x}-{place}-{count}", self.run);
            if self
                .conversation(usize::try_from(place).unwrap_or(0), &context)
                .await
                .is_none()
            {
                return;
            }
            count += 1;
        }
    }

    /// The turns of one context. `None`: the time is over.
    async fn conversation(&self, place: usize, context: &str) -> Option<()> {
        let mut task: Option<String> = None;
        let mut asked: Vec<Expect> = Vec::new();
        for _ in 0..=self.settings.followups {
            let (number, intended) = self.schedule.next().await?;
            let text = self.text(number);
            let expect = Expect::of(&text);
            if task.is_none() {
                asked.clear();
            }
            asked.extend(expect.clone());
            let message_id = format!("m-{:x}-{number}", self.run);
            let message = Outgoing {
                message_id: &message_id,
                context,
                task: task.as_deref(),
                text: &text,
            };
            let order = Order {
                at: place,
                message,
                expect: expect.as_ref(),
                intended,
            };
            match self.turn(order, &asked).await {
                Ok(done) => task = (done.state == TaskState::InputRequired).then_some(done.task),
                Err(failure) => {
                    self.recorder.failed(&failure);
                    return Some(());
                }
            }
        }
        Some(())
    }

    fn text(&self, number: u64) -> String {
        let texts = &self.settings.text;
        let place = usize::try_from(number).unwrap_or(0) % texts.len().max(1);
        let text = texts.get(place).map(String::as_str).unwrap_or_default();
        text.replace(NONCE, &format!("{:x}.{number}", self.run))
    }

    async fn turn(&self, order: Order<'_>, asked: &[Expect]) -> Result<Done, Failure> {
        let limit = self.settings.turn_timeout;
        let manner = Manner {
            mode: self.settings.mode,
            resume: !self.settings.no_resume,
            limit,
        };
        let done = turn::run(&self.client, manner, order).await?;
        if self.settings.verify {
            let mut violations = done.violations.clone();
            // At another address than the one that told the end: what one gateway says all must say.
            let task = turn::read_task(&self.client, done.at + 1, &done.task, limit).await?;
            violations.extend(check_task(&task, order.message.context, asked));
            self.recorder.verified(&violations);
        } else if let Some(expect) = order.expect.filter(|expect| expect.end != done.state) {
            let detail = format!("task {} ended {:?} instead of {:?}", done.task, done.state, expect.end);
            return Err(Failure {
                kind: "other_end".to_owned(),
                detail,
                refused: false,
                resumes: done.resumes,
            });
        }
        self.recorder.done(&done);
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn schedule(args: &[&str]) -> Schedule {
        let all = ["relevo-loadtest", "--url", "http://h", "--duration", "1s"]
            .iter()
            .chain(args);
        Schedule::new(&Settings::parse_from(all))
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_loop_keeps_its_times_when_it_comes_late() {
        let schedule = schedule(&["--rate", "10"]);
        let mut late = Vec::new();
        while let Some((number, time)) = schedule.next().await {
            assert_eq!(
                time,
                schedule.begun + Duration::from_millis(100) * u32::try_from(number).unwrap()
            );
            late.push(Instant::now() - time);
            if number == 2 {
                tokio::time::advance(Duration::from_millis(350)).await;
            }
        }
        // Ten turns in a second, whatever held them up; the clock of the test moves in whole milliseconds.
        let late: Vec<u128> = late.iter().map(|late| late.as_millis().saturating_sub(1)).collect();
        assert_eq!(late.len(), 10);
        assert!(
            late[3] >= 240 && late[4] >= 140 && late[5] >= 40 && late[6] == 0,
            "{late:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_loop_ends_with_its_time_or_its_number() {
        let by_number = schedule(&["--turns", "2"]);
        assert!(by_number.next().await.is_some() && by_number.next().await.is_some());
        assert!(by_number.next().await.is_none());
        let by_time = schedule(&[]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(by_time.next().await.is_none());
    }
}
