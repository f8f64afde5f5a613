// What the dataplane needs of the kernel. open-kernel.ts opens the real one; tests put others in places.
import type {
  Conntrack,
  EventMonitorOptions,
  OpenNeighbourResponder,
  RouteKernel,
  Sysctls,
  TrafficControl,
} from "../kernel/index.ts";
import type { RulesKernel } from "./rule-planes.ts";
import type { SweepTargets } from "./sweeper.ts";
import type { WireguardKernel } from "./wireguard/wireguard-device.ts";

export interface LinuxKernel {
  readonly rules: RulesKernel;
  readonly routes: RouteKernel;
  readonly conntrack: Pick<Conntrack, "deleteByAddress">;
  readonly sysctls: Sysctls;
  /** Nothing where nobody shall encrypt, as in most tests. */
  readonly wireguard?: WireguardKernel;
  /** Queues, for bandwidth limits; without them there are none. */
  readonly trafficControl?: TrafficControl;
  /** Why the kernel cannot record flows; nothing where it can, or nobody asked. */
  readonly noFlowRecords?: string;
  /** Where the kernel computes wrong checksums of packets inside tunnels: lets it compute none there. */
  readonly switchOffChecksums?: (device: string) => void;
  /** What the other backend may have left. */
  readonly leftovers?: SweepTargets;
  /** The way of writing rules that would be chosen now; nothing when it was told outright. */
  readonly backendNow?: () => RulesKernel["backend"];
  /** Where events come from: this thread's namespace, or another. */
  readonly namespace?: { readonly fd: number };
  /** Hears machines that arrive from other nodes. */
  readonly listenForAnnouncement?: (link: number, onHeard: () => void) => Disposable;
  /** Answers ARP and neighbour discovery for addresses that are not the host's own. */
  readonly openNeighbourResponder?: OpenNeighbourResponder;
  /** Another way to hear of events, for tests of its end. */
  readonly openEvents?: (options: EventMonitorOptions) => AsyncDisposable;
}
