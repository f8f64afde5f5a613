// Tests that the tunnel allocator and the status reporter receive updates through Typha and do not watch the datastore.
import { expect, test } from "bun:test";
import {
  Client,
  createSyncer,
  type Datastore,
  openSqliteInMemory,
  type SyncerName,
} from "../../../src/datastore/index.ts";
import { silentLogger } from "../../../src/lib/log/log.ts";
import { pollUntil } from "../../../src/lib/testing/eventually.ts";
import { API_VERSION, type KindName, type Resource } from "../../../src/model/index.ts";
import { reportStatus } from "../../../src/node/bgp/status-reporter.ts";
import { watchTunnels } from "../../../src/node/tunnels/tunnel-command.ts";
import { TestServer } from "../typha/harness.ts";

/** A datastore, and a Typha that watches it. */
class Bench implements AsyncDisposable {
  readonly #abort = new AbortController();
  readonly signal = this.#abort.signal;
  readonly env: Readonly<Record<string, string>>;
  readonly running: Promise<unknown>[] = [];

  private constructor(
    readonly store: Datastore,
    readonly typha: TestServer,
    syncer: SyncerName,
  ) {
    this.env = { FELIX_TYPHAADDR: `${typha.address.host}:${typha.address.port}` };
    this.running.push(createSyncer(syncer, store).run(typha.caches.get(syncer)!, this.signal));
  }

  static async create(syncer: SyncerName): Promise<Bench> {
    return new Bench(await openSqliteInMemory(), await TestServer.start({}, {}, [syncer]), syncer);
  }

  async put(kind: KindName, name: string, spec: object): Promise<void> {
    const client = new Client(this.store);
    const known = await client.get({ kind, name }).catch(() => undefined);
    if (known === undefined) await client.create({ apiVersion: API_VERSION, kind, metadata: { name }, spec });
    else await client.update({ ...known, spec });
  }

  async until(kind: KindName, name: string, holds: (found: Resource) => boolean): Promise<void> {
    const key = { type: "resource", kind, name } as const;
    await pollUntil(async () => (await this.store.get(key)).value as Resource, holds);
  }

  /** The datastore without `watch`, which must go through Typha. */
  get unwatched(): Datastore {
    return new Proxy(this.store, {
      get: (store, name) => {
        if (name === "watch") throw new Error("watched the datastore itself");
        const found: unknown = Reflect.get(store, name);
        return typeof found === "function" ? (found.bind(store) as unknown) : found;
      },
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#abort.abort();
    await Promise.all(this.running);
    await this.typha[Symbol.asyncDispose]();
    await this.store.close();
  }
}

test("TC-T04 the tunnel allocator receives pools and their selectors through Typha", async () => {
  await using bench = await Bench.create("tunnel-ip-allocation");
  await bench.put("Node", "n1", {});
  await bench.put("Node", "n2", {});
  const { env, unwatched: store } = bench;
  bench.running.push(watchTunnels({ env, store, node: "n1", log: silentLogger }, bench.signal));
  const tunnel = ({ spec }: Resource) => (spec as { bgp?: { ipv4IPIPTunnelAddr?: string } }).bgp?.ipv4IPIPTunnelAddr;
  const pool = { cidr: "10.65.0.0/26", ipipMode: "Always" };
  await bench.put("IPPool", "p", pool);
  await bench.until("Node", "n1", (node) => tunnel(node)?.startsWith("10.65.0.") === true);
  expect(bench.typha.server.connectionCount).toBe(1);
  await bench.put("IPPool", "p", { ...pool, nodeSelector: "has(nope)" });
  await bench.until("Node", "n1", (node) => tunnel(node) === undefined);
  await bench.put("IPPool", "p", pool);
  await bench.until("Node", "n1", (node) => tunnel(node) !== undefined);
});

test("TC-T05 the status reporter receives CalicoNodeStatus resources through Typha", async () => {
  await using bench = await Bench.create("node-status");
  const { env, unwatched: store } = bench;
  const readFacts = async () => ({ 4: undefined, 6: undefined });
  bench.running.push(reportStatus({ env, store, node: "n1", log: silentLogger, readFacts }, bench.signal));
  await bench.put("CalicoNodeStatus", "mine", { node: "n1", classes: ["Agent"], updatePeriodSeconds: 0 });
  await bench.until(
    "CalicoNodeStatus",
    "mine",
    ({ status }) => typeof (status as { lastUpdated?: string | null } | undefined)?.lastUpdated === "string",
  );
  expect(bench.typha.server.connectionCount).toBe(1);
});
