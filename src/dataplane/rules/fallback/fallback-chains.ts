// Chains that process packets if the kernel rejects the rule that should process them, and a drop would stop too much.
// Managers always define these chains; a renderer writes them only if a fallback rule jumps to them.
import { type FallbackChain, jump, type Match, type Rule } from "../rule.ts";

/** Chains that dispatch packets to the policy of host endpoints. */
export type HostDispatch =
  | "cali-from-host-endpoint"
  | "cali-to-host-endpoint"
  | "cali-from-hep-forward"
  | "cali-to-hep-forward";

const CLOSED_CHAINS: Readonly<Record<HostDispatch, string>> = {
  "cali-from-host-endpoint": "cali-from-host-closed",
  "cali-to-host-endpoint": "cali-to-host-closed",
  "cali-from-hep-forward": "cali-from-hep-closed",
  "cali-to-hep-forward": "cali-to-hep-closed",
};

/** Replaces the policy of host endpoints: only established connections and failsafe ports are allowed. */
export const closedHostChain = (chain: string): FallbackChain => ({
  chain,
  effect: "traffic of host endpoints is dropped, except established connections and failsafe ports",
});
export const closedHostFallback = (dispatch: HostDispatch): FallbackChain => closedHostChain(CLOSED_CHAINS[dispatch]);

export const jumpToHostPolicy = (chain: HostDispatch, match?: Match): Rule => ({
  ...(match === undefined ? {} : { match: [match] }),
  action: jump(chain),
  ifRejected: closedHostFallback(chain),
});

/** Replaces the reverse-path filter for packets from workloads. */
export const KNOWN_SOURCES: FallbackChain = {
  chain: "cali-rpf-known",
  effect: "packets of a workload pass if their source is an address of its endpoint",
};
