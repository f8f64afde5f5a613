import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BirdSession } from "../../bgp/index.ts";
import { parseAddress } from "../../lib/ip/ip.ts";
import { silentLogger } from "../../lib/log/log.ts";
import { serveBgpMetrics } from "./bgp-metrics.ts";
import type { BirdFacts } from "./bird-report.ts";
import { isOlderThanState, parseErrorLine, readSessionErrors, SessionErrors } from "./session-errors.ts";
import { signatureCounts } from "./session-evidence.ts";

const session = (
  neighbor: string,
  bgpState: "Established" | "Active",
  over: Partial<BirdSession> = {},
): BirdSession => ({
  name: `Mesh_${neighbor}`,
  kind: "mesh",
  neighbor: parseAddress(neighbor),
  port: undefined,
  state: "up",
  since: "",
  bgpState,
  info: bgpState,
  lastError: undefined,
  neighborAs: 64512,
  localAs: 64512,
  imported: 7,
  exported: 3,
  updatesReceived: 9,
  isRecoveryPending: false,
  ...over,
});
const bird: BirdFacts = {
  status: {
    version: "2",
    routerId: "10.0.0.1",
    serverTime: "",
    lastReboot: "",
    lastReconfiguration: "",
    isRecovering: true,
  },
  sessions: [session("10.0.0.2", "Established"), session("10.0.0.3", "Active", { imported: 0, kind: "global" })],
  routes: [],
};

test("BGP metrics contain sessions by state, routes by peer, and a BIRD that does not respond", async () => {
  const abort = new AbortController();
  const listening = Promise.withResolvers<number>();
  const serving = serveBgpMetrics(
    {
      port: 0,
      host: "127.0.0.1",
      log: silentLogger,
      readFacts: async () => ({ 4: bird, 6: undefined }),
      onListening: listening.resolve,
    },
    abort.signal,
  );
  const base = `http://127.0.0.1:${await listening.promise}`;
  const text = await (await fetch(`${base}/metrics`)).text();
  expect(text).toContain('bird_up{ip_version="4"} 1\nbird_up{ip_version="6"} 0\n');
  expect(text).toContain('bird_graceful_restart{ip_version="4"} 1');
  expect(text).toContain('bgp_peers{ip_version="4",status="Established"} 1');
  expect(text).toContain('bgp_peers{ip_version="4",status="Active"} 1');
  expect(text).toContain('bgp_peer_established{ip_version="4",peer="10.0.0.3",type="global"} 0');
  expect(text).toContain('bgp_routes_imported{ip_version="4",peer="10.0.0.2",type="node-to-node mesh"} 7');
  expect(text).toContain('bgp_route_updates_received{ip_version="4",peer="10.0.0.2",type="node-to-node mesh"} 9');
  expect((await fetch(`${base}/other`)).status).toBe(404);
  abort.abort();
  await serving;
});

test("a session's protocol error is stored from BIRD's log", async () => {
  expect(parseErrorLine("2026-11-16 02:00:00.000 <RMT> Global_10_0_0_1: Error: Bad peer AS: 65100")).toEqual({
    session: "Global_10_0_0_1",
    error: "Bad peer AS: 65100",
  });
  expect(parseErrorLine("<RMT> Node_10_0_0_1: Received: Bad peer AS: 64512")?.error).toBe(
    "Received: Bad peer AS: 64512",
  );
  expect(parseErrorLine("<INFO> Started")).toBeUndefined();
  const folder = mkdtempSync(join(tmpdir(), "calico-errors-"));
  try {
    const file = join(folder, "errors.json");
    const errors = new SessionErrors(file);
    errors.onLine("felix", "<RMT> Node_1: Error: not BIRD's");
    errors.onLine("bird", "<RMT> Node_10_0_0_1: Received: Hold timer expired");
    while (readSessionErrors(file).size === 0) await Bun.sleep(10);
    expect([...readSessionErrors(file)]).toEqual([
      ["Node_10_0_0_1", { at: expect.any(String), error: "Received: Hold timer expired" }],
    ]);
    expect(readSessionErrors(file, Date.now() + 3_600_000).size).toBe(0);
    writeFileSync(file, "torn");
    expect(readSessionErrors(file).size).toBe(0);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test("TCP signature counters are read by name", () => {
  const text = "TcpExt: A TCPMD5NotFound TCPMD5Unexpected TCPMD5Failure B\nTcpExt: 1 2 3 4 5\nIpExt: X\nIpExt: 1\n";
  expect(signatureCounts(text)).toEqual({ missing: 2, unexpected: 3, wrong: 4 });
  expect(signatureCounts("")).toBeUndefined();
});

test("an error is ignored if the session changed its state later", () => {
  const now = new Date(2026, 0, 2, 10, 0, 0);
  const error = (minutesAgo: number) => ({
    at: new Date(now.getTime() - minutesAgo * 60_000).toISOString(),
    error: "x",
  });
  const cases: readonly [minutesAgo: number, since: string, want: boolean][] = [
    [4, "09:59:00.000", true], // the session was up in between
    [4, "2026-01-02 09:59:00", true],
    [1, "09:59:00.500", false], // the error caused the state change
    [1, "09:00:00", false],
    [1, "2026-01-01", false],
    [4, "23:00:00", false], // yesterday
    [4, "unknown", false],
  ];
  for (const [minutesAgo, since, want] of cases)
    expect({ since, isOlder: isOlderThanState(error(minutesAgo), since, now) }).toEqual({ since, isOlder: want });
});
