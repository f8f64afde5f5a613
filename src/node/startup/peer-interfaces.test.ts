import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, openDatastore } from "../../datastore/index.ts";
import { parseNetwork } from "../../lib/ip/ip.ts";
import { createLogger, type LogRecord } from "../../lib/log/log.ts";
import { API_VERSION, type KindName } from "../../model/index.ts";
import { warnOfPeersAtOtherInterfaces } from "./peer-interfaces.ts";

const ETH0 = { name: "eth0", index: 2, networks: [parseNetwork("10.10.10.5/24")] };
const ETH1 = { name: "eth1", index: 3, networks: [parseNetwork("10.20.30.5/24"), parseNetwork("fe80::1/64")] };
const CALI = { name: "cali1", index: 4, networks: [parseNetwork("10.10.10.7/24")] };

/** Returns the warnings for a node with this address, these peers and these interfaces. */
async function warnings(address: string, peers: readonly object[], interfaces = [ETH0, ETH1]) {
  const folder = mkdtempSync(join(tmpdir(), "node-peers-"));
  const path = join(folder, "calico.db");
  const store = await openDatastore({ type: "sqlite", path, isFallback: false });
  try {
    const client = new Client(store);
    const create = (kind: KindName, name: string, spec: object) =>
      client.create({ apiVersion: API_VERSION, kind, metadata: { name }, spec });
    await create("Node", "w1", { bgp: { ipv4Address: address } });
    await create("Node", "w2", { bgp: { ipv4Address: "10.10.10.6/24" } });
    for (const [i, spec] of peers.entries()) await create("BGPPeer", `p${i}`, spec);
    const records: LogRecord[] = [];
    const log = createLogger({ level: "debug", write: (record) => records.push(record) });
    await warnOfPeersAtOtherInterfaces({ client, node: "w1", interfaces, log });
    return records.map(({ level, fields }): Record<string, unknown> => ({ level, ...fields }));
  } finally {
    await store.close();
    rmSync(folder, { recursive: true });
  }
}

const TOR = { peerIP: "10.10.10.1", asNumber: 65001 };

test("the warning names the peer in the network of another interface, and the setting that fixes it", async () => {
  expect(await warnings("10.20.30.5/24", [{ ...TOR, node: "w1" }])).toEqual([
    {
      level: "warn",
      peer: "10.10.10.1",
      because: "BGPPeer p0",
      nodeAddress: "10.20.30.5",
      interface: "eth0",
      interfaceAddress: "10.10.10.5",
      set: "IP_AUTODETECTION_METHOD=interface=eth0",
    },
  ]);
  expect(await warnings("10.20.30.5/24", [TOR])).toHaveLength(1); // a peer of all nodes
  expect(await warnings("10.20.30.5/24", [{ nodeSelector: "all()", peerSelector: "all()" }])).toMatchObject([
    { peer: "10.10.10.6" },
  ]);
});

const silent: readonly [string, Parameters<typeof warnings>][] = [
  ["the Node has the address in the peer's network", ["10.10.10.5/24", [TOR]]],
  ["the peer is another node's", ["10.20.30.5/24", [{ ...TOR, node: "w2" }]]],
  ["the peer is several hops away from all interfaces", ["10.20.30.5/24", [{ ...TOR, peerIP: "192.0.2.1" }]]],
  ["the source address is left to the kernel", ["10.20.30.5/24", [{ ...TOR, sourceAddress: "None" }]]],
  ["there is no BGPPeer", ["10.20.30.5/24", []]],
  ["the other interface belongs to a workload", ["10.20.30.5/24", [TOR], [CALI, ETH1]]],
];
for (const [name, given] of silent)
  test(`no warning: ${name}`, async () => expect(await warnings(...given)).toEqual([]));
