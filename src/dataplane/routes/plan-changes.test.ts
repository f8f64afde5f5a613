import { expect, test } from "bun:test";
import fc from "fast-check";
import type { NewRoute, Route, RouteChange } from "../../kernel/index.ts";
import type { Cidr, IpAddress } from "../../lib/ip/ip.ts";
import { planChanges, type RouteState } from "./plan-changes.ts";

const KEY = "10.0.0.1/32 1024";
const desired = (given: Partial<NewRoute> = {}): NewRoute => ({
  destination: "10.0.0.1/32" as Cidr,
  table: 254,
  protocol: 3,
  priority: 1024,
  link: 5,
  ...given,
});
const actual = (given: Partial<Route> = {}): Route => ({
  destination: "10.0.0.1/32" as Cidr,
  table: 254,
  type: "unicast",
  protocol: 3,
  scope: "link",
  tos: 0,
  priority: 1024,
  link: 5,
  onlink: false,
  isDead: false,
  ...given,
});

const text = ({ action, route: { link } }: RouteChange) => `${action}${link === undefined ? "" : ` dev ${link}`}`;
/** The plan for one route, as text. */
function plan(state: Omit<RouteState, "key">) {
  const { deleteFirst, movedAddresses, replace, deleteLast, retryInMs } = planChanges([{ key: KEY, ...state }]);
  return {
    first: deleteFirst.map(text),
    moved: movedAddresses.map(String),
    replace: replace.map(({ change }) => text(change)),
    last: deleteLast.map(({ change }) => text(change)),
    retryInMs,
  };
}
const nothing = { first: [], moved: [], replace: [], last: [], retryInMs: undefined };

const cases = [
  { name: "neither desired nor present: no change", state: {}, want: {} },
  { name: "present as desired: no change", state: { desired: desired(), actual: actual() }, want: {} },
  { name: "missing: is written", state: { desired: desired() }, want: { replace: ["replace dev 5"] } },
  {
    name: "another protocol: is replaced in place",
    state: { desired: desired(), actual: actual({ protocol: 80 }) },
    want: { replace: ["replace dev 5"] },
  },
  {
    name: "another interface: is deleted before the new route is written, and its connections are flushed",
    state: { desired: desired({ link: 7 }), actual: actual() },
    want: { first: ["delete"], moved: ["10.0.0.1"], replace: ["replace dev 7"] },
  },
  {
    name: "another interface that is down: only the route over this interface is deleted",
    state: { desired: desired({ link: 7 }), actual: actual(), isActualDown: true },
    want: { first: ["delete dev 5"], moved: ["10.0.0.1"], replace: ["replace dev 7"] },
  },
  {
    name: "another type: is deleted first",
    state: { desired: desired({ link: undefined, type: "blackhole" }), actual: actual() },
    want: { first: ["delete"], moved: ["10.0.0.1"], replace: ["replace"] },
  },
  {
    name: "moves from one remote node to another: connections are not flushed",
    state: {
      desired: desired({ link: 7, gateway: "192.0.2.2" as IpAddress }),
      actual: actual({ gateway: "192.0.2.1" as IpAddress }),
    },
    want: { first: ["delete"], replace: ["replace dev 7"] },
  },
  {
    name: "a prefix that moves: connections are not flushed",
    state: {
      desired: desired({ destination: "10.0.0.0/26" as Cidr, link: 7 }),
      actual: actual({ destination: "10.0.0.0/26" as Cidr }),
    },
    want: { first: ["delete"], replace: ["replace dev 7"] },
  },
  {
    name: "no longer desired: is deleted first, and its connections are flushed",
    state: { actual: actual(), isManaged: true },
    want: { first: ["delete"], moved: ["10.0.0.1"] },
  },
  {
    name: "desired, but its interface is down: is deleted first, and its connections are kept",
    state: { actual: actual(), isManaged: true, isSuspended: true, isActualDown: true },
    want: { first: ["delete dev 5"] },
  },
  {
    name: "only the priority changes: is deleted after the new route is written, and its connections are kept",
    state: { actual: actual(), isManaged: true, hasAlternative: true },
    want: { last: ["delete"] },
  },
  {
    name: "written by another program: is deleted last",
    state: { actual: actual() },
    want: { last: ["delete"], moved: ["10.0.0.1"] },
  },
  {
    name: "written by another program, in its grace period: is kept until the period ends",
    state: { actual: actual(), graceLeftMs: 800 },
    want: { retryInMs: 800 },
  },
] satisfies { name: string; state: Omit<RouteState, "key">; want: Partial<ReturnType<typeof plan>> }[];
for (const { name, state, want } of cases)
  test(`planChanges: ${name}`, () => expect(plan(state)).toEqual({ ...nothing, ...want }));

test("planChanges: the next retry is when the first grace period ends", () =>
  expect(
    planChanges([
      { key: "a", actual: actual(), graceLeftMs: 800 },
      { key: "b", actual: actual(), graceLeftMs: 300 },
    ]).retryInMs,
  ).toBe(300));

test("planChanges: after all changes the kernel has exactly the desired routes", () => {
  const arbLink = fc.constantFrom(5, 6, 7);
  const arbState = fc.record(
    {
      desired: arbLink.map((link) => desired({ link })),
      actual: fc.record({ link: arbLink, protocol: fc.constantFrom(3, 80) }).map(actual),
      isManaged: fc.boolean(),
      hasAlternative: fc.boolean(),
    },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(fc.array(arbState, { maxLength: 8 }), (arbitrary) => {
      const states = arbitrary.map(
        (state, i): RouteState => ({
          ...state,
          key: String(i),
          desired: state.desired && { ...state.desired, priority: i },
          actual: state.actual && { ...state.actual, priority: i },
        }),
      );
      const entriesOf = (route: NewRoute | undefined) =>
        route === undefined ? [] : [[route.priority ?? 0, route.link] as const];
      const kernel = new Map(states.flatMap(({ actual: route }) => entriesOf(route)));
      const { deleteFirst, replace, deleteLast } = planChanges(states);
      const changes = [...deleteFirst, ...[...replace, ...deleteLast].map(({ change }) => change)];
      for (const { action, route } of changes)
        if (action === "delete") expect(kernel.delete(route.priority ?? 0)).toBe(true);
        else kernel.set(route.priority ?? 0, route.link);
      expect(kernel).toEqual(new Map(states.flatMap(({ desired: route }) => entriesOf(route))));
    }),
  );
});
