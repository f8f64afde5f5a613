// The parts the apply loop is made of.
//
// A manager turns messages into desired state. `onUpdate` only remembers; `apply` works out what follows (chains, sets,
// routes wanted, sysctls) once per round. What reaches the kernel goes through reconcilers, which know what is there,
// write only the difference, and are called by the loop in the order that keeps every intermediate state closed:
// sets, then rules that name them, then sets nobody names any more; routes beside.
import type { DataplaneMessage, DataplaneReport } from "../calc/index.ts";
import type { IpAddress } from "../lib/ip.ts";

/** What the interface monitor tells. Addresses are those of local routes, so they include a down interface's. */
export type InterfaceMessage =
  | {
      readonly type: "interfaceState";
      readonly name: string;
      readonly index: number;
      /** `up` while the link runs (not merely when it is switched on). */
      readonly state: "up" | "down" | "gone";
    }
  | {
      readonly type: "interfaceAddresses";
      readonly name: string;
      /** Nothing when the interface is gone. */
      readonly addresses: ReadonlySet<IpAddress> | undefined;
    };

export type ManagerMessage = DataplaneMessage | InterfaceMessage;

export interface Manager {
  readonly name: string;
  /** Remembers. No kernel, no clock, no throw. */
  onUpdate(message: ManagerMessage): void;
  /** Before any manager applies: for what other managers read during `apply`. */
  resolve?(): void;
  /**
   * Brings desired state up to date with what was remembered, and may write what no reconciler owns (sysctls). An error
   * is logged and the whole round is tried again; the other managers still have their turn.
   */
  apply?(signal: AbortSignal): Promise<ApplyOutcome | void> | ApplyOutcome | void;
  /** After everything of the round was written: what to report upwards. */
  reports?(): readonly DataplaneReport[];
}

export interface ApplyOutcome {
  /** Look again after this time even if nothing changes (to check what was written, to finish what was left). */
  readonly againInMs?: number;
}

/** Owns one kind of kernel state. */
export interface Reconciler {
  readonly name: string;
  /** Is written (sets: is deleted) only in a round that has written all sets and all other tables. */
  readonly needsWholeRules?: boolean;
  /** The next `apply` reads the kernel again and repairs what differs. */
  queueResync(): void;
  apply(signal: AbortSignal): Promise<ApplyOutcome> | ApplyOutcome;
}

/** Sets of addresses that rules name: made and filled before the rules are written, deleted after. */
export interface SetReconciler extends Reconciler {
  applyDeletions(signal: AbortSignal): Promise<ApplyOutcome> | ApplyOutcome;
}

/**
 * A failure that repeated tries did not cure and that would leave the node half-programmed. The loop ends with it, and
 * the program with the loop: a fresh start reads everything again.
 */
export class FatalDataplaneError extends Error {
  override readonly name = "FatalDataplaneError";
}
