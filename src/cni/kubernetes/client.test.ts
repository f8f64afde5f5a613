import { expect, test } from "bun:test";
import type { KubeApi } from "../../datastore/index.ts";
import { MissingObject } from "../error.ts";
import { agentKubernetes, readerOf } from "./client.ts";

test("the agent has its own way to the API when its environment names one, whatever its datastore", () => {
  expect(agentKubernetes({ DATASTORE_TYPE: "kubernetes", KUBECONFIG: "/etc/agent" })).toBeFunction();
  expect(agentKubernetes({ ETCD_ENDPOINTS: "http://127.0.0.1:2379", KUBECONFIG: "/etc/agent" })).toBeFunction();
});

test("else the network configuration names it", () => {
  expect(agentKubernetes({})).toBeUndefined();
  expect(agentKubernetes({ ETCD_ENDPOINTS: "http://127.0.0.1:2379", HOME: "/root" })).toBeUndefined();
});

test("a kubeconfig that cannot be read is tried again with the next pod", async () => {
  const open = agentKubernetes({ KUBECONFIG: "/nowhere/kubeconfig" });
  await expect(open?.()).rejects.toThrow("/nowhere/kubeconfig");
  await expect(open?.()).rejects.toThrow("/nowhere/kubeconfig");
});

test("CI-077 a machine that is not there is told from a server that does not answer, also where KubeVirt is not installed", async () => {
  const asked: string[] = [];
  const refusing = (code: number) =>
    readerOf({
      get: async (path: string) => {
        asked.push(path);
        throw Object.assign(new Error(`status ${code}`), { code, reason: "" });
      },
    } as unknown as KubeApi);
  await expect(refusing(404).machineInstance("ns1", "vm1")).rejects.toBeInstanceOf(MissingObject);
  await expect(refusing(404).machine("ns1", "vm1")).rejects.toThrow('virtualmachines "vm1" not found');
  await expect(refusing(403).machine("ns1", "vm1")).rejects.not.toBeInstanceOf(MissingObject);
  expect(asked.slice(0, 2)).toEqual([
    "/apis/kubevirt.io/v1/namespaces/ns1/virtualmachineinstances/vm1",
    "/apis/kubevirt.io/v1/namespaces/ns1/virtualmachines/vm1",
  ]);
});
