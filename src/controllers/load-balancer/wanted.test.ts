import { describe, expect, test } from "bun:test";
import { type IpAddress, parseCidr } from "../../lib/ip.ts";
import type { Resource } from "../../model/index.ts";
import {
  ANNOTATION,
  changesFor,
  ingressWith,
  InvalidWish,
  isManaged,
  loadBalancerPools,
  type ServiceFacts,
  serviceFacts,
  wishOf,
} from "./wanted.ts";

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

describe("TC-K27 which services are ours", () => {
  const annotated = { annotations: { [ANNOTATION.pools4]: '["auto"]' } };
  const cases = [
    { name: "no class, all services", facts: {}, mode: "AllServices", want: true },
    { name: "no class, only those that ask", facts: {}, mode: "RequestedServicesOnly", want: false },
    { name: "our class", facts: { loadBalancerClass: "calico" }, mode: "RequestedServicesOnly", want: true },
    { name: "another class", facts: { loadBalancerClass: "metal" }, mode: "AllServices", want: false },
    {
      name: "another class with our annotation",
      facts: { loadBalancerClass: "metal", ...annotated },
      mode: "RequestedServicesOnly",
      want: false,
    },
    { name: "an annotation asks", facts: annotated, mode: "RequestedServicesOnly", want: true },
    { name: "an address asks", facts: { loadBalancerIP: "10.1.0.9" }, mode: "RequestedServicesOnly", want: true },
    { name: "no load balancer", facts: { isLoadBalancer: false, ...annotated }, mode: "AllServices", want: false },
  ] as const;
  for (const { name, facts, mode, want } of cases)
    test(`TC-K27 ${name}`, () => expect(isManaged(service(facts), mode)).toBe(want));
});

test("TC-K27 a service's facts are what it asks for and what it shows", () => {
  const object = {
    metadata: { name: "web", namespace: "shop", uid: "u1", annotations: { [ANNOTATION.addresses]: "", other: "x" } },
    spec: { type: "LoadBalancer", ipFamilies: ["IPv6", "IPv4"], loadBalancerClass: "calico" },
    status: { loadBalancer: { ingress: [{ ip: "10.1.0.1", ipMode: "VIP" }] } },
  };
  expect(serviceFacts(object)).toEqual(
    service({ loadBalancerClass: "calico", families: [6, 4], ingress: [{ ip: "10.1.0.1", ipMode: "VIP" } as object] }),
  );
});

test("TC-K27 only pools that allow it serve services", () => {
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

describe("TC-K27 what a service asks for", () => {
  test("TC-K27 one address of each of its families", () =>
    expect(wishOf(service({ families: [4, 6] }), POOLS)).toEqual({
      kind: "families",
      families: [{ version: 4 }, { version: 6 }],
    }));
  test("TC-K27 pools by name or CIDR", () => {
    const annotations = { [ANNOTATION.pools4]: '["manual","10.7.0.0/24"]', [ANNOTATION.pools6]: '["six"]' };
    expect(wishOf(service({ families: [4, 6], annotations }), POOLS)).toEqual({
      kind: "families",
      families: [
        { version: 4, pools: [parseCidr("10.2.0.0/24"), parseCidr("10.7.0.0/24")] },
        { version: 6, pools: [parseCidr("fd00::/120")] },
      ],
    });
  });
  test("TC-K27 addresses by name, before pools", () => {
    const annotations = { [ANNOTATION.addresses]: '["10.1.0.9","fd00::9"]', [ANNOTATION.pools4]: '["auto"]' };
    expect(wishOf(service({ annotations }), POOLS)).toEqual({
      kind: "addresses",
      addresses: [address("10.1.0.9"), address("fd00::9")],
    });
  });
  test("TC-K27 the address in its specification", () =>
    expect(wishOf(service({ loadBalancerIP: "10.2.0.9" }), POOLS)).toEqual({
      kind: "addresses",
      addresses: [address("10.2.0.9")],
    }));
  const wrong: readonly [string, Partial<ServiceFacts>][] = [
    ["two addresses of a family", { annotations: { [ANNOTATION.addresses]: '["10.1.0.1","10.1.0.2"]' } }],
    ["no address", { annotations: { [ANNOTATION.addresses]: '["web"]' } }],
    ["no JSON", { annotations: { [ANNOTATION.addresses]: "10.1.0.1" } }],
    ["a list of numbers", { annotations: { [ANNOTATION.pools4]: "[1]" } }],
    ["a pool nobody knows", { annotations: { [ANNOTATION.pools4]: '["nowhere"]' } }],
    ["a pool of the other family", { annotations: { [ANNOTATION.pools4]: '["six"]' } }],
    ["no address in the specification", { loadBalancerIP: "localhost" }],
  ];
  for (const [name, facts] of wrong)
    test(`TC-K27 refused: ${name}`, () => expect(() => wishOf(service(facts), POOLS)).toThrow(InvalidWish));
});

describe("TC-K27 what has to change", () => {
  const any = { kind: "families", families: [{ version: 4 }] } as const;
  const nothing = { release: [], take: [], assign: [] };
  const [a, b, m] = [address("10.1.0.1"), address("10.1.0.2"), address("10.2.0.1")];
  test("TC-K27 a new service gets one", () =>
    expect(changesFor(any, [], POOLS)).toEqual({ ...nothing, assign: [{ version: 4 }] }));
  test("TC-K27 one that has one keeps it", () => expect(changesFor(any, [a], POOLS)).toEqual(nothing));
  test("TC-K27 of two the one that is shown stays", () =>
    expect(changesFor(any, [a, b], POOLS, [b])).toEqual({ ...nothing, release: [a] }));
  test("TC-K27 an address of a manual pool needs somebody who asks for it", () =>
    expect(changesFor(any, [m], POOLS)).toEqual({ ...nothing, release: [m], assign: [{ version: 4 }] }));
  test("TC-K27 an address whose pool is gone stays while there are others", () =>
    expect(changesFor(any, [address("10.99.0.1")], POOLS)).toEqual(nothing));
  test("TC-K27 without any pool all goes back", () =>
    expect(changesFor(any, [a], [])).toEqual({ ...nothing, release: [a] }));
  test("TC-K27 another pool is asked for", () => {
    const pools = [parseCidr("10.2.0.0/24")];
    const wish = { kind: "families", families: [{ version: 4, pools }] } as const;
    expect(changesFor(wish, [a], POOLS)).toEqual({ ...nothing, release: [a], assign: [{ version: 4, pools }] });
    expect(changesFor(wish, [m], POOLS)).toEqual(nothing);
  });
  test("TC-K27 another address is asked for", () =>
    expect(changesFor({ kind: "addresses", addresses: [b] }, [a], POOLS)).toEqual({
      ...nothing,
      release: [a],
      take: [b],
    }));
  test("TC-K27 a family it no longer has goes back", () =>
    expect(changesFor(any, [a, address("fd00::1")], POOLS)).toEqual({ ...nothing, release: [address("fd00::1")] }));
});

test("TC-K27 the status keeps what others wrote and loses what was ours", () => {
  const isOurs = (text: IpAddress) => text.startsWith("10.1.");
  const others = [{ hostname: "lb.example" }, { ip: "203.0.113.7" }];
  const current = [...others, { ip: "10.1.0.1", ipMode: "VIP" }];
  expect(ingressWith(current, [address("10.1.0.1")], isOurs)).toEqual(current);
  expect(ingressWith(current, [address("10.1.0.2")], isOurs)).toEqual([...others, { ip: "10.1.0.2" }]);
  expect(ingressWith(current, [], isOurs)).toEqual(others);
});
