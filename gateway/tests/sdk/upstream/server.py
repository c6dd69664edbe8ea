"""An agent on the server of the Python SDK, as its users write it: `server.py PORT FOLDER BINDING`. It keeps its tasks in memory.

It streams ten pieces of an artifact. Told to pause, it waits after five of them for the file `go` in FOLDER; told to wait, it works
until it is canceled, and then writes `canceled`. Every run of it adds a line to `runs`.
"""

import sys
from pathlib import Path

import anyio
import uvicorn
from a2a import helpers
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, Role
from starlette.applications import Starlette

PORT, FOLDER, BINDING = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]


class Executor(AgentExecutor):
    async def execute(self, context, queue):
        with (FOLDER / "runs").open("a") as runs:
            runs.write("run\n")
        if context.current_task is None:
            await queue.enqueue_event(helpers.new_task_from_user_message(context.message))
        task = TaskUpdater(queue, context.task_id, context.context_id)
        await task.start_work()
        text = context.get_user_input()
        if text == "wait":
            await task.add_artifact([Part(text="waiting")], artifact_id="out", append=False)
            await anyio.sleep_forever()
        for n in range(10):
            while text == "pause" and n == 5 and not (FOLDER / "go").exists():
                await anyio.sleep(0.02)
            await task.add_artifact([Part(text=f"{n} ")], artifact_id="out", append=n > 0, last_chunk=n == 9)
            await anyio.sleep(0.05)
        await task.complete(helpers.new_text_message(f"you said {text}", role=Role.ROLE_AGENT))

    async def cancel(self, context, queue):
        (FOLDER / "canceled").touch()
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


card = AgentCard(
    name="SDK agent",
    description="An agent on the Python SDK.",
    version="1",
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    capabilities=AgentCapabilities(streaming=True),
    skills=[AgentSkill(id="x", name="x", description="x", tags=["x"])],
    supported_interfaces=[
        AgentInterface(url=f"http://localhost:{PORT}/", protocol_binding=BINDING, protocol_version="1.0")
    ],
)
handler = DefaultRequestHandler(Executor(), InMemoryTaskStore(), card)
served = create_jsonrpc_routes(handler, "/") if BINDING == "JSONRPC" else create_rest_routes(handler)
app = Starlette(routes=[*create_agent_card_routes(card), *served])
uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
