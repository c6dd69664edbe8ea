//! From settings to what the store needs.

use super::clock::millis;
use super::{ConnectOptions, Keep};
use crate::platform::config::{RedisSettings, RetentionSettings, Secret};

impl ConnectOptions {
    /// How to reach the Redis of `[redis]`.
    pub fn from_settings(settings: &RedisSettings) -> Self {
        Self {
            url: settings.url.expose().to_owned(),
            username: settings.username.clone(),
            password: settings.password.as_ref().map(Secret::expose).map(ToOwned::to_owned),
            prefix: settings.prefix.clone(),
            partitions: settings.partitions,
            timeout: settings.timeout,
            pool_size: settings.pool_size.get(),
        }
    }
}

impl Keep {
    /// How long `[retention]` keeps things.
    pub fn from_settings(settings: &RetentionSettings) -> Self {
        Self {
            task_ms: millis(settings.task),
            idle_ms: millis(settings.idle),
            context_ms: millis(settings.context),
            journal_ms: millis(settings.journal),
            refused_ms: millis(settings.refused),
            ..Self::default()
        }
    }
}
