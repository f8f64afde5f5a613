// Writes one small file per workload endpoint that is up. The CNI plugin waits for this file; the BGP service reads the
// endpoint's BGP peer from it. The folder contains exactly the endpoints that are up: other files are deleted, and missing
// files are written again.
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { DataplaneReport, ProtoWorkloadEndpoint } from "../../calc/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { aborted, backoffDelay } from "../../lib/retry.ts";
import { readFileIfExists, replaceFile } from "../../lib/files/replace-file.ts";
import { endpointStatusFileName } from "../../model/index.ts";

const RECHECK_MS = 10_000;
const RETRY = { firstMs: 50, maxMs: 5000, factor: 10 };

export class StatusFiles {
  readonly #folder: string;
  readonly #log: Logger;
  readonly #desired = new Map<string, string>();
  #isInSync = false;
  #failures = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isStopped = false;

  /** @param prefix the parent of the folder, such as /var/run/calico */
  constructor(prefix: string, log: Logger) {
    this.#folder = join(prefix, "endpoint-status");
    this.#log = log;
  }

  onReport(report: DataplaneReport): void {
    switch (report.type) {
      case "workloadEndpointStatus": {
        const name = endpointStatusFileName(report.id);
        if (report.status === "up" && report.endpoint !== undefined)
          this.#desired.set(name, contentOf(report.endpoint));
        else this.#desired.delete(name);
        return this.#attempt(() => this.#sync(name));
      }
      case "workloadEndpointStatusRemove": {
        const name = endpointStatusFileName(report.id);
        this.#desired.delete(name);
        return this.#attempt(() => this.#sync(name));
      }
      case "dataplaneInSync":
        // Before this report, the files of the previous run are kept, because they are more accurate than none.
        this.#isInSync = true;
        return this.#attempt(() => this.#syncAll());
      default:
        return;
    }
  }

  async run(signal: AbortSignal): Promise<void> {
    await aborted(signal);
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  #attempt(work: () => void): void {
    if (!this.#isInSync || this.#isStopped) return;
    let waitMs = RECHECK_MS;
    try {
      work();
      this.#failures = 0;
    } catch (error) {
      if (this.#failures === 0)
        this.#log.warn("could not write endpoint status files; retrying", { error: describeError(error) });
      waitMs = backoffDelay(RETRY, this.#failures++);
    }
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#attempt(() => this.#syncAll()), waitMs);
  }

  /** A name that is too long for a file (a pod's name may be) does not prevent the other files. */
  #syncAll(): void {
    mkdirSync(this.#folder, { recursive: true, mode: 0o755 });
    const failures: unknown[] = [];
    for (const name of new Set([...readdirSync(this.#folder), ...this.#desired.keys()]))
      try {
        this.#sync(name);
      } catch (error) {
        failures.push(error);
      }
    if (failures.length > 0) throw failures[0];
  }

  #sync(name: string): void {
    const path = join(this.#folder, name);
    const desired = this.#desired.get(name);
    if (desired === undefined) rmSync(path, { force: true });
    else if (readFileIfExists(path) !== desired) replaceFile(path, desired);
  }
}

/** Omits empty fields. */
function contentOf(endpoint: ProtoWorkloadEndpoint): string {
  const { name, mac, ipv4Nets, ipv6Nets, localBgpPeer } = endpoint;
  return JSON.stringify({
    ...(name !== "" && { ifaceName: name }),
    ...(mac !== "" && { mac }),
    ...(ipv4Nets.length > 0 && { ipv4Nets }),
    ...(ipv6Nets.length > 0 && { ipv6Nets }),
    bgpPeerName: localBgpPeer?.bgpPeerName,
  });
}
