// The rehearsal goes as far as one can go without a pod, and leaves nothing.
import { expect, test } from "bun:test";
import { type Datastore, openSqliteInMemory, Recall } from "../datastore/index.ts";
import { API_VERSION, type Resource } from "../model/index.ts";
import { rehearse } from "./rehearsal.ts";
import { onStage } from "./service.ts";

const ready = {
  apiVersion: API_VERSION,
  kind: "ClusterInformation",
  metadata: { name: "default" },
  spec: { datastoreReady: true },
} as Resource;

/** Notes what is asked for; refuses to be written to. */
function readOnly(store: Datastore, asked: string[]): Datastore {
  return new Proxy(store, {
    get(target, property) {
      if (["create", "update", "apply", "delete"].includes(String(property)))
        return () => Promise.reject(new Error(`${String(property)} in a rehearsal`));
      const value: unknown = Reflect.get(target, property);
      if (typeof value !== "function") return value;
      return (...args: unknown[]) => {
        asked.push(JSON.stringify(args[0]));
        return (value as (...args: unknown[]) => unknown).apply(target, args);
      };
    },
  });
}

test("an ADD is rehearsed up to the missing pod, a DEL to its end, and the node's datastore only read", async () => {
  const store = await openSqliteInMemory();
  await store.create({ key: { type: "resource", kind: "ClusterInformation", name: "default" }, value: ready });
  const { revision } = await store.list({ type: "resource", kind: "ClusterInformation" });
  const asked: string[] = [];
  const recall = new Recall();
  const signal = new AbortController().signal;
  const [add, del] = await rehearse({ store: readOnly(store, asked), recall, answer: onStage, signal });
  expect(add).toMatch(/^1\n\{.*"msg":"open network namespace .*: ENOENT"\}\n$/); // with an address and an endpoint by then
  expect(del).toBe("0\n\n");
  expect(asked.join()).toMatch(/ClusterInformation.*IPPool.*IPReservation.*ipamConfig/);
  expect(recall.entry({ type: "resource", kind: "ClusterInformation", name: "default" })?.stored?.value).toEqual(ready);
  expect((await store.list({ type: "resource", kind: "ClusterInformation" })).revision).toBe(revision);
  await store.close();
});

test("a datastore that does not answer is not waited for when the service ends", async () => {
  const silent = new Proxy({ name: "sqlite", together: () => {} } as unknown as Datastore, {
    get: (target, property) =>
      property === "name" || property === "together"
        ? Reflect.get(target, property)
        : (_: unknown, options?: { signal?: AbortSignal }) =>
            new Promise((_, reject) => options?.signal?.addEventListener("abort", () => reject(new Error("aborted")))),
  });
  const closing = new AbortController();
  const rehearsed = rehearse({ store: silent, recall: new Recall(), answer: onStage, signal: closing.signal });
  closing.abort();
  await expect(rehearsed).rejects.toThrow("aborted");
});
