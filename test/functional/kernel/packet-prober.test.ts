// Probes between two namespaces that are connected by a veth pair.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { execFileSync } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { PacketProber, type ProbeProtocol } from "../../../src/kernel/index.ts";
import { parseAddress } from "../../../src/lib/ip/ip.ts";

const [A, B] = [`probe-a-${process.pid}`, `probe-b-${process.pid}`];
const run = (command: string) => execFileSync("sh", ["-c", command], { stdio: "pipe" });
let a = -1;
let b = -1;

beforeAll(() => {
  run(`ip netns add ${A} && ip netns add ${B}`);
  run(`ip -n ${A} link add veth0 type veth peer name veth0 netns ${B}`);
  for (const [ns, n] of [
    [A, 1],
    [B, 2],
  ] as const) {
    run(`ip -n ${ns} address add 192.0.2.${n}/24 dev veth0 && ip -n ${ns} address add fd00::${n}/64 dev veth0 nodad`);
    run(`ip -n ${ns} link set lo up && ip -n ${ns} link set veth0 up`);
  }
  a = openSync(`/run/netns/${A}`, "r");
  b = openSync(`/run/netns/${B}`, "r");
});
afterAll(() => {
  for (const fd of [a, b]) if (fd >= 0) closeSync(fd);
  run(`ip netns del ${A}; ip netns del ${B}; true`);
});

test("packets that arrive while the process does not run are counted", async () => {
  using prober = new PacketProber();
  const protocols: ProbeProtocol[] = ["tcp", "udp", "icmp"];
  for (const protocol of protocols) prober.listen({ namespace: b, name: "b" }, protocol, 8081);
  const from = { namespace: a, name: "a" };
  const requests = protocols.map((protocol) => ({ from, to: parseAddress("192.0.2.2"), protocol, port: 8081 }));
  await prober.probe(requests, { timeoutMs: 2000 }); // fills the neighbour tables
  const late = await prober.probe(requests, { timeoutMs: 0 });
  expect(late.map(({ result }) => result)).toEqual(["reached", "reached", "reached"]);
});

for (const to of ["192.0.2.2", "fd00::2"])
  test(`every protocol reaches a listener at ${to}, and dropped packets differ from refused ones`, async () => {
    using prober = new PacketProber();
    const protocols: ProbeProtocol[] = ["tcp", "udp", "icmp", "sctp"];
    for (const protocol of protocols) prober.listen({ namespace: b, name: "b" }, protocol, 8080);
    const from = { namespace: a, name: "a" };
    const address = parseAddress(to);
    const open = await prober.probe(
      protocols.map((protocol) => ({ from, to: address, protocol, port: 8080 })),
      { timeoutMs: 2000 },
    );
    expect(open).toEqual([
      { result: "reached", by: "b" },
      { result: "reached", by: "b" },
      { result: "reached", by: to },
      { result: "reached", by: "b" },
    ]);

    const closed = await prober.probe(
      [
        { from, to: address, protocol: "tcp", port: 81 },
        { from, to: address, protocol: "udp", port: 81 },
      ],
      { timeoutMs: 2000 },
    );
    expect(closed).toEqual([
      { result: "refused", errno: "ECONNREFUSED" },
      { result: "refused", errno: "ECONNREFUSED" },
    ]);

    run(`ip netns exec ${B} nft -f - <<'NFT'
table inet t { chain c { type filter hook input priority 0; policy drop; meta l4proto icmpv6 icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept; }; }
NFT`);
    try {
      const dropped = await prober.probe(
        protocols.map((protocol) => ({ from, to: address, protocol, port: 8080 })),
        { timeoutMs: 200 },
      );
      expect(dropped).toEqual(protocols.map(() => ({ result: "silent" as const })));
    } finally {
      run(`ip netns exec ${B} nft delete table inet t`);
    }
  });

test("two hundred concurrent connections all reach their listener", async () => {
  using prober = new PacketProber();
  for (let port = 1000; port < 1020; port++) prober.listen({ namespace: b, name: `port ${port}` }, "tcp", port);
  const requests = Array.from({ length: 200 }, (_, i) => ({
    from: { namespace: a, name: "a" },
    to: parseAddress("192.0.2.2"),
    protocol: "tcp" as const,
    port: 1000 + (i % 20),
  }));
  const outcomes = await prober.probe(requests, { timeoutMs: 5000 });
  expect(outcomes).toEqual(requests.map(({ port }) => ({ result: "reached", by: `port ${port}` })));
});
