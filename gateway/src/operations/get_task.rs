//! GetTask: the task as its journal says.

use a2a::Task;

use super::read_visible;
use crate::auth::Permit;
use crate::error::ApiError;
use crate::request::GetTask;
use crate::services::{Call, Inner};

/// Answers a task.
pub(crate) async fn get_task(
    services: &Inner,
    permit: &Permit<GetTask>,
    call: &Call,
    request: &GetTask,
) -> Result<Task, ApiError> {
    let stored = read_visible(
        services,
        permit.principal(),
        &request.id,
        request.history,
        call.deadline,
    )
    .await?;
    Ok(stored.into_task(request.history))
}
