import { expect, test } from "bun:test";
import type { Cidr } from "../../lib/ip/ip.ts";
import { silentLogger } from "../../lib/log/log.ts";
import type { ManagerMessage } from "../loop/manager.ts";
import { EndpointRegistry } from "./endpoint-registry.ts";
import { elevatedRoutes, LiveMigrations } from "./live-migrations.ts";

type Role = "none" | "source" | "target";

function open(given: { readonly left?: readonly string[]; readonly cannotListen?: boolean } = {}) {
  const registry = new EndpointRegistry(() => false);
  let now = 0;
  let rounds = 0;
  const arrivals: string[] = [];
  const ears = new Map<number, () => void>();
  const migrations = new LiveMigrations({
    registry,
    convergenceMs: 30_000,
    watchGratuitousArp: (link, onReceived) => {
      if (given.cannotListen === true) throw new Error("not permitted");
      ears.set(link, onReceived);
      return { [Symbol.dispose]: () => void ears.delete(link) };
    },
    existingElevatedRoutes: () => new Set(given.left ?? []),
    onArrival: ({ id }) => arrivals.push(id.workload),
    applySoon: () => rounds++,
    logger: silentLogger,
    now: () => now,
  });
  const send = (...messages: readonly ManagerMessage[]) => {
    for (const message of messages) registry.onUpdate(message);
    registry.resolve();
    return migrations.apply();
  };
  const machine = (role: Role, workload = "ns/vm", state = "active"): ManagerMessage => ({
    type: "workloadEndpointUpdate",
    id: { orchestrator: "k8s", workload, endpoint: "eth0" },
    endpoint: {
      ...{ state, name: "cali1", mac: "", profileIds: [], tiers: [], ipv4Nat: [], ipv6Nat: [] },
      ...{ ipv4Nets: ["10.65.0.2/32" as Cidr], ipv6Nets: ["fd65::2/128" as Cidr], allowSpoofedSourcePrefixes: [] },
      ...{ annotations: {}, qosPolicies: [], isIstioAmbient: false, liveMigrationRole: role },
    } as never,
  });
  const gone: ManagerMessage = {
    type: "workloadEndpointRemove",
    id: { orchestrator: "k8s", workload: "ns/vm", endpoint: "eth0" },
  };
  const link = (index: number): ManagerMessage => ({ type: "interfaceState", name: "cali1", index, state: "up" });
  return {
    migrations,
    machine,
    gone,
    link,
    send,
    arrivals,
    ears,
    rounds: () => rounds,
    phase: () => migrations.phaseOf("cali1"),
    wait: (ms: number) => (now += ms),
  };
}

test("FD-127 a machine is expected, arrives when it announces itself, and is settled some time after the migration", () => {
  const m = open();
  m.send(m.link(7), m.machine("target"));
  expect([m.phase(), [...m.ears.keys()], [...m.migrations.takeChanged()]]).toEqual(["expected", [7], ["cali1"]]);
  m.ears.get(7)?.();
  expect([m.phase(), m.ears.size, m.rounds(), m.arrivals]).toEqual(["arrived", 0, 1, ["ns/vm"]]);
  expect([[...m.migrations.takeChanged()], [...m.migrations.takeChanged()]]).toEqual([["cali1"], []]);
  expect(m.send(m.machine("target"))).toEqual({});
  expect(m.phase()).toBe("arrived");
  expect(m.send(m.machine("none"))).toEqual({ againInMs: 30_000 });
  expect(m.phase()).toBe("converging");
  m.wait(29_000);
  expect(m.send(m.machine("none"))).toEqual({ againInMs: 1000 }); // an update does not extend it
  m.wait(1000);
  expect(m.send()).toEqual({});
  expect([m.phase(), m.arrivals]).toEqual(["settled", ["ns/vm"]]);
});

test("FD-127 a machine that never announces itself has arrived when the migration ends", () => {
  for (const cannotListen of [false, true]) {
    const m = open({ cannotListen });
    m.send(m.link(7), m.machine("target"));
    m.send(m.machine("none"));
    expect([m.phase(), m.arrivals, m.ears.size]).toEqual(["converging", ["ns/vm"], 0]);
  }
});

test("FD-127 the source is not affected, and removed, inactive or replaced machines are settled", () => {
  const m = open();
  m.send(m.link(7), m.machine("source"));
  expect([m.phase(), m.ears.size]).toEqual(["settled", 0]);
  for (const end of [m.gone, m.machine("source"), m.machine("target", "ns/vm", "inactive")]) {
    m.send(m.machine("target"));
    expect([m.phase(), m.ears.size]).toEqual(["expected", 1]);
    m.send(end);
    expect([m.phase(), m.ears.size]).toEqual(["settled", 0]);
  }
  m.send(m.machine("target"));
  m.ears.get(7)?.();
  m.send(m.gone, m.machine("target", "ns/other"));
  expect([m.phase(), m.ears.size]).toEqual(["expected", 1]); // another machine behind the same interface
});

test("FD-127 listening starts when the interface appears, and follows its index", () => {
  const m = open();
  m.send(m.machine("target"));
  expect([m.phase(), m.ears.size]).toEqual(["expected", 0]);
  m.send(m.link(7));
  expect([...m.ears.keys()]).toEqual([7]);
  m.send(m.link(9));
  expect([...m.ears.keys()]).toEqual([9]);
});

test("FD-127 after a restart, arrived machines are recognized by their routes, which stay", () => {
  const left = ["7 10.65.0.2/32"];
  const during = open({ left });
  during.send(during.link(7), during.machine("target"));
  expect([during.phase(), during.arrivals]).toEqual(["arrived", []]); // reported by the earlier run
  const after = open({ left });
  after.send(after.link(7), after.machine("none"));
  expect(after.phase()).toBe("converging");
  const source = open({ left });
  source.send(source.link(7), source.machine("source"));
  expect(source.phase()).toBe("settled");
  const elsewhere = open({ left: ["8 10.65.0.2/32"] });
  elsewhere.send(elsewhere.link(7), elsewhere.machine("target"));
  expect(elsewhere.phase()).toBe("expected");
});

test("FD-127 elevated routes are those with the elevated priority of their family", () => {
  const routes = {
    list: ({ version }: { version: 4 | 6 }) =>
      [512, 1024].map((priority) => ({
        link: priority === 512 ? 7 : 8,
        destination: version === 4 ? "10.65.0.2/32" : "fd65::2/128",
        priority,
      })),
  } as never;
  const found = (better: { 4: number; 6: number }) => [...elevatedRoutes(routes, 254, better, { 4: 1024, 6: 700 })];
  expect(found({ 4: 512, 6: 1024 })).toEqual(["7 10.65.0.2/32", "8 fd65::2/128"]);
  expect(found({ 4: 1024, 6: 512 })).toEqual(["7 fd65::2/128"]); // no better one in IPv4
});
