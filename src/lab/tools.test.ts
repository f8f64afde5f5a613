import { expect, test } from "bun:test";
import { DEFAULT_OPTIONS } from "./options.ts";
import { requireTools, toolsOf } from "./tools.ts";

const cases = [
  { name: "routes by BGP", options: {}, wants: ["bird"], wantsNot: ["etcd", "ipset"] },
  { name: "an overlay", options: { backend: "vxlan" }, wants: ["ip"], wantsNot: ["bird"] },
  { name: "an overlay behind routers", options: { backend: "vxlan", topology: "racks" }, wants: ["bird"] },
  { name: "iptables", options: { dataplane: "iptables" }, wants: ["iptables-restore", "ipset"] },
  { name: "etcd", options: { datastore: "etcd" }, wants: ["etcd"], wantsNot: ["openssl"] },
] as const;
for (const { name, options, wants, ...rest } of cases)
  test(`a lab with ${name} asks for what it runs`, () => {
    const tools: readonly string[] = toolsOf({ ...DEFAULT_OPTIONS, ...options });
    expect(tools).toEqual(expect.arrayContaining([...wants]));
    for (const tool of "wantsNot" in rest ? rest.wantsNot : []) expect(tools).not.toContain(tool);
  });

test("what is missing is named with the packages that hold it", () => {
  expect(() => requireTools(["ip", "bird", "ipset"], (tool) => tool === "ipset")).toThrow(
    "ip, bird not installed: apt-get install --no-install-recommends iproute2 bird2",
  );
  expect(() => requireTools(["ip"], () => true)).not.toThrow();
});
