import { expect, test } from "bun:test";
import { parseAddress, parseNetwork } from "../../lib/ip/ip.ts";
import { resultFor } from "./attach.ts";
import type { CniContext } from "../context.ts";

const attached = {
  ...{ hostName: "cali1", mac: "ee:ee:ee:ee:ee:ee" },
  assigned: {
    interfaces: [],
    ips: [{ address: parseNetwork("10.70.0.2/24") }],
    routes: [{ destination: parseNetwork("10.0.0.0/8"), gateway: parseAddress("10.70.0.1") }],
  },
};
const result = (type: string, mtu: number) =>
  resultFor(
    {
      request: { cniVersion: "1.0.0", ifName: "eth0", netns: "/n" },
      conf: { ipam: { type } },
    } as unknown as CniContext,
    { ...attached, mtu },
  );

test("CI-034 routes of another IPAM plugin are passed on unchanged; those of calico-ipam only in the full form", () => {
  for (const mtu of [0, 1400]) expect(result("host-local", mtu).routes).toEqual(attached.assigned.routes);
  expect(result("calico-ipam", 0).routes).toEqual([]);
  expect(result("calico-ipam", 1400).routes).toEqual([{ destination: parseNetwork("10.0.0.0/8") }]);
});
