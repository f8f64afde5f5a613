import { expect, test } from "bun:test";
import { DEFAULT_OPTIONS } from "./options.ts";
import { requireTools, toolsOf } from "./tools.ts";

const cases = [
  { name: "BGP", options: {}, includes: ["bird"], excludes: ["etcd", "ipset"] },
  { name: "an overlay", options: { backend: "vxlan" }, includes: ["ip"], excludes: ["bird"] },
  { name: "an overlay behind routers", options: { backend: "vxlan", topology: "racks" }, includes: ["bird"] },
  { name: "iptables", options: { dataplane: "iptables" }, includes: ["iptables-restore", "ipset"] },
  { name: "etcd", options: { datastore: "etcd" }, includes: ["etcd"], excludes: ["openssl"] },
] as const;
for (const { name, options, includes, ...rest } of cases)
  test(`a lab with ${name} requires its programs`, () => {
    const tools: readonly string[] = toolsOf({ ...DEFAULT_OPTIONS, ...options });
    expect(tools).toEqual(expect.arrayContaining([...includes]));
    for (const tool of "excludes" in rest ? rest.excludes : []) expect(tools).not.toContain(tool);
  });

test("the error names missing programs and their packages", () => {
  expect(() => requireTools(["ip", "bird", "ipset"], (tool) => tool === "ipset")).toThrow(
    "ip, bird not installed: apt-get install --no-install-recommends iproute2 bird2",
  );
  expect(() => requireTools(["ip"], () => true)).not.toThrow();
});
