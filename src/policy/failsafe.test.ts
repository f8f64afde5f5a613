import { expect, test } from "bun:test";
import { felixSettingValue } from "../model/index.ts";
import { parseAddress } from "../lib/ip/ip.ts";
import { failsafeFor, failsafeReplyFor } from "./failsafe.ts";
import type { PolicyState } from "./state.ts";

const PROTOCOLS = { tcp: 6, udp: 17, sctp: 132 } as const;
const packet = (protocol: keyof typeof PROTOCOLS, source: string, destination: string, ports: [number, number]) => ({
  protocol: PROTOCOLS[protocol],
  source: parseAddress(source),
  destination: parseAddress(destination),
  sourcePort: ports[0],
  destinationPort: ports[1],
});
/** Returns `text` as the value of both failsafe settings, on every host. */
const withPorts = (text: string | undefined): Pick<PolicyState, "setting"> => ({
  setting: (name) => felixSettingValue(name, text),
});

test("failsafe ports match by protocol, network and port; the value None closes all", () => {
  const state = withPorts("22,udp:68, tcp:10.0.0.0/8:179,tcp:[fd00::/8]:6443");
  const isOpen = (protocol: keyof typeof PROTOCOLS, source: string, port: number, given = state) => {
    const destination = source.includes(":") ? "fe80::1" : "192.0.2.1";
    return failsafeFor(given, "h", packet(protocol, source, destination, [1000, port]), "ingress") !== undefined;
  };
  expect(isOpen("tcp", "198.51.100.1", 22)).toBe(true);
  expect(isOpen("udp", "198.51.100.1", 22)).toBe(false);
  expect(isOpen("udp", "198.51.100.1", 68)).toBe(true);
  expect(isOpen("tcp", "10.1.1.1", 179)).toBe(true);
  expect(isOpen("tcp", "11.1.1.1", 179)).toBe(false);
  expect(isOpen("tcp", "fd00::1", 6443)).toBe(true);
  expect(isOpen("tcp", "10.1.1.1", 6443)).toBe(false);
  expect(isOpen("tcp", "198.51.100.1", 22, withPorts("None"))).toBe(false);
  // Felix accepts only TCP and UDP; an invalid list is replaced by the default.
  for (const text of ["sctp:1", "nonsense,tcp:23", undefined]) {
    expect(isOpen("sctp", "198.51.100.1", 1, withPorts(text))).toBe(false);
    expect(isOpen("tcp", "198.51.100.1", 23, withPorts(text))).toBe(false);
    expect(isOpen("tcp", "198.51.100.1", 22, withPorts(text))).toBe(true);
  }
});

test("failsafe ports match the network of the remote address, and replies by source port", () => {
  const state = withPorts("tcp:10.0.0.0/8:179");
  const out = packet("tcp", "192.0.2.1", "10.1.1.1", [1000, 179]);
  expect(failsafeFor(state, "h", out, "egress")).toMatchObject({ port: 179 });
  expect(failsafeFor(state, "h", out, "ingress")).toBeUndefined();
  const reply = packet("tcp", "10.1.1.1", "192.0.2.1", [179, 1000]);
  expect(failsafeReplyFor(state, "h", reply, "ingress")).toMatchObject({ port: 179 });
  expect(failsafeFor(state, "h", reply, "ingress")).toBeUndefined();
});
