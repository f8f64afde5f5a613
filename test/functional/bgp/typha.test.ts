// Tests the BGP service with Typha: it receives the datastore's updates, and of block affinities only its own.
import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BgpService } from "../../../src/bgp/index.ts";
import { createSyncer, openSqliteInMemory } from "../../../src/datastore/index.ts";
import { parseCidr } from "../../../src/lib/ip/ip.ts";
import { silentLogger } from "../../../src/lib/log/log.ts";
import { pollUntil } from "../../../src/lib/testing/eventually.ts";
import type { KindName } from "../../../src/model/index.ts";
import { openNodeSyncer } from "../../../src/node/node-syncer.ts";
import { TestServer } from "../typha/harness.ts";
import { acceptingBird as bird, put as putInto } from "./bare-service.ts";

test("NB-074 the service receives updates through Typha, and through another Typha if the first fails", async () => {
  const folder = mkdtempSync(join(tmpdir(), "calico-bgp-typha-"));
  const datastore = await openSqliteInMemory();
  const put = (kind: KindName, name: string, spec: object) => putInto(datastore, kind, name, spec);
  await put("Node", "n1", { bgp: { ipv4Address: "10.0.0.1/24" } });
  await put("Node", "n2", { bgp: { ipv4Address: "10.0.0.2/24" } });
  for (const number of [1, 2])
    await datastore.apply({
      key: {
        type: "blockAffinity",
        affinityType: "host",
        host: `n${number}`,
        cidr: parseCidr(`192.168.${number}.0/26`),
      },
      value: { state: "confirmed", deleted: false },
    });
  await using typha = await TestServer.start();
  await using other = await TestServer.start();
  const abort = new AbortController();
  const feeding = [typha, other].map(({ caches }) =>
    createSyncer("bgp", datastore).run(caches.get("bgp")!, abort.signal),
  );
  const env = { CONFD_TYPHAADDR: [typha, other].map(({ address }) => `${address.host}:${address.port}`).join() };
  const service = new BgpService({
    nodeName: "n1",
    syncer: await openNodeSyncer("bgp", { env, store: datastore, node: "n1", log: silentLogger }),
    folder,
    birds: { 4: bird, 6: bird },
    endpointStatusFolder: join(folder, "none"),
    logger: silentLogger,
  });
  const running = service.run(abort.signal);
  const text = () => {
    try {
      return readFileSync(join(folder, "bird.cfg"), "utf8");
    } catch {
      return "";
    }
  };
  await pollUntil(
    text,
    (found) => found.includes("neighbor 10.0.0.2") && found.includes("route 192.168.1.0/26 blackhole;"),
  );
  expect(text()).not.toContain("192.168.2.0/26");
  await put("Node", "n3", { bgp: { ipv4Address: "10.0.0.3/24" } });
  await pollUntil(text, (found) => found.includes("neighbor 10.0.0.3"));
  // Its Typha fails: the state is kept, and another Typha sends the later updates.
  expect(other.server.connectionCount).toBe(0);
  const before = text();
  await typha.server.stop();
  await pollUntil(
    () => other.server.connectionCount,
    (count) => {
      expect(text()).toBe(before);
      return count === 1;
    },
  );
  await put("Node", "n4", { bgp: { ipv4Address: "10.0.0.4/24" } });
  await pollUntil(text, (found) => found.includes("neighbor 10.0.0.4") && found.includes("neighbor 10.0.0.2"));
  abort.abort();
  await Promise.all([running, ...feeding]);
  await datastore.close();
  rmSync(folder, { recursive: true, force: true });
}, 30_000);
