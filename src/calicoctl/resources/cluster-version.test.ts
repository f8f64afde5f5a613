import { expect, test } from "bun:test";
import { checkClusterVersion } from "./cluster-version.ts";

const cases = [
  { name: "the same version", cluster: "v0.4.2", isSupported: true },
  { name: "a build of the same version", cluster: "v0.4.2-3-gabc-dirty", isSupported: true },
  { name: "another patch release of the same version", cluster: "0.4.9", isSupported: true },
  { name: "a later version of calico-ts", cluster: "v0.5.0", isSupported: false },
  { name: "an earlier version of calico-ts", cluster: "v0.3.0", isSupported: false },
  { name: "the first supported Calico release", cluster: "v3.28.0", isSupported: true },
  { name: "a later Calico release", cluster: "v3.32.1", isSupported: true },
  { name: "a pre-release of Calico", cluster: "v3.33.0-0.dev-12", isSupported: true },
  { name: "an old Calico release", cluster: "v3.20.0", isSupported: false },
  { name: "the last Calico release that is not supported", cluster: "v3.27.5", isSupported: false },
  { name: "another major version", cluster: "v4.0.0", isSupported: false },
  { name: "text that is not a version", cluster: "master", isSupported: false },
  { name: "a malformed version", cluster: "3.28x", isSupported: false },
];
for (const { name, cluster, isSupported } of cases)
  test(`TC-C24 the version of a cluster: ${name}`, () => {
    expect(checkClusterVersion("v0.4.2", cluster).isSupported).toBe(isSupported);
  });

test("TC-C24 a build without a version supports only its own clusters and those of Calico", () => {
  expect(checkClusterVersion("unknown", "unknown").isSupported).toBe(true);
  expect(checkClusterVersion("unknown", "v0.4.2").isSupported).toBe(false);
  expect(checkClusterVersion("unknown", "v3.30.0").isSupported).toBe(true);
});
