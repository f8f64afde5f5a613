// What was true of the host at the start and decided how the dataplane was built: when it is no longer true, the agent
// starts again. Nothing is detached meanwhile, so that costs a second and no packet.
import type { Link } from "../kernel/index.ts";
import { aborted } from "../lib/retry.ts";
import { hostMtu } from "./mtu.ts";

/** kube-proxy in IPVS mode puts every service's address on this device. */
export const IPVS_DEVICE = "kube-ipvs0";

export interface HostWatchOptions {
  readonly links: () => readonly Link[];
  readonly mtuPattern: RegExp | undefined;
  /** What the dataplane was built for. */
  readonly mtu: number;
  readonly ipvs: boolean;
  /** The way of writing rules that would be chosen now; nothing when it was told outright. */
  readonly backendNow?: () => string;
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
    const now = hostMtu(links(), mtuPattern);
    if (now !== mtu) onChange(`the host's MTU changed from ${mtu} to ${now}`);
  }

  /** kube-proxy came in, or left, IPVS mode: rules differ. */
  onLink(name: string, isThere: boolean): void {
    const { ipvs, onChange } = this.#options;
    if (name !== IPVS_DEVICE || isThere === ipvs) return;
    onChange(isThere ? "kube-proxy began to use IPVS" : "kube-proxy no longer uses IPVS");
  }

  /** With NFTablesMode Auto: what the kernel and kube-proxy allow may be another way now. */
  checkBackend(): void {
    const { backendNow, backend, onChange } = this.#options;
    const now = backendNow?.() ?? backend;
    if (now !== backend) onChange(`rules would now be written with ${now}, not with ${backend}`);
  }

  /** Until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const timers = [
      setInterval(() => this.checkMtu(), MTU_POLL_MS),
      ...(this.#options.backendNow === undefined ? [] : [setInterval(() => this.checkBackend(), BACKEND_POLL_MS)]),
    ];
    await aborted(signal);
    for (const timer of timers) clearInterval(timer);
  }
}
