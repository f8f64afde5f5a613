// The node-local service on a network that loses packets to etcd without a reset. The cases wait for most of their time,
// so both run at once.
import { describe, expect, test } from "bun:test";
import { lookUntil } from "../../../src/lib/testing/eventually.ts";
import { delay } from "../../../src/lib/retry.ts";
import { PacketDrop } from "../../support/cut-path.ts";
import { canRun, CniHost } from "./cni-host.ts";
import { cluster, ETCD_PORT, hasEtcd } from "./etcd-host.ts";

const CUT_SECONDS = 40;
const TIMEOUT_MS = 180_000;

describe.skipIf(!canRun || !hasEtcd)("the service on etcd", () => {
  test.concurrent(
    "attaches the first pod after the packets of its idle connections were dropped for good",
    async () => {
      await using host = await CniHost.create();
      const { call } = await cluster(host);
      const packets = new PacketDrop(host.name);
      expect(await call("ADD", host.pod(), 0)).toMatchObject({ code: 0 });
      await lookUntil(
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
      const refused = await Promise.all(pods.map((pod, i) => call("ADD", pod, i + 1)));
      expect(refused.map(({ code, json }) => [code, json["code"]])).toEqual(pods.map(() => [1, 11]));
      await cut;
      packets.open();
      const added = await Promise.all(pods.map((pod, i) => call("ADD", pod, i + 1)));
      expect(added.map(({ code }) => code)).toEqual(pods.map(() => 0));
    },
    TIMEOUT_MS,
  );
});
