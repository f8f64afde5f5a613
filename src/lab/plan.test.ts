import { expect, test } from "bun:test";
import { DEFAULT_OPTIONS, resolveLabOptions, TOPOLOGIES, InvalidRequest } from "./options.ts";
import { type PlannedHost, planLab } from "./plan.ts";

const hostsOf = (options: Parameters<typeof planLab>[0]): PlannedHost[] => {
  const plan = planLab(options);
  return [...plan.nodes, ...plan.routers];
};

for (const topology of TOPOLOGIES)
  for (const nodes of [1, 2, 3, 7])
    test(`${topology} of ${nodes}: every interface has a network, no address twice`, () => {
      const options = { ...DEFAULT_OPTIONS, topology, nodes, ipv6: true };
      const plan = planLab(options);
      const interfaces = hostsOf(options).flatMap((host) => host.interfaces);
      const addresses = [...interfaces.flatMap((nic) => nic.addresses), ...plan.control.addresses];
      expect(plan.nodes).toHaveLength(nodes);
      expect(new Set(addresses).size).toBe(addresses.length);
      expect(interfaces.every((nic) => plan.segments.includes(nic.segment))).toBe(true);
      expect(interfaces.every((nic) => nic.addresses.length === 2)).toBe(true);
    });

test("racks: each node has its router as neighbour and gateway, and the routers are neighbours", () => {
  const plan = planLab({ ...DEFAULT_OPTIONS, topology: "racks", nodes: 4 });
  expect(plan.routers.map((router) => router.name)).toEqual(["tor1", "tor2"]);
  expect(plan.nodes[3]?.routes).toEqual([{ destination: "0.0.0.0/0", via: "10.81.0.1" }]);
  expect(plan.routers[1]?.neighbours).toContainEqual({ address: "10.81.0.14", asNumber: 65002 });
  expect(plan.routers[1]?.neighbours).toContainEqual({ address: "10.79.0.11", asNumber: 65101 });
  expect(plan.control.routes).toContainEqual({ destination: "10.81.0.0/24", via: "10.79.0.12" });
});

test("reflectors: two nodes are reflectors, the mesh is disabled", () => {
  const plan = planLab({ ...DEFAULT_OPTIONS, topology: "reflectors", nodes: 5 });
  expect(plan.nodes.filter((node) => node.labels["route-reflector"] === "true").map((node) => node.name)).toEqual([
    "node1",
    "node2",
  ]);
  expect(plan.resources.map((resource) => resource.kind)).toEqual(["BGPConfiguration", "BGPPeer"]);
});

test("dual-nic: the router expects eth0's addresses, the nodes detect theirs", () => {
  const plan = planLab({ ...DEFAULT_OPTIONS, topology: "dual-nic", nodes: 2 });
  expect(plan.routers[0]?.neighbours.map(({ address }) => address)).toEqual(["10.77.0.11", "10.77.0.12"]);
  expect(plan.nodes[0]?.environment).toEqual({ IP: "autodetect", IP6: "none" });
  expect(plan.resources.map(({ kind }) => kind)).toEqual(["BGPPeer"]);
});

for (const name of ["../x", ""])
  test(`options reject the name ${JSON.stringify(name)}`, () =>
    expect(() => resolveLabOptions({ name })).toThrow(InvalidRequest));

test("options that are not given are those of the existing lab", () => {
  const existing = resolveLabOptions({ name: "two", nodes: 2, datastore: "etcd", ipv6: true });
  expect(resolveLabOptions({ name: "two" }, existing)).toEqual(existing);
  expect(resolveLabOptions({ name: "two", nodes: 4 }, existing)).toEqual({ ...existing, nodes: 4 });
  const cluster = resolveLabOptions({ name: "k", kubernetes: true, pods: 2 });
  expect(resolveLabOptions({ name: "k" }, cluster)).toEqual(cluster);
});
