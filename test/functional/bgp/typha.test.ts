// The BGP service behind a Typha: it hears what the datastore says, of the block affinities only its own.
import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Bird, BgpService } from "../../../src/bgp/index.ts";
import { createSyncer, openSqliteInMemory } from "../../../src/datastore/index.ts";
import { parseCidr } from "../../../src/lib/ip.ts";
import { silentLogger } from "../../../src/lib/log.ts";
import { API_VERSION, type KindName } from "../../../src/model/index.ts";
import { openNodeSyncer } from "../../../src/node/node-syncer.ts";
import { TestServer } from "../typha/harness.ts";
import { eventually } from "./routers.ts";

const bird: Bird = { check: async () => undefined, reload: async () => "reconfigured" };

test("NB-074 through Typha, and further changes too", async () => {
  const folder = mkdtempSync(join(tmpdir(), "calico-bgp-typha-"));
  const datastore = await openSqliteInMemory();
  const put = (kind: KindName, name: string, spec: object) =>
    datastore.apply({
      key: { type: "resource", kind, name },
      value: { apiVersion: API_VERSION, kind, metadata: { name }, spec },
    });
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
  const abort = new AbortController();
  const feeding = createSyncer("bgp", datastore).run(typha.caches.get("bgp")!, abort.signal);
  const env = { CONFD_TYPHAADDR: `${typha.address.host}:${typha.address.port}` };
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
  await eventually(
    text,
    (found) => found.includes("neighbor 10.0.0.2") && found.includes("route 192.168.1.0/26 blackhole;"),
  );
  expect(text()).not.toContain("192.168.2.0/26");
  await put("Node", "n3", { bgp: { ipv4Address: "10.0.0.3/24" } });
  await eventually(text, (found) => found.includes("neighbor 10.0.0.3"));
  abort.abort();
  await Promise.all([running, feeding]);
  await datastore.close();
  rmSync(folder, { recursive: true, force: true });
}, 30_000);
