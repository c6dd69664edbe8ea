"""The clients of the tests. RELEVO_URLS says where the two gateways are; `gateway/tests/sdk/run` sets it."""

import os
from contextlib import AsyncExitStack

import grpc
import httpx
import pytest
from a2a.client import ClientConfig, create_client

GATEWAY_A, GATEWAY_B = os.environ["RELEVO_URLS"].split()


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
async def http():
    """One connection pool. By default the SDK gives up when a stream is silent for 5 seconds."""
    async with httpx.AsyncClient(timeout=60) as http:
        yield http


@pytest.fixture(params=["JSONRPC", "HTTP+JSON", "GRPC"])
def binding(request):
    return request.param


@pytest.fixture
async def connect(binding, http):
    """Makes clients of a gateway that speak one binding, and closes them after the test."""
    async with AsyncExitStack() as clients:

        async def connect(gateway=GATEWAY_A, **options):
            config = ClientConfig(
                supported_protocol_bindings=[binding],
                httpx_client=http,
                grpc_channel_factory=grpc.aio.insecure_channel,
                **options,
            )
            return await clients.enter_async_context(await create_client(gateway, config))

        yield connect
