// Undoes the completed steps of a failed ADD, in reverse order.
import type { Logger } from "../../lib/log/log.ts";
import type { CniContext } from "../context.ts";
import { ROLLBACK_SHARE } from "../deadline.ts";
import { deleteEndpointIf, type StoredEndpoint, storedIdentity } from "./endpoint.ts";
import { ipamPluginDel } from "../ipam/ipam-plugin.ts";

export class Undo {
  readonly #steps: (() => Promise<void>)[] = [];
  constructor(readonly log: Logger) {}

  /** @param step undoes the step that was just completed */
  add(step: () => Promise<void>): void {
    this.#steps.push(step);
  }

  /**
   * Stops at the first step that cannot be undone; DEL undoes it and all earlier ones. For example, addresses must not be
   * released while the interface still has them.
   */
  async run(): Promise<void> {
    try {
      for (const step of this.#steps.reverse()) await step();
    } catch (error) {
      this.log.error("could not undo all steps of a failed ADD; DEL will undo the rest", { error });
    }
  }
}

/** Deletes the endpoint and releases the addresses of a failed ADD, within the time reserved for that. */
export async function releaseEverything(context: CniContext, existing: StoredEndpoint | undefined): Promise<void> {
  const { conf, identity, store } = context;
  const signal = AbortSignal.timeout(conf.datastoreTimeoutSeconds * ROLLBACK_SHARE * 1000);
  const isOwn = ({ endpoint }: StoredEndpoint): boolean => endpoint.spec.containerID === identity.containerId;
  await deleteEndpointIf(store, storedIdentity(identity, existing), isOwn, { signal });
  await ipamPluginDel({ ...context, signal });
}
