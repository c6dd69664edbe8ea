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

/// A page of tasks.
#[derive(Debug)]
pub(crate) struct Page {
    /// Each with what it is printed as: that is how large it is known to be.
    tasks: Vec<(Task, Vec<u8>)>,
    next_page_token: String,
    size: i32,
    total: i32,
}

impl Page {
    /// As JSON.
    pub(crate) fn into_json(self) -> Vec<u8> {
        let tasks: Vec<Vec<u8>> = self.tasks.into_iter().map(|(_, printed)| printed).collect();
        wire::page(&tasks, &self.next_page_token, self.size, self.total)
    }

    /// As a value of the protocol.
    pub(crate) fn into_response(self) -> ListTasksResponse {
        ListTasksResponse {
            tasks: self.tasks.into_iter().map(|(task, _)| task).collect(),
            next_page_token: self.next_page_token,
            page_size: self.size,
            total_size: self.total,
        }
    }
}

/// Lists tasks.
pub(crate) async fn list_tasks(
    services: &Services,
    permit: &Permit<ListTasks>,
    call: &Call,
    request: &ListTasks,
) -> Result<Page, ApiError> {
    let scope = permit.principal().scope();
    let listing = listing(scope.as_str(), request);
    let after = match &request.page_token {
        Some(token) => {
            let place = page::read(token, &listing);
            Some(place.map_err(|_wrong| ApiError::invalid("pageToken", "is not a token of this listing"))?)
        }
        None => None,
    };
    let filter = ListFilter {
        scope: scope.clone(),
        context: request.context_id.as_ref().map(|id| services.store.place(scope, id)),
        state: request.status.clone(),
        since: request.since,
    };
    let size = usize::from(request.page_size);
    let listed = until_answered(call.deadline, || services.store.list_tasks(&filter, after, size)).await?;
    let (tasks, last) = read_page(services, call, request, &listed.places).await?;
    let next_page_token = match last.or(listed.places.last().copied()) {
        Some(place) if last.is_some() || listed.more => page::write(place, &listing),
        _ => String::new(),
    };
    Ok(Page {
        tasks,
        next_page_token,
        size: i32::from(request.page_size),
        total: i32::try_from(listed.total).unwrap_or(i32::MAX),
    })
}

/// What a token is good for. None of the texts has a bar in it.
fn listing(scope: &str, request: &ListTasks) -> String {
    let state = request.status.as_ref().map_or("", state::word);
    let context = request.context_id.as_deref().unwrap_or_default();
    let since = request.since.map(|ms| ms.to_string()).unwrap_or_default();
    format!("{scope}|{state}|{context}|{since}")
}

/// Reads the tasks of a page, each with what it is printed as; says where it was cut, if it was.
async fn read_page(
    services: &Services,
    call: &Call,
    request: &ListTasks,
    places: &[Place],
) -> Result<(Vec<(Task, Vec<u8>)>, Option<Place>), ApiError> {
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
        let printed = wire::to_vec(&task);
        bytes += printed.len();
        if bytes > LARGEST_PAGE && !tasks.is_empty() {
            return Ok((tasks, last));
        }
        tasks.push((task, printed));
        last = Some(place);
    }
    // What is missing at the end was purged: the page reaches as far as the listing did.
    Ok((tasks, None))
}
