import { describe, expect, test } from "bun:test";
import { readStored, stored } from "../testing/read.ts";
import { isDatastoreReady, readClusterInformation } from "./cluster-information.ts";
import { readFelixConfiguration } from "./felix-configuration.ts";

describe("readClusterInformation", () => {
  const minimal = {
    clusterGuid: undefined,
    clusterType: undefined,
    calicoVersion: undefined,
    variant: undefined,
    isDatastoreReady: undefined,
  };
  const cases: readonly (readonly [name: string, spec: unknown, want: object, problems?: readonly string[]])[] = [
    ["minimal", {}, minimal],
    ["empty text counts as unset", { clusterGUID: "", datastoreReady: null }, minimal],
    [
      "complete",
      { clusterGUID: "ab", clusterType: "k8s,bgp", calicoVersion: "v3.30.0", variant: "Calico", datastoreReady: false },
      {
        clusterGuid: "ab",
        clusterType: "k8s,bgp",
        calicoVersion: "v3.30.0",
        variant: "Calico",
        isDatastoreReady: false,
      },
    ],
    [
      "wrong types",
      { clusterGUID: 5, datastoreReady: "true", calicoVersion: "v3" },
      { ...minimal, calicoVersion: "v3" },
      ["spec.clusterGUID: want text", "spec.datastoreReady: want true or false"],
    ],
    ["spec of the wrong type", [], minimal, ["spec: want an object"]],
  ];
  for (const [name, spec, want, problems = []] of cases)
    test(name, () =>
      expect<unknown>(readStored(readClusterInformation, stored("ClusterInformation", { spec }))).toEqual({
        value: want,
        problems,
      }),
    );

  test("the datastore is ready only if that is stated", () => {
    for (const [datastoreReady, want] of [
      [true, true],
      [false, false],
      [undefined, false],
      ["true", false],
    ] as const)
      expect(isDatastoreReady(stored("ClusterInformation", { spec: { datastoreReady } }))).toBe(want);
  });
});

describe("readFelixConfiguration", () => {
  const read = (spec: unknown) => readStored(readFelixConfiguration, stored("FelixConfiguration", { spec }));
  const minimal = { nodeSelector: undefined, wireguardHostEncryptionEnabled: false };
  test("minimal", () => expect<unknown>(read({})).toEqual({ value: minimal, problems: [] }));
  test("complete", () => {
    const { value, problems } = read({ nodeSelector: "rack == 'a'", wireguardHostEncryptionEnabled: true });
    expect(value.nodeSelector?.text).toBe("rack == 'a'");
    expect(value.nodeSelector?.matches({ rack: "a" })).toBe(true);
    expect(value.nodeSelector?.matches({ rack: "b" })).toBe(false);
    expect(value.wireguardHostEncryptionEnabled).toBe(true);
    expect(problems).toEqual([]);
  });
  test("an unreadable selector selects no node", () => {
    const { value, problems } = read({ nodeSelector: "((" });
    expect(value).toEqual(minimal);
    expect(problems).toEqual([expect.stringContaining("spec.nodeSelector: want a selector")]);
  });
  test("wrong types", () =>
    expect<unknown>(read({ nodeSelector: 5, wireguardHostEncryptionEnabled: "yes" })).toEqual({
      value: minimal,
      problems: ["spec.nodeSelector: want text", "spec.wireguardHostEncryptionEnabled: want true or false"],
    }));
});
