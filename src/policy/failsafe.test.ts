import { expect, test } from "bun:test";
import type { Cidr } from "../lib/ip.ts";
import { parseFailsafePorts } from "./failsafe.ts";

test("failsafe ports: protocol, network and port; none closes all", () => {
  expect(parseFailsafePorts("22,udp:68, tcp:10.0.0.0/8:179,tcp:[fd00::/8]:6443,sctp:1")).toEqual([
    { protocol: 6, port: 22 },
    { protocol: 17, port: 68 },
    { protocol: 6, port: 179, net: "10.0.0.0/8" as Cidr },
    { protocol: 6, port: 6443, net: "fd00::/8" as Cidr },
    { protocol: 132, port: 1 },
  ]);
  expect(parseFailsafePorts("None")).toEqual([]);
  expect(parseFailsafePorts("nonsense,tcp:22")).toEqual([{ protocol: 6, port: 22 }]);
});
