"""What users of the Python a2a-sdk do, on every binding it has, against a cluster of two gateways."""

import re
import sys
from pathlib import Path
from uuid import uuid4

import anyio
import pytest
from a2a import helpers
from a2a.client import A2ACardResolver, ClientCallContext, ClientConfig, create_client
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.types import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTasksRequest,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils import errors
from conftest import GATEWAY_A, GATEWAY_B

CLIENTS = Path(__file__).parents[4] / "docs/clients.md"
RESUME = "urn:relevo:a2a:resume:v1"

pytestmark = pytest.mark.anyio


def say(text, **ids):
    return SendMessageRequest(message=helpers.new_text_message(text, role=Role.ROLE_USER, **ids))


async def answer(client, request, **options):
    """The task that a call without streaming is answered with."""
    [event] = [event async for event in client.send_message(request, **options)]
    return event.task


async def running(client):
    """A task that will not end by itself, and whose first chunk was seen."""
    stream = client.send_message(say("chunks=1000 delay=200"))
    task = (await anext(stream)).task
    async for event in stream:
        if chunks([event]):
            break
    await stream.aclose()
    return task


def chunks(events):
    """The numbers in the chunks that the events bring."""
    found = []
    for event in events:
        update = event.status_update
        for part in [*update.status.message.parts, *event.artifact_update.artifact.parts]:
            found += [int(line.split()[0].removeprefix("seq=")) for line in part.text.splitlines() if "seq=" in line]
    return found


def context(**parameters):
    return ClientCallContext(service_parameters=parameters)


async def test_the_card_is_found_at_its_well_known_path(http):
    card = await A2ACardResolver(http, GATEWAY_A).get_agent_card()
    assert {interface.protocol_binding for interface in card.supported_interfaces} == {"JSONRPC", "HTTP+JSON", "GRPC"}
    assert {interface.protocol_version for interface in card.supported_interfaces} == {"1.0", "0.3"}
    assert card.capabilities.streaming


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_what_is_offered_to_clients_of_0_3_serves_this_one_too(http, binding):
    async def connect(gateway):
        card = await A2ACardResolver(http, gateway).get_agent_card()
        old = [interface for interface in card.supported_interfaces if interface.protocol_version == "0.3"]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(old)
        config = ClientConfig(supported_protocol_bindings=[binding], httpx_client=http, streaming=True)
        return await create_client(card, config)

    async with await connect(GATEWAY_A) as client, await connect(GATEWAY_B) as other:
        task = await running(client)
        assert (await other.get_task(GetTaskRequest(id=task.id))).id == task.id
        with pytest.raises(NotImplementedError):
            await client.list_tasks(ListTasksRequest())
        # What the SDK has no call for in 0.3 is on its path. The SDK has made the HTTP client name version 1.0.
        query, old = {"contextId": task.context_id}, {"A2A-Version": "0.3"}
        page = (await http.get(f"{GATEWAY_B}/v1/tasks", params=query, headers=old)).json()
        assert [listed["id"] for listed in page["tasks"]] == [task.id]
        subscription = other.subscribe(SubscribeToTaskRequest(id=task.id))
        assert (await anext(subscription)).task.id == task.id
        canceled = await other.cancel_task(CancelTaskRequest(id=task.id))
        assert canceled.status.state == TaskState.TASK_STATE_CANCELED
        events = [event async for event in subscription]
        assert events[-1].status_update.status.state == TaskState.TASK_STATE_CANCELED


async def test_a_blocking_send_is_answered_with_the_ended_task(connect):
    client = await connect(streaming=False)
    task = await answer(client, say("chunks=3 nonce=abc"))
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert "nonce=abc" in helpers.get_message_text(task.status.message)
    assert task.context_id and task.status.timestamp.seconds > 0


async def test_a_polling_client_gets_its_task_at_once_and_looks_for_the_end(connect):
    client = await connect(streaming=False, polling=True)
    task = await answer(client, say("chunks=2 delay=500"))
    assert task.status.state in (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING)
    other = await connect(GATEWAY_B)
    while task.status.state != TaskState.TASK_STATE_COMPLETED:
        await anyio.sleep(0.05)
        task = await other.get_task(GetTaskRequest(id=task.id))


async def test_a_stream_begins_with_the_task_brings_every_chunk_in_order_and_ends(connect):
    client = await connect()
    events = [event async for event in client.send_message(say("chunks=50 delay=2"))]
    assert events[0].HasField("task")
    assert chunks(events) == list(range(50))
    assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
    assert {event.status_update.task_id for event in events[1:]} == {events[0].task.id}


async def test_an_artifact_is_streamed_in_pieces_and_kept_whole(connect):
    client = await connect()
    events = [event async for event in client.send_message(say("chunks=4 artifact=chunks"))]
    updates = [event.artifact_update for event in events if event.HasField("artifact_update")]
    assert chunks(events) == [0, 1, 2, 3]
    assert [update.append for update in updates] == [False, True, True, True]
    assert [update.last_chunk for update in updates] == [False, False, False, True]
    task = await client.get_task(GetTaskRequest(id=events[0].task.id))
    [artifact] = task.artifacts
    assert artifact.artifact_id == updates[0].artifact.artifact_id
    assert [line.split()[0] for line in helpers.get_artifact_text(artifact, "").splitlines()] == [f"seq={i}" for i in range(4)]


async def test_a_file_comes_as_bytes(connect):
    client = await connect(streaming=False)
    [artifact] = (await answer(client, say("chunks=2 nonce=n-1 artifact=file"))).artifacts
    [part] = artifact.parts
    assert b"nonce=n-1" in part.raw
    assert part.filename and part.media_type


async def test_parts_of_every_kind_arrive_as_they_were_sent(connect):
    client = await connect(streaming=False)
    data = {"text": "ü", "list": [1, 2.5, None, True], "empty": {}}
    parts = [
        helpers.new_text_part("chunks=1"),
        helpers.new_data_part(data, media_type="application/json"),
        helpers.new_raw_part(bytes(range(256)), media_type="image/png", filename="all.png"),
        helpers.new_url_part("https://example.com/a.pdf", media_type="application/pdf", filename="a.pdf"),
    ]
    message = helpers.new_message(parts, role=Role.ROLE_USER)
    message.metadata.update({"urn:example:note": {"level": 3}})
    task = await answer(client, SendMessageRequest(message=message))
    [kept] = [m for m in task.history if m.message_id == message.message_id]
    assert helpers.get_text_parts(kept.parts) == ["chunks=1"]
    assert helpers.get_data_parts(kept.parts) == [data]
    assert helpers.get_raw_parts(kept.parts) == [bytes(range(256))]
    assert helpers.get_url_parts(kept.parts) == ["https://example.com/a.pdf"]
    assert [(p.filename, p.media_type) for p in kept.parts] == [(p.filename, p.media_type) for p in parts]
    assert kept.metadata == message.metadata


async def test_history_length_is_obeyed(connect):
    client = await connect(streaming=False)
    task = await answer(client, say("chunks=1 end=input-required"))
    await answer(client, say("chunks=1", task_id=task.id))
    whole = await client.get_task(GetTaskRequest(id=task.id))
    assert len(whole.history) >= 3
    for length in (0, 1, 2):
        part = await client.get_task(GetTaskRequest(id=task.id, history_length=length))
        assert list(part.history) == list(whole.history)[len(whole.history) - length :]
    request = say("chunks=1")
    request.configuration.history_length = 0
    assert not (await answer(client, request)).history


async def test_a_task_that_asks_for_input_goes_on_with_the_answer_on_another_gateway(connect):
    asked = await answer(await connect(streaming=False), say("chunks=1 end=input-required"))
    assert asked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    client = await connect(GATEWAY_B)
    follow_up = say("chunks=3", task_id=asked.id, context_id=asked.context_id)
    events = [event async for event in client.send_message(follow_up)]
    assert events[0].task.id == asked.id
    assert chunks(events) == [0, 1, 2]
    assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


async def test_tasks_are_listed_by_context_page_by_page(connect):
    client = await connect(streaming=False)
    name = f"c-{uuid4()}"
    sent = [(await answer(client, say("chunks=1 artifact=chunks", context_id=name))).id for _ in range(5)]
    other = await connect(GATEWAY_B)
    seen, token = [], ""
    while True:
        page = await other.list_tasks(ListTasksRequest(context_id=name, page_size=2, page_token=token))
        assert (page.total_size, page.page_size) == (5, 2)
        assert not any(task.artifacts for task in page.tasks)
        seen += [task.id for task in page.tasks]
        token = page.next_page_token
        if not token:
            break
    assert seen == sent[::-1]
    whole = await other.list_tasks(ListTasksRequest(context_id=name, include_artifacts=True, history_length=1))
    assert all(task.artifacts and len(task.history) == 1 for task in whole.tasks)
    failed = ListTasksRequest(context_id=name, status=TaskState.TASK_STATE_FAILED)
    assert not (await other.list_tasks(failed)).tasks


async def test_a_running_task_is_canceled_from_another_gateway(connect):
    task = await running(await connect())
    other = await connect(GATEWAY_B)
    assert (await other.cancel_task(CancelTaskRequest(id=task.id))).status.state == TaskState.TASK_STATE_CANCELED
    with pytest.raises(errors.TaskNotCancelableError):
        await other.cancel_task(CancelTaskRequest(id=task.id))


async def test_a_running_task_is_followed_from_another_gateway_to_its_end(connect):
    client = await connect()
    task = await running(client)
    other, events, canceled = await connect(GATEWAY_B), [], False
    async for event in other.subscribe(SubscribeToTaskRequest(id=task.id)):
        events.append(event)
        # Enough was seen, and the end is still to come.
        if len(chunks(events)) == 3 and not canceled:
            canceled = await client.cancel_task(CancelTaskRequest(id=task.id))
    told = chunks(events)
    assert told == list(range(told[0], told[0] + len(told)))
    assert events[0].task.id == task.id
    assert events[-1].status_update.status.state == TaskState.TASK_STATE_CANCELED


async def test_a_repeated_send_with_an_idempotency_key_is_the_same_task(connect):
    request, key = say("chunks=2"), context(**{"Idempotency-Key": str(uuid4())})
    first = await answer(await connect(streaming=False), request, context=key)
    again = await answer(await connect(GATEWAY_B, streaming=False), request, context=key)
    assert again.id == first.id


async def test_tenants_do_not_see_each_other(connect):
    client = await connect(streaming=False)
    request = say("chunks=1")
    request.tenant = "acme"
    task = await answer(client, request)
    assert (await client.get_task(GetTaskRequest(id=task.id, tenant="acme"))).id == task.id
    with pytest.raises(errors.TaskNotFoundError):
        await client.get_task(GetTaskRequest(id=task.id, tenant="other"))


async def test_errors_are_those_of_the_sdk(connect):
    client = await connect()
    blocking = await connect(streaming=False)
    ended = await answer(blocking, say("chunks=1"))
    config = SendMessageConfiguration(task_push_notification_config=TaskPushNotificationConfig(url="https://example.com"))
    pushed = SendMessageRequest(message=say("chunks=1").message, configuration=config)
    calls = {
        "an unknown task": (errors.TaskNotFoundError, client.get_task(GetTaskRequest(id="no-such"))),
        "an unknown task to continue": (errors.TaskNotFoundError, answer(blocking, say("x", task_id="no-such"))),
        "an ended task to continue": (errors.UnsupportedOperationError, answer(client, say("x", task_id=ended.id))),
        "an ended task to follow": (
            errors.UnsupportedOperationError,
            anext(client.subscribe(SubscribeToTaskRequest(id=ended.id))),
        ),
        "an ended task to cancel": (errors.TaskNotCancelableError, client.cancel_task(CancelTaskRequest(id=ended.id))),
        "no parts": (errors.InvalidParamsError, answer(blocking, SendMessageRequest(message=helpers.new_message([])))),
        "a page too large": (errors.InvalidParamsError, client.list_tasks(ListTasksRequest(page_size=101))),
        "another context": (
            errors.InvalidParamsError,
            answer(blocking, say("x", task_id=ended.id, context_id=f"c-{uuid4()}")),
        ),
        "push in a message": (errors.PushNotificationNotSupportedError, answer(blocking, pushed)),
        "push": (
            errors.PushNotificationNotSupportedError,
            client.get_task_push_notification_config(GetTaskPushNotificationConfigRequest(task_id=ended.id, id="p")),
        ),
    }
    for what, (expected, call) in calls.items():
        with pytest.raises(expected):
            pytest.fail(f"{what}: no error, but {await call}")


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"], indirect=True)
async def test_another_version_is_refused(connect):
    """The gRPC transport of the SDK always sends its own version."""
    client = await connect()
    with pytest.raises(errors.VersionNotSupportedError):
        await client.get_task(GetTaskRequest(id="any"), context=context(**{"A2A-Version": "2.0"}))


async def test_the_extended_card_is_the_public_one(connect):
    card = await (await connect()).get_extended_agent_card(GetExtendedAgentCardRequest())
    assert card.name == "demo"


@pytest.mark.parametrize("binding", ["GRPC"], indirect=True)
async def test_a_broken_stream_goes_on_where_it_was_on_another_gateway(connect):
    """Only gRPC: over HTTP the positions are the ids of the events, which the SDK does not show."""
    wish = ServiceParametersFactory.create([with_a2a_extensions([RESUME])])
    client = await connect()
    stream = client.send_message(say("chunks=20 delay=10"), context=context(**wish))
    events = [await anext(stream) for _ in range(8)]
    await stream.aclose()
    position = events[-1].status_update.metadata[RESUME]["cursor"]
    other = await connect(GATEWAY_B)
    request = SubscribeToTaskRequest(id=events[0].task.id)
    events += [e async for e in other.subscribe(request, context=context(**wish, **{"Last-Event-ID": position}))]
    assert chunks(events) == list(range(20))


async def test_the_example_in_the_documentation_runs():
    example = re.search("```python\n(.*?)```", CLIENTS.read_text(), re.DOTALL)[1]
    example = example.replace("http://127.0.0.1:41242", GATEWAY_A)
    result = await anyio.run_process([sys.executable, "-c", example])
    assert [line.split()[0] for line in result.stdout.decode().splitlines() if "seq=" in line] == [f"seq={i}" for i in range(5)]
