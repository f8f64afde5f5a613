import { expect, test } from "bun:test";
import type { KubeApi } from "../../datastore/index.ts";
import { silentLogger } from "../../lib/log/log.ts";
import { KubernetesSecrets } from "./secrets.ts";

test("names and keys such as __proto__ are looked up literally", async () => {
  const requests: unknown[] = [];
  const api = {
    list: async (path: string, { query }: { query: unknown }) => {
      requests.push([path, query]);
      return {
        items: [{ metadata: { name: "s" }, data: { k: btoa("pw"), odd: 5 } }],
        metadata: { resourceVersion: "1" },
      };
    },
    watch: async function* (_path: string, _query: unknown, signal: AbortSignal) {
      yield [];
      await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    },
  } as unknown as KubeApi;
  const stop = new AbortController();
  const secrets = new KubernetesSecrets({
    api,
    namespace: "a/b",
    onChange: () => {},
    log: silentLogger,
    signal: stop.signal,
  });
  const name = "s,metadata.namespace=kube-system";
  await secrets.watch([{ name, key: "k" }]);
  expect(requests).toEqual([
    ["/api/v1/namespaces/a%2Fb/secrets", { fieldSelector: "metadata.name=s\\,metadata.namespace\\=kube-system" }],
  ]);
  expect(secrets.get({ name, key: "k" })).toBe("pw");
  for (const key of ["constructor", "__proto__", "odd", "none"]) expect(secrets.get({ name, key })).toBeUndefined();
  stop.abort();
});
