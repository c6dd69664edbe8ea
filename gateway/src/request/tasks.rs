//! The requests about tasks that exist.

use a2a::TaskState;
use chrono::{DateTime, Utc};
use relevo_shared::store::HistoryLength;
use serde_json::Value;

use super::message::{context_rule, is_context_id};
use super::reader::{Object, Violations};
use super::{read, tenant};
use crate::error::ApiError;

/// Tasks on a page unless the client says otherwise, and at most.
const PAGE: u16 = 50;
const LARGEST_PAGE: u16 = 100;

/// GetTask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GetTask {
    /// Tenant, empty without one.
    pub(crate) tenant: String,
    /// What the client calls the task.
    pub(crate) id: String,
    /// How much history the answer holds.
    pub(crate) history: HistoryLength,
}

/// CancelTask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CancelTask {
    /// Tenant, empty without one.
    pub(crate) tenant: String,
    /// What the client calls the task.
    pub(crate) id: String,
}

/// SubscribeToTask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SubscribeToTask {
    /// Tenant, empty without one.
    pub(crate) tenant: String,
    /// What the client calls the task.
    pub(crate) id: String,
}

/// ListTasks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ListTasks {
    /// Tenant, empty without one.
    pub(crate) tenant: String,
    /// Only of this context.
    pub(crate) context_id: Option<String>,
    /// Only in this state.
    pub(crate) status: Option<TaskState>,
    /// Only with a status that is not older than this, ms.
    pub(crate) since: Option<u64>,
    /// Most tasks on the page.
    pub(crate) page_size: u16,
    /// Where the page begins.
    pub(crate) page_token: Option<String>,
    /// How much history each task holds.
    pub(crate) history: HistoryLength,
    /// Whether tasks come with their artifacts.
    pub(crate) include_artifacts: bool,
}

/// One of the four operations on push configs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PushConfig {
    /// Tenant, empty without one.
    pub(crate) tenant: String,
}

/// GetExtendedAgentCard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExtendedCard {
    /// Tenant, empty without one.
    pub(crate) tenant: String,
}

impl GetTask {
    pub(crate) fn parse(params: Value) -> Result<Self, ApiError> {
        read(params, |object, violations| Self {
            tenant: tenant(object, violations),
            id: id(object, violations),
            history: history_length(object, violations).unwrap_or(HistoryLength::All),
        })
    }
}

impl CancelTask {
    pub(crate) fn parse(params: Value) -> Result<Self, ApiError> {
        read(params, |object, violations| {
            object.metadata("metadata", violations);
            Self {
                tenant: tenant(object, violations),
                id: id(object, violations),
            }
        })
    }
}

impl SubscribeToTask {
    pub(crate) fn parse(params: Value) -> Result<Self, ApiError> {
        read(params, |object, violations| Self {
            tenant: tenant(object, violations),
            id: id(object, violations),
        })
    }
}

impl ListTasks {
    pub(crate) fn parse(params: Value) -> Result<Self, ApiError> {
        read(params, |object, violations| {
            let context_id = object.text("contextId", violations);
            if context_id.as_deref().is_some_and(|id| !is_context_id(id)) {
                violations.add(&object.at("contextId"), context_rule());
            }
            Self {
                tenant: tenant(object, violations),
                context_id,
                status: status(object, violations),
                since: object.timestamp("statusTimestampAfter", violations).map(whole_ms),
                page_size: page_size(object, violations),
                page_token: object.text("pageToken", violations),
                // Unset means none: a page of whole histories would be as large as the tasks are old.
                history: history_length(object, violations).unwrap_or(HistoryLength::Latest(0)),
                include_artifacts: object.flag("includeArtifacts", violations).unwrap_or(false),
            }
        })
    }
}

impl PushConfig {
    /// Only the tenant is read: the answer is the same whatever else is in it.
    pub(crate) fn parse(params: Value) -> Result<Self, ApiError> {
        read(params, |object, violations| Self {
            tenant: tenant(object, violations),
        })
    }
}

impl ExtendedCard {
    pub(crate) fn parse(params: Value) -> Result<Self, ApiError> {
        read(params, |object, violations| Self {
            tenant: tenant(object, violations),
        })
    }
}

fn id(object: &mut Object<'_>, violations: &mut Violations) -> String {
    object.required_text("id", violations).unwrap_or_default()
}

/// How much history is wanted; `None` when the client does not say.
pub(super) fn history_length(object: &mut Object<'_>, violations: &mut Violations) -> Option<HistoryLength> {
    let length = object.int32("historyLength", violations)?;
    let latest = u32::try_from(length).ok().map(HistoryLength::Latest);
    if latest.is_none() {
        violations.add(&object.at("historyLength"), "must not be negative");
    }
    latest
}

/// The first millisecond that is not before a moment: what is printed of a status are whole ones.
fn whole_ms(time: DateTime<Utc>) -> u64 {
    let begun = !time.timestamp_subsec_nanos().is_multiple_of(1_000_000);
    u64::try_from(time.timestamp_millis() + i64::from(begun)).unwrap_or(0)
}

fn page_size(object: &mut Object<'_>, violations: &mut Violations) -> u16 {
    let Some(size) = object.int32("pageSize", violations) else {
        return PAGE;
    };
    let fits = u16::try_from(size)
        .ok()
        .filter(|size| (1..=LARGEST_PAGE).contains(size));
    if fits.is_none() {
        violations.add(&object.at("pageSize"), format!("must be from 1 to {LARGEST_PAGE}"));
    }
    fits.unwrap_or(PAGE)
}

fn status(object: &mut Object<'_>, violations: &mut Violations) -> Option<TaskState> {
    let value = object.take("status")?;
    let state = match &value {
        Value::String(text) if text.is_empty() => return None,
        Value::Number(number) => number.as_u64().and_then(by_number),
        other => serde_json::from_value(other.clone()).ok(),
    };
    match state {
        // The proto's zero: no filter.
        Some(TaskState::Unspecified) => None,
        Some(state) => Some(state),
        None => {
            violations.add(&object.at("status"), "must be a state such as TASK_STATE_WORKING");
            None
        }
    }
}

/// The values of the enum in the proto file.
fn by_number(number: u64) -> Option<TaskState> {
    Some(match number {
        0 => TaskState::Unspecified,
        1 => TaskState::Submitted,
        2 => TaskState::Working,
        3 => TaskState::Completed,
        4 => TaskState::Failed,
        5 => TaskState::Canceled,
        6 => TaskState::InputRequired,
        7 => TaskState::Rejected,
        8 => TaskState::AuthRequired,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields<T>(result: Result<T, ApiError>) -> Vec<String> {
        match result {
            Ok(_) => Vec::new(),
            Err(ApiError::InvalidParams(violations)) => violations.into_iter().map(|v| v.field).collect(),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_task_must_be_named() {
        assert_eq!(fields(GetTask::parse(json!({}))), ["id"]);
        assert_eq!(fields(GetTask::parse(Value::Null)), ["id"]);
        assert_eq!(fields(GetTask::parse(json!({ "id": 1 }))), ["id"]);
        assert_eq!(fields(GetTask::parse(json!([]))), ["params"]);
        assert_eq!(
            fields(CancelTask::parse(json!({ "id": "", "metadata": 1 }))),
            ["metadata", "id"]
        );
        assert_eq!(
            fields(SubscribeToTask::parse(json!({ "id": "x" }))),
            Vec::<String>::new()
        );
    }

    #[test]
    fn history_is_a_number_of_messages() {
        let history = |value: Value| GetTask::parse(json!({ "id": "x", "historyLength": value })).map(|r| r.history);
        assert_eq!(history(json!(0)).unwrap(), HistoryLength::Latest(0));
        assert_eq!(history(Value::Null).unwrap(), HistoryLength::All);
        assert_eq!(fields(history(json!(-1))), ["historyLength"]);
        assert_eq!(fields(history(json!(1e12))), ["historyLength"]);
    }

    #[test]
    fn a_listing_has_its_defaults_and_limits() {
        let list = ListTasks::parse(json!({})).unwrap();
        assert_eq!(
            (list.page_size, list.history, list.include_artifacts),
            (50, HistoryLength::Latest(0), false)
        );
        for size in [0, -1, 101] {
            assert_eq!(fields(ListTasks::parse(json!({ "pageSize": size }))), ["pageSize"]);
        }
        assert_eq!(
            fields(ListTasks::parse(json!({ "status": "TASK_STATE_RUNNING" }))),
            ["status"]
        );
        assert_eq!(fields(ListTasks::parse(json!({ "status": 9 }))), ["status"]);
        assert_eq!(fields(ListTasks::parse(json!({ "contextId": "a b" }))), ["contextId"]);
        for wrong in [
            json!("2026-01-01"),
            json!("2026-01-01T00:00:00+00:00"),
            json!(1_796_035_146),
        ] {
            let later = json!({ "statusTimestampAfter": wrong });
            assert_eq!(fields(ListTasks::parse(later)), ["statusTimestampAfter"]);
        }
        let working = ListTasks::parse(json!({ "status": "TASK_STATE_WORKING" })).unwrap();
        assert_eq!(working.status, Some(TaskState::Working));
    }

    #[test]
    fn a_listing_begins_at_the_first_millisecond_that_is_not_before_the_time() {
        for (text, ms) in [
            ("2026-11-30T10:39:06Z", 1_796_035_146_000),
            ("2026-11-30T10:39:06.380Z", 1_796_035_146_380),
            ("2026-11-30T10:39:06.380000001Z", 1_796_035_146_381),
            ("2026-11-30T10:39:06.999999999Z", 1_796_035_147_000),
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59.999999999Z", 0),
            ("0001-01-01T00:00:00Z", 0),
        ] {
            let list = ListTasks::parse(json!({ "status_timestamp_after": text })).unwrap();
            assert_eq!(list.since, Some(ms), "{text}");
        }
        assert_eq!(ListTasks::parse(json!({})).unwrap().since, None);
    }
}
