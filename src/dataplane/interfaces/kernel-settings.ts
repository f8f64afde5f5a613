// Restores sysctls that another program changed, for example when the host reloads its own settings. Without them, a workload
// may lose its connectivity. They are checked whenever routes are refreshed.
import { hasErrno, type SysctlPath, type Sysctls } from "../../kernel/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import type { ApplyOutcome, Reconciler } from "../loop/manager.ts";

export interface KernelSetting {
  readonly path: SysctlPath;
  readonly value: string | number;
  /** Some kernels do not have the setting. */
  readonly isOptional?: boolean;
}

export interface KernelSettingsOptions {
  readonly sysctls: Sysctls;
  readonly logger: Logger;
  /** Returns the settings, those of the host first: `ip_forward` changes `forwarding` of all interfaces. */
  readonly desired: () => Iterable<KernelSetting>;
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
    const { sysctls, logger, desired } = this.#options;
    for (const { path, value, isOptional = false } of desired())
      try {
        const found = sysctls.read(path);
        if (found === String(value)) continue;
        sysctls.write(path, value);
        logger.warn("another program changed a kernel setting; restored it", { setting: path.join("/"), found, value });
      } catch (error) {
        // The interface was deleted. A new one with the same name is configured when it appears.
        if (!isOptional && !hasErrno(error, "ENOENT", "ENODEV")) throw error;
      }
    return {};
  }
}
