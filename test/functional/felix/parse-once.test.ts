// Tests that every selector of a policy is parsed once between the datastore and the dataplane: by the update processor, or
// by the decoder of Typha's protocol. Later stages use the parsed tree.
import { expect, test } from "bun:test";
import fc from "fast-check";
import { CalculationGraph, type DataplaneMessage, type GraphUpdate } from "../../../src/calc/index.ts";
import { wep } from "../../../src/calc/testing/build.ts";
import { policySettings } from "../../../src/calc/testing/settings.ts";
import { type SyncerUpdate, ValidationFilter } from "../../../src/datastore/index.ts";
import { silentLogger } from "../../../src/lib/log/log.ts";
import { API_VERSION, type KindName, policyProcessor, profileProcessor } from "../../../src/model/index.ts";
import { ParseCounter } from "../../../src/model/testing/parse-counter.ts";
import { decodeRecords, encodeRecords, textUpdate } from "../../../src/typha/records.ts";

const HOST = "localhost";
let labels = 0;
const uniqueLabel = (): string => `label-${labels++}`;
/** A selector that no other policy contains, so that nothing is shared. */
const unique = (): string => `has(${uniqueLabel()})`;

interface Given {
  readonly kind: KindName;
  readonly namespace?: string;
  readonly spec: object;
}

/** Returns the updates that the syncer emits for the resource. */
function process({ kind, namespace, spec }: Given): SyncerUpdate[] {
  const key = { type: "resource", kind, name: "p", namespace } as const;
  const value = { apiVersion: API_VERSION, kind, metadata: { name: "p", namespace }, spec };
  const processor = kind === "Profile" ? profileProcessor : policyProcessor;
  const updates = processor.process({ key, value } as never, (problem) => {
    throw new Error(problem);
  });
  return updates.map((update) => ({ ...update, change: "new" }) as SyncerUpdate);
}

const LOCAL_LABELS = { "projectcalico.org/namespace": "ns", "projectcalico.org/orchestrator": "k8s" };

/** A filter and a calculation graph on a host where all policies are active. */
function felix() {
  const messages: DataplaneMessage[] = [];
  const filter = new ValidationFilter({ log: silentLogger, allowSpoofing: false });
  const graph = new CalculationGraph(policySettings(HOST), { onMessage: (message) => messages.push(message) });
  graph.update(wep("local", { profiles: ["p"], labels: LOCAL_LABELS }));
  graph.setInSync();
  graph.flush();
  const give = (updates: readonly SyncerUpdate[]) => {
    for (const update of updates) graph.update(filter.check(update) as GraphUpdate);
    graph.flush();
  };
  return { give, sent: (type: DataplaneMessage["type"]) => messages.filter((message) => message.type === type).length };
}

const everySide = (isLabelled = true) => ({
  selector: unique(),
  notSelector: unique(),
  ...(isLabelled && { namespaceSelector: unique(), serviceAccounts: { names: ["robot"], selector: unique() } }),
});

/** `received`: Typha sends the selectors of a policy, and of a side of a rule, as one. */
const cases: readonly { name: string; make: () => Given; selectors: number; received: number }[] = [
  {
    name: "a global policy with all three selectors",
    make: () => ({
      kind: "GlobalNetworkPolicy",
      spec: {
        selector: `!${unique()}`,
        namespaceSelector: `!(!${unique()}) || all()`,
        serviceAccountSelector: `!${unique()} || all()`,
        performanceHints: ["AssumeNeededOnEveryNode"],
      },
    }),
    selectors: 3,
    received: 1,
  },
  {
    name: "a namespaced policy with every selector that a rule can have",
    make: () => ({
      kind: "NetworkPolicy",
      namespace: "ns",
      spec: {
        selector: `!${unique()}`,
        types: ["Ingress", "Egress"],
        ingress: [{ action: "Allow", source: everySide(), destination: everySide() }],
        egress: [{ action: "Deny", source: everySide(), destination: everySide() }],
      },
    }),
    selectors: 1 + 4 * 4,
    received: 1 + 4 * 2,
  },
  {
    name: "named ports with selectors, and a negated selector alone",
    make: () => ({
      kind: "GlobalNetworkPolicy",
      spec: {
        selector: `!${unique()}`,
        ingress: [
          {
            action: "Allow",
            protocol: "TCP",
            source: { notSelector: unique() },
            destination: { ...everySide(false), ports: ["http", 80], notPorts: ["dns"] },
          },
        ],
      },
    }),
    selectors: 4,
    received: 4,
  },
  {
    name: "a Kubernetes policy",
    make: () => ({
      kind: "KubernetesNetworkPolicy",
      namespace: "ns",
      spec: {
        podSelector: { matchExpressions: [{ key: uniqueLabel(), operator: "DoesNotExist" }] },
        ingress: [
          { from: [{ podSelector: { matchLabels: { [uniqueLabel()]: "x" } } }] },
          { from: [{ namespaceSelector: { matchLabels: { [uniqueLabel()]: "x" } }, podSelector: {} }] },
        ],
      },
    }),
    selectors: 4,
    received: 3,
  },
  {
    name: "a profile",
    make: () => ({ kind: "Profile", spec: { ingress: [{ action: "Allow", source: everySide(false) }] } }),
    selectors: 2,
    received: 2,
  },
];

for (const { name, make, selectors, received } of cases) {
  test(`the processor parses each selector once, and nothing after it parses: ${name}`, () => {
    const { give, sent } = felix();
    const given = make();
    using parses = new ParseCounter();
    const updates = process(given);
    expect(parses.take()).toBe(selectors);
    const type = given.kind === "Profile" ? "activeProfileUpdate" : "activePolicyUpdate";
    const before = sent(type);
    give(updates);
    expect(sent(type)).toBe(before + 1);
    expect(parses.take()).toBe(0);
  });

  test(`a client of Typha parses each selector once, on receipt: ${name}`, () => {
    const { give } = felix();
    // Other labels than those that the processor has parsed in this process.
    const sentText = encodeRecords(process(make()).map(textUpdate)).toString().replaceAll("label-", "received-");
    const records = Buffer.from(sentText);
    using parses = new ParseCounter();
    const { updates } = decodeRecords(records);
    expect(parses.take()).toBe(received);
    give(updates);
    expect(parses.take()).toBe(0);
    // Sent again, for example after a reconnection, while the policy is in use.
    give(decodeRecords(records).updates);
    expect(parses.take()).toBe(0);
  });

  test(`a client of Typha receives the result of the processor: ${name}`, () => {
    const updates = process(make());
    expect(decodeRecords(encodeRecords(updates.map(textUpdate))).updates).toEqual(updates);
  });
}

/** No endpoint has a unique label, so all of them select the local endpoint. */
const field = fc.constantFrom("", "!", "!(!(!").map((negation) => ({ negation }));
const side = fc.record({ selector: field, notSelector: field, namespaceSelector: field });

test("property: a policy update runs the parser once per selector, for any policy", () =>
  fc.assert(
    fc.property(
      fc.record({ selector: field, namespaceSelector: field, serviceAccountSelector: field }),
      fc.array(fc.record({ source: side, destination: side }), { maxLength: 3 }),
      fc.option(fc.constant("ns"), { nil: undefined }),
      (own, rules, namespace) => {
        let written = 0;
        const write = (of: Readonly<Record<string, { readonly negation: string }>>): object =>
          Object.fromEntries(
            Object.entries(of).flatMap(([name, { negation }]) => {
              if (negation === "") return [];
              const isUsed = name !== "namespaceSelector" || namespace === undefined || of !== own;
              if (isUsed) written++;
              return [[name, negation + unique() + ")".repeat(negation.length >> 1)]];
            }),
          );
        const ingress = rules.map(({ source, destination }) => ({
          action: "Allow",
          source: write(source),
          destination: write(destination),
        }));
        const kind = namespace === undefined ? "GlobalNetworkPolicy" : "NetworkPolicy";
        const spec = { ...write(own), ingress };
        const { give, sent } = felix();
        using parses = new ParseCounter();
        give(process({ kind, namespace, spec }));
        expect(sent("activePolicyUpdate")).toBe(1);
        expect(parses.take()).toBe(written);
      },
    ),
  ));
