import { describe, expect, test } from "bun:test";
import type { Flow } from "../../kernel/index.ts";
import { type IpAddress, parseCidr } from "../../lib/ip/ip.ts";
import { look, only } from "../testing/findings.ts";
import { healthy, PODS, THREE } from "../testing/healthy.ts";
import type { KernelRoute } from "./facts.ts";
import { unownedConnections } from "./host-connections.ts";

const BLOCKS = [parseCidr("10.65.0.0/26"), parseCidr("fd00:65::/122")];
const [POD, REMOVED, BORROWED, TUNNEL, REMOVED6] = [
  "10.65.0.2",
  "10.65.0.3",
  "10.65.0.4",
  "10.65.0.5",
  "fd00:65::3",
] as IpAddress[];
const ROUTES: Readonly<Record<string, KernelRoute>> = {
  "10.65.0.2": { type: "unicast", destination: parseCidr("10.65.0.2/32") },
  "10.65.0.4": { type: "unicast", destination: parseCidr("10.65.0.4/32") },
  "10.65.0.5": { type: "local", destination: parseCidr("10.65.0.5/32") },
  "fd00:65::3": { type: "unicast", destination: parseCidr("::/0") },
};
const routeTo = (address: IpAddress): KernelRoute | undefined => ROUTES[address];

function flow(source: string, destination: string, more: { isReplied?: boolean; server?: string } = {}): Flow {
  const { isReplied = true, server = destination } = more;
  const tuple = (from: string, to: string, ports: readonly [number, number]) => ({
    ...{ source: from as IpAddress, destination: to as IpAddress, protocol: 6 },
    ...{ sourcePort: ports[0], destinationPort: ports[1] },
  });
  return {
    original: tuple(source, destination, [40000, 80]),
    reply: tuple(server, source, [8080, 40000]),
    ...{ mark: 0, isReplied, identity: [] },
  };
}
const stale = (...flows: Flow[]) => unownedConnections(flows, BLOCKS, routeTo);

describe("connections of removed pods", () => {
  test("are those from or to an address of this node's blocks without a host route, also behind a service", () => {
    expect(
      stale(
        flow(String(REMOVED), "192.0.2.1"),
        flow(String(POD), "10.96.0.10", { server: String(REMOVED) }),
        flow("fd00:9::9", String(REMOVED6)),
      ),
    ).toEqual([
      { address: REMOVED as IpAddress, count: 2, example: "tcp 10.65.0.3:40000 -> 192.0.2.1:80" },
      { address: REMOVED6 as IpAddress, count: 1, example: "tcp [fd00:9::9]:40000 -> [fd00:65::3]:80" },
    ]);
  });

  test("do not include those of pods, borrowed addresses, the node or other blocks, nor connections without a reply", () => {
    expect(
      stale(
        flow(String(POD), "192.0.2.1"),
        flow("10.65.1.7", String(POD)),
        flow(String(POD), String(BORROWED)),
        flow("10.0.0.1", String(TUNNEL)),
        flow("10.65.200.1", "10.65.200.2"),
        flow("192.0.2.1", String(REMOVED), { isReplied: false }),
      ),
    ).toEqual([]);
  });

  test("are reported in one finding with the commands that delete them", () => {
    const found = look([PODS, ...THREE], {
      ...healthy,
      staleConnections: stale(flow(String(REMOVED), "192.0.2.1"), flow("fd00:9::9", String(REMOVED6))),
    });
    expect(only(found, "stale-connections")).toMatchObject({
      severity: "warning",
      evidence: [
        "10.65.0.3: 1 connection, such as tcp 10.65.0.3:40000 -> 192.0.2.1:80",
        "fd00:65::3: 1 connection, such as tcp [fd00:9::9]:40000 -> [fd00:65::3]:80",
      ],
      fix: expect.stringContaining("for a in 10.65.0.3 fd00:65::3; do conntrack -D --orig-src $a"),
    });
    expect(look([PODS, ...THREE], { ...healthy, staleConnections: undefined })).toEqual([]);
  });
});
