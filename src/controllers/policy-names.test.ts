import { expect, test } from "bun:test";
import { type Datastore, openSqliteInMemory, Unavailable, ValidationFailed } from "../datastore/index.ts";
import { createLogger, formatText } from "../lib/log/log.ts";
import { API_VERSION, type Resource } from "../model/index.ts";
import { migrateWhenRolledOut } from "./policy-names.ts";
import { FakeKube } from "./testing/fake-kube.ts";

const DAEMON_SET = "/apis/apps/v1/namespaces/calico-system/daemonsets/calico-node";

class Bench implements AsyncDisposable {
  readonly kube = new FakeKube();
  readonly lines: string[] = [];
  private constructor(readonly store: Datastore) {
    this.kube.put(DAEMON_SET, {
      status: { desiredNumberScheduled: 1, updatedNumberScheduled: 1, currentNumberScheduled: 1 },
    });
  }
  static async create(): Promise<Bench> {
    return new Bench(await openSqliteInMemory());
  }
  /** @param name as the metadata gives it; the key has the old form */
  async policy(key: string, name: string): Promise<void> {
    const value: Resource = {
      apiVersion: API_VERSION,
      kind: "NetworkPolicy",
      metadata: { name, namespace: "ns1" },
      spec: { types: ["Ingress"] },
    };
    await this.store.create({ key: { type: "resource", kind: "NetworkPolicy", namespace: "ns1", name: key }, value });
  }
  async keys(): Promise<string[]> {
    const { items } = await this.store.list({ type: "resource", kind: "NetworkPolicy" });
    return items.map(({ key }) => key.name).sort();
  }
  /** @param refuse returns the error with which the datastore answers to the creation of a policy of this name */
  async migrate(refuse: (name: string) => Error | undefined, signal: AbortSignal): Promise<void> {
    const { store, kube, lines } = this;
    const create: Datastore["create"] = async (entry, options) => {
      const error = "name" in entry.key ? refuse(entry.key.name) : undefined;
      if (error !== undefined) throw error;
      return store.create(entry, options);
    };
    const refusing = Object.create(store, {
      create: { value: create },
      list: { value: store.list.bind(store) },
      delete: { value: store.delete.bind(store) },
    }) as Datastore;
    const log = createLogger({ level: "debug", write: (record) => void lines.push(formatText(record)) });
    await migrateWhenRolledOut({ api: kube.api, store: refusing, namespace: "calico-system", log }, signal);
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await this.store.close();
  }
}

test("a policy whose new name is rejected is reported and stays unchanged; the others are moved", async () => {
  await using fixture = await Bench.create();
  await fixture.policy("default.a", "a");
  await fixture.policy("default.b", "A/B"); // from the annotation projectcalico.org/metadata, which a tenant writes
  await fixture.policy("default.c", "c");
  const rejection = new ValidationFailed([{ field: "metadata.name", reason: 'may not contain "/"' }]);
  await fixture.migrate((name) => (name === "A/B" ? rejection : undefined), AbortSignal.timeout(10_000));
  expect(await fixture.keys()).toEqual(["a", "c", "default.b"]);
  const [warning, ...more] = fixture.lines.filter((line) => line.includes("WARN"));
  expect(warning).toContain("policy of an older release cannot be moved to its own name");
  expect(warning).toContain("default.b");
  expect(more).toEqual([]);
});

test("an unavailable datastore is reported as such, not as a rollout that cannot be read", async () => {
  await using fixture = await Bench.create();
  await fixture.policy("default.a", "a");
  const stop = new AbortController();
  const running = fixture.migrate(() => {
    setTimeout(() => stop.abort(), 1);
    return new Unavailable("etcd", "no answer");
  }, stop.signal);
  await running;
  expect(fixture.lines.join("\n")).toContain("moving policies of older releases to their own names failed");
  expect(fixture.lines.join("\n")).not.toContain("rolled out");
  expect(await fixture.keys()).toEqual(["default.a"]);
});
