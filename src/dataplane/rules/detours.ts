// Where packets go when the kernel refuses the rule they should have met, and dropping them all would stop too much.
// Managers offer these chains; they are written only where something leads to them.
import { type Detour, jump, type Match, type Rule } from "./rule.ts";

/** Chains that lead to host endpoints' policy. */
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

/** For interfaces with a host endpoint whose policy cannot be asked. */
export const closedDetour = (chain: string): Detour => ({
  chain,
  meaning: "host endpoints are closed but for known connections and failsafe ports; what policy may allow is dropped",
});
export const closedInstead = (of: HostDispatch): Detour => closedDetour(CLOSED_CHAINS[of]);

export const askHostPolicy = (chain: HostDispatch, match?: Match): Rule => ({
  ...(match === undefined ? {} : { match: [match] }),
  action: jump(chain),
  ifRefused: closedInstead(chain),
});

/** For a workload's packets, where the kernel cannot ask for the way back to their source. */
export const KNOWN_SOURCES: Detour = {
  chain: "cali-rpf-known",
  meaning: "a workload's packets pass when their source is an address of its endpoint",
};
