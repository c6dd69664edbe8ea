//! `grpc.health.v1`: what gRPC load balancers ask. It answers for the operations and, under the empty name, for the process.

use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// The names that are answered for.
const NAMES: [&str; 2] = ["", "lf.a2a.v1.A2AService"];

/// What is answered, to be changed when the gateway stops.
pub(crate) struct Health(HealthReporter);

impl Health {
    pub(super) async fn serving(reporter: HealthReporter) -> Self {
        let health = Self(reporter);
        health.say(ServingStatus::Serving).await;
        health
    }

    /// Says that nothing new should come.
    pub(crate) async fn leave(&self) {
        self.say(ServingStatus::NotServing).await;
    }

    /// Ends the streams of those who watch, or they would hold their connections to the end of the drain.
    pub(crate) async fn end(&mut self) {
        for name in NAMES {
            self.0.clear_service_status(name).await;
        }
    }

    async fn say(&self, status: ServingStatus) {
        for name in NAMES {
            self.0.set_service_status(name, status).await;
        }
    }
}
