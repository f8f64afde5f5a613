import { describe, expect, test } from "bun:test";
import { type IpAddress, parseCidr } from "../../lib/ip/ip.ts";
import type { Resource } from "../../model/index.ts";
import {
  ANNOTATION,
  changesFor,
  ingressWith,
  InvalidAddressRequest,
  isManaged,
  loadBalancerPools,
  type ServiceFacts,
  serviceFacts,
  readAddressRequest,
} from "./desired.ts";

const address = (text: string) => text as IpAddress;
const service = (given: Partial<ServiceFacts> = {}): ServiceFacts => ({
  name: "web",
  namespace: "shop",
  uid: "u1",
  isLoadBalancer: true,
  loadBalancerClass: "",
  loadBalancerIP: "",
  annotations: {},
  families: [4],
  ingress: [],
  ...given,
});
const pool = (name: string, cidr: string, isAutomatic = true) => ({
  name,
  cidr: parseCidr(cidr),
  isAutomatic,
  selectsNamespaces: false,
});
const POOLS = [pool("auto", "10.1.0.0/24"), pool("manual", "10.2.0.0/24", false), pool("six", "fd00::/120")];

describe("TC-K27 managed services", () => {
  const annotated = { annotations: { [ANNOTATION.pools4]: '["auto"]' } };
  const cases = [
    { name: "no class, all services", facts: {}, mode: "AllServices", want: true },
    {
      name: "no class, and only requested services are managed",
      facts: {},
      mode: "RequestedServicesOnly",
      want: false,
    },
    { name: "class calico", facts: { loadBalancerClass: "calico" }, mode: "RequestedServicesOnly", want: true },
    { name: "another class", facts: { loadBalancerClass: "metal" }, mode: "AllServices", want: false },
    {
      name: "another class with an annotation of Calico",
      facts: { loadBalancerClass: "metal", ...annotated },
      mode: "RequestedServicesOnly",
      want: false,
    },
    { name: "no class, but an annotation", facts: annotated, mode: "RequestedServicesOnly", want: true },
    {
      name: "no class, but spec.loadBalancerIP",
      facts: { loadBalancerIP: "10.1.0.9" },
      mode: "RequestedServicesOnly",
      want: true,
    },
    { name: "no load balancer", facts: { isLoadBalancer: false, ...annotated }, mode: "AllServices", want: false },
  ] as const;
  for (const { name, facts, mode, want } of cases)
    test(`TC-K27 ${name}`, () => expect(isManaged(service(facts), mode)).toBe(want));
});

test("TC-K27 reads the requested addresses and the status of a service", () => {
  const object = {
    metadata: { name: "web", namespace: "shop", uid: "u1", annotations: { [ANNOTATION.addresses]: "", other: "x" } },
    spec: { type: "LoadBalancer", ipFamilies: ["IPv6", "IPv4"], loadBalancerClass: "calico" },
    status: { loadBalancer: { ingress: [{ ip: "10.1.0.1", ipMode: "VIP" }] } },
  };
  expect(serviceFacts(object)).toEqual(
    service({ loadBalancerClass: "calico", families: [6, 4], ingress: [{ ip: "10.1.0.1", ipMode: "VIP" } as object] }),
  );
});

test("TC-K27 only pools with LoadBalancer in allowedUses are used", () => {
  const resource = (name: string, spec: object) =>
    ({ apiVersion: "projectcalico.org/v3", kind: "IPPool", metadata: { name }, spec }) as Resource;
  const found = loadBalancerPools([
    resource("pods", { cidr: "10.9.0.0/24", allowedUses: ["Workload", "Tunnel"] }),
    resource("auto", { cidr: "10.1.0.0/24", allowedUses: ["LoadBalancer"], assignmentMode: "Automatic" }),
    resource("manual", { cidr: "10.2.0.0/24", allowedUses: ["LoadBalancer"], assignmentMode: "Manual" }),
  ]);
  expect(found.map(({ name, isAutomatic }) => [name, isAutomatic])).toEqual([
    ["auto", true],
    ["manual", false],
  ]);
});

describe("TC-K27 requested addresses", () => {
  test("TC-K27 by default, one address of each family of the service", () =>
    expect(readAddressRequest(service({ families: [4, 6] }), POOLS)).toEqual({
      kind: "families",
      families: [{ version: 4 }, { version: 6 }],
    }));
  test("TC-K27 pools can be named by name or CIDR", () => {
    const annotations = { [ANNOTATION.pools4]: '["manual","10.7.0.0/24"]', [ANNOTATION.pools6]: '["six"]' };
    expect(readAddressRequest(service({ families: [4, 6], annotations }), POOLS)).toEqual({
      kind: "families",
      families: [
        { version: 4, pools: [parseCidr("10.2.0.0/24"), parseCidr("10.7.0.0/24")] },
        { version: 6, pools: [parseCidr("fd00::/120")] },
      ],
    });
  });
  test("TC-K27 exact addresses have precedence over pools", () => {
    const annotations = { [ANNOTATION.addresses]: '["10.1.0.9","fd00::9"]', [ANNOTATION.pools4]: '["auto"]' };
    expect(readAddressRequest(service({ annotations }), POOLS)).toEqual({
      kind: "addresses",
      addresses: [address("10.1.0.9"), address("fd00::9")],
    });
  });
  test("TC-K27 spec.loadBalancerIP is an exact address", () =>
    expect(readAddressRequest(service({ loadBalancerIP: "10.2.0.9" }), POOLS)).toEqual({
      kind: "addresses",
      addresses: [address("10.2.0.9")],
    }));
  const wrong: readonly [string, Partial<ServiceFacts>][] = [
    ["two addresses of a family", { annotations: { [ANNOTATION.addresses]: '["10.1.0.1","10.1.0.2"]' } }],
    ["a text that is not an address", { annotations: { [ANNOTATION.addresses]: '["web"]' } }],
    ["a text that is not JSON", { annotations: { [ANNOTATION.addresses]: "10.1.0.1" } }],
    ["a list of numbers", { annotations: { [ANNOTATION.pools4]: "[1]" } }],
    ["an unknown pool", { annotations: { [ANNOTATION.pools4]: '["nowhere"]' } }],
    ["a pool of the other family", { annotations: { [ANNOTATION.pools4]: '["six"]' } }],
    ["a host name in spec.loadBalancerIP", { loadBalancerIP: "localhost" }],
  ];
  for (const [name, facts] of wrong)
    test(`TC-K27 rejects ${name}`, () =>
      expect(() => readAddressRequest(service(facts), POOLS)).toThrow(InvalidAddressRequest));
});

describe("TC-K27 changes", () => {
  const any = { kind: "families", families: [{ version: 4 }] } as const;
  const nothing = { release: [], assignExact: [], assign: [] };
  const [a, b, m] = [address("10.1.0.1"), address("10.1.0.2"), address("10.2.0.1")];
  test("TC-K27 a new service gets an address", () =>
    expect(changesFor(any, [], POOLS)).toEqual({ ...nothing, assign: [{ version: 4 }] }));
  test("TC-K27 a service with an address keeps it", () => expect(changesFor(any, [a], POOLS)).toEqual(nothing));
  test("TC-K27 of two addresses, the one in the status is kept", () =>
    expect(changesFor(any, [a, b], POOLS, [b])).toEqual({ ...nothing, release: [a] }));
  test("TC-K27 an address of a manual pool is released if the service does not name the pool", () =>
    expect(changesFor(any, [m], POOLS)).toEqual({ ...nothing, release: [m], assign: [{ version: 4 }] }));
  test("TC-K27 an address whose pool is deleted is kept if another pool exists", () =>
    expect(changesFor(any, [address("10.99.0.1")], POOLS)).toEqual(nothing));
  test("TC-K27 without any pool, all addresses are released", () =>
    expect(changesFor(any, [a], [])).toEqual({ ...nothing, release: [a] }));
  test("TC-K27 an address is replaced if the service names another pool", () => {
    const pools = [parseCidr("10.2.0.0/24")];
    const request = { kind: "families", families: [{ version: 4, pools }] } as const;
    expect(changesFor(request, [a], POOLS)).toEqual({ ...nothing, release: [a], assign: [{ version: 4, pools }] });
    expect(changesFor(request, [m], POOLS)).toEqual(nothing);
  });
  test("TC-K27 an address is replaced if the service names another address", () =>
    expect(changesFor({ kind: "addresses", addresses: [b] }, [a], POOLS)).toEqual({
      ...nothing,
      release: [a],
      assignExact: [b],
    }));
  test("TC-K27 the address of a removed family is released", () =>
    expect(changesFor(any, [a, address("fd00::1")], POOLS)).toEqual({ ...nothing, release: [address("fd00::1")] }));
});

test("TC-K27 the status keeps entries of other programs and loses released addresses", () => {
  const isOurs = (text: IpAddress) => text.startsWith("10.1.");
  const others = [{ hostname: "lb.example" }, { ip: "203.0.113.7" }];
  const current = [...others, { ip: "10.1.0.1", ipMode: "VIP" }];
  expect(ingressWith(current, [address("10.1.0.1")], isOurs)).toEqual(current);
  expect(ingressWith(current, [address("10.1.0.2")], isOurs)).toEqual([...others, { ip: "10.1.0.2" }]);
  expect(ingressWith(current, [], isOurs)).toEqual(others);
});

test("of an annotation of 256 kB, an error contains at most 200 characters", () => {
  const long = "x".repeat(256 * 1024);
  for (const name of [ANNOTATION.pools4, ANNOTATION.addresses])
    for (const text of [long, JSON.stringify([long])]) {
      const request = () => readAddressRequest(service({ annotations: { [name]: text } }), []);
      expect(request).toThrow(InvalidAddressRequest);
      expect(request).toThrow(/^[^]{1,400}$/);
    }
});
