import { expect, test } from "bun:test";
import type { SyncerUpdate } from "../datastore/index.ts";
import { keyPath, ParsedSelector } from "../model/index.ts";
import { decodeRecords, encodeRecords } from "./records.ts";

const POLICY = keyPath({ type: "policy", kind: "GlobalNetworkPolicy", namespace: "", name: "p" });

function decode(path: string, json: unknown): { value: SyncerUpdate["value"]; unreadable: string[] } {
  const unreadable: string[] = [];
  const records = encodeRecords([{ path, value: JSON.stringify(json), revision: "", change: "new" }]);
  const { updates } = decodeRecords(records, { onUnreadable: (at, reason) => unreadable.push(`${at}: ${reason}`) });
  expect(updates).toHaveLength(1);
  return { value: updates[0]?.value, unreadable };
}

const policy = (fields: object = {}) => ({
  tier: "default",
  selector: "all()",
  types: ["ingress"],
  inboundRules: [],
  outboundRules: [],
  ...fields,
});
const rule = (source: unknown) => ({ action: "allow", source, destination: {} });

test("the selectors of a policy are parsed, and the rest of it is unchanged", () => {
  const source = {
    nets: ["10.0.0.0/8"],
    selector: "has(a)",
    notSelector: "b == 'x'",
    original: { selector: "has( a)" },
  };
  const { value, unreadable } = decode(POLICY, policy({ order: 5, inboundRules: [rule(source)] }));
  expect(unreadable).toEqual([]);
  expect(value).toEqual({
    ...policy({ order: 5 }),
    selector: ParsedSelector.parse("all()"),
    inboundRules: [
      rule({ ...source, selector: ParsedSelector.parse("has(a)"), notSelector: ParsedSelector.parse('b == "x"') }),
    ],
  } as never);
});

test("an empty selector of a policy selects everything; an empty selector of a rule is ignored", () => {
  const { value } = decode(POLICY, policy({ selector: "", outboundRules: [rule({ selector: "", notSelector: "" })] }));
  expect(value).toEqual({
    ...policy(),
    selector: ParsedSelector.parse("all()"),
    outboundRules: [rule({})],
  } as never);
});

const wrong = [
  { name: "its own selector does not parse", value: policy({ selector: "has(" }), reason: /has\(/ },
  {
    name: "a rule's selector does not parse",
    value: policy({ inboundRules: [rule({ selector: "a =" })] }),
    reason: /==/,
  },
  {
    name: "a rule's negated selector does not parse",
    value: policy({ outboundRules: [rule({ notSelector: "||" })] }),
    reason: /selector/,
  },
  { name: "a selector is not text", value: policy({ selector: 5 }), reason: /selector: want text/ },
  { name: "its rules are not a list", value: policy({ inboundRules: {} }), reason: /inboundRules: want a list/ },
  {
    name: "a rule is not an object",
    value: policy({ inboundRules: [1] }),
    reason: /inboundRules\[0\]: want an object/,
  },
  {
    name: "a rule's source is not an object",
    value: policy({ inboundRules: [rule("x")] }),
    reason: /source: want an object/,
  },
  { name: "it is not an object", value: 5, reason: /want an object/ },
];
for (const { name, value, reason } of wrong)
  test(`FC-039 a policy counts as deleted and is reported if ${name}`, () => {
    const decoded = decode(POLICY, value);
    expect(decoded.value).toBeUndefined();
    expect(decoded.unreadable).toHaveLength(1);
    expect(decoded.unreadable[0]).toStartWith(`${POLICY}: `);
    expect(decoded.unreadable[0]).toMatch(reason);
  });

test("a profile with an invalid selector in a rule counts as deleted, so that its endpoints drop traffic", () => {
  const { value, unreadable } = decode(keyPath({ type: "profileRules", name: "web" }), {
    inboundRules: [rule({ selector: "has(" })],
    outboundRules: [],
  });
  expect(value).toBeUndefined();
  expect(unreadable).toHaveLength(1);
});
