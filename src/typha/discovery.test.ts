import { expect, test } from "bun:test";
import type { EndpointSlice } from "../datastore/index.ts";
import { AttemptTracker, addressText, DiscoveryError, orderInstances, parseAddresses } from "./discovery.ts";
import { BGP_PREFIXES, NODE_PREFIXES, typhaSettings } from "./settings.ts";

const slice = (port: number | undefined, ...endpoints: NonNullable<EndpointSlice["endpoints"]>): EndpointSlice => ({
  metadata: { name: "s" },
  ports: port === undefined ? [{ name: "metrics", port: 9093 }] : [{ name: "calico-typha", port }],
  endpoints,
});
const instance = (address: string, nodeName: string, ready?: boolean) => ({
  addresses: [address],
  nodeName,
  conditions: ready === undefined ? undefined : { ready },
});

test("FC-018 TC-T23 a list of addresses with host and port is parsed, for both IP families", () => {
  expect(parseAddresses("typha:5473")).toEqual([{ host: "typha", port: 5473 }]);
  expect(parseAddresses("10.0.0.1:1, [fd00::1]:2,named").map(addressText)).toEqual([
    "10.0.0.1:1",
    "[fd00::1]:2",
    "named:5473",
  ]);
  for (const bad of ["typha:0", "typha:70000", "fd00::1:5473", "a b:1:2", "[fd00::1"])
    expect(() => parseAddresses(bad)).toThrow(DiscoveryError);
});

test("FC-018 TC-T23 only ready instances of the service that have the port are used", () => {
  const found = orderInstances(
    [
      slice(5473, instance("10.0.0.1", "a"), instance("10.0.0.2", "b", false), instance("fd00::3", "c", true)),
      slice(undefined, instance("10.0.0.9", "a")),
      { metadata: { name: "empty" }, ports: null, endpoints: null },
    ],
    { portName: "calico-typha" },
  );
  expect(found.map(addressText).toSorted()).toEqual(["10.0.0.1:5473", "[fd00::3]:5473"]);
});

test("FC-018 TC-T24 the instance on this node comes first, the others are in random order", () => {
  const slices = [slice(5473, ...Array.from({ length: 8 }, (_, i) => instance(`10.0.0.${i}`, `n${i}`)))];
  const orders = new Set<string>();
  for (let i = 0; i < 40; i++) {
    const found = orderInstances(slices, { portName: "calico-typha", nodeName: "n5" }).map(({ host }) => host);
    expect(found[0]).toBe("10.0.0.5");
    expect(found.toSorted()).toEqual(Array.from({ length: 8 }, (_, n) => `10.0.0.${n}`));
    orders.add(found.join());
  }
  expect(orders.size).toBeGreaterThan(20);
});

test("FC-019 TC-T24 each address is tried once before any is repeated; later attempts look addresses up again", async () => {
  let now = 0;
  let addresses = parseAddresses("a:1,b:1");
  const refreshes: boolean[] = [];
  const tracker = new AttemptTracker(
    async (refresh) => {
      refreshes.push(refresh);
      return addresses;
    },
    () => now,
  );
  const next = async (isFirst: boolean) => (await tracker.next(isFirst)).host;
  expect(await next(true)).toBe("a");
  expect(await next(false)).toBe("b");
  addresses = parseAddresses("a:1,b:1,c:1");
  expect(await next(false)).toBe("c");
  expect(await next(false)).toBe("a");
  expect(await next(true)).toBe("b");
  expect(refreshes).toEqual([false, true, true, true]);
  expect(tracker.attempts).toBe(6);
  now += 400_000;
  expect(await next(true)).toBe("a");
  addresses = [];
  await expect(next(false)).rejects.toThrow("missing Kubernetes service IP or port");
});

test("FC-019 TC-T24 a server that ended a long connection is not tried first, and new instances are found", async () => {
  let now = 0;
  let find = async () => parseAddresses("a:1");
  const tracker = new AttemptTracker(
    () => find(),
    () => now,
  );
  const next = async () => (await tracker.next(true)).host;
  expect(await next()).toBe("a");
  now += 3_600_000;
  tracker.markTried("a:1");
  find = async () => parseAddresses("a:1,b:1");
  expect(await next()).toBe("b");
  now += 3_600_000;
  tracker.markTried("b:1");
  expect(await next()).toBe("a");
  tracker.markTried("a:1");
  find = () => Promise.reject(new Error("the API server is away"));
  expect(await next()).toBe("a"); // the lookup fails: start again with the cached addresses
});

test("TC-T23 each program uses its own prefixes, and without a setting Typha is not used", () => {
  const env = {
    FELIX_TYPHAADDR: "typha:1",
    CONFD_TYPHAADDR: "none",
    CALICO_TYPHAK8SSERVICENAME: "svc",
    CALICO_TYPHAREADTIMEOUT: "7.5",
  };
  expect(typhaSettings(env, ["FELIX_"])).toMatchObject({ address: "typha:1", namespace: "kube-system" });
  expect(typhaSettings(env, BGP_PREFIXES)).toMatchObject({
    address: "typha:1",
    serviceName: "svc",
    readTimeoutMs: 7500,
  });
  expect(typhaSettings({ CALICO_TYPHAADDR: "x" }, ["FELIX_"])).toBeUndefined();
  expect(typhaSettings({ CALICO_TYPHAADDR: "x" }, NODE_PREFIXES)).toBeDefined();
  expect(typhaSettings({ FELIX_TYPHAADDR: "" }, ["FELIX_"])).toBeUndefined();
  expect(() => typhaSettings({ FELIX_TYPHAADDR: "x", FELIX_TYPHACN: "n" }, ["FELIX_"])).toThrow(
    "set the key, certificate and CA file",
  );
});
