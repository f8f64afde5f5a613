// The interfaces of the parts that the apply loop calls.
//
// A manager turns messages into desired state. `onUpdate` only stores them; `apply` computes chains, sets, routes and sysctls
// once per round. Reconcilers write the difference between desired and actual state to the kernel. The loop calls them in
// an order in which no intermediate state allows too much: sets, then the rules that use them, then deletions of unused
// sets; routes are written in parallel.
import type { DataplaneMessage, DataplaneReport } from "../../calc/index.ts";
import type { IpAddress } from "../../lib/ip/ip.ts";

/** Messages of the interface monitor. Addresses are those of local routes, so they include those of down interfaces. */
export type InterfaceMessage =
  | {
      readonly type: "interfaceState";
      readonly name: string;
      readonly index: number;
      /** `up` if the link is running, not only administratively up. */
      readonly state: "up" | "down" | "gone";
    }
  | {
      readonly type: "interfaceAddresses";
      readonly name: string;
      /** Undefined if the interface was deleted. */
      readonly addresses: ReadonlySet<IpAddress> | undefined;
    };

export type ManagerMessage = DataplaneMessage | InterfaceMessage;

export interface Manager {
  readonly name: string;
  /** Stores the message. Must not access the kernel or the clock, and must not throw. */
  onUpdate(message: ManagerMessage): void;
  /** Called before any manager applies, to compute what other managers read during `apply`. */
  resolve?(): void;
  /**
   * Updates the desired state, and may write what no reconciler owns (sysctls). An error is logged and the whole round is
   * retried; the other managers are still called.
   */
  apply?(signal: AbortSignal): Promise<ApplyOutcome | void> | ApplyOutcome | void;
  /** Called after the round was written. Returns the reports to send to Felix. */
  reports?(): readonly DataplaneReport[];
}

export interface ApplyOutcome {
  /** Apply again after this time even if nothing changes, to check or complete what was written. */
  readonly againInMs?: number;
}

/** Keeps one kind of kernel state equal to the desired state. */
export interface Reconciler {
  readonly name: string;
  /** True if it may be written (sets: deleted) only in a round in which all sets and all other tables were written. */
  readonly requiresAllRules?: boolean;
  /** Makes the next `apply` read the kernel state and correct differences. */
  queueResync(): void;
  apply(signal: AbortSignal): Promise<ApplyOutcome> | ApplyOutcome;
}

/** IP sets: created and filled before the rules that use them are written, deleted after. */
export interface SetReconciler extends Reconciler {
  applyDeletions(signal: AbortSignal): Promise<ApplyOutcome> | ApplyOutcome;
}

/**
 * An error that did not disappear after several attempts, and that would leave the node partly programmed. It ends the loop
 * and the program; after a restart everything is read again.
 */
export class FatalDataplaneError extends Error {
  override readonly name = "FatalDataplaneError";
}
