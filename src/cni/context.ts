// Everything ADD, DEL and the rest are functions of. The plugin process and the node-local service each build one per
// request; nothing below asks the environment.
import type { LinkRemover, NetworkNamespace } from "../kernel/index.ts";
import type { IpamContext } from "./ipam-plugin.ts";
import type { CniRequest } from "./request.ts";
import type { MarkStep } from "./step-times.ts";

export interface CniContext extends IpamContext {
  readonly request: CniRequest;
  /** Opens the pod's namespace: by path, or the descriptor a client passed. */
  readonly openNetns: () => NetworkNamespace;
  /** Whether somebody still waits for the answer; absent: always. */
  readonly isAwaited?: () => boolean;
  /** Takes pods' interfaces away where several may go together; absent: one by one. */
  readonly removeLink?: LinkRemover["remove"];
  /** Hears which step is done. */
  readonly mark: MarkStep;
}
