// What the kernel refuses on this host, where people look: a gauge, and a file under `programmed/` that says which rules,
// what asks for them and what is done instead. There is no file while the kernel takes everything.
import { rmSync } from "node:fs";
import { join } from "node:path";
import type { Refused } from "../../dataplane/index.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import type { MetricsRegistry } from "../../lib/metrics.ts";
import { replaceFile } from "../../lib/whole-file.ts";

export interface RefusedReporterOptions {
  /** The parent of the folder, such as /var/run/calico; nothing is written without. */
  readonly prefix: string;
  readonly log: Logger;
}

const KINDS: readonly Refused["kind"][] = ["rule", "set", "feature"];

export class RefusedReporter {
  readonly #options: RefusedReporterOptions;
  #list: () => readonly Refused[] = () => [];
  #written: readonly Refused[] | undefined;
  #hasFailed = false;

  constructor(options: RefusedReporterOptions) {
    this.#options = options;
  }

  /** Where it is known. */
  listen(list: () => readonly Refused[]): void {
    this.#list = list;
  }

  measure(registry: MetricsRegistry): void {
    const help = "Rules, sets and features the kernel refuses; what stands in lets nothing more pass.";
    registry.collect("felix_int_dataplane_refused", help, "gauge", () => {
      const refused = this.#list();
      return KINDS.map((kind) => [{ kind }, refused.filter((each) => each.kind === kind).length]);
    });
  }

  /** A round was written. */
  onApplied(): void {
    const { prefix, log } = this.#options;
    if (prefix === "") return;
    const refused = this.#list();
    // What is still refused is the same object: most rounds change nothing of it.
    if (refused.length === this.#written?.length && refused.every((each, i) => each === this.#written?.[i])) return;
    const path = join(prefix, "programmed", "refused.json");
    try {
      if (refused.length === 0) rmSync(path, { force: true });
      else replaceFile(path, `${JSON.stringify(refused, undefined, 1)}\n`);
      this.#written = refused;
      this.#hasFailed = false;
    } catch (error) {
      if (!this.#hasFailed)
        log.warn("what the kernel refuses cannot be written to its file", { path, error: describeError(error) });
      this.#hasFailed = true;
    }
  }
}
