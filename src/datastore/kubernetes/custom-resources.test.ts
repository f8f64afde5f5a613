import { expect, test } from "bun:test";
import { CRD_V1, CustomResources, hideMetadata } from "./custom-resources.ts";

test("equal metadata is written as the same text, whatever the order of its maps", () => {
  const text = (metadata: Parameters<typeof hideMetadata>[0]) =>
    hideMetadata(metadata, true).annotations?.["projectcalico.org/metadata"];
  const one = text({ name: "x", labels: { b: "1", a: "2" }, annotations: { z: "1", "projectcalico.org/y": "2" } });
  expect(one).toBe(
    text({ name: "x", annotations: { "projectcalico.org/y": "2", z: "1" }, labels: { a: "2", b: "1" } }),
  );
  expect(one).toBe(
    '{"name":"x","creationTimestamp":null,"labels":{"a":"2","b":"1"},"annotations":{"projectcalico.org/y":"2","z":"1"}}',
  );
});

const SETS = new CustomResources("NetworkSet", CRD_V1);
const read = (hidden: string) =>
  SETS.decode({
    metadata: {
      name: "s",
      namespace: "ns1",
      creationTimestamp: "2026-01-01T00:00:00Z",
      annotations: { "projectcalico.org/metadata": hidden },
    },
    spec: { nets: [] },
  }).value.metadata;

test("fields of the metadata annotation with a wrong type are ignored, and the others are read", () => {
  const plain = { name: "s", namespace: "ns1", creationTimestamp: "2026-01-01T00:00:00Z" };
  for (const wrong of [
    '{"labels":{"app":5}}',
    '{"labels":{"app":{"a":"b"}}}',
    '{"labels":{"app":null}}',
    '{"labels":"app"}',
    '{"labels":["app"]}',
    '{"annotations":{"note":["x"]}}',
    '{"annotations":7}',
    '{"generateName":{}}',
    '{"creationTimestamp":5}',
    '{"finalizers":"x"}',
    '{"finalizers":[1]}',
    '{"ownerReferences":[{"uid":1}]}',
    '{"namespace":"other","name":"other","uid":"other"}',
    "[]",
    "null",
    "{",
  ])
    expect({ wrong, ...read(wrong) }).toEqual({ wrong, ...plain });
  expect(read('{"labels":{"app":5,"role":"db"},"annotations":{"note":"x"},"finalizers":["f"]}')).toEqual({
    ...plain,
    labels: { role: "db" },
    annotations: { note: "x" },
    finalizers: ["f"],
  });
});

test("the policy name in the metadata annotation is used, and changes neither key nor namespace", () => {
  const policies = new CustomResources("NetworkPolicy", CRD_V1);
  const { key, value } = policies.decode({
    metadata: {
      name: "stored",
      namespace: "ns1",
      annotations: { "projectcalico.org/metadata": '{"name":"shown","namespace":"prod","uid":"other"}' },
    },
    spec: {},
  });
  expect(key).toEqual({ type: "resource", kind: "NetworkPolicy", namespace: "ns1", name: "stored" });
  expect(value.metadata).toEqual({ name: "shown", namespace: "ns1" });
});
