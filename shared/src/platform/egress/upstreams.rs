//! The breakers of the servers that one client calls, each its own, and what they count.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;
use url::{Origin, Url};

use super::breaker::{Breaker, BreakerSettings, Ticket, Weight};
use super::error::EgressError;
use super::metrics::EgressMetrics;

/// The breakers of one client.
#[derive(Debug)]
pub(super) struct Upstreams {
    agent: String,
    settings: BreakerSettings,
    metrics: EgressMetrics,
    breakers: Mutex<HashMap<Origin, Breaker>>,
}

impl Upstreams {
    pub(super) fn new(agent: &str, settings: BreakerSettings, metrics: EgressMetrics) -> Arc<Self> {
        // A series that appears with its first event is missed by `increase()`.
        metrics.open_breakers.with_label_values(&[agent]);
        metrics.breakers_opened.with_label_values(&[agent]);
        Arc::new(Self {
            agent: agent.to_owned(),
            settings,
            metrics,
            breakers: Mutex::default(),
        })
    }

    /// Lets a call out, or says when.
    pub(super) fn admit(self: &Arc<Self>, url: &Url, weight: Weight) -> Result<Permit, EgressError> {
        let origin = url.origin();
        let admitted = self.with(&origin, |breaker| breaker.admit(Instant::now(), weight));
        let ticket = admitted.map_err(|again| EgressError::Open {
            origin: origin.ascii_serialization(),
            again,
        })?;
        Ok(Permit {
            upstreams: Arc::clone(self),
            origin,
            ticket: Some(ticket),
        })
    }

    pub(super) fn count(&self, outcome: &str) {
        self.metrics.requests.with_label_values(&[&self.agent, outcome]).inc();
    }

    fn with<T>(&self, origin: &Origin, change: impl FnOnce(&mut Breaker) -> T) -> T {
        let mut breakers = self.breakers.lock().unwrap_or_else(PoisonError::into_inner);
        let breaker = breakers
            .entry(origin.clone())
            .or_insert_with(|| Breaker::new(self.settings));
        let before = breaker.is_open();
        let result = change(breaker);
        let after = breaker.is_open();
        // One that remembers nothing is as good as a new one: origins that a card names do not pile up.
        if breaker.is_fresh() {
            breakers.remove(origin);
        }
        if before != after {
            let gauge = self.metrics.open_breakers.with_label_values(&[&self.agent]);
            if after {
                gauge.inc();
                self.metrics.breakers_opened.with_label_values(&[&self.agent]).inc();
                tracing::warn!(
                    agent.name = self.agent,
                    upstream = origin.ascii_serialization(),
                    "an upstream server failed again and again: it is left alone for a while"
                );
            } else {
                gauge.dec();
                tracing::info!(
                    agent.name = self.agent,
                    upstream = origin.ascii_serialization(),
                    "an upstream server answers again"
                );
            }
        }
        result
    }
}

/// A call that was let out. Dropped without a result, it says nothing about the server.
#[derive(Debug)]
pub(super) struct Permit {
    upstreams: Arc<Upstreams>,
    origin: Origin,
    ticket: Option<Ticket>,
}

impl Permit {
    pub(super) fn answered(&self) {
        if let Some(ticket) = self.ticket {
            self.upstreams.with(&self.origin, |breaker| breaker.answered(ticket));
        }
    }

    pub(super) fn succeeded(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.upstreams.with(&self.origin, |breaker| breaker.succeeded(ticket));
            self.upstreams.count("ok");
        }
    }

    /// The server answered that the request is wrong: it works.
    pub(super) fn declined(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.upstreams.with(&self.origin, |breaker| breaker.succeeded(ticket));
            self.upstreams.count("client_error");
        }
    }

    /// The server answered that it is broken, or not at all.
    pub(super) fn failed(&mut self, outcome: &str) {
        if let Some(ticket) = self.ticket.take() {
            self.upstreams
                .with(&self.origin, |breaker| breaker.failed(ticket, Instant::now()));
            self.upstreams.count(outcome);
        }
    }

    /// What went wrong says nothing about whether the server works.
    pub(super) fn void(&mut self, outcome: &str) {
        if let Some(ticket) = self.ticket.take() {
            self.upstreams
                .with(&self.origin, |breaker| breaker.abandoned(ticket, Instant::now()));
            self.upstreams.count(outcome);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.void("abandoned");
    }
}
