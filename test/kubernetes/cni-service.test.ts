// Tests the node's CNI service on a real API server after its plugin was killed or its token was revoked.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect } from "bun:test";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { canRun } from "../functional/cni/cni-host.ts";
import { isAvailable, suite } from "./cluster.ts";
import { ServedHost } from "./served-host.ts";

let served: ServedHost;
beforeAll(async () => {
  if (isAvailable && canRun) served = await ServedHost.create();
}, 600_000);
afterAll(async () => await served?.[Symbol.asyncDispose]());

const PREFIX = "cni.projectcalico.org";

suite("an ADD whose plugin was killed is undone: interface, addresses and the pod's annotations", async () => {
  if (!canRun) return;
  const { host, conf } = served;
  // While Felix is alive and writes no status file, ADD waits after it has stored the endpoint.
  const endpoint_status_dir = join(host.folder, "felix/endpoint-status");
  mkdirSync(endpoint_status_dir, { recursive: true });
  writeFileSync(join(host.folder, "felix/felix-alive"), "");
  const pod = host.pod("killed");
  const who = await served.makePod("killed");
  const killer = new AbortController();
  const waiting = { ...conf, endpoint_status_dir, policy_setup_timeout_seconds: 60 };
  const adding = host.add(pod, { conf: waiting, ...who, kill: killer.signal });
  await eventually(async () => (await served.annotations("killed"))[`${PREFIX}/podIP`] !== undefined);
  expect(await served.handles()).toEqual({ "k8s-pod-network.killed": 1 });
  killer.abort();
  expect((await adding).code).toBeNull();
  await eventually(async () => Object.keys(await served.handles()).length === 0);
  expect(await served.annotations("killed")).toMatchObject({ [`${PREFIX}/podIP`]: "", [`${PREFIX}/podIPs`]: "" });
  expect([host.workloadLinks(), pod.kernel.links.get("eth0")]).toEqual([[], undefined]);
}, 60_000);

suite("a repeated ADD of a pod's container leaves one address", async () => {
  if (!canRun) return;
  const { host, conf } = served;
  const pod = host.pod("repeated");
  const who = await served.makePod("repeated");
  const runs = [];
  for (let i = 0; i < 3; i++) runs.push(await host.add(pod, { conf, ...who }));
  expect(runs.map(({ code }) => code)).toEqual([0, 0, 0]);
  expect(await served.handles()).toEqual({ "k8s-pod-network.repeated": 1 });
  const [ip] = (runs[2]?.json["ips"] ?? []) as { address: string }[];
  expect((await served.annotations("repeated"))[`${PREFIX}/podIP`]).toBe(ip?.address);
  expect(await host.del(pod, { conf, ...who })).toMatchObject({ code: 0 });
  expect(await served.handles()).toEqual({});
}, 60_000);

suite("six pods have one address each after the service was stopped for 5.5 s while it attached them", async () => {
  if (!canRun) return;
  const { host, conf, service } = served;
  const pods = [];
  for (let i = 0; i < 6; i++) pods.push({ pod: host.pod(`six${i}`), who: await served.makePod(`six${i}`) });
  const adding = pods.map(({ pod, who }) => host.add(pod, { conf, ...who }));
  await eventually(async () => Object.keys(await served.handles()).length > 0);
  service.kill("SIGSTOP");
  await Bun.sleep(5500);
  service.kill("SIGCONT");
  expect((await Promise.all(adding)).map(({ code }) => code)).toEqual(pods.map(() => 0));
  expect(await served.handles()).toEqual(Object.fromEntries(pods.map((_, i) => [`k8s-pod-network.six${i}`, 1])));
  for (const { pod, who } of pods) expect(await host.del(pod, { conf, ...who })).toMatchObject({ code: 0 });
  expect([await served.handles(), host.workloadLinks()]).toEqual([{}, []]);
}, 60_000);

suite("a service whose token was revoked declines, and the plugin uses its own credentials", async () => {
  if (!canRun) return;
  const { host, conf } = served;
  await served.warmUp();
  const before = { pod: host.pod("before"), who: await served.makePod("before") };
  expect(await host.add(before.pod, { conf, ...before.who })).toMatchObject({ code: 0 });
  await served.revokeAgentToken();
  const after = { pod: host.pod("after"), who: await served.makePod("after") };
  const added = await host.add(after.pod, { conf, ...after.who });
  expect({ code: added.code, msg: added.json["msg"] }).toEqual({ code: 0, msg: undefined });
  expect(await served.handles()).toEqual({ "k8s-pod-network.before": 1, "k8s-pod-network.after": 1 });
  const status = await host.call("STATUS", undefined, { conf: { ...conf, cniVersion: "1.1.0" } });
  expect({ code: status.code, msg: status.json["msg"] }).toEqual({ code: 0, msg: undefined });
  for (const { pod, who } of [before, after]) expect(await host.del(pod, { conf, ...who })).toMatchObject({ code: 0 });
  expect([await served.handles(), host.workloadLinks()]).toEqual([{}, []]);
}, 120_000);
