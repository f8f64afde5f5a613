import { afterEach, beforeEach, expect, test } from "bun:test";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DataplaneMessage, PolicyId } from "../../calc/index.ts";
import type { SyncerUpdate } from "../../datastore/index.ts";
import { silentLogger } from "../../lib/log/log.ts";
import { MetricsRegistry } from "../../lib/metrics.ts";
import { objectsLeftPerRound } from "../../lib/testing/heap-growth.ts";
import { ProgrammedRevisions } from "./programmed.ts";

let prefix: string;
beforeEach(() => {
  prefix = mkdtempSync(join(tmpdir(), "calico-programmed-"));
});
afterEach(() => rmSync(prefix, { recursive: true, force: true }));

const id: PolicyId = { kind: "NetworkPolicy", namespace: "ns", name: "web" };
const policy = (revision: string, exists = true) =>
  ({ key: { type: "policy", ...id }, value: exists ? {} : undefined, revision, change: "updated" }) as SyncerUpdate;
const endpoint = (revision: string, host = "me", exists = true) =>
  ({
    key: { type: "workloadEndpoint", host, orchestrator: "k8s", workload: "ns/pod", endpoint: "eth0" },
    value: exists ? {} : undefined,
    revision,
    change: "updated",
  }) as SyncerUpdate;
const active = { type: "activePolicyUpdate", id } as unknown as DataplaneMessage;
const inactive: DataplaneMessage = { type: "activePolicyRemove", id };
const other: DataplaneMessage = { type: "ipSetRemove", id: "s:x" };

function open() {
  const programmed = new ProgrammedRevisions({ host: "me", prefix, log: silentLogger });
  const registry = new MetricsRegistry();
  programmed.measure(registry);
  const settled = () => new Promise((resolve) => setTimeout(resolve, 5));
  const files = async () => {
    await settled();
    const read = (folder: string) => {
      const path = join(prefix, "programmed", folder);
      return (existsSync(path) ? readdirSync(path) : []).map((name) => {
        const { revision } = JSON.parse(readFileSync(join(path, name), "utf8")) as { revision: string };
        return `${decodeURIComponent(name)} ${revision}`;
      });
    };
    return [...read("endpoints"), ...read("policies")];
  };
  return { programmed, files, registry };
}

test("reports a revision after the round that applied its last message", async () => {
  const { programmed, files, registry } = open();
  programmed.start();
  programmed.onUpdates([policy("7"), endpoint("8"), endpoint("9", "other-host")]);
  programmed.onMessage(active);
  programmed.onMessage(other);
  programmed.onFlushed();
  programmed.onApplied({ messages: 1, ok: true });
  expect(await files()).toEqual([]);
  programmed.onApplied({ messages: 2, ok: false }); // the round failed partly
  expect(await files()).toEqual([]);
  expect(programmed.pending).toBe(2);
  programmed.onApplied({ messages: 2, ok: true });
  expect(await files()).toEqual(["k8s ns/pod eth0 8", "NetworkPolicy/ns/web 7"]);
  expect(programmed.pending).toBe(0);
  const page = registry.render();
  expect(page).toContain('felix_programmed_revision{kind="policy",name="NetworkPolicy/ns/web"} 7');
  expect(page).toContain('felix_programmed_revision{kind="endpoint",name="k8s ns/pod eth0"} 8');
  expect(page).toContain("felix_programming_seconds_count 1");
  // A change that needs no message is already enforced.
  programmed.onUpdates([policy("12")]);
  programmed.onFlushed();
  expect(await files()).toContain("NetworkPolicy/ns/web 12");
});

test("reports policies while they select a local endpoint, and endpoints while they are local", async () => {
  const { programmed, files } = open();
  programmed.start();
  programmed.onUpdates([policy("7"), endpoint("8")]);
  programmed.onFlushed();
  programmed.onApplied({ messages: 0, ok: true });
  expect(await files()).toEqual(["k8s ns/pod eth0 8"]);
  programmed.onMessage(active); // a selected endpoint was added
  programmed.onFlushed();
  expect(await files()).toHaveLength(1);
  programmed.onApplied({ messages: 1, ok: true });
  expect(await files()).toContain("NetworkPolicy/ns/web 7");
  programmed.onMessage(inactive);
  programmed.onUpdates([endpoint("", "me", false)]);
  programmed.onFlushed();
  programmed.onApplied({ messages: 2, ok: true });
  expect(await files()).toEqual([]);
});

test("deletes files of an earlier run after the first round", async () => {
  mkdirSync(join(prefix, "programmed/policies"), { recursive: true });
  writeFileSync(join(prefix, "programmed/policies/GlobalNetworkPolicy%2Fold"), '{"revision":"1"}');
  const { programmed, files } = open();
  programmed.onUpdates([policy("7")]);
  programmed.onMessage(active);
  programmed.onFlushed();
  programmed.start();
  programmed.onApplied({ messages: 1, ok: true });
  expect(await files()).toEqual(["NetworkPolicy/ns/web 7"]);
});

test("deleted endpoints and policies leave nothing in memory, with and without files", async () => {
  for (const path of [prefix, ""]) {
    const programmed = new ProgrammedRevisions({ host: "me", prefix: path, log: silentLogger });
    programmed.start();
    let messages = 0;
    const left = await objectsLeftPerRound(async (number) => {
      const endpointKey = { type: "workloadEndpoint", host: "me", orchestrator: "k8s", workload: `ns/pod${number}` };
      const policyId = { ...id, name: `web${number}` };
      const updates = (value: object | undefined) =>
        [
          { key: { ...endpointKey, endpoint: "eth0" }, value, revision: String(number), change: "updated" },
          { key: { type: "policy", ...policyId }, value, revision: String(number), change: "updated" },
        ] as unknown as SyncerUpdate[];
      const sendAndApply = (type: "activePolicyUpdate" | "activePolicyRemove") => {
        programmed.onMessage({ type, id: policyId } as unknown as DataplaneMessage);
        programmed.onFlushed();
        programmed.onApplied({ messages: ++messages, ok: true });
      };
      programmed.onUpdates(updates({}));
      sendAndApply("activePolicyUpdate");
      programmed.onUpdates(updates(undefined));
      sendAndApply("activePolicyRemove");
      await new Promise((resolve) => setImmediate(resolve));
    });
    expect(left).toBeLessThan(0.5);
  }
}, 60_000);
