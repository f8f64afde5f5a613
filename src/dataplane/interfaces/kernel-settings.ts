// Kernel settings that were written once and must stay: a host's tools load their own now and then, and a workload whose
// interface no longer answers for others is cut off. They are looked at again together with the routes.
import { hasErrno, type SysctlPath, type Sysctls } from "../../kernel/index.ts";
import type { Logger } from "../../lib/log.ts";
import type { ApplyOutcome, Reconciler } from "../manager.ts";

export interface KernelSetting {
  readonly path: SysctlPath;
  readonly value: string | number;
  /** Not every kernel has it, and nothing depends on it. */
  readonly isOptional?: boolean;
}

export interface KernelSettingsOptions {
  readonly sysctls: Sysctls;
  readonly logger: Logger;
  /** What was written, the host's first: its switch for forwarding moves those of the interfaces. */
  readonly written: () => Iterable<KernelSetting>;
}

export class KernelSettings implements Reconciler {
  readonly name = "kernel settings";
  readonly #options: KernelSettingsOptions;
  #needsCheck = false;

  constructor(options: KernelSettingsOptions) {
    this.#options = options;
  }

  queueResync(): void {
    this.#needsCheck = true;
  }

  apply(): ApplyOutcome {
    if (!this.#needsCheck) return {};
    this.#needsCheck = false;
    const { sysctls, logger, written } = this.#options;
    for (const { path, value, isOptional = false } of written())
      try {
        const found = sysctls.read(path);
        if (found === String(value)) continue;
        sysctls.write(path, value);
        logger.warn("somebody changed a kernel setting; put back", { setting: path.join("/"), found, value });
      } catch (error) {
        // An interface that is gone has no settings; its next one gets them anew.
        if (!isOptional && !hasErrno(error, "ENOENT", "ENODEV")) throw error;
      }
    return {};
  }
}
