// Runs ADD and DEL as a container runtime does, and checks the pod's interface, its addresses, the stored objects, and that
// DEL removes everything.
import { writeFileSync } from "node:fs";
import { describe, expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { podInterfaceName } from "../../../src/model/kubernetes/pod.ts";
import { openProber } from "./reach.ts";
import { canRun, CniHost, interfaceOf, k8s, type PluginRun } from "./cni-host.ts";

const DUAL = { ipam: { type: "calico-ipam", assign_ipv4: "true", assign_ipv6: "true" } };

const enableIpv6Forwarding = (host: CniHost): void =>
  host.handle.run(() => writeFileSync("/proc/sys/net/ipv6/conf/all/forwarding", "1"));

describe.skipIf(!canRun)("ADD", () => {
  test("CI-017 CI-018 CI-020 CI-021 a dual-stack pod has its interface, gateway, routes and addresses", async () => {
    await using host = await CniHost.create();
    const pod = host.pod("cid1");
    const run = await host.add(pod, { conf: DUAL });
    expect(run.stderr).toBe("");
    expect(run.json).toEqual({
      cniVersion: "1.0.0",
      interfaces: [{ name: "calicid1" }],
      ips: [{ address: "10.65.0.128/32" }, { address: "fd00:65::2880/128" }],
    });
    const hostLink = host.kernel.links.get("calicid1")!;
    const podLink = pod.kernel.links.get("eth0")!;
    expect(hostLink).toMatchObject({
      kind: "veth",
      mac: "ee:ee:ee:ee:ee:ee",
      isUp: true,
      mtu: 1500,
      peer: podLink.index,
    });
    const addresses = pod.kernel.addresses.list({ link: podLink.index }).filter((a) => a.scope === "universe");
    expect(addresses.map((a) => `${a.address}/${a.length}`)).toEqual(["10.65.0.128/32", "fd00:65::2880/128"]);
    const routes = (version: 4 | 6) =>
      pod.kernel.routes
        .list({ version, table: 254 })
        .filter((r) => r.protocol !== 2)
        .map((r) => [r.destination, r.gateway ?? "on link"].join(" "))
        .sort();
    expect(routes(4)).toEqual(["0.0.0.0/0 169.254.1.1", "169.254.1.1/32 on link"]);
    expect(routes(6)).toEqual(["::/0 fe80::ecee:eeff:feee:eeee"]);
    const hostRoutes = ([4, 6] as const).flatMap((version) =>
      host.kernel.routes.list({ version, table: 254, link: hostLink.index }).filter((r) => r.protocol === 3),
    );
    expect(hostRoutes.map((r) => r.destination as string)).toEqual(["10.65.0.128/32", "fd00:65::2880/128"]);
    expect(pod.kernel.neighbours.list({ version: 4 }).filter((n) => n.state === "permanent")).toEqual([]);
  });

  test("CI-019 CI-022 the sysctls of both interfaces are set", async () => {
    await using host = await CniHost.create();
    const [closed, open] = [host.pod("closed"), host.pod("open")];
    await host.add(closed, { conf: DUAL });
    await host.add(open, { conf: { ...DUAL, container_settings: { allow_ip_forwarding: true } } });
    const hostSysctl = (family: string, kind: string, key: string) => host.read("net", family, kind, "caliclosed", key);
    expect({
      route_localnet: hostSysctl("ipv4", "conf", "route_localnet"),
      proxy_arp: hostSysctl("ipv4", "conf", "proxy_arp"),
      forwarding: hostSysctl("ipv4", "conf", "forwarding"),
      proxy_delay: hostSysctl("ipv4", "neigh", "proxy_delay"),
      v6: ["accept_dad", "disable_ipv6", "proxy_ndp", "forwarding", "accept_ra"].map((k) =>
        hostSysctl("ipv6", "conf", k),
      ),
    }).toEqual({
      route_localnet: "1",
      proxy_arp: "1",
      forwarding: "1",
      proxy_delay: "0",
      v6: ["0", "0", "1", "1", "0"],
    });
    for (const [pod, value] of [
      [closed, "0"],
      [open, "1"],
    ] as const) {
      expect(pod.read("net", "ipv4", "ip_forward")).toBe(value);
      expect(pod.read("net", "ipv6", "conf", "all", "forwarding")).toBe(value);
    }
    expect(closed.read("net", "ipv6", "conf", "eth0", "accept_dad")).toBe("0");
  });

  test("two pods of one host reach each other over IPv4 and IPv6 after ADD alone", async () => {
    await using host = await CniHost.create();
    enableIpv6Forwarding(host);
    const [a, b] = [host.pod(), host.pod()];
    const results = [await host.add(a, { conf: DUAL }), await host.add(b, { conf: DUAL })];
    const [, to] = results.map((run) =>
      (run.json["ips"] as { address: string }[]).map((ip) => ip.address.split("/")[0]!),
    );
    using prober = openProber([a, b]);
    // The whole machine shares one neighbour table. If other tests have filled it, the first attempt fails.
    let outcome: string[] = [];
    await eventually(async () => {
      outcome = await prober.reach(a, b, to!);
      return outcome.every((line) => line.endsWith(" reached"));
    }, 20_000);
    expect(outcome).toEqual(to!.map((address) => `${address} reached`));
  });

  test("a pod that requests an address of the other family has an interface for that family only", async () => {
    await using host = await CniHost.create();
    const [a, b] = [host.pod(), host.pod()];
    enableIpv6Forwarding(host);
    const want = ["fd00:65::11", "fd00:65::12"] as const;
    const withIp = (address: string) => ({ env: { CNI_ARGS: `IP=${address}` } }); // the network assigns IPv4
    expect(await host.add(a, withIp(want[0]))).toMatchObject({
      code: 0,
      json: { ips: [{ address: `${want[0]}/128` }] },
    });
    expect(await host.add(b, withIp(want[1]))).toMatchObject({
      code: 0,
      json: { ips: [{ address: `${want[1]}/128` }] },
    });
    using prober = openProber([a, b]);
    let outcome: string[] = [];
    await eventually(async () => {
      outcome = await prober.reach(a, b, [want[1]]);
      return outcome.every((line) => line.endsWith(" reached"));
    });
    expect(outcome).toEqual([`${want[1]} reached`]);
    for (const key of ["accept_dad", "proxy_ndp", "forwarding"] as const)
      expect([key, host.read("net", "ipv6", "conf", host.workloadLinks()[0]!, key)]).toEqual([
        key,
        key === "accept_dad" ? "0" : "1",
      ]);
    // Nothing is set for the family of which it has no address.
    expect(host.read("net", "ipv4", "conf", host.workloadLinks()[0]!, "proxy_arp")).toBe("0");
  });

  test("CI-045 the endpoint, its profile and the allocation are stored in the same form as by Calico", async () => {
    await using host = await CniHost.create();
    const pod = host.pod("cid1");
    await host.add(pod);
    const endpoint = (await host.all("WorkloadEndpoint")).get("n1-cni-cid1-eth0")!;
    expect(endpoint.metadata).toMatchObject({
      namespace: "default",
      labels: { "projectcalico.org/namespace": "default", "projectcalico.org/orchestrator": "cni" },
    });
    expect(endpoint.spec).toEqual({
      orchestrator: "cni",
      node: "n1",
      containerID: "cid1",
      endpoint: "eth0",
      ipNetworks: ["10.65.0.128/32"],
      profiles: ["net1"],
      interfaceName: "calicid1",
      mac: pod.kernel.links.get("eth0")!.mac!,
    });
    expect((await host.all("Profile")).get("net1")?.spec).toMatchObject({ labelsToApply: { net1: "" } });
    const [block] = (await host.store.list({ type: "block" })).items;
    expect(block?.value.attributes).toMatchObject([{ handleId: "net1.cid1", secondary: { node: "n1" } }]);
    expect(block?.value.attributes[0]?.secondary?.["timestamp"]).toMatch(
      /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? \+0000 UTC$/,
    );
  });

  test("CI-037 a second ADD changes nothing; another network adds its profile", async () => {
    await using host = await CniHost.create();
    const pod = host.pod("cid1");
    const first = await host.add(pod);
    const mac = pod.kernel.links.get("eth0")!.mac;
    expect((await host.add(pod)).json).toEqual(first.json);
    expect((await host.add(pod, { conf: { name: "net2" } })).json).toEqual(first.json);
    expect(pod.kernel.links.get("eth0")!.mac).toBe(mac);
    expect(await host.allocations()).toHaveLength(1);
    const spec = (await host.all("WorkloadEndpoint")).get("n1-cni-cid1-eth0")?.spec as { profiles: string[] };
    expect(spec.profiles).toEqual(["net1", "net2"]);
    expect([...(await host.all("Profile")).keys()]).toEqual(["net1", "net2"]);
  });

  test("CI-037 a container keeps its addresses, even if new ones could not be assigned", async () => {
    await using host = await CniHost.create();
    const pod = host.pod("cid1");
    const withIp = { env: { CNI_ARGS: "IP=10.65.0.9" } };
    const first = await host.add(pod, withIp);
    expect((await host.add(pod, withIp)).json).toEqual(first.json); // the container itself has the address
    for (const ipam of [{ ipv4_pools: ["gone"] }, { assign_ipv4: "false" }])
      expect((await host.add(pod, { conf: { ipam: { type: "calico-ipam", ...ipam } } })).json).toEqual(first.json);
    expect(await host.allocations()).toHaveLength(1);
  });

  test("CI-037 a network whose name is not a valid profile name is rejected, and nothing remains", async () => {
    await using host = await CniHost.create();
    const pod = host.pod("cid1");
    for (const name of ["Net_1", "n".repeat(70)])
      expect(await host.add(pod, { conf: { name } })).toMatchObject({ code: 1, json: { code: 999 } });
    expect([await host.allocations(), (await host.all("Profile")).size, host.workloadLinks()]).toEqual([[], 0, []]);
    await host.add(pod);
    expect(await host.add(pod, { conf: { name: "Net_1" } })).toMatchObject({ code: 1, json: { code: 999 } });
    const spec = (await host.all("WorkloadEndpoint")).get("n1-cni-cid1-eth0")?.spec as { profiles: string[] };
    expect(spec.profiles).toEqual(["net1"]);
  });

  test("CI-047 a pool of the other family is rejected before anything is assigned", async () => {
    await using host = await CniHost.create();
    const ipam = { type: "calico-ipam", assign_ipv6: "true", ipv6_pools: ["p4"] };
    const rejected = await host.add(host.pod("cid1"), { conf: { ipam } });
    expect(rejected).toMatchObject({ code: 1, json: { code: 999 } });
    expect(rejected.json["msg"]).toContain("is not an IPv6 pool");
    expect((await host.store.list({ type: "block" })).items).toEqual([]);
  });

  test("CI-015 a workload without a valid name gets no address", async () => {
    await using host = await CniHost.create();
    for (const program of ["calico", "calico-ipam"] as const)
      expect(await host.call("ADD", host.pod(), { program, env: { CNI_IFNAME: "eth-" } })).toMatchObject({
        code: 1,
        json: { code: 999 },
      });
    expect((await host.store.list({ type: "block" })).items).toEqual([]);
  });

  test("CI-047 if one family has no free address, the other family's address is assigned and released", async () => {
    await using host = await CniHost.create();
    await host.put("IPPool", "tiny", { cidr: "10.66.0.0/32", blockSize: 32 });
    const conf = { ipam: { type: "calico-ipam", assign_ipv6: "true", ipv4_pools: ["tiny"] } };
    const first = await host.add(host.pod("cid1"), { conf });
    expect(first.code).toBe(0);
    expect((await host.add(host.pod("cid2"), { conf })).json["msg"]).toContain("failed to request IPv4 addresses");
    expect(await host.allocations()).toHaveLength(2);
    expect((await host.all("WorkloadEndpoint")).size).toBe(1);
    const third = await host.add(host.pod("cid3"), { conf: { ipam: { ...conf.ipam, assign_ipv4: "false" } } });
    const sixth = (run: PluginRun) => (run.json["ips"] as { address: string }[]).at(-1)?.address;
    expect([sixth(first), sixth(third)]).toEqual(["fd00:65::2880/128", "fd00:65::2882/128"]);
  });

  test("CI-017 a pod that has the route by another interface is rejected, and keeps that interface", async () => {
    await using host = await CniHost.create();
    const pod = host.pod("cid1");
    await host.add(pod);
    const second = await host.call("ADD", pod, { env: { CNI_CONTAINERID: "cid2", CNI_IFNAME: "eth1" } });
    expect(second.json["msg"]).toContain("by another interface");
    expect([(await host.allocations()).length, host.workloadLinks()]).toEqual([1, ["calicid1"]]);
    expect((await host.call("CHECK", pod)).code).toBe(0);
  });

  test("CI-034 DNS settings of another IPAM plugin are passed on, and its invalid routes are rejected", async () => {
    await using host = await CniHost.create();
    const dns = { nameservers: ["192.0.2.53"], search: ["a.example"] };
    const ipam = { type: "static", addresses: [{ address: "10.7.0.5/24" }], dns };
    expect((await host.add(host.pod("cid1"), { conf: { ipam } })).json["dns"]).toEqual(dns);
    const broken = { type: "host-local", subnet: "10.70.0.0/24", dataDir: `${host.folder}/hl`, routes: [{}] };
    expect(await host.add(host.pod("cid2"), { conf: { ipam: broken } })).toMatchObject({
      code: 1,
      json: { code: 999 },
    });
  });

  test("CI-011 CI-004 both interfaces and the result have the configured MTU", async () => {
    await using host = await CniHost.create();
    const pod = host.pod("cid1");
    const run = await host.add(pod, { conf: { mtu: 9000, num_queues: 2 } });
    const { mac } = pod.kernel.links.get("eth0")!;
    expect(run.json["interfaces"]).toEqual([
      { name: "calicid1" },
      { name: "eth0", mac: mac!, mtu: 9000, sandbox: pod.netns },
    ]);
    expect(run.json["ips"]).toEqual([{ interface: 1, address: "10.65.0.128/32" }]);
    expect([host.kernel.links.get("calicid1")?.mtu, pod.kernel.links.get("eth0")?.mtu]).toEqual([9000, 9000]);
  });

  test("CI-023 netkit falls back to veth if the kernel does not support netkit", async () => {
    await using host = await CniHost.create();
    const pod = host.pod("cid1");
    expect((await host.add(pod, { conf: { device_type: "netkit" } })).code).toBe(0);
    expect(["veth", "netkit"]).toContain(host.kernel.links.get("calicid1")?.kind ?? "");
    expect((await host.add(host.pod(), { conf: { device_type: "carrier-pigeon" } })).json["msg"]).toContain(
      "device_type",
    );
  });

  test("CI-034 CI-035 host-local assigns the address, and the pod has its routes", async () => {
    await using host = await CniHost.create();
    const pod = host.pod("cid1");
    const ipam = {
      type: "host-local",
      subnet: "10.70.0.0/24",
      dataDir: `${host.folder}/hl`,
      routes: [{ dst: "10.0.0.0/8" }],
    };
    const run = await host.add(pod, { conf: { ipam, include_default_routes: true }, ...k8s("ns1", "p1") });
    expect(run.json["ips"]).toEqual([{ address: "10.70.0.2/32" }]);
    const gatewayed = pod.kernel.routes.list({ version: 4, table: 254 }).filter((r) => r.gateway !== undefined);
    expect(gatewayed.map((r) => r.destination as string).sort()).toEqual(["0.0.0.0/0", "10.0.0.0/8"]);
    expect((await host.del(pod, { conf: { ipam }, ...k8s("ns1", "p1") })).code).toBe(0);
    expect((await host.add(host.pod("cid2"), { conf: { ipam } })).code).toBe(0);
  });

  test("an interface is replaced unless its alias names another workload that has an endpoint; then the pod gets another name", async () => {
    await using host = await CniHost.create();
    const { links } = host.kernel;
    expect((await host.add(host.pod("victim"), k8s("prod", "db-0"))).code).toBe(0);
    expect((await host.add(host.pod("container1abc"))).code).toBe(0);
    const before = { endpoints: [...(await host.all("WorkloadEndpoint")).keys()], held: await host.allocations() };
    const name = podInterfaceName("evil", "thief");
    const attempt = async (alias: string | undefined) => {
      links.create({ name, ...(alias && { alias }), type: { kind: "veth", peer: { name: "peer0" } } });
      const pod = host.pod();
      const run = await host.add(pod, k8s("evil", "thief"));
      const isKept = links.get("peer0") !== undefined;
      const used = interfaceOf(run);
      expect(links.get(used)?.alias).toBe(`calico net1 ${pod.containerId} evil/thief`);
      expect((await host.all("WorkloadEndpoint")).get("n1-k8s-thief-eth0")?.spec).toMatchObject({
        interfaceName: used,
      });
      expect((await host.del(pod, k8s("evil", "thief"))).code).toBe(0);
      expect([...(await host.all("WorkloadEndpoint")).keys()]).toEqual(before.endpoints);
      expect(await host.allocations()).toEqual(before.held);
      if (isKept) links.delete("peer0");
      return { code: run.code, isKept, hasUsualName: used === name };
    };
    const [other, replaced] = [
      { code: 0, isKept: true, hasUsualName: false },
      { code: 0, isKept: false, hasUsualName: true },
    ];
    expect(await attempt("calico net1 victim prod/db-0")).toEqual(other);
    expect(await attempt("calico net1 container1abc")).toEqual(other);
    expect(await attempt("calico net1 gone prod/db-1")).toEqual(replaced);
    expect(await attempt("calico net1 gone")).toEqual(replaced);
    expect(await attempt("calico net1 earlier evil/thief")).toEqual(replaced);
    expect(await attempt("an uplink")).toEqual(replaced);
    expect(await attempt(undefined)).toEqual(replaced);
  });

  test("an interface whose alias does not name its owner is not replaced while another endpoint has it", async () => {
    await using host = await CniHost.create();
    const { links } = host.kernel;
    // These two names have the same 44 bits of SHA-1.
    const [victim, thief] = [k8s("prod", "db-1631473"), k8s("evil", "web-5155352")];
    const name = podInterfaceName("prod", "db-1631473");
    expect(podInterfaceName("evil", "web-5155352")).toBe(name);
    const attached = host.pod("victim");
    expect((await host.add(attached, victim)).code).toBe(0);
    const hashed = `calico net1 victim sha256:${new Bun.CryptoHasher("sha256").update("prod/db-1631473").digest("hex")}`;
    for (const alias of ["", "limited by calico", hashed]) {
      links.set(links.get(name)?.index ?? 0, { alias });
      const before = { link: links.get(name), held: await host.allocations() };
      const pod = host.pod();
      const other = interfaceOf(await host.add(pod, thief));
      expect(other).toMatch(/^cali[0-9a-f]{11}$/);
      expect(other).not.toBe(name);
      expect(links.get(name)).toEqual(before.link);
      expect((await host.del(pod, thief)).code).toBe(0);
      expect({ link: links.get(name), held: await host.allocations() }).toEqual(before);
    }
    // The pod that owns it may replace it.
    expect(interfaceOf(await host.add(host.pod("victim2"), victim))).toBe(name);
    expect(interfaceOf(await host.add(host.pod(), thief))).not.toBe(name);
    expect(links.get(name)?.alias).toBe("calico net1 victim2 prod/db-1631473");
  });
});

describe.skipIf(!canRun)("DEL", () => {
  test("CI-042 DEL removes everything; a repeated DEL, DEL without a namespace and DEL without ADD succeed", async () => {
    await using host = await CniHost.create();
    const [pod, other] = [host.pod("cid1"), host.pod("cid2")];
    await host.add(pod, { conf: DUAL });
    expect(await host.del(pod)).toMatchObject({ code: 0, stdout: "" });
    expect(pod.kernel.links.get("eth0")).toBeUndefined();
    expect([host.workloadLinks(), await host.allocations(), await host.handles()]).toEqual([[], [], []]);
    expect((await host.all("WorkloadEndpoint")).size).toBe(0);
    for (const env of [{}, { CNI_NETNS: "" }, { CNI_NETNS: "/run/netns/gone" }]) {
      expect((await host.del(pod, { env })).code).toBe(0);
      expect((await host.del(other, { env })).code).toBe(0);
    }
  });

  test("CI-042 DEL succeeds if the endpoint's name is invalid, so that it cannot have been stored", async () => {
    await using host = await CniHost.create();
    const conf = { nodename: "n/1" };
    expect((await host.add(host.pod("cid1"), { conf })).code).toBe(1);
    expect((await host.del(host.pod("cid2"), { conf })).code).toBe(0);
  });

  test("CI-043 DEL of an old container does not affect the pod's new container", async () => {
    await using host = await CniHost.create();
    const [x, y] = [host.pod("x"), host.pod("y")];
    expect((await host.add(x, k8s("ns1", "p1"))).code).toBe(0);
    const second = await host.add(y, k8s("ns1", "p1"));
    expect(second.json["interfaces"]).toEqual([{ name: "cali1579d706c00" }]);
    expect(await host.allocations()).toHaveLength(2);
    expect((await host.del(x, k8s("ns1", "p1"))).code).toBe(0);
    expect((await host.all("WorkloadEndpoint")).get("n1-k8s-p1-eth0")?.spec).toMatchObject({ containerID: "y" });
    expect(await host.allocations()).toEqual([expect.stringContaining("net1.y")]);
    expect(y.kernel.links.get("eth0")).toBeDefined();
    expect((await host.del(y, k8s("ns1", "p1"))).code).toBe(0);
    expect([(await host.all("WorkloadEndpoint")).size, await host.allocations()]).toEqual([0, []]);
  });

  test("CI-048 addresses of the handles that old versions used are released too", async () => {
    await using host = await CniHost.create();
    const { Ipam } = await import("../../../src/ipam/index.ts");
    const ipam = new Ipam({ datastore: host.store });
    for (const handleId of ["ns1.p1", "cid2"])
      await ipam.autoAssign({ version: 4, count: 1, host: "n1", use: "Workload", handleId });
    await host.del(host.pod("cid1"), k8s("ns1", "p1"));
    await host.del(host.pod("cid2"));
    expect(await host.allocations()).toEqual([]);
  });

  test("CI-048 a pod whose namespace and name form another workload's handle does not release its address", async () => {
    await using host = await CniHost.create();
    const { Ipam } = await import("../../../src/ipam/index.ts");
    const ipam = new Ipam({ datastore: host.store });
    const assign = (handleId: string, attributes?: Record<string, string>) =>
      ipam.autoAssign({
        version: 4,
        count: 1,
        host: "n1",
        use: "Workload",
        handleId,
        ...(attributes && { attributes }),
      });
    await assign("net1.victim", { node: "n1", namespace: "prod", pod: "db-0" });
    await assign("net1.old"); // by a version that recorded no attributes
    await assign("vxlan-tunnel-addr-n2.example.com", { node: "n2.example.com", type: "vxlanTunnelAddress" });
    const before = await host.allocations();
    for (const [namespace, pod] of [
      ["net1", "victim"],
      ["net1", "old"],
      ["vxlan-tunnel-addr-n2", "example.com"],
    ] as const)
      expect((await host.del(host.pod(), k8s(namespace, pod))).code).toBe(0);
    expect(await host.allocations()).toEqual(before);
    expect(await host.handles()).toHaveLength(3);
  });

  test("CI-015 a pod whose name is a prefix of another's is a different pod", async () => {
    await using host = await CniHost.create();
    const [a, b] = [host.pod("a"), host.pod("b")];
    await host.add(a, k8s("ns1", "p-1"));
    await host.add(b, k8s("ns1", "p"));
    expect([...(await host.all("WorkloadEndpoint")).keys()]).toEqual(["n1-k8s-p--1-eth0", "n1-k8s-p-eth0"]);
    await host.del(b, k8s("ns1", "p"));
    expect([...(await host.all("WorkloadEndpoint")).keys()]).toEqual(["n1-k8s-p--1-eth0"]);
  });
});
