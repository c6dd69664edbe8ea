// What users of the JavaScript @a2a-js/sdk do, on every binding it has, against a cluster of two gateways.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";

import {
  CancelTaskRequest,
  GetTaskRequest,
  ListTasksRequest,
  Message,
  Role,
  SendMessageRequest,
  SubscribeToTaskRequest,
  TaskState,
} from "@a2a-js/sdk";
import {
  AgentCardResolver,
  ClientFactory,
  ClientFactoryOptions,
  JsonRpcTransportFactory,
  RestTransportFactory,
  ServiceParameters,
  withA2AExtensions,
  withA2AVersion,
} from "@a2a-js/sdk/client";
import { GrpcTransportFactory } from "@a2a-js/sdk/client/grpc";
import {
  PushNotificationNotSupportedError,
  RequestMalformedError,
  TaskNotCancelableError,
  TaskNotFoundError,
  UnsupportedOperationError,
  VersionNotSupportedError,
} from "@a2a-js/sdk/errors";

const [gatewayA, gatewayB] = process.env.RELEVO_URLS.split(" ");
const RESUME = "urn:relevo:a2a:resume:v1";

const text = (value) => ({ content: { $case: "text", value }, metadata: undefined, filename: "", mediaType: "" });

// The types of the SDK want every field, and `fromJSON` fills in those that are missing.
function message(parts, fields = {}) {
  return { ...Message.fromJSON({ messageId: randomUUID(), role: "ROLE_USER", ...fields }), parts };
}

function say(words, fields = {}, configuration = {}) {
  return { ...SendMessageRequest.fromJSON({ configuration }), message: message([text(words)], fields) };
}

const cases = (events) => events.map((event) => event.payload.$case);
const updates = (events, kind) =>
  events.filter((event) => event.payload.$case === kind).map((event) => event.payload.value);
const lastState = (events) => events.at(-1).payload.value.status.state;

/** The numbers in the chunks that the events bring. */
function chunks(events) {
  const parts = events.flatMap(({ payload: { $case, value } }) =>
    $case === "statusUpdate" ? (value.status.message?.parts ?? []) : $case === "artifactUpdate" ? value.artifact.parts : [],
  );
  return parts.flatMap((part) => [...part.content.value.matchAll(/seq=(\d+)/g)].map((match) => Number(match[1])));
}

async function all(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

test("the card is found at its well-known path", async () => {
  const card = await AgentCardResolver.default.resolve(gatewayA);
  const bindings = card.supportedInterfaces.map((found) => [found.protocolBinding, found.protocolVersion]);
  assert.deepEqual(bindings, [["JSONRPC", "1.0"], ["HTTP+JSON", "1.0"], ["GRPC", "1.0"], ["JSONRPC", "0.3"], ["HTTP+JSON", "0.3"]]);
  assert.equal(card.capabilities.streaming, true);
});

for (const binding of ["JSONRPC", "HTTP+JSON", "GRPC"]) {
  describe(binding, () => {
    const options = (clientConfig) =>
      ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
        transports: [new GrpcTransportFactory()],
        preferredTransports: [binding],
        clientConfig,
      });
    const connect = (gateway = gatewayA, config = {}) => new ClientFactory(options(config)).createFromUrl(gateway);

    /** A task that will not end by itself, and whose first chunk was seen. */
    async function running(client) {
      let task;
      for await (const event of client.sendMessageStream(say("chunks=1000 delay=200"))) {
        task ??= event.payload.value;
        if (chunks([event]).length > 0) return task;
      }
    }

    test("a blocking send is answered with the ended task", async () => {
      const client = await connect();
      const task = await client.sendMessage(say("chunks=3 nonce=abc"));
      assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
      assert.match(task.status.message.parts[0].content.value, /nonce=abc/);
      assert.ok(task.contextId && Date.parse(task.status.timestamp));
    });

    test("a send that returns immediately is answered with the task that runs", async () => {
      const client = await connect();
      const task = await client.sendMessage(say("chunks=2 delay=500", {}, { returnImmediately: true }));
      assert.ok([TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING].includes(task.status.state));
      const other = await connect(gatewayB);
      const events = await all(other.resubscribeTask(SubscribeToTaskRequest.fromJSON({ id: task.id })));
      assert.equal(lastState(events), TaskState.TASK_STATE_COMPLETED);
    });

    test("a stream begins with the task, brings every chunk in order and ends", async () => {
      const client = await connect();
      const events = await all(client.sendMessageStream(say("chunks=50 delay=2")));
      assert.equal(cases(events)[0], "task");
      assert.deepEqual(chunks(events), [...Array(50).keys()]);
      assert.equal(lastState(events), TaskState.TASK_STATE_COMPLETED);
    });

    test("an artifact is streamed in pieces and kept whole", async () => {
      const client = await connect();
      const events = await all(client.sendMessageStream(say("chunks=4 artifact=chunks")));
      const pieces = updates(events, "artifactUpdate");
      assert.deepEqual(chunks(events), [0, 1, 2, 3]);
      assert.deepEqual(pieces.map((piece) => piece.append), [false, true, true, true]);
      assert.deepEqual(pieces.map((piece) => piece.lastChunk), [false, false, false, true]);
      const task = await client.getTask(GetTaskRequest.fromJSON({ id: events[0].payload.value.id }));
      assert.equal(task.artifacts.length, 1);
      assert.equal(task.artifacts[0].artifactId, pieces[0].artifact.artifactId);
      const whole = task.artifacts[0].parts.map((part) => part.content.value).join("");
      assert.deepEqual(whole.match(/seq=\d/g), ["seq=0", "seq=1", "seq=2", "seq=3"]);
    });

    test("a file comes as bytes", async () => {
      const task = await (await connect()).sendMessage(say("chunks=2 nonce=n-1 artifact=file"));
      const [part] = task.artifacts[0].parts;
      assert.equal(part.content.$case, "raw");
      assert.ok(part.content.value.includes("nonce=n-1"));
      assert.ok(part.filename && part.mediaType);
    });

    test("parts of every kind arrive as they were sent", async () => {
      const client = await connect();
      const part = ($case, value, mediaType, filename = "") => ({ ...text(""), content: { $case, value }, mediaType, filename });
      const parts = [
        text("chunks=1"),
        part("data", { text: "ü", list: [1, 2.5, null, true], empty: {} }, "application/json"),
        part("raw", Buffer.from([...Array(256).keys()]), "image/png", "all.png"),
        part("url", "https://example.com/a.pdf", "application/pdf", "a.pdf"),
      ];
      const sent = message(parts, { metadata: { "urn:example:note": { level: 3 } } });
      const task = await client.sendMessage({ ...say(""), message: sent });
      const kept = task.history.find((found) => found.messageId === sent.messageId);
      assert.deepEqual(kept.parts, parts);
      assert.deepEqual(kept.metadata, sent.metadata);
      assert.equal(kept.role, Role.ROLE_USER);
    });

    test("historyLength is obeyed", async () => {
      const client = await connect();
      const { id } = await client.sendMessage(say("chunks=1 end=input-required"));
      await client.sendMessage(say("chunks=1", { taskId: id }));
      const { history } = await client.getTask(GetTaskRequest.fromJSON({ id }));
      assert.ok(history.length >= 3);
      for (const historyLength of [0, 1, 2]) {
        const part = await client.getTask(GetTaskRequest.fromJSON({ id, historyLength }));
        assert.deepEqual(part.history, history.slice(history.length - historyLength));
      }
      const task = await client.sendMessage(say("chunks=1", {}, { historyLength: 0 }));
      assert.deepEqual(task.history, []);
    });

    test("a task that asks for input goes on with the answer on another gateway", async () => {
      const asked = await (await connect()).sendMessage(say("chunks=1 end=input-required"));
      assert.equal(asked.status.state, TaskState.TASK_STATE_INPUT_REQUIRED);
      const answer = say("chunks=3", { taskId: asked.id, contextId: asked.contextId });
      const events = await all((await connect(gatewayB)).sendMessageStream(answer));
      assert.equal(events[0].payload.value.id, asked.id);
      assert.deepEqual(chunks(events), [0, 1, 2]);
      assert.equal(lastState(events), TaskState.TASK_STATE_COMPLETED);
    });

    test("tasks are listed by context, page by page", async () => {
      const client = await connect();
      const contextId = `c-${randomUUID()}`;
      const sent = [];
      for (let i = 0; i < 5; i++) sent.unshift((await client.sendMessage(say("chunks=1 artifact=chunks", { contextId }))).id);
      const other = await connect(gatewayB);
      const seen = [];
      let pageToken = "";
      do {
        const page = await other.listTasks(ListTasksRequest.fromJSON({ contextId, pageSize: 2, pageToken }));
        assert.deepEqual([page.totalSize, page.pageSize], [5, 2]);
        assert.ok(page.tasks.every((task) => task.artifacts.length === 0));
        seen.push(...page.tasks.map((task) => task.id));
        pageToken = page.nextPageToken;
      } while (pageToken);
      assert.deepEqual(seen, sent);
      const whole = await other.listTasks(ListTasksRequest.fromJSON({ contextId, includeArtifacts: true, historyLength: 1 }));
      assert.ok(whole.tasks.every((task) => task.artifacts.length === 1 && task.history.length === 1));
      const failed = await other.listTasks(ListTasksRequest.fromJSON({ contextId, status: "TASK_STATE_FAILED" }));
      assert.deepEqual(failed.tasks, []);
    });

    test("a running task is canceled from another gateway", async () => {
      const { id } = await running(await connect());
      const other = await connect(gatewayB);
      const task = await other.cancelTask(CancelTaskRequest.fromJSON({ id }));
      assert.equal(task.status.state, TaskState.TASK_STATE_CANCELED);
      await assert.rejects(other.cancelTask(CancelTaskRequest.fromJSON({ id })), TaskNotCancelableError);
    });

    test("a running task is followed from another gateway to its end", async () => {
      const client = await connect();
      const { id } = await running(client);
      const events = [];
      let cancel;
      for await (const event of (await connect(gatewayB)).resubscribeTask(SubscribeToTaskRequest.fromJSON({ id }))) {
        events.push(event);
        // Enough was seen, and the end is still to come.
        if (chunks(events).length === 3) cancel ??= client.cancelTask(CancelTaskRequest.fromJSON({ id }));
      }
      await cancel;
      const told = chunks(events);
      assert.deepEqual(told, told.map((_, i) => told[0] + i));
      assert.deepEqual([cases(events)[0], events[0].payload.value.id], ["task", id]);
      assert.equal(lastState(events), TaskState.TASK_STATE_CANCELED);
    });

    test("a repeated send with an idempotency key is the same task", async () => {
      const request = say("chunks=2");
      const key = { serviceParameters: { "Idempotency-Key": randomUUID() } };
      const first = await (await connect()).sendMessage(request, key);
      const again = await (await connect(gatewayB)).sendMessage(request, key);
      assert.equal(again.id, first.id);
    });

    test("tenants do not see each other", async () => {
      const client = await connect();
      const { id } = await client.sendMessage({ ...say("chunks=1"), tenant: "acme" });
      assert.equal((await client.getTask(GetTaskRequest.fromJSON({ id, tenant: "acme" }))).id, id);
      await assert.rejects(client.getTask(GetTaskRequest.fromJSON({ id, tenant: "other" })), TaskNotFoundError);
    });

    test("errors are those of the SDK", async () => {
      const client = await connect();
      const ended = await client.sendMessage(say("chunks=1"));
      const push = { taskPushNotificationConfig: { url: "https://example.com" } };
      const get = (id) => client.getTask(GetTaskRequest.fromJSON({ id }));
      const follow = (id) => all(client.resubscribeTask(SubscribeToTaskRequest.fromJSON({ id })));
      await assert.rejects(get("no-such"), TaskNotFoundError);
      await assert.rejects(follow("no-such"), TaskNotFoundError);
      await assert.rejects(client.sendMessage(say("x", { taskId: "no-such" })), TaskNotFoundError);
      await assert.rejects(client.sendMessage(say("x", { taskId: ended.id })), UnsupportedOperationError);
      await assert.rejects(all(client.sendMessageStream(say("x", { taskId: ended.id }))), UnsupportedOperationError);
      await assert.rejects(follow(ended.id), UnsupportedOperationError);
      await assert.rejects(client.cancelTask(CancelTaskRequest.fromJSON({ id: ended.id })), TaskNotCancelableError);
      await assert.rejects(client.sendMessage({ ...say(""), message: message([]) }), RequestMalformedError);
      await assert.rejects(client.listTasks(ListTasksRequest.fromJSON({ pageSize: 101 })), RequestMalformedError);
      await assert.rejects(client.sendMessage(say("x", {}, push)), PushNotificationNotSupportedError);
    });

    test("another version is refused", async () => {
      const before = async (call) => withA2AVersion("2.0")(call.options.serviceParameters);
      const client = await connect(gatewayA, { interceptors: [{ before, after: async () => {} }] });
      await assert.rejects(client.getTask(GetTaskRequest.fromJSON({ id: "any" })), VersionNotSupportedError);
    });
  });
}

// What the SDK's transports for servers of 0.3 do, on what the card offers in 0.3, at both gateways.
for (const binding of ["JSONRPC", "HTTP+JSON"]) {
  describe(`${binding} of 0.3`, () => {
    const compat = { legacyCompat: { enabled: true } };
    const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
      transports: [new JsonRpcTransportFactory(compat), new RestTransportFactory(compat)],
      preferredTransports: [binding],
    });

    async function connect(gateway) {
      const card = await AgentCardResolver.default.resolve(gateway);
      card.supportedInterfaces = card.supportedInterfaces.filter((found) => found.protocolVersion === "0.3");
      assert.ok(card.supportedInterfaces.length > 0);
      return new ClientFactory(options).createFromAgentCard(card);
    }

    /** A task that will not end by itself, and whose first chunk was seen. */
    async function running(client) {
      let task;
      for await (const event of client.sendMessageStream(say("chunks=1000 delay=200"))) {
        task ??= event.payload.value;
        if (chunks([event]).length > 0) return task;
      }
    }

    test("a blocking send is answered with the ended task, and files come back as they were sent", async () => {
      const bytes = Buffer.from([0, 255, 254]);
      const file = { content: { $case: "raw", value: bytes }, mediaType: "application/octet-stream", filename: "", metadata: undefined };
      const sent = await (await connect(gatewayA)).sendMessage({ ...say(""), message: message([text("chunks=2"), file]) });
      assert.equal(sent.status.state, TaskState.TASK_STATE_COMPLETED);
      const task = await (await connect(gatewayB)).getTask(GetTaskRequest.fromJSON({ id: sent.id }));
      assert.deepEqual(Buffer.from(task.history[0].parts[1].content.value), bytes);
    });

    test("a stream begins with the task, brings every chunk in order and ends", async () => {
      for (const gateway of [gatewayA, gatewayB]) {
        const events = await all((await connect(gateway)).sendMessageStream(say("chunks=20 delay=2")));
        assert.equal(cases(events)[0], "task");
        assert.deepEqual(chunks(events), [...Array(20).keys()]);
        assert.equal(lastState(events), TaskState.TASK_STATE_COMPLETED);
      }
    });

    test("an artifact is streamed in pieces and kept whole", async () => {
      const events = await all((await connect(gatewayA)).sendMessageStream(say("chunks=5 artifact=chunks")));
      assert.deepEqual(chunks(events), [0, 1, 2, 3, 4]);
      const { id } = events[0].payload.value;
      const task = await (await connect(gatewayB)).getTask(GetTaskRequest.fromJSON({ id }));
      const whole = task.artifacts[0].parts.map((part) => part.content.value).join("");
      assert.deepEqual(whole.match(/seq=\d/g), ["seq=0", "seq=1", "seq=2", "seq=3", "seq=4"]);
    });

    test("a task that asks for input goes on with the answer on another gateway", async () => {
      const asked = await (await connect(gatewayA)).sendMessage(say("chunks=1 end=input-required"));
      assert.equal(asked.status.state, TaskState.TASK_STATE_INPUT_REQUIRED);
      const answer = say("chunks=3", { taskId: asked.id, contextId: asked.contextId });
      const events = await all((await connect(gatewayB)).sendMessageStream(answer));
      assert.equal(events[0].payload.value.id, asked.id);
      assert.equal(lastState(events), TaskState.TASK_STATE_COMPLETED);
    });

    test("a running task is canceled from another gateway", async () => {
      const { id } = await running(await connect(gatewayA));
      const other = await connect(gatewayB);
      const task = await other.cancelTask(CancelTaskRequest.fromJSON({ id }));
      assert.equal(task.status.state, TaskState.TASK_STATE_CANCELED);
      await assert.rejects(other.cancelTask(CancelTaskRequest.fromJSON({ id })), TaskNotCancelableError);
    });

    test("a running task is followed from another gateway to its end", async () => {
      const client = await connect(gatewayA);
      const { id } = await running(client);
      const events = [];
      let cancel;
      for await (const event of (await connect(gatewayB)).resubscribeTask(SubscribeToTaskRequest.fromJSON({ id }))) {
        events.push(event);
        if (chunks(events).length === 3) cancel ??= client.cancelTask(CancelTaskRequest.fromJSON({ id }));
      }
      await cancel;
      const told = chunks(events);
      assert.deepEqual(told, told.map((_, i) => told[0] + i));
      assert.deepEqual([cases(events)[0], events[0].payload.value.id], ["task", id]);
      assert.equal(lastState(events), TaskState.TASK_STATE_CANCELED);
    });

    // 0.3 has a listing on one path only, and the SDK has no call for it.
    test("tasks are listed on the path that 0.3 has for it", async () => {
      const client = await connect(gatewayA);
      const contextId = `c-${randomUUID()}`;
      const sent = [];
      for (let i = 0; i < 3; i++) sent.unshift((await client.sendMessage(say("chunks=1", { contextId }))).id);
      await assert.rejects(client.listTasks(ListTasksRequest.fromJSON({ contextId })));
      const seen = [];
      let pageToken = "";
      do {
        const query = new URLSearchParams({ contextId, pageSize: "2", ...(pageToken && { pageToken }) });
        const page = await (await fetch(`${gatewayB}/v1/tasks?${query}`)).json();
        assert.equal(page.totalSize, 3);
        seen.push(...page.tasks.map((task) => task.id));
        pageToken = page.nextPageToken;
      } while (pageToken);
      assert.deepEqual(seen, sent);
    });

    test("errors are those of the SDK", async () => {
      for (const gateway of [gatewayA, gatewayB]) {
        const client = await connect(gateway);
        await assert.rejects(client.getTask(GetTaskRequest.fromJSON({ id: "no-such" })), TaskNotFoundError);
        await assert.rejects(client.cancelTask(CancelTaskRequest.fromJSON({ id: "no-such" })), TaskNotFoundError);
      }
    });
  });
}

test("GRPC: a broken stream goes on where it was on another gateway", async () => {
  const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [new GrpcTransportFactory()],
    preferredTransports: ["GRPC"],
  });
  const connect = (gateway) => new ClientFactory(options).createFromUrl(gateway);
  const wish = ServiceParameters.create(withA2AExtensions(RESUME));
  const events = [];
  for await (const event of (await connect(gatewayA)).sendMessageStream(say("chunks=20 delay=10"), { serviceParameters: wish })) {
    if (events.push(event) === 8) break;
  }
  const { taskId: id, metadata } = events.at(-1).payload.value;
  const position = { serviceParameters: { ...wish, "Last-Event-ID": metadata[RESUME].cursor } };
  events.push(...(await all((await connect(gatewayB)).resubscribeTask(SubscribeToTaskRequest.fromJSON({ id }), position))));
  assert.deepEqual(chunks(events), [...Array(20).keys()]);
});

test("the example in the documentation runs", () => {
  const [, example] = readFileSync("clients.md", "utf8").match(/```js\n([^]*?)```/);
  const code = example.replace("http://127.0.0.1:41242", gatewayA);
  const printed = execFileSync(process.execPath, ["--input-type=module", "-e", code], { encoding: "utf8" });
  assert.deepEqual(printed.match(/seq=\d/g), ["seq=0", "seq=1", "seq=2", "seq=3", "seq=4"]);
});
