import { expect, test } from "bun:test";
import { resolveLabOptions, InvalidRequest } from "../options.ts";
import { imageConfig } from "./images.ts";
import { nodeSettings } from "./network.ts";

test("--kubernetes implies --datastore kubernetes and kubelets, and no pods by default", () => {
  const options = resolveLabOptions({ kubernetes: true });
  expect(options).toEqual(resolveLabOptions({ datastore: "kubernetes", kubernetes: true }));
  expect([options.datastore, options.kubelets, options.podsPerNode]).toEqual(["kubernetes", true, 0]);
});

test("--datastore kubernetes without --kubernetes has no kubelets", () => {
  const options = resolveLabOptions({ datastore: "kubernetes", topology: "racks", ipv6: true });
  expect([options.datastore, options.kubelets, options.podsPerNode]).toEqual(["kubernetes", false, 3]);
});

for (const other of [
  { datastore: "etcd" },
  { topology: "racks" },
  { ipv6: true },
  { typha: true, backend: "vxlan" },
] as const)
  test(`--kubernetes rejects ${JSON.stringify(other)}`, () => {
    expect(() => resolveLabOptions({ kubernetes: true, ...other })).toThrow(InvalidRequest);
  });

test("--typha needs --kubernetes", () => {
  const options = resolveLabOptions({ kubernetes: true, typha: true });
  expect(options.typha).toBe(true);
  expect(resolveLabOptions({}, options)).toEqual(options);
  // `up` compares the options with those of an existing lab, which an older version may have created.
  expect(resolveLabOptions({ kubernetes: true })).not.toHaveProperty("typha");
  expect(() => resolveLabOptions({ datastore: "kubernetes", typha: true })).toThrow(InvalidRequest);
});

test("calico-node's settings fit the lab", () => {
  const bgp = resolveLabOptions({ kubernetes: true, dataplane: "iptables" });
  expect(nodeSettings(bgp)).toEqual({ CALICO_IPV4POOL_IPIP: "Never", FELIX_NFTABLESMODE: "Disabled" });
  const vxlan = resolveLabOptions({ kubernetes: true, backend: "vxlan" });
  expect(nodeSettings(vxlan)).toEqual({ CALICO_IPV4POOL_VXLAN: "Always", FELIX_NFTABLESMODE: "Enabled" });
});

test("an image's configuration has its layer and its program", () => {
  expect(imageConfig({ name: "localhost/x:1", entrypoint: ["/pause"] }, "sha256:00")).toMatchObject({
    os: "linux",
    config: { Entrypoint: ["/pause"] },
    rootfs: { type: "layers", diff_ids: ["sha256:00"] },
  });
});
