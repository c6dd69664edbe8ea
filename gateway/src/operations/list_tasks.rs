//! ListTasks: the caller's tasks, newest status first.

use a2a::{ListTasksResponse, Task};
use futures_util::{StreamExt as _, stream};
use relevo_shared::domain::page::{self, Place};
use relevo_shared::domain::{state, wire};
use relevo_shared::store::ListFilter;

use super::until_answered;
use crate::auth::Permit;
use crate::error::ApiError;
use crate::request::ListTasks;
use crate::services::{Call, Services};

/// A page is cut when its tasks are larger than this together.
const LARGEST_PAGE: usize = 4 << 20;
/// Tasks that are read at once.
const READS: usize = 16;

/// Lists tasks.
pub(crate) async fn list_tasks(
    services: &Services,
    permit: &Permit<ListTasks>,
    call: &Call,
    request: &ListTasks,
) -> Result<ListTasksResponse, ApiError> {
    let scope = permit.principal().scope();
    let mark = mark(scope.as_str(), request);
    let after = match &request.page_token {
        Some(token) => {
            let place = page::read(token, &mark);
            Some(place.map_err(|_wrong| ApiError::invalid("pageToken", "is not a token of this listing"))?)
        }
        None => None,
    };
    let filter = ListFilter {
        scope: scope.clone(),
        context: request.context_id.as_ref().map(|id| services.store.place(scope, id)),
        state: request.status.clone(),
    };
    let size = usize::from(request.page_size);
    let listed = until_answered(call.deadline, || services.store.list_tasks(&filter, after, size)).await?;
    let (tasks, last, cut) = read_page(services, call, request, &listed.places).await?;
    let next_page_token = match last.or(listed.places.last().copied()) {
        Some(place) if cut || listed.more => page::write(place, &mark),
        _ => String::new(),
    };
    Ok(ListTasksResponse {
        tasks,
        next_page_token,
        page_size: i32::from(request.page_size),
        total_size: i32::try_from(listed.total).unwrap_or(i32::MAX),
    })
}

/// What a token is good for.
fn mark(scope: &str, request: &ListTasks) -> String {
    let state = request.status.as_ref().map_or("", state::word);
    let context = request.context_id.as_deref().unwrap_or_default();
    format!("{scope}|{state}|{context}")
}

/// Reads the tasks of a page; says where it was cut, if it was.
async fn read_page(
    services: &Services,
    call: &Call,
    request: &ListTasks,
    places: &[Place],
) -> Result<(Vec<Task>, Option<Place>, bool), ApiError> {
    let read = |place: Place| async move {
        let stored = until_answered(call.deadline, || services.store.read_task(place.task, request.history)).await;
        (place, stored)
    };
    let mut reads = stream::iter(places.iter().copied().map(read)).buffered(READS);
    let mut tasks = Vec::with_capacity(places.len());
    let (mut last, mut bytes) = (None, 0);
    while let Some((place, stored)) = reads.next().await {
        // A task may have been purged since it was listed.
        let Some(stored) = stored? else { continue };
        let mut task = stored.into_task(request.history);
        if request.include_artifacts {
            task.artifacts.get_or_insert_default();
        } else {
            task.artifacts = None;
        }
        bytes += wire::to_vec(&task).len();
        if bytes > LARGEST_PAGE && !tasks.is_empty() {
            return Ok((tasks, last, true));
        }
        tasks.push(task);
        last = Some(place);
    }
    // What is missing at the end was purged: the page reaches as far as the listing did.
    Ok((tasks, None, false))
}
