// What plugin and service say to each other: one JSON text each way. Types alone: the plugin loads as little as it can,
// so each side has its own copy of the path, and the compiler holds them equal.

export type ServiceSocket = "/var/run/calico/cni.sock";

export interface ServiceRequest {
  /** CNI_… and FELIX_INTERFACEPREFIX, nothing else of the environment. */
  readonly env: Readonly<Record<string, string>>;
  readonly stdin: string;
}

export type ServiceReply =
  | { readonly exitCode: number; readonly stdout: string }
  /** Not for the service: the plugin does it by itself. */
  | { readonly declined: string };
