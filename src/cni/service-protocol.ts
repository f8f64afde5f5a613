// What plugin and service say to each other: one JSON text each way. Types alone: the plugin loads as little as it can,
// so each side has its own copy of the path, and the compiler holds them equal.
import type { StepTime } from "./step-times.ts";

export type ServiceSocket = "/var/run/calico/cni.sock";

export interface ServiceRequest {
  /** CNI_… and FELIX_INTERFACEPREFIX, nothing else of the environment. */
  readonly env: Readonly<Record<string, string>>;
  readonly stdin: string;
  /** The times of the service's steps are wanted. */
  readonly times?: true;
}

export type ServiceReply =
  | { readonly exitCode: number; readonly stdout: string; readonly times?: readonly StepTime[] }
  /** Not for the service: the plugin does it by itself. */
  | { readonly declined: string };
