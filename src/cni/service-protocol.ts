// What plugin and service say to each other: one JSON text each way. Kept free of everything else, because the plugin
// loads it on every pod's way.

export const SERVICE_SOCKET = "/var/run/calico/cni.sock";

export interface ServiceRequest {
  /** CNI_… and FELIX_INTERFACEPREFIX, nothing else of the environment. */
  readonly env: Readonly<Record<string, string>>;
  readonly stdin: string;
}

export type ServiceReply =
  | { readonly exitCode: number; readonly stdout: string }
  /** Not for the service: the plugin does it by itself. */
  | { readonly declined: string };

/** The variables that belong to a request. */
export function requestEnvironment(env: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const picked: Record<string, string> = {};
  for (const [name, value] of Object.entries(env))
    if (value !== undefined && (name.startsWith("CNI_") || name === "FELIX_INTERFACEPREFIX")) picked[name] = value;
  return picked;
}
