"""The agent of `server.py` on the Python SDK of A2A 0.3: `server03.py PORT FOLDER`."""

import asyncio
import sys
from pathlib import Path

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part, TextPart
from a2a.utils import new_task

PORT, FOLDER = int(sys.argv[1]), Path(sys.argv[2])


def text_part(text):
    return Part(root=TextPart(text=text))


class Executor(AgentExecutor):
    async def execute(self, context, queue):
        with (FOLDER / "runs").open("a") as runs:
            runs.write("run\n")
        if context.current_task is None:
            await queue.enqueue_event(new_task(context.message))
        task = TaskUpdater(queue, context.task_id, context.context_id)
        await task.start_work()
        text = context.get_user_input()
        if text == "wait":
            await task.add_artifact([text_part("waiting")], artifact_id="out", append=False)
            await asyncio.Event().wait()
        for n in range(10):
            while text == "pause" and n == 5 and not (FOLDER / "go").exists():
                await asyncio.sleep(0.02)
            await task.add_artifact([text_part(f"{n} ")], artifact_id="out", append=n > 0, last_chunk=n == 9)
            await asyncio.sleep(0.05)
        await task.complete(task.new_agent_message([text_part(f"you said {text}")]))

    async def cancel(self, context, queue):
        (FOLDER / "canceled").touch()
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


card = AgentCard(
    name="SDK agent",
    description="An agent on the Python SDK.",
    version="1",
    url=f"http://localhost:{PORT}/",
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    capabilities=AgentCapabilities(streaming=True),
    skills=[AgentSkill(id="x", name="x", description="x", tags=["x"])],
)
handler = DefaultRequestHandler(Executor(), InMemoryTaskStore())
uvicorn.run(A2AStarletteApplication(card, handler).build(), host="127.0.0.1", port=PORT, log_level="warning")
