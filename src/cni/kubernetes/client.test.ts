import { expect, test } from "bun:test";
import type { KubeApi } from "../../datastore/index.ts";
import { MissingObject } from "../error.ts";
import { agentKubeApiOpener, kubernetesReader } from "./client.ts";

test("the agent uses the API server of its environment, with any datastore", () => {
  expect(agentKubeApiOpener({ DATASTORE_TYPE: "kubernetes", KUBECONFIG: "/etc/agent" })).toBeFunction();
  expect(agentKubeApiOpener({ ETCD_ENDPOINTS: "http://127.0.0.1:2379", KUBECONFIG: "/etc/agent" })).toBeFunction();
});

test("without an API server in its environment, the agent has no own connection", () => {
  expect(agentKubeApiOpener({})).toBeUndefined();
  expect(agentKubeApiOpener({ ETCD_ENDPOINTS: "http://127.0.0.1:2379", HOME: "/root" })).toBeUndefined();
});

test("a kubeconfig that cannot be read is tried again by the next call", async () => {
  const open = agentKubeApiOpener({ KUBECONFIG: "/nowhere/kubeconfig" });
  await expect(open?.()).rejects.toThrow("/nowhere/kubeconfig");
  await expect(open?.()).rejects.toThrow("/nowhere/kubeconfig");
});

test("CI-077 a missing machine, also without KubeVirt, is distinguished from other errors of the API server", async () => {
  const paths: string[] = [];
  const failing = (code: number) =>
    kubernetesReader({
      get: async (path: string) => {
        paths.push(path);
        throw Object.assign(new Error(`status ${code}`), { code, reason: "" });
      },
    } as unknown as KubeApi);
  await expect(failing(404).machineInstance("ns1", "vm1")).rejects.toBeInstanceOf(MissingObject);
  await expect(failing(404).machine("ns1", "vm1")).rejects.toThrow('virtualmachines "vm1" not found');
  await expect(failing(403).machine("ns1", "vm1")).rejects.not.toBeInstanceOf(MissingObject);
  expect(paths.slice(0, 2)).toEqual([
    "/apis/kubevirt.io/v1/namespaces/ns1/virtualmachineinstances/vm1",
    "/apis/kubevirt.io/v1/namespaces/ns1/virtualmachines/vm1",
  ]);
});
