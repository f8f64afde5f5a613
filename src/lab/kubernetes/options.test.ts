import { expect, test } from "bun:test";
import { resolveLabOptions, InvalidRequest } from "../options.ts";
import { imageConfig } from "./images.ts";
import { nodeSettings } from "./network.ts";

test("--kubernetes is --datastore kubernetes with real kubelets, without pods unless it is told", () => {
  const options = resolveLabOptions({ kubernetes: true });
  expect(options).toEqual(resolveLabOptions({ datastore: "kubernetes", kubernetes: true }));
  expect([options.datastore, options.kubelets, options.podsPerNode]).toEqual(["kubernetes", true, 0]);
});

test("--datastore kubernetes alone is a lab like any other, on an API server", () => {
  const options = resolveLabOptions({ datastore: "kubernetes", topology: "racks", ipv6: true });
  expect([options.datastore, options.kubelets, options.podsPerNode]).toEqual(["kubernetes", false, 3]);
});

for (const other of [
  { datastore: "etcd" },
  { topology: "racks" },
  { ipv6: true },
  { typha: true, backend: "vxlan" },
] as const)
  test(`--kubernetes refuses ${JSON.stringify(other)}`, () => {
    expect(() => resolveLabOptions({ kubernetes: true, ...other })).toThrow(InvalidRequest);
  });

test("--typha needs --kubernetes", () => {
  const options = resolveLabOptions({ kubernetes: true, typha: true });
  expect(options.typha).toBe(true);
  expect(resolveLabOptions({}, options)).toEqual(options);
  // `up` compares the options with those of a lab that exists, which may be of a version without this one.
  expect(resolveLabOptions({ kubernetes: true })).not.toHaveProperty("typha");
  expect(() => resolveLabOptions({ datastore: "kubernetes", typha: true })).toThrow(InvalidRequest);
});

test("the node is told what this machine's kernel has", () => {
  const bgp = resolveLabOptions({ kubernetes: true, dataplane: "iptables" });
  expect(nodeSettings(bgp)).toEqual({ CALICO_IPV4POOL_IPIP: "Never", FELIX_NFTABLESMODE: "Disabled" });
  const vxlan = resolveLabOptions({ kubernetes: true, backend: "vxlan" });
  expect(nodeSettings(vxlan)).toEqual({ CALICO_IPV4POOL_VXLAN: "Always", FELIX_NFTABLESMODE: "Enabled" });
});

test("an image's configuration names its one layer and its program", () => {
  expect(imageConfig({ name: "localhost/x:1", entrypoint: ["/pause"] }, "sha256:00")).toMatchObject({
    os: "linux",
    config: { Entrypoint: ["/pause"] },
    rootfs: { type: "layers", diff_ids: ["sha256:00"] },
  });
});
