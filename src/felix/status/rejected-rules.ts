// Reports the rules, sets and features that the kernel rejects on this host: in a gauge, and in the file
// `programmed/rejected.json`, which contains each rule, the setting that requires it, and the effect of its fallback. The
// file does not exist while the kernel accepts everything.
import { rmSync } from "node:fs";
import { join } from "node:path";
import type { RejectedItem } from "../../dataplane/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import type { MetricsRegistry } from "../../lib/metrics.ts";
import { replaceFile } from "../../lib/files/replace-file.ts";

export interface RejectedRulesReporterOptions {
  /** The parent folder, such as /var/run/calico; empty: write no file. */
  readonly prefix: string;
  readonly log: Logger;
}

const KINDS: readonly RejectedItem["kind"][] = ["rule", "set", "feature"];

export class RejectedRulesReporter {
  readonly #options: RejectedRulesReporterOptions;
  #list: () => readonly RejectedItem[] = () => [];
  #written: readonly RejectedItem[] | undefined;
  #isFailureLogged = false;

  constructor(options: RejectedRulesReporterOptions) {
    this.#options = options;
  }

  /** @param list returns the items that the dataplane's kernel currently rejects */
  connect(list: () => readonly RejectedItem[]): void {
    this.#list = list;
  }

  measure(registry: MetricsRegistry): void {
    const help = "Rules, sets and features that the kernel rejects. Their fallbacks accept no additional packet.";
    registry.collect("felix_int_dataplane_rejected", help, "gauge", () => {
      const items = this.#list();
      return KINDS.map((kind) => [{ kind }, items.filter((item) => item.kind === kind).length]);
    });
  }

  /** Must be called after each round of the dataplane. */
  onApplied(): void {
    const { prefix, log } = this.#options;
    if (prefix === "") return;
    const items = this.#list();
    // The list contains the same objects until it changes, so most rounds write nothing.
    if (items.length === this.#written?.length && items.every((item, i) => item === this.#written?.[i])) return;
    const path = join(prefix, "programmed", "rejected.json");
    try {
      if (items.length === 0) rmSync(path, { force: true });
      else replaceFile(path, `${JSON.stringify(items, undefined, 1)}\n`);
      this.#written = items;
      this.#isFailureLogged = false;
    } catch (error) {
      if (!this.#isFailureLogged)
        log.warn("could not write the list of rejected rules", { path, error: describeError(error) });
      this.#isFailureLogged = true;
    }
  }
}
