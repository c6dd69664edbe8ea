//! Buckets of S3 and what speaks like it.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{BackoffConfig, RetryConfig};

use super::http::Connector;
use super::{Objects, ObjectsError};
use crate::platform::certificates::certificates;
use crate::platform::config::ArtifactSettings;

/// How often, and how long, the library repeats a request. What it gives up is repeated by workers and the reaper.
const RETRIES: usize = 2;
const RETRY_FOR: Duration = Duration::from_secs(10);

/// A bucket, reached as the settings say, else as the usual variables of AWS do.
pub(super) fn open(settings: &ArtifactSettings, bucket: &str, prefix: &str) -> Result<Objects, ObjectsError> {
    let failed = |error: &dyn std::fmt::Display| ObjectsError::Open {
        rule: format!("artifacts.store: {error}"),
    };
    let certificates = match &settings.s3_ca_file {
        Some(path) => certificates(path).map_err(|rule| ObjectsError::Open {
            rule: format!("artifacts.s3_ca_file: {} {rule}", path.display()),
        })?,
        None => Vec::new(),
    };
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_http_connector(Connector { certificates })
        .with_retry(RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: RETRIES,
            retry_timeout: RETRY_FOR,
        });
    if let Some(endpoint) = &settings.s3_endpoint {
        builder = builder
            .with_endpoint(endpoint.expose())
            .with_allow_http(endpoint.scheme() == "http");
    }
    if let Some(region) = &settings.s3_region {
        builder = builder.with_region(region);
    }
    if let (Some(id), Some(secret)) = (&settings.s3_access_key_id, &settings.s3_secret_access_key) {
        builder = builder.with_access_key_id(id).with_secret_access_key(secret.expose());
    }
    let store = builder.build().map_err(|error| failed(&error))?;
    Ok(Objects {
        prefix: Path::parse(prefix).map_err(|error| failed(&error))?,
        ..Objects::new(Arc::new(store))
    })
}
