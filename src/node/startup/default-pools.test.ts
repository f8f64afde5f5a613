import { expect, test } from "bun:test";
import { parseCidr, parseNetwork } from "../../lib/ip/ip.ts";
import { defaultPools, type PoolInputs } from "./default-pools.ts";
import { podSubnetsIn } from "./kubernetes-facts.ts";

const pools = (env: Record<string, string>, more: Partial<PoolInputs> = {}) =>
  defaultPools({ env, interfaces: [], podSubnets: [], existing: new Set(), ipv6InKernel: true, ...more }).map(
    ({ metadata, spec }) => ({ ...(spec as Record<string, unknown>), name: metadata.name }) as Record<string, unknown>,
  );
const iface = (network: string) => ({ name: "eth0", index: 2, networks: [parseNetwork(network)] });

test("NB-037 an IPv4 pool with NAT and no encapsulation by default", () =>
  expect(pools({})[0]).toEqual({
    name: "default-ipv4-ippool",
    cidr: "192.168.0.0/16",
    blockSize: 26,
    ipipMode: "Never",
    vxlanMode: "Never",
    nodeSelector: "all()",
    natOutgoing: true,
  }));

test("NB-037 all variables of the IPv4 pool", () =>
  expect(
    pools({
      CALICO_IPV4POOL_CIDR: "172.30.0.0/16",
      CALICO_IPV4POOL_BLOCK_SIZE: "27",
      CALICO_IPV4POOL_IPIP: "cross-subnet",
      CALICO_IPV4POOL_VXLAN: "OFF",
      CALICO_IPV4POOL_NAT_OUTGOING: "no",
      CALICO_IPV4POOL_NODE_SELECTOR: "rack == 'a'",
      CALICO_IPV4POOL_DISABLE_BGP_EXPORT: "true",
    })[0],
  ).toEqual({
    name: "default-ipv4-ippool",
    cidr: "172.30.0.0/16",
    blockSize: 27,
    ipipMode: "CrossSubnet",
    vxlanMode: "Never",
    nodeSelector: "rack == 'a'",
    disableBGPExport: true,
  }));

test("NB-038 a range in which the host has an address is not used", () => {
  const cidr = (...networks: string[]) => pools({}, { interfaces: networks.map(iface) })[0]?.["cidr"];
  expect(cidr("192.168.1.5/24")).toBe("172.16.0.0/16");
  expect(cidr("192.168.1.5/24", "172.16.3.1/24", "172.17.0.1/16")).toBe("172.18.0.0/16");
  const all = Array.from({ length: 16 }, (_, i) => `172.${16 + i}.0.1/16`);
  expect(cidr("192.168.1.5/24", ...all)).toBe("192.168.0.0/16");
});

test("NB-039 kubeadm's pod subnets are used up to the first invalid one", () => {
  const subnets = podSubnetsIn({
    data: {
      ClusterStatus: "x",
      ClusterConfiguration: "networking:\n  podSubnet: 10.10.0.0/16, fd00:10::/56,junk,10.9.0.0/16\n",
    },
  });
  expect(subnets.map(String)).toEqual(["10.10.0.0/16", "fd00:10::/56"]);
  expect(podSubnetsIn({ data: { a: "podSubnet: junk" } })).toEqual([]);
  expect(pools({}, { podSubnets: subnets }).map((pool) => pool["cidr"])).toEqual(["10.10.0.0/16", "fd00:10::/56"]);
  expect(pools({ CALICO_IPV4POOL_CIDR: "10.1.0.0/16" }, { podSubnets: [parseCidr("10.10.0.0/16")] })[0]?.["cidr"]).toBe(
    "10.1.0.0/16",
  );
});

test("NB-040 a random unique local prefix for IPv6, unless the kernel or Felix does not support IPv6", () => {
  const six = () => pools({})[1]?.["cidr"] as string;
  for (let i = 0; i < 2000; i++) expect(six()).toMatch(/^fd(?!00)[0-9a-f]{2}(:[0-9a-f]{1,4}){0,2}::\/48$/);
  expect(six()).not.toBe(six());
  expect(pools({}, { ipv6InKernel: false })).toHaveLength(1);
  expect(pools({ FELIX_IPV6SUPPORT: "false" })).toHaveLength(1);
});

test("NB-041 none disables the pool of a family", () => {
  expect(pools({ CALICO_IPV4POOL_CIDR: "none" }).map(({ name }) => name)).toEqual(["default-ipv6-ippool"]);
  expect(pools({ CALICO_IPV4POOL_CIDR: "none", CALICO_IPV6POOL_CIDR: "None" })).toEqual([]);
  expect(pools({ NO_DEFAULT_POOLS: "true", CALICO_IPV6POOL_CIDR: "none" })).toEqual([]);
});

test("NB-042 all variables of the IPv6 pool; IPIP is always Never", () =>
  expect(
    pools({
      CALICO_IPV4POOL_CIDR: "none",
      CALICO_IPV6POOL_CIDR: "fd00:64::/48",
      CALICO_IPV6POOL_VXLAN: "Always",
      CALICO_IPV6POOL_DISABLE_BGP_EXPORT: "1",
      CALICO_IPV6POOL_NAT_OUTGOING: "",
    }),
  ).toEqual([
    {
      name: "default-ipv6-ippool",
      cidr: "fd00:64::/48",
      blockSize: 122,
      ipipMode: "Never",
      vxlanMode: "Always",
      nodeSelector: "all()",
      natOutgoing: true,
      disableBGPExport: true,
    },
  ]));

test("NB-043 NO_DEFAULT_POOLS creates no pools, and rejects a CIDR", () => {
  expect(pools({ NO_DEFAULT_POOLS: "TRUE" })).toEqual([]);
  expect(() => pools({ NO_DEFAULT_POOLS: "true", CALICO_IPV6POOL_CIDR: "fd00::/48" })).toThrow("NO_DEFAULT_POOLS");
});

test("a family that has a pool gets no default pool", () =>
  expect(pools({}, { existing: new Set([4] as const) }).map(({ name }) => name)).toEqual(["default-ipv6-ippool"]));

for (const [name, env] of [
  ["not a CIDR", { CALICO_IPV4POOL_CIDR: "172.31.0.0/99" }],
  ["the wrong family", { CALICO_IPV4POOL_CIDR: "fd00::/48" }],
  ["the wrong family", { CALICO_IPV6POOL_CIDR: "10.0.0.0/16" }],
  ["block size 19", { CALICO_IPV4POOL_BLOCK_SIZE: "19" }],
  ["block size 33", { CALICO_IPV4POOL_BLOCK_SIZE: "33" }],
  ["block size 115", { CALICO_IPV6POOL_BLOCK_SIZE: "115" }],
  ["block size 129", { CALICO_IPV6POOL_BLOCK_SIZE: "129" }],
  ["block size words", { CALICO_IPV4POOL_BLOCK_SIZE: "big" }],
  ["a bad selector", { CALICO_IPV4POOL_NODE_SELECTOR: "rack ==" }],
  ["a bad IPIP word", { CALICO_IPV4POOL_IPIP: "sometimes" }],
] as [string, Record<string, string>][])
  test(`NB-044 rejected: ${name} ${JSON.stringify(env)}`, () => expect(() => pools(env)).toThrow());
