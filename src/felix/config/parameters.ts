// Every setting the agent knows, and the type of the whole.
import type { Parameter } from "./parameter.ts";
import { bpfParameters } from "./parameters/bpf.ts";
import { connectionParameters } from "./parameters/connection.ts";
import { dataplaneParameters } from "./parameters/dataplane.ts";
import { netfilterParameters } from "./parameters/netfilter.ts";
import { overlayParameters } from "./parameters/overlay.ts";
import { processParameters } from "./parameters/process.ts";

export const PARAMETER_GROUPS = {
  "Datastore and Typha": connectionParameters,
  "Process, logs, health, metrics, reports": processParameters,
  "Every dataplane": dataplaneParameters,
  "iptables, nftables, XDP": netfilterParameters,
  "Tunnels, WireGuard, flow logs": overlayParameters,
  eBPF: bpfParameters,
} as const;

export const PARAMETERS = {
  ...connectionParameters,
  ...processParameters,
  ...dataplaneParameters,
  ...netfilterParameters,
  ...overlayParameters,
  ...bpfParameters,
} as const;

export type ParameterName = keyof typeof PARAMETERS;
type ValueOfParameter<P> = P extends Parameter<infer T> ? T : never;

/** All settings with their values. A part takes the slice it needs: `Pick<FelixConfig, "HealthPort" | …>`. */
export type FelixConfig = { readonly [N in ParameterName]: ValueOfParameter<(typeof PARAMETERS)[N]> };

const BY_LOWER_CASE: ReadonlyMap<string, ParameterName> = new Map(
  (Object.keys(PARAMETERS) as ParameterName[]).map((name) => [name.toLowerCase(), name]),
);

/** Names are the same in any case. */
export const findParameter = (name: string): ParameterName | undefined => BY_LOWER_CASE.get(name.toLowerCase());
export const parameterNames = (): readonly ParameterName[] => [...BY_LOWER_CASE.values()];
