import { expect, test } from "bun:test";
import { parseCidr } from "../../lib/ip/ip.ts";
import { BadPool, NoPoolForNode, NoQualifiedPool, PoolNotUsable, WrongPoolFamily } from "../errors.ts";
import { ignoreUnreadable, readPool } from "../../model/index.ts";
import { choosePools, type PoolRequest, poolsOf } from "./pools.ts";

const resource = (name: string, spec: object, more: { status?: unknown; deletionTimestamp?: string } = {}) => ({
  apiVersion: "projectcalico.org/v3",
  kind: "IPPool" as const,
  metadata: { name, ...(more.deletionTimestamp && { deletionTimestamp: more.deletionTimestamp }) },
  spec,
  status: more.status,
});
const pool = (name: string, spec: object, more?: Parameters<typeof resource>[2]) =>
  readPool(resource(name, spec, more), ignoreUnreadable)!;
const request = (change: Partial<PoolRequest> = {}): PoolRequest => ({
  host: "n1",
  version: 4,
  use: "Workload",
  pools: [],
  nodeLabels: {},
  namespaceLabels: {},
  longestBlock: 32,
  ...change,
});
const names = (pools: readonly { name: string }[]) => pools.map(({ name }) => name);

const plain = pool("plain", { cidr: "10.0.0.0/16" });
const rack = pool("rack", { cidr: "10.1.0.0/16", nodeSelector: "rack == 'a'" });
const tenant = pool("tenant", { cidr: "10.2.0.0/16", namespaceSelector: "team == 'red'" });
const tunnels = pool("tunnels", { cidr: "10.3.0.0/16", allowedUses: ["Tunnel"] });
const manual = pool("manual", { cidr: "10.4.0.0/16", assignmentMode: "Manual" });
const disabled = pool("disabled", { cidr: "10.5.0.0/16", disabled: true });
const services = pool("services", { cidr: "10.6.0.0/16", allowedUses: ["LoadBalancer"] });
const all = [plain, rack, tenant, tunnels, manual, disabled, services];

test("defaults: the block size depends on the family, uses are Workload and Tunnel, assignment is automatic", () => {
  expect(plain).toMatchObject({
    blockSize: 26,
    allowedUses: ["Workload", "Tunnel"],
    isAutomatic: true,
    mayAssign: true,
  });
  expect(pool("v6", { cidr: "fd00::/48" }).blockSize).toBe(122);
});

const cases: { name: string; change: Partial<PoolRequest>; want: string[] }[] = [
  { name: "CI-056 a pool whose node selector does not match is not used", change: {}, want: ["plain"] },
  {
    name: "CI-056 a node with the label may use the pool",
    change: { nodeLabels: { rack: "a" } },
    want: ["plain", "rack"],
  },
  {
    name: "CI-057 a namespace selector is matched with the namespace's labels",
    change: { namespaceLabels: { team: "red" } },
    want: ["plain", "tenant"],
  },
  { name: "CI-058 only pools that allow the use are chosen", change: { use: "Tunnel" }, want: ["plain", "tunnels"] },
  { name: "CI-076 pools for load balancers", change: { use: "LoadBalancer" }, want: ["services"] },
  {
    name: "CI-060 requested pools are used in the requested order, regardless of selectors and assignment mode",
    change: { pools: [manual.cidr, rack.cidr, plain.cidr] },
    want: ["manual", "rack", "plain"],
  },
];
for (const { name, change, want } of cases)
  test(name, () => expect(names(choosePools(all, request(change)))).toEqual(want));

test("CI-060 a pool that is not allocatable, disabled or being deleted is not used", () => {
  const marked = pool(
    "m",
    { cidr: "10.7.0.0/16" },
    { status: { conditions: [{ type: "Allocatable", status: "False" }] } },
  );
  const going = pool("g", { cidr: "10.8.0.0/16" }, { deletionTimestamp: "2026-01-01T00:00:00Z" });
  const fine = pool(
    "f",
    { cidr: "10.9.0.0/16" },
    { status: { conditions: [{ type: "Allocatable", status: "True" }] } },
  );
  expect(names(choosePools([marked, going, disabled, fine], request()))).toEqual(["f"]);
  expect(() => choosePools([marked, going, disabled], request())).toThrow(NoQualifiedPool);
});

test("the error states why no pool can be used", () => {
  expect(() => choosePools([], request())).toThrow(NoQualifiedPool);
  expect(() => choosePools([rack], request())).toThrow(NoPoolForNode);
  expect(() => choosePools([], request())).toThrow("qualified ippool: there is no IPv4 pool");
  expect(() => choosePools([disabled], request())).toThrow(`: pool ${disabled.name} is disabled or being deleted`);
  expect(() => choosePools([rack], request())).toThrow(
    `no configured Calico pools for node n1: pool ${rack.name} is for nodes with ${rack.nodeSelector}`,
  );
  expect(() => choosePools([tunnels], request())).toThrow("no pools match the required use (Workload)");
  expect(() => choosePools(all, request({ pools: [disabled.cidr] }))).toThrow(PoolNotUsable);
  expect(() => choosePools(all, request({ pools: [parseCidr("fd00::/48")] }))).toThrow(WrongPoolFamily);
  expect(() => choosePools([pool("bad", { cidr: "10.0.0.0/8", nodeSelector: "==" })], request())).toThrow(BadPool);
});

test("a stored pool with an invalid CIDR is left out", () =>
  expect(poolsOf([resource("x", { cidr: "nonsense" })])).toEqual([]));
