import { describe, expect, test } from "bun:test";
import { readStored, stored } from "../testing/read.ts";
import { readSyncLabels } from "./kube-controllers-configuration.ts";
import { readPolicyTarget } from "./policy.ts";
import { readTier } from "./tier.ts";

describe("readPolicyTarget", () => {
  const minimal = { tier: "default", selector: "all()", types: ["ingress"] };
  const cases: readonly (readonly [name: string, spec: unknown, want: object, problems?: readonly string[]])[] = [
    ["minimal", {}, minimal],
    ["no spec", undefined, minimal],
    ["empty text counts as unset", { tier: "", selector: "" }, minimal],
    [
      "complete",
      { tier: "t", selector: "has(a)", types: ["Ingress", "Egress"] },
      { tier: "t", selector: "has(a)", types: ["ingress", "egress"] },
    ],
    ["types of egress rules", { egress: [{}] }, { ...minimal, types: ["egress"] }],
    ["types of both", { ingress: [{}], egress: [{}] }, { ...minimal, types: ["ingress", "egress"] }],
    ["unreadable type", { types: ["Sideways"] }, minimal, ["spec.types: want Ingress or Egress"]],
    [
      "wrong types",
      { tier: 5, selector: [], types: "Egress" },
      minimal,
      ["spec.tier: want text", "spec.selector: want text", "spec.types: want a list"],
    ],
    ["spec of the wrong type", 5, minimal, ["spec: want an object"]],
  ];
  for (const [name, spec, want, problems = []] of cases)
    test(name, () => {
      const found: string[] = [];
      expect<unknown>(readPolicyTarget(spec, ({ message }) => found.push(message))).toEqual(want);
      expect<readonly string[]>(found).toEqual(problems);
    });
});

describe("readTier", () => {
  const cases: readonly (readonly [spec: unknown, want: object, problems: readonly string[]])[] = [
    [{}, { defaultAction: "Deny" }, []],
    [{ order: 10, defaultAction: "Pass" }, { order: 10, defaultAction: "Pass" }, []],
    [{ defaultAction: "Other" }, { defaultAction: "Deny" }, []],
    [
      { order: "x", defaultAction: 5 },
      { defaultAction: "Deny" },
      ["spec.order: want a number", "spec.defaultAction: want text"],
    ],
    [5, { defaultAction: "Deny" }, ["spec: want an object"]],
  ];
  for (const [spec, value, problems] of cases)
    test(JSON.stringify(spec), () =>
      expect<unknown>(readStored(readTier, stored("Tier", { spec }))).toEqual({ value, problems }),
    );
});

describe("readSyncLabels", () => {
  const cases: readonly (readonly [spec: unknown, want: string | undefined, problems: readonly string[]])[] = [
    [{}, undefined, []],
    [{ controllers: { node: { syncLabels: "Disabled" } } }, "Disabled", []],
    [{ controllers: { node: 5 } }, undefined, ["spec.controllers.node: want an object"]],
  ];
  for (const [spec, value, problems] of cases)
    test(JSON.stringify(spec), () =>
      expect(readStored(readSyncLabels, stored("KubeControllersConfiguration", { spec }))).toEqual({
        value,
        problems,
      }),
    );
});
