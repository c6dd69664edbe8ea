//! The paths of the HTTP+JSON binding: what operation they name, with which fields.
//!
//! Every path exists with and without a tenant before it. Literal paths win: `/tasks/x` is a task, whatever tenants there
//! are. An id may hold colons: only the last one, before a verb, ends it, and only where it is not percent-encoded.

use a2a::methods;
use axum::http::Method;

/// What a path means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    /// What can be done there, by HTTP method.
    operations: &'static [(Method, &'static str)],
    /// The fields that the path binds, by their names in the request.
    pub(super) fields: Vec<(&'static str, String)>,
}

const SEND: &[(Method, &str)] = &[(Method::POST, methods::SEND_MESSAGE)];
const STREAM: &[(Method, &str)] = &[(Method::POST, methods::SEND_STREAMING_MESSAGE)];
const TASKS: &[(Method, &str)] = &[(Method::GET, methods::LIST_TASKS)];
const TASK: &[(Method, &str)] = &[(Method::GET, methods::GET_TASK)];
const CANCEL: &[(Method, &str)] = &[(Method::POST, methods::CANCEL_TASK)];
/// The proto file says GET, the text POST.
const SUBSCRIBE: &[(Method, &str)] = &[
    (Method::GET, methods::SUBSCRIBE_TO_TASK),
    (Method::POST, methods::SUBSCRIBE_TO_TASK),
];
const CONFIGS: &[(Method, &str)] = &[
    (Method::GET, methods::LIST_PUSH_CONFIGS),
    (Method::POST, methods::CREATE_PUSH_CONFIG),
];
const CONFIG: &[(Method, &str)] = &[
    (Method::GET, methods::GET_PUSH_CONFIG),
    (Method::DELETE, methods::DELETE_PUSH_CONFIG),
];
const CARD: &[(Method, &str)] = &[(Method::GET, methods::GET_EXTENDED_AGENT_CARD)];

impl Route {
    /// Reads a path; a slash at its end says nothing.
    pub(super) fn of(path: &str) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        let path = path.strip_suffix('/').unwrap_or(path);
        let segments: Vec<&str> = path.split('/').collect();
        if segments.iter().any(|segment| segment.is_empty()) {
            return None;
        }
        Self::without_tenant(&segments).or_else(|| {
            let (tenant, rest) = segments.split_first()?;
            // Two tenants that are no text must not be read as one.
            percent_encoding::percent_decode_str(tenant).decode_utf8().ok()?;
            let mut route = Self::without_tenant(rest)?;
            route.fields.push(("tenant", decode(tenant)));
            Some(route)
        })
    }

    /// Reads what follows `/v1` in a path of A2A 0.3, which has no tenants.
    pub(super) fn of_0_3(path: &str) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        let path = path.strip_suffix('/').unwrap_or(path);
        match *path.split('/').collect::<Vec<_>>() {
            ["card"] => Self::without_tenant(&["extendedAgentCard"]),
            // It has another name there.
            ["extendedAgentCard"] => None,
            ref segments if segments.contains(&"") => None,
            ref segments => Self::without_tenant(segments),
        }
    }

    fn without_tenant(segments: &[&str]) -> Option<Self> {
        let (operations, fields) = match *segments {
            ["tasks"] => (TASKS, Vec::new()),
            ["extendedAgentCard"] => (CARD, Vec::new()),
            ["tasks", id] => match id.rsplit_once(':') {
                Some((id, "cancel")) => (CANCEL, vec![("id", decode(id))]),
                Some((id, "subscribe")) => (SUBSCRIBE, vec![("id", decode(id))]),
                _ => (TASK, vec![("id", decode(id))]),
            },
            ["tasks", task, "pushNotificationConfigs"] => (CONFIGS, vec![("taskId", decode(task))]),
            ["tasks", task, "pushNotificationConfigs", id] => {
                (CONFIG, vec![("taskId", decode(task)), ("id", decode(id))])
            }
            // Some clients encode every colon.
            [literal] => match decode(literal).as_str() {
                "message:send" => (SEND, Vec::new()),
                "message:stream" => (STREAM, Vec::new()),
                _ => return None,
            },
            _ => return None,
        };
        Some(Self { operations, fields })
    }

    /// The operation of a method; else the methods that there are.
    pub(super) fn operation(&self, method: &Method) -> Result<&'static str, &'static str> {
        let found = self.operations.iter().find(|(known, _)| known == method);
        found.map(|(_, operation)| *operation).ok_or_else(|| self.allowed())
    }

    /// As the header `Allow` lists them.
    fn allowed(&self) -> &'static str {
        match self.operations {
            [(Method::GET, _), (Method::POST, _)] => "GET, POST",
            [(Method::GET, _), ..] if self.operations.len() > 1 => "GET, DELETE",
            [(Method::POST, _), ..] => "POST",
            _ => "GET",
        }
    }
}

/// A segment's text. An id that is no UTF-8 names nothing that exists, whatever stands in for it.
fn decode(segment: &str) -> String {
    let bytes: Vec<u8> = percent_encoding::percent_decode_str(segment).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: &Method, path: &str) -> (&'static str, Vec<(&'static str, String)>) {
        let route = Route::of(path).unwrap_or_else(|| panic!("{path}"));
        (route.operation(method).unwrap(), route.fields)
    }

    #[test]
    fn every_path_names_its_operation_with_and_without_a_tenant() {
        let id = || ("id", "t".to_owned());
        let task = || ("taskId", "t".to_owned());
        for (method, path, operation, fields) in [
            (Method::POST, "message:send", "SendMessage", vec![]),
            (Method::POST, "message%3Asend", "SendMessage", vec![]),
            (Method::POST, "message:stream", "SendStreamingMessage", vec![]),
            (Method::GET, "tasks", "ListTasks", vec![]),
            (Method::GET, "tasks/t", "GetTask", vec![id()]),
            (Method::POST, "tasks/t:cancel", "CancelTask", vec![id()]),
            (Method::GET, "tasks/t:subscribe", "SubscribeToTask", vec![id()]),
            (Method::POST, "tasks/t:subscribe", "SubscribeToTask", vec![id()]),
            (
                Method::POST,
                "tasks/t/pushNotificationConfigs",
                "CreateTaskPushNotificationConfig",
                vec![task()],
            ),
            (
                Method::GET,
                "tasks/t/pushNotificationConfigs",
                "ListTaskPushNotificationConfigs",
                vec![task()],
            ),
            (
                Method::GET,
                "tasks/t/pushNotificationConfigs/c",
                "GetTaskPushNotificationConfig",
                vec![task(), ("id", "c".to_owned())],
            ),
            (
                Method::DELETE,
                "tasks/t/pushNotificationConfigs/c",
                "DeleteTaskPushNotificationConfig",
                vec![task(), ("id", "c".to_owned())],
            ),
            (Method::GET, "extendedAgentCard", "GetExtendedAgentCard", vec![]),
        ] {
            let plain = (operation, fields.clone());
            assert_eq!(route(&method, &format!("/{path}")), plain, "{path}");
            assert_eq!(route(&method, &format!("/{path}/")), plain, "{path}/");
            let mut fields = fields;
            fields.push(("tenant", "a b".to_owned()));
            assert_eq!(
                route(&method, &format!("/a%20b/{path}")),
                (operation, fields),
                "tenant {path}"
            );
        }
    }

    #[test]
    fn an_id_may_hold_colons_and_anything_encoded() {
        let id = |path: &str| route(&Method::GET, path).1.remove(0).1;
        assert_eq!(id("/tasks/a:b:subscribe"), "a:b");
        assert_eq!(id("/tasks/a:cancel:subscribe"), "a:cancel");
        assert_eq!(id("/tasks/a:b"), "a:b");
        assert_eq!(id("/tasks/a%3Asubscribe"), "a:subscribe");
        assert_eq!(id("/tasks/%2e%2e%2fx"), "../x");
        assert_eq!(id("/tasks/%ff"), "\u{fffd}");
        assert_eq!(id("/tasks/100%"), "100%");
    }

    #[test]
    fn paths_of_0_3_have_no_tenants() {
        for (path, operation) in [
            ("/message:send", Some("SendMessage")),
            ("/tasks/a:b:subscribe/", Some("SubscribeToTask")),
            ("/tasks", None),
            ("/x/message:send", None),
            ("/extendedAgentCard", None),
            ("//tasks", None),
            ("tasks", None),
            ("", None),
        ] {
            let route = Route::of_0_3(path);
            let found = route.and_then(|route| route.operation(&Method::POST).ok());
            assert_eq!(found, operation, "{path}");
        }
        let card = Route::of_0_3("/card").unwrap();
        assert_eq!(card.operation(&Method::GET), Ok("GetExtendedAgentCard"));
    }

    #[test]
    fn literal_paths_win_over_tenants() {
        assert_eq!(
            route(&Method::GET, "/tasks/tasks"),
            ("GetTask", vec![("id", "tasks".to_owned())])
        );
        assert_eq!(
            route(&Method::GET, "/x/tasks"),
            ("ListTasks", vec![("tenant", "x".to_owned())])
        );
    }

    #[test]
    fn other_paths_and_methods_name_nothing() {
        for path in [
            "",
            "/",
            "//",
            "/x",
            "/v1/message:send/x",
            "/a/b/tasks",
            "//tasks",
            "/tasks//x",
            "/tasks/t/other",
            "/message:sing",
            "/%ff/tasks",
        ] {
            assert_eq!(Route::of(path), None, "{path}");
        }
        for (path, allowed) in [
            ("/message:send", "POST"),
            ("/tasks", "GET"),
            ("/tasks/t", "GET"),
            ("/tasks/t:cancel", "POST"),
            ("/tasks/t:subscribe", "GET, POST"),
            ("/tasks/t/pushNotificationConfigs", "GET, POST"),
            ("/tasks/t/pushNotificationConfigs/c", "GET, DELETE"),
            ("/extendedAgentCard", "GET"),
        ] {
            assert_eq!(
                Route::of(path).unwrap().operation(&Method::PATCH),
                Err(allowed),
                "{path}"
            );
        }
    }
}
