import { expect, test } from "bun:test";
import { judgeClusterVersion } from "./cluster-version.ts";

const cases = [
  { name: "our own", cluster: "v0.4.2", fits: true },
  { name: "our own, as a build calls itself", cluster: "v0.4.2-3-gabc-dirty", fits: true },
  { name: "our own with other corrections", cluster: "0.4.9", fits: true },
  { name: "a later one of ours", cluster: "v0.5.0", fits: false },
  { name: "an earlier one of ours", cluster: "v0.3.0", fits: false },
  { name: "the oldest of the original that we know", cluster: "v3.28.0", fits: true },
  { name: "a later release of the original", cluster: "v3.32.1", fits: true },
  { name: "one before its release", cluster: "v3.33.0-0.dev-12", fits: true },
  { name: "the original before its objects were ours", cluster: "v3.20.0", fits: false },
  { name: "the release just before", cluster: "v3.27.5", fits: false },
  { name: "another major", cluster: "v4.0.0", fits: false },
  { name: "no version at all", cluster: "master", fits: false },
  { name: "nearly a number", cluster: "3.28x", fits: false },
];
for (const { name, cluster, fits } of cases)
  test(`TC-C24 a cluster's version: ${name}`, () => {
    expect(judgeClusterVersion("v0.4.2", cluster).fits).toBe(fits);
  });

test("TC-C24 a build without version fits its own clusters alone, and those of the original", () => {
  expect(judgeClusterVersion("unknown", "unknown").fits).toBe(true);
  expect(judgeClusterVersion("unknown", "v0.4.2").fits).toBe(false);
  expect(judgeClusterVersion("unknown", "v3.30.0").fits).toBe(true);
});
