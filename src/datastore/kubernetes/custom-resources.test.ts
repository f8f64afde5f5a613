import { expect, test } from "bun:test";
import { hideMetadata } from "./custom-resources.ts";

test("the hidden metadata of one content is one text, in whatever order its maps were written", () => {
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
