// Tests Felix and the CNI service on a network that silently drops packets. The cases wait most of the time, so all of them run
// concurrently.
import { describe, expect, test } from "bun:test";
import { delay } from "../../src/lib/retry.ts";
import { pollUntil } from "../../src/lib/testing/eventually.ts";
import { canRun, CniHost } from "./cni/cni-host.ts";
import { cluster, ETCD_PORT, hasEtcd } from "./cni/etcd-host.ts";
import { canCutPaths, PacketDrop } from "../support/cut-path.ts";
import { AgentBehindPath, RECOVERY_MS, surviveBlackHole, surviveCut } from "../support/outage.ts";

const CUT_SECONDS = 40;
const TIMEOUT_MS = 180_000;

describe.skipIf(!canCutPaths || Bun.which("etcd") === null)("the agent on etcd", () => {
  for (const tls of [false, true])
    test.concurrent(
      `is up to date within 20 s after packets were dropped for ${CUT_SECONDS} s${tls ? " (TLS)" : ""}`,
      async () => {
        await using agent = await AgentBehindPath.onEtcd({ tls });
        console.log(`etcd, cut of ${CUT_SECONDS} s: ${(await surviveCut(agent, CUT_SECONDS)).toFixed(1)} s`);
      },
      TIMEOUT_MS,
    );

  test.concurrent(
    "replaces connections whose packets are dropped for good within 20 s",
    async () => {
      await using agent = await AgentBehindPath.onEtcd();
      console.log(`etcd, black hole: ${(await surviveBlackHole(agent)).toFixed(1)} s`);
    },
    TIMEOUT_MS,
  );
});

describe.skipIf(!canCutPaths || Bun.which("etcd") === null)("the agent on etcd with two endpoints", () => {
  test.concurrent(
    "continues on the second within 20 s after packets to the first are dropped for good",
    async () => {
      await using agent = await AgentBehindPath.onEtcd({ endpoints: 2 });
      agent.path.cut(agent.endpoints[0]);
      await agent.addNode();
      console.log(`etcd, endpoint lost: ${(await agent.catchUp(RECOVERY_MS)).toFixed(1)} s`);
    },
    TIMEOUT_MS,
  );
});

describe.skipIf(!canCutPaths)("the agent on Typha", () => {
  test.concurrent(
    `is up to date within 20 s after packets were dropped for ${CUT_SECONDS} s`,
    async () => {
      await using agent = await AgentBehindPath.onTypha();
      console.log(`Typha, cut of ${CUT_SECONDS} s: ${(await surviveCut(agent, CUT_SECONDS)).toFixed(1)} s`);
    },
    TIMEOUT_MS,
  );

  test.concurrent(
    "replaces connections whose packets are dropped for good within 20 s",
    async () => {
      await using agent = await AgentBehindPath.onTypha();
      console.log(`Typha, black hole: ${(await surviveBlackHole(agent)).toFixed(1)} s`);
    },
    TIMEOUT_MS,
  );
});

describe.skipIf(!canRun || !hasEtcd)("the CNI service on etcd", () => {
  test.concurrent(
    "attaches the first pod after the packets of its idle connections were dropped for good",
    async () => {
      await using host = await CniHost.create();
      const { call } = await cluster(host);
      const packets = new PacketDrop(host.name);
      expect(await call("ADD", host.pod(), 0)).toMatchObject({ code: 0 });
      await pollUntil(
        () => packets.connections([ETCD_PORT]),
        (connections) => connections.every(({ idleMs }) => idleMs > 2500),
      );
      packets.cutExisting([ETCD_PORT]);
      expect(await call("ADD", host.pod(), 1)).toMatchObject({ code: 0 });
    },
    TIMEOUT_MS,
  );

  test.concurrent(
    "fails one pod at most after the packets of its busy connections were dropped for good",
    async () => {
      await using host = await CniHost.create();
      const { call } = await cluster(host);
      const packets = new PacketDrop(host.name);
      expect(await call("ADD", host.pod(), 0)).toMatchObject({ code: 0 });
      packets.cutExisting([ETCD_PORT]);
      const pod = host.pod();
      const first = await call("ADD", pod, 1);
      if (first.code !== 0) expect(await call("ADD", pod, 1)).toMatchObject({ code: 0 });
    },
    TIMEOUT_MS,
  );

  test.concurrent(
    `attaches the first pod after packets were dropped for ${CUT_SECONDS} s`,
    async () => {
      await using host = await CniHost.create();
      const { call } = await cluster(host);
      const packets = new PacketDrop(host.name);
      expect(await call("ADD", host.pod(), 0)).toMatchObject({ code: 0 });
      packets.cut([ETCD_PORT]);
      const cut = delay(CUT_SECONDS * 1000);
      const pods = Array.from({ length: 3 }, () => host.pod());
      const failed = await Promise.all(pods.map((pod, i) => call("ADD", pod, i + 1)));
      expect(failed.map(({ code, json }) => [code, json["code"]])).toEqual(pods.map(() => [1, 11]));
      await cut;
      packets.open();
      const added = await Promise.all(pods.map((pod, i) => call("ADD", pod, i + 1)));
      expect(added.map(({ code }) => code)).toEqual(pods.map(() => 0));
    },
    TIMEOUT_MS,
  );
});
