// Detects changes of the host that the dataplane cannot follow: its MTU, the mode of kube-proxy, the backend for rules. Felix
// restarts then. Nothing is detached from the kernel meanwhile, so no packet is lost.
import type { Link } from "../../kernel/index.ts";
import { aborted } from "../../lib/retry.ts";
import { hostMtu } from "./mtu.ts";

/** kube-proxy in IPVS mode assigns all service addresses to this device. */
export const IPVS_DEVICE = "kube-ipvs0";

export interface HostWatchOptions {
  readonly links: () => readonly Link[];
  readonly mtuPattern: RegExp | undefined;
  /** The MTU for which the dataplane was built. */
  readonly mtu: number;
  readonly ipvs: boolean;
  /** Returns the backend that Felix would select now; undefined if the configuration fixes it. */
  readonly currentBackend?: () => string;
  readonly backend: string;
  readonly onChange: (reason: string) => void;
}

const MTU_POLL_MS = 30_000;
const BACKEND_POLL_MS = 15_000;

export class HostWatch {
  readonly #options: HostWatchOptions;
  constructor(options: HostWatchOptions) {
    this.#options = options;
  }

  checkMtu(): void {
    const { links, mtuPattern, mtu, onChange } = this.#options;
    const current = hostMtu(links(), mtuPattern);
    if (current !== mtu) onChange(`the host's MTU changed from ${mtu} to ${current}`);
  }

  /** Must be called when a link appears or disappears. The rules depend on the mode of kube-proxy. */
  onLink(name: string, exists: boolean): void {
    const { ipvs, onChange } = this.#options;
    if (name !== IPVS_DEVICE || exists === ipvs) return;
    onChange(exists ? "kube-proxy started to use IPVS" : "kube-proxy stopped using IPVS");
  }

  /** With NFTablesMode Auto, the backend depends on the kernel and on kube-proxy. */
  checkBackend(): void {
    const { currentBackend, backend, onChange } = this.#options;
    const current = currentBackend?.() ?? backend;
    if (current !== backend) onChange(`the backend for rules changed from ${backend} to ${current}`);
  }

  /** Runs until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const timers = [
      setInterval(() => this.checkMtu(), MTU_POLL_MS),
      ...(this.#options.currentBackend === undefined ? [] : [setInterval(() => this.checkBackend(), BACKEND_POLL_MS)]),
    ];
    await aborted(signal);
    for (const timer of timers) clearInterval(timer);
  }
}
