import { expect, test } from "bun:test";
import { bgpSessions, parseProtocols, parseRoutes, parseStatus } from "../../bgp/index.ts";
import { Client, openSqliteInMemory } from "../../datastore/index.ts";
import { silentLogger } from "../../lib/log/log.ts";
import { eventually } from "../../lib/testing/eventually.ts";
import { API_VERSION } from "../../model/index.ts";
import { type BirdFacts, type Facts, statusOf } from "./bird-report.ts";
import { reportStatus } from "./status-reporter.ts";
import { describeBird } from "./status-tables.ts";

const lines = (code: number, text: string) => text.split("\n").map((line) => ({ code, text: line }));
const session = (name: string, state: string): Parameters<typeof parseProtocols>[0] => [
  {
    code: 1002,
    text: `${name} BGP        ---        ${state === "Established" ? "up" : "start"}     2026-01-01 10:00:00.000  ${state}   `,
  },
  { code: 1006, text: `  BGP state:          ${state}` },
];
const facts: BirdFacts = {
  status: parseStatus([
    { code: 1000, text: "BIRD 2.0.12" },
    { code: 1011, text: "Router ID is 192.0.2.1" },
    ...lines(
      1011,
      "Current server time is 2026-01-01 10:00:00.000\nLast reboot on 2026-01-01 09:00:00.000\nLast reconfiguration on 2026-01-01 09:30:00.000",
    ),
  ]),
  sessions: bgpSessions(
    parseProtocols([
      ...session("Mesh_192_0_2_2", "Established"),
      ...session("Global_192_0_2_3", "Passive"),
      ...session("Node_192_0_2_4", "Active"),
      ...session("Local_Workload_10_0_0_9", "Active"),
    ]),
  ),
  routes: parseRoutes(
    lines(
      1007,
      "10.0.1.0/26          unicast [Mesh_192_0_2_2 10:00:00.000] * (100/0) [i]\n\tvia 192.0.2.2 on eth0\n                     unicast [Global_192_0_2_3 10:00:00.000] (100) [i]\n\tvia 192.0.2.3 on eth0\n10.0.0.0/26          blackhole [static1 10:00:00.000] * (200)\n192.0.2.0/24         unicast [direct1 10:00:00.000] * (240)\n\tdev eth0\n0.0.0.0/0            unicast [kernel1 10:00:00.000] * (10)\n\tvia 192.0.2.254 on eth0",
    ),
  ),
};
const both: Facts = { 4: facts, 6: undefined };
const now = new Date("2026-01-01T10:00:00.123Z");

test("NB-143 BIRD's state, and that of a family whose BIRD does not respond", () =>
  expect(statusOf(["Agent"], both, now)).toEqual({
    lastUpdated: "2026-01-01T10:00:00Z",
    agent: {
      birdV4: {
        state: "Ready",
        version: "2.0.12",
        routerID: "192.0.2.1",
        lastBootTime: "2026-01-01 09:00:00.000",
        lastReconfigurationTime: "2026-01-01 09:30:00.000",
      },
      birdV6: { state: "NotReady" },
    },
    bgp: { numberEstablishedV4: 0, numberNotEstablishedV4: 0, numberEstablishedV6: 0, numberNotEstablishedV6: 0 },
    routes: {},
  }));

test("NB-143 peers by type and state, without local workloads", () =>
  expect(statusOf(["BGP"], both, now).bgp).toEqual({
    numberEstablishedV4: 1,
    numberNotEstablishedV4: 2,
    numberEstablishedV6: 0,
    numberNotEstablishedV6: 0,
    peersV4: [
      { peerIP: "192.0.2.2", type: "NodeMesh", state: "Established", since: "2026-01-01 10:00:00.000" },
      { peerIP: "192.0.2.3", type: "GlobalPeer", since: "2026-01-01 10:00:00.000" },
      { peerIP: "192.0.2.4", type: "NodePeer", state: "Active", since: "2026-01-01 10:00:00.000" },
    ],
  }));

test("NB-143 routes with their source", () => {
  const { routesV4 } = statusOf(["Routes"], both, now).routes ?? {};
  expect(routesV4).toEqual([
    {
      type: "FIB",
      destination: "10.0.1.0/26",
      gateway: "192.0.2.2",
      interface: "eth0",
      learnedFrom: { sourceType: "NodeMesh", peerIP: "192.0.2.2" },
    },
    {
      type: "RIB",
      destination: "10.0.1.0/26",
      gateway: "192.0.2.3",
      interface: "eth0",
      learnedFrom: { sourceType: "BGPPeer", peerIP: "192.0.2.3" },
    },
    {
      type: "FIB",
      destination: "10.0.0.0/26",
      gateway: "N/A",
      interface: "blackhole",
      learnedFrom: { sourceType: "Static" },
    },
    {
      type: "FIB",
      destination: "192.0.2.0/24",
      gateway: "N/A",
      interface: "eth0",
      learnedFrom: { sourceType: "Direct" },
    },
    {
      type: "FIB",
      destination: "0.0.0.0/0",
      gateway: "192.0.2.254",
      interface: "eth0",
      learnedFrom: { sourceType: "Kernel" },
    },
  ] as never);
});

test("NB-143 the status of resources for this node is written once or periodically; resources of other nodes are ignored", async () => {
  const store = await openSqliteInMemory();
  const client = new Client(store);
  const createStatus = (name: string, node: string, updatePeriodSeconds: number) =>
    client.create({
      apiVersion: API_VERSION,
      kind: "CalicoNodeStatus",
      metadata: { name },
      spec: { node, classes: ["Agent", "BGP"], updatePeriodSeconds },
    });
  await createStatus("once", "n1", 0);
  await createStatus("elsewhere", "n2", 1);
  let current: Facts = both;
  let reads = 0;
  const controller = new AbortController();
  const readFacts = async () => {
    reads++;
    return current;
  };
  const running = reportStatus({ env: {}, store, node: "n1", log: silentLogger, readFacts }, controller.signal);
  const status = async (name: string) => (await client.get({ kind: "CalicoNodeStatus", name })).status;
  await eventually(async () => (await status("once"))?.agent?.birdV4?.state === "Ready");
  expect((await status("elsewhere"))?.lastUpdated ?? null).toBeNull();
  await createStatus("again", "n1", 1);
  await eventually(async () => (await status("again"))?.bgp?.numberEstablishedV4 === 1);
  const before = (await client.get({ kind: "CalicoNodeStatus", name: "again" })).metadata.resourceVersion;
  const [seen] = [reads];
  await eventually(async () => reads > seen); // one round without changes
  expect((await client.get({ kind: "CalicoNodeStatus", name: "again" })).metadata.resourceVersion).toBe(before!);
  current = { 4: undefined, 6: undefined };
  await eventually(async () => (await status("again"))?.agent?.birdV4?.state === "NotReady");
  expect((await status("once"))?.agent?.birdV4?.state).toBe("Ready");
  controller.abort();
  await running;
  await store.close();
});

test("NB-144 tables of status, peers and routes", () => {
  const text = describeBird(4, facts);
  expect(text).toContain("| Ready | Version | RouteID   | ServerTime");
  expect(text).toContain("| 192.0.2.3    | GlobalPeer | start | 2026-01-01 10:00:00.000 | Passive     |");
  expect(text).toContain("| 10.0.0.0/26  | N/A         | blackhole | Static");
  expect(describeBird(6, undefined)).toContain("does not respond");
});
