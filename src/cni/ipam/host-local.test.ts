import { expect, test } from "bun:test";
import { containerRoutes, podCidrs, withAnyCidrs, withPodCidrs } from "./host-local.ts";
import type { KubernetesApi } from "../kubernetes/api.ts";

const api = (podCIDRs: readonly string[]) => async () =>
  ({ node: async () => ({ metadata: { name: "n1" }, spec: { podCIDRs } }) }) as unknown as KubernetesApi;
const never = async (): Promise<KubernetesApi> => {
  throw new Error("the API was called");
};

test("CI-034 usePodCidr is replaced by the node's pod CIDR, in any case and also inside ranges", async () => {
  const config = {
    ipam: { subnet: "usePodCidr", ranges: [[{ subnet: "USEPODCIDR" }], [{ subnet: "usePodCidrIPv6", x: 1 }]] },
    other: 1,
  };
  expect(await withPodCidrs(config, "n1", api(["10.244.1.0/24", "fd00:1::/64"]))).toEqual({
    ipam: { subnet: "10.244.1.0/24", ranges: [[{ subnet: "10.244.1.0/24" }], [{ subnet: "fd00:1::/64", x: 1 }]] },
    other: 1,
  });
});

test("CI-034 without usePodCidr the API is not called", async () => {
  const config = { ipam: { subnet: "10.0.0.0/24" } };
  expect(await withPodCidrs(config, "n1", never)).toBe(config);
});

const missing = [
  { cidrs: [], message: "no podCidr for node n1" },
  { cidrs: ["fd00::/64"], message: "usePodCidr found but there is no IPv4 CIDR configured" },
  { cidrs: ["10.0.0.0/24", "10.1.0.0/24"], message: "more than one IPv4 podCIDR" },
];
for (const { cidrs, message } of missing)
  test(`CI-034 podCIDRs ${JSON.stringify(cidrs)} are rejected for IPv4`, () =>
    expect(() => podCidrs(cidrs, "n1")(4)).toThrow(message));

test("CI-044 DEL inserts any CIDR and does not call the API", () =>
  expect(withAnyCidrs({ ipam: { ranges: [[{ subnet: "usePodCidr" }, { subnet: "usePodCidrIPv6" }]] } })).toEqual({
    ipam: { ranges: [[{ subnet: "0.0.0.0/0" }, { subnet: "::/0" }]] },
  }));

test("CI-035 routes of host-local replace the default routes, or are added to them", () => {
  const config = { ipam: { type: "host-local", routes: [{ dst: "10.0.0.0/8", gw: "1.2.3.4" }, { dst: "fd00::/8" }] } };
  expect(containerRoutes(config, false) as string[]).toEqual(["10.0.0.0/8", "fd00::/8"]);
  expect(containerRoutes(config, true) as string[]).toEqual(["10.0.0.0/8", "fd00::/8", "0.0.0.0/0", "::/0"]);
  expect(containerRoutes({ ipam: { type: "calico-ipam", routes: [{}] } }, false) as string[]).toEqual([
    "0.0.0.0/0",
    "::/0",
  ]);
  for (const routes of [[{}], [{ dst: "10.0.0.1" }], [{ dst: 5 }], {}])
    expect(() => containerRoutes({ ipam: { type: "host-local", routes } }, false)).toThrow(/ipam\.routes/);
});
