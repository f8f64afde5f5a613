// Tests clients with servers that disappear, have different data, stall, or send invalid data: a client ends with the state of
// its last server.
import { expect, test } from "bun:test";
import fc from "fast-check";
import { connect, createServer, type Server, type Socket } from "node:net";
import { createLogger } from "../../../src/lib/log/log.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { FRAME, frameBytes, jsonFrame, PREFACE } from "../../../src/typha/protocol.ts";
import { encodeRecords } from "../../../src/typha/records.ts";
import { set, stateOf, TestConsumer, TestServer } from "./harness.ts";

test("TC-T25 after a change of servers, only the differences are emitted, and no update is lost", async () => {
  const first = await TestServer.start();
  first.felix.onUpdates([set("same", "x"), set("changed", "1"), set("gone", "x")]);
  first.felix.onStatus("in-sync");
  await using second = await TestServer.start();
  second.felix.onUpdates([set("same", "x"), set("changed", "2"), set("added", "x")]);
  await using client = TestConsumer.connect([first.address, second.address]);
  await eventually(() => client.status === "in-sync");
  client.log.length = 0;
  await first[Symbol.asyncDispose]();
  await eventually(() => client.state.has("/calico/v1/netset/added"));
  // The second server is not in sync: keys that it has not sent may still follow.
  expect(client.state.has("/calico/v1/netset/gone")).toBe(true);
  expect(client.status).toBe("resync");
  second.felix.onStatus("in-sync");
  await eventually(() => client.status === "in-sync");
  expect(client.statuses).toEqual(["wait-for-ready", "resync", "in-sync", "wait-for-ready", "resync", "in-sync"]);
  expect(client.log.toSorted()).toEqual([
    "deleted /calico/v1/netset/gone",
    "new /calico/v1/netset/added",
    "updated /calico/v1/netset/changed",
    "updated /calico/v1/netset/same",
  ]);
});

test("TC-T25 an incomplete snapshot is discarded", async () => {
  const good = await TestServer.start();
  good.felix.onUpdates([set("a", "good"), set("b", "good")]);
  good.felix.onStatus("in-sync");
  await using torn = await TornServer.start();
  await using client = TestConsumer.connect([good.address, torn.address]);
  await eventually(() => client.status === "in-sync");
  const { port } = good.address;
  await good[Symbol.asyncDispose]();
  await eventually(() => torn.served >= 3);
  expect(stateOf(client)).toMatchObject({
    "/calico/v1/netset/a": { labels: { label: "good" } },
    "/calico/v1/netset/b": { labels: { label: "good" } },
  });
  await using again = await TestServer.start({ port });
  again.felix.onUpdates([set("a", "better")]);
  again.felix.onStatus("in-sync");
  await eventually(() => client.status === "in-sync", 10_000);
  expect(Object.keys(stateOf(client))).toEqual(["/calico/v1/netset/a"]);
});

test("fifty network sets of 1.4 MB reach connected and new clients", async () => {
  await using server = await TestServer.start();
  server.felix.onUpdates([set("before", "x")]);
  server.felix.onStatus("in-sync");
  await using connected = TestConsumer.connect(server.address);
  await eventually(() => connected.status === "in-sync");
  const sets = Array.from({ length: 50 }, (_, i) => set(`large${i}`, `${i}`.padEnd(1_400_000, "x")));
  server.felix.onUpdates([...sets, set("after", "x")]);
  await eventually(() => connected.state.size === 52, 30_000);
  await using fresh = TestConsumer.connect(server.address);
  await eventually(() => fresh.status === "in-sync" && fresh.state.size === 52, 30_000);
  expect(connected.statuses).toEqual(["wait-for-ready", "resync", "in-sync"]);
}, 60_000);

test("a client waits longer after each session that ends before it is in sync", async () => {
  await using torn = await TornServer.start();
  await using _client = TestConsumer.connect(torn.address);
  await eventually(() => torn.served >= 4, 10_000);
  const started = performance.now();
  await eventually(() => torn.served >= 5, 10_000);
  expect(performance.now() - started).toBeGreaterThan(800); // 200, 400, 800, 1,600 ms
});

test("TC-T14 a client leaves a server that stops sending for another server", async () => {
  await using silent = await TornServer.start({ isSilent: true });
  await using good = await TestServer.start();
  good.felix.onUpdates([set("a", "x")]);
  good.felix.onStatus("in-sync");
  await using client = TestConsumer.connect([silent.address, good.address], { readTimeoutMs: 200 });
  await eventually(() => client.status === "in-sync");
});

test("TC-T14 a client leaves a server that sends but does not read for another server", async () => {
  const deaf = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", () => {
      socket.pause();
      socket.write(jsonFrame(FRAME.serverHello, { version: 1, syncer: "felix", features: [], connectionId: "1" }));
      const ping = jsonFrame(FRAME.ping, { time: "x".repeat(500_000) });
      const talking = setInterval(() => socket.write(ping), 2);
      socket.once("close", () => clearInterval(talking));
    });
  });
  await new Promise<void>((resolve) => deaf.listen(0, "127.0.0.1", resolve));
  await using good = await TestServer.start();
  good.felix.onStatus("in-sync");
  const { port } = deaf.address() as { port: number };
  const warnings: string[] = [];
  const log = createLogger({ level: "warn", write: ({ fields }) => warnings.push(String(fields["reason"])) });
  const addresses = [{ host: "127.0.0.1", port }, good.address];
  await using client = TestConsumer.connect(addresses, { writeTimeoutMs: 200, log });
  await eventually(() => client.status === "in-sync");
  expect(warnings).toEqual(["the server does not read"]);
  deaf.close();
});

test("after invalid data from a server, the client connects to another server", async () => {
  let connections = 0;
  const noise = createServer((socket) => {
    socket.on("error", () => {});
    const garbage = Buffer.from(Array.from({ length: 1000 }, () => Math.floor(Math.random() * 256)));
    // The first looks like the beginning of a frame of a megabyte.
    if (connections++ === 0) garbage.writeUInt32BE(1 << 20, 0);
    socket.write(garbage);
  });
  await new Promise<void>((resolve) => noise.listen(0, "127.0.0.1", resolve));
  await using good = await TestServer.start();
  good.felix.onStatus("in-sync");
  const port = (noise.address() as { port: number }).port;
  await using client = TestConsumer.connect([{ host: "127.0.0.1", port }, good.address]);
  await eventually(() => client.status === "in-sync");
  noise.close();
});

test("after any updates, delays, disconnections and reconnections, every client has the server's state", async () => {
  const step = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        do: fc.constant("update" as const),
        changes: fc.array(fc.tuple(fc.nat(40), fc.option(fc.nat(9))), { maxLength: 30 }),
      }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constant("pause" as const), ms: fc.nat(8) }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constant("cut" as const), which: fc.nat(2) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("stall" as const), which: fc.nat(2) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("join" as const) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("leave server" as const) }) },
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 60, size: "max" }), async (steps) => {
      // Two servers with the same updates, like replicas; each client connects through a proxy that can cut and stall.
      await using one = await TestServer.start({ timings: { writeMs: 300 } }, { maxBatch: 7 });
      await using two = await TestServer.start({}, { maxBatch: 13 });
      const servers = [one, two];
      const truth = new Map<string, string>();
      const proxies: TestProxy[] = [];
      const clients: TestConsumer[] = [];
      const join = async () => {
        const proxy = await TestProxy.open(servers.map(({ address }) => address.port));
        proxies.push(proxy);
        clients.push(TestConsumer.connect(proxy.address, { readTimeoutMs: 400 }));
      };
      try {
        for (let i = 0; i < 3; i++) await join();
        for (const { felix } of servers) felix.onStatus("in-sync");
        for (const action of steps) {
          if (action.do === "update") {
            const updates = action.changes.map(([i, value]) =>
              set(`s${i}`, value === null ? undefined : String(value), "updated"),
            );
            for (const { felix } of servers) felix.onUpdates(updates);
            for (const [i, value] of action.changes)
              if (value === null) truth.delete(`/calico/v1/netset/s${i}`);
              else truth.set(`/calico/v1/netset/s${i}`, String(value));
          } else if (action.do === "pause") await Bun.sleep(action.ms);
          else if (action.do === "cut") proxies[action.which]?.cut();
          else if (action.do === "stall") proxies[action.which]?.stall(30);
          else if (action.do === "join" && clients.length < 6) await join();
          else if (action.do === "leave server") for (const proxy of proxies) proxy.switchServer();
        }
        const wanted = Object.fromEntries([...truth].sort(([a], [b]) => (a < b ? -1 : 1)));
        const seen = (client: TestConsumer) =>
          Object.fromEntries(
            Object.entries(stateOf(client)).map(([path, value]) => [
              path,
              (value as { labels: { label: string } }).labels.label,
            ]),
          );
        await eventually(
          () => clients.every((c) => c.status === "in-sync" && Bun.deepEquals(seen(c), wanted)),
          10_000,
        ).catch(() => {});
        for (const client of clients) expect(seen(client)).toEqual(wanted);
      } finally {
        await Promise.all(clients.map((client) => client[Symbol.asyncDispose]()));
        for (const proxy of proxies) proxy[Symbol.dispose]();
      }
    }),
    { numRuns: 60, endOnFailure: true },
  );
}, 120_000);

/** Sends a part of a snapshot with wrong values and disconnects, or sends nothing after its hello. */
class TornServer implements AsyncDisposable {
  readonly address: { host: string; port: number };
  readonly #server: Server;
  served = 0;

  static async start(options: { isSilent?: boolean } = {}): Promise<TornServer> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return new TornServer(server, options.isSilent ?? false);
  }

  private constructor(server: Server, isSilent: boolean) {
    this.#server = server;
    this.address = { host: "127.0.0.1", port: (server.address() as { port: number }).port };
    server.on("connection", (socket) => {
      socket.on("error", () => {});
      socket.once("data", (chunk: Buffer) => {
        expect(chunk.subarray(0, PREFACE.length).equals(PREFACE)).toBe(true);
        socket.write(jsonFrame(FRAME.serverHello, { version: 1, syncer: "felix", features: [], connectionId: "1" }));
        if (isSilent) return;
        const record = {
          path: "/calico/v1/netset/a",
          value: '{"nets":[],"labels":{"label":"torn"},"profileIds":[]}',
          revision: "",
          change: "new",
        } as const;
        const updates = frameBytes(FRAME.updates, encodeRecords([record]));
        socket.end(Buffer.concat([frameBytes(FRAME.begin, Buffer.alloc(0)), updates]));
        this.served++;
      });
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** Forwards connections to one of several servers. Connections can be cut, stalled, and switched to the next server. */
class TestProxy implements Disposable {
  readonly address: { host: string; port: number };
  readonly #server: Server;
  readonly #ports: readonly number[];
  readonly #pairs = new Set<readonly [Socket, Socket]>();
  #current = 0;

  static async open(ports: readonly number[]): Promise<TestProxy> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return new TestProxy(server, ports);
  }

  private constructor(server: Server, ports: readonly number[]) {
    this.#server = server;
    this.#ports = ports;
    this.address = { host: "127.0.0.1", port: (server.address() as { port: number }).port };
    server.on("connection", (near) => {
      const far = connect({ host: "127.0.0.1", port: this.#ports[this.#current % this.#ports.length]! });
      const pair = [near, far] as const;
      this.#pairs.add(pair);
      near.on("data", (chunk) => far.write(chunk));
      far.on("data", (chunk) => near.write(chunk));
      for (const socket of pair) {
        socket.on("error", () => {});
        socket.on("close", () => {
          this.#pairs.delete(pair);
          for (const end of pair) end.destroy();
        });
      }
    });
  }

  cut(): void {
    for (const pair of this.#pairs) for (const socket of pair) socket.destroy();
  }

  /** Stops forwarding data to the client for some time. */
  stall(ms: number): void {
    for (const [, far] of this.#pairs) {
      far.pause();
      setTimeout(() => far.resume(), ms);
    }
  }

  switchServer(): void {
    this.#current++;
    this.cut();
  }

  [Symbol.dispose](): void {
    this.cut();
    this.#server.close();
  }
}
