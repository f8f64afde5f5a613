import { afterAll, describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createSyncer, openSqliteInMemory } from "../../datastore/index.ts";
import { parseCidr } from "../../lib/ip/ip.ts";
import { silentLogger } from "../../lib/log/log.ts";
import { API_VERSION, type KindName, type Resource } from "../../model/index.ts";
import { BirdUnreachable } from "../bird/control.ts";
import type { BgpPlan } from "../plan-types.ts";
import { type Bird, ConfigurationFile, ConfigurationRejected } from "./configuration-file.ts";
import { LocalWorkloads } from "./local-workloads.ts";
import { BgpService, type BgpServiceOptions } from "./service.ts";
import { eventually, staysTrue } from "../../lib/testing/eventually.ts";

const root = mkdtempSync(join(tmpdir(), "calico-bgp-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let folders = 0;
const freshFolder = (): string => {
  const folder = join(root, String(folders++));
  mkdirSync(folder);
  return folder;
};

/** A fake BIRD that rejects texts for which `checkText` returns an error, and counts reloads. */
class FakeBird implements Bird {
  reloads = 0;
  checks = 0;
  isRunning = true;
  checkText: (text: string) => string | undefined = () => undefined;
  async check(file: string): Promise<string | undefined> {
    this.checks++;
    return this.checkText(readFileSync(file, "utf8"));
  }
  async reload(): Promise<"reconfigured" | "absent"> {
    this.reloads++;
    return this.isRunning ? "reconfigured" : "absent";
  }
}

const resource = (kind: KindName, name: string, spec: object = {}, labels?: Record<string, string>) => ({
  key: { type: "resource", kind, name } as const,
  value: {
    apiVersion: API_VERSION,
    kind,
    metadata: { name, labels },
    spec,
  } as Resource,
});
const node = (name: string, address: string) => resource("Node", name, { bgp: { ipv4Address: `${address}/24` } });

async function start(options: Partial<BgpServiceOptions> = {}) {
  const datastore = await openSqliteInMemory();
  const folder = freshFolder();
  const birds = { 4: new FakeBird(), 6: new FakeBird() };
  const abort = new AbortController();
  const plans: BgpPlan[] = [];
  let resume = () => {};
  const service = new BgpService({
    nodeName: "n1",
    syncer: createSyncer("bgp", datastore, { hostname: "n1" }),
    folder,
    birds,
    endpointStatusFolder: join(folder, "endpoint-status"),
    logger: silentLogger,
    onPlan: (plan) => {
      plans.push(plan);
      resume();
    },
    ...options,
  });
  const until = async (what: (plan: BgpPlan) => boolean): Promise<BgpPlan> => {
    for (;;) {
      const last = plans.at(-1);
      if (last !== undefined && what(last)) return last;
      await new Promise<void>((resolve) => (resume = resolve));
    }
  };
  const read = (file: string) => readFileSync(join(folder, file), "utf8");
  const run = (once = false) => service.run(abort.signal, { once });
  return { datastore, folder, birds, abort, plans, until, read, run };
}

describe("the service", () => {
  test("NB-073 NB-071 files are installed and BIRD is reloaded when a change in the datastore affects them", async () => {
    const { datastore, birds, abort, until, read, run, plans } = await start();
    await datastore.apply(node("n1", "10.0.0.1") as never);
    const running = run();
    await until(({ peers }) => peers.length === 0);
    expect(read("bird.cfg")).toContain("router id 10.0.0.1;");
    expect(read("bird6.cfg")).toContain("BGP is disabled");
    expect([birds[4].reloads, birds[6].reloads]).toEqual([1, 1]);
    await datastore.apply(node("n2", "10.0.0.2") as never);
    await until(({ peers }) => peers.length === 1);
    expect(read("bird.cfg")).toContain("neighbor 10.0.0.2 as 64512;");
    expect([birds[4].reloads, birds[6].reloads]).toEqual([2, 1]); // no change for IPv6
    const before = plans.length;
    await datastore.apply(resource("Node", "n2", { bgp: { ipv4Address: "10.0.0.2/24" } }, { a: "b" }) as never);
    await eventually(() => plans.length > before);
    expect(birds[4].reloads).toBe(2); // a label changed, the file did not
    abort.abort();
    await running;
  });

  test("a new block is first announced in addition to its addresses, which are then withdrawn", async () => {
    const { datastore, birds, abort, until, read, run } = await start();
    await datastore.apply(node("n1", "10.0.0.1") as never);
    await datastore.apply(resource("IPPool", "p", { cidr: "192.168.0.0/16" }) as never);
    const running = run();
    await until(() => true);
    const seen: { readonly isBlockAnnounced: boolean; readonly areAddressesRejected: boolean }[] = [];
    birds[4].reload = async () => {
      const text = read("bird.cfg");
      const areAddressesRejected = text.includes("if (net ~ 192.168.7.0/26) then");
      seen.push({ isBlockAnnounced: text.includes("route 192.168.7.0/26 blackhole;"), areAddressesRejected });
      return "reconfigured";
    };
    const cidr = parseCidr("192.168.7.0/26");
    const key = { type: "blockAffinity", affinityType: "host", host: "n1", cidr } as const;
    await datastore.apply({ key, value: { state: "confirmed", deleted: false } });
    await until(({ aggregation }) => aggregation.length === 1);
    await datastore.apply({ key, value: { state: "pendingDeletion", deleted: false } });
    await until(({ aggregation }) => aggregation.length === 0);
    await datastore.delete(key);
    await until(({ staticBlackholes }) => staticBlackholes.length === 0);
    expect(seen).toEqual([
      { isBlockAnnounced: true, areAddressesRejected: false },
      { isBlockAnnounced: true, areAddressesRejected: true },
      { isBlockAnnounced: true, areAddressesRejected: false },
      { isBlockAnnounced: false, areAddressesRejected: false },
    ]);
    expect(birds[6].reloads).toBe(1); // no block of that family
    abort.abort();
    await running;
  });

  test("overlapping global and node peers remain one session over ten changes of a node", async () => {
    const { datastore, abort, until, run, plans, read } = await start();
    await datastore.apply(node("n1", "10.0.0.1") as never);
    await datastore.apply(resource("BGPConfiguration", "default", { nodeToNodeMeshEnabled: false }) as never);
    const tor = { peerIP: "10.0.0.254", asNumber: 65100 };
    await datastore.apply(resource("BGPPeer", "for-all", tor) as never);
    await datastore.apply(resource("BGPPeer", "for-one", { ...tor, node: "n1" }) as never);
    const running = run();
    await until(({ peers }) => peers.length === 1);
    const first = read("bird.cfg");
    for (let i = 0; i < 10; i++) {
      const seen = plans.length;
      await datastore.apply(
        resource("Node", "n1", { bgp: { ipv4Address: "10.0.0.1/24" } }, { round: String(i) }) as never,
      );
      await eventually(() => plans.length > seen);
      expect(plans.at(-1)?.peers.map(({ name }) => name)).toEqual(["Global_10_0_0_254"]);
    }
    expect(read("bird.cfg")).toBe(first);
    abort.abort();
    await running;
  });

  test("the session of a deleted node is removed; programClusterRoutes is applied without a restart", async () => {
    const { datastore, abort, until, run, read } = await start();
    for (const n of [1, 2, 3, 4]) await datastore.apply(node(`n${n}`, `10.0.0.${n}`) as never);
    const pool = { cidr: "192.168.0.0/16", ipipMode: "Never", vxlanMode: "Never" };
    await datastore.apply(resource("IPPool", "p", pool) as never);
    const running = run();
    await until(({ peers }) => peers.length === 3);
    await datastore.delete({ type: "resource", kind: "Node", name: "n3" });
    await until(({ peers }) => peers.length === 2);
    expect(read("bird.cfg")).not.toContain("10.0.0.3");
    const kernel = () => /filter calico_kernel_programming \{([\s\S]*?)\n\}/.exec(read("bird.cfg"))?.[1] ?? "";
    for (const [value, word] of [
      ["Disabled", "reject"],
      ["Enabled", "accept"],
      ["EnabledIPIPOnly", "reject"],
      ["EnabledNoEncapOnly", "accept"],
    ]) {
      await datastore.apply(resource("BGPConfiguration", "default", { programClusterRoutes: value }) as never);
      await until(() => kernel().includes(`if (net ~ 192.168.0.0/16) then ${word};`));
    }
    abort.abort();
    await running;
  });

  test("NB-075 runs once on request", async () => {
    const { datastore, run, read } = await start();
    await datastore.apply(node("n1", "10.0.0.1") as never);
    await run(true);
    expect(read("bird.cfg")).toContain("router id 10.0.0.1;");
  });

  test("NB-076 pending affinities are not announced; pod CIDRs are announced if they are the blocks", async () => {
    const { datastore, run, read } = await start();
    await datastore.apply(node("n1", "10.0.0.1") as never);
    for (const [cidr, state] of [
      ["192.168.1.0/26", "confirmed"],
      ["192.168.2.0/26", "pending"],
    ] as const)
      await datastore.apply({
        key: { type: "blockAffinity", affinityType: "host", host: "n1", cidr: parseCidr(cidr) },
        value: { state, deleted: false },
      });
    await run(true);
    expect(read("bird.cfg")).toContain("route 192.168.1.0/26 blackhole;");
    expect(read("bird.cfg")).not.toContain("192.168.2.0/26");
    const pods = await start({ usePodCidr: true });
    const { key, value } = node("n1", "10.0.0.1");
    await pods.datastore.apply({ key, value: { ...value, status: { podCIDRs: ["10.244.1.0/24"] } } } as never);
    await pods.run(true);
    expect(pods.read("bird.cfg")).toContain("route 10.244.1.0/24 blackhole;");
  });

  test("without its Node resource, the service keeps BIRD's configuration and can be stopped", async () => {
    const { datastore, abort, until, read, run } = await start();
    const { key } = node("n1", "10.0.0.1");
    await datastore.apply(node("n1", "10.0.0.1") as never);
    const running = run();
    await until(() => true);
    const before = read("bird.cfg");
    await datastore.delete(key);
    await staysTrue(() => read("bird.cfg") === before, 20);
    abort.abort();
    await running;
  });

  test("NB-072 a failed attempt is retried until it succeeds", async () => {
    const { datastore, birds, abort, until, run, folder } = await start();
    let failures = 2;
    birds[4].checkText = () => (failures-- > 0 ? "busy" : undefined);
    await datastore.apply(node("n1", "10.0.0.1") as never);
    const running = run();
    await until(() => true);
    expect(existsSync(join(folder, "bird.cfg"))).toBe(true);
    abort.abort();
    await running;
  });

  test("a session that BIRD rejects is left out and reported, the rest is applied", async () => {
    const { datastore, birds, run, read, plans } = await start();
    birds[4].checkText = (text) => (text.includes("10.0.0.3") ? "bad neighbour" : undefined);
    for (const [name, address] of [
      ["n1", "10.0.0.1"],
      ["n2", "10.0.0.2"],
      ["n3", "10.0.0.3"],
    ] as const)
      await datastore.apply(node(name, address) as never);
    await run(true);
    expect(read("bird.cfg")).toContain("neighbor 10.0.0.2");
    expect(read("bird.cfg")).not.toContain("10.0.0.3");
    expect(plans.at(-1)?.problems).toEqual([
      { object: "node-to-node mesh, node n3", problem: "session with 10.0.0.3 left out: bad neighbour" },
    ]);
  });

  test("a filter that BIRD rejects is left out with its sessions, so that no route passes unfiltered", async () => {
    const { datastore, birds, run, read } = await start();
    birds[4].checkText = (text) => (text.includes("10.66.0.0/16") ? "bad filter" : undefined);
    await datastore.apply(node("n1", "10.0.0.1") as never);
    const rule = { action: "Reject", matchOperator: "In", cidr: "10.66.0.0/16" };
    await datastore.apply(resource("BGPFilter", "f", { importV4: [rule] }) as never);
    await datastore.apply(resource("BGPPeer", "p", { peerIP: "10.9.0.1", asNumber: 65100, filters: ["f"] }) as never);
    await datastore.apply(resource("BGPPeer", "q", { peerIP: "10.9.0.2", asNumber: 65100 }) as never);
    await run(true);
    expect(read("bird.cfg")).toContain("10.9.0.2");
    expect(read("bird.cfg")).not.toContain("10.9.0.1");
  });
});

describe("NB-071 installing a file", () => {
  test("a rejected file leaves the old one, and no temporary file", async () => {
    const folder = freshFolder();
    const path = join(folder, "bird.cfg");
    const bird = new FakeBird();
    const file = new ConfigurationFile(path, bird);
    expect(await file.install("one")).toBe("reconfigured");
    expect(await file.install("one")).toBe("unchanged");
    bird.checkText = () => "line 1: syntax error";
    const failure = file.install("two");
    await expect(failure).rejects.toBeInstanceOf(ConfigurationRejected);
    await expect(failure).rejects.toThrow("line 1: syntax error");
    await failure.catch(() => {});
    expect(readFileSync(path, "utf8")).toBe("one");
    expect(existsSync(join(folder, ".bird.cfg.new"))).toBe(false);
    expect(bird.reloads).toBe(1);
  });
  test("the file is readable only by its owner, because it contains passwords", async () => {
    const file = join(freshFolder(), "bird.cfg");
    writeFileSync(file, "old", { mode: 0o644 });
    await new ConfigurationFile(file, new FakeBird()).install("new");
    expect(statSync(file).mode & 0o777).toBe(0o600);
  });
  test("without BIRD, the file is installed; BIRD is reloaded when it runs", async () => {
    const bird = new FakeBird();
    const file = new ConfigurationFile(join(freshFolder(), "bird.cfg"), bird);
    bird.isRunning = false;
    expect(await file.install("x")).toBe("absent");
    expect(file.isRead).toBe(false);
    bird.isRunning = true;
    expect(await file.install("x")).toBe("reconfigured");
    expect([file.isRead, bird.checks]).toEqual([true, 1]);
  });
  test("if BIRD does not reply, the reload is retried", async () => {
    const bird = new FakeBird();
    const file = new ConfigurationFile(join(freshFolder(), "bird.cfg"), bird);
    bird.reload = async () => {
      throw new BirdUnreachable("ctl", "no reply within 2000 ms");
    };
    await expect(file.install("x")).rejects.toBeInstanceOf(BirdUnreachable);
    await file.install("x").catch(() => {});
    expect(file.isRead).toBe(false);
    bird.reload = async () => "reconfigured";
    expect(await file.install("x")).toBe("reconfigured");
  });
});

test("NB-097 workloads with BGP sessions are read from the endpoint status files", async () => {
  const folder = freshFolder();
  const put = (name: string, content: unknown) =>
    writeFileSync(join(folder, name), typeof content === "string" ? content : JSON.stringify(content));
  put("a", {
    ifaceName: "cali1",
    ipv4Nets: ["192.168.1.5/32", "192.168.1.6/32"],
    ipv6Nets: ["fd80::5/128"],
    bgpPeerName: "lw",
  });
  put("b", { ifaceName: "cali2", ipv4Nets: ["192.168.1.7/32"], ipv6Nets: [], bgpPeerName: "" });
  put("c", "half a fi");
  let changes = 0;
  const workloads = new LocalWorkloads(folder, () => changes++);
  expect(workloads.current as unknown).toEqual([{ peerName: "lw", addresses: ["192.168.1.5", "fd80::5"] }]);
  const abort = new AbortController();
  const running = workloads.run(abort.signal);
  put("b", { ifaceName: "cali2", ipv4Nets: ["192.168.1.7/32"], ipv6Nets: [], bgpPeerName: "lw" });
  await eventually(() => workloads.current.length >= 2);
  expect(changes).toBe(2);
  abort.abort();
  await running;
  expect(new LocalWorkloads(join(folder, "nowhere"), () => {}).current).toEqual([]);
});
