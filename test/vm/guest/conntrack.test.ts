// Tests a full connection table. Its size applies to the whole machine, not to a namespace, so the test runs in a virtual
// machine.
import { expect, test } from "bun:test";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { allowProfile, DataplaneHost, inSync, policy, rule, tier } from "../../functional/dataplane/host.ts";

const LIMIT = "/proc/sys/net/netfilter/nf_conntrack_max";

test("with a full connection table, denied packets do not pass, changes are applied, and connections work again afterwards", async () => {
  execFileSync("modprobe", ["nf_conntrack"]);
  const before = readFileSync(LIMIT, "utf8");
  await using host = await DataplaneHost.create("nftables");
  const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
  for (const port of [80, 81]) host.prober.listen(b.target, "tcp", port);
  const only = (port: number) =>
    policy("p", [rule({ protocol: { name: "tcp" }, dstPorts: [{ first: port, last: port }] })]);
  const cells = [80, 81].map((port) => ({ from: a.target, to: b.v4, port }));
  host.start();
  await host.send(allowProfile, only(80), host.endpoint(a), host.endpoint(b, { tiers: [tier(["p"])] }), inSync);
  await eventually(async () => (await host.probe(cells, 3000))[0] === "reached", 60_000);
  try {
    writeFileSync(LIMIT, "8");
    const flood = `for i in $(seq 1 60); do echo x > /dev/udp/192.0.2.99/$((2000 + i)); done 2>/dev/null; true`;
    host.exec(a.target, "bash", "-c", flood);
    expect(await host.probe(cells, 2000)).toEqual(["silent", "silent"]); // the full table drops allowed packets too
    await host.send(only(81));
  } finally {
    writeFileSync(LIMIT, before);
  }
  await eventually(async () => {
    const [denied, allowed] = await host.probe(cells, 3000);
    expect(denied).toBe("silent");
    return allowed === "reached";
  }, 60_000);
}, 600_000);
