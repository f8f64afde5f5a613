import { expect, test } from "bun:test";
import fc from "fast-check";
import { parseNetwork } from "../../lib/ip/ip.ts";
import { type CniResult, hostNetwork, parseResult, renderResult } from "./result.ts";

const result: CniResult = {
  interfaces: [{ name: "cali1" }, { name: "eth0", mac: "0a:00:00:00:00:01", mtu: 1450, sandbox: "/run/netns/p" }],
  ips: [
    { address: parseNetwork("10.0.0.5/32"), interface: 1 },
    { address: parseNetwork("fd00::5/128"), interface: 1 },
  ],
  routes: [{ destination: parseNetwork("10.0.0.5/26") }],
};

for (const version of ["0.1.0", "0.2.0"] as const)
  test(`CI-003 ${version} has one address per family`, () =>
    expect(renderResult(result, version)).toEqual({
      cniVersion: version,
      ip4: { ip: "10.0.0.5/32", routes: [{ dst: "10.0.0.5/26" }] },
      ip6: { ip: "fd00::5/128" },
      dns: {},
    }));

for (const version of ["0.3.0", "0.3.1", "0.4.0"] as const)
  test(`CI-003 ${version} contains the family of each address and no MTU`, () =>
    expect(renderResult(result, version)).toEqual({
      cniVersion: version,
      interfaces: [{ name: "cali1" }, { name: "eth0", mac: "0a:00:00:00:00:01", sandbox: "/run/netns/p" }],
      ips: [
        { version: "4", interface: 1, address: "10.0.0.5/32" },
        { version: "6", interface: 1, address: "fd00::5/128" },
      ],
      routes: [{ dst: "10.0.0.5/26" }],
      dns: {},
    }));

for (const version of ["1.0.0", "1.1.0"] as const)
  test(`CI-004 ${version} contains the MTU, no family and no empty dns`, () =>
    expect(renderResult(result, version)).toEqual({
      cniVersion: version,
      interfaces: [{ name: "cali1" }, { name: "eth0", mac: "0a:00:00:00:00:01", mtu: 1450, sandbox: "/run/netns/p" }],
      ips: [
        { interface: 1, address: "10.0.0.5/32" },
        { interface: 1, address: "fd00::5/128" },
      ],
      routes: [{ dst: "10.0.0.5/26" }],
    }));

test("CI-003 results of every version are parsed", () => {
  for (const version of ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] as const)
    expect(parseResult(renderResult(result, version)).ips).toEqual(result.ips);
  expect(parseResult(renderResult(result, "0.2.0")).ips).toEqual(result.ips.map(({ address }) => ({ address })));
  expect(
    parseResult({ ip4: { ip: "10.0.0.5/24", routes: [{ dst: "0.0.0.0/0", gw: "10.0.0.1" }] } }).routes,
  ).toMatchObject([{ gateway: "10.0.0.1" }] as never);
});

test("CI-003 DNS settings of an IPAM plugin are passed on in every version", () => {
  const dns = { nameservers: ["192.0.2.53"], domain: "d", search: ["a.d"], options: ["ndots:5"] };
  for (const version of ["0.2.0", "0.3.1", "1.0.0"] as const) {
    const read = parseResult({ ...renderResult(result, version), dns });
    expect(renderResult(read, version)["dns"]).toEqual(dns);
  }
  expect(parseResult({ dns: { nameservers: [], domain: "" } }).dns).toBeUndefined();
});

test("CI-003 the error for a malformed result names the field", () => {
  expect(() => parseResult({ ips: [{ address: "nonsense" }] })).toThrow(/ips\[\]\.address/);
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      try {
        parseResult(value);
      } catch (error) {
        expect((error as { code?: number }).code).toBe(6);
      }
    }),
  );
});

test("CI-017 the pod's address has the full prefix length", () =>
  expect([hostNetwork(parseNetwork("10.0.0.5/26")).length, hostNetwork(parseNetwork("fd00::5/122")).length]).toEqual([
    32, 128,
  ]));
