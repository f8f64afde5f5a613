// Tests pods whose annotation requests an address of another family than the network assigns. Nothing is configured for the
// family that the pod does not have, in the pod or on the host.
import { describe, expect, test } from "bun:test";
import { canRun, CniHost, k8s } from "./cni-host.ts";

/** Starts an API server on the host that returns the same pod for every name. */
function apiWith(host: CniHost, annotations: Record<string, string>) {
  const answer = ({ url }: Request): Response =>
    Response.json({
      metadata: { name: new URL(url).pathname.split("/").at(-1), ...(url.includes("/pods/") ? { annotations } : {}) },
      spec: {},
    });
  return host.handle.run(() => Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: answer }) as never) as ReturnType<
    typeof Bun.serve
  >;
}

const cases = [
  { name: "only IPv4, if the network assigns both", ip: "10.65.0.77", assign_ipv6: "true", lacks: 6 },
  { name: "only IPv6, if the network assigns IPv4", ip: "fd00:65::77", assign_ipv6: "false", lacks: 4 },
] as const;

describe.skipIf(!canRun)("a pod with requested addresses has", () => {
  for (const { name, ip, assign_ipv6, lacks } of cases)
    test(`CI-027 ${name}`, async () => {
      await using host = await CniHost.create();
      using api = apiWith(host, { "cni.projectcalico.org/ipAddrs": JSON.stringify([ip]) });
      const pod = host.pod();
      // As set by container runtimes that do not use IPv6.
      pod.handle.run(() => Bun.spawnSync(["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"]) as never);
      const conf = {
        policy: { type: "k8s", k8s_api_root: `http://127.0.0.1:${api.port}` },
        ipam: { type: "calico-ipam", assign_ipv4: "true", assign_ipv6 },
      };
      const who = k8s("ns1", "p1");
      const added = await host.add(pod, { ...who, conf });
      expect(added).toMatchObject({ code: 0, json: { ips: [{ address: expect.stringContaining(`${ip}/`) }] } });
      const [link = ""] = host.workloadLinks();
      const set = {
        host: ["route_localnet", "proxy_arp"].map((key) => host.read("net", "ipv4", "conf", link, key)),
        host6: ["proxy_ndp", "forwarding"].map((key) => host.read("net", "ipv6", "conf", link, key)),
        pod: pod.read("net", "ipv6", "conf", "all", "disable_ipv6"),
      };
      const has = (version: 4 | 6): string => (version === lacks ? "0" : "1");
      expect(set).toEqual({ host: [has(4), has(4)], host6: [has(6), has(6)], pod: lacks === 6 ? "1" : "0" });
      expect(await host.del(pod, { ...who, conf })).toMatchObject({ code: 0 });
    }, 60_000);
});
