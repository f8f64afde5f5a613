import { expect, test } from "bun:test";
import { type KubeApi, KubeStatusError } from "../../datastore/index.ts";
import { ATTRIBUTE } from "../../ipam/index.ts";
import { KubeVirt } from "./virtual-machines.ts";

const attributes = { [ATTRIBUTE.namespace]: "ns1", [ATTRIBUTE.vmiName]: "vm1" };

/** An API server that serves KubeVirt's group and answers 404 for every object. */
const answering404 = (reason: string): KubeApi =>
  ({
    get: async (path: string) => {
      if (path === "/apis/kubevirt.io/v1") return {};
      throw new KubeStatusError(`GET ${path}`, { code: 404, reason, message: "not found" });
    },
  }) as never;

test("a virtual machine is missing only if the API server itself reports it, not if a proxy answers 404", async () => {
  const { signal } = new AbortController();
  expect(await new KubeVirt(answering404("NotFound")).exists(attributes, signal)).toBe(false);
  expect(await new KubeVirt(answering404("")).exists(attributes, signal)).toBe(true);
});
