"""The Python SDK of A2A 0.3, as its documentation shows it, against two gateways: older clients go on working."""

import os
import uuid

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.client_factory import minimal_agent_card
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import DataPart, FilePart, FileWithBytes, Message, Part, Role, TaskIdParams, TaskQueryParams, TaskState, TextPart

GATEWAY_A, GATEWAY_B = os.environ["RELEVO_URLS"].split()


def message(text, *parts, **fields):
    text = Part(root=TextPart(text=text))
    return Message(role=Role.user, message_id=uuid.uuid4().hex, parts=[text, *parts], **fields)


def texts(message):
    return "".join(part.root.text for part in message.parts if part.root.kind == "text")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
def transport(request):
    return request.param


@pytest.fixture(params=[True, False], ids=["stream", "send"])
def streaming(request):
    return request.param


@pytest.fixture
async def dial(transport):
    """Makes clients of a gateway that speak one transport."""
    async with httpx.AsyncClient(timeout=60) as http:

        async def dial(gateway, **options):
            card = await A2ACardResolver(http, gateway).get_agent_card()
            assert (card.protocol_version, card.preferred_transport) == ("0.3.0", "JSONRPC")
            config = ClientConfig(
                httpx_client=http, supported_transports=[transport], use_client_preference=True, **options
            )
            return ClientFactory(config).create(card)

        yield dial


@pytest.fixture
async def connect(dial, streaming):
    async def connect(gateway=GATEWAY_A):
        return await dial(gateway, streaming=streaming)

    return connect


async def last_task(events):
    """The task that a send leads to: the SDK folds its events into it."""
    task = None
    async for event in events:
        task = event[0]
    return task


@pytest.mark.anyio
async def test_a_conversation_flows(connect):
    one, other = await connect(), await connect(GATEWAY_B)
    task = await last_task(one.send_message(message("chunks=3 nonce=a end=input-required")))
    assert task.status.state == TaskState.input_required
    more = message("chunks=2 nonce=b artifact=chunks", task_id=task.id, context_id=task.context_id)
    task = await last_task(other.send_message(more))
    assert task.status.state == TaskState.completed
    assert len(task.artifacts) == 1
    read = await one.get_task(TaskQueryParams(id=task.id, history_length=1))
    assert (read.status.state, len(read.history)) == (TaskState.completed, 1)


@pytest.mark.anyio
async def test_parts_of_every_kind_are_taken(connect):
    parts = [
        Part(root=DataPart(data={"a": [1, None, "x"]})),
        Part(root=FilePart(file=FileWithBytes(bytes="AAEC", mime_type="application/octet-stream", name="a.bin"))),
    ]
    client = await connect()
    task = await last_task(client.send_message(message("hello", *parts)))
    asked = task.history[0] if task.history else (await client.get_task(TaskQueryParams(id=task.id))).history[0]
    kinds = [part.root.kind for part in asked.parts]
    assert kinds == ["text", "data", "file"]
    assert (asked.parts[1].root.data, asked.parts[2].root.file.bytes) == ({"a": [1, None, "x"]}, "AAEC")


@pytest.mark.anyio
async def test_tasks_are_listed_on_the_path_that_0_3_has_for_it(connect):
    client, context = await connect(), f"c-{uuid.uuid4().hex}"
    sent = [(await last_task(client.send_message(message("chunks=1", context_id=context)))).id for _ in range(3)]
    seen, token = [], ""
    async with httpx.AsyncClient(timeout=60) as http:
        while True:
            query = {"contextId": context, "pageSize": 2} | ({"pageToken": token} if token else {})
            page = (await http.get(f"{GATEWAY_B}/v1/tasks", params=query)).json()
            assert page["totalSize"] == 3
            seen += [task["id"] for task in page["tasks"]]
            token = page["nextPageToken"]
            if not token:
                break
    assert seen == sent[::-1]


@pytest.mark.anyio
async def test_errors_have_their_codes(connect, transport):
    client = await connect()
    task = await last_task(client.send_message(message("chunks=1")))
    for code, status, call in [
        (-32002, 400, client.cancel_task(TaskIdParams(id=task.id))),
        (-32001, 404, client.get_task(TaskQueryParams(id="nothing"))),
    ]:
        if transport == "JSONRPC":
            with pytest.raises(A2AClientJSONRPCError) as error:
                await call
            assert error.value.error.code == code
        else:
            with pytest.raises(A2AClientHTTPError) as error:
                await call
            assert error.value.status_code == status


@pytest.mark.anyio
async def test_a_running_task_is_followed_and_canceled_at_the_other_gateway(dial):
    one, other = await dial(GATEWAY_A), await dial(GATEWAY_B)
    async for event in one.send_message(message("chunks=500 delay=50 nonce=c")):
        task = event[0]
        break
    heard = 0
    async for event in other.resubscribe(TaskIdParams(id=task.id)):
        heard += 1
        if heard == 3:
            break
    canceled = await other.cancel_task(TaskIdParams(id=task.id))
    assert canceled.status.state == TaskState.canceled


@pytest.mark.anyio
async def test_a_client_that_polls_is_answered_at_once(dial):
    client = await dial(GATEWAY_A, streaming=False, polling=True)
    task = await last_task(client.send_message(message("chunks=500 delay=50")))
    assert task.status.state in (TaskState.submitted, TaskState.working)
    canceled = await client.cancel_task(TaskIdParams(id=task.id))
    assert canceled.status.state == TaskState.canceled


@pytest.mark.anyio
async def test_a_card_is_found_without_the_well_known_path():
    async with httpx.AsyncClient(timeout=60) as http:
        config = ClientConfig(httpx_client=http, supported_transports=["HTTP+JSON"])
        client = ClientFactory(config).create(minimal_agent_card(GATEWAY_A, ["HTTP+JSON"]))
        card = await client.get_card()
        assert card.protocol_version == "0.3.0"
