import { expect, test } from "bun:test";
import { agentKubernetes } from "./kubernetes-client.ts";

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
