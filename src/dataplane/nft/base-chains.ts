// The base chains of calico-ts: the hook, type and priority of each.
import type { BaseChain } from "../../kernel/index.ts";
import type { TableName } from "../rules/rule.ts";

export type BaseChains = Readonly<Record<TableName, Readonly<Record<string, BaseChain>>>>;

export const BASE_CHAINS: BaseChains = {
  raw: {
    PREROUTING: { type: "filter", hook: "prerouting", priority: -300, policy: "accept" },
    OUTPUT: { type: "filter", hook: "output", priority: -300, policy: "accept" },
  },
  mangle: {
    PREROUTING: { type: "filter", hook: "prerouting", priority: -150, policy: "accept" },
    POSTROUTING: { type: "filter", hook: "postrouting", priority: -150, policy: "accept" },
  },
  nat: {
    PREROUTING: { type: "nat", hook: "prerouting", priority: -100, policy: "accept" },
    OUTPUT: { type: "nat", hook: "output", priority: 110, policy: "accept" },
    // After the rules of kube-proxy, which masquerades packets with its own mark.
    POSTROUTING: { type: "nat", hook: "postrouting", priority: 110, policy: "accept" },
  },
  filter: {
    INPUT: { type: "filter", hook: "input", priority: 0, policy: "accept" },
    FORWARD: { type: "filter", hook: "forward", priority: 0, policy: "accept" },
    OUTPUT: { type: "filter", hook: "output", priority: 0, policy: "accept" },
  },
};

export const sameBase = (a: BaseChain | undefined, b: BaseChain | undefined): boolean =>
  a === b ||
  (a !== undefined &&
    b !== undefined &&
    a.type === b.type &&
    a.hook === b.hook &&
    a.priority === b.priority &&
    a.policy === b.policy);
