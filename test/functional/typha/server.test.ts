// Tests the server with clients over TCP: the updates that it sends, and the clients that it rejects or disconnects.
import { expect, test } from "bun:test";
import type { Datastore, SyncerUpdate } from "../../../src/datastore/index.ts";
import { NotServed } from "../../../src/datastore/errors.ts";
import { openSqliteInMemory } from "../../../src/datastore/sqlite/open.ts";
import { WatcherSyncer } from "../../../src/datastore/watcher-syncer.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { API_VERSION, keyPath, ParsedSelector, passThrough } from "../../../src/model/index.ts";
import { FRAME, frameBytes, jsonFrame, PREFACE } from "../../../src/typha/protocol.ts";
import { validTimings } from "../../../src/typha/server.ts";
import { set, stateOf, TestConsumer, TestServer } from "./harness.ts";
import { HELLO, RawClient } from "./raw-client.ts";

const many = (count: number, label: string) => Array.from({ length: count }, (_, i) => set(`s${i}`, label));

test("a client is in sync only after every kind that the server lists is", async () => {
  await using server = await TestServer.start();
  await using consumer = TestConsumer.connect(server.address);
  const store = await openSqliteInMemory();
  const name = "deny-all";
  const value = { apiVersion: API_VERSION, kind: "GlobalNetworkPolicy", metadata: { name }, spec: {} };
  await store.apply({ key: { type: "resource", kind: "GlobalNetworkPolicy", name }, value } as never);
  let isServed = false;
  let failures = 0;
  const list: Datastore["list"] = async (query, options) => {
    if (!isServed && query.type === "resource" && query.kind === "IPPool")
      throw new NotServed("IPPool", { isConfirmed: async () => false });
    return store.list(query, options);
  };
  const source = { name: store.name, list, watch: store.watch.bind(store) } as Datastore;
  const kinds = ["GlobalNetworkPolicy", "IPPool"] as const;
  const syncer = new WatcherSyncer(
    source,
    () => kinds.map((kind) => ({ query: { type: "resource", kind }, processor: passThrough })),
    { timings: { pollMs: 10 }, onFailure: () => failures++ },
  );
  const abort = new AbortController();
  const running = syncer.run(server.felix, abort.signal);
  await eventually(() => consumer.state.size === 1 && failures >= 5);
  expect(consumer.statuses).not.toContain("in-sync");
  isServed = true;
  await eventually(() => consumer.status === "in-sync");
  abort.abort();
  await running;
  await store.close();
});

test("TC-T02 a policy whose selector the client cannot parse counts as absent and is reported by its key", async () => {
  await using server = await TestServer.start();
  const key = { type: "policy", kind: "GlobalNetworkPolicy", namespace: "", name: "p" } as const;
  const policy = (selector: unknown, change: SyncerUpdate["change"]) =>
    ({
      key,
      value: { tier: "default", types: [], inboundRules: [], outboundRules: [], selector },
      change,
    }) as SyncerUpdate;
  server.felix.onUpdates([policy("has(a)", "new"), set("other", "a")]);
  server.felix.onStatus("in-sync");
  await using consumer = TestConsumer.connect(server.address);
  await eventually(() => consumer.status === "in-sync");
  expect(consumer.state.get(keyPath(key))).toMatchObject({ selector: ParsedSelector.parse("has(a)") });
  server.felix.onUpdates([policy("has(", "updated")]);
  await eventually(() => consumer.unreadable.length > 0);
  await eventually(() => !consumer.state.has(keyPath(key)));
  expect(consumer.unreadable).toEqual([keyPath(key)]);
  expect(consumer.state.size).toBe(1);
});

test("TC-T06 a client receives the snapshot, then every change, and in-sync only when the server is", async () => {
  await using server = await TestServer.start();
  server.felix.onUpdates(many(2500, "a"));
  await using early = TestConsumer.connect(server.address);
  await eventually(() => early.state.size === 2500);
  expect(early.status).not.toBe("in-sync");
  server.felix.onStatus("in-sync");
  await eventually(() => early.status === "in-sync");
  server.felix.onUpdates([set("s1", "b", "updated"), set("s2", undefined), set("new", "c")]);
  await eventually(() => early.state.size === 2500 && early.state.has("/calico/v1/netset/new"));
  await using late = TestConsumer.connect(server.address);
  await eventually(() => late.status === "in-sync");
  expect(stateOf(late)).toEqual(stateOf(early));
  expect(late.log.every((line) => line.startsWith("new "))).toBe(true);
  expect(early.log.slice(-3)).toEqual([
    "updated /calico/v1/netset/s1",
    "deleted /calico/v1/netset/s2",
    "new /calico/v1/netset/new",
  ]);
});

test("TC-T03 TC-T09 each client receives the updates of the requested syncer", async () => {
  await using server = await TestServer.start();
  server.felix.onUpdates([set("felix", "x")]);
  server.caches.get("bgp")!.onUpdates([set("bgp", "x")]);
  for (const cache of server.caches.values()) cache.onStatus("in-sync");
  await using felix = TestConsumer.connect(server.address);
  await using bgp = TestConsumer.connect(server.address, { syncer: "bgp" });
  await eventually(() => felix.status === "in-sync" && bgp.status === "in-sync");
  expect([...felix.state.keys()]).toEqual(["/calico/v1/netset/felix"]);
  expect([...bgp.state.keys()]).toEqual(["/calico/v1/netset/bgp"]);
});

test("a hundred clients, of which some disconnect and reconnect, all end with the same state", async () => {
  await using server = await TestServer.start();
  server.felix.onUpdates(many(500, "a"));
  server.felix.onStatus("in-sync");
  const clients = Array.from({ length: 100 }, () => TestConsumer.connect(server.address));
  try {
    for (let round = 0; round < 20; round++) {
      server.felix.onUpdates(Array.from({ length: 50 }, (_, i) => set(`s${(round * 37 + i) % 600}`, `r${round}`)));
      await Bun.sleep(2);
      if (round % 5 === 0) await clients.splice(0, 1)[0]![Symbol.asyncDispose]();
    }
    server.felix.onUpdates([set("last", "x")]);
    await eventually(() => clients.every((client) => client.state.has("/calico/v1/netset/last")), 20_000);
    const wanted = stateOf(clients[0]!);
    for (const client of clients) expect(stateOf(client)).toEqual(wanted);
    await eventually(() => server.server.connectionCount === clients.length);
  } finally {
    await Promise.all(clients.map((client) => client[Symbol.asyncDispose]()));
  }
  await eventually(() => server.server.connectionCount === 0);
});

const refusals: readonly { name: string; say: (client: RawClient) => unknown; reason: RegExp }[] = [
  { name: "another protocol", say: (c) => c.send(Buffer.alloc(100, 7)), reason: /another protocol/ },
  { name: "another version", say: (c) => c.greet({ ...HELLO, version: 2 }), reason: /version 2/ },
  { name: "an unknown syncer", say: (c) => c.greet({ ...HELLO, syncer: "dns" }), reason: /unknown syncer "dns"/ },
  {
    name: "a syncer that this server does not serve",
    say: (c) => c.greet({ ...HELLO, syncer: "node-status" }),
    reason: /does not serve the syncer/,
  },
  {
    name: "a first message that is not a hello",
    say: (c) => c.send(Buffer.concat([PREFACE, jsonFrame(FRAME.pong, {})])),
    reason: /before hello/,
  },
  {
    name: "a hello that is not an object",
    say: (c) => c.send(Buffer.concat([PREFACE, jsonFrame(FRAME.clientHello, null)])),
    reason: /not a JSON object/,
  },
  {
    name: "an unexpected message",
    say: (c) => c.greet().send(jsonFrame(FRAME.ping, {})),
    reason: /unexpected message/,
  },
  {
    name: "a second hello",
    say: (c) => c.greet().send(jsonFrame(FRAME.clientHello, HELLO)),
    reason: /unexpected message/,
  },
  {
    name: "a compressed message",
    say: (c) => c.greet().send(frameBytes(FRAME.pong, Buffer.alloc(9000), true)),
    reason: /compressed/,
  },
];
for (const { name, say, reason } of refusals)
  test(`TC-T09 rejected: ${name}`, async () => {
    await using server = await TestServer.start();
    using client = new RawClient(server.server.port);
    say(client);
    expect(await client.goodbye()).toMatch(reason);
    await eventually(() => server.server.connectionCount === 0);
  });

test("TC-T09 an empty syncer name selects felix, and the server's hello contains it", async () => {
  await using server = await TestServer.start();
  using client = new RawClient(server.server.port);
  client.greet({ ...HELLO, syncer: "" });
  await eventually(() => client.frames.length > 0);
  expect(JSON.parse(client.frames[0]!.payload.toString())).toMatchObject({
    version: 1,
    syncer: "felix",
    features: ["zstd", "policy-kinds"],
  });
});

test("TC-T10 a client that does not support policy keys with a kind is rejected", async () => {
  await using server = await TestServer.start();
  using client = new RawClient(server.server.port);
  client.greet({ ...HELLO, features: ["zstd"] });
  expect(await client.goodbye()).toMatch(/policies by kind/);
});

test("a client that does not support compression receives no compressed frames", async () => {
  await using server = await TestServer.start();
  server.felix.onUpdates(many(2000, "a"));
  server.felix.onStatus("in-sync");
  server.felix.publish();
  using plain = new RawClient(server.server.port);
  using packed = new RawClient(server.server.port);
  plain.greet({ ...HELLO, features: ["policy-kinds"] });
  packed.greet();
  await eventually(() => plain.types().includes(FRAME.end) && packed.types().includes(FRAME.end));
  expect(plain.bytes).toBeGreaterThan(3 * packed.bytes);
  const payloads = (client: RawClient) =>
    client.frames.filter(({ type }) => type === FRAME.updates).map(({ payload }) => payload.toString());
  expect(payloads(plain)).toEqual(payloads(packed));
});

test("TC-T14 a client without a hello in time is disconnected, and others are served meanwhile", async () => {
  await using server = await TestServer.start({ timings: { handshakeMs: 150 } });
  server.felix.onStatus("in-sync");
  using silent = new RawClient(server.server.port);
  using half = new RawClient(server.server.port);
  half.send(PREFACE.subarray(0, 5));
  await using good = TestConsumer.connect(server.address);
  await eventually(() => good.status === "in-sync", 140);
  expect(await silent.goodbye()).toBe("no hello in time");
  expect(await half.goodbye()).toBe("no hello in time");
});

test("TC-T17 the connection is closed when the header of an oversized message is received", async () => {
  await using server = await TestServer.start();
  using client = new RawClient(server.server.port);
  const header = Buffer.alloc(5);
  header.writeUInt32BE(2 << 20, 0);
  client.greet().send(header);
  expect(await client.goodbye()).toMatch(/frame of 2097152 bytes/);
});

test("TC-T13 a client that answers pings stays connected; one that does not is disconnected", async () => {
  await using server = await TestServer.start({ timings: { pingMs: 40, pongMs: 200 } });
  server.felix.onStatus("in-sync");
  await using good = TestConsumer.connect(server.address);
  using mute = new RawClient(server.server.port);
  mute.greet();
  expect(await mute.goodbye()).toBe("no pong received");
  expect(mute.types()).toContain(FRAME.ping);
  await Bun.sleep(300);
  expect(good.statuses).toEqual(["wait-for-ready", "resync", "in-sync"]);
  expect(server.server.connectionCount).toBe(1);
});

test("TC-T13 invalid timings are replaced by defaults", () => {
  expect(validTimings({ pingMs: 1000, pongMs: 1500 }).pongMs).toBe(6000);
  expect(validTimings({ pingMs: -1, writeMs: 0 })).toMatchObject({ pingMs: 10_000, writeMs: 120_000 });
});

test("TC-T14 a client that does not read its snapshot is disconnected after the write timeout", async () => {
  await using server = await TestServer.start({ timings: { writeMs: 200 } });
  server.felix.onUpdates(Array.from({ length: 6000 }, (_, i) => set(`s${i}`, `${i}-`.repeat(2000))));
  using stuck = new RawClient(server.server.port, { reads: false });
  stuck.greet({ ...HELLO, features: ["policy-kinds"] });
  await eventually(() => server.server.connectionCount === 1);
  await eventually(() => server.server.connectionCount === 0, 8000);
});

test("TC-T15 TC-T16 a client that falls too far behind is disconnected, a new one only after its grace period", async () => {
  const timings = { maxFallBehindMs: 100, newClientGraceMs: 600, writeMs: 60_000, pingMs: 50, pongMs: 60_000 };
  await using server = await TestServer.start({ timings });
  server.felix.onStatus("in-sync");
  server.felix.publish();
  const client = new RawClient(server.server.port);
  client.greet({ ...HELLO, features: ["policy-kinds"] });
  await eventually(() => client.types().includes(FRAME.end));
  client.socket.pause();
  const started = performance.now();
  const flood = setInterval(() => server.felix.onUpdates([set("s", `${Math.random()}`.repeat(100_000))]), 10);
  try {
    await eventually(() => server.server.connectionCount === 0, 8000);
    expect(performance.now() - started).toBeGreaterThan(500);
    expect(server.metrics.render()).toContain('typha_connections_grace_used{syncer="felix"} 1');
  } finally {
    clearInterval(flood);
    client[Symbol.dispose]();
  }
});

test("TC-T15 a slow client receives a snapshot instead of every intermediate change", async () => {
  await using server = await TestServer.start({}, { maxBatch: 10 });
  server.felix.onStatus("in-sync");
  server.felix.publish();
  using client = new RawClient(server.server.port);
  client.greet();
  await eventually(() => client.types().includes(FRAME.end));
  client.socket.pause();
  const before = client.frames.length;
  // More changes than the server keeps: the missed ones can only be sent as a snapshot of the current state.
  for (let i = 0; i < 3000; i++) {
    server.felix.onUpdates([set(`s${i % 20}`, `${i} `.repeat(2000))]);
    server.felix.publish();
  }
  client.socket.resume();
  await eventually(() => client.types().slice(before).includes(FRAME.end), 10_000);
  expect(client.frames.length - before).toBeLessThan(2000);
});

test("TC-T20 above the connection limit, one random client is disconnected per interval", async () => {
  await using server = await TestServer.start({ timings: { dropIntervalMs: 50 } });
  const clients = Array.from({ length: 5 }, () => new RawClient(server.server.port).greet());
  try {
    await eventually(() => server.server.connectionCount === 5);
    const started = performance.now();
    server.server.limitConnections(2);
    await eventually(() => server.server.connectionCount === 2);
    expect(performance.now() - started).toBeGreaterThan(95);
    await Bun.sleep(150);
    expect(server.server.connectionCount).toBe(2);
    expect(server.metrics.render()).toContain("typha_connections_dropped 3");
  } finally {
    for (const client of clients) client[Symbol.dispose]();
  }
});

test("TC-T22 a shutdown disconnects clients one at a time, within the shutdown timeout", async () => {
  for (const [shutdownMs, minMs, maxMs] of [
    [60_000, 400, 1500], // five clients, one per 120 ms
    [300, 150, 450], // the timeout is too short for that: the disconnections are spread over it
  ] as const) {
    await using server = await TestServer.start({ timings: { shutdownMs, shutdownDropIntervalMs: 120 } });
    const clients = Array.from({ length: 5 }, () => new RawClient(server.server.port).greet());
    try {
      await eventually(() => server.server.connectionCount === 5);
      const started = performance.now();
      const stopping = server.server.shutDown();
      await eventually(() => server.server.connectionCount <= 4);
      expect(server.server.connectionCount).toBe(4);
      await stopping;
      const took = performance.now() - started;
      expect(took).toBeGreaterThan(minMs);
      expect(took).toBeLessThan(maxMs);
      expect(await clients[0]!.goodbye()).toBe("the server is shutting down");
    } finally {
      for (const client of clients) client[Symbol.dispose]();
    }
  }
  await using idle = await TestServer.start();
  const started = performance.now();
  await idle.server.shutDown();
  expect(performance.now() - started).toBeLessThan(100);
});

test("TC-T26 the metrics have Calico's names, for every syncer, from the start", async () => {
  await using server = await TestServer.start();
  const page = server.metrics.render();
  for (const name of ["accepted", "dropped", "active"]) expect(page).toContain(`typha_connections_${name} 0`);
  expect(page).toContain("typha_logs_dropped 0");
  expect(page).toContain("typha_log_errors 0");
  const labelled = [
    "connections_streaming",
    "connections_grace_used",
    "breadcrumb_seq_number",
    "breadcrumb_non_block",
    "breadcrumb_block",
    "breadcrumb_size",
    "updates_total",
    "updates_skipped",
    "cache_size",
    "snapshots_generated",
    "snapshots_reused",
    "snapshot_raw_bytes",
    "snapshot_compressed_bytes",
    "client_snapshot_send_secs_count",
    "client_latency_secs_count",
    "client_write_latency_secs_count",
    "next_breadcrumb_latency_secs_count",
    "ping_latency_count",
    "kvs_per_msg_count",
  ];
  for (const name of labelled)
    for (const syncer of ["felix", "bgp"]) expect(page).toContain(`typha_${name}{syncer="${syncer}"}`);
  server.felix.onUpdates([set("a", "x")]);
  server.felix.onStatus("in-sync");
  await using client = TestConsumer.connect(server.address);
  await eventually(() => client.status === "in-sync");
  const after = server.metrics.render();
  expect(after).toContain("typha_connections_accepted 1");
  expect(after).toContain('typha_connections_streaming{syncer="felix"} 1');
  expect(after).toContain('typha_cache_size{syncer="felix"} 1');
  expect(after).toContain('typha_client_snapshot_send_secs_count{syncer="felix"} 1');
});

test("a thousand concurrent clients are all served", async () => {
  await using server = await TestServer.start();
  server.felix.onUpdates(many(200, "a"));
  server.felix.onStatus("in-sync");
  const clients = Array.from({ length: 1000 }, () => new RawClient(server.server.port).greet());
  try {
    await eventually(() => clients.every((client) => client.types().includes(FRAME.end)), 30_000);
    expect(server.server.connectionCount).toBe(1000);
  } finally {
    for (const client of clients) client[Symbol.dispose]();
  }
  await eventually(() => server.server.connectionCount === 0, 10_000);
}, 60_000);
